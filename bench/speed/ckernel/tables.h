// The tables of the logarithm, and the polynomial.
#ifndef CKERNEL_TABLES_H
#define CKERNEL_TABLES_H

#include <math.h>
#include <stdint.h>
#include <string.h>

static double logc[16] __attribute__((aligned(64)));    // log(1+j/16)
static int64_t recip[16] __attribute__((aligned(64)));  // bits(1/(1+j/16)) + bits(1+j/16)
static int64_t pairs[16][2] __attribute__((aligned(64)));  // both, as bits

static int64_t bits_of(double x) {
	int64_t b;
	memcpy(&b, &x, sizeof b);
	return b;
}

__attribute__((constructor)) static void make_tables(void) {
	for (int j = 0; j < 16; j++) {
		double c = 1 + j / 16.0;
		logc[j] = log(c);
		recip[j] = bits_of(1 / c) + bits_of(c);
		pairs[j][0] = bits_of(logc[j]);
		pairs[j][1] = recip[j];
	}
}

#define LN2 0x1.62e42fefa39efp-1
#define TINY 0x1p-1000
#define HALF_STEP ((int64_t)1 << 47)
#define STEP_MASK (~(((int64_t)1 << 48) - 1))
#define EPSILON 1e-10

// ((1+t) log(1+t) - t)/t^2 = 1/2 - t/6 + t^2/12 - ...
#define P0 (1.0 / 2)
#define P1 (-1.0 / 6)
#define P2 (1.0 / 12)
#define P3 (-1.0 / 20)
#define P4 (1.0 / 30)
#define P5 (-1.0 / 42)
#define P6 (1.0 / 56)

#endif

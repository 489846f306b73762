// The tables of the logarithm, and the polynomial.
#ifndef CKERNEL_TABLES_H
#define CKERNEL_TABLES_H

#include <math.h>
#include <stdint.h>
#include <string.h>

static double logs[16] __attribute__((aligned(64)));      // log(1+j/16)
static int64_t inverses[16] __attribute__((aligned(64))); // bits(1/(1+j/16)) + bits(1+j/16)

static int64_t bits_of(double x) {
	int64_t b;
	memcpy(&b, &x, sizeof b);
	return b;
}

__attribute__((constructor)) static void make_tables(void) {
	for (int j = 0; j < 16; j++) {
		double c = 1 + j / 16.0;
		logs[j] = log(c);
		inverses[j] = bits_of(1 / c) + bits_of(c);
	}
}

#define LN2 0x1.62e42fefa39efp-1
#define TINY 0x1p-1000
#define SHIFT (1 + 1.0 / 32)
#define STEP_MASK (~(((int64_t)1 << 48) - 1))
#define EPSILON 1e-10

// ((1+t) log(1+t) - t)/t^2 = 1/2 - t/6 + t^2/12 - ..., best for |t| <= 1/32.
#define P0 0.5000000000000009
#define P1 -0.1666666666678504
#define P2 0.08333333330997438
#define P3 -0.049999989737007505
#define P4 0.033333413809976155
#define P5 -0.023831832549191252
#define P6 0.017797558976899948

#endif

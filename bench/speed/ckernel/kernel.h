// The work, per column of a panel of float32 p[passes][width], in float64:
//
// sweep 1: mu = sum(p)/S, inv = 1/mu (0 where mu is).
// sweep 2: d = p-mu; sums of d, d^2 and d^3. x = p*inv, and sum(x log x) by a table: s is 33/32 x + 2^-1000 cut off
// after four bits of mantissa, (1+j/16) 2^e, so that x is within a 33rd of s; L = log s = e ln2 + logs[j]; q = x-s;
// t = q/s, by a table of 1/s (AVX-512) or a division (AVX2); x log x = x L + q + q t P(t), P(t) = ((1+t) log(1+t) - t)/t^2. The sum of q
// is S - sum(s), that of x L is inv sum(p L).
// finish: moments moved to the mean mu + sum(d)/S; variance/(S-1), third/S; C = variance/2/(mean+1e-10);
// skewness = |third|/(3 mean variance); M = mean (inv sum(p L) + sum(q t P) + S - sum(s))/S; mean log(mean) by the same
// log.
//
// The first sweep of the next columns runs within the second of the present ones. It puts what it converted to float64
// aside for the second, in the first-level cache: to convert in both is slower.
#ifndef CKERNEL_H
#define CKERNEL_H

#include <stddef.h>

typedef struct {
	double *mean, *variance, *third, *c, *skewness, *m, *plogp;
} columns;

// ckernel_path is 2 where the processor has AVX-512 and AVX2, 1 where it has AVX2, else 0.
int ckernel_path(void);

// ckernel_run runs the kernel of a path, 1 or 2, so many times. aside has room for 8 numbers a pass, and 8 more.
void ckernel_run(int path, const float *p, size_t passes, size_t width, double *aside, columns out, long times);

#endif

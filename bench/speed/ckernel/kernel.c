//go:build cgo && amd64

#include <immintrin.h>

#include "kernel.h"
#include "tables.h"

// What comes after the present columns, for the first sweep over them.
enum { NOTHING, SOME, ALL };

#include "avx2.h"
#include "avx512.h"

int ckernel_path(void) {
	__builtin_cpu_init();
	int has_avx2 = __builtin_cpu_supports("avx2") && __builtin_cpu_supports("fma");
	int has_avx512 = __builtin_cpu_supports("avx512f") && __builtin_cpu_supports("avx512dq") &&
	                 __builtin_cpu_supports("avx512vl") && __builtin_cpu_supports("avx512bw");
	return has_avx2 ? 1 + !!has_avx512 : 0;
}

void ckernel_run(int path, const float *p, size_t passes, size_t width, double *aside, columns out, long times) {
	aside = (double *)(((uintptr_t)aside + 63) & ~(uintptr_t)63);
	for (long i = 0; i < times; i++)
		(path == 2 ? avx512 : avx2)(p, passes, width, aside, out);
}

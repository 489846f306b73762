//go:build cgo && amd64

#include <immintrin.h>

#include "kernel.h"
#include "tables.h"

// What comes after the present columns, for those that work ahead.
enum { NOTHING, SOME, ALL };

#include "avx2.h"
#include "avx512.h"

typedef void (*kernel)(const float *p, size_t passes, size_t width, size_t stride, double *aside, columns out);

#define AVX2(HOW) avx2_##HOW##_ASIDE_1, avx2_##HOW##_ASIDE_2, avx2_##HOW##_AHEAD_1

static const kernel kernels[] = {
	avx512_aside_1, avx512_aside_2, avx512_aside_3, avx512_ahead_1, avx512_ahead_2,
	AVX2(INVERSE),  AVX2(QUOTIENT),
};

int ckernel_path(void) {
	__builtin_cpu_init();
	int avx2 = __builtin_cpu_supports("avx2") && __builtin_cpu_supports("fma");
	int avx512 = __builtin_cpu_supports("avx512f") && __builtin_cpu_supports("avx512dq") &&
	             __builtin_cpu_supports("avx512vl") && __builtin_cpu_supports("avx512bw");
	return avx2 ? 1 + !!avx512 : 0;
}

void ckernel_run(int number, const float *p, size_t passes, size_t width, size_t stride, double *aside, columns out,
                 long times) {
	aside = (double *)(((uintptr_t)aside + 63) & ~(uintptr_t)63);
	for (long i = 0; i < times; i++)
		kernels[number](p, passes, width, stride, aside, out);
}

//go:build cgo && amd64

#include <immintrin.h>

#include "kernel.h"
#include "tables.h"

#include "avx2.h"
#include "avx512.h"

typedef void (*kernel)(const float *p, size_t passes, size_t width, size_t stride, columns out);

static const kernel kernels[] = {
	avx512_1,     avx512_2,     avx512_3,      avx512_sums,   avx2_pairs_1,
	avx2_pairs_2, avx2_divide_1, avx2_divide_2, avx2_sums_pairs, avx2_sums_divide,
};

int ckernel_path(void) {
	__builtin_cpu_init();
	int avx2 = __builtin_cpu_supports("avx2") && __builtin_cpu_supports("fma");
	int avx512 = __builtin_cpu_supports("avx512f") && __builtin_cpu_supports("avx512dq") &&
	             __builtin_cpu_supports("avx512vl") && __builtin_cpu_supports("avx512bw");
	return avx2 ? 1 + !!avx512 : 0;
}

void ckernel_run(int number, const float *p, size_t passes, size_t width, size_t stride, columns out, long times) {
	for (long i = 0; i < times; i++)
		kernels[number](p, passes, width, stride, out);
}

// AVX-512: eight columns a vector, U vectors at a time.
#define TARGET512 __attribute__((target("avx512f,avx512dq,avx512vl,avx512bw,fma")))
#define INLINE512 static inline __attribute__((always_inline, target("avx512f,avx512dq,avx512vl,avx512bw,fma")))

typedef struct {
	__m512d log0, log1;
	__m512i rec0, rec1;
} tables512;

// split512 is what the logarithm of r is made of.
typedef struct {
	__m512d s, l, rs;
} split512;

INLINE512 split512 split_512(__m512d r, const tables512 *t) {
	const __m512i half = _mm512_set1_epi64(HALF_STEP), mask = _mm512_set1_epi64(STEP_MASK);
	__m512i s = _mm512_and_si512(_mm512_add_epi64(_mm512_castpd_si512(r), half), mask);
	__m512i j = _mm512_srli_epi64(s, 48);
	split512 x;
	x.s = _mm512_castsi512_pd(s);
	x.l = _mm512_fmadd_pd(_mm512_getexp_pd(x.s), _mm512_set1_pd(LN2), _mm512_permutex2var_pd(t->log0, j, t->log1));
	x.rs = _mm512_castsi512_pd(_mm512_sub_epi64(_mm512_permutex2var_epi64(t->rec0, j, t->rec1), s));
	return x;
}

INLINE512 __m512d poly_512(__m512d t) {
	__m512d p = _mm512_fmadd_pd(t, _mm512_set1_pd(P6), _mm512_set1_pd(P5));
	p = _mm512_fmadd_pd(p, t, _mm512_set1_pd(P4));
	p = _mm512_fmadd_pd(p, t, _mm512_set1_pd(P3));
	p = _mm512_fmadd_pd(p, t, _mm512_set1_pd(P2));
	p = _mm512_fmadd_pd(p, t, _mm512_set1_pd(P1));
	return _mm512_fmadd_pd(p, t, _mm512_set1_pd(P0));
}

INLINE512 __m512d load_512(const float *p, int masked, __mmask8 k) {
	return _mm512_cvtps_pd(masked ? _mm256_maskz_loadu_ps(k, p) : _mm256_loadu_ps(p));
}

INLINE512 __m512d plogp_512(__m512d p, const tables512 *tables) {
	__m512d r = _mm512_add_pd(p, _mm512_set1_pd(TINY));
	split512 x = split_512(r, tables);
	__m512d q = _mm512_sub_pd(p, x.s), t = _mm512_mul_pd(q, x.rs);
	return _mm512_fmadd_pd(_mm512_mul_pd(q, t), poly_512(t), _mm512_fmadd_pd(r, x.l, q));
}

INLINE512 void store_512(double *to, __m512d v, int masked, __mmask8 k) {
	if (masked)
		_mm512_mask_storeu_pd(to, k, v);
	else
		_mm512_storeu_pd(to, v);
}

// finish_512 writes eight columns from the sums of the second sweep.
INLINE512 void finish_512(size_t passes, __m512d mu, __m512d sd, __m512d m2, __m512d m3, __m512d acc,
                          const tables512 *tables, columns out, size_t at, int masked, __mmask8 k) {
	const __m512d n = _mm512_set1_pd((double)passes), per = _mm512_set1_pd(1.0 / (double)passes);
	const __m512d per_less = _mm512_set1_pd(1.0 / (double)(passes - 1)), zero = _mm512_setzero_pd();
	__m512d delta = _mm512_mul_pd(sd, per), mean = _mm512_add_pd(mu, delta);
	__m512d shift = _mm512_mul_pd(n, _mm512_mul_pd(delta, delta));
	m2 = _mm512_max_pd(zero, _mm512_sub_pd(m2, shift));
	m3 = _mm512_fnmadd_pd(_mm512_mul_pd(_mm512_set1_pd(3), delta), m2, m3);
	m3 = _mm512_fnmadd_pd(shift, delta, m3);
	__m512d variance = _mm512_mul_pd(m2, per_less), third = _mm512_mul_pd(m3, per);
	__m512d c = _mm512_div_pd(_mm512_mul_pd(_mm512_set1_pd(0.5), variance), _mm512_add_pd(mean, _mm512_set1_pd(EPSILON)));
	__m512d under = _mm512_mul_pd(_mm512_mul_pd(_mm512_set1_pd(3), mean), variance);
	__mmask8 defined = _mm512_cmp_pd_mask(under, zero, _CMP_GT_OQ);
	__m512d skewness = _mm512_maskz_div_pd(defined, _mm512_abs_pd(third), under);
	__m512d m = _mm512_max_pd(zero, _mm512_mul_pd(_mm512_mul_pd(mu, per), acc));
	store_512(out.mean + at, mean, masked, k);
	store_512(out.variance + at, variance, masked, k);
	store_512(out.third + at, third, masked, k);
	store_512(out.c + at, c, masked, k);
	store_512(out.skewness + at, skewness, masked, k);
	store_512(out.m + at, m, masked, k);
	store_512(out.plogp + at, plogp_512(mean, tables), masked, k);
}

// block_512 is U vectors of columns, the last of them masked where that is asked.
INLINE512 void block_512(const int U, const int masked, const float *p, size_t passes, size_t stride,
                         const tables512 *tables, columns out, size_t at, __mmask8 k) {
	const __m512d zero = _mm512_setzero_pd();
	__m512d mu[3], inv[3], sd[3], m2[3], m3[3], acc[3], accs[3]; // of which U are used: in registers
	const float *row = p + at;
#pragma GCC unroll 4
	for (int u = 0; u < U; u++)
		mu[u] = sd[u] = zero;
	size_t i = 0;
	for (; i + 1 < passes; i += 2, row += 2 * stride) { // two sums, so that the additions overlap
#pragma GCC unroll 4
		for (int u = 0; u < U; u++) {
			mu[u] = _mm512_add_pd(mu[u], load_512(row + 8 * u, masked && u == U - 1, k));
			sd[u] = _mm512_add_pd(sd[u], load_512(row + stride + 8 * u, masked && u == U - 1, k));
		}
	}
	if (i < passes) {
#pragma GCC unroll 4
		for (int u = 0; u < U; u++)
			mu[u] = _mm512_add_pd(mu[u], load_512(row + 8 * u, masked && u == U - 1, k));
	}
#pragma GCC unroll 4
	for (int u = 0; u < U; u++) {
		mu[u] = _mm512_mul_pd(_mm512_add_pd(mu[u], sd[u]), _mm512_set1_pd(1.0 / (double)passes));
		inv[u] = _mm512_maskz_div_pd(_mm512_cmp_pd_mask(mu[u], zero, _CMP_NEQ_OQ), _mm512_set1_pd(1), mu[u]);
		sd[u] = m2[u] = m3[u] = acc[u] = accs[u] = zero;
	}
	row = p + at;
	for (i = 0; i < passes; i++, row += stride) {
#pragma GCC unroll 4
		for (int u = 0; u < U; u++) {
			__m512d v = load_512(row + 8 * u, masked && u == U - 1, k);
			__m512d d = _mm512_sub_pd(v, mu[u]), d2 = _mm512_mul_pd(d, d);
			sd[u] = _mm512_add_pd(sd[u], d);
			m2[u] = _mm512_add_pd(m2[u], d2);
			m3[u] = _mm512_fmadd_pd(d2, d, m3[u]);
			__m512d r = _mm512_fmadd_pd(v, inv[u], _mm512_set1_pd(TINY));
			split512 x = split_512(r, tables);
			__m512d q = _mm512_fmsub_pd(v, inv[u], x.s), t = _mm512_mul_pd(q, x.rs);
			acc[u] = _mm512_fmadd_pd(r, x.l, acc[u]);
			acc[u] = _mm512_fmadd_pd(_mm512_mul_pd(q, t), poly_512(t), acc[u]);
			accs[u] = _mm512_add_pd(accs[u], x.s);
		}
	}
#pragma GCC unroll 4
	for (int u = 0; u < U; u++) {
		__m512d sum = _mm512_sub_pd(_mm512_add_pd(acc[u], _mm512_set1_pd((double)passes)), accs[u]);
		finish_512(passes, mu[u], sd[u], m2[u], m3[u], sum, tables, out, at + 8 * u, masked && u == U - 1, k);
	}
}

// sums_512 is the lower bound: one sweep, moments about the first pass, and p log p as it is.
INLINE512 void sums_512(const int masked, const float *p, size_t passes, size_t stride, const tables512 *tables,
                        columns out, size_t at, __mmask8 k) {
	const __m512d zero = _mm512_setzero_pd();
	__m512d first = load_512(p + at, masked, k), sd = zero, m2 = zero, m3 = zero, acc = zero;
	const float *row = p + at;
	for (size_t i = 0; i < passes; i++, row += stride) {
		__m512d v = load_512(row, masked, k), d = _mm512_sub_pd(v, first), d2 = _mm512_mul_pd(d, d);
		sd = _mm512_add_pd(sd, d);
		m2 = _mm512_add_pd(m2, d2);
		m3 = _mm512_fmadd_pd(d2, d, m3);
		acc = _mm512_add_pd(acc, plogp_512(v, tables));
	}
	finish_512(passes, first, sd, m2, m3, zero, tables, out, at, masked, k);
	store_512(out.m + at, acc, masked, k);
}

INLINE512 void all_512(const int U, const float *p, size_t passes, size_t width, size_t stride, columns out) {
	const tables512 tables = {_mm512_load_pd(logc), _mm512_load_pd(logc + 8), _mm512_load_si512(recip),
	                          _mm512_load_si512(recip + 8)};
	size_t at = 0;
	for (; at + 8 * (size_t)U <= width; at += 8 * U)
		block_512(U, 0, p, passes, stride, &tables, out, at, 0);
	if (U > 2 && at + 16 < width) {
		block_512(3, 1, p, passes, stride, &tables, out, at, (__mmask8)((1u << (width - at - 16)) - 1));
		return;
	}
	if (U > 1 && at + 8 < width) {
		block_512(2, 1, p, passes, stride, &tables, out, at, (__mmask8)((1u << (width - at - 8)) - 1));
		return;
	}
	if (at < width)
		block_512(1, 1, p, passes, stride, &tables, out, at, (__mmask8)((1u << (width - at)) - 1));
}

#define AVX512_KERNEL(U)                                                                                              \
	TARGET512 __attribute__((noinline)) static void avx512_##U(const float *p, size_t passes, size_t width,             \
	                                                           size_t stride, columns out) {                            \
		all_512(U, p, passes, width, stride, out);                                                                         \
	}
AVX512_KERNEL(1)
AVX512_KERNEL(2)
AVX512_KERNEL(3)

TARGET512 __attribute__((noinline)) static void avx512_sums(const float *p, size_t passes, size_t width, size_t stride,
                                                            columns out) {
	const tables512 tables = {_mm512_load_pd(logc), _mm512_load_pd(logc + 8), _mm512_load_si512(recip),
	                          _mm512_load_si512(recip + 8)};
	size_t at = 0;
	for (; at + 8 <= width; at += 8)
		sums_512(0, p, passes, stride, &tables, out, at, 0);
	if (at < width)
		sums_512(1, p, passes, stride, &tables, out, at, (__mmask8)((1u << (width - at)) - 1));
}

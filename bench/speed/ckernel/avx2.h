// AVX2: four columns a vector, U vectors at a time.
#define TARGET2 __attribute__((target("avx2,fma")))
#define INLINE2 static inline __attribute__((always_inline, target("avx2,fma")))

// How the tables are read: lane by lane as pairs, which beats two gathers; or the logarithm by gather, with a division
// in place of the reciprocal.
enum { PAIRS, DIVIDE };

typedef struct {
	__m256d s, l, rs;
} split256;

INLINE2 split256 split_256(const int how, __m256d r) {
	const __m256i half = _mm256_set1_epi64x(HALF_STEP), mask = _mm256_set1_epi64x(STEP_MASK);
	__m256i s = _mm256_and_si256(_mm256_add_epi64(_mm256_castpd_si256(r), half), mask);
	// The exponent as a double: its bits below those of 2^52, less 2^52 and the bias.
	__m256i e = _mm256_or_si256(_mm256_srli_epi64(s, 52), _mm256_set1_epi64x(0x4330000000000000));
	__m256d exponent = _mm256_sub_pd(_mm256_castsi256_pd(e), _mm256_set1_pd(0x1p52 + 1023));
	__m256d log_c;
	split256 x;
	x.s = _mm256_castsi256_pd(s);
	if (how == DIVIDE) {
		__m256i j = _mm256_and_si256(_mm256_srli_epi64(s, 48), _mm256_set1_epi64x(15));
		log_c = _mm256_i64gather_pd(logc, j, 8);
		x.rs = x.s;
	} else {
		__m256i offset = _mm256_and_si256(_mm256_srli_epi64(s, 44), _mm256_set1_epi64x(15 << 4));
		uint64_t at[4] __attribute__((aligned(32)));
		_mm256_store_si256((__m256i *)at, offset);
		const char *table = (const char *)pairs;
		__m256d lanes02 = _mm256_loadu2_m128d((const double *)(table + at[2]), (const double *)(table + at[0]));
		__m256d lanes13 = _mm256_loadu2_m128d((const double *)(table + at[3]), (const double *)(table + at[1]));
		log_c = _mm256_unpacklo_pd(lanes02, lanes13);
		x.rs = _mm256_castsi256_pd(_mm256_sub_epi64(_mm256_castpd_si256(_mm256_unpackhi_pd(lanes02, lanes13)), s));
	}
	x.l = _mm256_fmadd_pd(exponent, _mm256_set1_pd(LN2), log_c);
	return x;
}

INLINE2 __m256d over_256(const int how, __m256d q, __m256d rs) {
	return how == DIVIDE ? _mm256_div_pd(q, rs) : _mm256_mul_pd(q, rs);
}

INLINE2 __m256d poly_256(__m256d t) {
	__m256d p = _mm256_fmadd_pd(t, _mm256_set1_pd(P6), _mm256_set1_pd(P5));
	p = _mm256_fmadd_pd(p, t, _mm256_set1_pd(P4));
	p = _mm256_fmadd_pd(p, t, _mm256_set1_pd(P3));
	p = _mm256_fmadd_pd(p, t, _mm256_set1_pd(P2));
	p = _mm256_fmadd_pd(p, t, _mm256_set1_pd(P1));
	return _mm256_fmadd_pd(p, t, _mm256_set1_pd(P0));
}

INLINE2 __m256d load_256(const float *p, int masked, __m128i k) {
	return _mm256_cvtps_pd(masked ? _mm_maskload_ps(p, k) : _mm_loadu_ps(p));
}

INLINE2 __m256d plogp_256(const int how, __m256d p) {
	__m256d r = _mm256_add_pd(p, _mm256_set1_pd(TINY));
	split256 x = split_256(how, r);
	__m256d q = _mm256_sub_pd(p, x.s), t = over_256(how, q, x.rs);
	return _mm256_fmadd_pd(_mm256_mul_pd(q, t), poly_256(t), _mm256_fmadd_pd(r, x.l, q));
}

INLINE2 void store_256(double *to, __m256d v, int masked, __m128i k) {
	if (masked)
		_mm256_maskstore_pd(to, _mm256_cvtepi32_epi64(k), v);
	else
		_mm256_storeu_pd(to, v);
}

INLINE2 void finish_256(const int how, size_t passes, __m256d mu, __m256d sd, __m256d m2, __m256d m3, __m256d acc,
                        columns out, size_t at, int masked, __m128i k) {
	const __m256d n = _mm256_set1_pd((double)passes), per = _mm256_set1_pd(1.0 / (double)passes);
	const __m256d per_less = _mm256_set1_pd(1.0 / (double)(passes - 1)), zero = _mm256_setzero_pd();
	__m256d delta = _mm256_mul_pd(sd, per), mean = _mm256_add_pd(mu, delta);
	__m256d shift = _mm256_mul_pd(n, _mm256_mul_pd(delta, delta));
	m2 = _mm256_max_pd(zero, _mm256_sub_pd(m2, shift));
	m3 = _mm256_fnmadd_pd(_mm256_mul_pd(_mm256_set1_pd(3), delta), m2, m3);
	m3 = _mm256_fnmadd_pd(shift, delta, m3);
	__m256d variance = _mm256_mul_pd(m2, per_less), third = _mm256_mul_pd(m3, per);
	__m256d c = _mm256_div_pd(_mm256_mul_pd(_mm256_set1_pd(0.5), variance), _mm256_add_pd(mean, _mm256_set1_pd(EPSILON)));
	__m256d under = _mm256_mul_pd(_mm256_mul_pd(_mm256_set1_pd(3), mean), variance);
	__m256d positive = _mm256_andnot_pd(_mm256_set1_pd(-0.0), third);
	__m256d skewness = _mm256_and_pd(_mm256_cmp_pd(under, zero, _CMP_GT_OQ), _mm256_div_pd(positive, under));
	__m256d m = _mm256_max_pd(zero, _mm256_mul_pd(_mm256_mul_pd(mu, per), acc));
	store_256(out.mean + at, mean, masked, k);
	store_256(out.variance + at, variance, masked, k);
	store_256(out.third + at, third, masked, k);
	store_256(out.c + at, c, masked, k);
	store_256(out.skewness + at, skewness, masked, k);
	store_256(out.m + at, m, masked, k);
	store_256(out.plogp + at, plogp_256(how, mean), masked, k);
}

INLINE2 void block_256(const int how, const int U, const int masked, const float *p, size_t passes, size_t stride,
                       columns out, size_t at, __m128i k) {
	const __m256d zero = _mm256_setzero_pd();
	__m256d mu[2], inv[2], sd[2], m2[2], m3[2], acc[2], accs[2]; // of which U are used: in registers
	const float *row = p + at;
#pragma GCC unroll 4
	for (int u = 0; u < U; u++)
		mu[u] = sd[u] = zero;
	size_t i = 0;
	for (; i + 1 < passes; i += 2, row += 2 * stride) { // two sums, so that the additions overlap
#pragma GCC unroll 4
		for (int u = 0; u < U; u++) {
			mu[u] = _mm256_add_pd(mu[u], load_256(row + 4 * u, masked && u == U - 1, k));
			sd[u] = _mm256_add_pd(sd[u], load_256(row + stride + 4 * u, masked && u == U - 1, k));
		}
	}
	if (i < passes) {
#pragma GCC unroll 4
		for (int u = 0; u < U; u++)
			mu[u] = _mm256_add_pd(mu[u], load_256(row + 4 * u, masked && u == U - 1, k));
	}
#pragma GCC unroll 4
	for (int u = 0; u < U; u++) {
		mu[u] = _mm256_mul_pd(_mm256_add_pd(mu[u], sd[u]), _mm256_set1_pd(1.0 / (double)passes));
		inv[u] = _mm256_and_pd(_mm256_cmp_pd(mu[u], zero, _CMP_NEQ_OQ), _mm256_div_pd(_mm256_set1_pd(1), mu[u]));
		sd[u] = m2[u] = m3[u] = acc[u] = accs[u] = zero;
	}
	row = p + at;
	for (i = 0; i < passes; i++, row += stride) {
#pragma GCC unroll 4
		for (int u = 0; u < U; u++) {
			__m256d v = load_256(row + 4 * u, masked && u == U - 1, k);
			__m256d d = _mm256_sub_pd(v, mu[u]), d2 = _mm256_mul_pd(d, d);
			sd[u] = _mm256_add_pd(sd[u], d);
			m2[u] = _mm256_add_pd(m2[u], d2);
			m3[u] = _mm256_fmadd_pd(d2, d, m3[u]);
			__m256d r = _mm256_fmadd_pd(v, inv[u], _mm256_set1_pd(TINY));
			split256 x = split_256(how, r);
			__m256d q = _mm256_fmsub_pd(v, inv[u], x.s), t = over_256(how, q, x.rs);
			acc[u] = _mm256_fmadd_pd(r, x.l, acc[u]);
			acc[u] = _mm256_fmadd_pd(_mm256_mul_pd(q, t), poly_256(t), acc[u]);
			accs[u] = _mm256_add_pd(accs[u], x.s);
		}
	}
#pragma GCC unroll 4
	for (int u = 0; u < U; u++) {
		__m256d sum = _mm256_sub_pd(_mm256_add_pd(acc[u], _mm256_set1_pd((double)passes)), accs[u]);
		finish_256(how, passes, mu[u], sd[u], m2[u], m3[u], sum, out, at + 4 * u, masked && u == U - 1, k);
	}
}

INLINE2 void sums_256(const int how, const int masked, const float *p, size_t passes, size_t stride, columns out,
                      size_t at, __m128i k) {
	const __m256d zero = _mm256_setzero_pd();
	__m256d first = load_256(p + at, masked, k), sd = zero, m2 = zero, m3 = zero, acc = zero;
	const float *row = p + at;
	for (size_t i = 0; i < passes; i++, row += stride) {
		__m256d v = load_256(row, masked, k), d = _mm256_sub_pd(v, first), d2 = _mm256_mul_pd(d, d);
		sd = _mm256_add_pd(sd, d);
		m2 = _mm256_add_pd(m2, d2);
		m3 = _mm256_fmadd_pd(d2, d, m3);
		acc = _mm256_add_pd(acc, plogp_256(how, v));
	}
	finish_256(how, passes, first, sd, m2, m3, zero, out, at, masked, k);
	store_256(out.m + at, acc, masked, k);
}

INLINE2 __m128i mask_256(size_t lanes) {
	return _mm_cmpgt_epi32(_mm_set1_epi32((int)lanes), _mm_setr_epi32(0, 1, 2, 3));
}

INLINE2 void all_256(const int how, const int U, const float *p, size_t passes, size_t width, size_t stride,
                     columns out) {
	size_t at = 0;
	for (; at + 4 * (size_t)U <= width; at += 4 * U)
		block_256(how, U, 0, p, passes, stride, out, at, _mm_setzero_si128());
	if (U > 1 && at + 4 < width) {
		block_256(how, 2, 1, p, passes, stride, out, at, mask_256(width - at - 4));
		return;
	}
	if (width - at == 4)
		block_256(how, 1, 0, p, passes, stride, out, at, _mm_setzero_si128());
	else if (at < width)
		block_256(how, 1, 1, p, passes, stride, out, at, mask_256(width - at));
}

#define AVX2_KERNEL(NAME, HOW, U)                                                                                     \
	TARGET2 __attribute__((noinline)) static void NAME(const float *p, size_t passes, size_t width, size_t stride,     \
	                                                   columns out) {                                                  \
		all_256(HOW, U, p, passes, width, stride, out);                                                                   \
	}
AVX2_KERNEL(avx2_pairs_1, PAIRS, 1)
AVX2_KERNEL(avx2_pairs_2, PAIRS, 2)
AVX2_KERNEL(avx2_divide_1, DIVIDE, 1)
AVX2_KERNEL(avx2_divide_2, DIVIDE, 2)

#define AVX2_SUMS(NAME, HOW)                                                                                          \
	TARGET2 __attribute__((noinline)) static void NAME(const float *p, size_t passes, size_t width, size_t stride,     \
	                                                   columns out) {                                                  \
		size_t at = 0;                                                                                                     \
		for (; at + 4 <= width; at += 4)                                                                                   \
			sums_256(HOW, 0, p, passes, stride, out, at, _mm_setzero_si128());                                                \
		if (at < width)                                                                                                    \
			sums_256(HOW, 1, p, passes, stride, out, at, mask_256(width - at));                                               \
	}
AVX2_SUMS(avx2_sums_pairs, PAIRS)
AVX2_SUMS(avx2_sums_divide, DIVIDE)

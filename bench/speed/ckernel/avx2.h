// AVX2: four columns a vector.
#define TARGET2 __attribute__((noinline, target("avx2,fma")))
#define INLINE2 static inline __attribute__((always_inline, target("avx2,fma")))

// centre256 is what the second sweep knows of the first.
typedef struct {
	__m256d mu, inv, shifted;
} centre256;

// sums256 are those of the second sweep.
typedef struct {
	__m256d d, d2, d3, log, rest, steps;
} sums256;

// split256 is the step of r and its logarithm, which is gathered. The inverse of the step is not: q/s is faster.
typedef struct {
	__m256d s, log;
} split256;

INLINE2 split256 split_256(__m256d r) {
	__m256i bits = _mm256_castpd_si256(r), s = _mm256_and_si256(bits, _mm256_set1_epi64x(STEP_MASK));
	// The exponent as a double: its bits below those of 2^52, less 2^52 and the bias.
	__m256i e = _mm256_or_si256(_mm256_srli_epi64(bits, 52), _mm256_set1_epi64x(0x4330000000000000));
	__m256d exponent = _mm256_sub_pd(_mm256_castsi256_pd(e), _mm256_set1_pd(0x1p52 + 1023));
	split256 x;
	x.s = _mm256_castsi256_pd(s);
	__m256i j = _mm256_and_si256(_mm256_srli_epi64(bits, 48), _mm256_set1_epi64x(15));
	x.log = _mm256_fmadd_pd(exponent, _mm256_set1_pd(LN2), _mm256_i64gather_pd(logs, j, 8));
	return x;
}

INLINE2 __m256d poly_256(__m256d t) {
	__m256d p = _mm256_fmadd_pd(t, _mm256_set1_pd(P6), _mm256_set1_pd(P5));
	p = _mm256_fmadd_pd(p, t, _mm256_set1_pd(P4));
	p = _mm256_fmadd_pd(p, t, _mm256_set1_pd(P3));
	p = _mm256_fmadd_pd(p, t, _mm256_set1_pd(P2));
	p = _mm256_fmadd_pd(p, t, _mm256_set1_pd(P1));
	return _mm256_fmadd_pd(p, t, _mm256_set1_pd(P0));
}

// mask_256 are the lanes that are within left columns.
INLINE2 __m128i mask_256(size_t left) {
	return _mm_cmpgt_epi32(_mm_set1_epi32(left < 4 ? (int)left : 4), _mm_setr_epi32(0, 1, 2, 3));
}

INLINE2 __m256d load_256(const float *p, const int masked, __m128i k) {
	return _mm256_cvtps_pd(masked ? _mm_maskload_ps(p, k) : _mm_loadu_ps(p));
}

INLINE2 __m256d plogp_256(__m256d p) {
	split256 x = split_256(_mm256_fmadd_pd(p, _mm256_set1_pd(SHIFT), _mm256_set1_pd(TINY)));
	__m256d q = _mm256_sub_pd(p, x.s), t = _mm256_div_pd(q, x.s);
	return _mm256_fmadd_pd(_mm256_mul_pd(q, t), poly_256(t), _mm256_fmadd_pd(p, x.log, q));
}

INLINE2 centre256 centre_256(size_t passes, __m256d sum) {
	centre256 c;
	c.mu = _mm256_mul_pd(sum, _mm256_set1_pd(1.0 / (double)passes));
	__m256d some = _mm256_cmp_pd(c.mu, _mm256_setzero_pd(), _CMP_NEQ_OQ);
	c.inv = _mm256_and_pd(some, _mm256_div_pd(_mm256_set1_pd(1), c.mu));
	c.shifted = _mm256_mul_pd(c.inv, _mm256_set1_pd(SHIFT));
	return c;
}

// add_256 adds a value to the sums.
INLINE2 void add_256(__m256d v, const centre256 *c, sums256 *sum) {
	__m256d d = _mm256_sub_pd(v, c->mu), d2 = _mm256_mul_pd(d, d);
	sum->d = _mm256_add_pd(sum->d, d);
	sum->d2 = _mm256_add_pd(sum->d2, d2);
	sum->d3 = _mm256_fmadd_pd(d2, d, sum->d3);
	split256 x = split_256(_mm256_fmadd_pd(v, c->shifted, _mm256_set1_pd(TINY)));
	sum->steps = _mm256_add_pd(sum->steps, x.s);
	sum->log = _mm256_fmadd_pd(v, x.log, sum->log);
	__m256d q = _mm256_fmsub_pd(v, c->inv, x.s), t = _mm256_div_pd(q, x.s);
	sum->rest = _mm256_fmadd_pd(_mm256_mul_pd(q, t), poly_256(t), sum->rest);
}

INLINE2 void store_256(double *to, __m256d v, const int masked, __m128i k) {
	if (masked)
		_mm256_maskstore_pd(to, _mm256_cvtepi32_epi64(k), v);
	else
		_mm256_storeu_pd(to, v);
}

// finish_256 writes four columns from the sums of the second sweep.
INLINE2 void finish_256(size_t passes, const centre256 *c, const sums256 *sum, columns out, size_t at,
                        const int masked, __m128i k) {
	const __m256d n = _mm256_set1_pd((double)passes), per = _mm256_set1_pd(1.0 / (double)passes);
	const __m256d per_less = _mm256_set1_pd(1.0 / (double)(passes - 1)), zero = _mm256_setzero_pd();
	__m256d delta = _mm256_mul_pd(sum->d, per), mean = _mm256_add_pd(c->mu, delta);
	__m256d moved = _mm256_mul_pd(sum->d, delta);
	__m256d m2 = _mm256_max_pd(zero, _mm256_sub_pd(sum->d2, moved));
	__m256d m3 = _mm256_fnmadd_pd(_mm256_mul_pd(_mm256_set1_pd(3), delta), m2, sum->d3);
	m3 = _mm256_fnmadd_pd(moved, delta, m3);
	__m256d variance = _mm256_mul_pd(m2, per_less), third = _mm256_mul_pd(m3, per);
	__m256d nats = _mm256_mul_pd(_mm256_set1_pd(0.5), variance);
	nats = _mm256_div_pd(nats, _mm256_add_pd(mean, _mm256_set1_pd(EPSILON)));
	__m256d under = _mm256_mul_pd(_mm256_mul_pd(_mm256_set1_pd(3), mean), variance);
	__m256d positive = _mm256_andnot_pd(_mm256_set1_pd(-0.0), third);
	__m256d skewness = _mm256_and_pd(_mm256_cmp_pd(under, zero, _CMP_GT_OQ), _mm256_div_pd(positive, under));
	__m256d divergence = _mm256_fmadd_pd(sum->log, c->inv, sum->rest);
	divergence = _mm256_add_pd(divergence, _mm256_sub_pd(n, sum->steps));
	__m256d m = _mm256_max_pd(zero, _mm256_mul_pd(_mm256_mul_pd(mean, per), divergence));
	store_256(out.mean + at, mean, masked, k);
	store_256(out.variance + at, variance, masked, k);
	store_256(out.third + at, third, masked, k);
	store_256(out.c + at, nats, masked, k);
	store_256(out.skewness + at, skewness, masked, k);
	store_256(out.m + at, m, masked, k);
	store_256(out.plogp + at, plogp_256(mean), masked, k);
}

// sweep_256 is the second sweep over one vector that lies aside, and the first over the next.
INLINE2 void sweep_256(const int next, const float *row, size_t passes, size_t stride, double *aside,
                       const centre256 *c, sums256 *sum, __m256d *first, __m128i k) {
	for (size_t i = 0; i < passes; i++, row += stride, aside += 4) {
		add_256(_mm256_load_pd(aside), c, sum);
		if (next != NOTHING) {
			__m256d v = load_256(row, next == SOME, k);
			*first = _mm256_add_pd(*first, v);
			_mm256_store_pd(aside, v);
		}
	}
}

TARGET2 static void avx2(const float *p, size_t passes, size_t width, double *aside, columns out) {
	__m128i k = mask_256(width);
	__m256d first = _mm256_setzero_pd(), odd = first;
	const float *row = p;
	double *to = aside;
	for (size_t i = 0; i < passes; i++, row += width, to += 4) {
		__m256d v = load_256(row, 1, k), s = _mm256_add_pd(odd, v);
		odd = first; // by turns, so that the additions overlap
		first = s;
		_mm256_store_pd(to, v);
	}
	centre256 c = centre_256(passes, _mm256_add_pd(first, odd));
	for (size_t at = 0; at < width; at += 4) {
		size_t left = width - at > 4 ? width - at - 4 : 0;
		sums256 sum = {{0}, {0}, {0}, {0}, {0}, {0}};
		first = _mm256_setzero_pd();
		row = p + at + 4;
		k = mask_256(left);
		if (left >= 4)
			sweep_256(ALL, row, passes, width, aside, &c, &sum, &first, k);
		else if (left > 0)
			sweep_256(SOME, row, passes, width, aside, &c, &sum, &first, k);
		else
			sweep_256(NOTHING, row, passes, width, aside, &c, &sum, &first, k);
		centre256 after = centre_256(passes, first); // the division begins before those of finish_256
		if (at + 4 <= width)
			finish_256(passes, &c, &sum, out, at, 0, k);
		else
			finish_256(passes, &c, &sum, out, at, 1, mask_256(width - at));
		c = after;
	}
}

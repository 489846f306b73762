// AVX-512: eight columns a vector.
#define TARGET512 __attribute__((noinline, target("avx512f,avx512dq,avx512vl,avx512bw,fma")))
#define INLINE512 static inline __attribute__((always_inline, target("avx512f,avx512dq,avx512vl,avx512bw,fma")))

typedef struct {
	__m512d logs0, logs1;
	__m512i inverses0, inverses1;
} tables512;

INLINE512 tables512 tables_512(void) {
	return (tables512){_mm512_load_pd(logs), _mm512_load_pd(logs + 8), _mm512_load_si512(inverses),
	                   _mm512_load_si512(inverses + 8)};
}

// centre512 is what the second sweep knows of the first.
typedef struct {
	__m512d mu, inv, shifted;
} centre512;

// sums512 are those of the second sweep.
typedef struct {
	__m512d d, d2, d3, log, rest, steps;
} sums512;

// split512 is the step of r, its logarithm and its inverse.
typedef struct {
	__m512d s, log, inverse;
} split512;

INLINE512 split512 split_512(__m512d r, const tables512 *t) {
	__m512i bits = _mm512_castpd_si512(r), s = _mm512_and_si512(bits, _mm512_set1_epi64(STEP_MASK));
	__m512i j = _mm512_srli_epi64(bits, 48);
	split512 x;
	x.s = _mm512_castsi512_pd(s);
	x.log = _mm512_fmadd_pd(_mm512_getexp_pd(r), _mm512_set1_pd(LN2), _mm512_permutex2var_pd(t->logs0, j, t->logs1));
	x.inverse =
		_mm512_castsi512_pd(_mm512_sub_epi64(_mm512_permutex2var_epi64(t->inverses0, j, t->inverses1), s));
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

// mask_512 are the lanes that are within left columns.
INLINE512 __mmask8 mask_512(size_t left) { return left >= 8 ? 0xff : (__mmask8)((1u << left) - 1); }

INLINE512 __m512d load_512(const float *p, const int masked, __mmask8 k) {
	return _mm512_cvtps_pd(masked ? _mm256_maskz_loadu_ps(k, p) : _mm256_loadu_ps(p));
}

INLINE512 __m512d plogp_512(__m512d p, const tables512 *tables) {
	split512 x = split_512(_mm512_fmadd_pd(p, _mm512_set1_pd(SHIFT), _mm512_set1_pd(TINY)), tables);
	__m512d q = _mm512_sub_pd(p, x.s), t = _mm512_mul_pd(q, x.inverse);
	return _mm512_fmadd_pd(_mm512_mul_pd(q, t), poly_512(t), _mm512_fmadd_pd(p, x.log, q));
}

INLINE512 centre512 centre_512(size_t passes, __m512d sum) {
	centre512 c;
	c.mu = _mm512_mul_pd(sum, _mm512_set1_pd(1.0 / (double)passes));
	__mmask8 some = _mm512_cmp_pd_mask(c.mu, _mm512_setzero_pd(), _CMP_NEQ_OQ);
	c.inv = _mm512_maskz_div_pd(some, _mm512_set1_pd(1), c.mu);
	c.shifted = _mm512_mul_pd(c.inv, _mm512_set1_pd(SHIFT));
	return c;
}

// add_512 adds a value to the sums.
INLINE512 void add_512(__m512d v, const centre512 *c, sums512 *sum, const tables512 *tables) {
	__m512d d = _mm512_sub_pd(v, c->mu), d2 = _mm512_mul_pd(d, d);
	sum->d = _mm512_add_pd(sum->d, d);
	sum->d2 = _mm512_add_pd(sum->d2, d2);
	sum->d3 = _mm512_fmadd_pd(d2, d, sum->d3);
	split512 x = split_512(_mm512_fmadd_pd(v, c->shifted, _mm512_set1_pd(TINY)), tables);
	sum->steps = _mm512_add_pd(sum->steps, x.s);
	sum->log = _mm512_fmadd_pd(v, x.log, sum->log);
	__m512d q = _mm512_fmsub_pd(v, c->inv, x.s), t = _mm512_mul_pd(q, x.inverse);
	sum->rest = _mm512_fmadd_pd(_mm512_mul_pd(q, t), poly_512(t), sum->rest);
}

// finish_512 writes eight columns from the sums of the second sweep.
INLINE512 void finish_512(size_t passes, const centre512 *c, const sums512 *sum, const tables512 *tables, columns out,
                          size_t at, __mmask8 k) {
	const __m512d n = _mm512_set1_pd((double)passes), per = _mm512_set1_pd(1.0 / (double)passes);
	const __m512d per_less = _mm512_set1_pd(1.0 / (double)(passes - 1)), zero = _mm512_setzero_pd();
	__m512d delta = _mm512_mul_pd(sum->d, per), mean = _mm512_add_pd(c->mu, delta);
	__m512d moved = _mm512_mul_pd(sum->d, delta);
	__m512d m2 = _mm512_max_pd(zero, _mm512_sub_pd(sum->d2, moved));
	__m512d m3 = _mm512_fnmadd_pd(_mm512_mul_pd(_mm512_set1_pd(3), delta), m2, sum->d3);
	m3 = _mm512_fnmadd_pd(moved, delta, m3);
	__m512d variance = _mm512_mul_pd(m2, per_less), third = _mm512_mul_pd(m3, per);
	__m512d nats = _mm512_mul_pd(_mm512_set1_pd(0.5), variance);
	nats = _mm512_div_pd(nats, _mm512_add_pd(mean, _mm512_set1_pd(EPSILON)));
	__m512d under = _mm512_mul_pd(_mm512_mul_pd(_mm512_set1_pd(3), mean), variance);
	__mmask8 defined = _mm512_cmp_pd_mask(under, zero, _CMP_GT_OQ);
	__m512d skewness = _mm512_maskz_div_pd(defined, _mm512_abs_pd(third), under);
	__m512d divergence = _mm512_fmadd_pd(sum->log, c->inv, sum->rest);
	divergence = _mm512_add_pd(divergence, _mm512_sub_pd(n, sum->steps));
	__m512d m = _mm512_max_pd(zero, _mm512_mul_pd(_mm512_mul_pd(mean, per), divergence));
	_mm512_mask_storeu_pd(out.mean + at, k, mean);
	_mm512_mask_storeu_pd(out.variance + at, k, variance);
	_mm512_mask_storeu_pd(out.third + at, k, third);
	_mm512_mask_storeu_pd(out.c + at, k, nats);
	_mm512_mask_storeu_pd(out.skewness + at, k, skewness);
	_mm512_mask_storeu_pd(out.m + at, k, m);
	_mm512_mask_storeu_pd(out.plogp + at, k, plogp_512(mean, tables));
}

// sweep_512 is the second sweep over one vector that lies aside, and the first over the next.
INLINE512 void sweep_512(const int next, const float *row, size_t passes, size_t stride, double *aside,
                         const centre512 *c, sums512 *sum, __m512d *first, __mmask8 k, const tables512 *tables) {
	for (size_t i = 0; i < passes; i++, row += stride, aside += 8) {
		add_512(_mm512_load_pd(aside), c, sum, tables);
		if (next != NOTHING) {
			__m512d v = load_512(row, next == SOME, k);
			*first = _mm512_add_pd(*first, v);
			_mm512_store_pd(aside, v);
		}
	}
}

TARGET512 static void avx512(const float *p, size_t passes, size_t width, double *aside, columns out) {
	const tables512 tables = tables_512();
	__mmask8 k = mask_512(width);
	__m512d first = _mm512_setzero_pd(), odd = first;
	const float *row = p;
	double *to = aside;
	for (size_t i = 0; i < passes; i++, row += width, to += 8) {
		__m512d v = load_512(row, 1, k), s = _mm512_add_pd(odd, v);
		odd = first; // by turns, so that the additions overlap
		first = s;
		_mm512_store_pd(to, v);
	}
	centre512 c = centre_512(passes, _mm512_add_pd(first, odd));
	for (size_t at = 0; at < width; at += 8) {
		size_t left = width - at > 8 ? width - at - 8 : 0;
		__mmask8 next = mask_512(left);
		sums512 sum = {{0}, {0}, {0}, {0}, {0}, {0}};
		first = _mm512_setzero_pd();
		row = p + at + 8;
		if (left >= 8)
			sweep_512(ALL, row, passes, width, aside, &c, &sum, &first, next, &tables);
		else if (left > 0)
			sweep_512(SOME, row, passes, width, aside, &c, &sum, &first, next, &tables);
		else
			sweep_512(NOTHING, row, passes, width, aside, &c, &sum, &first, next, &tables);
		centre512 after = centre_512(passes, first); // the division begins before those of finish_512
		finish_512(passes, &c, &sum, &tables, out, at, k);
		c = after;
		k = next;
	}
}

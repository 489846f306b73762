package eval

import (
	"math"
	"slices"
	"testing"
)

// Expected numbers of this file are those of SciPy 1.10.1 and NumPy 1.24.2,
// unless a test says otherwise.

var (
	columnA = []float64{0.1, 0.4, 0.35, 0.8, 0.4, 0.05, 0.4, 0.2}
	columnB = []float64{1.5, 2, 2, 7, 3, -1, 2, 0.5}
)

func near(t *testing.T, what string, got, want, relative float64) {
	t.Helper()
	if d := math.Abs(got - want); !(d <= relative*math.Abs(want)) {
		t.Errorf("%s: %v, want %v", what, got, want)
	}
}

func TestCorrelations(t *testing.T) { // scipy.stats.pearsonr, spearmanr
	near(t, "pearson", pearson(columnA, columnB), 0.9406760310661205, 1e-14)
	near(t, "spearman", spearman(columnA, columnB), 0.925, 1e-14)

	// The mean of equal values is rounded. That must not count as variation.
	constant := slices.Repeat([]float64{0.1}, 7)
	rising := []float64{1, 2, 3, 4, 5, 6, 7}
	if got := pearson(constant, rising); got != 0 {
		t.Errorf("pearson with a constant: %v, want 0", got)
	}
	if got := spearman(nil, nil); got != 0 {
		t.Errorf("spearman of nothing: %v, want 0", got)
	}
	// The squares of these values underflow.
	tiny := make([]float64, len(rising))
	for i, v := range rising {
		tiny[i] = v * 1e-200
	}
	near(t, "pearson of tiny values", pearson(tiny, rising), 1, 1e-14)
}

func TestQuantile(t *testing.T) { // numpy.quantile
	sorted := slices.Sorted(slices.Values(columnA))
	for _, c := range []struct{ p, want float64 }{
		{0, 0.05}, {0.1, 0.085}, {0.25, 0.175}, {0.5, 0.375}, {0.9, 0.52}, {0.975, 0.73}, {1, 0.8},
	} {
		near(t, "quantile", quantile(sorted, c.p), c.want, 1e-14)
	}
	if got := quantile(nil, 0.5); got != 0 {
		t.Errorf("of nothing: %v, want 0", got)
	}
	if got := quantile([]float64{3}, 0.9); got != 3 {
		t.Errorf("of one: %v, want 3", got)
	}
}

func TestSeparate(t *testing.T) {
	inside := []float64{0.1, 0.2, 0.2, 0.3, 0.5, 0.5, 0.05, 0.6, 0.9, 0.15}
	outside := []float64{0.5, 0.5, 0.7, 0.9, 0.3, 1.2, 0.8}
	s := separate(inside, outside)
	// From scipy.stats.mannwhitneyu(inside, outside, method='asymptotic'); the AUROC is its
	// statistic of outside over 70. Average precision by hand, with recalls 1/7, 2/7 and so on at
	// thresholds 1.2, .9, .8, .7, .5, .3: 1/7 (1 + 2/3 + 3/4 + 4/5) + 2/7 6/10 + 1/7 7/12. The last
	// threshold is the first that has 95% of outside, and five inside values are at or above it.
	near(t, "auroc", s.auroc, 57./70, 1e-14)
	near(t, "aupr", s.aupr, (1+2./3+3./4+4./5)/7+2./7*6/10+1./7*7/12, 1e-14)
	near(t, "fpr95", s.fpr95, 0.5, 1e-14)
	near(t, "p", s.p, 0.03442133730618616, 1e-12)
	near(t, "log10p", s.log10p, math.Log10(0.03442133730618616), 1e-12)

	if got := separate(nil, outside); got != (separation{}) {
		t.Errorf("nothing inside: %+v, want zeros", got)
	}
	// 19 of 20 are exactly 95%, so that the threshold is the 19th highest.
	var twenty []float64
	for i := range 20 {
		twenty = append(twenty, float64(i))
	}
	if got := separate([]float64{0.5, 1.5, 30, 30}, twenty).fpr95; got != 0.75 {
		t.Errorf("fpr95 at exactly 95%%: %v, want 0.75", got)
	}
	same := separate([]float64{1, 1, 1}, []float64{1, 1})
	if same.p != 1 || same.log10p != 0 || same.auroc != 0.5 || same.fpr95 != 1 {
		t.Errorf("all equal: %+v", same)
	}
}

// TestMannWhitneyDoesNotUnderflow compares 0..1999 with the same values shifted. Expected: scipy's
// mannwhitneyu, and log10 by scipy.stats.norm.logsf.
func TestMannWhitneyDoesNotUnderflow(t *testing.T) {
	column := make([]float64, 2000)
	for i := range column {
		column[i] = float64(i)
	}
	for _, c := range []struct{ shift, p, log10p float64 }{
		{300, 3.679992809396134e-52, -51.43415302992503},
		{1500, 0, -574.2215220503351},
		{2500, 0, -653.1152883475517},
	} {
		shifted := slices.Clone(column)
		for i := range shifted {
			shifted[i] += c.shift
		}
		s := separate(column, shifted)
		near(t, "p", s.p, c.p, 1e-10)
		near(t, "log10p", s.log10p, c.log10p, 1e-12)
	}
	// Expected: mpmath with 40 digits.
	for _, c := range []struct{ x, want float64 }{
		{20, -175.267938875320355}, {20.1, -177.011620454477766}, {25, -273.08091287799269},
		{100, -4345.19341568087577}, {1000, -434297.730478405322},
	} {
		near(t, "log10 erfc", log10Erfc(c.x), c.want, 1e-13)
	}
}

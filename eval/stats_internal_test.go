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

func wantNear(t *testing.T, what string, got, want, relative float64) {
	t.Helper()
	if d := math.Abs(got - want); !(d <= relative*math.Abs(want)) {
		t.Errorf("%s: %v, want %v", what, got, want)
	}
}

func TestCorrelations(t *testing.T) { // scipy.stats.pearsonr, spearmanr
	wantNear(t, "pearson", pearson(columnA, columnB), 0.9406760310661205, 1e-14)
	wantNear(t, "spearman", spearman(columnA, columnB), 0.925, 1e-14)

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
	wantNear(t, "pearson of tiny values", pearson(tiny, rising), 1, 1e-14)
}

func TestQuantile(t *testing.T) { // numpy.quantile
	sorted := slices.Sorted(slices.Values(columnA))
	for _, c := range []struct{ p, want float64 }{
		{0, 0.05}, {0.1, 0.085}, {0.25, 0.175}, {0.5, 0.375}, {0.9, 0.52}, {0.975, 0.73}, {1, 0.8},
	} {
		wantNear(t, "quantile", quantile(sorted, c.p), c.want, 1e-14)
	}
	if got := quantile(nil, 0.5); got != 0 {
		t.Errorf("of nothing: %v, want 0", got)
	}
	if got := quantile([]float64{3}, 0.9); got != 3 {
		t.Errorf("of one: %v, want 3", got)
	}
}

// TestMannWhitney compares with scipy.stats.mannwhitneyu(inside, outside, method='asymptotic'); the AUROC
// is its statistic of outside over the number of pairs.
func TestMannWhitney(t *testing.T) {
	auroc, p := mannWhitney([]float64{0.1, 0.2, 0.2, 0.3, 0.5, 0.5, 0.05, 0.6, 0.9, 0.15}, []float64{0.5, 0.5, 0.7, 0.9, 0.3, 1.2, 0.8})
	wantNear(t, "auroc", auroc, 57./70, 1e-14)
	wantNear(t, "p", p, 0.03442133730618616, 1e-12)
	if auroc, p = mannWhitney([]float64{1, 1, 1}, []float64{1, 1}); p != 1 || auroc != 0.5 {
		t.Errorf("all equal: %v, %v", auroc, p)
	}
	column, shifted := make([]float64, 2000), make([]float64, 2000)
	for i := range column {
		column[i], shifted[i] = float64(i), float64(i)+300
	}
	_, p = mannWhitney(column, shifted)
	wantNear(t, "p of shifted values", p, 3.679992809396134e-52, 1e-10)
}

package binomial_test

import (
	"math"
	"testing"

	"pgregory.net/rapid"

	"github.com/ckd-project/ckd/internal/binomial"
)

func wantNear(t *testing.T, what string, got, want, tolerance float64) {
	t.Helper()
	if !(math.Abs(got-want) <= tolerance) {
		t.Errorf("%s: %v, want %v", what, got, want)
	}
}

// TestTail compares with scipy.stats.binom.cdf.
func TestTail(t *testing.T) {
	for _, c := range []struct {
		k, n    int
		p, want float64
	}{
		{0, 20, .1, 0.12157665459056925},
		{3, 40, .15, 0.13016876164665858},
		{5, 100, .1, 0.05757688648703396},
		{2, 600, .02, 0.000479253927419649},
		{0, 1000, .05, 5.29182274774502e-23},
		{250, 1000, .3, 0.00025980303652893793},
		{19, 20, .9, 0.8784233454094307},
		{1, 5, .5, 0.1875},
		{-1, 5, .5, 0}, {5, 5, .5, 1}, {6, 5, .5, 1}, {0, 0, .5, 1}, {2, 5, 0, 1}, {2, 5, 1, 0},
	} {
		wantNear(t, "tail", binomial.Tail(c.k, c.n, c.p), c.want, 1e-11)
	}
	for _, c := range []struct {
		k, n    int
		p, want float64
	}{
		{1000000, 2000000000, 0.0005, 0.5002659616},
		{999000, 2000000000, 0.0005, 0.1587157718},
		{1, 1000000, 0.999999, 0},
	} {
		wantNear(t, "tail of many", binomial.Tail(c.k, c.n, c.p), c.want, 1e-5)
	}
}

// TestInterval compares with scipy.stats.binomtest(k, n).proportion_ci(c, 'exact').
func TestInterval(t *testing.T) {
	for _, c := range []struct {
		k, n                  int
		confidence, low, high float64
	}{
		{0, 10, .95, 0, 0.30849710781876294},
		{10, 10, .95, 0.6915028921812371, 1},
		{3, 40, .95, 0.015742179851041527, 0.20386474873289898},
		{1, 1000, .9, 5.129197890907456e-05, 0.004734993575492847},
		{37, 40, .95, 0.796135251267101, 0.9842578201489585},
		{120, 1500, .95, 0.06677043503782329, 0.09490023350365136},
		{1, 2, .95, 0.01257911709367899, 0.987420882906321},
		{49999, 50000, .95, 0.9998885722263681, 0.9999994936442119},
		{0, 0, .95, 0, 1},
	} {
		low, high := binomial.Interval(c.k, c.n, c.confidence)
		wantNear(t, "low", low, c.low, 1e-9) // as exact as gonum inverts the incomplete beta
		wantNear(t, "high", high, c.high, 1e-9)
	}
}

// TestProperties expects the tail to be the sum of its terms, counts that are not whole to lie
// between whole ones, and the tails at the ends of intervals to have what the confidence leaves.
func TestProperties(t *testing.T) {
	rapid.Check(t, func(t *rapid.T) {
		n := rapid.IntRange(1, 300).Draw(t, "n")
		k := rapid.IntRange(0, n).Draw(t, "k")
		p := rapid.Float64Range(0.001, 0.999).Draw(t, "p")
		sum := 0.0
		for i := range k + 1 {
			choose, _ := math.Lgamma(float64(n + 1))
			a, _ := math.Lgamma(float64(i + 1))
			b, _ := math.Lgamma(float64(n - i + 1))
			sum += math.Exp(choose - a - b + float64(i)*math.Log(p) + float64(n-i)*math.Log1p(-p))
		}
		got := binomial.Tail(k, n, p)
		if !(math.Abs(got-sum) <= 1e-10*sum+1e-300) {
			t.Errorf("P(X <= %d) of %d at %v: %v, the terms sum to %v", k, n, p, got, sum)
		}
		part := rapid.Float64Range(0, 1).Draw(t, "part")
		if between := binomial.Tail(float64(k)+part, float64(n), p); between < got*(1-1e-12) || between > binomial.Tail(k+1, n, p)*(1+1e-12) {
			t.Errorf("P(X <= %v) of %d at %v is %v: not between those of whole numbers", float64(k)+part, n, p, between)
		}
		low, high := binomial.Interval(k, n, 0.9)
		if at := binomial.Tail(k, n, high); k < n && !(math.Abs(at-0.05) <= 1e-9) {
			t.Errorf("P(X <= %d) of %d at the high end %v is %v, want 0.05", k, n, high, at)
		}
		if at := 1 - binomial.Tail(k-1, n, low); k > 0 && !(math.Abs(at-0.05) <= 1e-9) {
			t.Errorf("P(X >= %d) of %d at the low end %v is %v, want 0.05", k, n, low, at)
		}
		if upper := binomial.Upper(k, n, 0.95); math.Abs(upper-high) > 1e-9 {
			t.Errorf("one-sided at 95%% %v, two-sided at 90%% %v: want the same", upper, high)
		}
	})
}

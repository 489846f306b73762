package decomp_test

import (
	"errors"
	"math"
	"testing"

	"gonum.org/v1/gonum/mathext"
	"pgregory.net/rapid"

	"github.com/ckd-project/ckd/decomp"
)

func dirichletPlan(t rapid.TB, k int) *decomp.Plan {
	t.Helper()
	return mustPlan(t, decomp.Spec{Classes: k, Safe: upTo(k)[:1], Critical: upTo(k)[1:], Kind: decomp.Dirichlet, AllPairs: true})
}

// TestDirichletClosedForm compares the closed forms with the definitions, computed with gonum's
// digamma where they do not cancel.
func TestDirichletClosedForm(t *testing.T) {
	rapid.Check(t, func(t *rapid.T) {
		k := rapid.IntRange(2, 8).Draw(t, "K")
		alpha, a0 := make([]float64, k), 0.0
		for j := range alpha {
			alpha[j] = math.Exp(rapid.Float64Range(-4, 4).Draw(t, "log alpha"))
			a0 += alpha[j]
		}
		plan := dirichletPlan(t, k)
		for name, r := range map[string]*decomp.Result{
			"batch": batchResult(t, plan, [][]float64{alpha}), "accumulator": streamResult(t, plan, [][]float64{alpha}),
		} {
			check := func(field string, got, want float64) {
				if !within(got, want, 1e-9, 1e-9) { // gonum's digamma is good to about 1e-10; TestDigammaExcess has more digits
					t.Errorf("%s %s: got %v, want %v (alpha %v)", name, field, got, want, alpha)
				}
			}
			expected := mathext.Digamma(a0 + 1)
			for j, a := range alpha {
				mu := a / a0
				check("mean", r.Mean[j], mu)
				check("variance", r.Variance[j], mu*(1-mu)/(a0+1))
				check("third moment", r.ThirdMoment[j], 2*mu*(1-mu)*(1-2*mu)/((a0+1)*(a0+2)))
				check("C", r.C[j], (1-mu)/(2*(a0+1)))
				check("skewness", r.Skewness[j], 2*math.Abs(1-2*mu)/(3*(a+2*mu)))
				check("M", r.M[j], mu*(mathext.Digamma(a+1)-mathext.Digamma(a0+1)-math.Log(mu)))
				expected -= mu * mathext.Digamma(a+1)
			}
			check("expected entropy", r.ExpectedEntropy, expected)
			check("MI", r.MI, r.Entropy-expected)
			probability := 0.0
			for _, a := range alpha[1:] { // class 0 is safe
				probability += a / a0
			}
			check("p_critical", r.Scores[decomp.PCritical], probability)
			for i, pair := range plan.Pairs() {
				mu, nu := alpha[pair.A]/a0, alpha[pair.B]/a0
				check("pair", r.PairTerm[i], math.Sqrt(mu*nu)/(2*(a0+1)))
				check("correlation", r.Correlation[i], -math.Sqrt(mu*nu/((1-mu)*(1-nu))))
			}
			if r.Degenerate || r.Saturated || r.Passes != 1 {
				t.Errorf("%s: degenerate %v, saturated %v, passes %d", name, r.Degenerate, r.Saturated, r.Passes)
			}
		}
	})
}

// TestDirichletExtremes checks that nothing overflows or cancels for extreme concentrations.
func TestDirichletExtremes(t *testing.T) {
	for _, alpha := range [][]float64{
		{1e-300, 1e300}, {1e-300, 1e-300}, {5e-324, 1}, {1e300, 1e300, 1e300}, {1e-12, 1e-12, 1e6}, {1e15, 1}, {1, 1},
	} {
		plan := dirichletPlan(t, len(alpha))
		r := streamResult(t, plan, [][]float64{alpha})
		for name, x := range numbers(plan, r) {
			if math.IsNaN(x) || math.IsInf(x, 0) {
				t.Errorf("alpha %v: %s is %v", alpha, name, x)
			}
		}
		sum := 0.0
		for _, m := range r.M {
			sum += m
		}
		if r.MI < 0 || sum != r.MI || r.MI > r.Entropy+1e-15 {
			t.Errorf("alpha %v: MI %v, sum of M %v, entropy %v", alpha, r.MI, sum, r.Entropy)
		}
	}
	// Uniform over the simplex, from the paper's A2: sum_c = (K-1)/(2(K+1)).
	for _, k := range []int{2, 3, 10} {
		alpha := make([]float64, k)
		for j := range alpha {
			alpha[j] = 1
		}
		r := streamResult(t, dirichletPlan(t, k), [][]float64{alpha})
		if want := float64(k-1) / float64(2*(k+1)); !within(r.SumC, want, 1e-14, 0) {
			t.Errorf("K=%d: sum_c %v, want %v", k, r.SumC, want)
		}
	}
}

// TestDirichletTiny has concentrations near 0: rows are nearly one-hot, and their expected entropy
// is nearly psi'(1) sum_k mu_k (alpha_0 - alpha_k).
func TestDirichletTiny(t *testing.T) {
	alpha := []float64{4.29e-12, 4.40e-11, 4.49e-10}
	total, want := 0.0, 0.0
	for _, a := range alpha {
		total += a
	}
	for _, a := range alpha {
		want += a / total * (total - a) * math.Pi * math.Pi / 6
	}
	r := streamResult(t, dirichletPlan(t, 3), [][]float64{alpha})
	if !within(r.ExpectedEntropy, want, 1e-5, 0) {
		t.Errorf("expected entropy %v, want %v", r.ExpectedEntropy, want)
	}
}

func TestDirichletRefusals(t *testing.T) {
	plan := dirichletPlan(t, 3)
	for name, c := range map[string]struct {
		row   []float64
		fault decomp.RowFault
		class int
	}{
		"zero":     {[]float64{1, 0, 1}, decomp.NotPositive, 1},
		"negative": {[]float64{1, 1, -1}, decomp.NotPositive, 2},
		"NaN":      {[]float64{math.NaN(), 1, 1}, decomp.NotFinite, 0},
		"infinite": {[]float64{1, math.Inf(1), 1}, decomp.NotFinite, 1},
		"overflow": {[]float64{1e308, 1e308, 1}, decomp.SumNotFinite, -1},
	} {
		t.Run(name, func(t *testing.T) {
			var e *decomp.RowError
			if err := newStream(plan).Add(c.row); !errors.As(err, &e) || e.Fault != c.fault || e.Class != c.class {
				t.Errorf("got %v", err)
			}
		})
	}
	a := newStream(plan)
	if err := a.Add([]float64{1, 2, 3}); err != nil {
		t.Fatal(err)
	}
	var e *decomp.PassesError
	if err := a.Add([]float64{1, 2, 3}); !errors.As(err, &e) || e.Got != 2 || e.Most != 1 {
		t.Errorf("a second row of concentrations: got %v", err)
	}
	if err := plan.NewBatch().Reset(decomp.Tensor{Passes: 2, Inputs: 1, Float64: make([]float64, 6)}); !errors.As(err, &e) {
		t.Errorf("a batch of two rows of concentrations: got %v", err)
	}
}

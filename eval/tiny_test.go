package eval_test

import (
	"context"
	"fmt"
	"math"
	"slices"
	"testing"

	"github.com/google/go-cmp/cmp"
	"github.com/google/go-cmp/cmp/cmpopts"
	"pgregory.net/rapid"

	"github.com/ckd-project/ckd/decomp"
	"github.com/ckd-project/ckd/eval"
	"github.com/ckd-project/ckd/policy"
)

// tiny returns a recording of five inputs that can be followed by hand. Classes b and c are
// critical. Input 1 is missed, 2 is critical and predicted as the other critical class, 4 is a
// false alarm.
func tiny() (*eval.Table, []int) {
	t := &eval.Table{
		Inputs: 5, Passes: 2, K: 3,
		Spec:      decomp.Spec{Classes: 3, Critical: []int{1, 2}, Safe: []int{0}},
		Predicted: []int{0, 0, 1, 1, 2},
		SumC:      []float64{0.2, 0.4, 0.2, 0.4, 0},
		C: []float64{
			0.2, 0, 0,
			0.1, 0.3, 0,
			0, 0.1, 0.1,
			0, 0.4, 0,
			0, 0, 0,
		},
		Skewness: []float64{
			0, 0.05, 0.1,
			0.05, 0.3, 0.4,
			0, 0.2, 0.6,
			0.1, 0.1, 0.3,
			0, 0, 0,
		},
		CriticalSkewness: []float64{0.1, 0.4, 0.6, 0.3, 0},
		PairMean:         []float64{0, 0.2, 0.4, 0.2, 0, 0.1, 0.4, 0.1, 0},
		Degenerate:       []bool{false, false, false, false, true},
		Saturated:        make([]bool, 5),
	}
	t.Scores[decomp.Entropy] = []float64{0.1, 0.2, 0.3, 0.4, 0.5}
	t.Scores[decomp.MI] = []float64{0.1, 0.1, 0.2, 0.4, 0.2} // two ties
	return t, []int{0, 1, 2, 1, 0}
}

func evaluate(t rapid.TB, table *eval.Table, labels []int, o eval.Options) *eval.Report {
	t.Helper()
	if o.Coverage == 0 {
		o.Coverage = 0.8
	}
	r, err := eval.Evaluate(context.Background(), table, labels, o)
	if err != nil {
		t.Fatal(err)
	}
	return r
}

// row returns a row of a report.
func row(t testing.TB, r *eval.Report, name string, scope policy.Scope) eval.Row {
	t.Helper()
	for _, row := range r.Policies {
		if row.Name == name && row.Scope == scope {
			return row
		}
	}
	t.Fatalf("no row %s in scope %s", name, scope)
	return eval.Row{}
}

// number compares figures as numbers.
var number = cmp.Transformer("number", func(f eval.Figure) float64 { return float64(f) })

// same compares two values, numbers to 1e-12.
func same(t *testing.T, what string, got, want any) {
	t.Helper()
	if diff := cmp.Diff(want, got, number, cmpopts.EquateApprox(0, 1e-12), cmpopts.EquateNaNs(), cmpopts.EquateEmpty()); diff != "" {
		t.Errorf("%s (-want +got):\n%s", what, diff)
	}
}

var abc = []string{"a", "b", "c"}

// na is the figure of nothing.
var na = eval.Figure(math.NaN())

// TestClassificationByHand has five inputs, of which 0 and 3 are right.
func TestClassificationByHand(t *testing.T) {
	table, labels := tiny()
	r := evaluate(t, table, labels, eval.Options{Classes: abc})
	same(t, "matrix", r.Matrix, [][]int{{1, 0, 1}, {1, 1, 0}, {0, 1, 0}})
	// Mean entropies are (0.1+0.5)/2, (0.2+0.4)/2 and 0.3.
	same(t, "classes", r.Classes, []eval.Class{
		{Name: "a", Safe: true, Support: 2, Predicted: 2, Precision: 0.5, Recall: 0.5, F1: 0.5,
			Uncertainty: 0.3, UncertaintyShare: 1. / 3},
		{Name: "b", Critical: true, Support: 2, Predicted: 2, Precision: 0.5, Recall: 0.5, F1: 0.5,
			Uncertainty: 0.3, UncertaintyShare: 1. / 3},
		{Name: "c", Critical: true, Support: 1, Predicted: 1, Uncertainty: 0.3, UncertaintyShare: 1. / 3},
	})
	s := r.Summary
	// Squared distances sum to 1+1+4 = 6. Grades sum to 4 on both sides and their squares to 6, so
	// that independent grades would give 6+6-2*4*4/5 = 5.6.
	same(t, "summary", []float64{s.Accuracy, float64(s.MacroF1), float64(s.QWK), float64(s.Critical), float64(s.Missed)},
		[]float64{0.4, 1. / 3, 1 - 6/5.6, 3, 1})
}

// TestPrecisionAndRecallByHand gives input 2 the label b, so that class c has no input.
func TestPrecisionAndRecallByHand(t *testing.T) {
	table, labels := tiny()
	labels[2] = 1
	r := evaluate(t, table, labels, eval.Options{Classes: abc})
	b, c := r.Classes[1], r.Classes[2]
	same(t, "b", []eval.Figure{b.Precision, b.Recall, b.F1}, []eval.Figure{1, 2. / 3, 0.8})
	same(t, "c", []eval.Figure{c.Precision, c.Recall, c.F1, c.Uncertainty, c.UncertaintyShare}, []eval.Figure{0, na, 0, na, na})
	// F1 is 0.5 for a, 0.8 for b and 0 for c. The entropies of b are 0.2, 0.3 and 0.4.
	same(t, "all", []eval.Figure{r.Summary.MacroF1, b.Uncertainty, b.UncertaintyShare}, []eval.Figure{1.3 / 3, 0.3, 0.5})

	// No input is of c and none is called so: it has no F1, and those of a and b are 0.5 and 2/3.
	table.Predicted[4] = 1
	r = evaluate(t, table, labels, eval.Options{Classes: abc})
	same(t, "macro F1", []eval.Figure{r.Summary.MacroF1, r.Classes[2].F1}, []eval.Figure{(1./2 + 2./3) / 2, na})
}

func TestSelectiveByHand(t *testing.T) {
	table, labels := tiny()
	r := evaluate(t, table, labels, eval.Options{Classes: abc, Coverage: 0.6})
	if len(r.Policies) != 4 { // two scores, no gates, two scopes
		t.Fatalf("%d rows", len(r.Policies))
	}
	// Inputs 0, 1 and 2 are retained. F1 of a is 2*1/(1+2).
	want := eval.At{
		Coverage: 0.6, Retained: 3,
		CriticalMissed: 1, CriticalMissRate: 1. / 3,
		CriticalMissRateInterval: &[2]float64{0.008403758659612636, 0.9057006759497539}, // SciPy: beta.ppf, 1 of 3
		CalledCritical:           1,
		Per1000:                  eval.Per1000{Deferred: 400, Reviews: 400, CalledCritical: 200, Missed: 200},
		CriticalClasses: []eval.ClassMisses{
			{Class: "b", Inputs: 2, Missed: 1, CriticalMissRate: na}, {Class: "c", Inputs: 1, CriticalMissRate: na},
		},
		CriticalFNR: 0.5, CriticalError: 1, Accuracy: 1. / 3, MacroF1: 2. / 9,
		CriticalRetained: 2, CriticalDeferredShare: 1. / 3,
	}
	withoutResamples := func(r eval.Row) eval.Row {
		none := eval.Interval{Mean: na, SD: na, Low: na, High: na}
		r.Bootstrap, r.BootstrapPaper = eval.Bootstrap{Interval: none, WinShare: na}, none
		r.BootstrapAt = eval.BootstrapAt{CriticalFNR: none, CriticalError: none, Accuracy: none}
		return r
	}
	// AUSC and the joint area were computed with NumPy. In the order of entropy the errors are 0,
	// 1, 2, 2, 3; in the order of MI they are, in expectation, 0.5, 1, 2, 3, 3, and the critical inputs
	// 0.5, 1, 1.5, 2, 3.
	//
	// With one input retained no critical input is, so that the AUSC begins at two: it lacks the
	// step of the paper's from 0 to 1 before the first coverage of two, half of which is area.
	const step = 0.95 / 199
	same(t, "entropy", row(t, r, "entropy", policy.AllInputs), withoutResamples(eval.Row{
		Name: "entropy", Scope: policy.AllInputs, At: want,
		AUSC: eval.AUSC{CriticalFNR: 0.4336264656616414 - step/2, CriticalError: 0.6667504187604689 - step/2,
			ErrorRate: 0.4530402010050251},
		AUSCFrom:  0.05 + 32*step,
		AUSCPaper: eval.AUSC{CriticalFNR: 0.4336264656616414, CriticalError: 0.6667504187604689, ErrorRate: 0.4530402010050251},
		AURC:      (0 + 1./2 + 2./3 + 2./4 + 3./5) / 5, AUGRC: (0 + 0.5 + 1.5 + 2 + 2.5) / 25, JointArea: 0.2665410385259631,
	}))
	// By MI inputs 0, 1 and one of 2 and 4 are retained: half of either, in expectation.
	want.FalseCalls, want.Per1000.FalseCalls = 0.5, 100
	want.CriticalRetained, want.CriticalDeferredShare, want.CriticalFNR = 1.5, 0.5, 1/1.5
	want.MacroF1 = 2 * 1. / (1 + 2.5) / 3 // a is right once; half of input 4 is of it
	same(t, "mi", row(t, r, "mi", policy.AllInputs), withoutResamples(eval.Row{
		Name: "mi", Scope: policy.AllInputs, At: want,
		AUSC:      eval.AUSC{CriticalFNR: 0.4980737018425462, CriticalError: 0.7311976549413741, ErrorRate: 0.5783542713567839},
		AUSCFrom:  0.05 + 32*step,
		AUSCPaper: eval.AUSC{CriticalFNR: 0.5756490787269679, CriticalError: 0.8087730318257962, ErrorRate: 0.5783542713567839},
		AURC:      (0.5 + 1./2 + 2./3 + 3./4 + 3./5) / 5, AUGRC: (0.25 + 0.75 + 1.5 + 2.5 + 3) / 25, JointArea: 0.2916038525963147,
	}))
	// Inputs 2, 3 and 4 are predicted critical and come first: nothing is missed.
	same(t, "entropy, predicted-safe", row(t, r, "entropy", policy.PredictedSafe).At, eval.At{
		Coverage: 0.6, Retained: 3, CriticalMissRateInterval: &[2]float64{0, 0.7075982261787133}, // 0 of 3
		CalledCritical: 3, FalseCalls: 1,
		Per1000: eval.Per1000{Deferred: 400, Reviews: 400, CalledCritical: 600, FalseCalls: 200},
		CriticalClasses: []eval.ClassMisses{
			{Class: "b", Inputs: 2, CriticalMissRate: na}, {Class: "c", Inputs: 1, CriticalMissRate: na},
		},
		CriticalError: 0.5, Accuracy: 1. / 3, MacroF1: (2 * 1. / (1 + 2)) / 3,
		CriticalRetained: 2, CriticalDeferredShare: 1. / 3,
	})

	// The curve in the order of entropy, from 1 input to 5.
	var curve eval.Curve
	for _, c := range r.Curves.Rows {
		if c.Name == "entropy" && c.Scope == policy.AllInputs {
			curve = c
		}
	}
	for c, n := range r.Curves.Retained {
		got := []float64{curve.CriticalRetained[c], curve.CriticalMissed[c], curve.Wrong[c]}
		want := [][]float64{{0, 0, 0}, {1, 1, 1}, {2, 1, 2}, {3, 1, 2}, {3, 1, 3}}[n-1]
		if !slices.Equal(got, want) {
			t.Errorf("curve with %d retained: %v, want %v", n, got, want)
		}
	}
	if n := len(r.Curves.Coverage); n != 200 || r.Curves.Coverage[0] != 0.05 || r.Curves.Coverage[n-1] != 1 {
		t.Errorf("%d coverages", n)
	}
}

// TestBootstrapAtCoverageByHand has inputs that are all alike, so that all resamples are.
func TestBootstrapAtCoverageByHand(t *testing.T) {
	always := func(v eval.Figure) eval.Interval { return eval.Interval{Mean: v, Low: v, High: v} }
	for _, c := range []struct {
		label, predicted          int
		fnr, criticalError, right eval.Figure
	}{{1, 1, 0, 0, 1}, {1, 2, 0, 1, 0}, {1, 0, 1, 1, 0}} {
		table, labels := tiny()
		for i := range labels {
			labels[i], table.Predicted[i] = c.label, c.predicted
		}
		r := evaluate(t, table, labels, eval.Options{Bootstrap: 7})
		got := row(t, r, "mi", policy.AllInputs)
		same(t, "at the coverage", got.BootstrapAt, eval.BootstrapAt{
			CriticalFNR: always(c.fnr), CriticalError: always(c.criticalError), Accuracy: always(c.right),
		})
		same(t, "AUSC", got.Bootstrap.Interval, always(0.95*c.fnr))
		if len(got.Bootstrap.Samples) != 7 {
			t.Errorf("%d samples", len(got.Bootstrap.Samples))
		}
	}
}

func TestApproximationByHand(t *testing.T) {
	table, labels := tiny()
	r := evaluate(t, table, labels, eval.Options{Classes: abc})
	s := r.Summary
	// Correlations were computed with SciPy. The inflation is 1.2/1.0, and two passes give the
	// factor.
	same(t, "correlations", []eval.Figure{s.Pearson, s.Spearman, s.ResidualSkewness, s.Inflation, eval.Figure(s.Factor)},
		[]eval.Figure{0.2439750182371333, 0.027777777777777776, -0.30779350562554625, 1.2, 2})
	// Inputs 1 and 2 are above 0.3, inputs 0 and 4 under it; input 3 is exactly there.
	same(t, "shares", []eval.Figure{s.FallbackShare, eval.Figure(s.AllReliable)}, []eval.Figure{0.4, 0.4})
	if s.Degenerate != 1 || s.Saturated != 0 {
		t.Errorf("%d degenerate, %d saturated", s.Degenerate, s.Saturated)
	}
	// Residuals are 0.1, 0.3, 0, 0 and -0.2; the largest skewness is 0.1, 0.4, 0.6, 0.3 and 0.
	bounds := []float64{0.1, 0.2, 0.3, 0.5}
	want := []eval.ResidualBin{
		{N: 2, Mean: -0.05, Relative: -0.1 / 0.3}, {Above: 0.1, Mean: na, Relative: na}, {Above: 0.2, N: 1}, {Above: 0.3, N: 1, Mean: 0.3, Relative: 3},
		{Above: 0.5, N: 1},
	}
	for b, bin := range r.Residual {
		if b < len(bounds) && *bin.UpTo != bounds[b] || b == len(bounds) && bin.UpTo != nil {
			t.Errorf("bin %d ends at %v", b, bin.UpTo)
		}
		bin.UpTo = nil
		same(t, fmt.Sprintf("residual bin %d", b), bin, want[b])
	}
	// The skewness of b is 0, 0.05, 0.1, 0.2 and 0.3; inputs 1 and 3 are of the true class b.
	skewness := r.Skewness[1]
	same(t, "skewness", skewness.SkewnessOf, eval.SkewnessOf{Median: 0.1, Mean: 0.13, P90: 0.26,
		Reliable: map[string]eval.Figure{"0.1": 0.4, "0.2": 0.6, "0.3": 0.8, "0.5": 1}})
	same(t, "skewness by true class", skewness.ByTrue[1], eval.SkewnessByTrue{True: "b", N: 2, SkewnessOf: eval.SkewnessOf{
		Median: 0.2, Mean: 0.2, P90: 0.28, Reliable: map[string]eval.Figure{"0.1": 0, "0.2": 0.5, "0.3": 0.5, "0.5": 1},
	}})
}

func TestDiagnosisByHand(t *testing.T) {
	table, labels := tiny()
	r := evaluate(t, table, labels, eval.Options{Classes: abc})
	same(t, "profiles", r.Profiles, eval.Profiles{
		N:          []int{2, 2, 1},
		Raw:        [][]eval.Figure{{0.1, 0, 0}, {0.05, 0.35, 0}, {0, 0.1, 0.1}},
		Normalised: [][]eval.Figure{{0.5, 0, 0}, {0.125, 0.875, 0}, {0, 0.5, 0.5}},
	})
	same(t, "signatures", r.Signatures, []eval.Signature{
		{True: "a", Predicted: "a", N: 1, MI: 0.1, C: []float64{0.2, 0, 0}, Dominant: "a"},
		{True: "a", Predicted: "c", N: 1, MI: 0.2, C: []float64{0, 0, 0}, Dominant: "a"},
		{True: "b", Predicted: "a", N: 1, MI: 0.1, C: []float64{0.1, 0.3, 0}, Dominant: "b"},
		{True: "b", Predicted: "b", N: 1, MI: 0.4, C: []float64{0, 0.4, 0}, Dominant: "b"},
		{True: "c", Predicted: "b", N: 1, MI: 0.2, C: []float64{0, 0.1, 0.1}, Dominant: "b"},
	})
	same(t, "dominant", r.Dominant, []float64{0.4, 0.6, 0}) // input 4, without uncertainty, counts for a
	same(t, "confusion", *r.Confusion, eval.Confusion{
		Matrix:        [][]float64{{0, 0.2, 0.4}, {0.2, 0, 0.1}, {0.4, 0.1, 0}},
		CrossBoundary: 0.3, WithinSafe: na, WithinCritical: 0.1, CrossToSafe: na, CrossToCritical: 3,
	})
}

// TestPaperRuleByHand orders c_crit_max as entropy and cbec in reverse. The reverse misses nothing
// up to the last input but one.
func TestPaperRuleByHand(t *testing.T) {
	table, labels := tiny()
	table.Scores[decomp.CCritMax] = []float64{1, 2, 3, 4, 5}
	table.Scores[decomp.CBEC] = []float64{5, 4, 3, 2, 1}
	// The medians of b and c are 0.1 and 0.3.
	for _, c := range []struct {
		reliability float64
		score       string
	}{{0.3, "c_crit_max"}, {0.29, "cbec"}} {
		r := evaluate(t, table, labels, eval.Options{Coverage: 0.6, Reliability: c.reliability})
		cbec, chosen := row(t, r, "cbec", policy.AllInputs), row(t, r, c.score, policy.AllInputs)
		same(t, c.score, *r.PaperRule, eval.PaperRule{
			MedianCriticalSkewness: 0.3, Score: c.score,
			BestAUSC: "cbec", CostAUSC: chosen.AUSC.CriticalFNR - cbec.AUSC.CriticalFNR,
			BestCriticalFNR: "cbec", CostCriticalFNR: chosen.CriticalFNR,
		})
	}
	if r := evaluate(t, table, labels, eval.Options{Coverage: 1}); r.PaperRule.BestCriticalFNR != "c_crit_max" {
		t.Errorf("all are best, and not the chosen one but %s is said to be", r.PaperRule.BestCriticalFNR)
	}
}

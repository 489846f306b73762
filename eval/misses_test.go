package eval_test

import (
	"math"
	"math/rand/v2"
	"slices"
	"strings"
	"testing"

	"github.com/ckd-project/ckd/decomp"
	"github.com/ckd-project/ckd/eval"
	"github.com/ckd-project/ckd/policy"
)

// TestReviews counts reviews by what happens to critical calls. At two retained inputs in scope
// predicted-safe three of tiny's inputs are called critical, two of which are kept.
func TestReviews(t *testing.T) {
	for calls, want := range map[eval.CriticalCalls]float64{"": 600, eval.ActedOn: 600, eval.Reviewed: 1000} {
		table, labels := tiny()
		r := evaluate(t, table, labels, eval.Options{Classes: abc, Coverage: 0.4, CriticalCalls: calls})
		got := row(t, r, "mi", policy.PredictedSafe)
		if got.Per1000.Reviews != want || got.Per1000.Deferred != 600 || got.CalledCritical != 2 {
			t.Errorf("%q: %+v and %v called critical, want %v reviews", calls, got.Per1000, got.CalledCritical, want)
		}
		if r.Source.CriticalCalls != calls {
			t.Errorf("the source says %q, want %q", r.Source.CriticalCalls, calls)
		}
	}
}

// TestBudgetOfReviews spends a budget: reviewed critical calls use up part of it, and every ranking of
// scope predicted-safe has that many reviews. Three of tiny's five inputs are called critical.
func TestBudgetOfReviews(t *testing.T) {
	for calls, want := range map[eval.CriticalCalls]struct{ coverage, reviews float64 }{
		"": {0.2, 800}, eval.ActedOn: {0.2, 800}, eval.Reviewed: {0.8, 800},
	} {
		table, labels := tiny()
		r := evaluate(t, table, labels, eval.Options{Classes: abc, Reviews: 0.8, CriticalCalls: calls})
		got := row(t, r, "mi", policy.PredictedSafe)
		if math.Abs(r.Source.Coverage-want.coverage) > 1e-12 || got.Per1000.Reviews != want.reviews || r.Source.ReviewsPer1000 != 800 {
			t.Errorf("%q: coverage %v, %+v", calls, r.Source.Coverage, got.Per1000)
		}
	}
	table, labels := tiny()
	_, err := eval.Evaluate(t.Context(), table, labels, eval.Options{Classes: abc, Reviews: 0.5, CriticalCalls: eval.Reviewed})
	if err == nil || !strings.Contains(err.Error(), "3 of the 5 inputs (600.0 per 1,000)") {
		t.Errorf("error %v", err)
	}
}

// TestCriticalClasses expects a rate and an interval from 20 inputs on, and the worst of these.
func TestCriticalClasses(t *testing.T) {
	for _, c := range []struct {
		name         string
		ones, missed int // of class 1
		rate         eval.Figure
		worst        string
	}{
		{"19 inputs have counts alone", 19, 19, na, "c"},
		{"20 have a rate", 20, 15, 0.75, "b"},
		{"a tie goes to the first class", 20, 10, 0.5, "b"},
		{"the other is worse", 20, 9, 0.45, "c"},
	} {
		t.Run(c.name, func(t *testing.T) {
			var labels, predicted []int
			add := func(label, n, missed int) {
				for i := range n {
					labels = append(labels, label)
					predicted = append(predicted, index(i >= missed)*label)
				}
			}
			add(0, 5, 0)
			add(1, c.ones, c.missed)
			add(2, 40, 20)
			r := evaluate(t, flat(predicted), labels, eval.Options{Classes: abc})
			got := r.Summary.WithoutDeferral
			if got.WorstClass != c.worst {
				t.Errorf("worst is %q, want %q", got.WorstClass, c.worst)
			}
			b := got.CriticalClasses[0]
			same(t, "b", b, eval.ClassMisses{Class: "b", Inputs: c.ones, Missed: float64(c.missed), CriticalMissRate: c.rate,
				CriticalMissRateInterval: b.CriticalMissRateInterval})
			if (b.CriticalMissRateInterval != nil) != c.rate.Defined() {
				t.Errorf("interval %v beside a rate of %v", b.CriticalMissRateInterval, b.CriticalMissRate)
			}
		})
	}
}

func index(b bool) int {
	if b {
		return 1
	}
	return 0
}

// flat returns a table of predictions with scores that grow with the number of the input.
func flat(predicted []int) *eval.Table {
	n := len(predicted)
	table := &eval.Table{
		Inputs: n, Passes: 5, K: 3, Spec: decomp.Spec{Classes: 3, Critical: []int{1, 2}, Safe: []int{0}},
		Predicted: predicted, SumC: make([]float64, n), C: make([]float64, 3*n), Skewness: make([]float64, 3*n),
		CriticalSkewness: make([]float64, n),
		Degenerate:       make([]bool, n), Saturated: make([]bool, n), PairMean: make([]float64, 9),
	}
	score := make([]float64, n)
	for i := range score {
		score[i] = float64(i)
	}
	table.Scores[decomp.Entropy], table.Scores[decomp.MI] = score, score
	return table
}

// gradedRecording makes a synthetic recording: passes are the softmax of a logit that leans to the
// true class, plus noise of the input and of the pass. The higher a class, the rarer it is.
func gradedRecording(inputs, passes, classes int) (eval.Recording, []int) {
	random := rand.New(rand.NewPCG(7, 11))
	values := make([]float32, passes*inputs*classes)
	labels := make([]int, inputs)
	logits, row := make([]float64, classes), make([]float64, classes)
	for i := range inputs {
		labels[i] = min(int(random.ExpFloat64()*float64(classes)/3), classes-1)
		for k := range logits {
			logits[k] = 1.5*random.NormFloat64() - 0.7*math.Abs(float64(k-labels[i]))
		}
		spread := 0.3 + random.Float64()
		for s := range passes {
			sum := 0.0
			for k := range row {
				row[k] = math.Exp(logits[k] + spread*random.NormFloat64())
				sum += row[k]
			}
			for k := range row {
				values[(s*inputs+i)*classes+k] = float32(row[k] / sum)
			}
		}
	}
	return eval.Recording{
		Name: "synthetic", Classes: classes, Labels: labels,
		Passes: decomp.Tensor{Passes: passes, Inputs: inputs, Float32: values},
	}, labels
}

// TestRankingsOfTwoClasses expects the scores that are functions of each other to be one ranking:
// with two classes, uncertainty about one is uncertainty about the other.
func TestRankingsOfTwoClasses(t *testing.T) {
	passes, labels := gradedRecording(400, 20, 2)
	r := evaluate(t, table(t, passes, decomp.Spec{Critical: []int{1}, Safe: []int{0}}), labels, eval.Options{Bootstrap: 20})
	for name, as := range map[string]string{
		"entropy": "", "maxprob": "entropy", "mi": "", "ova_mi": "mi", "eu_var": "", "var_crit": "eu_var", "eu_var_crit": "eu_var",
		"c_crit_sum": "", "c_crit_max": "c_crit_sum", "cbec": "",
	} {
		if got := row(t, r, name, policy.AllInputs).SameAs; got != as {
			t.Errorf("%s is the same as %q, want %q", name, got, as)
		}
	}
	// Called safe, an input is the less certain the more probable the critical class is.
	if got := row(t, r, "p_critical", policy.PredictedSafe).SameAs; got != "entropy" {
		t.Errorf("p_critical in scope predicted-safe is the same as %q, want entropy", got)
	}
	wins := eval.Figure(0)
	for _, row := range r.Policies {
		if _, isScore := decomp.ParseScore(row.Name); isScore && row.SameAs == "" && row.Scope == policy.AllInputs && row.Name != "p_critical" {
			wins += row.Bootstrap.WinShare
		}
	}
	if !(wins > 1-1e-9 && wins < 1+1e-9) {
		t.Errorf("the rankings share %v wins, want one", wins)
	}
}

// TestWorseThanChance warns of labels in another order, and of critical sets that are turned around.
func TestWorseThanChance(t *testing.T) {
	warns := func(notes []string, of string) bool {
		return slices.ContainsFunc(notes, func(n string) bool { return strings.Contains(n, of) })
	}
	passes, labels := gradedRecording(600, 10, 4)
	spec := decomp.Spec{Critical: []int{2, 3}, Safe: []int{0, 1}}
	if notes := evaluate(t, table(t, passes, spec), labels, eval.Options{}).Notes; warns(notes, "chance") {
		t.Errorf("sound labels are warned of: %q", notes)
	}
	for i := range labels {
		labels[i] = (labels[i] + 2) % 4
	}
	notes := evaluate(t, table(t, passes, spec), labels, eval.Options{}).Notes
	if !warns(notes, "worse than chance by these labels") || !warns(notes, "calls inputs critical worse than by chance") {
		t.Errorf("notes %q", notes)
	}
}

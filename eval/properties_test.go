package eval_test

import (
	"context"
	"encoding/json"
	"errors"
	"maps"
	"math"
	"math/rand/v2"
	"runtime"
	"slices"
	"strings"
	"sync/atomic"
	"testing"

	"github.com/google/go-cmp/cmp"
	"github.com/google/go-cmp/cmp/cmpopts"
	"pgregory.net/rapid"

	"github.com/ckd-project/ckd/decomp"
	"github.com/ckd-project/ckd/eval"
	"github.com/ckd-project/ckd/internal/record"
	"github.com/ckd-project/ckd/policy"
)

// drawRecording draws passes of any kind, with the hard cases among them: one input, few passes,
// identical passes, one-hot rows, empty sets.
func drawRecording(t *rapid.T) (eval.Recording, decomp.Spec, []int) {
	k := rapid.IntRange(2, 5).Draw(t, "K")
	n := rapid.IntRange(1, 12).Draw(t, "N")
	s := rapid.IntRange(2, 6).Draw(t, "S")
	spec := decomp.Spec{
		Classes:  k,
		Kind:     decomp.Kind(rapid.IntRange(0, 2).Draw(t, "kind")),
		Variance: decomp.Variance(rapid.IntRange(0, 1).Draw(t, "variance")),
	}
	value := rapid.Float64Range(0, 1)
	switch spec.Kind {
	case decomp.Dirichlet:
		s = 1
		value = rapid.SampledFrom([]float64{math.SmallestNonzeroFloat64, 1e-300, 1e-6, 0.5, 1, 3, 1e6, 1e300})
	case decomp.Logits:
		value = rapid.SampledFrom([]float64{-1e308, -800, -1, 0, 0.6, 3, 800, 1e308}) // no row sums to 1 within [0,1]
	}
	classes := rapid.Permutation(numbers(k)).Draw(t, "classes")
	critical := rapid.IntRange(0, k).Draw(t, "critical")
	spec.Critical = classes[:critical]
	spec.Safe = classes[critical:rapid.IntRange(critical, k).Draw(t, "safe")]

	p := &record.Passes{Name: "drawn", S: s, N: n, K: k, Float64: make([]float64, s*n*k)}
	for i := range n {
		identical := rapid.IntRange(0, 3).Draw(t, "identical") == 0
		for pass := range s {
			at := p.Offset(pass, i)
			row := p.Float64[at : at+k]
			if identical && pass > 0 {
				copy(row, p.Float64[p.Offset(0, i):])
				continue
			}
			for c := range row {
				row[c] = value.Draw(t, "value")
			}
			if spec.Kind == decomp.Probabilities {
				normalise(row)
			}
		}
	}
	labels := rapid.SliceOfN(rapid.IntRange(0, k-1), n, n).Draw(t, "labels")
	if rapid.Bool().Draw(t, "one class only") {
		for i := range labels {
			labels[i] = labels[0]
		}
	}
	return fromFile(p), spec, labels
}

// normalise scales a row to sum 1. A row of zeros becomes one-hot.
func normalise(row []float64) {
	sum := 0.0
	for _, v := range row {
		sum += v
	}
	if sum == 0 {
		row[0], sum = 1, 1
	}
	for c := range row {
		row[c] /= sum
	}
}

func numbers(n int) []int {
	all := make([]int, n)
	for i := range all {
		all[i] = i
	}
	return all
}

// TestReportsMarshal expects no NaN, no infinity and no null list from any recording, and shares
// within [0,1].
func TestReportsMarshal(t *testing.T) {
	rapid.Check(t, func(t *rapid.T) {
		passes, spec, labels := drawRecording(t)
		table, err := eval.NewTable(context.Background(), passes, spec, nil)
		if err != nil {
			t.Skip(err) // concentrations whose sum overflows
		}
		o := eval.Options{
			Coverage:  rapid.SampledFrom([]float64{1e-9, 0.05, 0.5, 0.8, 1}).Draw(t, "coverage"),
			Bootstrap: rapid.IntRange(0, 3).Draw(t, "resamples"),
		}
		if len(spec.Critical) > 0 && rapid.Bool().Draw(t, "policy") {
			o.Policy = drawPolicy(t, spec)
			if o.Decisions, err = eval.Decide(context.Background(), passes, o.Policy, nil); err != nil {
				t.Fatal(err)
			}
		}
		r := evaluate(t, table, labels, o)
		data, err := json.Marshal(r)
		if err != nil {
			t.Fatal(err)
		}
		var back map[string]any
		if err := json.Unmarshal(data, &back); err != nil {
			t.Fatal(err)
		}
		checkValues(t, "", back)
	})
}

// drawPolicy draws a policy with any gate, thresholds that may be 0, and perhaps a certificate.
func drawPolicy(t *rapid.T, spec decomp.Spec) *policy.Policy {
	sorted := func(set []int) []int { return slices.Sorted(slices.Values(set)) }
	p := &policy.Policy{
		Name: "m", Classes: make([]string, spec.Classes), Critical: sorted(spec.Critical), Safe: sorted(spec.Safe),
		Kind:                 []policy.Kind{policy.Probabilities, policy.Logits, policy.Dirichlet}[spec.Kind],
		ReliabilityThreshold: 0.3,
		Gate: rapid.SampledFrom([]policy.Gate{policy.AnyCritical, policy.Always,
			policy.Never}).Draw(t, "gate"),
		Scope: rapid.SampledFrom([]policy.Scope{policy.AllInputs, policy.PredictedSafe}).Draw(t, "scope"),
		Primary: policy.Rule{Score: policy.CCritMax, HasThreshold: true,
			Threshold: rapid.SampledFrom([]float64{0, math.SmallestNonzeroFloat64, 0.01, 1}).Draw(t, "primary")},
		Fallback: policy.Rule{Score: policy.Entropy, HasThreshold: true,
			Threshold: rapid.SampledFrom([]float64{0, 0.2, 1}).Draw(t, "fallback")},
		Degenerate: rapid.SampledFrom([]policy.Handling{policy.HandleDefer, policy.HandleRetain,
			policy.HandleByScore}).Draw(t, "degenerate"),
		Saturated: policy.HandleRetain,
	}
	if rapid.IntRange(0, 3).Draw(t, "observes") == 0 {
		p.Primary.HasThreshold, p.Fallback.HasThreshold = false, false
	}
	if rapid.Bool().Draw(t, "certificate") {
		p.Calibration = &policy.Calibration{Certificate: &policy.Certificate{
			Kind: policy.LearnThenTest, Target: 0.05, Confidence: 0.95,
		}}
	}
	return p
}

// sharesOf names the fields of a report that are shares of something.
var sharesOf = strings.Fields(`accuracy macro_f1 critical_fnr fallback_share all_reliable precision recall f1
	uncertainty_share coverage critical_error critical_deferred_share critical_miss_rate critical_miss_rate_interval ausc_from error_rate aurc augrc joint_area win_share p
	critical_fnr_interval by_fallback target confidence observed p_value p_shown power_at_double reliable normalised dominant`)

// maybeNull names the fields that are null where nothing is below their line.
var maybeNull = strings.Fields(`up_to verdict power_at_double macro_f1 qwk critical_fnr critical_miss_rate critical_miss_rate_interval
	pearson spearman inflation residual_skewness fallback_share precision recall f1 uncertainty uncertainty_share
	critical_error accuracy critical_deferred_share ausc_from joint_area mean sd low high win_share p
	critical_fnr_interval observed relative median p90 reliable best_ausc cost_ausc
	cost_critical_fnr raw normalised cross_boundary within_safe within_critical cross_to_safe cross_to_critical`)

// checkValues checks a decoded report. field is the innermost field with a name.
func checkValues(t *rapid.T, field string, v any) {
	switch v := v.(type) {
	case nil:
		if !slices.Contains(maybeNull, field) {
			t.Fatalf("%s is null", field)
		}
	case map[string]any:
		for _, name := range slices.Sorted(maps.Keys(v)) {
			if field == "reliable" {
				checkValues(t, field, v[name])
			} else {
				checkValues(t, name, v[name])
			}
		}
	case []any:
		for _, entry := range v {
			checkValues(t, field, entry)
		}
	case float64:
		if slices.Contains(sharesOf, field) && !(v >= 0 && v <= 1+1e-9) {
			t.Fatalf("%s is %v", field, v)
		}
	}
}

// drawTable draws a table with one score, of few values or of many.
func drawTable(t *rapid.T, value *rapid.Generator[int]) (*eval.Table, []int) {
	n := rapid.IntRange(1, 30).Draw(t, "N")
	table := &eval.Table{
		Inputs: n, Passes: 5, K: 3, Spec: decomp.Spec{Classes: 3, Critical: []int{0, 2}, Safe: []int{1}},
		Predicted: rapid.SliceOfN(rapid.IntRange(0, 2), n, n).Draw(t, "predicted"),
		SumC:      make([]float64, n), C: make([]float64, 3*n), Skewness: make([]float64, 3*n),
		CriticalSkewness: make([]float64, n),
		Degenerate:       make([]bool, n), Saturated: make([]bool, n), PairMean: make([]float64, 9),
	}
	score := make([]float64, n)
	for i := range score {
		score[i] = float64(value.Draw(t, "score"))
	}
	table.Scores[decomp.Entropy], table.Scores[decomp.MI] = score, score
	return table, rapid.SliceOfN(rapid.IntRange(0, 2), n, n).Draw(t, "labels")
}

// asJSON returns a report as people get it, which is compared faster than its values.
func asJSON(t *rapid.T, r *eval.Report) string {
	data, err := json.Marshal(r)
	if err != nil {
		t.Fatal(err)
	}
	return string(data)
}

// TestOrderOfInputs permutes the inputs. Nothing changes, with ties or without: the first sentence of a
// recording of hard votes read "misses 21 of 471", and "misses 0" once its folder was sorted by class.
func TestOrderOfInputs(t *testing.T) {
	rapid.Check(t, func(t *rapid.T) {
		table, labels := drawTable(t, rapid.IntRange(0, rapid.SampledFrom([]int{0, 3, 1000}).Draw(t, "values")))
		groups := rapid.SliceOfN(rapid.IntRange(0, 9), table.Inputs, table.Inputs).Draw(t, "groups")
		if rapid.Bool().Draw(t, "independent") {
			groups = nil
		}
		order := rapid.Permutation(numbers(table.Inputs)).Draw(t, "order")
		permuted, permutedLabels := *table, make([]int, len(labels))
		permuted.Predicted = make([]int, len(labels))
		score, permutedGroups := make([]float64, len(labels)), slices.Clone(groups)
		for place, from := range order {
			permuted.Predicted[place], permutedLabels[place] = table.Predicted[from], labels[from]
			score[place] = table.Scores[decomp.MI][from]
			if groups != nil {
				permutedGroups[place] = groups[from]
			}
		}
		permuted.Scores[decomp.Entropy], permuted.Scores[decomp.MI] = score, score
		coverage := rapid.Float64Range(0.01, 1).Draw(t, "coverage")
		a := evaluate(t, table, labels, eval.Options{Coverage: coverage, Groups: groups})
		b := evaluate(t, &permuted, permutedLabels, eval.Options{Coverage: coverage, Groups: permutedGroups})
		if asJSON(t, a) != asJSON(t, b) {
			t.Fatal(cmp.Diff(a, b, cmpopts.EquateNaNs(), number))
		}
	})
}

// TestBootstrapDoesNotDependOnGoroutines expects the same report whatever runs at once. Another
// seed gives another draw, and more resamples begin with the same ones.
func TestBootstrapDoesNotDependOnGoroutines(t *testing.T) {
	passes, labels := gradedRecording(500, 5, 4)
	table := table(t, passes, decomp.Spec{Critical: []int{2, 3}, Safe: []int{0, 1}})
	var told atomic.Int64
	run := func(goroutines, resamples int, seed uint64) *eval.Report {
		defer runtime.GOMAXPROCS(runtime.GOMAXPROCS(goroutines))
		return evaluate(t, table, labels, eval.Options{
			Bootstrap: resamples, Seed: seed,
			Progress: func(_, total int) {
				if total != resamples {
					t.Errorf("told of %d resamples, want %d", total, resamples)
				}
				told.Add(1)
			},
		})
	}
	alone := run(1, 20, 1)
	if told.Load() != 20 {
		t.Errorf("told of progress %d times", told.Load())
	}
	if diff := cmp.Diff(alone, run(4, 20, 1), cmpopts.EquateNaNs(), number); diff != "" {
		t.Error("four goroutines give another report than one")
	}
	more, other := run(2, 30, 1), run(2, 20, 2)
	for r := range alone.Policies {
		samples := alone.Policies[r].Bootstrap.Samples
		if !cmp.Equal(samples, more.Policies[r].Bootstrap.Samples[:20], cmpopts.EquateNaNs(), number) {
			t.Error("the first resamples depend on how many there are")
		}
		if slices.Equal(samples, other.Policies[r].Bootstrap.Samples) {
			t.Error("another seed gives the same resamples")
		}
	}
}

func TestEvaluateIsCancelled(t *testing.T) {
	passes, labels := gradedRecording(100, 5, 4)
	table := table(t, passes, decomp.Spec{})
	ctx, cancel := context.WithCancel(t.Context())
	_, err := eval.Evaluate(ctx, table, labels, eval.Options{
		Coverage: 0.8, Bootstrap: 1000, Progress: func(int, int) { cancel() },
	})
	if !errors.Is(err, context.Canceled) {
		t.Errorf("error %v", err)
	}
}

// TestPolicyPath expects the ranking of a policy, at the policy's own coverage and scope, to retain
// what the policy retains.
func TestPolicyPath(t *testing.T) {
	random := rand.New(rand.NewPCG(3, 4))
	passes, labels := recording(t, "ctg-ensemble")
	table := table(t, passes, ctg)
	for range 20 {
		p := &policy.Policy{
			Name: "m", Classes: abc, Critical: []int{1, 2}, Safe: []int{0}, Kind: policy.Probabilities,
			SumTolerance: 1e-3, ReliabilityThreshold: 0.3,
			Gate:       []policy.Gate{policy.AnyCritical, policy.Never, policy.Always}[random.IntN(3)],
			Scope:      []policy.Scope{policy.AllInputs, policy.PredictedSafe}[random.IntN(2)],
			Primary:    policy.Rule{Score: policy.CCritMax, Threshold: random.ExpFloat64() / 50, HasThreshold: true},
			Fallback:   policy.Rule{Score: policy.CBEC, Threshold: random.ExpFloat64() / 50, HasThreshold: true},
			Degenerate: policy.HandleDefer, Saturated: []policy.Handling{policy.HandleRetain, policy.HandleDefer}[random.IntN(2)],
		}
		decisions, err := eval.Decide(t.Context(), passes, p, nil)
		if err != nil {
			t.Fatal(err)
		}
		o := eval.Options{Policy: p, Decisions: decisions, Coverage: 1}
		point := evaluate(t, table, labels, o).Policy
		o.Coverage = point.Coverage
		if got := row(t, evaluate(t, table, labels, o), "policy", p.Scope).At; !cmp.Equal(got, point.At, cmpopts.EquateNaNs(), number) {
			t.Errorf("policy %+v retains %+v, its path %+v", p, point.At, got)
		}
	}
}

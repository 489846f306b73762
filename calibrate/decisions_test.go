package calibrate

import (
	"encoding/json"
	"maps"
	"math"
	"math/rand/v2"
	"reflect"
	"slices"
	"strings"
	"testing"

	"pgregory.net/rapid"

	"github.com/ckd-project/ckd/engine"
	"github.com/ckd-project/ckd/eval"
	"github.com/ckd-project/ckd/internal/binomial"
	"github.com/ckd-project/ckd/internal/record"
	"github.com/ckd-project/ckd/passcheck"
	"github.com/ckd-project/ckd/policy"
)

// recorded holds a recording with the policy to complete.
type recorded struct {
	passes *record.Passes
	labels []int
	base   *policy.Policy
	table  *eval.Table
}

// drawRecorded draws a recording of any kind: few inputs and many, few passes, passes that are
// identical and one-hot, sets of any size.
func drawRecorded(t *rapid.T, tb testing.TB, inputs *rapid.Generator[int]) *recorded {
	k := rapid.IntRange(2, 4).Draw(t, "K")
	n := inputs.Draw(t, "N")
	passes := rapid.SampledFrom([]int{2, 3, 8, 20}).Draw(t, "S")
	critical := rapid.IntRange(1, k).Draw(t, "critical classes")
	safe := rapid.IntRange(critical, k).Draw(t, "end of the safe classes")
	kind := rapid.SampledFrom([]policy.Kind{policy.Probabilities, policy.Logits, policy.Dirichlet}).Draw(t, "kind")
	rng := rand.New(rand.NewPCG(rapid.Uint64().Draw(t, "seed of the recording"), 7))
	identical := rapid.SampledFrom([]float64{0, 0.2, 1}).Draw(t, "identical")
	wrong := rapid.SampledFrom([]float64{0, 0.2, 0.6}).Draw(t, "wrong")

	lines := []string{
		"kind: " + string(kind),
		"degenerate: " + string(rapid.SampledFrom(handlings).Draw(t, "degenerate")),
		"saturated: " + string(rapid.SampledFrom(handlings).Draw(t, "saturated")),
		"variance: " + rapid.SampledFrom([]string{"sample", "population"}).Draw(t, "variance"),
		"reliability_threshold: " + rapid.SampledFrom([]string{"0.05", "0.3", "0.6"}).Draw(t, "reliability"),
		"critical: [" + quotedNumbers(0, critical) + "]", "safe: [" + quotedNumbers(critical, safe) + "]",
	}
	if kind == policy.Dirichlet {
		passes = 1
	}
	r := &recorded{
		passes: &record.Passes{Name: "drawn", S: passes, N: n, K: k, Float64: make([]float64, passes*n*k)},
		labels: make([]int, n), base: basePolicy(tb, k, lines...),
	}
	for i := range n {
		r.labels[i] = rng.IntN(k)
		looks := r.labels[i]
		if rng.Float64() < wrong {
			looks = rng.IntN(k)
		}
		spread, same, oneHot := rng.ExpFloat64(), rng.Float64() < identical, rng.IntN(2) == 0
		for pass := range passes {
			at := r.passes.Offset(pass, i)
			row := r.passes.Float64[at : at+k]
			for c := range row {
				row[c] = 2*float64(index(c == looks)) + spread*rng.NormFloat64()
				if same && oneHot {
					row[c] = 1000 * float64(index(c == looks))
				}
			}
			if same && pass > 0 {
				copy(row, r.passes.Float64[r.passes.Offset(0, i):])
				continue
			}
			switch kind {
			case policy.Logits:
				for c := range row {
					row[c] -= 100 // or identical ones are probabilities by chance
				}
			case policy.Probabilities:
				softmax(row)
			case policy.Dirichlet:
				softmax(row)
				for c := range row {
					row[c] = 0.1 + 10*spread*row[c]
				}
			}
		}
	}
	r.table = must(eval.NewTable(tb.Context(), fromFile(r.passes), engine.Spec(r.base), nil))
	return r
}

func quotedNumbers(from, to int) string {
	var all []string
	for k := from; k < to; k++ {
		all = append(all, `"`+string(rune('0'+k))+`"`)
	}
	return strings.Join(all, ", ")
}

func softmax(row []float64) {
	sum, most := 0.0, slices.Max(row)
	for c, v := range row {
		row[c] = math.Exp(v - most)
		sum += row[c]
	}
	for c := range row {
		row[c] /= sum
	}
}

func drawObjective(t *rapid.T) Objective {
	confidence := rapid.SampledFrom([]float64{0.5, 0.8, 0.95, 0.999}).Draw(t, "confidence")
	return rapid.SampledFrom([]Objective{
		{Coverage: 1e-300}, {Coverage: 0.001}, {Coverage: 0.3}, {Coverage: 0.8}, {Coverage: 1},
		missesUpTo(1e-300, confidence), missesUpTo(0.1, confidence),
		missesUpTo(0.4, confidence), missesUpTo(1-1e-16, 1-1e-16), fnrUpTo(1e-300, confidence), fnrUpTo(0.01, confidence), fnrUpTo(0.3, confidence),
		fnrUpTo(0.9, confidence), fnrUpTo(0.999, 0.001),
		fnrUpTo(1-1e-16, 1-1e-16),
	}).Draw(t, "objective")
}

// TestPolicies checks that every recording and objective leads to a policy or a refusal. The policy
// is valid, it decides on the recording as the result says, and the certificate follows from its
// own numbers. Nothing panics, and the result can be written as JSON.
func TestPolicies(t *testing.T) {
	t.Parallel()
	var policies, certificates int
	rapid.Check(t, func(rt *rapid.T) {
		rec := drawRecorded(rt, t, rapid.OneOf(rapid.IntRange(1, 20), rapid.IntRange(60, 200)))
		o := Options{
			Base: rec.base, Objective: drawObjective(rt), Scope: drawScope(rt), Seed: uint64(rapid.IntRange(0, 9).Draw(rt, "seed")), Force: true,
		}
		found, err := Choose(t.Context(), rec.table, rec.labels, o)
		if err != nil {
			for _, reason := range []string{"no input has a critical class", "every score is the same for all inputs"} {
				if strings.Contains(err.Error(), reason) {
					return
				}
			}
			rt.Fatal(err)
		}
		checkJSON(rt, found)
		if len(passcheck.Void(found.Signs)) > 0 { // drawn labels and passes may be what passcheck looks for
			if found.Policy != nil || found.Refusal == nil {
				rt.Fatalf("a policy in spite of %+v", found.Signs)
			}
			return
		}
		if (found.Policy == nil) != (found.Refusal != nil) || (found.Policy == nil) != (found.Chosen == nil) ||
			(found.Policy == nil) != (found.Expected == nil) || len(found.Why) == 0 && found.Refusal == nil {
			rt.Fatalf("policy %v, refusal %+v, chosen %+v, expected %+v, why %q", found.Policy, found.Refusal, found.Chosen,
				found.Expected, found.Why)
		}
		if found.Policy == nil {
			checkRefusal(rt, found, o)
			return
		}
		policies++
		certificates += index(found.Certificate != nil)
		checkPolicy(rt, found, o)
		rec.checkDecisions(rt, t, found, o)
	})
	if !testing.Short() && (policies < 20 || certificates < 3) {
		t.Errorf("only %d policies, %d with a certificate: the test shows little", policies, certificates)
	}
}

// TestEveryRule checks that the policy of any rule, at any point of its path, is valid and retains
// what was counted for it.
func TestEveryRule(t *testing.T) {
	t.Parallel()
	seen := map[policy.Gate]int{}
	rapid.Check(t, func(rt *rapid.T) {
		rec := drawRecorded(rt, t, rapid.IntRange(150, 300))
		base := *rec.base
		skewness := slices.Sorted(slices.Values(rec.table.CriticalSkewness))
		base.ReliabilityThreshold = max(1e-3, skewness[len(skewness)/2])
		o := Options{Base: &base, Objective: Objective{Coverage: 0.5}, Scope: drawScope(rt),
			Guard: rapid.SampledFrom([]float64{0, 0.05, 0.3}).Draw(rt, "guard")}
		r := runOf(t, rec.table, rec.labels, o)
		s := must(r.search(r.all(), o.Scope))
		if len(s.candidates) == 0 {
			return
		}
		byGate := map[policy.Gate][]candidate{}
		for _, rule := range s.candidates {
			byGate[rule.gate] = append(byGate[rule.gate], rule)
		}
		gate := rapid.SampledFrom(slices.Sorted(maps.Keys(byGate))).Draw(rt, "gate")
		rule := rapid.SampledFrom(byGate[gate]).Draw(rt, "rule")
		seen[rule.gate]++
		at := s.choiceAt(rule, rapid.Float64Range(0, 1).Draw(rt, "coverage"))
		found := at.reported(r)
		checkPolicy(rt, found, o)
		decisions := must(eval.Decide(t.Context(), fromFile(rec.passes), found.Policy, nil))
		for i, d := range decisions {
			if got := s.retains(i, o.Scope, rule, at.thresholds); got != (d.Action == policy.Retain) {
				rt.Fatalf("input %d by %v at %v: retained is %v, decided %+v", i, rule, at.thresholds, got, d)
			}
		}
	})
	if !testing.Short() && seen[policy.AnyCritical] == 0 {
		t.Errorf("only %v: the test shows little", seen)
	}
}

// checkPolicy checks that a policy is valid and is read back as it is.
func checkPolicy(t *rapid.T, found *Report, o Options) {
	p := found.Policy
	set, err := policy.Parse(policy.File{Name: "calibrated", Data: p.Marshal()})
	if err != nil {
		t.Fatalf("%v\n%s", err, p.Marshal())
	}
	if back := set.All()[0]; !reflect.DeepEqual(back, p) {
		t.Fatalf("read back:\n%swritten:\n%s", back.Marshal(), p.Marshal())
	}
	for _, w := range p.Warnings() {
		if strings.HasPrefix(w, "calibrated.certificate") || strings.HasPrefix(w, "calibrated.recording") {
			t.Fatalf("warning %q", w)
		}
	}
	switch c := p.Calibration.Certificate; {
	case o.Objective.Coverage > 0:
		if c != nil {
			t.Fatal("a certificate of a coverage")
		}
	case c == nil:
		t.Fatal("a policy without its certificate")
	default:
		if c.PValue > 1-o.Objective.Confidence || c.PValue != binomial.Tail(c.Misses, c.Cases, o.Objective.Limits[0].Most) {
			t.Fatalf("%+v", c)
		}
	}
}

// checkDecisions compares the report with the decisions of the code that decides online.
func (rec *recorded) checkDecisions(t *rapid.T, tb testing.TB, found *Report, o Options) {
	decisions := must(eval.Decide(tb.Context(), fromFile(rec.passes), found.Policy, nil))
	r := runOf(tb, rec.table, rec.labels, o)
	select_ := func(p part) eval.Selective {
		table, labels := only(rec.table, rec.labels, p)
		var retained []bool
		for _, i := range p.inputs() {
			retained = append(retained, decisions[i].Action == policy.Retain)
		}
		return eval.Select(labels, table.Predicted, retained, rec.table.Spec.Critical)
	}
	if o.Objective.Coverage == 0 {
		_, certifies := r.split()
		on, e := select_(certifies), found.Expected
		if e.Coverage != on.Coverage() || e.CriticalFNR != nil {
			t.Fatalf("expected %+v, decided %+v", e, on)
		}
		for _, row := range found.Comparison {
			if row.Calibrated && row.Scope == o.Scope && row.Coverage != e.Coverage {
				t.Fatalf("coverage %v is expected, and the row has %v", e.Coverage, row.Coverage)
			}
		}
		c := found.Certificate
		cases := on.Critical
		if c.Bounds == policy.CriticalMissRate {
			cases = certifies.count(r.critical)
		}
		if c.Cases != cases || c.Misses != on.Missed {
			t.Fatalf("certificate %+v, decided %+v", c, on)
		}
		return
	}
	// The policy retains at least the coverage asked for, as far as scores decide. It retains no
	// more than it must: without the highest retained scores of each side, and those tied with
	// them, it would retain fewer.
	on := select_(r.all())
	byScore := candidate{gate: policy.Never}
	if found.Chosen.Primary.Score == string(policy.RiskScore) {
		byScore = single(riskScore)
	}
	kept, most := 0, r.n
	for i := range r.n {
		kept += index(r.fate(i, o.Scope, byScore) == policy.Retain)
		most -= index(r.fate(i, o.Scope, byScore) == policy.Defer)
	}
	wanted := min(max(eval.Kept(o.Objective.Coverage, r.n), kept), most)
	if on.Retained < wanted {
		t.Fatalf("%d are retained, want %d", on.Retained, wanted)
	}
	last := map[policy.GateOutcome]float64{}
	for i, d := range decisions {
		if d.Reason == policy.UnderThreshold && r.fate(i, o.Scope, byScore) == 0 {
			last[d.Gate] = max(last[d.Gate], d.Value)
		}
	}
	tied := 0
	for i, d := range decisions {
		const apart = 1e-7 // tied scores differ by 1e-9, and may follow one another in a chain
		last, ok := last[d.Gate]
		tied += index(ok && r.fate(i, o.Scope, byScore) == 0 && d.Action == policy.Retain && d.Value >= last*(1-apart))
	}
	if on.Retained-tied >= max(wanted, kept+1) {
		t.Fatalf("%d are retained, %d are wanted, and %d of them are the last", on.Retained, wanted, tied)
	}
	for _, threshold := range []policy.Rule{found.Policy.Primary, found.Policy.Fallback} {
		if threshold.HasThreshold && !(threshold.Threshold >= 0 && threshold.Threshold < 1e3) {
			t.Fatalf("threshold %v", threshold)
		}
	}
}

// checkRefusal checks that a refusal says why, and how many cases could certify.
func checkRefusal(t *rapid.T, found *Report, o Options) {
	refusal := found.Refusal
	if o.Objective.Coverage > 0 || refusal.Reason == "" || found.Certificate != nil || refusal.Misses > refusal.Cases {
		t.Fatalf("%s: %+v", o.Objective, refusal)
	}
	f := 0.0
	if refusal.Cases > 0 {
		f = float64(refusal.Misses) / float64(refusal.Cases)
	}
	target := o.Objective.Limits[0].Most
	possible := f < target && target != 1e-300 // which no number of cases certifies
	if possible != (refusal.SmallestCases > 0) {
		t.Fatalf("%s: %+v", o.Objective, refusal)
	}
}

// checkJSON checks that JSON can hold a report, without null lists and without shares above 1.
func checkJSON(t *rapid.T, found *Report) {
	data, err := json.Marshal(found)
	if err != nil {
		t.Fatal(err)
	}
	if found.Why == nil || found.Notes == nil || found.Comparison == nil {
		t.Fatalf("a list is null in %s", data)
	}
	shares := func(values ...float64) {
		for _, v := range values {
			if !(v >= 0 && v <= 1) {
				t.Fatalf("a share is %v in %s", v, data)
			}
		}
	}
	inside := func(share *float64, interval *[2]float64) {
		if (share == nil) != (interval == nil) {
			t.Fatalf("a share and its interval are not both known in %s", data)
		}
		if share != nil {
			shares(*share, interval[0], interval[1])
			if *share < interval[0] || *share > interval[1] {
				t.Fatalf("%v is outside its interval %v in %s", *share, *interval, data)
			}
		}
	}
	for _, r := range found.Comparison {
		shares(r.Coverage)
		if r.Accuracy != nil {
			shares(*r.Accuracy)
		}
		inside(r.CriticalFNR, r.CriticalFNRInterval)
		inside(r.CriticalMissRate, r.CriticalMissRateInterval)
		if r.Missed > r.CriticalRetained || r.FalseKept > r.CriticalKept {
			t.Fatalf("row %+v", r)
		}
	}
	if e := found.Expected; e != nil {
		shares(e.Coverage, e.CoverageInterval[0], e.CoverageInterval[1])
		if (e.CriticalMissRate == nil) == (found.Certificate == nil) {
			t.Fatalf("expected %+v, certificate %+v", e, found.Certificate)
		}
		inside(e.CriticalMissRate, e.CriticalMissRateInterval)
		inside(e.CriticalFNR, e.CriticalFNRInterval)
	}
}

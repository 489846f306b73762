package calibrate

import (
	"math"
	"math/rand/v2"
	"slices"
	"testing"

	"pgregory.net/rapid"

	"github.com/ckd-project/ckd/decomp"
	"github.com/ckd-project/ckd/eval"
	"github.com/ckd-project/ckd/policy"
)

// made says how a table is made up. The numbers need not fit together as those of real passes do:
// nothing in this package relies on that.
type made struct {
	n, passes int
	// critical classes of three.
	critical []int
	// share of inputs that are critical, and of these, that are missed.
	share, missed float64
	// signal is by how much, in standard deviations, scores are higher where the
	// prediction is wrong: 0 is noise.
	signal float64
	// identical share of inputs, half of them one-hot: their scores are 0.
	identical float64
	// ties rounds scores to few values.
	ties bool
}

func (m made) table(rng *rand.Rand) (*eval.Table, []int) {
	t := &eval.Table{
		Inputs: m.n, Passes: m.passes, K: 3,
		Spec:      decomp.Spec{Classes: 3, Critical: m.critical},
		Predicted: make([]int, m.n), SumC: make([]float64, m.n), ExpectedEntropy: make([]float64, m.n),
		C: make([]float64, 3*m.n), Skewness: make([]float64, 3*m.n), PairMean: make([]float64, 9),
		CriticalSkewness: make([]float64, m.n),
		Degenerate:       make([]bool, m.n), Saturated: make([]bool, m.n),
	}
	for k := range 3 {
		if !slices.Contains(m.critical, k) {
			t.Spec.Safe = append(t.Spec.Safe, k)
		}
	}
	for s := range t.Scores {
		t.Scores[s] = make([]float64, m.n)
	}
	labels := make([]int, m.n)
	pick := func(of []int) int { return of[rng.IntN(len(of))] }
	for i := range m.n {
		labels[i] = pick(t.Spec.Safe)
		t.Predicted[i] = labels[i]
		wrong := rng.Float64() < 0.1
		if rng.Float64() < m.share {
			labels[i], t.Predicted[i] = pick(m.critical), pick(m.critical)
			if wrong = rng.Float64() < m.missed; wrong {
				t.Predicted[i] = pick(t.Spec.Safe)
			}
		} else if wrong {
			t.Predicted[i] = rng.IntN(3)
		}
		t.CriticalSkewness[i] = 0.3*math.Exp(rng.NormFloat64()) + 0.1*rng.ExpFloat64()
		t.Degenerate[i] = rng.Float64() < m.identical
		t.Saturated[i] = t.Degenerate[i] && rng.IntN(2) == 0
		for s := range t.Scores {
			v := math.Exp(m.signal*float64(index(wrong)) + rng.NormFloat64())
			if m.ties {
				v = math.Round(2 * v)
			}
			if t.Degenerate[i] {
				v = 0
			}
			t.Scores[s][i] = v
		}
	}
	return t, labels
}

// usual says how most tables are made up.
var usual = made{n: 300, passes: 10, critical: []int{1, 2}, share: 0.4, missed: 0.3, signal: 1}

func drawMade(t *rapid.T) (*eval.Table, []int) {
	m := made{
		n:         rapid.IntRange(1, 80).Draw(t, "N"),
		passes:    rapid.SampledFrom([]int{2, 3, 5, 10}).Draw(t, "S"),
		critical:  rapid.SampledFrom([][]int{{0}, {2}, {0, 1}, {1, 2}}).Draw(t, "critical"),
		share:     rapid.SampledFrom([]float64{0, 0.1, 0.5, 1}).Draw(t, "share of critical"),
		missed:    rapid.SampledFrom([]float64{0, 0.1, 0.5, 1}).Draw(t, "share missed"),
		signal:    rapid.SampledFrom([]float64{0, 1, 8}).Draw(t, "signal"),
		identical: rapid.SampledFrom([]float64{0, 0.2, 1}).Draw(t, "identical"),
		ties:      rapid.Bool().Draw(t, "ties"),
	}
	return m.table(rand.New(rand.NewPCG(rapid.Uint64().Draw(t, "seed"), 1)))
}

var handlings = []policy.Handling{policy.HandleDefer, policy.HandleRetain, policy.HandleByScore}

func drawSample(t *rapid.T) *sample {
	table, labels := drawMade(t)
	return newSample(table, labels, rapid.SampledFrom(handlings).Draw(t, "degenerate"),
		rapid.SampledFrom(handlings).Draw(t, "saturated"))
}

func drawScope(t *rapid.T) policy.Scope {
	return rapid.SampledFrom([]policy.Scope{policy.AllInputs, policy.PredictedSafe}).Draw(t, "scope")
}

// drawPart draws about half of the inputs.
func drawPart(t *rapid.T, s *sample) part {
	rng := rand.New(rand.NewPCG(rapid.Uint64().Draw(t, "seed of part"), 2))
	var inputs []int
	for i := range s.n {
		if rng.IntN(2) == 0 {
			inputs = append(inputs, i)
		}
	}
	return s.partOf(inputs)
}

// drawRule draws a candidate of any gate.
func drawRule(t *rapid.T) candidate {
	score := rapid.Map(rapid.IntRange(0, decomp.NumScores-1), func(s int) decomp.Score { return decomp.Score(s) })
	r := candidate{
		gate:        rapid.SampledFrom([]policy.Gate{policy.Never, policy.AnyCritical}).Draw(t, "gate"),
		reliability: 0.3, primary: score.Draw(t, "primary"), fallback: score.Draw(t, "fallback"),
	}
	if r.gate == policy.Never {
		r.fallback = r.primary
	}
	return r
}

// TestSample compares what is critical, missed and handled with marks made by hand.
func TestSample(t *testing.T) {
	t.Parallel()
	table := &eval.Table{
		Inputs: 6, K: 3, Spec: decomp.Spec{Classes: 3, Critical: []int{1, 2}, Safe: []int{0}},
		Predicted:  []int{0, 0, 2, 1, 1, 0},
		Degenerate: []bool{false, false, false, false, true, true},
		Saturated:  []bool{false, false, false, false, false, true},
	}
	labels := []int{0, 1, 1, 1, 0, 2}
	s := newSample(table, labels, policy.HandleDefer, policy.HandleRetain)
	for _, c := range []struct {
		what      string
		got, want []bool
	}{
		{"critical", s.critical, []bool{false, true, true, true, false, true}},
		{"missed", s.missed, []bool{false, true, false, false, false, true}},
		{"correct", s.correct, []bool{true, false, false, true, false, false}},
		{"predicted critical", s.predictedCritical, []bool{false, false, true, true, true, false}},
	} {
		if !slices.Equal(c.got, c.want) {
			t.Errorf("%s: %v, want %v", c.what, c.got, c.want)
		}
	}
	fates := func(scope policy.Scope) (all []policy.Action) {
		for i := range s.n {
			all = append(all, s.fate(i, scope, candidate{}))
		}
		return all
	}
	if got := fates(policy.AllInputs); !slices.Equal(got, []policy.Action{0, 0, 0, 0, policy.Defer, policy.Retain}) {
		t.Errorf("fates %q", got)
	}
	if got := fates(policy.PredictedSafe); !slices.Equal(got, []policy.Action{0, 0, policy.Retain, policy.Retain, policy.Retain, policy.Retain}) {
		t.Errorf("fates in scope predicted-safe %q", got)
	}
}

// tableOf returns an empty table of n inputs.
func tableOf(n int) *eval.Table {
	return &eval.Table{Inputs: n, K: 3, Spec: decomp.Spec{Classes: 3, Critical: []int{1, 2}, Safe: []int{0}}}
}

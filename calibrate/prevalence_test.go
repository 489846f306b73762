package calibrate

import (
	"flag"
	"math"
	"math/rand/v2"
	"slices"
	"testing"

	"github.com/ckd-project/ckd/decomp"
	"github.com/ckd-project/ckd/eval"
	"github.com/ckd-project/ckd/internal/monitor/prevalence"
	"github.com/ckd-project/ckd/internal/record"
	"github.com/ckd-project/ckd/policy"
)

var figures = flag.Bool("figures", false, "measure the figures of docs/triage.md, which takes minutes")

// split is a recording of which one part has calibrated a model of risk, with the priorities of the
// rest by it.
type split struct {
	on               prevalence.Calibration
	critical, others []float64
}

// newSplit calibrates on a random share of a recording. It returns nil where that has too few critical
// inputs that are called safe.
func newSplit(table *eval.Table, labels []int, share float64, seed uint64) *split {
	order := rand.New(rand.NewPCG(seed, 31)).Perm(table.Inputs)
	n := int(share * float64(table.Inputs))
	part := func(inputs []int) *sample {
		t, l := take(table, labels, inputs)
		return newSample(t, l, policy.HandleByScore, policy.HandleByScore)
	}
	first, rest := part(order[:n]), part(order[n:])
	m, _ := fitRisk(first, first.all(), seed, 0)
	if m == nil {
		return nil
	}
	critical := first.all().count(first.critical)
	c := &split{on: prevalence.Calibration{Prevalence: m.Prevalence, Critical: critical, Others: n - critical}}
	p := newRiskProblem(rest, rest.all())
	for i := range rest.n {
		line := m.CalledSafe
		if rest.predictedCritical[i] {
			line = m.CalledCritical
		}
		if q := line.Probability(p.pCritical[i]); rest.critical[i] {
			c.critical = append(c.critical, q)
		} else {
			c.others = append(c.others, q)
		}
	}
	return c
}

// suggested holds what is suggested by live inputs of the rest, drawn with a share of critical inputs.
type suggested struct {
	prevalence.Share
	known       bool
	truth, mean float64 // share of critical inputs that was drawn, and mean priority
}

// draw draws live inputs. The odds of a critical one are so many times those in the rest.
func (c *split) draw(inputs int, times float64, rng *rand.Rand) (s suggested) {
	odds := times * float64(len(c.critical)) / float64(len(c.others))
	window, counts := new(prevalence.Window), new(prevalence.Counts)
	for range inputs {
		from, critical := c.others, 0.0
		if rng.Float64() < odds/(1+odds) {
			from, critical = c.critical, 1
		}
		q := from[rng.IntN(len(from))]
		s.truth += critical / float64(inputs)
		s.mean += q / float64(inputs)
		if counts.Add(q) {
			window.Take(counts)
		}
	}
	window.Take(counts)
	s.Share, s.known = window.Suggest(c.on)
	return s
}

// recordedAs returns a recording with a set of critical classes.
func recordedAs(t testing.TB, name string, critical ...int) (*eval.Table, []int) {
	t.Helper()
	file := "../internal/recordings/" + name
	r := fromFile(must(record.ReadPasses(file+".passes.npy", record.Options{})))
	r.Labels = must(record.ReadLabels(file + ".labels.npy"))
	spec := decomp.Spec{Classes: r.Classes, Critical: critical}
	for k := range r.Classes {
		if !slices.Contains(critical, k) {
			spec.Safe = append(spec.Safe, k)
		}
	}
	return must(eval.NewTable(t.Context(), r, spec, nil)), r.Labels
}

// TestSuggestedPrevalence checks on recordings that what is suggested is near the true share where the
// mean priority is not, and that its interval holds it: of inputs that the calibration has not seen.
func TestSuggestedPrevalence(t *testing.T) {
	for _, c := range []struct {
		recording    string
		critical     []int
		times        float64
		before       float64 // true share over the mean priority, at least so far from 1
		low, high    float64 // true share over what is suggested, on average
		leastCovered int     // of 20
	}{
		{"ctg-mcdropout", []int{1, 2}, 0.2, 0.4, 0.9, 1.1, 14},
		{"ctg-mcdropout", []int{1, 2}, 5, 0.15, 0.95, 1.05, 14},
		{"german-mcdropout", []int{1}, 2, 0.3, 0.9, 1.1, 14},
		{"abalone-mcdropout", []int{13, 14, 15, 16, 17, 18, 19}, 5, 1, 0.8, 1.2, 14},
	} {
		table, labels := recordedAs(t, c.recording, c.critical...)
		var before, after float64
		covered := 0
		const runs = 20
		for seed := range uint64(runs) {
			s := newSplit(table, labels, 0.25, seed).draw(20_000, c.times, rand.New(rand.NewPCG(seed, 77)))
			if !s.known {
				t.Fatalf("%s: nothing is suggested", c.recording)
			}
			before += s.truth / s.mean / runs
			after += s.truth / s.Estimate / runs
			if s.Low <= s.truth && s.truth <= s.High {
				covered++
			}
		}
		t.Logf("%s x%v: true share over mean priority %.2f, over what is suggested %.2f; held by %d of %d", c.recording, c.times, before, after, covered, runs)
		if math.Abs(before-1) < c.before || after < c.low || after > c.high || covered < c.leastCovered {
			t.Errorf("%s, critical inputs %v times as frequent: expected a mean priority further off, a suggestion nearer, or more intervals that hold the truth", c.recording, c.times)
		}
	}
}

// TestPrevalenceFigures measures the table of docs/triage.md.
func TestPrevalenceFigures(t *testing.T) {
	if !*figures {
		t.Skip("is run by hand, with -figures")
	}
	const runs = 200
	for _, r := range []struct {
		name     string
		critical []int
	}{
		{"ctg-mcdropout", []int{1, 2}}, {"ctg-lowrank", []int{1, 2}}, {"ctg-ensemble", []int{1, 2}}, {"ctg-ensemble", []int{2}},
		{"german-mcdropout", []int{1}}, {"german-ensemble", []int{1}}, {"wine-mcdropout", []int{4, 5, 6}},
		{"wine-mcdropout", []int{0, 1}}, {"wine-lowrank", []int{0, 1}}, {"abalone-mcdropout", []int{13, 14, 15, 16, 17, 18, 19}},
	} {
		table, labels := recordedAs(t, r.name, r.critical...)
		var splits []*split
		for seed := range uint64(runs) {
			if c := newSplit(table, labels, 0.25, seed); c != nil {
				splits = append(splits, c)
			}
		}
		for _, times := range []float64{0.2, 0.5, 1, 2, 5} {
			shown, held := 0.0, 0.0
			var truth, before, after, ratio float64
			for seed, c := range splits {
				s := c.draw(20_000, times, rand.New(rand.NewPCG(uint64(seed), 77)))
				truth += s.truth / float64(len(splits))
				before += s.truth / s.mean / float64(len(splits))
				if !s.known {
					continue
				}
				shown++
				after += s.truth / s.Estimate
				ratio += s.High / s.Low
				if s.Low <= s.truth && s.truth <= s.High {
					held++
				}
			}
			t.Logf("%-18s %v x%v: share %.4f; true over mean priority %.2f; shown in %.0f of %d: true over suggested %.2f, upper over lower end %.1f, held in %.0f%%",
				r.name, r.critical, times, truth, before, shown, len(splits), after/shown, ratio/shown, 100*held/shown)
		}
	}
}

package ledger_test

import (
	"bytes"
	"cmp"
	"github.com/ckd-project/ckd/internal/outcome/promise"
	"github.com/ckd-project/ckd/internal/outcome/truth"
	"math"
	"slices"
	"strings"
	"testing"
	"time"

	gocmp "github.com/google/go-cmp/cmp"
	"github.com/google/go-cmp/cmp/cmpopts"
	"pgregory.net/rapid"

	"github.com/ckd-project/ckd/internal/outcome/evidence"
	"github.com/ckd-project/ckd/internal/outcome/ledger"
	"github.com/ckd-project/ckd/internal/outcome/receipt"
)

// A model is the ledger as one would write it down: everything in memory, everything computed anew.
type model struct {
	decisions []*modelDecision
}

type modelDecision struct {
	receipt.Receipt
	id     receipt.ID
	sealed []byte
	said   []modelReading
}

type modelReading struct {
	source   string
	kind     truth.Kind
	truth    int
	saw      bool
	time     time.Time
	reported time.Time
}

func (d *modelDecision) weighty() bool {
	return d.Review || d.Stratum == receipt.CalledCritical && d.Propensity == 1
}

// stands returns the readings that stand, by source and kind: the last, and of an audit the last of those
// that were reported before the source was answered, which has to be blind.
func (d *modelDecision) stands(before time.Time) map[[2]any]modelReading {
	audit := d.Review && d.Stratum != receipt.Deferred
	all := map[[2]any]modelReading{}
	answered := map[[2]any]time.Time{}
	for _, s := range d.said {
		k := [2]any{s.source, s.kind}
		if at, some := answered[k]; s.reported.Before(before) && (!some || s.reported.Before(at)) {
			answered[k] = s.reported
		}
	}
	for _, s := range d.said {
		k := [2]any{s.source, s.kind}
		if !s.reported.Before(before) || audit && s.reported.After(answered[k]) {
			continue
		}
		have, some := all[k]
		if !some || s.time.After(have.time) || s.time.Equal(have.time) && (s.truth > have.truth || s.truth == have.truth && s.saw) {
			all[k] = s
		}
	}
	for k, s := range all {
		read, some := answered[[2]any{s.source, truth.ByReading}]
		if audit && (s.saw || s.kind != truth.ByReading && s.truth >= 2 && some && s.reported.After(read)) {
			delete(all, k)
		}
	}
	return all
}

// modelTruth is what a decision is found to be: whether anything is known, as what, and which critical
// classes it may be of.
type modelTruth struct {
	known, asCritical, asSafe bool
	classes                   []int
}

// truth returns what d is found to be by readings reported before a time.
func (d *modelDecision) truth(before time.Time) modelTruth {
	critical, blind, safe := 0, 0, 0
	named := [2]int{}
	var test *modelReading
	for _, s := range d.stands(before) {
		switch {
		case s.kind != truth.ByReading:
			if test == nil || s.kind > test.kind ||
				s.kind == test.kind && (s.time.After(test.time) || s.time.Equal(test.time) && s.source > test.source) {
				test = &s
			}
		case s.truth < 2:
			critical++
			named[s.truth]++
			if !s.saw {
				blind++
			}
		default:
			safe++
		}
	}
	var classes []int
	for k, n := range named {
		if n > 0 && n == max(named[0], named[1]) {
			classes = append(classes, k)
		}
	}
	switch {
	case test != nil && test.truth < 2:
		return modelTruth{true, true, false, []int{test.truth}}
	case test != nil:
		return modelTruth{true, blind > 0, true, classes}
	}
	return modelTruth{critical+safe > 0, critical > 0 && critical >= safe, safe > 0 && safe >= critical, classes}
}

// in returns the decisions that count, in the order of evidence.
func (m *model) counting() []*modelDecision {
	earliest := map[uint64]*modelDecision{}
	before := func(a, b *modelDecision) bool {
		return cmp.Or(cmp.Compare(a.Time, b.Time), bytes.Compare(a.id[:], b.id[:])) < 0
	}
	for _, d := range m.decisions {
		if len(d.said) > 0 && d.weighty() && d.Draw != 0 && (earliest[d.Draw] == nil || before(d, earliest[d.Draw])) {
			earliest[d.Draw] = d
		}
	}
	var counting []*modelDecision
	for _, d := range m.decisions {
		if len(d.said) > 0 && d.weighty() && (d.Draw == 0 || earliest[d.Draw] == d) {
			counting = append(counting, d)
		}
	}
	slices.SortFunc(counting, func(a, b *modelDecision) int {
		if before(a, b) {
			return -1
		}
		return 1
	})
	return counting
}

// observation returns what d is to the risk of all critical classes (-1) or of one.
func (d *modelDecision) observation(found modelTruth, class int, worst bool) evidence.Observation {
	miss := d.Stratum == receipt.CalledSafe
	could, must := found.asCritical, !found.asSafe
	if class >= 0 {
		could, must = could && slices.Contains(found.classes, class), must && len(found.classes) == 1
	}
	critical := could && (must || worst == miss)
	return evidence.Observation{Retained: d.Stratum != receipt.Deferred, Critical: critical, Missed: critical && miss,
		Propensity: float64(d.Propensity)}
}

// modelFigures is what the model computes.
type modelFigures struct {
	Decided                    uint64
	Outcomes, Critical, Misses [watches]uint64
	Value, Low, High           [watches]float64
	Evidence, Replayed         [watches]float64
}

// watches counts the figures that have a line: critical miss rates, of all critical classes and of each,
// and the critical FNRs that were certified.
const watches = 5

// watched has these, with their classes and lines, as modelText states them.
var watched = [watches]struct {
	risk  evidence.Risk
	class int // -1 for all critical classes
	line  float64
}{
	{evidence.MissRate, -1, .2}, {evidence.MissRate, 0, .3}, {evidence.MissRate, 1, .15}, {evidence.FNR, -1, .25}, {evidence.FNR, 0, .35},
}

var modelText = strings.Replace(policyText, "confidence: 0.9}", `confidence: 0.9, further: [{bounds: critical-fnr, class: a, target: 0.35}]}
      expected_class_miss_rate: [{class: a, value: 0.1, low: 0, high: 0.3}, {class: b, value: 0.1, low: 0, high: 0.15}]`, 1)

func (m *model) figures(now time.Time) modelFigures {
	const day = 24 * time.Hour
	var f modelFigures
	for i, watch := range watched {
		risk, class := watch.risk, watch.class
		official, again := evidence.NewAlarm(risk, watch.line, 1e9), evidence.NewAlarm(risk, watch.line, 1e9)
		best, worst := evidence.NewSequence(risk, .95), evidence.NewSequence(risk, .95)
		var sum evidence.Estimate
		var cohort evidence.Estimate
		sum.Of, cohort.Of = risk, risk
		last := time.Time{}
		for _, d := range m.counting() {
			start := time.UnixMicro(d.Time).UTC().Truncate(day)
			due := start.Add(15 * day)
			if now.Before(due) {
				continue
			}
			if !start.Equal(last) {
				sum.Add(cohort)
				cohort = evidence.Estimate{Of: risk}
				for _, a := range []*evidence.Alarm{official, again} {
					a.BeginCohort(1)
				}
				for _, s := range []*evidence.Sequence{best, worst} {
					s.BeginCohort(1, 0.01)
				}
				last = start
			}
			if found := d.truth(due); found.known {
				official.Observe(d.observation(found, class, false))
			}
			if found := d.truth(now.Add(1)); found.known {
				again.Observe(d.observation(found, class, false))
				best.Observe(d.observation(found, class, false))
				worst.Observe(d.observation(found, class, true))
				cohort.Observe(d.observation(found, class, false))
				if i == 0 {
					f.Decided++
				}
			}
		}
		sum.Add(cohort)
		f.Outcomes[i], f.Critical[i], f.Misses[i], f.Value[i] = sum.Outcomes, sum.Critical, sum.Misses, sum.Value()
		f.Low[i], _ = best.Interval()
		_, f.High[i] = worst.Interval()
		if e := worst.Estimate(); sum.Critical == 0 && e.Critical == 0 {
			f.Low[i], f.High[i] = math.NaN(), math.NaN()
		}
		f.Evidence[i], f.Replayed[i] = official.Evidence(), again.Evidence()
	}
	return f
}

func figuresOf(s *promise.Promise) modelFigures {
	f := modelFigures{Decided: s.Mature.Decided}
	for i, figure := range s.Mature.Watched() {
		f.Outcomes[i], f.Critical[i], f.Misses[i] = figure.Outcomes, figure.Critical, figure.Misses
		f.Value[i], f.Low[i], f.High[i] = figure.Value, figure.Low, figure.High
		f.Evidence[i], f.Replayed[i] = figure.Monitor.Evidence, figure.Monitor.Replayed
	}
	return f
}

// TestAgainstModel does what may happen to a ledger in any order: outcomes, repetitions, corrections,
// second readings, tests, late outcomes, restarts and crashes; figures have to be the model's.
func TestAgainstModel(t *testing.T) {
	rapid.Check(t, func(rt *rapid.T) {
		b := openBenchOf(t, ledger.NoSync(ledger.Options{}), modelText)
		m := &model{}
		var pending, sent []ledger.Outcome
		flush := func() {
			if len(pending) > 0 {
				b.report(pending...)
				sent = append(sent, pending...)
				pending = nil
			}
		}
		say := func(d *modelDecision) {
			found := b.now.Add(-time.Duration(rapid.IntRange(0, 3).Draw(rt, "hours ago")) * time.Hour)
			if decided := time.UnixMicro(d.Time).UTC(); found.Before(decided) {
				found = decided // an earlier reading is refused
			}
			s := modelReading{
				source: rapid.SampledFrom([]string{"ann", "bob", "cem"}).Draw(rt, "source"), truth: rapid.IntRange(0, 3).Draw(rt, "truth"),
				kind: truth.Kind(max(0, rapid.IntRange(-4, 2).Draw(rt, "kind"))), saw: rapid.IntRange(0, 4).Draw(rt, "saw") == 0,
				time: found, reported: b.now,
			}
			same := func(o modelReading) bool { o.reported = s.reported; return o == s }
			if !slices.ContainsFunc(d.said, same) {
				d.said = append(d.said, s)
			}
			pending = append(pending, ledger.Outcome{Receipt: d.sealed, Truth: "abcd"[s.truth : s.truth+1], Source: s.source, At: s.time,
				Kind: s.kind, SawModel: s.saw})
		}
		rt.Repeat(map[string]func(*rapid.T){
			"decide": func(rt *rapid.T) {
				for range rapid.IntRange(1, 4).Draw(rt, "decisions") {
					r := rapid.SampledFrom([]receipt.Receipt{deferred(), free(), audited(.5), audited(.02)}).Draw(rt, "kind of decision")
					r.Review = r.Review && (r.Stratum == receipt.Deferred || rapid.IntRange(0, 4).Draw(rt, "volunteered") > 0)
					r.Draw = uint64(rapid.IntRange(0, 4).Draw(rt, "draw"))
					r = receiptAt(r, b.now.Add(-time.Duration(rapid.IntRange(1, 72).Draw(rt, "hours since"))*time.Hour))
					r.Policy, r.Version = b.policy, receipt.VersionHash(version)
					d := &modelDecision{Receipt: r, sealed: b.seal(r)}
					_, d.id, _ = b.keys.Open(d.sealed)
					m.decisions = append(m.decisions, d)
					say(d)
				}
			},
			"repeat": func(rt *rapid.T) {
				if len(sent) == 0 {
					rt.Skip()
				}
				pending = append(pending, rapid.SampledFrom(sent).Draw(rt, "outcome"))
			},
			"say more": func(rt *rapid.T) {
				if len(m.decisions) == 0 {
					rt.Skip()
				}
				say(rapid.SampledFrom(m.decisions).Draw(rt, "decision"))
			},
			"report": func(*rapid.T) { flush() },
			"wait": func(rt *rapid.T) {
				flush()
				b.now = b.now.Add(time.Duration(rapid.IntRange(1, 9).Draw(rt, "days")) * 24 * time.Hour)
				if rapid.Bool().Draw(rt, "looked at") {
					b.stateIfAny()
				}
			},
			"crash":   func(*rapid.T) { b.crash() },
			"restart": func(*rapid.T) { b.reopen() },
			"state": func(rt *rapid.T) {
				flush()
				s := b.stateIfAny()
				if s == nil {
					return
				}
				want := m.figures(b.now)
				if d := gocmp.Diff(want, figuresOf(s), cmpopts.EquateNaNs()); d != "" {
					rt.Fatal(d)
				}
			},
		})
		b.Close()
	})
}

package evidence_test

import (
	"bytes"
	"math"
	"math/rand/v2"
	"testing"

	"github.com/google/go-cmp/cmp"
	"pgregory.net/rapid"

	"github.com/ckd-project/ckd/internal/outcome/evidence"
)

// bets is how many bets each side of a sequence has.
const bets = 12

// A design is how inputs come and are reviewed: audits of inputs called safe have a probability from
// rate/2 to 4 rate, those called critical from rate on.
type design struct {
	rate                       float64
	critical, missed, deferred float64
}

var designs = map[string]design{
	"half critical":     {rate: 0.02, critical: 0.5, missed: 0.1, deferred: 0.2},
	"rare and missed":   {rate: 0.1, critical: 0.02, missed: 0.4, deferred: 0.1},
	"never missed":      {rate: 0.5, critical: 0.3, missed: 0, deferred: 0.3},
	"always missed":     {rate: 0.5, critical: 0.3, missed: 1, deferred: 0.3},
	"all are reviewed":  {rate: 1, critical: 0.3, missed: 0.2, deferred: 0},
	"all are deferred":  {rate: 0.02, critical: 0.3, missed: 0.2, deferred: 1},
	"nothing critical":  {rate: 0.5, critical: 0, missed: 0, deferred: 0.1},
	"everything missed": {rate: 1, critical: 1, missed: 1, deferred: 0},
}

// draw returns a reviewed input.
func (d design) draw(rng *rand.Rand) evidence.Observation {
	for {
		o := evidence.Observation{Retained: rng.Float64() >= d.deferred, Critical: rng.Float64() < d.critical, Propensity: 1}
		o.Missed = o.Critical && rng.Float64() < d.missed
		if o.Retained {
			o.Propensity = math.Min(1, d.rate*(0.5+3.5*rng.Float64()))
			if o.Critical && !o.Missed {
				o.Propensity = math.Max(o.Propensity, d.rate)
			}
		}
		if rng.Float64() < o.Propensity {
			return o
		}
	}
}

var both = map[string]evidence.Risk{"fnr": evidence.FNR, "miss rate": evidence.MissRate}

func TestAlarmFollowsTheDefinition(t *testing.T) {
	for name, d := range designs {
		for riskName, risk := range both {
			t.Run(name+"/"+riskName, func(t *testing.T) {
				rng, line := rand.New(rand.NewPCG(1, 2)), 0.15
				a, want := evidence.NewAlarm(risk, line, 1e12), slow{risk: risk}
				for i := range 400 {
					least := d.rate
					if i >= 200 {
						least = d.rate / 2 // another setting of the audits
					}
					if i%100 == 0 {
						a.BeginCohort(least)
					}
					o := d.draw(rng)
					a.Observe(o)
					want.steps = append(want.steps, slowStep{o: o, leastAlarm: least})
					// The definition multiplies lambda Z out, which rounds a little differently.
					if w := math.Min(want.alarm(line), 1e300); math.Abs(a.Evidence()-w) > 1e-10*w {
						t.Fatalf("after %d outcomes: evidence %v, want %v", i+1, a.Evidence(), w)
					}
				}
			})
		}
	}
}

func TestAlarm(t *testing.T) {
	miss := evidence.Observation{Retained: true, Critical: true, Missed: true, Propensity: 0.02}
	hit := evidence.Observation{Retained: true, Critical: true, Propensity: 1}

	t.Run("misses raise it", func(t *testing.T) {
		a := evidence.NewAlarm(evidence.FNR, 0.1, 1e6)
		a.BeginCohort(1)
		for a.Steps() < 100 && !a.Raised() {
			a.Observe(miss)
		}
		// The boldest bet wins 0.98 * 0.9/0.1 / 0.02 = 441 times its stake: 1e6 is out of reach for
		// two misses, and reached by three.
		if a.Steps() != 3 || !a.Raised() {
			t.Fatalf("raised %v after %d misses, want true after 3", a.Raised(), a.Steps())
		}
	})
	t.Run("hits do not clear it", func(t *testing.T) {
		a := evidence.NewAlarm(evidence.FNR, 0.1, 1e3)
		a.BeginCohort(1)
		a.Observe(miss)
		a.Observe(miss)
		for range 1000 {
			a.Observe(hit)
		}
		if !a.Raised() || a.Evidence() > 1e3 {
			t.Fatalf("raised %v with evidence %v, want true with little", a.Raised(), a.Evidence())
		}
	})
	t.Run("nothing is bet before a cohort begins", func(t *testing.T) {
		a := evidence.NewAlarm(evidence.FNR, 0.1, 1e6)
		for range 10 {
			a.Observe(miss)
		}
		if a.Evidence() < 9.999 || a.Evidence() > 10.001 {
			t.Fatalf("evidence %v after 10 steps without a bet, want 10", a.Evidence())
		}
	})
	t.Run("deferred inputs are steps of the miss rate alone", func(t *testing.T) {
		deferred := evidence.Observation{Critical: true, Missed: true, Propensity: 1}
		fnr, missRate := evidence.NewAlarm(evidence.FNR, 0.1, 1e6), evidence.NewAlarm(evidence.MissRate, 0.1, 1e6)
		for _, a := range []*evidence.Alarm{fnr, missRate} {
			a.BeginCohort(1)
			a.Observe(deferred)
		}
		if fnr.Steps() != 0 || missRate.Steps() != 1 || missRate.Evidence() >= 1 {
			t.Fatalf("steps %d and %d, evidence %v; want 0 and 1, and less than 1: no miss",
				fnr.Steps(), missRate.Steps(), missRate.Evidence())
		}
	})
	for name, line := range map[string]float64{"zero": 0, "one": 1, "NaN": math.NaN(), "negative": -1} {
		t.Run("no alarm against a line of "+name, func(t *testing.T) {
			a := evidence.NewAlarm(evidence.FNR, line, 10)
			a.BeginCohort(1)
			for range 1000 {
				a.Observe(miss)
			}
			if a.Raised() || a.Evidence() != 0 {
				t.Fatalf("raised %v, evidence %v", a.Raised(), a.Evidence())
			}
		})
	}
	t.Run("evidence stays finite", func(t *testing.T) {
		a := evidence.NewAlarm(evidence.FNR, 1e-300, 10)
		a.BeginCohort(1)
		for range 100_000 {
			a.Observe(evidence.Observation{Retained: true, Critical: true, Missed: true, Propensity: 0x1p-149})
		}
		if e := a.Evidence(); !(e > 1e299 && e <= 1.001e300) {
			t.Fatalf("evidence %v", e)
		}
	})
}

func TestSequenceFollowsTheDefinition(t *testing.T) {
	for name, d := range designs {
		for riskName, risk := range both {
			t.Run(name+"/"+riskName, func(t *testing.T) {
				rng := rand.New(rand.NewPCG(3, 4))
				s, want := evidence.NewSequence(risk, 0.95), slow{risk: risk}
				s.BeginCohort(d.rate, d.rate/2)
				critical := 0
				for i := range 1200 {
					o := d.draw(rng)
					s.Observe(o)
					if o.Critical && (o.Retained || risk == evidence.MissRate) {
						critical++
						want.steps = append(want.steps, slowStep{o, d.rate, d.rate / 2})
					}
					if i%400 != 399 {
						continue
					}
					low, high := s.Interval()
					if critical == 0 {
						if low != 0 || high != 1 {
							t.Fatalf("interval %v to %v with nothing critical", low, high)
						}
						continue
					}
					wantLow, wantHigh := want.interval(0.95, bets)
					// Limits are on the safe side of the definition's, by next to nothing; outside the
					// grid they are 0 and 1.
					within(t, "low", wantLow, low, 1e-5)
					within(t, "high", 1-wantHigh, 1-high, 1e-5)
				}
			})
		}
	}
}

// within checks that got is want or less, by no more than a part of a logit.
func within(t *testing.T, what string, want, got, logits float64) {
	t.Helper()
	logit := func(a float64) float64 { return math.Log(a) - math.Log1p(-a) }
	switch {
	case got == 0 && (logit(want) < -10 || what == "high" && logit(want) < -6):
	case what == "high" && logit(want) > 10, what == "low" && logit(want) > 6: // beyond the other end
	case got > want*(1+1e-9) || logit(got) < logit(want)-logits:
		t.Errorf("%s: %v from its end, want %v or a little less", what, got, want)
	}
}

func TestSequence(t *testing.T) {
	miss := evidence.Observation{Retained: true, Critical: true, Missed: true, Propensity: 1}
	hit := evidence.Observation{Retained: true, Critical: true, Propensity: 1}

	t.Run("nothing is known before an outcome", func(t *testing.T) {
		s := evidence.NewSequence(evidence.FNR, 0.95)
		s.BeginCohort(1, 1)
		s.Observe(evidence.Observation{Retained: true, Propensity: 1})
		if low, high := s.Interval(); low != 0 || high != 1 {
			t.Fatalf("interval %v to %v", low, high)
		}
	})
	t.Run("nothing is bet before a cohort begins", func(t *testing.T) {
		s := evidence.NewSequence(evidence.FNR, 0.95)
		for range 100 {
			s.Observe(hit)
			s.Observe(miss)
		}
		if low, high := s.Interval(); low != 0 || high != 1 {
			t.Fatalf("interval %v to %v", low, high)
		}
		e := s.Estimate()
		if e.Value() != 0.5 {
			t.Fatalf("estimate %v of 100 hits and 100 misses", e.Value())
		}
	})
	t.Run("another setting may exclude every point", func(t *testing.T) {
		// Bold bets on misses alone, then timid ones on hits alone: no risk explains both.
		s := evidence.NewSequence(evidence.FNR, 0.95)
		s.BeginCohort(1, 1e-3)
		for range 100 {
			s.Observe(miss)
		}
		s.BeginCohort(1e-3, 1)
		for range 1000 {
			s.Observe(hit)
		}
		if low, high := s.Interval(); !(low > 0 && low <= high && high < 1) {
			t.Fatalf("interval %v to %v, want a point within 0 and 1", low, high)
		}
	})
	for name, level := range map[string]float64{"zero": 0, "one": 1, "NaN": math.NaN(), "two": 2} {
		t.Run("a level of "+name+" says nothing", func(t *testing.T) {
			s := evidence.NewSequence(evidence.FNR, level)
			s.BeginCohort(1, 1)
			for range 1000 {
				s.Observe(hit)
			}
			if low, high := s.Interval(); low != 0 || high != 1 {
				t.Fatalf("interval %v to %v", low, high)
			}
		})
	}
	t.Run("a clone goes on by itself", func(t *testing.T) {
		s := evidence.NewSequence(evidence.FNR, 0.95)
		s.BeginCohort(1, 1)
		s.Observe(hit)
		limits := func(s *evidence.Sequence) [2]float64 {
			low, high := s.Interval()
			return [2]float64{low, high}
		}
		before, c := limits(s), s.Clone()
		c.Observe(miss)
		if limits(s) != before || limits(c) == before {
			t.Fatal("the clone's outcome is the original's, or no one's")
		}
	})
}

// TestBelow compares with the sequence whose interval it stands for.
func TestBelow(t *testing.T) {
	for name, d := range designs {
		for riskName, risk := range both {
			t.Run(name+"/"+riskName, func(t *testing.T) {
				rng, line, reached := rand.New(rand.NewPCG(3, 4)), 0.3, 0
				s, b := evidence.NewSequence(risk, 0.95), evidence.NewBelow(risk, 0.95, line, d.rate, d.rate/2)
				s.BeginCohort(d.rate, d.rate/2)
				for i := range 2000 {
					o := d.draw(rng)
					s.Observe(o)
					b.Observe(o)
					if b.Reached() {
						reached++
					}
					// Intervals are a little too wide.
					_, high := s.Interval()
					if got := b.Reached(); got != (high < line) && math.Abs(high-line) > 1e-4 {
						t.Fatalf("after %d outcomes: below %v, the upper limit is %v", i+1, got, high)
					}
				}
				if name == "all are reviewed" && reached == 0 {
					t.Error("never below")
				}
			})
		}
	}
}

func TestEstimate(t *testing.T) {
	nothing := evidence.Estimate{Of: evidence.FNR}
	if !math.IsNaN(nothing.Value()) {
		t.Errorf("estimate %v of nothing", nothing.Value())
	}
	e := evidence.Estimate{Of: evidence.MissRate}
	for _, o := range []evidence.Observation{
		{Retained: true, Critical: true, Missed: true, Propensity: 0.25}, // four missed inputs
		{Retained: true, Critical: true, Propensity: 0.5},                // two
		{Critical: true, Missed: true, Propensity: 1},                    // a deferred one is no miss
		{Retained: true, Missed: true, Propensity: 1},                    // nor is one that is not critical
		{Retained: true, Critical: true, Propensity: 0},                  // no propensity
		{Retained: true, Critical: true, Propensity: math.NaN()},
		{Retained: true, Critical: true, Propensity: 1.1},
	} {
		e.Observe(o)
	}
	want := evidence.Estimate{Of: evidence.MissRate, Outcomes: 4, Critical: 3, Misses: 1, WeightedCritical: 7, WeightedMisses: 4,
		SquaredCritical: 21, SquaredMisses: 16}
	if diff := cmp.Diff(want, e); diff != "" {
		t.Error(diff)
	}
	// 4/7 of the weight, with Beale's factor.
	value := 4. / 7 * (1 + 16./28) / (1 + 21./49)
	if math.Abs(e.Value()-value) > 1e-15 {
		t.Errorf("estimate %v, want %v", e.Value(), value)
	}
	double := e
	double.Add(e)
	if value := 4. / 7 * (1 + 32./112) / (1 + 42./196); math.Abs(double.Value()-value) > 1e-15 || double.Outcomes != 8 {
		t.Errorf("with itself: %v", double)
	}
}

// observations draws what may come, the impossible included.
func observations(rt *rapid.T) []evidence.Observation {
	propensity := rapid.OneOf(rapid.Float64Range(0.01, 1), rapid.SampledFrom([]float64{1, 1e-30, 0, -1, 2, math.NaN(), math.Inf(1)}))
	return rapid.SliceOfN(rapid.Custom(func(rt *rapid.T) evidence.Observation {
		return evidence.Observation{
			Retained:   rapid.Bool().Draw(rt, "retained"),
			Critical:   rapid.Bool().Draw(rt, "critical"),
			Missed:     rapid.Bool().Draw(rt, "missed"),
			Propensity: propensity.Draw(rt, "propensity"),
		}
	}), 0, 60).Draw(rt, "observations")
}

func TestAnyOutcomes(t *testing.T) {
	rapid.Check(t, func(rt *rapid.T) {
		risk := rapid.SampledFrom([]evidence.Risk{evidence.FNR, evidence.MissRate}).Draw(rt, "risk")
		level := rapid.Float64Range(0.01, 0.99).Draw(rt, "level")
		wider := rapid.Float64Range(level, 0.999).Draw(rt, "wider level")
		line := rapid.Float64Range(0.001, 0.99).Draw(rt, "line")
		least := rapid.Float64Range(0.001, 1).Draw(rt, "least propensity")

		s, w, a := evidence.NewSequence(risk, level), evidence.NewSequence(risk, wider), evidence.NewAlarm(risk, line, 100)
		begin := func() {
			s.BeginCohort(least, least/2)
			w.BeginCohort(least, least/2)
			a.BeginCohort(least)
		}
		begin()
		for i, o := range observations(rt) {
			if i == 30 {
				least /= 2
				begin()
			}
			raised := a.Raised()
			s.Observe(o)
			w.Observe(o)
			a.Observe(o)

			low, high := s.Interval()
			widerLow, widerHigh := w.Interval()
			if !(0 <= low && low <= high && high <= 1) || !(widerLow <= low && high <= widerHigh) {
				rt.Fatalf("level %v: %v to %v, level %v: %v to %v", level, low, high, wider, widerLow, widerHigh)
			}
			if e := s.Estimate(); e.Critical > 0 && !(low <= e.Value() && e.Value() <= high) {
				rt.Fatalf("the estimate %v is not within %v to %v", e.Value(), low, high)
			}
			// Without another setting, Contains says the same; limits are rounded.
			if inside := low < line*(1-1e-9) && line*(1+1e-9) < high; i < 30 && inside != s.Contains(line) &&
				math.Abs(line-low) > 1e-9 && math.Abs(line-high) > 1e-9 {
				rt.Fatalf("%v to %v contains %v: %v", low, high, line, s.Contains(line))
			}
			if !(a.Evidence() >= 0 && a.Evidence() <= 1.001e300) || raised && !a.Raised() {
				rt.Fatalf("evidence %v, raised %v", a.Evidence(), a.Raised())
			}
		}

		// A state that is saved and restored goes on with the same bits.
		restored := &evidence.Alarm{}
		if err := restored.UnmarshalBinary(state(rt, a)); err != nil {
			rt.Fatal(err)
		}
		for _, o := range observations(rt) {
			a.Observe(o)
			restored.Observe(o)
		}
		if !bytes.Equal(state(rt, a), state(rt, restored)) {
			rt.Fatal("not the same bits after a restart")
		}
	})
}

func state(t interface{ Fatal(...any) }, a *evidence.Alarm) []byte {
	b, err := a.AppendBinary(nil)
	if err != nil {
		t.Fatal(err)
	}
	return b
}

func FuzzUnmarshalBinary(f *testing.F) {
	a := evidence.NewAlarm(evidence.FNR, 0.1, 1e6)
	a.BeginCohort(0.1)
	for range 3 {
		a.Observe(evidence.Observation{Retained: true, Critical: true, Missed: true, Propensity: 0.3})
	}
	f.Add(state(f, a))
	f.Add([]byte{})
	f.Fuzz(func(t *testing.T, data []byte) {
		var a evidence.Alarm
		if a.UnmarshalBinary(data) == nil {
			if !bytes.Equal(state(t, &a), data) {
				t.Error("an alarm's state is not what it was restored from")
			}
			a.Observe(evidence.Observation{Retained: true, Critical: true, Missed: true, Propensity: 0.5})
			if !(a.Evidence() >= 0) {
				t.Errorf("evidence %v", a.Evidence())
			}
		}
	})
}

// TestDoubtByChance measures how much of the time evidence is over half of its logarithm while the FNR is two
// thirds of its line: at the default run length hardly ever.
func TestDoubtByChance(t *testing.T) {
	const runs, outcomes, fnr, line, pi = 10, 20_000, 0.1, 0.15, 0.02
	for _, runLength := range []float64{1e4, 1e5, 2e6} { // of all monitors; the pooled FNR alarms at twice that
		over, all := 0, 0
		rng := rand.New(rand.NewPCG(1, 2))
		for range runs {
			a := evidence.NewAlarm(evidence.FNR, line, 2*runLength)
			a.BeginCohort(1)
			for n := 0; n < outcomes && !a.Raised(); n++ {
				switch {
				case rng.Float64() >= fnr:
					a.Observe(evidence.Observation{Retained: true, Critical: true, Propensity: 1})
				case rng.Float64() < pi:
					a.Observe(evidence.Observation{Retained: true, Critical: true, Missed: true, Propensity: pi})
				}
				all++
				if math.Log1p(a.Evidence()) > math.Log1p(2*runLength)/2 {
					over++
				}
			}
		}
		share := float64(over) / float64(all)
		t.Logf("run length %g: %.1f%% of the time", runLength, 100*share)
		if runLength == 2e6 && share > 0.01 {
			t.Errorf("at the default: %v", share)
		}
	}
}

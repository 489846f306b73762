package fullpass

import (
	"math"
	"math/rand/v2"
	"strings"
	"testing"

	"pgregory.net/rapid"
)

func newWatch(t rapid.TB, o Options) *Watch {
	t.Helper()
	w, err := NewWatch(o)
	if err != nil {
		t.Fatal(err)
	}
	return w
}

func TestNewWatchRefuses(t *testing.T) {
	for _, c := range []struct {
		options Options
		expect  []string
	}{
		{Options{}, []string{"disagreement is 0: it must be above 0 and below 1"}},
		{Options{Disagreement: math.NaN()}, []string{"disagreement is NaN"}},
		{Options{Disagreement: 0.01, RunLength: math.Inf(1)}, []string{"run length is +Inf"}},
		{Options{Disagreement: 1, Retained: -0.1, RunLength: 99}, []string{"disagreement is 1", "retained is -0.1", "run length is 99: it must be 100 or more"}},
	} {
		t.Run(strings.Join(c.expect, ", "), func(t *testing.T) {
			_, err := NewWatch(c.options)
			if err == nil {
				t.Fatalf("%+v is accepted", c.options)
			}
			for _, fragment := range c.expect {
				if !strings.Contains(err.Error(), fragment) {
					t.Errorf("%q says nothing of %q", err, fragment)
				}
			}
		})
	}
}

func TestVerdicts(t *testing.T) {
	for _, c := range []struct {
		verdict             Verdict
		name                string
		disagrees, deferred bool
	}{
		{SameRetain, "same_retain", false, false},
		{SameDefer, "same_defer", false, true},
		{WronglyRetained, "wrongly_retained", true, true},
		{WronglyDeferred, "wrongly_deferred", true, false},
		{OtherSide, "other_side", true, false},
		{verdicts, "verdict 5", true, false},
	} {
		t.Run(c.name, func(t *testing.T) {
			v := c.verdict
			if v.String() != c.name || v.Disagrees() != c.disagrees || v.deferred() != c.deferred {
				t.Errorf("%d is %q, disagrees %v, deferred %v", v, v, v.Disagrees(), v.deferred())
			}
		})
	}
}

// TestWatch checks for random verdicts that counts add up, that the Watch stops once and for good
// when the evidence reaches the run length, and that a Status does not change later.
func TestWatch(t *testing.T) {
	rapid.Check(t, func(t *rapid.T) {
		o := Options{
			Disagreement: rapid.Float64Range(1e-4, 0.5).Draw(t, "disagreement"),
			Retained:     rapid.SampledFrom([]float64{0, 0.001, 0.1}).Draw(t, "retained"),
			RunLength:    rapid.Float64Range(100, 10_000).Draw(t, "run length"),
		}
		w := newWatch(t, o)
		all, deferred := newDetector(o.Disagreement), newDetector(o.Retained)
		var counts [verdicts]uint64
		stopped, evidence := false, 0.0
		bad := rapid.IntRange(1, 30).Draw(t, "good for each bad")
		for i, x := range rapid.SliceOfN(rapid.IntRange(0, 1<<20), 1, 400).Draw(t, "checks") {
			v := Verdict(x % 2)
			if x/2%(bad+1) == 0 {
				v = Verdict(2 + x/64%3)
			}
			counts[v]++
			before := w.Status()
			stops := w.Add(v)
			s := w.Status()
			if before.Verdicts[v]+1 != s.Verdicts[v] {
				t.Fatal("a status changed")
			}
			if !stopped {
				all.weigh(v.Disagrees())
				evidence = all.evidence()
				if o.Retained != 0 {
					if v.deferred() {
						deferred.weigh(v == WronglyRetained)
					}
					evidence = (evidence + deferred.evidence()) / 2
				}
			}
			if s.Evidence != evidence || s.RunLength != o.RunLength {
				t.Fatalf("evidence is %v of %v, expected %v of %v", s.Evidence, s.RunLength, evidence, o.RunLength)
			}
			if stops != (!stopped && evidence >= o.RunLength) {
				t.Fatalf("check %d: stops %v at evidence %v of %v", i, stops, evidence, o.RunLength)
			}
			if stops && s.Stop.Checked != uint64(i+1) {
				t.Fatalf("stopped at check %d, says %d", i+1, s.Stop.Checked)
			}
			stopped = stopped || stops
			if w.Stopped() != stopped || (s.Stop != nil) != stopped {
				t.Fatalf("check %d: stopped %v, stop %+v", i, w.Stopped(), s.Stop)
			}
			if w.Wary() != (!stopped && evidence >= o.RunLength/100) {
				t.Fatalf("wary is %v at evidence %v of %v", w.Wary(), evidence, o.RunLength)
			}
		}
		s := w.Status()
		total, disagreements := uint64(0), uint64(0)
		for v, n := range counts {
			total += n
			if Verdict(v).Disagrees() {
				disagreements += n
			}
		}
		if s.Verdicts != counts || s.All.Count != (Count{total, disagreements}) ||
			s.Deferred.Count != (Count{counts[SameDefer] + counts[WronglyRetained], counts[WronglyRetained]}) {
			t.Fatalf("%+v, expected %v", s, counts)
		}
		if low, high := interval(disagreements, total, 0.95); s.All != (Rate{o.Disagreement, s.All.Count, low, high}) || s.Deferred.Certified != o.Retained {
			t.Fatalf("%+v and %+v, expected [%v, %v]", s.All, s.Deferred, low, high)
		}
		if s.Stop != nil {
			if r := s.Stop.Recent; r.Checked == 0 || r.Disagreements == 0 || r.Disagreements > r.Checked || r.Checked > s.Stop.Checked {
				t.Fatalf("stopped with %+v", s.Stop)
			}
		}
	})
}

// stream draws verdicts: deferred is the share of inputs that all passes defer; retained of these,
// and other of the remaining ones, are decided differently early.
type stream struct{ deferred, retained, other float64 }

func (s stream) next(rng *rand.Rand) Verdict {
	if rng.Float64() < s.deferred {
		if rng.Float64() < s.retained {
			return WronglyRetained
		}
		return SameDefer
	}
	if rng.Float64() < s.other {
		return WronglyDeferred
	}
	return SameRetain
}

// lives runs Watches over a stream that changes after a number of checks. It returns the mean
// number of checks from then to the stop, the share of stops that say Retained, and how many stop
// before the change.
func lives(t *testing.T, o Options, n, change, most int, before, after stream) (mean, retained float64, early int) {
	t.Helper()
	rng := rand.New(rand.NewPCG(4, 1))
	late := 0.0
	for range n {
		w := newWatch(t, o)
		raised := 0
		for stops := false; !stops && raised < most; raised++ {
			if raised < change {
				stops = w.Add(before.next(rng))
			} else {
				stops = w.Add(after.next(rng))
			}
		}
		if raised <= change {
			early++
			continue
		}
		late++
		mean += float64(raised - change)
		if w.stop != nil && w.stop.Retained {
			retained++
		}
	}
	return mean / late, retained / late, early
}

// TestWatchRunLength checks that the mean run length of both shares together is at least the stated
// one if both are exactly as certified. The mean is more than ten standard errors above.
func TestWatchRunLength(t *testing.T) {
	null := stream{deferred: 0.2, retained: 0.02, other: 0.0075} // 1% in all
	mean, _, _ := lives(t, Options{Disagreement: 0.01, Retained: 0.02, RunLength: 1000}, 300, 0, 1e6, null, null)
	t.Logf("a run length of %.0f", mean)
	if mean < 1000 {
		t.Errorf("the mean run length is %.0f, below 1000", mean)
	}
}

// TestWatchOfRetained checks that the Watch sees inputs wrongly retained although they are too few
// to raise the share of all: 5% of the deferred where 1% is certified, which is 1% of all where 2%
// is certified. The margins are four standard errors.
func TestWatchOfRetained(t *testing.T) {
	good := stream{deferred: 0.2, retained: 0.005, other: 0.0075}
	bad := stream{deferred: 0.2, retained: 0.05, other: 0.0075}
	both := Options{Disagreement: 0.02, Retained: 0.01}
	mean, retained, early := lives(t, both, 100, 3000, 100_000, good, bad)
	t.Logf("caught after %.0f checks, a fifth of them deferred; %.2f say so", mean, retained)
	if mean > 1400 || retained < 0.95 || early > 0 {
		t.Errorf("caught after %.0f checks, %.2f say that it is the retained; %d before the rise", mean, retained, early)
	}
	alone := Options{Disagreement: 0.02}
	if mean, _, _ := lives(t, alone, 5, 3000, 50_000, good, bad); mean < 40_000 {
		t.Errorf("without a certificate of its own it is caught after %.0f checks", mean)
	}
}

// TestStopTells checks that a Stop says roughly when the rise began and how large it was. The
// margins are four standard errors.
func TestStopTells(t *testing.T) {
	good, bad := stream{0.2, 0.005, 0.005}, stream{0.2, 0.03, 0.03}
	rng := rand.New(rand.NewPCG(6, 1))
	const n = 200
	off, recent := 0.0, Count{}
	for range n {
		w := newWatch(t, Options{Disagreement: 0.01})
		for range 2000 {
			w.Add(good.next(rng))
		}
		for stops := false; !stops; {
			stops = w.Add(bad.next(rng))
		}
		stop := w.Status().Stop
		off += math.Abs(float64(stop.Checked-stop.Recent.Checked)-2000) / n
		recent.Checked += stop.Recent.Checked
		recent.Disagreements += stop.Recent.Disagreements
	}
	share := float64(recent.Disagreements) / float64(recent.Checked)
	t.Logf("the rise is placed %.0f checks off, and its share is %.4f", off, share)
	if off > 180 || share < 0.03 || share > 0.04 {
		t.Errorf("the rise is placed %.0f checks off, and its share is %.4f", off, share)
	}
}

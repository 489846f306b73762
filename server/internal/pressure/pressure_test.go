package pressure

import (
	"testing"
	"time"

	"github.com/google/go-cmp/cmp"
	"pgregory.net/rapid"
)

// A limit of 110 and a baseline of 10 make bytes above the baseline percents.
func manager() *Manager { return New(110, 50, 10) }

// reading returns a reading of a daemon whose clients hold half their budget, with percent of the
// available memory alive and nothing else in the heap.
func reading(seconds float64, cycles uint64, percent int64) Reading {
	return Reading{
		At: time.Duration(seconds * float64(time.Second)), Heap: 10 + percent, Live: 10 + percent,
		Cycles: cycles, Held: 25,
	}
}

func TestNext(t *testing.T) {
	garbage := func(r Reading, percent int64) Reading { r.Heap += percent; return r }
	held := func(r Reading, bytes int64) Reading { r.Held = bytes; return r }
	calm, refuse, end := Verdict{Level: Calm}, Verdict{Level: Refuse}, Verdict{Level: End}
	collect := func(v Verdict) Verdict { v.Collect = true; return v }
	excess := func(v Verdict, bytes int64) Verdict { v.Excess = bytes; return v }
	for name, c := range map[string]struct {
		readings []Reading
		want     []Verdict
	}{
		"little": {
			[]Reading{reading(0, 1, 10), reading(1, 2, 69)},
			[]Verdict{calm, calm},
		},
		"a collection comes before a refusal": {
			[]Reading{reading(0, 1, 80), reading(0, 2, 80)},
			[]Verdict{collect(calm), refuse},
		},
		"one that the runtime made counts": {
			[]Reading{reading(0, 1, 10), reading(0.1, 2, 80)},
			[]Verdict{calm, refuse},
		},
		"garbage is not pressure": {
			[]Reading{garbage(reading(0, 1, 10), 85), garbage(reading(0, 2, 10), 85), reading(0.1, 2, 10)},
			[]Verdict{collect(calm), calm, calm},
		},
		"a collection a second": {
			[]Reading{garbage(reading(0, 1, 10), 85), garbage(reading(0, 2, 10), 85), garbage(reading(0.9, 2, 10), 85), garbage(reading(1, 2, 10), 85)},
			[]Verdict{collect(calm), calm, calm, collect(calm)},
		},
		"just under": {
			[]Reading{reading(0, 1, 10), reading(0.1, 2, 79)},
			[]Verdict{calm, calm},
		},
		"refusals end below 70%": {
			[]Reading{reading(0, 1, 10), reading(1, 2, 80), reading(2, 3, 70), reading(3, 4, 69)},
			[]Verdict{calm, refuse, refuse, calm},
		},
		"a fall shows without a collection": {
			[]Reading{reading(0, 1, 10), reading(1, 2, 80), reading(1.1, 2, 69)},
			[]Verdict{calm, refuse, calm},
		},
		"garbage may hide a fall, so it is collected": {
			[]Reading{reading(0, 1, 10), reading(1, 2, 80), garbage(reading(1.1, 2, 80), 0), garbage(reading(1.1, 3, 40), 0)},
			[]Verdict{calm, refuse, collect(refuse), calm},
		},
		"connections end at 90%, until 85%": {
			[]Reading{reading(0, 1, 10), reading(1, 2, 90), reading(2, 3, 85), reading(3, 4, 84), reading(4, 5, 89), reading(5, 6, 90)},
			[]Verdict{calm, excess(end, 20), excess(end, 15), refuse, refuse, excess(end, 20)},
		},
		"more than the limit": {
			[]Reading{reading(0, 1, 10), reading(1, 2, 130)},
			[]Verdict{calm, excess(end, 60)},
		},
		"a measurement ends connections once": {
			[]Reading{reading(0, 1, 10), reading(1, 2, 95), reading(1.1, 2, 95), reading(1.2, 2, 95)},
			[]Verdict{calm, excess(end, 25), collect(end), end},
		},
		"clients hold a tenth of their budget": {
			[]Reading{reading(0, 1, 10), held(reading(1, 2, 95), 5)},
			[]Verdict{calm, excess(end, 25)},
		},
		"clients hold less": {
			[]Reading{reading(0, 1, 10), held(reading(1, 2, 95), 4), held(reading(2, 3, 200), 4)},
			[]Verdict{calm, calm, calm},
		},
		"clients have left": {
			[]Reading{reading(0, 1, 10), reading(1, 2, 95), held(reading(1.1, 2, 95), 4)},
			[]Verdict{calm, excess(end, 25), calm},
		},
	} {
		t.Run(name, func(t *testing.T) {
			m := manager()
			var got []Verdict
			for _, r := range c.readings {
				got = append(got, m.Next(r))
			}
			if diff := cmp.Diff(c.want, got); diff != "" {
				t.Errorf("verdicts (-want +got):\n%s", diff)
			}
		})
	}
}

// TestBaseline checks that the baseline is learned from whole collections of an idle daemon, and
// from nothing else.
func TestBaseline(t *testing.T) {
	idle := func(cycles uint64, live int64) Reading {
		return Reading{Cycles: cycles, Live: live, Heap: live, Idle: true}
	}
	busy := func(cycles uint64, live int64) Reading { return Reading{Cycles: cycles, Live: live, Heap: live} }
	for name, c := range map[string]struct {
		readings []Reading
		want     int64
	}{
		"at the start":        {[]Reading{idle(1, 30)}, 10},
		"one collection":      {[]Reading{idle(1, 30), idle(2, 30)}, 10},
		"a whole one":         {[]Reading{idle(1, 30), idle(2, 60), idle(3, 30)}, 30},
		"less than before":    {[]Reading{idle(1, 30), idle(4, 5)}, 5},
		"a call in between":   {[]Reading{idle(1, 30), busy(2, 60), idle(3, 30)}, 10},
		"calls all the while": {[]Reading{busy(1, 30), busy(4, 60)}, 10},
	} {
		t.Run(name, func(t *testing.T) {
			m := manager()
			for _, r := range c.readings {
				m.Next(r)
			}
			if got := m.Baseline(); got != c.want {
				t.Errorf("baseline %d, want %d", got, c.want)
			}
		})
	}
}

// TestManagerKeepsItsRules gives random readings and checks what package pressure promises.
func TestManagerKeepsItsRules(t *testing.T) {
	rapid.Check(t, func(t *rapid.T) {
		m := manager()
		r, last := Reading{Cycles: 1}, Calm
		asked := []time.Duration{}
		m.Next(r) // the first reading measures nothing: its collection may be an old one
		for range rapid.IntRange(1, 200).Draw(t, "readings") {
			before := r
			r.At += time.Duration(rapid.IntRange(0, 400).Draw(t, "ms")) * time.Millisecond
			if rapid.Bool().Draw(t, "collection") {
				r.Cycles++
				r.Live = rapid.Int64Range(0, 130).Draw(t, "live")
			}
			r.Heap = r.Live + rapid.Int64Range(-20, 60).Draw(t, "since")
			r.Held = rapid.Int64Range(0, 50).Draw(t, "held")
			v := m.Next(r)
			measured := r.Cycles != before.Cycles
			switch {
			case v.Level > last && !measured:
				t.Fatalf("%v after %v without a collection", v.Level, last)
			case v.Level > Calm && r.Held < 5:
				t.Fatalf("%v while clients hold %d of 50 bytes", v.Level, r.Held)
			case v.Level > last && r.Live-10 < 80, v.Level == End && last < End && r.Live-10 < 90:
				t.Fatalf("%v after %v at %d%%", v.Level, last, r.Live-10)
			case measured && v.Level == Calm && min(r.Live, r.Heap)-10 >= 80 && r.Held >= 5:
				t.Fatalf("calm at %d%%", r.Live-10)
			case v.Excess > 0 && (v.Level != End || !measured):
				t.Fatalf("an excess of %d at %v, measured %v", v.Excess, v.Level, measured)
			}
			if v.Collect {
				if n := len(asked); n > 0 && r.At-asked[n-1] < time.Second {
					t.Fatalf("collections at %v and %v", asked[n-1], r.At)
				}
				asked = append(asked, r.At)
			}
			last = v.Level
		}
	})
}

package fullpass

import (
	"math"
	"testing"

	"pgregory.net/rapid"
)

// TestSplitmix compares with the published outputs of SplitMix64 for the seed 1234567, as in the
// Rosetta Code task "Pseudo-random numbers/Splitmix64".
func TestSplitmix(t *testing.T) {
	for n, expected := range []uint64{
		6457827717110365317, 3203168211198807973, 9817491932198370423, 4593380528125082431, 16408922859458223821,
	} {
		if got := splitmix(1234567, uint64(n)); got != expected {
			t.Errorf("output %d is %d, expected %d", n, got, expected)
		}
	}
}

// TestSampler checks that shares are within six standard errors, which a seed misses with a
// probability of 2e-9 each.
func TestSampler(t *testing.T) {
	rapid.Check(t, func(t *rapid.T) {
		s := NewSampler(rapid.Uint64().Draw(t, "seed"))
		s.First = rapid.Uint64Range(0, 1000).Draw(t, "first")
		s.Share = rapid.Float64Range(0, 1).Draw(t, "share")
		s.Wary = rapid.Float64Range(0, 1).Draw(t, "wary")
		from := rapid.Uint64Range(s.First, math.MaxUint64/2).Draw(t, "from")
		const inputs = 20_000
		calm, wary, neighbours, last := 0, 0, 0, false
		for n := from; n < from+inputs; n++ {
			checked := s.Checks(n, s.First, false)
			if checked != s.Checks(n, s.First, false) {
				t.Fatalf("input %d is checked and is not", n)
			}
			if checked {
				calm++
			}
			if checked && last {
				neighbours++
			}
			last = checked
			if more := s.Checks(n, s.First, true); more {
				wary++
			} else if checked {
				t.Fatalf("input %d is checked, but not while wary", n)
			}
		}
		near := func(name string, got int, share float64) {
			if off := float64(got) - inputs*share; math.Abs(off) > 6*math.Sqrt(inputs*share*(1-share))+3 {
				t.Fatalf("%s: %d of %d inputs, expected a share of %v", name, got, inputs, share)
			}
		}
		near("calm", calm, s.Share)
		near("wary", wary, max(s.Share, s.Wary))
		// The choices of neighbours are independent; the variance of the number of chosen pairs is
		// at most three times that of independent pairs.
		pairs := s.Share * s.Share
		if off := float64(neighbours) - inputs*pairs; math.Abs(off) > 6*math.Sqrt(3*inputs*pairs)+12 {
			t.Fatalf("%d pairs of neighbours, expected a share of %v", neighbours, pairs)
		}
	})
}

func TestSamplerFirst(t *testing.T) {
	s := NewSampler(1)
	s.Share = 0
	for _, c := range []struct {
		n, verdicts uint64
		checked     bool
	}{{0, 0, true}, {defaultFirst, defaultFirst - 1, true}, {math.MaxUint64, 0, true}, {0, defaultFirst, false}, {defaultFirst, defaultFirst, false}} {
		if s.Checks(c.n, c.verdicts, false) != c.checked {
			t.Errorf("input %d after %d verdicts: checked is not %v", c.n, c.verdicts, c.checked)
		}
	}
	s.Share, s.First = 1, 0
	for n := range uint64(1000) {
		if !s.Checks(n, s.First, false) {
			t.Fatalf("of a share of 1, input %d is not checked", n)
		}
	}
}

package clustered_test

import (
	"math"
	"math/rand/v2"
	"testing"

	"pgregory.net/rapid"

	"github.com/ckd-project/ckd/internal/binomial"
	"github.com/ckd-project/ckd/internal/clustered"
	"github.com/ckd-project/ckd/internal/timed"
)

// groupsOf returns n groups, the first misses of which miss all their cases.
func groupsOf(n, cases, misses int) []clustered.Group {
	groups := make([]clustered.Group, n)
	for i := range groups {
		groups[i].Cases = cases
		if i < misses {
			groups[i].Misses = float64(cases)
		}
	}
	return groups
}

// TestTailOfSingles expects the exact binomial test where every group is one case, and where every
// group misses all of its cases or none.
func TestTailOfSingles(t *testing.T) {
	t.Parallel()
	rapid.Check(t, func(t *rapid.T) {
		n := rapid.IntRange(1, 400).Draw(t, "n")
		k := rapid.IntRange(0, n).Draw(t, "k")
		a := rapid.Float64Range(0.005, 0.9).Draw(t, "a")
		size := rapid.IntRange(1, 6).Draw(t, "size")
		got, want := clustered.Tail(groupsOf(n, size, k), a, size), binomial.Tail(k, n, a)
		if math.Abs(got-want) > 1e-9*want+1e-12 {
			t.Fatalf("%d of %d at %v: %v, want %v", k, n, a, got, want)
		}
	})
}

// TestTail compares with the definition, and with products: without a miss the probability is the
// product of d_0/(d_0 + a cases).
func TestTail(t *testing.T) {
	t.Parallel()
	rng := rand.New(rand.NewPCG(1, 2))
	for name, c := range map[string]struct {
		groups []clustered.Group
		a      float64
		most   int
	}{
		"no miss":        {[]clustered.Group{{5, 0}, {3, 0}, {1, 0}, {0, 0}}, 0.1, 5},
		"a miss":         {[]clustered.Group{{5, 0}, {3, 1}, {1, 0}, {4, 0}, {5, 0}, {5, 0}}, 0.2, 5},
		"many":           {append(groupsOf(30, 5, 1), groupsOf(20, 2, 3)...), 0.2, 7},
		"only misses":    {groupsOf(4, 2, 4), 0.3, 2},
		"above":          {groupsOf(10, 3, 6), 0.3, 3},
		"nothing at all": {nil, 0.3, 3},
	} {
		t.Run(name, func(t *testing.T) {
			const draws = 200_000
			hits, product, misses := 0, 1.0, 0
			for range draws {
				sum := rng.ExpFloat64() * (1 - c.a) * float64(c.most)
				for _, g := range c.groups {
					sum += rng.ExpFloat64() * (g.Misses - c.a*float64(g.Cases))
				}
				if sum >= 0 {
					hits++
				}
			}
			for _, g := range c.groups {
				worst := (1 - c.a) * float64(c.most)
				product *= worst / (worst + c.a*float64(g.Cases))
				misses += int(g.Misses)
			}
			got, drawn := clustered.Tail(c.groups, c.a, c.most), float64(hits)/draws
			if se := math.Sqrt(drawn*(1-drawn)/draws) + 1e-5; math.Abs(got-drawn) > 5*se {
				t.Errorf("%v, drawn %v", got, drawn)
			}
			if misses == 0 && math.Abs(got-product) > 1e-9 {
				t.Errorf("%v, the product is %v", got, product)
			}
		})
	}
}

// TestIntervalOfSingles expects the exact binomial interval where every group is one case, and a wider
// one where groups are larger.
func TestIntervalOfSingles(t *testing.T) {
	t.Parallel()
	rapid.Check(t, func(t *rapid.T) {
		n := rapid.IntRange(1, 30).Draw(t, "n")
		k := rapid.IntRange(0, n).Draw(t, "k")
		low, high := clustered.Interval(groupsOf(n, 1, k), 1, 0.95)
		wantLow, wantHigh := binomial.Interval(k, n, 0.95)
		if math.Abs(low-wantLow) > 1e-8 || math.Abs(high-wantHigh) > 1e-8 {
			t.Fatalf("%d of %d: [%v,%v], want [%v,%v]", k, n, low, high, wantLow, wantHigh)
		}
		wideLow, wideHigh := clustered.Interval(groupsOf(n, 3, k), 4, 0.95)
		if wideLow > low+1e-9 || wideHigh < high-1e-9 {
			t.Fatalf("%d of %d: groups of three have [%v,%v], single cases [%v,%v]", k, n, wideLow, wideHigh, low, high)
		}
	})
	if low, high := clustered.Interval(nil, 3, 0.95); low != 0 || high != 1 {
		t.Errorf("of nothing: [%v,%v]", low, high)
	}
}

// TestEnough expects the p-value to be alpha with so many groups, and more than alpha with fewer.
func TestEnough(t *testing.T) {
	t.Parallel()
	groups := append(groupsOf(40, 4, 1), groupsOf(20, 2, 0)...)
	times := clustered.Enough(groups, 0.1, 4, 0.01)
	repeat := func(n int) (all []clustered.Group) {
		for range n {
			all = append(all, groups...)
		}
		return all
	}
	if enough := int(math.Ceil(times)); clustered.Tail(repeat(enough), 0.1, 4) > 0.01 || clustered.Tail(repeat(enough-1), 0.1, 4) <= 0.01 {
		t.Errorf("%v times", times)
	}
	if times := clustered.Enough(groupsOf(10, 2, 2), 0.2, 2, 0.1); !math.IsInf(times, 1) {
		t.Errorf("a share of 0.2 could be shown to be at most 0.2 by %v times as many", times)
	}
}

// TestLevel draws groups whose share of misses is the target, in the hardest place for a test, and
// expects a p-value of at most 0.1 in at most a tenth of the draws.
func TestLevel(t *testing.T) {
	timed.Full(t)
	t.Parallel()
	const draws, alpha = 4000, 0.1
	for name, c := range map[string]struct {
		groups int
		a      float64
		most   int
		// draw returns a group whose share of misses, by expectations, is a.
		draw func(rng *rand.Rand, a float64) clustered.Group
	}{
		"independent":              {40, 0.1, 5, independent},
		"all or none":              {60, 0.05, 5, allOrNone},
		"half of the groups alike": {50, 0.2, 5, mixed},
		"rare groups miss all":     {150, 0.04, 5, rareGroups},
		"few groups":               {12, 0.3, 5, mixed},
		"large groups miss more":   {60, 0.1, 8, largeMissMore},
		"misses spread evenly":     {20, 0.2, 5, spread},
	} {
		t.Run(name, func(t *testing.T) {
			rng := rand.New(rand.NewPCG(3, uint64(len(name))))
			passed := 0
			groups := make([]clustered.Group, c.groups)
			for range draws {
				for g := range groups {
					groups[g] = c.draw(rng, c.a)
				}
				if clustered.Tail(groups, c.a, c.most) <= alpha {
					passed++
				}
			}
			share := float64(passed) / draws
			t.Logf("%.4f", share)
			if share > alpha+3*math.Sqrt(alpha*(1-alpha)/draws) {
				t.Errorf("%v of the draws pass, at most %v may", share, alpha)
			}
		})
	}
}

func binomialOf(rng *rand.Rand, n int, p float64) int {
	k := 0
	for range n {
		if rng.Float64() < p {
			k++
		}
	}
	return k
}

func independent(rng *rand.Rand, a float64) clustered.Group {
	return clustered.Group{Cases: 5, Misses: float64(binomialOf(rng, 5, a))}
}

func allOrNone(rng *rand.Rand, a float64) clustered.Group {
	return clustered.Group{Cases: 5, Misses: float64(5 * binomialOf(rng, 1, a))}
}

func mixed(rng *rand.Rand, a float64) clustered.Group {
	if rng.IntN(2) == 0 {
		return allOrNone(rng, a)
	}
	return independent(rng, a)
}

// rareGroups has one group in ten that misses ten times as often.
func rareGroups(rng *rand.Rand, a float64) clustered.Group {
	return clustered.Group{Cases: 5, Misses: float64(5 * binomialOf(rng, 1, 0.1) * binomialOf(rng, 1, 10*a))}
}

// largeMissMore has groups of 8 and of 2 cases. Of 10 cases 8 are in large groups, whose share of
// misses is 1.25 a; small ones have none.
func largeMissMore(rng *rand.Rand, a float64) clustered.Group {
	if rng.IntN(2) == 0 {
		return clustered.Group{Cases: 8, Misses: float64(binomialOf(rng, 8, 1.25*a))}
	}
	return clustered.Group{Cases: 2}
}

// spread has groups that miss one of their five cases, or none: misses do not come together.
func spread(rng *rand.Rand, a float64) clustered.Group {
	if rng.Float64() < 5*a {
		return clustered.Group{Cases: 5, Misses: 1}
	}
	return clustered.Group{Cases: 5}
}

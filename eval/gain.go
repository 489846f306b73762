package eval

import (
	"math"

	"github.com/ckd-project/ckd/internal/binomial"
	"github.com/ckd-project/ckd/internal/clustered"
)

// GainLevel is the p-value up to which a gain counts as more than chance.
const GainLevel = 0.05

// Gain compares what a rule saves with what as many reviews drawn at random would save. A rule
// without a gain is not worth its reviewers, however few critical inputs it misses.
type Gain struct {
	// Without counts the critical inputs that are missed without review, Missed those that the rule
	// still misses.
	Without int `json:"missed_without_review"`
	Missed  int `json:"missed"`
	// Eligible counts the inputs that the rule may defer: all, or those called safe. Deferred of them go
	// to people.
	Deferred int `json:"deferred"`
	Eligible int `json:"eligible"`
	// Compared counts the rules of which this was the best on the same inputs.
	Compared int `json:"compared"`
	// P is the chance, in [0,1], that random reviews save as many or more: P(X >= Without-Missed) for X
	// hypergeometric, Deferred draws from Eligible inputs of which Without are missed. With groups it is
	// clustered.Tail of the share still missed against 1-Deferred/Eligible. The best of several rules
	// has Compared times that (Bonferroni).
	P float64 `json:"p_value"`
	// Supports reports whether the recording supports a policy: something was missed, and P is at most
	// GainLevel.
	Supports bool `json:"supports_policy"`
	// Needed counts the inputs missed without review at which a rule that saves half of what random
	// reviews leave would show a gain: counted in groups where inputs hang together. 0 where nothing or
	// everything is deferred, so that no number is enough.
	Needed int `json:"needed_misses"`
}

// NewGain returns the gain of a rule over independent inputs. Counts beyond those of which they are a
// part are taken as all of them.
func NewGain(without, missed, deferred, eligible int) Gain {
	g := counted(without, missed, deferred, eligible)
	return g.judged(hypergeometric(g.Without-g.Missed, g.Without, g.Deferred, g.Eligible))
}

// GainOf returns the gain of a rule on inputs. The marks say which inputs the model misses without
// review, which the rule may defer, and which it defers. Inputs with the same number in groups are not
// independent; nil groups take all as independent. All slices have one length.
func GainOf(missed, eligible, deferred []bool, groups []int) Gain {
	var without, still, sent, may int
	for i := range missed {
		may += index(eligible[i])
		sent += index(eligible[i] && deferred[i])
		without += index(missed[i])
		still += index(missed[i] && !(eligible[i] && deferred[i]))
	}
	if groups == nil {
		return NewGain(without, still, sent, may)
	}
	g := counted(without, still, sent, may)
	cases, most := newGroups(groups).count(func(i int) bool { return missed[i] },
		func(i int) float64 { return float64(index(missed[i] && !(eligible[i] && deferred[i]))) })
	p := 1.0
	if g.Deferred > 0 && g.Deferred < g.Eligible {
		p = clustered.Tail(cases, 1-share(g.Deferred, g.Eligible), most)
	}
	return g.judged(p)
}

// OfBest returns the gain of a rule that was the best of several on the same inputs.
func (g Gain) OfBest(rules int) Gain {
	p := g.P * float64(max(rules, 1)) / float64(g.Compared)
	g.Compared = max(rules, 1)
	return g.judged(min(p, 1))
}

func counted(without, missed, deferred, eligible int) Gain {
	without = min(without, eligible)
	return Gain{Without: without, Missed: min(missed, without), Deferred: min(deferred, eligible), Eligible: eligible, Compared: 1}
}

func (g Gain) judged(p float64) Gain {
	g.P, g.Supports, g.Needed = p, g.Without > 0 && p <= GainLevel, g.needed()
	return g
}

// needed returns the fewest misses at which saving half of what random reviews leave is shown, by
// binomial.Tail: no sample of a large recording is far from independent draws.
func (g Gain) needed() int {
	const most = 100_000
	if g.Deferred == 0 || g.Deferred == g.Eligible {
		return 0
	}
	reviewed := share(g.Deferred, g.Eligible)
	for n := 1; n <= most; n++ {
		saved := int(math.Floor(float64(n) * (1 + reviewed) / 2))
		if binomial.Tail(n-saved, n, 1-reviewed) <= GainLevel/float64(g.Compared) {
			return n
		}
	}
	return most
}

// hypergeometric returns P(X >= k) for the number X of marked inputs among some drawn from all
// without replacement.
func hypergeometric(k, marked, drawn, all int) float64 {
	choose := func(n, k int) float64 {
		a, _ := math.Lgamma(float64(n + 1))
		b, _ := math.Lgamma(float64(k + 1))
		c, _ := math.Lgamma(float64(n - k + 1))
		return a - b - c
	}
	fewest, most := max(0, drawn+marked-all), min(marked, drawn)
	if k <= fewest {
		return 1
	}
	sum := 0.0
	for x := most; x >= k; x-- { // from the smallest terms on
		sum += math.Exp(choose(marked, x) + choose(all-marked, drawn-x) - choose(all, drawn))
	}
	return min(1, sum)
}

package learn

import (
	"cmp"
	"math/rand/v2"
	"slices"

	"github.com/ckd-project/ckd/policy"
)

// Point is what one rule does on inputs.
type Point struct {
	Method string // "learned", "score", "fewer passes" or "full"
	Counts
}

// Frontier is what rules of a path do on inputs that they were not learned from, in so
// many orders of their passes, from cautious to bold. With the first point, all passes.
func Frontier(d *Decisions, path *Path, method string, inputs []int, orders int, seed uint64) []Point {
	s := d.follow(inputs, orders, path.Rules[0].Fewest, rand.New(rand.NewPCG(seed, 0xf407)))
	points := []Point{d.full(inputs)}
	for _, r := range path.Rules {
		points = append(points, Point{method, d.countLabelled(s, r)})
	}
	return points
}

// FewerPasses is the frontier of the naive rule: the policy decides on t passes of
// every input, t = S-1 down to 2.
func FewerPasses(d *Decisions, inputs []int, orders int, seed uint64) []Point {
	rng := rand.New(rand.NewPCG(seed, 0xfe3e4))
	if d.recording.Ordered {
		orders = 1
	}
	passes := d.recording.Passes
	counts := make([]Counts, passes) // by t
	open := d.plan.NewInputs(1)
	for range orders {
		for _, i := range inputs {
			open.Reset(0)
			labelled := d.recording.Labels != nil && d.isCritical(d.recording.Labels[i])
			for at, pass := range d.order(rng)[:passes-1] {
				_ = open.Add(0, d.row(pass, i))
				decision, class := open.Decide(0)
				v, c := verdict{decision.Action == policy.Defer, d.isCritical(class)}, &counts[at+1]
				c.Inputs, c.Passes = c.Inputs+1, passes
				c.add(v, d.final[i], at+1)
				if labelled {
					c.label(v, d.final[i])
				}
			}
		}
	}
	points := []Point{d.full(inputs)}
	for t := passes - 1; t >= 2; t-- {
		points = append(points, Point{"fewer passes", counts[t]})
	}
	return points
}

// full is the decision with all passes.
func (d *Decisions) full(inputs []int) Point {
	c := Counts{Passes: d.recording.Passes}
	for _, i := range inputs {
		c.Inputs++
		c.add(d.final[i], d.final[i], c.Passes)
		if d.recording.Labels != nil && d.isCritical(d.recording.Labels[i]) {
			c.label(d.final[i], d.final[i])
		}
	}
	return Point{"full", c}
}

// PassesAt is the mean of passes used where a frontier has a share of disagreements,
// between two of its points in proportion: S at 0.
func PassesAt(points []Point, share float64) float64 {
	sorted := slices.Clone(points)
	slices.SortStableFunc(sorted, func(a, b Point) int {
		return cmp.Or(cmp.Compare(a.DisagreementShare(), b.DisagreementShare()), cmp.Compare(a.Used, b.Used))
	})
	for i, p := range sorted {
		at := p.DisagreementShare()
		if at < share {
			continue
		}
		if i == 0 || at == share {
			return p.MeanPasses()
		}
		low := sorted[i-1]
		from := low.DisagreementShare()
		return low.MeanPasses() + (share-from)/(at-from)*(p.MeanPasses()-low.MeanPasses())
	}
	return sorted[len(sorted)-1].MeanPasses()
}

// Noise is how many of some inputs are decided otherwise by one half of their passes
// than by the other, in a random order of each: what "the same decision" is worth. With
// an odd number one pass is left out. Halves of ordered passes are of different members.
func Noise(d *Decisions, inputs []int, seed uint64) (differ int) {
	rng := rand.New(rand.NewPCG(seed, 0x4015e))
	half := d.recording.Passes / 2
	open := d.plan.NewInputs(2)
	for _, i := range inputs {
		order := rng.Perm(d.recording.Passes)
		var v [2]verdict
		for h := range v {
			open.Reset(h)
			for _, pass := range order[h*half:][:half] {
				_ = open.Add(h, d.row(pass, i))
			}
			decision, class := open.Decide(h)
			v[h] = verdict{decision.Action == policy.Defer, d.isCritical(class)}
		}
		if v[0].differs(v[1]) {
			differ++
		}
	}
	return differ
}

package learn

import (
	"cmp"
	"context"
	"math/rand/v2"
	"slices"

	"github.com/ckd-project/ckd/policy"
)

// Frontier returns what the rules of a sequence do, from cautious to bold, on inputs that they were
// not learned from. It follows each input through the given number of random orders of its passes.
// The first counts are of all passes. The error is that of ctx.
func Frontier(ctx context.Context, d *Decisions, sequence *Sequence, inputs []int, orders int, seed uint64) (
	[]Evidence, error,
) {
	s, err := d.follow(ctx, inputs, orders, sequence.Rules[0].Fewest, rand.New(rand.NewPCG(seed, 0xf407)))
	if err != nil {
		return nil, err
	}
	points := []Evidence{d.evidenceOf(inputs, d.full)}
	for _, r := range sequence.Rules {
		points = append(points, d.countLabelled(s, r))
	}
	return points, nil
}

// FewerPasses returns the frontier of the naive rule: the policy decides on t passes of every
// input, for t = S-1 down to 2. The error is that of ctx.
func FewerPasses(ctx context.Context, d *Decisions, inputs []int, orders int, seed uint64) ([]Evidence, error) {
	rng := rand.New(rand.NewPCG(seed, 0xfe3e4))
	if d.recording.Ordered {
		orders = 1
	}
	passes := d.recording.Passes
	counts := make([][]Counts, passes) // by t and group
	for t := range counts {
		counts[t] = make([]Counts, d.countGroups())
	}
	open := d.follower.Another()
	for range orders {
		for _, i := range inputs {
			if err := ctx.Err(); err != nil {
				return nil, err
			}
			open.Reset()
			labelled := d.recording.Labels != nil && d.isCritical(d.recording.Labels[i])
			for at, pass := range d.order(rng)[:passes-1] {
				_ = open.Add(d.row(pass, i))
				decision, class := open.Decide()
				v, c := verdict{decision.Action == policy.Defer, d.isCritical(class)}, &counts[at+1][d.groupOf(i)]
				c.Inputs, c.Passes = c.Inputs+1, passes
				c.add(v, d.final[i], at+1)
				if labelled {
					c.label(v, d.final[i])
				}
			}
		}
	}
	points := []Evidence{d.evidenceOf(inputs, d.full)}
	for t := passes - 1; t >= 2; t-- {
		points = append(points, d.evidence(counts[t]))
	}
	return points, nil
}

// full counts what all passes decide on an input.
func (d *Decisions) full(c *Counts, input int) {
	c.Inputs++
	c.add(d.final[input], d.final[input], c.Passes)
	if d.recording.Labels != nil && d.isCritical(d.recording.Labels[input]) {
		c.label(d.final[input], d.final[input])
	}
}

// PassesAt returns the mean number of passes where a frontier has a share of disagreements,
// interpolated between two points. At 0 it is S.
func PassesAt(points []Evidence, share float64) float64 {
	sorted := slices.Clone(points)
	slices.SortStableFunc(sorted, func(a, b Evidence) int {
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

// Noise returns the inputs that one half of their passes decides otherwise than the other half, in
// a random order of each. It tells what "the same decision" is worth. An odd number of passes
// leaves one out. Halves of ordered passes have different members. The error is that of ctx.
func Noise(ctx context.Context, d *Decisions, inputs []int, seed uint64) (differ []int, err error) {
	rng := rand.New(rand.NewPCG(seed, 0x4015e))
	half := d.recording.Passes / 2
	open := d.follower.Another()
	for _, i := range inputs {
		if err := ctx.Err(); err != nil {
			return nil, err
		}
		order := rng.Perm(d.recording.Passes)
		var v [2]verdict
		for h := range v {
			open.Reset()
			for _, pass := range order[h*half:][:half] {
				_ = open.Add(d.row(pass, i))
			}
			decision, class := open.Decide()
			v[h] = verdict{decision.Action == policy.Defer, d.isCritical(class)}
		}
		if v[0].differs(v[1]) {
			differ = append(differ, i)
		}
	}
	return differ, nil
}

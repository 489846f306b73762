package learn

import (
	"context"
	"math/rand/v2"

	"github.com/ckd-project/ckd/policy"
)

// Noise marks the inputs that one half of their passes decides otherwise than the other half, in
// a random order of each. It tells what "the same decision" is worth. An odd number of passes
// leaves one out. Halves of ordered passes have different members. The error is that of ctx.
func Noise(ctx context.Context, d *Decisions, inputs []int, seed uint64) (differ []bool, err error) {
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
		differ = append(differ, v[0].differs(v[1]))
	}
	return differ, nil
}

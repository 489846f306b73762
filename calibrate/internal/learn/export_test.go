package learn

import (
	"context"
	"math/rand/v2"

	"github.com/ckd-project/ckd/policy/earlystop"
)

// Count returns what a rule does on inputs, each in one order of its passes.
func (d *Decisions) Count(ctx context.Context, r *earlystop.Rule, inputs []int) (Evidence, error) {
	s, err := d.follow(ctx, inputs, rand.New(rand.NewPCG(1, 0xf407)))
	if err != nil {
		return Evidence{}, err
	}
	return d.ruled(s, r), nil
}

// follow follows each input through one order of its passes.
func (d *Decisions) follow(ctx context.Context, inputs []int, rng *rand.Rand) (*samples, error) {
	s := d.noSamples(len(inputs))
	return s, d.followOnce(ctx, s, inputs, rng)
}

package learn

import (
	"context"
	"math/rand/v2"

	"github.com/ckd-project/ckd/policy/earlystop"
)

// Count returns what a rule does on inputs, each in several orders of its passes.
func (d *Decisions) Count(ctx context.Context, r *earlystop.Rule, inputs []int, orders int) (Evidence, error) {
	s, err := d.follow(ctx, inputs, orders, r.Fewest, rand.New(rand.NewPCG(1, 0xf407)))
	if err != nil {
		return Evidence{}, err
	}
	return d.countLabelled(s, r), nil
}

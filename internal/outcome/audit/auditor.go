package audit

import (
	"math/rand/v2"
	"sync/atomic"

	"github.com/ckd-project/ckd/internal/outcome/receipt"
	"github.com/ckd-project/ckd/policy"
)

// Auditor draws the audits of one policy.
type Auditor struct {
	plan    *Plan
	hash    [32]byte // of the policy
	limiter *limiter
	surging atomic.Bool
}

// NewAuditor returns the auditor of a policy. One that has no audit block has its deferred inputs
// reviewed and no others.
func NewAuditor(p *policy.Policy) *Auditor {
	a := &Auditor{plan: NewPlan(p), hash: p.HashBytes(), limiter: newLimiter(0)}
	if a.plan != nil {
		a.limiter = newLimiter(p.Audit.Cap)
	}
	return a
}

// Drawn says who looks at an input.
type Drawn struct {
	Stratum receipt.Stratum
	// Propensity is the probability, in [0,1], of a review: the number that the draw was compared
	// with.
	Propensity float32
	// Review says that a person is to look at the input.
	Review bool
	// Free says that the outcome comes without asking, from a workflow that works up every input
	// called critical. Review is then false and Propensity 1.
	Free bool
	// Exceeded says that the cap gave way: even a tenth of the propensities was more than it allows.
	Exceeded bool
	// Hash is receipt.DrawKey.Hash of the input; 0 without an id.
	Hash uint64
}

// Draw draws whether an input is reviewed. now is the time of the decision, in microseconds since
// 1970. Risk is NaN where it is not known. Id is the client's name of the input, or empty; then the
// draw is random. passes and mean are the number of passes and their mean predictions.
func (a *Auditor) Draw(key *receipt.DrawKey, now int64, d policy.Decision, calledCritical bool, risk float64,
	id []byte, passes int, mean []float64) Drawn {
	drawn := Drawn{Stratum: Stratum(d, calledCritical)}
	if len(id) > 0 {
		drawn.Hash = key.Hash(&a.hash, id, passes, mean)
	}
	propensity := a.plan.Propensity(drawn.Stratum, risk)
	switch {
	case drawn.Stratum == receipt.CalledSafe && a.surging.Load():
		propensity = 1
	case a.plan == nil:
	case drawn.Stratum == receipt.CalledCritical:
		drawn.Free = a.plan.audit.PredictedCritical == policy.CriticalFree
		if !drawn.Free {
			a.limiter.factorAt(now) // begins a second
			a.limiter.add(&a.limiter.critical, propensity)
		}
	case drawn.Stratum == receipt.CalledSafe:
		factor, gives := a.limiter.factorAt(now)
		a.limiter.add(&a.limiter.safe, propensity)
		propensity *= factor
		drawn.Exceeded = gives
	}
	drawn.Propensity = float32(propensity)
	drawn.Review = !drawn.Free && uniform(drawn.Hash) < float64(drawn.Propensity)
	return drawn
}

// uniform returns the number in [0,1) that is compared with the propensity: by the hash of an input,
// or random where it has none.
func uniform(hash uint64) float64 {
	if hash == 0 {
		hash = rand.Uint64()
	}
	return float64(hash>>11) / (1 << 53)
}

// Surge makes all inputs called safe be reviewed, or ends that: what happens while an alarm is up
// where the policy says so. What the policy decides, and the stratum, stay as they are.
func (a *Auditor) Surge(on bool) { a.surging.Store(on) }

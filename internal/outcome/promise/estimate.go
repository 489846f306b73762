package promise

import (
	"encoding/json"
	"math"
	"reflect"
	"time"

	"github.com/ckd-project/ckd/decomp"
	"github.com/ckd-project/ckd/internal/outcome/evidence"
	"github.com/ckd-project/ckd/internal/outcome/receipt"
	"github.com/ckd-project/ckd/internal/outcome/truth"
	"github.com/ckd-project/ckd/policy"
)

// An Expected estimates the risks of a policy from outcomes of decisions that others made. Receipts hold
// all scores, so that each reviewed input is decided again by the policy's rule. With the propensity pi
// of its review then, R' whether the policy retains it now, C and M as in evidence.Estimate,
//
//	miss rate = sum of R' M / pi  /  sum of C / pi,   FNR = sum of R' M / pi  /  sum of R' C / pi.
//
// The intervals are for one look. They say nothing of inputs that have changed since.
type Expected struct {
	// From begins the first cohort of those decisions, Until ends the last; zero where no decision of
	// others can be decided again.
	From, Until   time.Time
	MissRate, FNR Share
}

// A Rehearsal decides the inputs of other policies again.
type Rehearsal struct {
	of    *truth.Terms
	tally tally
	from  int64
	until int64
}

// NewRehearsal returns a rehearsal of a policy.
func NewRehearsal(t *truth.Terms) *Rehearsal {
	return &Rehearsal{of: t, tally: *newTally(), from: math.MaxInt64, until: math.MinInt64}
}

// Fits reports whether the decisions of a policy can be decided again: their receipts have all that the
// rehearsed policy compares.
func (r *Rehearsal) Fits(t *truth.Terms) bool {
	a, b := r.of.Policy, t.Policy
	risk := func(p *policy.Policy) bool {
		return p.Primary.Score == policy.RiskScore || p.Fallback.Score == policy.RiskScore
	}
	return a.Hash != b.Hash && reflect.DeepEqual(a.Classes, b.Classes) && reflect.DeepEqual(a.Critical, b.Critical) && a.Kind == b.Kind &&
		reflect.DeepEqual(a.PairWeights, b.PairWeights) && (!risk(a) || reflect.DeepEqual(a.Risk, b.Risk)) &&
		(a.Gate != policy.AnyCritical || b.Gate == a.Gate && b.ReliabilityThreshold == a.ReliabilityThreshold) && !a.Observes()
}

// Cohort notes that decisions of a cohort follow.
func (r *Rehearsal) Cohort(start, period int64) {
	r.from, r.until = min(r.from, start), max(r.until, start+period)
}

// Add decides an input again. Its receipt has to be of a policy that fits.
func (r *Rehearsal) Add(d *truth.Decision) {
	if d.Duplicate || !truth.Reviewed(&d.Receipt) {
		return
	}
	f := r.of.Find(d, truth.EndOfTime)
	if !f.Known {
		return
	}
	retained := r.retains(&d.Receipt)
	again := *d
	switch {
	case !retained:
		again.Receipt.Stratum = receipt.Deferred
	case r.of.CalledCritical(&d.Receipt):
		again.Receipt.Stratum = receipt.CalledCritical
	default:
		again.Receipt.Stratum = receipt.CalledSafe
		r.tally.Strata[receipt.CalledSafe].Count++
		r.tally.Strata[receipt.CalledSafe].Weight += 1 / float64(d.Receipt.Propensity)
	}
	o := r.of.Observe(&again, &f, -1, false)
	r.tally.Pooled.observe(o, false)
}

// retains reports whether the policy retains an input.
func (r *Rehearsal) retains(c *receipt.Receipt) bool {
	p := r.of.Policy
	score := func(s policy.Score) float64 {
		if s == policy.RiskScore {
			return float64(c.Risk)
		}
		if k, known := decomp.ParseScore(string(s)); known {
			return float64(c.Scores[k])
		}
		return math.NaN()
	}
	e := policy.Evidence{Predicted: int(c.Predicted), Primary: score(p.Primary.Score), Fallback: score(p.Fallback.Score),
		Degenerate: c.Degenerate, Saturated: policy.Reason(c.Reason) == policy.IsSaturated, Skewness: make([]float64, len(p.Classes))}
	if p.Guard != nil {
		e.Guard = score(p.Guard.Score)
	}
	if policy.GateOutcome(c.Gate) == policy.ByFallback { // by the same gate: some class was not to be trusted
		for k := range e.Skewness {
			e.Skewness[k] = math.NaN()
		}
	}
	return p.Decide(e).Action == policy.Retain
}

// Expected returns the estimate.
func (r *Rehearsal) Expected() *Expected {
	e := &Expected{MissRate: r.tally.rate(Watch{Risk: evidence.MissRate}, -1), FNR: r.tally.rate(Watch{Risk: evidence.FNR}, -1)}
	if r.from <= r.until {
		e.From, e.Until = time.UnixMicro(r.from).UTC(), time.UnixMicro(r.until).UTC()
	}
	return e
}

// storedExpected is an Expected in JSON, which has no NaN.
type storedExpected struct {
	From, Until time.Time
	Rate, FNR   *Share
}

// MarshalJSON leaves out what is not known.
func (e *Expected) MarshalJSON() ([]byte, error) {
	known := func(s Share) *Share {
		if !s.Known() {
			return nil
		}
		return &s
	}
	return json.Marshal(storedExpected{e.From, e.Until, known(e.MissRate), known(e.FNR)})
}

// UnmarshalJSON reads what MarshalJSON wrote.
func (e *Expected) UnmarshalJSON(text []byte) error {
	var s storedExpected
	if err := json.Unmarshal(text, &s); err != nil {
		return err
	}
	share := func(s *Share, r evidence.Risk) Share {
		if s == nil {
			return unknownShare(wholeOf(Watch{Risk: r}))
		}
		return *s
	}
	*e = Expected{s.From, s.Until, share(s.Rate, evidence.MissRate), share(s.FNR, evidence.FNR)}
	return nil
}

// Expect notes what earlier outcomes say of a policy.
func (a *Alarms) Expect(hash string, e *Expected) {
	if a.expected == nil {
		a.expected = make(map[string]*Expected)
	}
	a.expected[hash] = e
}

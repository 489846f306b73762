package calibrate

import (
	"math"

	"github.com/ckd-project/ckd/decomp"
	"github.com/ckd-project/ckd/eval"
	"github.com/ckd-project/ckd/policy"
)

// choice is a candidate at one point of its threshold curve, with the search that fitted it. It
// decides every input as the policy made of it will.
type choice struct {
	*search
	rule       candidate
	thresholds thresholds
}

// retained marks the inputs of a part that the choice retains.
func (c *choice) retained(p part) []bool {
	retained := make([]bool, c.n)
	for i, inside := range p.holds {
		retained[i] = inside && c.retains(i, c.scope, c.rule, c.thresholds)
	}
	return retained
}

// selective counts what the choice retains of a part.
func (c *choice) selective(p part) eval.Selective { return c.sample.selective(p, c.retained(p)) }

// chosen returns the choice as a report has it.
func (c *choice) chosen() *Chosen {
	chosen := &Chosen{
		Gate: c.rule.gate, ReliabilityThreshold: c.rule.reliability, Compared: len(c.candidates),
		Primary: Threshold{string(nameOfScore(c.rule.primary)), c.thresholds[byPrimary]},
	}
	if c.rule.sides() == 2 {
		chosen.Fallback = &Threshold{c.rule.fallback.String(), c.thresholds[byFallback]}
	}
	if c.rule.guarded {
		chosen.Guard = &Threshold{string(policy.MI), c.guard}
	}
	return chosen
}

// draft returns the draft of the policy that decides by a choice. Its calibration block says what
// the report found.
func (r *run) draft(c *choice) *policy.Policy {
	p, found := r.Base.Draft(), r.report
	p.Gate, p.Scope = c.rule.gate, r.Scope
	p.Primary = policy.Rule{Score: nameOfScore(c.rule.primary), Threshold: c.thresholds[byPrimary], HasThreshold: true}
	p.Fallback = policy.Rule{Score: policy.CBEC}
	if c.rule.sides() == 2 {
		p.Fallback = policy.Rule{Score: nameOfScore(c.rule.fallback), Threshold: c.thresholds[byFallback], HasThreshold: true}
	}
	p.Guard, p.Risk = nil, nil
	if c.model != nil {
		p.Risk = c.model.Risk
	}
	if c.rule.guarded {
		p.Guard = &policy.Guard{Score: policy.MI, Threshold: c.guard}
	}
	if p.Kind != policy.Dirichlet {
		p.ExpectedPasses = r.table.Passes
		p.FewestPasses = r.table.Passes // the thresholds are for so many
	}
	p.Calibration = &policy.Calibration{
		Recording: policy.Recording{Inputs: r.n, CriticalInputs: found.Critical, Passes: r.table.Passes},
		Objective: found.Objective, Scope: r.Scope, Seed: r.Seed, Reference: reference(r.table, r.Base), Unsupported: found.Unsupported,
	}
	if e := found.Expected; e != nil {
		p.Calibration.ExpectedCoverage = &policy.Interval{Value: e.Coverage, Low: e.CoverageInterval[0], High: e.CoverageInterval[1]}
		p.Calibration.ExpectedCriticalMissRate = intervalOf(e.CriticalMissRate, e.CriticalMissRateInterval)
		p.Calibration.ExpectedClassMissRate = r.byClass
	}
	if found.Certificate != nil {
		p.Calibration.Certificate = found.Certificate.forPolicy()
	}
	p.Calibration.MeanRootRisk = c.meanRootRisk()
	return &p
}

// meanRootRisk returns the mean of sqrt(risk) over the inputs that are retained and called safe, by
// which audits that follow the risk are scaled; 0 without a risk.
func (c *choice) meanRootRisk() float64 {
	if c.model == nil {
		return 0
	}
	sum, n := 0.0, 0
	for i, retained := range c.retained(c.all()) {
		if retained && !c.predictedCritical[i] {
			sum += math.Sqrt(c.risk[i])
			n++
		}
	}
	return sum / float64(max(n, 1))
}

// reread returns the missed inputs by their place in the sample, those of least risk first, where
// labels are wrong most often.
func (c *choice) reread(classes []string) (all []Reread) {
	const most = 1000
	risk := c.table.Scores[decomp.PCritical]
	if c.model != nil {
		risk = c.risk
	}
	for _, i := range ascending(risk) {
		if c.missed[i] && len(all) < most {
			all = append(all, Reread{int(i), classes[c.label[i]], classes[c.table.Predicted[i]], risk[i]})
		}
	}
	return all
}

func intervalOf(value *float64, interval *[2]float64) *policy.Interval {
	if value == nil {
		return nil
	}
	return &policy.Interval{Value: *value, Low: interval[0], High: interval[1]}
}

package main

import (
	"errors"
	"fmt"
	"slices"
	"strconv"

	"github.com/ckd-project/ckd/calibrate"
	"github.com/ckd-project/ckd/policy"
	"github.com/ckd-project/ckd/settle"
	"github.com/ckd-project/ckd/settle/learn"
)

// settling is when inputs are settled before their last pass, and what is guaranteed
// of it, as --format json prints it.
type settling struct {
	Epsilon    float64          `json:"epsilon"`
	Confidence float64          `json:"confidence"`
	Order      policy.PassOrder `json:"order"`
	Passes     int              `json:"passes"` // of the full decision
	// LearnedFrom so many inputs, and CertifiedOn so many others.
	LearnedFrom int `json:"learned_from"`
	CertifiedOn int `json:"certified_on"`
	// Rule is what was found; nil where nothing certifies.
	Rule *settleRule `json:"rule"`
	// HalvesDiffer are the certifying inputs that one half of their passes decides
	// otherwise than the other does; nil where it did not come to that.
	HalvesDiffer *exactShare `json:"halves_differ"`
	// Risk is what became of the certificate that the policy would have had; nil
	// where it would have had none.
	Risk *riskFate `json:"risk_certificate"`
	// Refusal says why nothing certifies; nil where something does.
	Refusal *settleRefusal `json:"refusal"`
}

// settleRule is a rule on the inputs that certify it.
type settleRule struct {
	Statement string `json:"statement"`
	// FirstAfter so many passes an input may be settled, LastAfter so many at the latest.
	FirstAfter int     `json:"first_after"`
	LastAfter  int     `json:"last_after"`
	MeanPasses float64 `json:"mean_passes"`
	Saving     float64 `json:"saving"` // passes of the full decision over MeanPasses
	Settled    int     `json:"settled"`
	// Disagreements with the full decision. Released are retained of those that it
	// defers, CriticalReleased the same of critical inputs; nil without labels.
	Disagreements    boundedShare  `json:"disagreements"`
	Released         boundedShare  `json:"released"`
	CriticalReleased *boundedShare `json:"critical_released"`
	// CriticalFNR is of what is retained with the rule in force, FullCriticalFNR of
	// what all passes retain; nil without labels.
	CriticalFNR     *exactShare `json:"critical_fnr"`
	FullCriticalFNR *exactShare `json:"full_critical_fnr"`
}

// boundedShare is a share that is not exceeded, with the rule's confidence.
type boundedShare struct {
	Inputs int     `json:"inputs"`
	Count  int     `json:"count"`
	AtMost float64 `json:"at_most"`
}

// exactShare is a share with its exact 95% interval.
type exactShare struct {
	Inputs   int        `json:"inputs"`
	Count    int        `json:"count"`
	Share    float64    `json:"share"`
	Interval [2]float64 `json:"interval"`
}

func newExactShare(count, inputs int) *exactShare {
	s := &exactShare{Inputs: inputs, Count: count, Share: float64(count) / float64(max(inputs, 1))}
	s.Interval = exact(count, inputs)
	return s
}

// riskFate is what became of a certificate about misses.
type riskFate struct {
	Kind   policy.CertificateKind `json:"kind"`
	Target float64                `json:"target"`
	// Kept: it was tested anew, with the rule in force, and holds. Dropped says why not.
	Kept    bool   `json:"kept"`
	Dropped string `json:"dropped,omitempty"`
}

// settleRefusal says why no rule certifies.
type settleRefusal struct {
	Reason string `json:"reason"`
	// FewestInputs of the half that certifies, which could without any disagreement.
	FewestInputs int `json:"fewest_inputs"`
}

// checkSettle refuses flags that make no sense with or without --settle.
func (c *calibrateCmd) checkSettle() error {
	switch {
	case c.Settle == nil && c.Ordered:
		return errors.New("--ordered is of --settle, expected that too: nothing else looks at the order of passes")
	case c.Settle == nil:
		return nil
	case policy.IsEnsemble(c.Posterior) && !c.Ordered:
		return errors.New("--settle for an ensemble, whose members are one fixed list: expected --ordered")
	case c.seeks():
		return nil
	case c.Policy == "":
		return errors.New("--settle alone keeps a policy as it is, expected --policy with it, or an objective")
	case c.Posterior != "" || c.Reliability != nil || c.Scope != policy.AllInputs:
		return errors.New("--posterior, --reliability-threshold and --scope are of an objective: --settle alone keeps the policy as it is")
	}
	return nil
}

// settleConfidence of the rule.
func (c *calibrateCmd) settleConfidence() float64 {
	if c.Confidence != nil {
		return *c.Confidence
	}
	return 0.9
}

// readRecording reads passes, and labels where there are any. model may be nil, but
// for passes alone.
func (c *calibrateCmd) readRecording(ctx *cmdContext, model *policy.Policy) (*labelledRecording, error) {
	if c.Labels != "" {
		return c.labelled().readLabelled(ctx, model)
	}
	l := &labelledRecording{classes: model.Classes}
	var err error
	if l.passes, err = c.read(ctx, c.Passes, model); err != nil {
		return nil, err
	}
	l.passesFile, err = hashFile(c.Passes)
	return l, err
}

// checkSettleable refuses a policy of which nothing can be settled, before the work.
func (c *calibrateCmd) checkSettleable(base *policy.Policy, rec *labelledRecording) error {
	if base.Kind == policy.Dirichlet { // in the words that an objective's policy would get
		return fmt.Errorf("model %s: nothing to settle: %s", base.Name, base.Unsettleable())
	}
	if c.seeks() {
		return nil
	}
	why := base.Unsettleable()
	switch {
	case why != "":
		return fmt.Errorf("model %s of %s: nothing to settle: %s", base.Name, c.Policy, why)
	case base.ExpectedPasses != rec.passes.S:
		return fmt.Errorf("%s has %d passes, but model %s of %s decides with %d: expected as many", c.Passes, rec.passes.S,
			base.Name, c.Policy, base.ExpectedPasses)
	case base.Calibration != nil && policy.IsEnsemble(base.Calibration.Posterior) && !c.Ordered:
		return usageError("model %s of %s is of an ensemble, whose members are one fixed list: expected --ordered", base.Name, c.Policy)
	}
	return nil
}

// keep a policy as it is, but for its rule.
func (c *calibrateCmd) keep(ctx *cmdContext, rec *labelledRecording, base *policy.Policy) (*calibrate.Result, error) {
	p := *base
	p.Settle, p.Hash = nil, ""
	r := &calibrate.Result{
		Scope: p.Scope, Seed: c.Seed, Inputs: rec.passes.N, Passes: rec.passes.S,
		Chosen: keptRule(base), Why: []string{}, Comparison: []calibrate.Row{}, Notes: []string{}, Policy: &p,
	}
	if p.Calibration != nil {
		copied := *p.Calibration
		p.Calibration = &copied
	}
	if rec.labels == nil {
		return r, nil
	}
	table, err := newTable(ctx, rec.passes, rec.spec)
	if err != nil {
		return nil, err
	}
	for i, label := range rec.labels {
		if slices.Contains(p.Critical, label) {
			r.Critical++
			if !slices.Contains(p.Critical, table.Predicted[i]) {
				r.Missed++
			}
		}
	}
	return r, nil
}

// keptRule is what a policy decides by.
func keptRule(p *policy.Policy) *calibrate.Chosen {
	primary, fallback := calibrate.Threshold{Score: string(p.Primary.Score), Threshold: p.Primary.Threshold},
		&calibrate.Threshold{Score: string(p.Fallback.Score), Threshold: p.Fallback.Threshold}
	switch {
	case !p.Gate.ReachesFallback():
		fallback = nil
	case !p.Gate.ReachesPrimary():
		primary, fallback = *fallback, nil
	}
	return &calibrate.Chosen{Gate: p.Gate, ReliabilityThreshold: p.ReliabilityThreshold, Primary: primary, Fallback: fallback, Compared: 1}
}

// ofItself reports whether the calibration of a policy is known to be of the policy as
// it is, but for its rule.
func ofItself(p *policy.Policy) bool {
	return p.Calibration != nil && (p.Calibration.PolicyHash == p.Hash || p.Calibration.PolicyHash == p.HashWithoutSettle())
}

// settle learns on one half when inputs are settled, certifies that on the other, and
// puts it into the policy. That nothing certifies is no error but a refusal.
func (c *calibrateCmd) settle(ctx *cmdContext, rec *labelledRecording, base *policy.Policy, found *calibration, learns, certifies []int) error {
	p := found.Policy
	parsed, err := parsedBack(p)
	if err != nil {
		return err
	}
	s := &settling{Epsilon: *c.Settle, Confidence: c.settleConfidence(), Order: policy.AnyOrder, Passes: rec.passes.S}
	if c.Ordered {
		s.Order = policy.MembersOrder
	}
	found.Settle = s
	risk := c.riskToTest(rec, base, found)
	recording := settleRecording(rec.passes, rec.labels, c.Ordered)
	rec.passes = nil // garbage where they had to be copied
	learns, certifies, orders := found.within(learns, certifies, recording.Passes)
	s.LearnedFrom, s.CertifiedOn = len(learns), len(certifies)

	least := learn.FewestInputs(s.Epsilon, s.Confidence)
	switch {
	case parsed.Unsettleable() != "":
		found.refuseRule(least, parsed.Unsettleable())
		return nil
	case len(certifies) < least:
		found.refuseRule(least, fmt.Sprintf("%d inputs are left to certify on, and at least %d are needed to show that at most %v are "+
			"decided otherwise with confidence %v: about %d in the whole recording", len(certifies), least, s.Epsilon, s.Confidence, 2*least))
		return nil
	}
	var rule *settle.Rule
	var got *learn.Certificate
	err = inSteps(ctx, "learning when inputs are settled", 4, func(next func()) error {
		d, err := learn.Decide(parsed, recording)
		if err != nil {
			return fmt.Errorf("%s: %w", c.Passes, err)
		}
		next()
		path, err := learn.Learn(d, learns, learn.Options{Orders: orders, Seed: c.Seed})
		if err != nil {
			found.refuseRule(least, err.Error())
			return nil
		}
		next()
		rule, got, err = s.certify(d, path, certifies, risk, c.Seed)
		refused := (*learn.RefusedError)(nil)
		switch {
		case errors.As(err, &refused):
			found.refuseRule(least, refused.Reason)
			return nil
		case err != nil:
			return err
		case got.Counts.Settled == 0:
			found.refuseRule(least, "no rule that settles anything keeps to that share")
			return nil
		}
		next()
		s.HalvesDiffer = newExactShare(learn.Noise(d, certifies, c.Seed), len(certifies))
		next()
		return nil
	})
	if err != nil || s.Refusal != nil {
		return err
	}
	s.tell(rule, got, rec.labels != nil && len(parsed.Critical) > 0)
	p.Settle = s.block(c, found, parsed.HashWithoutSettle(), rule)
	c.settleRisk(ctx, found, got)
	c.noteOnSettling(found, base)
	return nil
}

// inSteps works with a bar of so many steps, until it is done or the command is
// interrupted.
func inSteps(ctx *cmdContext, what string, steps int, work func(next func()) error) error {
	working := newLateBar(ctx, what)
	defer working.stop()
	step := 0
	return untilInterrupted(ctx, func() error {
		return work(func() {
			step++
			working.update(step, steps)
		})
	})
}

// untilInterrupted works until it is done, or the command is interrupted: the work is
// then left to itself, as the process ends.
func untilInterrupted(ctx *cmdContext, work func() error) error {
	done := make(chan error, 1)
	go func() { done <- work() }()
	select {
	case err := <-done:
		return err
	case <-ctx.Ctx.Done():
		return ctx.Ctx.Err()
	}
}

// refuseRule where nothing certifies: there is no policy then.
func (found *calibration) refuseRule(least int, reason string) {
	found.Settle.Refusal = &settleRefusal{reason, least}
	found.Policy, found.Chosen, found.Expected, found.Certificate, found.Why = nil, nil, nil, nil, []string{}
}

// tell what the rule does.
func (s *settling) tell(rule *settle.Rule, got *learn.Certificate, labelled bool) {
	n := got.Counts
	r := &settleRule{
		FirstAfter: rule.Fewest, LastAfter: rule.Last(), MeanPasses: sixDigits(n.MeanPasses()), Saving: sixDigits(n.Saving()), Settled: n.Settled,
		// The share that was asked for is what is certified: the bound that the rule was
		// chosen by says no more, as more than one was tried.
		Disagreements: boundedShare{n.Inputs, n.Disagreements, s.Epsilon},
		Released:      boundedShare{n.Deferred, n.Released, bound(got.ReleasedUpper)},
	}
	if labelled {
		r.CriticalReleased = &boundedShare{n.CriticalDeferred, n.CriticalReleased, bound(got.CriticalReleasedUpper)}
		r.CriticalFNR = newExactShare(n.CriticalMissed, n.CriticalRetained)
		r.FullCriticalFNR = newExactShare(n.FullCriticalMissed, n.FullCriticalRetained)
	}
	r.Statement = fmt.Sprintf("With confidence %v, at most %v of the inputs are decided otherwise than by all %d passes, for inputs drawn as "+
		"those of the recording were; %d of %d were.", s.Confidence, s.Epsilon, s.Passes, n.Disagreements, n.Inputs)
	s.Rule = r
}

// block is the rule as the policy has it.
func (s *settling) block(c *calibrateCmd, found *calibration, hash string, rule *settle.Rule) *policy.Settle {
	r := s.Rule
	halves := sixDigits(s.HalvesDiffer.Share)
	b := &policy.Settle{
		PolicyHash: hash, Order: s.Order, Rule: *rule, MeanPasses: r.MeanPasses, HalvesDiffer: &halves,
		Software: found.Software, PassesFile: printablePath(found.PassesFile.Name), PassesSHA256: found.PassesFile.SHA256,
		Inputs: s.LearnedFrom, Seed: c.Seed,
		Certificate: policy.SettleCertificate{
			Disagreement: s.Epsilon, Confidence: s.Confidence, Inputs: r.Disagreements.Inputs, Disagreements: r.Disagreements.Count,
			Released: r.Released.forPolicy(),
		},
	}
	if cr := r.CriticalReleased; cr != nil && cr.Inputs > 0 {
		share := cr.forPolicy()
		b.Certificate.CriticalReleased = &share
	}
	return b
}

func (b boundedShare) forPolicy() policy.ReleasedShare {
	return policy.ReleasedShare{AtMost: b.AtMost, Deferred: b.Inputs, Released: b.Count}
}

// sixDigits of a figure that was measured.
func sixDigits(v float64) float64 {
	short, _ := strconv.ParseFloat(strconv.FormatFloat(v, 'g', 6, 64), 64)
	return short
}

// bound on a share, rounded up to six digits, so that it stays one.
func bound(v float64) float64 { return min(sixDigits(v*(1+5e-6)), 1) }

// mostStatistics that learning holds at once: 250 bytes each, with all that is made of
// them.
const mostStatistics = 3_000_000

// within the memory that following inputs may take: some of the inputs, which come in
// random order, and how many orders of the passes of each are learned from.
func (found *calibration) within(learns, certifies []int, passes int) (_, _ []int, orders int) {
	most := max(mostStatistics/passes, 1)
	cut := func(inputs []int, what string) []int {
		if len(inputs) <= most {
			return inputs
		}
		found.Notes = append(found.Notes, fmt.Sprintf("the rule was %s %d of %d inputs: more would take too much memory", what, most, len(inputs)))
		return inputs[:most]
	}
	learns, certifies = cut(learns, "learned from"), cut(certifies, "certified on")
	return learns, certifies, min(learn.DefaultOrders, most/max(len(learns), 1))
}

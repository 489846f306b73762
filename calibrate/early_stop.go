package calibrate

import (
	"context"
	"errors"
	"fmt"
	"math"
	"slices"
	"strconv"

	"github.com/ckd-project/ckd/calibrate/internal/learn"
	"github.com/ckd-project/ckd/decomp"
	"github.com/ckd-project/ckd/eval"
	"github.com/ckd-project/ckd/internal/clustered"
	"github.com/ckd-project/ckd/policy"
	"github.com/ckd-project/ckd/policy/earlystop"
)

// EarlyStopOptions ask for an early-stopping rule of a policy.
type EarlyStopOptions struct {
	// Base is the policy to complete. It has thresholds, and stays as it is but for its rule.
	Base *policy.Policy
	// Disagreement, in (0,1), is the largest share of inputs that the rule may decide otherwise than
	// all passes do, with Confidence, in (0,1).
	Disagreement, Confidence float64
	// Released, in (0,1), is the largest share of the inputs deferred by all passes that the rule may
	// retain instead, with Confidence too.
	Released float64
	// Ordered passes are the members of an ensemble, one fixed list: they keep their order, here and
	// live.
	Ordered bool
	// Seed, Groups, Source, Replaces and Progress mean the same as in Options.
	Seed     uint64
	Groups   []int
	Source   Source
	Replaces *policy.Policy
	Progress Progress
}

// leastSaving is the smallest ratio of all passes to the mean number used that a rule is accepted
// with. A rule that saves less would change decisions for next to nothing.
const leastSaving = 1.1

func (o *EarlyStopOptions) check() error {
	inside := func(x float64) bool { return x > 0 && x < 1 }
	if o.Base == nil {
		return errors.New("no policy to complete")
	}
	if !inside(o.Disagreement) || !inside(o.Confidence) || !inside(o.Released) {
		return fmt.Errorf("early stopping with a share of %v decided otherwise and one of %v released, at confidence %v: expected all "+
			"above 0 and below 1", o.Disagreement, o.Released, o.Confidence)
	}
	return nil
}

// EarlyStop says when inputs are answered before their last pass, and what is guaranteed of that.
type EarlyStop struct {
	Epsilon    float64          `json:"epsilon"`          // largest share decided otherwise, as asked for
	Released   float64          `json:"epsilon_released"` // largest share released, as asked for
	Confidence float64          `json:"confidence"`
	Order      policy.PassOrder `json:"order"`
	Passes     int              `json:"passes"` // of the full decision
	// LearnedFrom counts the inputs that taught the rule, CertifiedOn the others, which certified it.
	LearnedFrom int `json:"learned_from"`
	// Groups counts the groups that certified it; 0 if every input was counted as independent.
	Groups      int `json:"groups,omitempty"`
	CertifiedOn int `json:"certified_on"`
	// Rule says what the rule does; nil where nothing certifies.
	Rule *EarlyStopRule `json:"rule"`
	// HalvesDiffer counts the certifying inputs whose decision by one half of their passes differs
	// from that by the other; nil where it did not come to that.
	HalvesDiffer *ExactShare `json:"halves_differ"`
	// Risk says what became of the certificate about misses; nil where the policy would have had
	// none.
	Risk *RiskCertificate `json:"risk_certificate"`
	// Refusal says why nothing certifies; nil where something does.
	Refusal *EarlyStopRefusal `json:"refusal"`
}

// EarlyStopRule says what a rule does on the inputs that certify it.
type EarlyStopRule struct {
	Statement string `json:"statement"`
	// FirstAfter and LastAfter say after how many passes an input may be answered, at the earliest
	// and at the latest.
	FirstAfter int     `json:"first_after"`
	LastAfter  int     `json:"last_after"`
	MeanPasses float64 `json:"mean_passes"`
	Saving     float64 `json:"saving"`  // passes of the full decision over MeanPasses
	Settled    int     `json:"settled"` // inputs answered early
	Numbers    int     `json:"numbers"` // fitted numbers that the rule has in the policy
	// Disagreements with the full decision. Released inputs are deferred by all passes and retained
	// by the rule. Both shares were tested, and AtMost is what was asked for. CriticalReleased counts
	// the critical ones among the released; nil without labels.
	Disagreements    BoundedShare  `json:"disagreements"`
	Released         BoundedShare  `json:"released"`
	CriticalReleased *BoundedShare `json:"critical_released"`
	// CriticalFNR is the critical FNR with the rule in force, FullCriticalFNR the one with all
	// passes. Both are nil without labels.
	CriticalFNR     *ExactShare `json:"critical_fnr"`
	FullCriticalFNR *ExactShare `json:"full_critical_fnr"`
}

// BoundedShare is a count with an upper bound on its share, which holds with the rule's confidence.
type BoundedShare struct {
	Inputs int     `json:"inputs"`
	Count  int     `json:"count"`
	AtMost float64 `json:"at_most"`
}

func (b BoundedShare) forPolicy() policy.ReleasedShare {
	return policy.ReleasedShare{AtMost: b.AtMost, Deferred: b.Inputs, Released: b.Count}
}

// ExactShare is a share with its 95% interval: the exact one, or with groups that by group.
type ExactShare struct {
	Inputs   int        `json:"inputs"`
	Count    int        `json:"count"`
	Share    float64    `json:"share"`
	Interval [2]float64 `json:"interval"`
}

func newExactShare(t clustered.Tally) *ExactShare {
	return &ExactShare{Inputs: t.Cases, Count: t.Misses, Share: float64(t.Misses) / float64(max(t.Cases, 1)), Interval: t.Interval()}
}

// RiskCertificate says what became of a certificate about misses.
type RiskCertificate struct {
	Kind   policy.CertificateKind `json:"kind"`
	Target float64                `json:"target"`
	// Kept certificates were tested anew, with the rule in force, and hold. Dropped says why one
	// was not kept.
	Kept    bool   `json:"kept"`
	Dropped string `json:"dropped,omitempty"`
}

// EarlyStopRefusal says why no rule certifies.
type EarlyStopRefusal struct {
	Reason string `json:"reason"`
	// FewestInputs counts the inputs of the certifying half that could certify without any
	// disagreement.
	FewestInputs int `json:"fewest_inputs"`
	// FewestDeferred counts the inputs of that half, deferred by all passes, that could certify
	// without any of them released.
	FewestDeferred int `json:"fewest_deferred"`
}

// stopping makes a policy with an early-stopping rule.
type stopping struct {
	EarlyStopOptions
	report *Report
	draft  *policy.Policy // nil where nothing certifies
}

// LearnEarlyStop learns an early-stopping rule for a policy from one half of the inputs of a
// recording, at random, and certifies it on the other. Labels may be nil. The error is about the
// options or the recording. If nothing can be certified, there is no error but a Refusal in the
// report, and no policy.
func LearnEarlyStop(ctx context.Context, r eval.Recording, o EarlyStopOptions) (*Report, error) {
	if err := o.check(); err != nil {
		return nil, err
	}
	if r.Labels != nil {
		if err := r.CheckLabels(); err != nil {
			return nil, err
		}
	}
	if err := o.checkBase(r); err != nil {
		return nil, err
	}
	table, err := decomposed(ctx, r, o.Base, o.Groups, o.Progress)
	if err != nil {
		return nil, err
	}
	c := &stopping{EarlyStopOptions: o}
	if o.Groups == nil {
		c.Groups = table.Copies
	}
	c.keep(r, table)
	c.report.setSource(&o.Source, o.Groups != nil)
	if c.draft != nil {
		err = c.learn(ctx, r)
	}
	if err != nil || c.draft == nil {
		return c.report, err
	}
	return c.report, c.finish()
}

// checkBase refuses a policy for which there can be no early-stopping rule, before the work.
func (o *EarlyStopOptions) checkBase(r eval.Recording) error {
	base := *o.Base
	base.FewestPasses = fewestToLearn(o.Base, r.Passes.Passes)
	switch why := base.WhyNoEarlyStop(); {
	case why != "":
		return fmt.Errorf("model %s: no input can stop early: %s", o.Base.Name, why)
	case o.Base.ExpectedPasses != r.Passes.Passes:
		return fmt.Errorf("%s has %d passes, but model %s decides with %d: expected as many", nameOf(r), r.Passes.Passes, o.Base.Name,
			o.Base.ExpectedPasses)
	}
	return nil
}

// fewestToLearn returns the passes from which on an early-stopping rule may decide for a policy: the
// fewest that the policy accepts. Where these are all, as in a policy calibrated without a rule, they
// are what the gate can do with.
func fewestToLearn(p *policy.Policy, passes int) int {
	fewest := max(p.FewestPasses, 2)
	if p.FewestPasses == p.ExpectedPasses {
		fewest = 2
	}
	variance := decomp.Sample
	if p.Variance == policy.Population {
		variance = decomp.Population
	}
	for p.Gate.ReadsSkewness() && fewest < passes && hardlyOpens(fewest, passes, variance, p.ReliabilityThreshold) {
		fewest++
	}
	return fewest
}

// hardlyOpens reports whether so few of all passes hardly let a gate open that reads skewness. From
// half of the passes on a gate that can open at all is enough: otherwise no pass would be left to save.
func hardlyOpens(passes, all int, variance decomp.Variance, reliability float64) bool {
	const spare = 2
	most := decomp.SkewnessCap(passes, variance)
	if 2*passes >= all {
		return most <= reliability
	}
	return most < spare*reliability
}

// keep drafts the policy as it is, without a rule, and starts the report.
func (c *stopping) keep(r eval.Recording, table *eval.Table) {
	p := c.Base
	d := p.Draft()
	d.EarlyStopping = nil
	d.FewestPasses = fewestToLearn(p, r.Passes.Passes)
	c.draft = &d
	c.report = newReport("", p.Scope, c.Seed)
	c.report.Inputs, c.report.Passes, c.report.Chosen = r.Passes.Inputs, r.Passes.Passes, kept(p)
	if g := newGrouping(c.Groups, r.Passes.Inputs); g.grouped {
		c.report.Groups = g.groups
	}
	signs := table.Signs
	if r.Labels != nil {
		signs = table.Suspect(r.Labels)
	}
	if c.report.suspect(signs) {
		c.draft = nil
		return
	}
	for i, label := range r.Labels {
		if slices.Contains(p.Critical, label) {
			c.report.Critical++
			if !slices.Contains(p.Critical, table.Predicted[i]) {
				c.report.Missed++
			}
		}
	}
}

// kept returns what a policy decides by.
func kept(p *policy.Policy) *Chosen {
	primary, fallback := Threshold{Score: string(p.Primary.Score), Threshold: p.Primary.Threshold},
		&Threshold{Score: string(p.Fallback.Score), Threshold: p.Fallback.Threshold}
	switch {
	case !p.Gate.ReachesFallback():
		fallback = nil
	case !p.Gate.ReachesPrimary():
		primary, fallback = *fallback, nil
	}
	return &Chosen{Gate: p.Gate, ReliabilityThreshold: p.ReliabilityThreshold, Primary: primary, Fallback: fallback, Compared: 1}
}

// finish builds the policy, and warns if its rule is not the first attempt.
func (c *stopping) finish() error {
	d, r := c.draft, c.report
	p, err := build(*d)
	if err != nil {
		return err
	}
	if certifiedAsItIs(c.Base) {
		d.Calibration.PolicyHash = p.HashWithoutLines()
	}
	c.noticeEarlierRule()
	if err := r.put(d); err != nil {
		return err
	}
	if r.Policy.EarlyStop() == nil {
		return errors.New("internal fault, please report it: the rule is not in force in the policy that it was learned for")
	}
	return nil
}

// learn learns an early-stopping rule on one half of the inputs, certifies it on the other, and
// puts it into the draft. If nothing certifies, the report gets a refusal and there is no error.
func (c *stopping) learn(ctx context.Context, r eval.Recording) error {
	p, err := build(*c.draft)
	if err != nil {
		return err
	}
	s := &EarlyStop{
		Epsilon: c.Disagreement, Released: c.Released, Confidence: c.Confidence, Order: policy.AnyOrder, Passes: r.Passes.Passes,
	}
	if c.Ordered {
		s.Order = policy.MembersOrder
	}
	c.report.EarlyStop = s
	recording := learnable(r, c.Ordered)
	g := newGrouping(c.Groups, recording.Inputs)
	if g.grouped {
		recording.Groups = g.group
	}
	r.Passes = decomp.Tensor{} // frees the passes if they were copied
	const streamHalves = 0x4a1f
	learning, certifying := g.split(g.groups/2, newRand(c.Seed, streamHalves))
	learns, certifies := slices.Concat(learning...), slices.Concat(certifying...)
	s.LearnedFrom, s.CertifiedOn = len(learns), len(certifies)

	progress := c.Progress.stageProgress("learning when inputs stop early")
	const steps = 4
	d, err := learn.Decide(ctx, p, recording)
	if err != nil {
		return named(r, err)
	}
	progress(1, steps)
	q := learn.Request{Epsilon: s.Epsilon, Released: s.Released, Confidence: s.Confidence, Risk: c.riskToTest(r.Labels != nil), Seed: c.Seed}
	least, leastDeferred := q.Fewest(d, certifies)
	refuse := func(reason string) error {
		s.Refusal = &EarlyStopRefusal{reason, least, leastDeferred}
		report := c.report
		report.Chosen, report.Expected, report.Certificate, report.Why = nil, nil, nil, []string{}
		c.draft = nil
		return nil
	}
	among := ""
	if c.Groups != nil {
		among = ", in groups like these,"
	}
	if len(certifies) < least {
		return refuse(fmt.Sprintf("%d inputs are left to certify on, and at least %d%s are needed to show with %s confidence that at most %s are "+
			"decided otherwise: about %d in the whole recording", len(certifies), least, among, percent(s.Confidence), percent(s.Epsilon), 2*least))
	}
	if deferred := d.Deferred(certifies); deferred < leastDeferred {
		return refuse(fmt.Sprintf("%d of the %d inputs left to certify on are deferred by all passes, and at least %d%s are needed to show with "+
			"%s confidence that at most %s of them are retained instead: about %s in the whole recording, or a larger --max-released",
			deferred, len(certifies), leastDeferred, among, percent(s.Confidence), percent(s.Released), wholeRecording(leastDeferred, deferred, len(certifies))))
	}
	sequence, err := learn.Learn(ctx, d, learns, orders(recording.Passes, len(learns)), c.Seed)
	if few := (*learn.RefusedError)(nil); errors.As(err, &few) {
		return refuse(few.Reason)
	}
	if err != nil {
		return err
	}
	progress(2, steps)
	rule, got, err := s.certify(ctx, d, sequence, certifies, &q)
	if refused := (*learn.RefusedError)(nil); errors.As(err, &refused) {
		return refuse(refused.Reason)
	}
	if err != nil {
		return err
	}
	if why := s.savesTooLittle(got.Settled(), got.MeanPasses()); why != "" {
		return refuse(why)
	}
	progress(3, steps)
	differ, err := learn.Noise(ctx, d, certifies, c.Seed)
	if err != nil {
		return err
	}
	t := g.newTally()
	for at, i := range certifies {
		t.Add(g.group[i], differ[at])
	}
	s.HalvesDiffer, s.Groups = newExactShare(t), len(t.Groups)
	progress(4, steps)
	s.fill(rule, got, r.Labels != nil && len(p.Critical) > 0)
	c.draft.EarlyStopping = c.earlyStopping(p.HashWithoutEarlyStop(), rule)
	c.renewRiskCertificate(got)
	c.noteOnEarlyStop()
	return nil
}

// savesTooLittle says why a rule that certifies is not worth having; empty where it is.
func (s *EarlyStop) savesTooLittle(settled int, meanPasses float64) string {
	switch saving := float64(s.Passes) / meanPasses; {
	case settled == 0:
		return "no rule that stops any input early keeps to these shares"
	case saving < leastSaving:
		return fmt.Sprintf("the boldest rule that certifies uses %.3g of %d passes on average, which is %.3g times fewer, expected at least %v times: "+
			"keep all passes, or allow a larger --max-disagreement", meanPasses, s.Passes, saving, leastSaving)
	}
	return ""
}

// wholeRecording says how many inputs a recording needs so that its certifying half has so many
// deferred ones, given how many of some inputs are.
func wholeRecording(want, deferred, of int) string {
	if deferred == 0 {
		return fmt.Sprintf("%d deferred inputs", 2*want)
	}
	return fmt.Sprintf("%.0f inputs", math.Ceil(2*float64(want)*float64(of)/float64(deferred)))
}

// learnable returns the passes of a recording as [passes][inputs][classes] of float32, as they come
// to a daemon. Passes that were recorded so are not copied. Dirichlet concentrations do not come in
// passes, so that there is nothing to be learned from them.
func learnable(r eval.Recording, ordered bool) learn.Recording {
	t, k := &r.Passes, r.Classes
	learned := learn.Recording{Passes: t.Passes, Inputs: t.Inputs, Labels: r.Labels, Ordered: ordered}
	if t.Layout == decomp.SNK && t.Float32 != nil {
		learned.Values = t.Float32
		return learned
	}
	learned.Values = make([]float32, t.Passes*t.Inputs*k)
	for at := range learned.Values {
		from := at
		if t.Layout == decomp.NSK {
			pass, input := at/k/t.Inputs, at/k%t.Inputs
			from = (input*t.Passes+pass)*k + at%k
		}
		if t.Float32 != nil {
			learned.Values[at] = t.Float32[from]
		} else {
			learned.Values[at] = float32(t.Float64[from])
		}
	}
	return learned
}

// fill fills in what the rule does.
func (s *EarlyStop) fill(rule *earlystop.Rule, got *learn.Certificate, labelled bool) {
	n, released := got.Tally(learn.Disagreements), got.Tally(learn.Released)
	r := &EarlyStopRule{
		FirstAfter: rule.Fewest, LastAfter: rule.Last(), MeanPasses: sixDigits(got.MeanPasses()), Saving: sixDigits(float64(s.Passes) / got.MeanPasses()),
		Settled: got.Settled(), Numbers: rule.Form.Numbers(),
		// What is certified are the shares asked for. The bounds of the chosen rule are lower, but
		// they were used in the choice among several rules and guarantee nothing.
		Disagreements: BoundedShare{n.Cases, n.Misses, s.Epsilon},
		Released:      BoundedShare{released.Cases, released.Misses, s.Released},
	}
	drawn := "inputs"
	if n.Grouped() {
		drawn = fmt.Sprintf("groups of at most %d inputs", n.Most)
	}
	r.Statement = fmt.Sprintf("With %s confidence, at most %s of the inputs are decided otherwise than by all %d passes, for %s drawn as "+
		"those of the recording were; %d of %d were. With the same confidence, at most %s of the inputs that all passes defer are retained "+
		"instead; %d of %d were.", percent(s.Confidence), percent(s.Epsilon), s.Passes, drawn, n.Misses, n.Cases, percent(s.Released), released.Misses, released.Cases)
	if labelled {
		critical := got.Tally(learn.CriticalReleased)
		r.CriticalReleased = &BoundedShare{critical.Cases, critical.Misses, roundedUp(got.CriticalReleasedUpper)}
		r.CriticalFNR, r.FullCriticalFNR = newExactShare(got.Tally(learn.Missed)), newExactShare(got.Tally(learn.FullMissed))
		if released.Misses > 0 {
			r.Statement += fmt.Sprintf(" Of these %d, %d are critical.", released.Misses, critical.Misses)
		}
	}
	if n.Grouped() {
		r.Statement += fmt.Sprintf(" The tests count groups, of which %d certified.", s.Groups)
	} else {
		r.Statement += " This holds " + policy.IfIndependent + "."
	}
	s.Rule = r
}

// earlyStopping returns the rule in the form of the policy's block. hash is that of the
// policy without it.
func (c *stopping) earlyStopping(hash string, rule *earlystop.Rule) *policy.EarlyStopping {
	s, r := c.report.EarlyStop, c.report.EarlyStop.Rule
	halvesDiffer := sixDigits(s.HalvesDiffer.Share)
	b := &policy.EarlyStopping{
		PolicyHash: hash, Order: s.Order, Rule: *rule, MeanPasses: r.MeanPasses, HalvesDiffer: &halvesDiffer,
		Software: c.Source.Software, PassesFile: printableBase(c.Source.Passes.Name), PassesSHA256: c.Source.Passes.SHA256,
		Inputs: s.LearnedFrom, Seed: c.Seed,
		Certificate: policy.EarlyStopCertificate{
			Disagreement: s.Epsilon, Confidence: s.Confidence, Inputs: r.Disagreements.Inputs, Groups: s.Groups, Disagreements: r.Disagreements.Count,
			Released: r.Released.forPolicy(),
		},
	}
	if cr := r.CriticalReleased; cr != nil && cr.Inputs > 0 {
		share := cr.forPolicy()
		b.Certificate.CriticalReleased = &share
	}
	return b
}

// sixDigits rounds a measured figure, because people read policies too.
func sixDigits(v float64) float64 {
	short, _ := strconv.ParseFloat(strconv.FormatFloat(v, 'g', 6, 64), 64)
	return short
}

// roundedUp rounds an upper bound on a share up to six digits, so that it stays a bound.
func roundedUp(v float64) float64 { return min(sixDigits(v*(1+5e-6)), 1) }

// orders returns the number of orders of their passes in which so many inputs are followed to learn
// from: where these are many, fewer do, and take less memory.
func orders(passes, inputs int) int {
	const mostStatistics = 3_000_000 // each takes about 250 bytes, with everything computed from it
	return max(min(learn.Orders, mostStatistics/passes/max(inputs, 1)), 1)
}

// noteOnEarlyStop adds the notes that a reader of the rule needs.
func (c *stopping) noteOnEarlyStop() {
	s, r := c.report.EarlyStop, c.report
	r.note("the recording was parted at random: from %d inputs it was learned when inputs stop early, and the other %d certified that",
		s.LearnedFrom, s.CertifiedOn)
	if on := c.Base.Calibration; on != nil && on.Recording.PassesSHA256 != "" && on.Recording.PassesSHA256 == c.Source.Passes.SHA256 {
		r.note("the thresholds of the policy were calibrated on this recording, the inputs that certify the rule included, which is not " +
			"quite independent: another recording keeps the two apart")
	}
	if !c.Ordered && s.Passes <= 10 {
		r.note("%d passes are few for draws of one posterior: for the members of an ensemble say --ordered", s.Passes)
	}
}

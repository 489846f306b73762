package policy

import (
	"fmt"
	"slices"
	"strconv"
	"strings"

	"github.com/ckd-project/ckd/drift"
)

// Calibration is what the thresholds of a policy were calibrated from and for.
// Zero values are what is not told.
type Calibration struct {
	// Software that calibrated, with its version.
	Software string
	// PolicyHash is the hash of the policy as it was calibrated.
	PolicyHash string
	// Recording is the labelled passes.
	Recording Recording
	// Posterior is how their passes were sampled: a short name, as mc-dropout.
	Posterior string
	// Objective is what was asked for, in words.
	Objective string
	// Scope is the policy's.
	Scope Scope
	// Seed of the random choices; Parse reads those up to the largest int.
	Seed uint64
	// ExpectedCoverage is the share of inputs retained, and ExpectedCriticalFNR
	// the share of the critical ones among them that is called safe, as estimated
	// on inputs that the rule was not chosen on.
	ExpectedCoverage, ExpectedCriticalFNR *Interval
	// Certificate is what is guaranteed; nil for nothing.
	Certificate *Certificate
	// Reference is what was seen of each class; nil where that is not told.
	Reference *drift.Reference
	// EarlierAttempt is which certificate was sought on the same recording before,
	// in words: a further one would be void.
	EarlierAttempt string
}

// Recording is the labelled passes that a policy was calibrated on.
type Recording struct {
	PassesFile, PassesSHA256 string
	LabelsFile, LabelsSHA256 string
	Inputs, CriticalInputs   int
	// Passes of each input.
	Passes int
}

// Interval is a share with its 95% interval, Low <= Value <= High. From 0 to 1
// it says nothing, and stands for one that is not told.
type Interval struct {
	Value, Low, High float64
}

// Told reports whether the interval says anything.
func (i *Interval) Told() bool { return i.Low > 0 || i.High < 1 }

// Certificate is a guarantee for inputs drawn as those of the recording were.
type Certificate struct {
	Kind CertificateKind
	// Target is the share that is not exceeded.
	Target float64
	// Confidence that it is not; only of LearnThenTest.
	Confidence float64
	// Cases are the critical inputs that it rests on, and Misses those of them
	// that were missed.
	Cases, Misses int
	// PValue is the chance of so few misses if the target were exceeded; only of
	// LearnThenTest.
	PValue float64
	// Statement is the certificate in one plain sentence.
	Statement string
}

// CertificateKind is the method that certified.
type CertificateKind string

// The kinds of certificates.
const (
	// LearnThenTest bounds the critical FNR among the retained, with confidence.
	LearnThenTest CertificateKind = "learn-then-test"
	// ConformalRiskControl bounds the mean share of critical inputs that is
	// retained and called safe.
	ConformalRiskControl CertificateKind = "conformal-risk-control"
)

// checkCalibration applies the rules of a calibration: it does not contradict
// itself, nor the policy that it is of.
func (d *draft) checkCalibration() {
	p, c := d.p, d.p.Calibration
	if c == nil {
		return
	}
	d.checkRecording(c.Recording)
	if c.Scope != "" && c.Scope != p.Scope && d.sound("scope", "calibration.scope") {
		d.fault("calibration.scope", "calibrated for %s, expected %s, the scope of the policy: its thresholds are not for another",
			c.Scope, p.Scope)
	}
	d.checkInterval("calibration.expected_coverage", c.ExpectedCoverage)
	d.checkInterval("calibration.expected_critical_fnr", c.ExpectedCriticalFNR)
	if c.Certificate != nil {
		d.checkCertificate(c.Certificate)
	}
}

func (d *draft) checkRecording(r Recording) {
	const inputs, critical, passes = "calibration.recording.inputs", "calibration.recording.critical_inputs",
		"calibration.recording.passes"
	if r.Inputs > 0 && r.CriticalInputs > r.Inputs && d.sound(inputs, critical) {
		d.fault(critical, "expected at most %d, the number of inputs, found %d", r.Inputs, r.CriticalInputs)
	}
	// Fewer passes than the policy takes are a fault, since no input that it
	// decides can be like those that it was calibrated on. More, or others than
	// expected, are warned of: clients may send as many.
	fewest := d.p.FewestPasses
	if r.Passes == 0 || !d.sound("kind", "passes.fewest", passes) {
		return
	}
	switch {
	case d.p.Kind == Dirichlet && r.Passes != 1:
		d.fault(passes, "expected 1 where kind is %s, found %d", Dirichlet, r.Passes)
	case r.Passes < fewest:
		d.fault(passes, "expected at least %d, the fewest passes that the policy accepts, found %d", fewest, r.Passes)
	}
}

// checkInterval wants low <= value <= high; a nil interval is in order.
func (d *draft) checkInterval(path string, i *Interval) {
	low, high := path+".low", path+".high"
	if i == nil || !d.sound(path+".value", low, high) {
		return
	}
	if i.Low > i.Value {
		d.fault(low, "expected at most the value %v, found %v", i.Value, i.Low)
	}
	if i.High < i.Value {
		d.fault(high, "expected at least the value %v, found %v", i.Value, i.High)
	}
}

func (d *draft) checkCertificate(c *Certificate) {
	const path = "calibration.certificate"
	for _, share := range []struct {
		field string
		value float64
	}{{"target", c.Target}, {"confidence", c.Confidence}} {
		if at := path + "." + share.field; d.has(at) && d.sound(at) && (share.value == 0 || share.value == 1) {
			d.fault(at, "expected a share above 0 and below 1, found %v", share.value)
		}
	}
	if c.Misses > c.Cases && d.sound(path+".cases", path+".misses") {
		d.fault(path+".misses", "expected at most %d, the number of cases, found %d", c.Cases, c.Misses)
	}
	if !d.sound(path + ".kind") {
		return
	}
	if c.Kind == LearnThenTest && !d.has(path+".confidence") && d.sound(path+".confidence") {
		d.fault(path+".confidence", "missing, expected the confidence that %s certified with", LearnThenTest)
	}
	if c.Kind == ConformalRiskControl {
		for _, at := range []string{path + ".confidence", path + ".p_value"} {
			if d.has(at) {
				d.fault(at, "expected none: %s bounds a mean, without a confidence or a test", ConformalRiskControl)
			}
		}
	}
}

// changedSinceCalibration reports whether the policy is known to be another than
// the one that was calibrated.
func (p *Policy) changedSinceCalibration() bool {
	return p.Calibration.PolicyHash != "" && p.Calibration.PolicyHash != p.Hash
}

// explainCalibration is what the policy was calibrated for, and what is
// expected and guaranteed of it.
func (p *Policy) explainCalibration() []string {
	sentences := []string{p.explainRecording()}
	if p.changedSinceCalibration() {
		sentences = append(sentences, "The policy was changed after its calibration: what is expected and certified there is "+
			"not of it, and nothing is guaranteed.")
	} else {
		sentences = append(sentences, p.Calibration.explainWorth()...)
	}
	if p.Calibration.Reference != nil {
		sentences = append(sentences, p.explainReference())
	}
	if attempt := p.Calibration.EarlierAttempt; attempt != "" {
		sentences = append(sentences,
			fmt.Sprintf("A certificate was sought on the same recording before (%s): a further one would be void.", attempt))
	}
	return sentences
}

// explainWorth is what is expected and guaranteed.
func (c *Calibration) explainWorth() []string {
	var sentences, expected []string
	if c.ExpectedCoverage != nil {
		expected = append(expected, fmt.Sprintf("%s of the inputs to be retained", c.ExpectedCoverage.explain()))
	}
	if c.ExpectedCriticalFNR != nil {
		expected = append(expected,
			fmt.Sprintf("%s of the critical inputs that are retained to be called safe", c.ExpectedCriticalFNR.explain()))
	}
	if len(expected) > 0 {
		sentences = append(sentences, fmt.Sprintf("By its calibration, expect %s.", strings.Join(expected, " and ")))
	}
	if c.Certificate == nil {
		return append(sentences, "It has no certificate: nothing is guaranteed.")
	}
	return append(sentences, c.Certificate.explain())
}

func (p *Policy) explainRecording() string {
	c, r := p.Calibration, p.Calibration.Recording
	s := "It was calibrated"
	if c.Software != "" {
		s += " by " + c.Software
	}
	if c.Objective != "" {
		s += " for " + c.Objective
	}
	if r.Inputs > 0 {
		s += fmt.Sprintf(" on %d inputs (%d critical)", r.Inputs, r.CriticalInputs)
	} else {
		s += " on inputs"
	}
	if p.Kind == Dirichlet {
		return s + "; its thresholds do not carry over to another model."
	}
	if r.Passes > 0 {
		s += fmt.Sprintf(" of %d passes", r.Passes)
	} else {
		s += " of an untold number of passes"
	}
	if c.Posterior != "" {
		s += " from " + c.Posterior
	} else {
		s += " from an untold posterior"
	}
	return s + "; its thresholds do not carry over to another number of passes or posterior."
}

func (p *Policy) explainReference() string {
	r := p.Calibration.Reference
	var classes []int
	for _, class := range r.Classes {
		classes = append(classes, class.Class)
	}
	var inputs, shifts []string
	for _, w := range drift.Windows {
		inputs = append(inputs, strconv.Itoa(w))
		shifts = append(shifts, fmt.Sprintf("%.3f", drift.SmallestVisible(w, r.Inputs)))
	}
	return fmt.Sprintf("Drift is looked for of %s, beside %d inputs: it is an alarm if a live C_k or skewness is above one of them "+
		"with a probability that differs from 0.5 by more than %s, over the last %s inputs.",
		p.list(classes), r.Inputs, alternatives(shifts), alternatives(inputs))
}

// alternatives is some words with or before the last.
func alternatives(words []string) string {
	last := len(words) - 1
	return strings.Join(words[:last], ", ") + " or " + words[last]
}

// explain is the share, with its interval where it has one.
func (i *Interval) explain() string {
	if !i.Told() {
		return percent(i.Value)
	}
	return fmt.Sprintf("%s (95%% interval %s to %s)", percent(i.Value), percent(i.Low), percent(i.High))
}

func (c *Certificate) explain() string {
	if c.Statement != "" {
		return fmt.Sprintf("Its certificate, by %s, states: %s", c.Kind, c.Statement)
	}
	var s string
	switch c.Kind {
	case LearnThenTest:
		s = fmt.Sprintf("Its certificate, by %s: with confidence %v, at most %s of the critical inputs that are retained "+
			"are called safe", c.Kind, c.Confidence, percent(c.Target))
	case ConformalRiskControl:
		s = fmt.Sprintf("Its certificate, by %s: on average, at most %s of the critical inputs are retained and called safe",
			c.Kind, percent(c.Target))
	}
	if c.Cases > 0 {
		s += fmt.Sprintf(" (%d of %d cases were)", c.Misses, c.Cases)
	}
	return s + ", for inputs drawn as those it was calibrated on."
}

// percent of a share, to three digits.
func percent(share float64) string { return strconv.FormatFloat(100*share, 'g', 3, 64) + "%" }

// warnOfCalibration is for policies that have one.
func (p *Policy) warnOfCalibration(warn warner) {
	c := p.Calibration
	if p.changedSinceCalibration() {
		warn("calibration.policy_hash", "the policy was changed after its calibration (its hash is now %s): what is expected "+
			"and certified is not of it", p.Hash)
	}
	passes := c.Recording.Passes
	if p.Kind != Dirichlet {
		switch {
		case passes == 0:
			warn("calibration.recording.passes", "not given: inputs with another number of passes are not noticed")
		case p.ExpectedPasses > 0 && passes != p.ExpectedPasses:
			warn("calibration.recording.passes", "calibrated on inputs of %d passes, but an input is answered when it has "+
				"%d: thresholds do not carry over", passes, p.ExpectedPasses)
		}
		if c.Posterior == "" {
			warn("calibration.posterior", "not given: passes that were sampled in another way are not noticed")
		}
	}
	if c.Reference != nil {
		p.warnOfReference(warn)
	}
	if c.Certificate != nil {
		if p.Observes() {
			warn("calibration.certificate", "the policy has no thresholds, so that nothing is guaranteed")
		}
		c.Certificate.warn(warn)
	}
}

// warnOfReference is for policies that have one.
func (p *Policy) warnOfReference(warn warner) {
	r := p.Calibration.Reference
	if shift := drift.SmallestVisible(drift.Windows[len(drift.Windows)-1], r.Inputs); shift >= 0.5 {
		warn("calibration.reference.inputs", "beside %d inputs no C_k is an alarm of drift, however large", r.Inputs)
	}
	var left []int
	for _, k := range p.Critical {
		if !slices.ContainsFunc(r.Classes, func(c drift.ClassReference) bool { return c.Class == k }) {
			left = append(left, k)
		}
	}
	if len(left) > 0 {
		warn("calibration.reference.classes", "%s not among them though critical: drift is not looked for there", p.listOr(left, ""))
	}
}

// warn where the certificate's own numbers do not bear it out.
func (c *Certificate) warn(warn warner) {
	const rounding = 1e-9
	switch {
	case c.Kind == LearnThenTest && c.PValue > 1-c.Confidence+rounding:
		warn("calibration.certificate.p_value", "%v is above %.3g, so that nothing is certified with confidence %v",
			c.PValue, 1-c.Confidence, c.Confidence)
	case c.Kind == ConformalRiskControl && c.Cases > 0 && float64(c.Misses+1) > (c.Target+rounding)*float64(c.Cases+1):
		warn("calibration.certificate.misses", "(%d + 1) / (%d + 1) is above the target of %v, which is not certified then",
			c.Misses, c.Cases, c.Target)
	}
}

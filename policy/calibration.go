package policy

import (
	"fmt"
	"slices"
	"strconv"
	"strings"

	"github.com/ckd-project/ckd/monitor/drift"
)

// Calibration says what the thresholds of a policy were calibrated from and for. Zero values are
// unknown.
type Calibration struct {
	// Software names what calibrated, with its version.
	Software string
	// PolicyHash is the hash of the policy when it was calibrated.
	PolicyHash string
	// Recording describes the labelled passes.
	Recording Recording
	// Posterior names how their passes were sampled, such as mc-dropout.
	Posterior string
	// Objective states in words what was asked for.
	Objective string
	// Scope is the policy's.
	Scope Scope
	// Seed drew the random choices. Files hold seeds up to the largest int.
	Seed uint64
	// ExpectedCoverage is the share of inputs retained, ExpectedCriticalMissRate the share of all
	// critical inputs that is retained and called safe, and ExpectedCriticalFNR the share of the
	// retained critical inputs that is called safe. They were estimated on inputs that did not
	// choose the rule.
	ExpectedCoverage, ExpectedCriticalMissRate, ExpectedCriticalFNR *Interval
	// Certificate says what is guaranteed; nil if nothing is.
	Certificate *Certificate
	// MeanRootRisk is the mean of the square root of the risk over the inputs that were retained and
	// called safe, in (0,1]. Audits that follow the risk are scaled by it.
	MeanRootRisk float64
	// Lines says what outcomes are tested against, where it was stated; see Policy.Lines.
	Lines *Lines
	// Reference holds what was seen of each class; nil if unknown.
	Reference *drift.Reference
	// EarlierAttempt says which certificate was sought on the same recording before. A further one
	// would be void.
	EarlierAttempt string
}

// Recording describes the labelled passes that a policy was calibrated on.
type Recording struct {
	PassesFile, PassesSHA256 string
	LabelsFile, LabelsSHA256 string
	Inputs, CriticalInputs   int
	// Passes of each input.
	Passes int
}

// Interval is a share with its 95% interval, Low <= Value <= High. An interval from 0 to 1 says
// nothing, and means that none is known.
type Interval struct {
	Value, Low, High float64
}

// Known reports whether the interval says anything.
func (i *Interval) Known() bool { return i.Low > 0 || i.High < 1 }

// Certificate states a guarantee for inputs drawn as those of the recording were.
type Certificate struct {
	Kind CertificateKind
	// Bounds says which figure it bounds. It is empty in older files; Limits knows what they mean.
	Bounds Figure
	// Class is the critical class whose inputs are counted; empty for all critical classes.
	Class string
	// Target is the largest share.
	Target float64
	// Confidence says how sure that is; only of LearnThenTest.
	Confidence float64
	// Groups counts the groups of inputs, such as patients, that it rests on. It is 0 if every input
	// was counted as independent of all others.
	Groups int
	// Cases counts the critical inputs that it rests on, Misses those of them that were missed.
	Cases, Misses int
	// PValue is the chance of so few misses if the target were exceeded; only of
	// LearnThenTest.
	PValue float64
	// Further limits hold at the same time, with the same confidence together.
	Further []CertifiedLimit
	// Statement puts the certificate into one plain sentence.
	Statement string
}

// CertifiedLimit is one share that a certificate bounds, with fields as those of Certificate.
type CertifiedLimit struct {
	Bounds        Figure
	Class         string
	Target        float64
	Cases, Misses int
	PValue        float64
}

// Figure names what a certificate bounds.
type Figure string

// The figures.
const (
	// CriticalMissRate is the share of all critical inputs that is retained and called safe.
	CriticalMissRate Figure = "critical-miss-rate"
	// CriticalFNR is the share of the retained critical inputs that is called safe.
	CriticalFNR Figure = "critical-fnr"
)

// Limits returns all that the certificate bounds.
func (c *Certificate) Limits() []CertifiedLimit {
	first := CertifiedLimit{c.Bounds, c.Class, c.Target, c.Cases, c.Misses, c.PValue}
	if first.Bounds == "" {
		first.Bounds = CriticalFNR
		if c.Kind == ConformalRiskControl {
			first.Bounds = CriticalMissRate
		}
	}
	return append([]CertifiedLimit{first}, c.Further...)
}

// IfIndependent ends what is said of a certificate that counts every input as independent.
const IfIndependent = "if inputs are independent (not several of one patient)"

// CertificateKind names the method that certified.
type CertificateKind string

// The kinds of certificates.
const (
	// LearnThenTest bounds figures with confidence.
	LearnThenTest CertificateKind = "learn-then-test"
	// ConformalRiskControl bounds the critical miss rate on average over recordings.
	ConformalRiskControl CertificateKind = "conformal-risk-control"
)

// changedSinceCalibration reports whether the policy is known to differ from the one that was
// calibrated.
func (p *Policy) changedSinceCalibration() bool {
	return p.Calibration.PolicyHash != "" && p.Calibration.PolicyHash != p.Hash
}

// calibration says what the policy was calibrated for, and what is expected and guaranteed.
func (e explainer) calibration() []string {
	sentences := []string{e.recording()}
	if e.changedSinceCalibration() {
		sentences = append(sentences, "The policy was changed after its calibration: what was expected and certified then no longer "+
			"holds, and nothing is guaranteed.")
	} else {
		sentences = append(sentences, e.Calibration.explainWorth()...)
	}
	if e.Calibration.Reference != nil {
		sentences = append(sentences, e.reference())
	}
	if attempt := e.Calibration.EarlierAttempt; attempt != "" {
		sentences = append(sentences,
			fmt.Sprintf("A certificate was sought on the same recording before (%s): a further one would be void.", attempt))
	}
	return sentences
}

// explainWorth says what is expected and guaranteed.
func (c *Calibration) explainWorth() []string {
	var sentences, expected []string
	if c.ExpectedCoverage != nil {
		expected = append(expected, fmt.Sprintf("%s of the inputs to be retained", c.ExpectedCoverage.explain()))
	}
	if c.ExpectedCriticalMissRate != nil {
		expected = append(expected,
			fmt.Sprintf("%s of all critical inputs to be retained and called safe", c.ExpectedCriticalMissRate.explain()))
	}
	if c.ExpectedCriticalFNR != nil {
		expected = append(expected,
			fmt.Sprintf("%s of the critical inputs that are retained to be called safe", c.ExpectedCriticalFNR.explain()))
	}
	if len(expected) > 0 {
		sentences = append(sentences, fmt.Sprintf("By its calibration, expect %s.", strings.Join(expected, ", and ")))
	}
	if c.Certificate == nil {
		return append(sentences, "It has no certificate: nothing is guaranteed.")
	}
	return append(sentences, c.Certificate.explain())
}

func (e explainer) recording() string {
	c, r := e.Calibration, e.Calibration.Recording
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
	if e.Kind == Dirichlet {
		return s + "; its thresholds do not carry over to another model."
	}
	if r.Passes > 0 {
		s += fmt.Sprintf(" of %d passes", r.Passes)
	} else {
		s += " of an unknown number of passes"
	}
	if c.Posterior != "" {
		s += " from " + c.Posterior
	} else {
		s += " from an unknown posterior"
	}
	return s + "; its thresholds do not carry over to another number of passes or posterior."
}

func (e explainer) reference() string {
	r := e.Calibration.Reference
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
		e.list(classes), r.Inputs, alternatives(shifts), alternatives(inputs))
}

// alternatives joins words, with "or" before the last.
func alternatives(words []string) string {
	last := len(words) - 1
	return strings.Join(words[:last], ", ") + " or " + words[last]
}

// explain returns the share, with its interval if one is known.
func (i *Interval) explain() string {
	if !i.Known() {
		return percent(i.Value)
	}
	return fmt.Sprintf("%s (95%% interval %s to %s)", percent(i.Value), percent(i.Low), percent(i.High))
}

func (c *Certificate) explain() string {
	if c.Statement != "" {
		return fmt.Sprintf("Its certificate, by %s, states: %s", c.Kind, c.Statement)
	}
	s := fmt.Sprintf("Its certificate, by %s: ", c.Kind)
	if c.Kind == LearnThenTest {
		s += fmt.Sprintf("with confidence %v, ", c.Confidence)
	} else {
		s += "on average, "
	}
	for i, limit := range c.Limits() {
		if i > 0 {
			s += ", and "
		}
		s += limit.explain()
	}
	s += ", for inputs drawn as those it was calibrated on"
	if c.Groups == 0 {
		return s + ", " + IfIndependent + "."
	}
	return s + fmt.Sprintf(" (%d groups).", c.Groups)
}

func (l CertifiedLimit) explain() string {
	s := fmt.Sprintf("at most %s of the %s are retained and called safe", percent(l.Target), l.population())
	if l.Cases > 0 {
		s += fmt.Sprintf(" (%d of %d cases were)", l.Misses, l.Cases)
	}
	return s
}

// population says in words which inputs the limit is a share of.
func (l CertifiedLimit) population() string {
	s := "critical inputs"
	if l.Class != "" {
		s = "inputs of class " + l.Class
	}
	if l.Bounds == CriticalFNR {
		s = "retained " + s
	}
	return s
}

// percent returns a share in percent, to three digits.
func percent(share float64) string { return strconv.FormatFloat(100*share, 'g', 3, 64) + "%" }

// calibration warns about the policy's calibration.
func (w *warnings) calibration() {
	c := w.Calibration
	if w.changedSinceCalibration() {
		w.add("calibration.policy_hash", "the policy was changed after its calibration (its hash is now %s): what is expected "+
			"and certified is not of it", w.Hash)
	}
	passes := c.Recording.Passes
	if w.Kind != Dirichlet {
		switch {
		case passes == 0:
			w.add("calibration.recording.passes", "not given: inputs with another number of passes are not noticed")
		case w.ExpectedPasses > 0 && passes != w.ExpectedPasses:
			w.add("calibration.recording.passes", "calibrated on inputs of %d passes, but an input is answered when it has "+
				"%d: thresholds do not carry over", passes, w.ExpectedPasses)
		}
		if c.Posterior == "" {
			w.add("calibration.posterior", "not given: passes that were sampled in another way are not noticed")
		}
	}
	if c.Reference != nil {
		w.reference()
	}
	if c.Certificate != nil {
		if w.Observes() {
			w.add("calibration.certificate", "the policy has no thresholds, so that nothing is guaranteed")
		}
		w.certificate(c.Certificate)
	}
}

// reference warns about the reference for drift.
func (w *warnings) reference() {
	r := w.Calibration.Reference
	if shift := drift.SmallestVisible(drift.Windows[len(drift.Windows)-1], r.Inputs); shift >= 0.5 {
		w.add("calibration.reference.inputs", "beside %d inputs no C_k is an alarm of drift, however large", r.Inputs)
	}
	var left []int
	for _, k := range w.Critical {
		if !slices.ContainsFunc(r.Classes, func(c drift.ClassReference) bool { return c.Class == k }) {
			left = append(left, k)
		}
	}
	if len(left) > 0 {
		w.add("calibration.reference.classes", "%s not among them though critical: drift is not looked for there", w.listOr(left, ""))
	}
}

// certificate warns if the certificate's own numbers do not support it.
func (w *warnings) certificate(c *Certificate) {
	const rounding = 1e-9
	switch {
	case c.Kind == LearnThenTest:
		for _, limit := range c.Limits() {
			if limit.PValue > 1-c.Confidence+rounding {
				w.add("calibration.certificate.p_value", "%v is above %.3g, so that nothing is certified with confidence %v",
					limit.PValue, 1-c.Confidence, c.Confidence)
			}
		}
	case c.Groups == 0 && c.Cases > 0 && float64(c.Misses+1) > (c.Target+rounding)*float64(c.Cases+1):
		w.add("calibration.certificate.misses", "(%d + 1) / (%d + 1) is above the target of %v, which is not certified then",
			c.Misses, c.Cases, c.Target)
	}
}

package policy

import (
	"fmt"
	"slices"

	"github.com/ckd-project/ckd/internal/strictyaml"
)

// Calibration says what the thresholds of a policy were calibrated from and for. Zero values are
// unknown. It decides nothing, and the hash covers the lines alone that follow from it.
type Calibration struct {
	// What calibrated, with its version.
	Software string `key:"software"`
	// The hash of the policy as it was calibrated, without its lines. A policy with another was changed
	// since.
	PolicyHash string `key:"policy_hash" form:"sha256"`
	// The labelled passes that it was calibrated on.
	Recording Recording `key:"recording"`
	// How the passes were sampled, as in mc-dropout, low-rank-vi or ensemble. Streams and requests that
	// state another are counted as a mismatch.
	Posterior string `key:"posterior" form:"name"`
	// What was asked for, as in coverage 0.8.
	Objective string `key:"objective"`
	// The scope that it was calibrated for, which is the policy's.
	Scope Scope `key:"scope"`
	// The seed of its random choices.
	Seed uint64 `key:"seed" range:">=0"`
	// The share of inputs that is retained, as estimated on inputs that the rule was not chosen on.
	ExpectedCoverage *Interval `key:"expected_coverage"`
	// The share of all critical inputs that is retained and called safe, in the same way.
	ExpectedCriticalMissRate *Interval `key:"expected_critical_miss_rate"`
	// The same share of the inputs of single critical classes, where there are several.
	ExpectedClassMissRate []ClassInterval `key:"expected_class_miss_rate"`
	// The mean of the square root of the risk over the inputs that were retained and called safe.
	// Audits that follow the risk are scaled by it.
	MeanRootRisk float64 `key:"mean_root_risk" range:"0..1"`
	// What outcomes are tested against, where a person states less than what was certified or, without a
	// certificate, than the upper end of what is expected. It may not be more.
	Lines *StatedLines `key:"lines"`
	// The guarantee, for inputs drawn as those of the recording were.
	Certificate *Certificate `key:"certificate"`
	// Why the recording supports no policy, where this one was written all the same.
	Unsupported string `key:"unsupported" form:"sentence"`
	// Which certificate was sought on the same recording before. A further one would be void.
	EarlierAttempt string `key:"earlier_attempt" form:"sentence"`
	// What the calibration saw of each class. The daemon reports how far live inputs have moved away
	// from it.
	Reference *Reference `key:"reference"`
}

// Recording describes the labelled passes that a policy was calibrated on.
type Recording struct {
	// The file with the passes.
	PassesFile string `key:"passes_file"`
	// Its SHA-256.
	PassesSHA256 string `key:"passes_sha256" form:"sha256"`
	// The file with the true classes.
	LabelsFile string `key:"labels_file"`
	// Its SHA-256.
	LabelsSHA256 string `key:"labels_sha256" form:"sha256"`
	// How many inputs it has.
	Inputs int `key:"inputs" range:"1..2147483647"`
	// How many of these are critical.
	CriticalInputs int `key:"critical_inputs" range:"0..2147483647"`
	// How many passes each of them has. Inputs with another number are counted as a mismatch.
	Passes int `key:"passes" range:"1..1000000"`
}

// Interval is a share with its 95% interval, Low <= Value <= High. An interval from 0 to 1 says
// nothing, and means that none is known.
type Interval struct {
	// The share.
	Value float64 `key:"value,required" range:"0..1"`
	// The lower end of its 95% interval.
	Low float64 `key:"low,required" range:"0..1"`
	// The upper end.
	High float64 `key:"high,required" range:"0..1"`
}

// ClassInterval is the share of one class with its 95% interval.
type ClassInterval struct {
	// A critical class.
	Class    string `key:"class,required" form:"class"`
	Interval `key:",inline"`
}

// Known reports whether the interval says anything.
func (i *Interval) Known() bool { return i.Low > 0 || i.High < 1 }

// Certificate states a guarantee for inputs drawn as those of the recording were.
type Certificate struct {
	// The method that certified.
	Kind CertificateKind `key:"kind,required" json:"kind"`
	// What it bounds: the share that is retained and called safe of all critical inputs
	// (critical-miss-rate) or of those that are retained (critical-fnr).
	Bounds Figure `key:"bounds,required" json:"bounds"`
	// The critical class whose inputs alone are counted; none for all critical classes.
	Class string `key:"class" form:"class" json:"class,omitempty"`
	// The share that is not exceeded.
	Target float64 `key:"target,required" range:"(0..1)" json:"target"`
	// With what probability it holds.
	Confidence float64 `key:"confidence,required" range:"(0..1)" json:"confidence,omitempty"`
	// How many groups of inputs, such as patients, it rests on; none if all inputs were counted as
	// independent.
	Groups int `key:"groups" range:"0..2147483647" json:"groups,omitempty"`
	// The critical inputs that it rests on: of critical-fnr those retained, of critical-miss-rate all.
	Cases int `key:"cases" range:"0..2147483647" json:"cases"`
	// How many of the cases were missed.
	Misses int `key:"misses" range:"0..2147483647" json:"misses"`
	// The chance of so few misses if the target were exceeded.
	PValue float64 `key:"p_value" range:"0..1" json:"p_value,omitempty"`
	// Further shares that it bounds at the same time, with the same confidence for all together.
	Further []CertifiedLimit `key:"further" json:"further,omitempty"`
	// The certificate in one plain sentence.
	Statement string `key:"statement" form:"sentence" json:"statement"`
}

// CertifiedLimit is one share that a certificate bounds, with fields as those of Certificate.
type CertifiedLimit struct {
	// What it bounds.
	Bounds Figure `key:"bounds,required" json:"bounds"`
	// The critical class whose inputs alone are counted; none for all critical classes.
	Class string `key:"class" form:"class" json:"class,omitempty"`
	// The share that is not exceeded.
	Target float64 `key:"target,required" range:"(0..1)" json:"target"`
	// The critical inputs that it rests on.
	Cases int `key:"cases" range:"0..2147483647" json:"cases"`
	// How many of them were missed.
	Misses int `key:"misses" range:"0..2147483647" json:"misses"`
	// The chance of so few misses if the target were exceeded.
	PValue float64 `key:"p_value" range:"0..1" json:"p_value"`
}

// Figure names a share of critical inputs that is missed: what a certificate bounds and a line is of.
type Figure string

// The figures.
const (
	// CriticalMissRate is the share of all critical inputs that is retained and called safe.
	CriticalMissRate Figure = "critical-miss-rate"
	// CriticalFNR is the share of the retained critical inputs that is called safe.
	CriticalFNR Figure = "critical-fnr"
)

// figures has all figures, the one that leads first.
var figures = []Figure{CriticalMissRate, CriticalFNR}

// Words returns the words for a figure.
func (f Figure) Words() string {
	switch f {
	case CriticalMissRate:
		return "critical miss rate"
	case CriticalFNR:
		return "critical FNR"
	}
	return string(f)
}

// Of returns the words for a figure of one class, such as critical miss rate of melanoma, or (without
// one) of all critical classes.
func (f Figure) Of(class string) string {
	if class == "" {
		return f.Words()
	}
	return f.Words() + " of " + class
}

// Limits returns all that the certificate bounds.
func (c *Certificate) Limits() []CertifiedLimit {
	return append([]CertifiedLimit{{c.Bounds, c.Class, c.Target, c.Cases, c.Misses, c.PValue}}, c.Further...)
}

// IfIndependent ends what is said of a certificate that counts every input as independent.
const IfIndependent = "if inputs are independent (not several of one patient)"

// CertificateKind names the method that certified.
type CertificateKind string

// LearnThenTest bounds figures with confidence.
const LearnThenTest CertificateKind = "learn-then-test"

// Reference holds what a calibration saw of a model, which live inputs are compared with.
type Reference struct {
	// How many inputs it holds.
	Inputs int `key:"inputs,required" range:"1..2147483647"`
	// The classes that are compared, each once.
	Classes []ClassReference `key:"classes,required"`
}

// ClassReference holds what a calibration saw of one class.
type ClassReference struct {
	// The class: by name in files, by position here.
	Class int `key:"class,required" form:"class"`
	// The share of the inputs for which it was predicted.
	Predicted float64 `key:"predicted,required" range:"0..1"`
	// The quantiles of its C_k, in nats, of the levels 0, 1/64, 2/64, up to 1.
	Epistemic []float64 `key:"epistemic,required" range:">=0"`
	// The quantiles of its skewness ratio, of the same levels.
	Skewness []float64 `key:"skewness,required" range:">=0"`
}

// Levels is the number of quantiles of a distribution. Between two of them lies a 64th of the inputs.
const Levels = 65

// validate reports where a calibration contradicts itself or its policy.
func (c *Calibration) validate(b *builder, p *Policy) {
	if c == nil {
		return
	}
	c.Recording.validate(b, p)
	if c.Scope != "" && c.Scope != p.Scope && b.sound("scope", "calibrated.scope") {
		b.fault("calibrated.scope", "calibrated for %s, expected %s, the scope of the policy: its thresholds are not for another",
			c.Scope, p.Scope)
	}
	c.ExpectedCoverage.validate(b, "calibrated.expected_coverage")
	c.ExpectedCriticalMissRate.validate(b, "calibrated.expected_critical_miss_rate")
	var classes []string
	for i := range c.ExpectedClassMissRate {
		one := &c.ExpectedClassMissRate[i]
		one.validate(b, fmt.Sprintf("calibrated.expected_class_miss_rate[%d]", i))
		classes = append(classes, one.Class)
	}
	b.checkCriticalClasses("calibrated.expected_class_miss_rate", classes)
	c.Certificate.validate(b)
	c.Lines.validate(b)
	c.Reference.validate(b)
}

// validate wants no more critical inputs than inputs, and no fewer passes than the policy takes: no
// input that it decides could be like those that it was calibrated on. Other numbers of passes get a
// warning, since clients may send as many.
func (r *Recording) validate(b *builder, p *Policy) {
	const path = "calibrated.recording"
	if r.Inputs > 0 && r.CriticalInputs > r.Inputs {
		b.fault(path+".critical_inputs", "expected at most %d, the number of inputs, found %d", r.Inputs, r.CriticalInputs)
	}
	switch {
	case r.Passes == 0 || !b.sound("kind", "passes.fewest"):
	case p.Kind == Dirichlet && r.Passes != 1:
		b.fault(path+".passes", "expected 1 where kind is %s, found %d", Dirichlet, r.Passes)
	case r.Passes < p.FewestPasses:
		b.fault(path+".passes", "expected at least %d, the fewest passes that the policy accepts, found %d", p.FewestPasses, r.Passes)
	}
}

// validate wants low <= value <= high.
func (i *Interval) validate(b *builder, path string) {
	if i != nil && b.sound(path+".value", path+".low", path+".high") && !(i.Low <= i.Value && i.Value <= i.High) {
		b.fault(path, "expected low <= value <= high, found %v, %v and %v", i.Low, i.Value, i.High)
	}
}

// validate wants what the method of the certificate needs, and nothing that it cannot have.
func (c *Certificate) validate(b *builder) {
	if c == nil {
		return
	}
	const path = "calibrated.certificate"
	for i, limit := range c.Limits() {
		at := path
		if i > 0 {
			at = fmt.Sprintf("%s.further[%d]", path, i-1)
		}
		if limit.Misses > limit.Cases {
			b.fault(at+".misses", "expected at most %d, the number of cases, found %d", limit.Cases, limit.Misses)
		}
		b.checkCritical(at+".class", limit.Class)
	}
}

// checkCritical wants the name of a critical class, or none.
func (b *builder) checkCritical(path, class string) {
	if k, known := b.classIndex()[class]; class != "" && b.sound("critical", path) && !(known && has(b.p.Critical, k)) {
		b.fault(path, "%q is not critical, expected a critical class or none", class)
	}
}

// checkCriticalClasses wants a list of entries for critical classes, each at most once.
func (b *builder) checkCriticalClasses(path string, classes []string) {
	for i, class := range classes {
		at := fmt.Sprintf("%s[%d]", path, i)
		if slices.Contains(classes[:i], class) && class != "" {
			b.fault(at, "%s is given twice", strictyaml.Quote(class))
		}
		b.checkCritical(at+".class", class)
	}
}

// validate wants each class once, and shares of a whole.
func (r *Reference) validate(b *builder) {
	if r == nil {
		return
	}
	const path, rounding = "calibrated.reference.classes", 1e-3
	seen, sum := make(map[int]bool), 0.0
	for i, class := range r.Classes {
		if class.Class != noClass && seen[class.Class] {
			b.fault(fmt.Sprintf("%s[%d]", path, i), "the class is given twice")
		}
		seen[class.Class] = true
		sum += class.Predicted
	}
	if sum > 1+rounding {
		b.fault(path, "expected shares predicted of at most 1 together, found %.4g", sum)
	}
}

// ChangedSinceCalibration reports whether the policy is known to decide otherwise than the one that
// was calibrated.
func (p *Policy) ChangedSinceCalibration() bool {
	c := p.Calibration
	return c != nil && c.PolicyHash != "" && c.PolicyHash != p.HashWithoutLines()
}

// calibration warns about the policy's calibration.
func (w *warnings) calibration() {
	c := w.Calibration
	if w.ChangedSinceCalibration() {
		w.add("calibrated.policy_hash", "the policy was changed after its calibration (its hash without lines is now %s): what was expected and "+
			"certified is not of it", w.HashWithoutLines())
	}
	passes := c.Recording.Passes
	if w.Kind != Dirichlet {
		switch {
		case passes == 0:
			w.add("calibrated.recording.passes", "missing: inputs with another number of passes are not noticed")
		case w.ExpectedPasses > 0 && passes != w.ExpectedPasses:
			w.add("calibrated.recording.passes", "calibrated on inputs of %d passes, but an input is answered at %d: thresholds do not carry over", passes, w.ExpectedPasses)
		}
	}
	if c.Reference != nil {
		w.reference()
	}
	if c.Unsupported != "" {
		w.add("calibrated.unsupported", "%s", c.Unsupported)
	}
	if c.Certificate != nil && w.Observes() {
		w.add("calibrated.certificate", "nothing is guaranteed: the policy has no thresholds")
	}
}

// fewReferenceInputs is the number of inputs from which on drift can be an alarm at all: beside fewer,
// drift.SmallestVisible of its longest window is at least 1/2.
const fewReferenceInputs = 11

// reference warns about the reference for drift.
func (w *warnings) reference() {
	r := w.Calibration.Reference
	if r.Inputs < fewReferenceInputs {
		w.add("calibrated.reference.inputs", "beside %d inputs no drift can raise an alarm, expected %d or more", r.Inputs, fewReferenceInputs)
	}
	var left []int
	for _, k := range w.Critical {
		if !slices.ContainsFunc(r.Classes, func(c ClassReference) bool { return c.Class == k }) {
			left = append(left, k)
		}
	}
	if len(left) > 0 {
		w.add("calibrated.reference.classes", "critical classes are missing, and their drift is not looked for: %s", w.list(left))
	}
}

package policy

import (
	"fmt"
	"slices"

	"github.com/ckd-project/ckd/internal/strictyaml"
	"github.com/ckd-project/ckd/monitor/drift"
)

// calibrationRules hold the block calibration to what it says itself and to the policy. The block
// decides nothing: they change neither.
type calibrationRules struct {
	*builder
	p *Policy
}

// check checks that a calibration contradicts neither itself nor its policy.
func (b calibrationRules) check() {
	p, c := b.p, b.p.Calibration
	if c == nil {
		return
	}
	b.checkRecording(c.Recording)
	if c.Reference != nil {
		b.checkReference(c.Reference)
	}
	if c.Scope != "" && c.Scope != p.Scope && b.sound("scope", "calibration.scope") {
		b.fault("calibration.scope", "calibrated for %s, expected %s, the scope of the policy: its thresholds are not for another",
			c.Scope, p.Scope)
	}
	b.checkInterval("calibration.expected_coverage", c.ExpectedCoverage)
	b.checkInterval("calibration.expected_critical_miss_rate", c.ExpectedCriticalMissRate)
	b.checkInterval("calibration.expected_critical_fnr", c.ExpectedCriticalFNR)
	if c.Certificate != nil {
		b.checkCertificate(c.Certificate)
	}
	if c.Lines != nil {
		b.checkLines(c.Lines)
	}
}

func (b calibrationRules) checkRecording(r Recording) {
	const inputs, critical, passes = "calibration.recording.inputs", "calibration.recording.critical_inputs",
		"calibration.recording.passes"
	if r.Inputs > 0 && r.CriticalInputs > r.Inputs && b.sound(inputs, critical) {
		b.fault(critical, "expected at most %d, the number of inputs, found %d", r.Inputs, r.CriticalInputs)
	}
	// Fewer passes than the policy takes are a fault: no input that it decides can be like those
	// that it was calibrated on. Other numbers of passes get a warning only, since clients may send
	// as many.
	fewest := b.p.FewestPasses
	if r.Passes == 0 || !b.sound("kind", "passes.fewest", passes) {
		return
	}
	switch {
	case b.p.Kind == Dirichlet && r.Passes != 1:
		b.fault(passes, "expected 1 where kind is %s, found %d", Dirichlet, r.Passes)
	case r.Passes < fewest:
		b.fault(passes, "expected at least %d, the fewest passes that the policy accepts, found %d", fewest, r.Passes)
	}
}

// checkReference wants each class once, and shares of a whole.
func (b calibrationRules) checkReference(r *drift.Reference) {
	const path = "calibration.reference.classes"
	if len(r.Classes) == 0 && b.sound(path) {
		b.fault(path, "expected at least one class")
	}
	first, sum := make(map[int]string), 0.0
	for i := range r.Classes {
		at := fmt.Sprintf("%s[%d]", path, i)
		class := &r.Classes[i]
		if class.Class < 0 {
			continue // has a fault
		}
		if before, twice := first[class.Class]; twice {
			b.fault(at, "the class is given twice, first at %s", b.where(before))
			continue
		}
		first[class.Class] = at
		sum += class.Predicted
	}
	const rounding = 1e-3
	if sum > 1+rounding {
		b.fault(path, "expected shares predicted of at most 1 together, found %.4g", sum)
	}
}

// checkInterval checks that low <= value <= high. A nil interval passes.
func (b calibrationRules) checkInterval(path string, i *Interval) {
	low, high := path+".low", path+".high"
	if i == nil || !b.sound(path+".value", low, high) {
		return
	}
	if i.Low > i.Value {
		b.fault(low, "expected at most the value %v, found %v", i.Value, i.Low)
	}
	if i.High < i.Value {
		b.fault(high, "expected at least the value %v, found %v", i.Value, i.High)
	}
}

func (b calibrationRules) checkCertificate(c *Certificate) {
	const path = "calibration.certificate"
	const confidence, pValue = path + ".confidence", path + ".p_value"
	hasConfidence := b.given(confidence, c.Confidence == 0)
	b.checkShare(path+".target", c.Target)
	if hasConfidence {
		b.checkShare(confidence, c.Confidence)
	}
	b.checkLimit(path, c.Limits()[0])
	for i, limit := range c.Further {
		at := fmt.Sprintf("%s.further[%d]", path, i)
		b.checkShare(at+".target", limit.Target)
		b.checkLimit(at, limit)
	}
	if !b.sound(path + ".kind") {
		return
	}
	const none = "expected none: %s bounds a mean, without a confidence or a test"
	switch {
	case c.Kind == ConformalRiskControl && c.Bounds == CriticalFNR && b.sound(path+".bounds"):
		b.fault(path+".bounds", "expected %s, which alone %s can bound", CriticalMissRate, ConformalRiskControl)
	case c.Kind == ConformalRiskControl && len(c.Further) > 0 && b.sound(path+".further"):
		b.fault(path+".further", "expected none: %s bounds one share", ConformalRiskControl)
	case c.Kind == LearnThenTest && !hasConfidence && b.sound(confidence):
		b.fault(confidence, "missing, expected the confidence that %s certified with", LearnThenTest)
	case c.Kind == ConformalRiskControl && hasConfidence:
		b.fault(confidence, none, ConformalRiskControl)
	}
	if c.Kind == ConformalRiskControl && b.given(pValue, c.PValue == 0) {
		b.fault(pValue, none, ConformalRiskControl)
	}
}

// checkLimit wants a critical class, or none, and no more misses than cases.
func (b calibrationRules) checkLimit(path string, l CertifiedLimit) {
	if l.Misses > l.Cases && b.sound(path+".cases", path+".misses") {
		b.fault(path+".misses", "expected at most %d, the number of cases, found %d", l.Cases, l.Misses)
	}
	b.checkCritical(path+".class", l.Class)
}

// checkCritical wants the name of a critical class, or none.
func (b calibrationRules) checkCritical(path, class string) {
	if class != "" && b.sound("critical", path) && !slices.Contains(b.Critical, class) {
		b.fault(path, "%q is not critical, expected a critical class or none", class)
	}
}

// checkLines wants shares above 0 and below 1, and each critical class at most once.
func (b calibrationRules) checkLines(l *Lines) {
	const path = "calibration.lines"
	for _, share := range []struct {
		path string
		line float64
	}{{path + ".critical_fnr", l.CriticalFNR}, {path + ".critical_miss_rate", l.CriticalMissRate}} {
		if b.given(share.path, share.line == 0) {
			b.checkShare(share.path, share.line)
		}
	}
	first := make(map[string]string)
	for i, c := range l.Classes {
		at := fmt.Sprintf("%s.classes[%d]", path, i)
		b.checkShare(at+".critical_fnr", c.CriticalFNR)
		if before, twice := first[c.Class]; twice && c.Class != "" {
			b.fault(at, "%s is given twice, first at %s", strictyaml.Quote(c.Class), b.where(before))
			continue
		}
		first[c.Class] = at
		b.checkCritical(at+".class", c.Class)
	}
}

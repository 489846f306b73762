package policy

import (
	"cmp"
	"fmt"
	"slices"
)

// StatedLines are lines that a person states, each in place of the one that the calibration gives.
// They may lower a line, and not raise it. A line on the critical FNR cannot be stated: only a
// certificate gives one.
type StatedLines struct {
	// Of the share of all critical inputs that is retained and called safe: above this the alarm is due.
	CriticalMissRate float64 `key:"critical_miss_rate" range:"(0..1)"`
	// The same for inputs of one critical class.
	Classes []ClassLine `key:"classes"`
	// Who states them.
	By string `key:"by,required" form:"person"`
	// The day on which they were stated, as in 2026-11-03.
	On string `key:"on,required" form:"date"`
}

// ClassLine is the line of one critical class.
type ClassLine struct {
	// A critical class.
	Class string `key:"class,required" form:"class"`
	// The share of all inputs that are truly of this class that is retained and called safe.
	CriticalMissRate float64 `key:"critical_miss_rate,required" range:"(0..1)"`
}

// Line is what the outcomes of one figure are tested against, and where it comes from.
type Line struct {
	Bounds Figure     `json:"bounds"`
	Class  string     `json:"class,omitempty"` // empty for all critical classes
	Above  float64    `json:"above"`
	From   LineOrigin `json:"from"`
	By     string     `json:"by,omitempty"` // who stated it
	On     string     `json:"on,omitempty"` // and when
}

// LineOrigin says where a line comes from.
type LineOrigin string

// The origins.
const (
	CertifiedLine LineOrigin = "certified" // the target of a Learn-then-Test certificate
	ExpectedLine  LineOrigin = "expected"  // the upper end of the 95% interval of the expected share
	StatedLine    LineOrigin = "stated"    // what a person wrote into calibrated.lines
)

// Origin returns the words for where the line comes from, as every statement about it has them.
func (l Line) Origin() string {
	switch l.From {
	case ExpectedLine:
		return "expected at most"
	case StatedLine:
		return fmt.Sprintf("stated by %s on %s", l.By, l.On)
	}
	return string(l.From)
}

// Figure returns the words for what the line is of, such as critical miss rate of melanoma.
func (l Line) Figure() string { return l.Bounds.Of(l.Class) }

// sameFigure reports whether two lines are of one figure.
func (l Line) sameFigure(other Line) bool { return l.Bounds == other.Bounds && l.Class == other.Class }

// LineOf returns the line of a figure, of one class or (without one) of all critical classes, or a
// zero Line for none.
func LineOf(lines []Line, figure Figure, class string) Line {
	i := slices.IndexFunc(lines, Line{Bounds: figure, Class: class}.sameFigure)
	if i < 0 {
		return Line{}
	}
	return lines[i]
}

// LinesInForce returns what outcomes are tested against: the lines that are stated, and of other
// figures those that follow from the calibration, which a policy that was changed since does not
// have. Critical miss rates come before critical FNRs, all critical classes before single ones, which
// come in their order. The call computes a hash: make it once for a policy.
func (p *Policy) LinesInForce() []Line {
	c := p.Calibration
	if c == nil {
		return nil
	}
	lines := c.Lines.lines()
	if !p.ChangedSinceCalibration() {
		for _, l := range c.DerivedLines() {
			if !slices.ContainsFunc(lines, l.sameFigure) {
				lines = append(lines, l)
			}
		}
	}
	slices.SortStableFunc(lines, func(a, b Line) int {
		place := func(f Figure) int { return slices.Index(figures, f) }
		return cmp.Or(cmp.Compare(place(a.Bounds), place(b.Bounds)), cmp.Compare(slices.Index(p.Classes, a.Class), slices.Index(p.Classes, b.Class)))
	})
	return lines
}

// lines returns the lines that are stated.
func (s *StatedLines) lines() (lines []Line) {
	if s == nil {
		return nil
	}
	add := func(class string, above float64) {
		if above > 0 {
			lines = append(lines, Line{CriticalMissRate, class, above, StatedLine, s.By, s.On})
		}
	}
	add("", s.CriticalMissRate)
	for _, c := range s.Classes {
		add(c.Class, c.CriticalMissRate)
	}
	return lines
}

// DerivedLines returns the lines that follow from what was certified and expected: the target of a
// certificate of the same share, or else the upper end of the 95% interval of the expected critical
// miss rate. An expected share itself is no line, since half of all policies lie above it from the
// first day.
func (c *Calibration) DerivedLines() (lines []Line) {
	add := func(l Line) {
		if l.Above > 0 && l.Above < 1 && !slices.ContainsFunc(lines, l.sameFigure) {
			lines = append(lines, l)
		}
	}
	if c.Certificate != nil {
		for _, limit := range c.Certificate.Limits() {
			add(Line{Bounds: limit.Bounds, Class: limit.Class, Above: limit.Target, From: CertifiedLine})
		}
	}
	expect := func(class string, share *Interval) {
		if share != nil {
			add(Line{Bounds: CriticalMissRate, Class: class, Above: share.High, From: ExpectedLine})
		}
	}
	expect("", c.ExpectedCriticalMissRate)
	for i := range c.ExpectedClassMissRate {
		expect(c.ExpectedClassMissRate[i].Class, &c.ExpectedClassMissRate[i].Interval)
	}
	return lines
}

// validate wants each critical class at most once.
func (s *StatedLines) validate(b *builder) {
	if s == nil {
		return
	}
	var classes []string
	for _, c := range s.Classes {
		classes = append(classes, c.Class)
	}
	b.checkCriticalClasses("calibrated.lines.classes", classes)
}

// checkLowered wants no line above the one that the calibration gives. It needs the rest of the
// policy, for a policy that was changed since has none of those.
func (s *StatedLines) checkLowered(b *builder, p *Policy) {
	if s == nil || p.ChangedSinceCalibration() {
		return
	}
	derived, path := p.Calibration.DerivedLines(), "calibrated.lines."
	for _, l := range s.lines() {
		at := path + "critical_miss_rate"
		if l.Class != "" {
			i := slices.IndexFunc(s.Classes, func(c ClassLine) bool { return c.Class == l.Class })
			at = fmt.Sprintf("%sclasses[%d].critical_miss_rate", path, i)
		}
		if given := LineOf(derived, l.Bounds, l.Class); given.Above > 0 && l.Above > given.Above {
			b.fault(at, "expected no more than %v, the line of its calibration (%s), found %v: a policy only lowers lines; the ledger of "+
				"outcomes raises them, by right, name and reason", given.Above, given.Origin(), l.Above)
		}
	}
}

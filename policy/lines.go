package policy

// Lines says what outcomes are tested against: while a share is at or below its line, an alarm is
// rare. Each is in (0,1); 0 means that there is none.
type Lines struct {
	// Of the share of critical inputs, among those retained, that is called safe: above this the alarm
	// is due.
	CriticalFNR float64 `key:"critical_fnr" range:"(0..1)"`
	// The same of the share of all critical inputs that is retained and called safe.
	CriticalMissRate float64 `key:"critical_miss_rate" range:"(0..1)"`
	// The same for inputs of one critical class.
	Classes []ClassLine `key:"classes"`
}

// ClassLine is the line of one critical class: of the share of its retained inputs that is called
// safe.
type ClassLine struct {
	// A critical class.
	Class string `key:"class,required" form:"class"`
	// The share of the retained inputs that are truly of this class that is called safe.
	CriticalFNR float64 `key:"critical_fnr,required" range:"(0..1)"`
}

// Of returns the line of a critical class by its name, or 0 for none.
func (l *Lines) Of(class string) float64 {
	for _, c := range l.Classes {
		if c.Class == class {
			return c.CriticalFNR
		}
	}
	return 0
}

// Lines returns the lines that its calibration states, or else those that follow from it: see
// Calibration.DerivedLines. A policy that was changed since has only those that are stated.
func (p *Policy) Lines() Lines {
	switch c := p.Calibration; {
	case c == nil:
		return Lines{}
	case c.Lines != nil:
		return *c.Lines
	case p.changedSinceCalibration():
		return Lines{}
	default:
		return c.DerivedLines()
	}
}

// DerivedLines returns the lines that follow from what was certified and expected: the target of a
// certificate of the same share, or else the upper end of the 95% interval of the
// expected share. An expected share itself is no line, since half of all policies lie above it from
// the first day.
func (c *Calibration) DerivedLines() Lines {
	var l Lines
	if cert := c.Certificate; cert != nil {
		for _, limit := range cert.Limits() {
			switch {
			case limit.Class == "" && limit.Bounds == CriticalFNR:
				l.CriticalFNR = limit.Target
			case limit.Class == "":
				l.CriticalMissRate = limit.Target
			case limit.Bounds == CriticalFNR && l.Of(limit.Class) == 0:
				l.Classes = append(l.Classes, ClassLine{limit.Class, limit.Target})
			}
		}
	}
	for _, share := range []struct {
		line     *float64
		expected *Interval
	}{{&l.CriticalFNR, c.ExpectedCriticalFNR}, {&l.CriticalMissRate, c.ExpectedCriticalMissRate}} {
		if *share.line == 0 && share.expected != nil && share.expected.High < 1 {
			*share.line = share.expected.High
		}
	}
	return l
}

package calibrate

import (
	"slices"

	"github.com/ckd-project/ckd/policy"
)

// Line is a share that outcomes are tested against: while the truth is at or below it, an alarm is
// rare.
type Line struct {
	Bounds policy.Figure `json:"bounds"`
	Class  string        `json:"class,omitempty"` // empty for all critical classes
	Above  float64       `json:"above"`
	From   LineOrigin    `json:"from"`
}

// LineOrigin says where a line comes from.
type LineOrigin string

// The origins, the stronger ones last.
const (
	ExpectedLine  LineOrigin = "expected"  // the upper end of the 95% interval of the expected share
	CertifiedLine LineOrigin = "certified" // the target of a Learn-then-Test certificate
	StatedLine    LineOrigin = "stated"    // Options.AlarmAbove
)

// setLines writes what outcomes are tested against to the report and a draft.
//
// A share that chose the thresholds is no ground for a line. Neither is a point estimate: half of all
// calibrations lie above it from the first day.
func (r *run) setLines(d *policy.Policy) {
	c := d.Calibration
	derived := c.DerivedLines()
	var all []Line
	put := func(l Line) {
		if i := slices.IndexFunc(all, func(old Line) bool { return old.Bounds == l.Bounds && old.Class == l.Class }); i >= 0 {
			all[i] = l
		} else if l.Above > 0 {
			all = append(all, l)
		}
	}
	put(Line{policy.CriticalFNR, "", derived.CriticalFNR, ExpectedLine})
	put(Line{policy.CriticalMissRate, "", derived.CriticalMissRate, ExpectedLine})
	for _, l := range r.byClass {
		put(l)
	}
	for _, l := range derived.Classes {
		put(Line{policy.CriticalFNR, l.Class, l.CriticalFNR, ExpectedLine})
	}
	if c.Certificate != nil {
		for _, l := range c.Certificate.Limits() {
			if l.Class == "" || l.Bounds == policy.CriticalFNR {
				put(Line{l.Bounds, l.Class, l.Target, CertifiedLine})
			}
		}
	}
	for _, l := range r.AlarmAbove {
		put(Line{policy.CriticalFNR, l.Class, l.Most, StatedLine})
	}
	r.report.Lines, c.Lines = all, forPolicy(all)
}

// forPolicy returns lines as a policy has them, nil for none.
func forPolicy(all []Line) *policy.Lines {
	if len(all) == 0 {
		return nil
	}
	var lines policy.Lines
	for _, l := range all {
		switch {
		case l.Class != "":
			lines.Classes = append(lines.Classes, policy.ClassLine{Class: l.Class, CriticalFNR: l.Above})
		case l.Bounds == policy.CriticalFNR:
			lines.CriticalFNR = l.Above
		default:
			lines.CriticalMissRate = l.Above
		}
	}
	return &lines
}

// classLines returns the upper ends of the 95% intervals of the critical FNR of each critical class,
// where there are several, on inputs that were held out. retained marks what is retained of them.
func (r *run) classLines(retained []bool) (all []Line) {
	if len(r.table.Spec.Critical) < 2 {
		return nil
	}
	for _, k := range r.table.Spec.Critical {
		kept, missed := make([]bool, r.n), make([]bool, r.n)
		for i := range r.n {
			kept[i] = retained[i] && r.label[i] == k
			missed[i] = kept[i] && r.missed[i]
		}
		if _, interval := r.share(r.all(), kept, missed); interval != nil && interval[1] < 1 {
			all = append(all, Line{policy.CriticalFNR, r.Base.Classes[k], interval[1], ExpectedLine})
		}
	}
	return all
}

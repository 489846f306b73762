package calibrate

import "github.com/ckd-project/ckd/policy"

// keepLines copies the lines that a policy states into the draft that takes its place: a calibration
// raises none. Left out, with a note, are those above the line that the calibration gives.
func (r *Report) keepLines(base, d *policy.Policy) {
	var kept policy.StatedLines
	derived := d.Calibration.DerivedLines()
	for _, l := range base.LinesInForce() {
		switch given := policy.LineOf(derived, l.Bounds, l.Class); {
		case l.From != policy.StatedLine:
		case given.Above > 0 && given.Above < l.Above:
			r.note("the line of the %s, %v (%s), is left out, as this calibration gives a lower one: %.4g (%s)", l.Figure(), l.Above,
				l.Origin(), given.Above, given.Origin())
		default:
			kept.By, kept.On = l.By, l.On
			if l.Class == "" {
				kept.CriticalMissRate = l.Above
			} else {
				kept.Classes = append(kept.Classes, policy.ClassLine{Class: l.Class, CriticalMissRate: l.Above})
			}
		}
	}
	if kept.By != "" {
		d.Calibration.Lines = &kept
	}
}

// expectClasses returns the critical miss rate that is expected of each critical class, where there are
// several, on inputs that were held out. retained marks what is retained of them.
func (r *run) expectClasses(retained []bool) (all []policy.ClassInterval) {
	if len(r.table.Spec.Critical) < 2 {
		return nil
	}
	for _, k := range r.table.Spec.Critical {
		inputs, missed := make([]bool, r.n), make([]bool, r.n)
		for i := range r.n {
			inputs[i] = r.label[i] == k
			missed[i] = inputs[i] && retained[i] && r.missed[i]
		}
		if share := intervalOf(r.share(r.all(), inputs, missed)); share != nil {
			all = append(all, policy.ClassInterval{Class: r.Base.Classes[k], Interval: *share})
		}
	}
	return all
}

package main

import (
	"fmt"
	"io"
	"strconv"
)

// writeCalibrationTables is a calibration for people.
func writeCalibrationTables(w io.Writer, found *calibration, out string) error {
	s := newSheet(w)
	if found.Objective != "" {
		s.section("Calibration", "Objective: %s, scope %s. %d inputs of %d passes; %d are critical, and %d of these are missed "+
			"without deferral.", found.Objective, found.Scope, found.Inputs, found.Passes, found.Critical, found.Missed)
	}
	if c := found.Chosen; c != nil {
		rows := [][]string{{"primary", c.Primary.Score, threshold(c.Primary.Threshold)}}
		if c.Fallback != nil {
			rows = append(rows, []string{"fallback", c.Fallback.Score, threshold(c.Fallback.Threshold)})
		}
		title := "Chosen: gate "
		if found.Objective == "" {
			title = "Kept: gate "
		}
		s.section(title+string(c.Gate), "An input is retained when the score that the gate chooses is at or under its "+
			"threshold.")
		s.table(2, []string{"rule", "score", "threshold"}, rows)
	}
	if e := found.Expected; e != nil {
		rows := [][]string{{"coverage", fixed(e.Coverage), fixed(e.CoverageInterval[0]), fixed(e.CoverageInterval[1])}}
		said := "With 95% intervals."
		if e.CriticalFNR != nil {
			rows = append(rows, []string{"critical FNR", fixed(*e.CriticalFNR), fixed(e.CriticalFNRInterval[0]), fixed(e.CriticalFNRInterval[1])})
		} else {
			said = "With its 95% interval. Of the critical FNR the certificate says what can be said."
		}
		s.section("Expected on unseen inputs", "%s", said)
		s.table(1, []string{"figure", "value", "low", "high"}, rows)
	}
	switch c := found.Certificate; {
	case c != nil && c.Void != "":
		s.section("No certificate", "%s", c.Void)
	case c != nil:
		s.section("Certificate", "%s", c.Statement)
		how := fmt.Sprintf("By %s", c.Kind)
		if c.PValue > 0 {
			how += fmt.Sprintf(", p = %.3g", c.PValue)
		}
		s.text("%s. It is for this one attempt on this recording.", how)
	case found.Refusal != nil:
		s.section("Nothing certifies", "%s.", found.Refusal.Reason)
	case found.Objective == "" || found.refused():
	default:
		s.section("No certificate", "A coverage guarantees nothing about misses: see --max-critical-miss and --max-critical-fnr.")
	}
	if found.Settle != nil {
		found.Settle.write(s)
	}
	if len(found.Comparison) > 0 {
		s.section("Comparison", "On %s. The critical FNR has its binomial 95%% interval.", found.ComparisonBasis)
		var rows [][]string
		for _, r := range found.Comparison {
			name := r.Rule
			if r.Calibrated {
				name = "* " + name
			}
			if r.Nothing {
				rows = append(rows, []string{name, string(r.Scope), "none", "", "", "", ""})
				continue
			}
			rows = append(rows, []string{
				name, string(r.Scope), fixed(r.Coverage), fixed(r.Accuracy), fixed(r.CriticalFNR),
				fixed(r.CriticalFNRInterval[0]) + "-" + fixed(r.CriticalFNRInterval[1]),
				fmt.Sprintf("%d of %d", r.Missed, r.CriticalRetained),
			})
		}
		s.table(2, []string{"rule", "scope", "coverage", "accuracy", "critical FNR", "interval", "missed"}, rows)
	}
	if len(found.Why) > 0 {
		s.section("Why", "")
		s.points(found.Why)
	}
	if len(found.Notes) > 0 {
		s.section("Notes", "")
		s.points(found.Notes)
	}
	s.section("How it was computed", "By %s, seed %d. The files and their SHA-256:", found.Software, found.Seed)
	files := []string{found.PassesFile.Name + " " + found.PassesFile.SHA256}
	if found.LabelsFile.Name != "" {
		files = append(files, found.LabelsFile.Name+" "+found.LabelsFile.SHA256)
	}
	s.points(files)
	if out != "" && !found.refused() {
		s.section("Policy", "%s has it: load it with \"ckd serve --policy %s\", and see with \"ckd check %s\" what it means. Its hash "+
			"is %s.", out, out, out, found.PolicyHash)
	}
	return s.end()
}

// threshold with the digits that a reader can tell apart; the policy has them all.
func threshold(v float64) string { return strconv.FormatFloat(v, 'g', 6, 64) }

package main

import (
	"fmt"
	"strconv"
)

// write the rule for people.
func (s *settling) write(to *sheet) {
	if s.Refusal != nil {
		to.section("Nothing certifies a rule to settle inputs early", "%s.", s.Refusal.Reason)
		return
	}
	r := s.Rule
	to.section("Settled early", "%s", r.Statement)
	to.text("On these inputs it used %.3g of %d passes on average, which is %.3g times fewer. After %d to %d passes, %d of %d inputs were "+
		"settled. Passes come in %s.", r.MeanPasses, s.Passes, r.Saving, r.FirstAfter, r.LastAfter, r.Settled, s.CertifiedOn, s.orderInWords())
	bounded := func(what string, b boundedShare) []string {
		if b.Inputs == 0 {
			return []string{what, "none", "", ""}
		}
		return []string{what, fmt.Sprintf("%d of %d", b.Count, b.Inputs), precise(float64(b.Count) / float64(b.Inputs)), precise(b.AtMost)}
	}
	rows := [][]string{
		bounded("decided otherwise than by all passes", r.Disagreements),
		bounded("deferred by all passes, retained instead", r.Released),
	}
	if r.CriticalReleased != nil {
		rows = append(rows, bounded("the same of critical inputs", *r.CriticalReleased))
	}
	to.table(1, []string{"inputs", "seen", "share", fmt.Sprintf("at most, with confidence %v", s.Confidence)}, rows)
	exact := func(what string, e *exactShare) []string {
		return []string{what, fmt.Sprintf("%d of %d", e.Count, e.Inputs), fixed(e.Share), fixed(e.Interval[0]) + "-" + fixed(e.Interval[1])}
	}
	rows = [][]string{exact("two halves of the passes decide otherwise", s.HalvesDiffer)}
	said := "Two halves of the passes, each decided by itself, say how much chance there is in the full decision itself."
	if r.CriticalFNR != nil {
		rows = append(rows, exact("critical FNR with the rule in force", r.CriticalFNR), exact("critical FNR of all passes", r.FullCriticalFNR))
	}
	to.section("What the full decision is worth", "%s With 95%% intervals.", said)
	to.table(1, []string{"figure", "seen", "share", "interval"}, rows)
}

func (s *settling) orderInWords() string {
	if s.Order == "recorded" {
		return "the order of the recording, which is that of the ensemble's members"
	}
	return "any order"
}

// precise is a small share.
func precise(v float64) string { return strconv.FormatFloat(v, 'f', 4, 64) }

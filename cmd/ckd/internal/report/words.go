package report

import (
	"cmp"
	"fmt"
	"math"
	"slices"
	"strings"

	"github.com/ckd-project/ckd/cmd/ckd/internal/report/document"
	"github.com/ckd-project/ckd/decomp"
	"github.com/ckd-project/ckd/policy"
)

// noReview names the row of the model alone.
const noReview = "no review"

var mi = decomp.MI.String()

// short returns the name of a rule for tables and lists.
func short(rule string) string {
	score, guarded := strings.CutSuffix(rule, " with guard")
	switch name := policy.Score(score).Short(); {
	case name != "" && guarded:
		return name + ", guarded"
	case name != "":
		return name
	case rule == "calibrated":
		return "this procedure"
	case rule == "policy":
		return "this policy"
	case strings.HasPrefix(rule, string(policy.AnyCritical)):
		return "the paper's rule"
	}
	return rule
}

// plain returns the name of a rule for sentences.
func plain(rule string) string {
	score := policy.Score(rule)
	switch {
	case score.Words() == "":
		return short(rule)
	case score == policy.MI || score == policy.Entropy:
		return score.Words()
	}
	return "the " + score.Words()
}

// missedBy counts the critical inputs that a rule misses.
type missedBy struct {
	rule   string
	missed float64
}

// missesOf lists what rules miss, the fewest first: "largest probability 9, mutual information and entropy 16 each".
func missesOf(rules []missedBy) string {
	slices.SortStableFunc(rules, func(x, y missedBy) int { return cmp.Compare(x.missed, y.missed) })
	var parts []string
	for from := 0; from < len(rules); {
		to, names := from, []string{}
		for ; to < len(rules) && rules[to].missed == rules[from].missed; to++ {
			names = append(names, short(rules[to].rule))
		}
		part := document.List(names) + " " + document.Count(rules[from].missed)
		if to-from > 1 {
			part += " each"
		}
		parts, from = append(parts, part), to
	}
	return strings.Join(parts, ", ")
}

// clearlyFewer reports whether one rule misses fewer inputs than another by more than two standard errors of counts.
func clearlyFewer(a, b float64) bool { return b-a > 2*math.Sqrt(a+b) }

// callsUnreviewed says how many critical calls nobody looks at.
func callsUnreviewed(calls, falseCalls float64) string {
	if calls == 1 {
		return fmt.Sprintf("1 such call, %s of them false, goes unreviewed", document.Count(falseCalls))
	}
	return fmt.Sprintf("%s such calls, %s of them false, go unreviewed", document.Count(calls), document.Count(falseCalls))
}

// callsSeen says how many of the inputs called critical people see, where some of them are sent.
func callsSeen(called, unseen, falseUnseen float64) string {
	return fmt.Sprintf("Of %s that the model calls critical people see %s; nobody sees %s, %s of them false alarms.", document.Noun(called, "input"),
		document.Count(called-unseen), document.Count(unseen), document.Count(falseUnseen))
}

// within95 returns a share with its interval: "(1.9%, 95%: 0.9 to 3.6)".
func within95(share, low, high float64) string {
	return fmt.Sprintf("(%s, %s)", document.Percent(share), document.Interval95(low, high))
}

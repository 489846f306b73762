package report

import (
	"cmp"
	"fmt"
	"math"
	"slices"

	"github.com/ckd-project/ckd/cmd/ckd/internal/report/document"
	"github.com/ckd-project/ckd/cmd/ckd/internal/whatif"
)

// mostClassColumns bounds the classes that have a column on the screen.
const mostClassColumns = 4

// WhatIf returns what another policy would have decided as a document.
func WhatIf(r *whatif.Report, classes []string) *document.Document {
	return &document.Document{
		Title: "What another policy would have decided about " + r.Model, Screen: whatIfScreen(r, classes),
		Sections: []document.Section{document.NewSection("changes", "What changes", "", changes(r, classes), unknown(r))},
	}
}

func whatIfScreen(r *whatif.Report, classes []string) document.Screen {
	about := ""
	if r.Weighted {
		about = "about "
	}
	const minute = "2006-01-02 15:04"
	s := document.Screen{Lead: fmt.Sprintf("Of %s%s logged between %s and %s, the new policy would send %s more to people (%s more per 1,000) and %s fewer; ",
		about, document.Noun(math.Round(r.Decisions), "decision"), r.From.UTC().Format(minute), r.To.UTC().Format(minute), whole(r.More),
		perThousand(r.MorePer1000), whole(r.Fewer))}
	switch {
	case r.Unknown == 0:
		s.Lead += "all can be known."
	case len(r.Why) == 1:
		s.Lead += fmt.Sprintf("%s cannot be known, because %s.", whole(r.Unknown), r.Why[0].Why)
	default:
		s.Lead += fmt.Sprintf("%s cannot be known, because %s (%s), and for other reasons.", whole(r.Unknown), r.Why[0].Why, whole(r.Why[0].Decisions))
	}
	if r.OnlyReviewed {
		s.Warnings = []string{"The log has only what was to be reviewed. What was retained and not audited is missing, also what the new policy would send to people of it: log: {decisions: all} in the policy keeps it."}
	}
	if len(classes) > mostClassColumns {
		classes = nil
	}
	s.Table = changes(r, classes)
	s.Table.Caption, s.Table.Says = "", ""
	s.Rests = whatIfRests(r)
	if r.Outcomes == nil {
		s.Next = []string{"See what it would have missed, by what was found to be true: --outcomes FILE."}
	}
	if slices.ContainsFunc(r.Why, func(w whatif.Why) bool { return w.Why == whatif.WhySkewness }) &&
		slices.ContainsFunc(r.Changes, func(c whatif.Change) bool { return c.Now == "" && c.Then == "defer" }) {
		s.Next = append(s.Next, "Have a later log say more of what is to be reviewed: log: {vectors: true} in the policy adds skewness.")
	}
	return s
}

// whatIfRests says what is known of misses, and what the counts rest on.
func whatIfRests(r *whatif.Report) (rests []string) {
	if o := r.Outcomes; o != nil {
		rests = append(rests, fmt.Sprintf("Misses: about %s then and %s now, where each known one stands for one over its audit probability (%d and %d were read).",
			whole(o.MissedThen), whole(o.MissedNow), o.ReadThen, o.ReadNow))
		open := fmt.Sprintf("Not known: the truth of %s called safe that went to people then and would not now", document.Noun(o.Unread, "input"))
		if o.Undecided > 0 {
			open += fmt.Sprintf("; what would become of %s called safe", document.Noun(o.Undecided, "critical input"))
		}
		if o.NotDrawn > 0 {
			open += fmt.Sprintf("; how many misses are like %s that no audit drew, which count nowhere", document.Noun(o.NotDrawn, "known one"))
		}
		rests = append(rests, open+".", fmt.Sprintf("The truth is known of %d of %s.", o.Known, document.Noun(r.Records, "record")))
	}
	if r.Weighted {
		rests = append(rests, fmt.Sprintf("A record that was kept with a share counts as one over it: %s stand for %s.", document.Noun(r.Records, "record"),
			document.Noun(math.Round(r.Decisions), "decision")))
	}
	rests = append(rests, "The scores are those that were recorded. Where a record does not say whether passes hardly differed, their mutual information tells, if it can.")
	if r.StopsEarly {
		rests = append(rests, "The new policy may decide before the last pass; here it is judged by all passes.")
	}
	if r.Faulty > 0 {
		rests = append(rests, fmt.Sprintf("Left out: %s not of a decision log. ckd log verify says more.", document.Noun(r.Faulty, "line")))
	}
	if r.Lost > 0 {
		rests = append(rests, fmt.Sprintf("The daemons lost %s, which count nowhere.", document.Noun(int(r.Lost), "record")))
	}
	return rests
}

// changes counts decisions by what became of them and what would have, and by the class predicted.
func changes(r *whatif.Report, classes []string) *document.Table {
	t := &document.Table{Caption: "Decisions then and now", Says: "Classes are those predicted.", Head: []string{"then", "now", "decisions", "per 1,000"}, TextColumns: 2}
	for _, class := range classes {
		t.Head = append(t.Head, document.Label(class))
	}
	for _, c := range together(r.Changes) {
		cells := []any{c.Then, cmp.Or(c.Now, "not known"), whole(c.Decisions), perThousand(1000 * c.Decisions / r.Decisions)}
		for _, class := range classes {
			cells = append(cells, whole(c.ByClass[class]))
		}
		t.Add(cells...)
	}
	return t
}

// together makes one of the decisions that cannot be known, which come last, so that all rows fit on a screen.
func together(all []whatif.Change) []whatif.Change {
	first := slices.IndexFunc(all, func(c whatif.Change) bool { return c.Now == "" })
	if first < 0 || first == len(all)-1 {
		return all
	}
	sum := whatif.Change{Then: "any", ByClass: map[string]float64{}}
	for _, c := range all[first:] {
		sum.Decisions += c.Decisions
		for class, n := range c.ByClass {
			sum.ByClass[class] += n
		}
	}
	return append(slices.Clone(all[:first]), sum)
}

// unknown says why decisions cannot be known; nil where all are.
func unknown(r *whatif.Report) *document.Table {
	if len(r.Why) == 0 {
		return nil
	}
	t := &document.Table{Caption: "What cannot be known", Head: []string{"because", "decisions"}, TextColumns: 1}
	for _, w := range r.Why {
		t.Add(w.Why, whole(w.Decisions))
	}
	return t
}

// whole returns a count without decimals, which an estimate does not have.
func whole(n float64) string { return document.Count(math.Round(n)) }

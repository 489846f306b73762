package report

import (
	"fmt"
	"slices"

	"github.com/ckd-project/ckd/eval"
	"github.com/ckd-project/ckd/policy"
)

// column of a table of rankings. Which of them are shown depends on the report.
type column struct {
	head  string
	shown bool
	cell  func(*eval.Row) string
}

// rankings fills a table with the rows of a scope.
func (b *builder) rankings(t *table, scope policy.Scope, columns []column) *table {
	columns = slices.DeleteFunc(columns, func(c column) bool { return !c.shown })
	t.Head, t.Text = []string{"ranking"}, 1
	for _, c := range columns {
		t.Head = append(t.Head, c.head)
	}
	for i := range b.r.Policies {
		row := &b.r.Policies[i]
		if row.Scope != scope {
			continue
		}
		cells := []string{row.Name}
		for _, c := range columns {
			cells = append(cells, c.cell(row))
		}
		t.Rows = append(t.Rows, cells)
	}
	return t
}

// policyTable is how every ranking of a scope does at the coverage.
func (b *builder) policyTable(scope policy.Scope) *table {
	t := &table{Caption: fmt.Sprintf("Every ranking at %s coverage (scope %s)", roundPercent(b.r.Source.Coverage), scope)}
	if b.byRisk {
		t.Says = "Critical FNR: missed of the critical inputs retained. Critical error: of those, not given their own class. " +
			"Critical deferred: of all critical inputs, handed to people."
	}
	return b.rankings(t, scope, []column{
		{"retained", true, func(r *eval.Row) string { return count(r.Retained) }},
		{"critical FNR", b.byRisk, func(r *eval.Row) string { return percent(r.CriticalFNR) }},
		{"95% interval", b.byRisk && b.resampled(), func(r *eval.Row) string {
			return percentInterval(r.BootstrapAt.CriticalFNR.Low, r.BootstrapAt.CriticalFNR.High)
		}},
		{"missed of retained", b.byRisk, func(r *eval.Row) string {
			return count(r.CriticalMissed) + " of " + count(r.CriticalRetained)
		}},
		{"critical deferred", b.byRisk, func(r *eval.Row) string { return percent(r.CriticalDeferredShare) }},
		{"critical error", b.byRisk, func(r *eval.Row) string { return percent(r.CriticalError) }},
		{"accuracy", true, func(r *eval.Row) string { return percent(r.Accuracy) }},
		{"95% interval", b.resampled(), func(r *eval.Row) string {
			return percentInterval(r.BootstrapAt.Accuracy.Low, r.BootstrapAt.Accuracy.High)
		}},
		{"macro-F1", true, func(r *eval.Row) string { return number(r.MacroF1) }},
	})
}

// areaTable is how every ranking of a scope does over all coverages.
func (b *builder) areaTable(scope policy.Scope) *table {
	t := &table{
		Caption: fmt.Sprintf("Every ranking over all coverages (scope %s)", scope),
		Says: "AUSC: area under a risk over coverage, trapezoids over 200 coverages. AURC and AUGRC: of the error rate, in " +
			"expectation over ties.",
		Closed: true,
	}
	resampled := b.byRisk && b.resampled()
	if b.byRisk {
		t.Says += " Joint: area under the share of all critical inputs retained and missed."
	}
	if resampled {
		t.Says += " Mean, sd, interval and wins are of the AUSC of critical FNR over the resamples; wins: the share in " +
			"which it is the lowest of the scores, for other rankings lower than every score's."
	}
	return b.rankings(t, scope, []column{
		{"AUSC critical FNR", b.byRisk, func(r *eval.Row) string { return number(r.AUSC.CriticalFNR) }},
		{"mean", resampled, func(r *eval.Row) string { return number(r.Bootstrap.Mean) }},
		{"sd", resampled, func(r *eval.Row) string { return number(r.Bootstrap.SD) }},
		{"95% interval", resampled, func(r *eval.Row) string { return interval(r.Bootstrap.Interval) }},
		{"wins", resampled, func(r *eval.Row) string { return percent(r.Bootstrap.WinShare) }},
		{"AUSC critical error", b.byRisk, func(r *eval.Row) string { return number(r.AUSC.CriticalError) }},
		{"AUSC error rate", true, func(r *eval.Row) string { return number(r.AUSC.ErrorRate) }},
		{"AURC", true, func(r *eval.Row) string { return number(r.AURC) }},
		{"AUGRC", true, func(r *eval.Row) string { return number(r.AUGRC) }},
		{"joint", b.byRisk, func(r *eval.Row) string { return number(r.JointArea) }},
	})
}

// pairwiseTable is how often one ranking has a lower area than another. Nil
// without resamples.
func (b *builder) pairwiseTable(scope policy.Scope) *table {
	t := &table{
		Caption: fmt.Sprintf("How often the row's AUSC of critical FNR is lower than the column's (scope %s)", scope),
		Says: "The share of resamples. Near 100%, the row is the better one whatever the draw of inputs; near 50%, the " +
			"recording cannot tell.",
		Head:   []string{"row lower than"},
		Text:   1,
		Closed: true,
	}
	at := map[string]int{} // row and column of a ranking, from 1
	place := func(name string) int {
		if at[name] == 0 {
			t.Head = append(t.Head, name)
			t.Rows = append(t.Rows, []string{name})
			at[name] = len(t.Rows)
		}
		return at[name]
	}
	var pairs []eval.Pairwise
	for _, p := range b.r.Pairwise {
		if p.Scope == scope {
			pairs = append(pairs, p)
			place(p.Row)
		}
	}
	for _, p := range pairs {
		place(p.Column)
	}
	if len(pairs) == 0 {
		return nil
	}
	for i := range t.Rows {
		for range t.Rows {
			t.Rows[i] = append(t.Rows[i], "")
		}
	}
	for _, p := range pairs {
		t.Rows[place(p.Row)-1][place(p.Column)] = fmt.Sprintf("%.0f%%", 100*p.P)
	}
	return t
}

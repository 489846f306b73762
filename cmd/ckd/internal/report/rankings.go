package report

import (
	"cmp"
	"fmt"
	"math"
	"slices"

	"github.com/ckd-project/ckd/cmd/ckd/internal/report/document"
	"github.com/ckd-project/ckd/eval"
)

// column is one figure of every ranking. Which columns are shown depends on the report.
type column struct {
	head  string
	shown bool
	cell  func(*eval.Row) any
}

// fill fills a table with the rankings of the scope, the lowest area under the risk first.
func (d *deferral) fill(t *document.Table, columns []column) *document.Table {
	columns = slices.DeleteFunc(columns, func(c column) bool { return !c.shown })
	t.Head, t.TextColumns = []string{"ranking"}, 1
	for _, c := range columns {
		t.Head = append(t.Head, c.head)
	}
	for _, row := range d.sorted() {
		cells := []any{row.Name}
		for _, c := range columns {
			cells = append(cells, c.cell(row))
		}
		t.Add(cells...)
	}
	return t
}

// sorted returns the rankings of the scope, the lowest area under the risk first.
func (d *deferral) sorted() []*eval.Row {
	rows := d.rankings(d.scope)
	slices.SortStableFunc(rows, func(x, y *eval.Row) int { return cmp.Compare(d.area(x), d.area(y)) })
	return rows
}

// policyTable shows every ranking at the coverage of the report.
func (d *deferral) policyTable() *document.Table {
	t := &document.Table{Caption: fmt.Sprintf("Every ranking at %s coverage (scope %s)",
		document.RoundPercent(d.report.Source.Coverage), d.scope)}
	if d.byRisk {
		t.Says = "Critical FNR: missed of the critical inputs retained. Critical error: of those, not given their own class. " +
			"Critical deferred: of all critical inputs, handed to people."
	}
	resampled := d.resampled()
	within := func(i eval.Interval) any { return document.ShareInterval{i.Low, i.High} }
	return d.fill(t, []column{
		{"retained", true, func(r *eval.Row) any { return r.Retained }},
		{"critical FNR", d.byRisk, func(r *eval.Row) any { return document.Share(r.CriticalFNR) }},
		{"95% interval", d.byRisk && resampled, func(r *eval.Row) any { return within(r.BootstrapAt.CriticalFNR) }},
		{"missed of retained", d.byRisk, func(r *eval.Row) any { return document.Of{r.CriticalMissed, r.CriticalRetained} }},
		{"critical deferred", d.byRisk, func(r *eval.Row) any { return document.Share(r.CriticalDeferredShare) }},
		{"critical error", d.byRisk, func(r *eval.Row) any { return document.Share(r.CriticalError) }},
		{"95% interval", d.byRisk && resampled, func(r *eval.Row) any { return within(r.BootstrapAt.CriticalError) }},
		{"accuracy", true, func(r *eval.Row) any { return document.Share(r.Accuracy) }},
		{"95% interval", resampled, func(r *eval.Row) any { return within(r.BootstrapAt.Accuracy) }},
		{"macro-F1", true, func(r *eval.Row) any { return document.Number(r.MacroF1) }},
	})
}

// areaTable shows every ranking over all coverages.
func (d *deferral) areaTable() *document.Table {
	t := &document.Table{
		Caption: fmt.Sprintf("Every ranking over all coverages (scope %s)", d.scope),
		Says: "AUSC: area under a risk over coverage, trapezoids over 200 coverages. AURC and AUGRC: of the error rate, in " +
			"expectation over ties. Lower is better.",
		Closed: true,
	}
	resampled := d.byRisk && d.resampled()
	if d.byRisk {
		t.Says += " Joint: area under the share of all critical inputs retained and missed."
	}
	if resampled {
		t.Says += " Mean, sd, interval and wins are of the AUSC of critical FNR over the resamples; wins: the share in " +
			"which it is the lowest of the scores, for other rankings lower than every score's."
	}
	return d.fill(t, []column{
		{"AUSC critical FNR", d.byRisk, func(r *eval.Row) any { return document.Number(r.AUSC.CriticalFNR) }},
		{"mean", resampled, func(r *eval.Row) any { return document.Number(r.Bootstrap.Mean) }},
		{"sd", resampled, func(r *eval.Row) any { return document.Number(r.Bootstrap.SD) }},
		{"95% interval", resampled, func(r *eval.Row) any { return interval(r.Bootstrap.Interval) }},
		{"wins", resampled, func(r *eval.Row) any { return document.Share(r.Bootstrap.WinShare) }},
		{"AUSC critical error", d.byRisk, func(r *eval.Row) any { return document.Number(r.AUSC.CriticalError) }},
		{"AUSC error rate", true, func(r *eval.Row) any { return document.Number(r.AUSC.ErrorRate) }},
		{"AURC", true, func(r *eval.Row) any { return document.Number(r.AURC) }},
		{"AUGRC", true, func(r *eval.Row) any { return document.Number(r.AUGRC) }},
		{"joint", d.byRisk, func(r *eval.Row) any { return document.Number(r.JointArea) }},
	})
}

// coverageTable shows the counts behind critical FNR at ten coverages. It returns nil where there are
// no critical inputs.
func (d *deferral) coverageTable() *document.Table {
	if !d.byRisk {
		return nil
	}
	all := d.report.Summary.Critical
	t := &document.Table{
		Caption: fmt.Sprintf("Critical inputs missed / retained, by coverage (scope %s)", d.scope),
		Says: fmt.Sprintf("Their quotient is critical FNR; each of them over all %s is the joint curve.",
			document.Noun(all, "critical input")),
		Head: []string{"ranking"}, TextColumns: 1, Closed: true,
	}
	var points []int
	for tenth := 1; tenth <= 10; tenth++ {
		points = append(points, nearest(d.report.Curves.Coverage, float64(tenth)/10))
		t.Head = append(t.Head, fmt.Sprintf("%d%%", 10*tenth))
	}
	for _, row := range d.sorted() {
		curve := d.curve(d.scope, row.Name)
		if curve == nil {
			continue
		}
		cells := []any{row.Name}
		for _, c := range points {
			cells = append(cells, fmt.Sprintf("%d/%d", curve.CriticalMissed[c], curve.CriticalRetained[c]))
		}
		t.Add(cells...)
	}
	return t
}

// nearest returns the index of the value nearest to x.
func nearest(values []float64, x float64) int {
	best := 0
	for i, v := range values {
		if math.Abs(v-x) < math.Abs(values[best]-x) {
			best = i
		}
	}
	return best
}

// pairwiseTable shows how often one ranking has a lower area than another. It returns nil without
// resamples.
func (d *deferral) pairwiseTable() *document.Table {
	t := &document.Table{
		Caption: fmt.Sprintf("How often the row's AUSC of critical FNR is lower than the column's (scope %s)", d.scope),
		Says: "The share of resamples, in percent. Near 100, the row is the better one whatever the draw of inputs; near 50, the " +
			"recording cannot tell. Above 97.5 is significant at 5%, two-sided.",
		Head: []string{"row lower than"}, TextColumns: 1, Closed: true,
	}
	shares := map[[2]string]float64{}
	for _, p := range d.report.Pairwise {
		if p.Scope == d.scope {
			shares[[2]string{p.Row, p.Column}] = p.P
		}
	}
	var names []string
	for _, row := range d.sorted() {
		compared := func(pair eval.Pairwise) bool {
			return pair.Scope == d.scope && (pair.Row == row.Name || pair.Column == row.Name)
		}
		if slices.ContainsFunc(d.report.Pairwise, compared) {
			names = append(names, row.Name)
		}
	}
	if len(names) == 0 {
		return nil
	}
	t.Head = append(t.Head, names...)
	for _, row := range names {
		cells := []any{row}
		for _, column := range names {
			var cell any
			if p, ok := shares[[2]string{row, column}]; ok {
				cell = fmt.Sprintf("%.1f", 100*p)
			}
			cells = append(cells, cell)
		}
		t.Add(cells...)
	}
	return t
}

package report

import (
	"fmt"
	"math"
	"slices"
	"strings"

	"github.com/ckd-project/ckd/cmd/ckd/internal/report/document"
	"github.com/ckd-project/ckd/eval"
)

// column is one figure of every ranking. Which columns are shown depends on the report.
type column struct {
	head  string
	shown bool
	cell  func(*eval.Row) any
}

// fill fills a table with rankings. Neighbours whose figures are all alike share a row.
func fill(t *document.Table, rows []*eval.Row, name func(*eval.Row) string, columns []column) *document.Table {
	columns = slices.DeleteFunc(columns, func(c column) bool { return !c.shown })
	t.Head, t.TextColumns = []string{"ranking"}, 1
	for _, c := range columns {
		t.Head = append(t.Head, c.head)
	}
	figures := func(cells []any) (texts []string) {
		for _, cell := range cells[1:] {
			texts = append(texts, document.Format(cell))
		}
		return texts
	}
	for _, row := range rows {
		cells := []any{name(row)}
		for _, c := range columns {
			cells = append(cells, c.cell(row))
		}
		if last := len(t.Rows) - 1; last >= 0 && slices.Equal(figures(t.Rows[last]), figures(cells)) {
			t.Rows[last][0] = fmt.Sprint(t.Rows[last][0], ", ", cells[0])
			continue
		}
		t.Add(cells...)
	}
	return t
}

// sorted returns rankings in an order, those alike in the report's.
func sorted(rows []*eval.Row, compare func(x, y *eval.Row) int) []*eval.Row {
	slices.SortStableFunc(rows, compare)
	return rows
}

// policyTable shows every ranking at the coverage of the report, by the paper's figures.
func (d *deferral) policyTable() *document.Table {
	t := &document.Table{Caption: fmt.Sprintf("The paper's figures at %s coverage (%s)",
		document.RoundPercent(d.report.Source.Coverage), d.scope.Words())}
	t.Says = "Critical FNR: missed of the critical inputs retained; it falls when correctly called critical inputs are kept from " +
		"people, so that a lower one can miss more. Critical error: of those retained, not given their own class."
	resampled := d.resampled()
	return fill(t, d.byPaper(), d.paperNames, []column{
		{"critical FNR", true, func(r *eval.Row) any { return document.Share(r.CriticalFNR) }},
		{d.resampled95(), resampled, func(r *eval.Row) any { return within(r.BootstrapAt.CriticalFNR) }},
		{"missed of retained", true, func(r *eval.Row) any { return document.Of{r.CriticalMissed, r.CriticalRetained} }},
		{"critical error", true, func(r *eval.Row) any { return document.Share(r.CriticalError) }},
		{"accuracy", true, func(r *eval.Row) any { return document.Share(r.Accuracy) }},
		{"macro-F1", true, func(r *eval.Row) any { return document.Number(r.MacroF1) }},
	})
}

// within returns a bootstrap interval of a share as a cell.
func within(i eval.Interval) any { return document.ShareInterval{float64(i.Low), float64(i.High)} }

// interval returns a bootstrap interval of a number as a cell.
func interval(i eval.Interval) any { return document.NumberInterval{float64(i.Low), float64(i.High)} }

// areaTable shows the paper's area of every ranking over all coverages. It returns nil without
// critical inputs.
func (d *deferral) areaTable() *document.Table {
	if !d.byRisk {
		return nil
	}
	t := &document.Table{
		Caption: fmt.Sprintf("AUSC of critical FNR over all coverages (%s)", d.scope.Words()),
		Says: "Area under critical FNR over coverage, trapezoids over 200 coverages; lower is better. The risk is 0 where no critical " +
			"input is retained, as in the paper; the area where defined leaves these coverages out for all rankings: " + d.definedRange() + ".",
		Closed: true,
	}
	if d.resampled() {
		t.Says += " Mean, sd and intervals are over the resamples. Wins: the share of resamples in which the area where defined is the " +
			"lowest of the scores, for other rankings lower than every score's."
	}
	return fill(t, d.byPaper(), d.paperNames, []column{
		{"AUSC", true, func(r *eval.Row) any { return document.Number(r.AUSCPaper.CriticalFNR) }},
		{"mean", d.resampled(), func(r *eval.Row) any { return document.Number(r.BootstrapPaper.Mean) }},
		{"sd", d.resampled(), func(r *eval.Row) any { return document.Number(r.BootstrapPaper.SD) }},
		{d.resampled95(), d.resampled(), func(r *eval.Row) any { return interval(r.BootstrapPaper) }},
		{"where defined", true, func(r *eval.Row) any { return document.Number(r.AUSC.CriticalFNR) }},
		{d.resampled95(), d.resampled(), func(r *eval.Row) any { return interval(r.Bootstrap.Interval) }},
		{"wins", d.resampled(), func(r *eval.Row) any { return document.Share(r.Bootstrap.WinShare) }},
	})
}

// errorAreaTable shows the areas of errors over all coverages.
func (d *deferral) errorAreaTable() *document.Table {
	t := &document.Table{
		Caption: fmt.Sprintf("Areas of errors over all coverages (%s)", d.scope.Words()),
		Says: "Lower is better. AUSC as above; AURC and AUGRC are of the error rate, in expectation over ties. Joint: under the critical " +
			"miss rate.",
		Closed: true,
	}
	return fill(t, d.byPaper(), d.paperNames, []column{
		{"AUSC critical error", d.byRisk, func(r *eval.Row) any { return document.Number(r.AUSCPaper.CriticalError) }},
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
		Caption: fmt.Sprintf("Critical inputs missed / retained, by coverage (%s)", d.scope.Words()),
		Says: fmt.Sprintf("Their quotient is critical FNR, n/a where none is retained; what is missed over all %s is the critical "+
			"miss rate.", document.Noun(all, "critical input")),
		Head: []string{"ranking"}, TextColumns: 1, Closed: true,
	}
	points := d.points()
	for _, p := range points {
		t.Head = append(t.Head, document.RoundPercent(share(p.retained, d.report.Summary.Inputs)))
	}
	for _, row := range d.byPaper() {
		curve := d.curve(d.scope, row.Name)
		if curve == nil {
			continue
		}
		cells := []any{d.paperNames(row)}
		for _, p := range points {
			at := p.figures(row, curve)
			cells = append(cells, document.Count(at.CriticalMissed)+"/"+document.Count(at.CriticalRetained))
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
		Caption: fmt.Sprintf("How often the row's AUSC of critical FNR is lower than the column's (%s)", d.scope.Words()),
		Says: "The share of resamples, in percent, over the coverages where both are defined. Near 100, the row is the better one " +
			"whatever the draw of inputs; near 50, the recording cannot tell.",
		Head: []string{"row lower than"}, TextColumns: 1, Closed: true,
	}
	shares := map[[2]string]eval.Figure{}
	for _, p := range d.report.Pairwise {
		if p.Scope == d.scope {
			shares[[2]string{p.Row, p.Column}] = p.P
		}
	}
	var names []string
	for _, row := range d.byPaper() {
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
				cell = strings.TrimSuffix(document.Percent(p), "%")
			}
			cells = append(cells, cell)
		}
		t.Add(cells...)
	}
	return t
}

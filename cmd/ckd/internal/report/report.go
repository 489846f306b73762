package report

import (
	"fmt"
	"slices"

	"github.com/ckd-project/ckd/cmd/ckd/internal/report/document"
	"github.com/ckd-project/ckd/eval"
	"github.com/ckd-project/ckd/policy"
)

// Evaluation returns the report r of the table t as a document. The inputs of the table have the true
// classes labels. It returns an error if the three do not fit together.
func Evaluation(r *eval.Report, t *eval.Table, labels []int) (*document.Document, error) {
	switch {
	case len(r.Classes) != t.K:
		return nil, fmt.Errorf("report: %d classes, expected the %d of the table", len(r.Classes), t.K)
	case len(labels) != t.Inputs:
		return nil, fmt.Errorf("report: %d labels, expected one for each of the %d inputs", len(labels), t.Inputs)
	}
	e := &evaluation{
		report: r, table: t, labels: labels,
		classes: newClasses(r.Classes), byRisk: r.Summary.Critical > 0,
	}
	d := &document.Document{
		Title: titled("Evidence for deferral", r.Source.Passes), Subject: subject(e), Lead: lead(e), Tiles: tiles(e),
		Notes: r.Notes, Words: words(e),
	}
	if r.Policy != nil {
		d.Sections = append(d.Sections, policySection(e))
	}
	for _, scope := range e.scopes() {
		d.Sections = append(d.Sections, deferralSection(e, scope))
	}
	d.Sections = append(d.Sections, modelSection(e), trustSection(e), diagnosisSection(e), sourceSection(e))
	return d, nil
}

// titled adds the name of a file to a title.
func titled(title string, of eval.File) string {
	if of.Name == "" {
		return title
	}
	return title + ": " + of.Name
}

// evaluation holds the data that the sections of a report are made from.
type evaluation struct {
	report  *eval.Report
	table   *eval.Table
	labels  []int
	classes *classes
	// byRisk is set where there are critical inputs. The risk is then critical FNR, else the error
	// rate.
	byRisk bool
}

// scopes returns the scopes of the rankings, in the report's order.
func (e *evaluation) scopes() []policy.Scope {
	var scopes []policy.Scope
	for _, row := range e.report.Policies {
		if !slices.Contains(scopes, row.Scope) {
			scopes = append(scopes, row.Scope)
		}
	}
	return scopes
}

// resampled reports whether the figures have intervals.
func (e *evaluation) resampled() bool { return e.report.Source.Bootstrap > 0 }

// correct counts the right predictions.
func (e *evaluation) correct() int {
	n := 0
	for i, label := range e.labels {
		if e.table.Predicted[i] == label {
			n++
		}
	}
	return n
}

// rankings returns those of a scope, in the report's order.
func (e *evaluation) rankings(scope policy.Scope) []*eval.Row {
	var rows []*eval.Row
	for i := range e.report.Policies {
		if row := &e.report.Policies[i]; row.Scope == scope {
			rows = append(rows, row)
		}
	}
	return rows
}

// row returns a ranking, or nil.
func (e *evaluation) row(scope policy.Scope, name string) *eval.Row {
	for _, row := range e.rankings(scope) {
		if row.Name == name {
			return row
		}
	}
	return nil
}

// curve returns the curve of a ranking, or nil.
func (e *evaluation) curve(scope policy.Scope, name string) *eval.Curve {
	for i, curve := range e.report.Curves.Rows {
		if curve.Scope == scope && curve.Name == name {
			return &e.report.Curves.Rows[i]
		}
	}
	return nil
}

// best returns the score of a scope with the lowest figure, the first of several. Gates and policies
// do not take part. It returns nil where there is no score.
func (e *evaluation) best(scope policy.Scope, figure func(*eval.Row) float64) *eval.Row {
	var best *eval.Row
	for _, row := range e.rankings(scope) {
		if isScore(row.Name) && (best == nil || figure(row) < figure(best)) {
			best = row
		}
	}
	return best
}

// area returns the area under the risk over all coverages.
func (e *evaluation) area(row *eval.Row) float64 {
	if e.byRisk {
		return row.AUSC.CriticalFNR
	}
	return row.AUSC.ErrorRate
}

// risk returns the risk at the coverage of the report.
func (e *evaluation) risk(row *eval.Row) float64 {
	if e.byRisk {
		return row.CriticalFNR
	}
	return 1 - row.Accuracy
}

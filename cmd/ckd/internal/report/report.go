package report

import (
	"cmp"
	"fmt"
	"math"
	"slices"

	"github.com/ckd-project/ckd/cmd/ckd/internal/report/document"
	"github.com/ckd-project/ckd/decomp"
	"github.com/ckd-project/ckd/eval"
	"github.com/ckd-project/ckd/policy"
)

// Given says what a person gave beside the recording.
type Given struct {
	// Title of the document. Empty for one that names the file of the passes.
	Title string
	// Recording has the flags that name the recording and its classes, each with its value, for the
	// command to run next. Policy is the path of the policy's file.
	Recording [][2]string
	Policy    string
	// Alone is set where the screen is printed without the rest, so that it says where that is.
	Alone bool
}

// Evaluation returns the report r of the table t as a document. The inputs of the table have the true
// classes labels. It returns an error if report, table and labels do not fit together.
func Evaluation(r *eval.Report, t *eval.Table, labels []int, given Given) (*document.Document, error) {
	switch {
	case len(r.Classes) != t.K:
		return nil, fmt.Errorf("report: %d classes, expected the %d of the table", len(r.Classes), t.K)
	case len(labels) != t.Inputs:
		return nil, fmt.Errorf("report: %d labels, expected one for each of the %d inputs", len(labels), t.Inputs)
	}
	e := &evaluation{
		report: r, table: t, labels: labels, given: given,
		classes: newClasses(r.Classes), byRisk: r.Summary.Critical > 0,
	}
	d := &document.Document{
		Title: cmp.Or(given.Title, titled("Evidence for deferral", r.Source.Passes)), Screen: screen(e), Notes: r.Notes, Words: words(e),
	}
	d.Sections = append(d.Sections, deferralSection(e))
	if r.Policy != nil {
		d.Sections = append(d.Sections, policySection(e))
	}
	d.Sections = append(d.Sections, modelSection(e), trustSection(e), diagnosisSection(e), paperSection(e), sourceSection(e))
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
	given   Given
	classes *classes
	// byRisk is set where there are critical inputs. Rankings are then judged by what they miss, else
	// by errors of any kind.
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

// rows returns the rows of a scope, in the report's order.
func (e *evaluation) rows(scope policy.Scope) []*eval.Row {
	var rows []*eval.Row
	for i := range e.report.Policies {
		if row := &e.report.Policies[i]; row.Scope == scope {
			rows = append(rows, row)
		}
	}
	return rows
}

// rankings returns the rows of a scope, each ranking once, in the report's order.
func (e *evaluation) rankings(scope policy.Scope) []*eval.Row {
	return slices.DeleteFunc(e.rows(scope), func(row *eval.Row) bool { return row.SameAs != "" })
}

// names returns the names of all rows that are the same ranking: "mi = ova_mi".
func (e *evaluation) names(row *eval.Row) string {
	text := row.Name
	for _, other := range e.rows(row.Scope) {
		if other.SameAs == row.Name {
			text += " = " + other.Name
		}
	}
	return text
}

// row returns a ranking by the name of any of its rows, or nil.
func (e *evaluation) row(scope policy.Scope, name string) *eval.Row {
	for _, row := range e.rows(scope) {
		if row.Name == name && row.SameAs != "" {
			return e.row(scope, row.SameAs)
		}
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

// scores returns the rankings of a scope that are scores. Gates and policies do not take part in
// what is said of the best, nor do scores that order nothing, unless all are such.
func (e *evaluation) scores(scope policy.Scope) []*eval.Row {
	all := slices.DeleteFunc(e.rankings(scope), func(row *eval.Row) bool { return !isScore(row.Name) })
	if ordering := slices.DeleteFunc(slices.Clone(all), func(row *eval.Row) bool { return e.constant(row.Name) }); len(ordering) > 0 {
		return ordering
	}
	return all
}

// constant reports whether a score is the same for all inputs, so that its row shows the order of the
// inputs in the file.
func (e *evaluation) constant(name string) bool {
	score, _ := decomp.ParseScore(name)
	values := e.table.Scores[score]
	return len(values) > 0 && slices.Min(values) == slices.Max(values)
}

// best returns the score of a scope that comes first, the first in the report of several. It
// returns nil where there is no score.
func (e *evaluation) best(scope policy.Scope, compare func(x, y *eval.Row) int) *eval.Row {
	rows := e.scores(scope)
	if len(rows) == 0 {
		return nil
	}
	return slices.MinFunc(rows, compare)
}

// fewest returns the score of a scope that does best at the coverage: the fewest missed, and of
// several the lowest area of misses over all coverages; without critical inputs the fewest errors.
func (e *evaluation) fewest(scope policy.Scope) *eval.Row { return e.best(scope, e.byMisses) }

// byMisses puts the ranking first that does better at the coverage.
func (e *evaluation) byMisses(x, y *eval.Row) int {
	if !e.byRisk {
		return cmp.Or(ascending(-x.Accuracy, -y.Accuracy), ascending(x.AUSC.ErrorRate, y.AUSC.ErrorRate))
	}
	return cmp.Or(cmp.Compare(x.CriticalMissed, y.CriticalMissed), ascending(x.JointArea, y.JointArea))
}

// byArea puts the ranking first that has the lower area under the paper's risk.
func (e *evaluation) byArea(x, y *eval.Row) int { return ascending(e.area(x), e.area(y)) }

// ascending compares two figures. Those of nothing come last.
func ascending(x, y eval.Figure) int {
	if x.Defined() && y.Defined() {
		return cmp.Compare(x, y)
	}
	return cmp.Compare(y, x) // NaN is below every number
}

// area returns the area under the paper's risk over the coverages.
func (e *evaluation) area(row *eval.Row) eval.Figure {
	if e.byRisk {
		return row.AUSC.CriticalFNR
	}
	return row.AUSC.ErrorRate
}

// deferrals returns what the coverage of the report hands to people: "200 deferrals per 1,000 inputs".
func (e *evaluation) deferrals() string {
	for i := range e.report.Policies {
		return perThousand(e.report.Policies[i].Per1000.Deferred) + " deferrals per 1,000 inputs"
	}
	return perThousand(1000*(1-e.report.Source.Coverage)) + " deferrals per 1,000 inputs"
}

// byGroup reports whether intervals and tests count groups of inputs.
func (e *evaluation) byGroup() bool { return e.report.Source.Groups > 0 }

// interval95 names the kind of the intervals of shares.
func (e *evaluation) interval95() string {
	if e.byGroup() {
		return "95% interval by group"
	}
	return "exact 95% interval"
}

// resampled95 names the kind of the intervals from resamples.
func (e *evaluation) resampled95() string {
	if e.byGroup() {
		return "95% bootstrap interval by group"
	}
	return "95% bootstrap interval"
}

// perThousand returns a count for each 1,000 inputs: whole from 10 on, else with a decimal.
func perThousand(x float64) string {
	if x != 0 && x < 9.95 {
		return fmt.Sprintf("%.1f", x)
	}
	return document.Count(int(math.Round(x)))
}

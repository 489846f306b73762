package report

import (
	"fmt"
	"slices"

	"github.com/ckd-project/ckd/cmd/ckd/internal/report/document"
	"github.com/ckd-project/ckd/decomp"
	"github.com/ckd-project/ckd/eval"
	"github.com/ckd-project/ckd/policy"
)

// paperSection shows the tables of the paper: critical FNR among the retained, its area over the
// coverages, and the paper's choice of one score for a recording.
func paperSection(e *evaluation) document.Section {
	s := document.NewSection("paper", "The paper's tables",
		"The paper judges a score by critical FNR, which divides what is missed by the critical inputs retained, and by the area "+
			"under it. They stand here to be compared with the paper; they do not say how many critical inputs are missed.")
	for _, scope := range e.scopes() {
		d := &deferral{evaluation: e, scope: scope, lines: lines(e, scope)}
		if !e.byRisk {
			s.Parts = append(s.Parts, document.NewSection("", "", "", d.errorAreaTable()).Parts...)
			continue
		}
		s.Parts = append(s.Parts, document.NewSection("", "", "", d.riskFigure(), d.policyTable(), d.areaTable(), d.errorAreaTable(), d.coverageTable(), d.pairwiseTable()).Parts...)
	}
	s.Parts = append(s.Parts, document.NewSection("", "", "", paperRuleTable(e)).Parts...)
	return s
}

// inPaper reports whether a ranking is in the paper's tables: all are but scores that it lacks.
func inPaper(name string) bool {
	score, ok := decomp.ParseScore(name)
	return !ok || score.InPaper()
}

// paperRankings returns the rankings of the scope that are in the paper's tables.
func (d *deferral) paperRankings() []*eval.Row {
	return slices.DeleteFunc(d.rankings(d.scope), func(row *eval.Row) bool { return !inPaper(row.Name) })
}

// byPaper returns them, the lowest area under the paper's risk first.
func (d *deferral) byPaper() []*eval.Row { return sorted(d.paperRankings(), d.byArea) }

// bestOfPaper returns the first of the paper's scores, by an order, of a scope.
func (e *evaluation) bestOfPaper(scope policy.Scope, compare func(x, y *eval.Row) int) *eval.Row {
	rows := slices.DeleteFunc(e.scores(scope), func(row *eval.Row) bool { return !inPaper(row.Name) })
	if len(rows) == 0 {
		return nil
	}
	return slices.MinFunc(rows, compare)
}

// paperNames returns the names of a ranking without those of scores that the paper lacks.
func (d *deferral) paperNames(row *eval.Row) string {
	text := row.Name
	for _, other := range d.rows(d.scope) {
		if other.SameAs == row.Name && inPaper(other.Name) {
			text += " = " + other.Name
		}
	}
	return text
}

// definedRange says over which coverages the AUSC where defined is taken.
func (d *deferral) definedRange() string {
	for _, row := range d.rankings(d.scope) {
		if row.AUSCFrom.Defined() {
			return fmt.Sprintf("coverages from %.3f to 1", float64(row.AUSCFrom))
		}
	}
	return "no range of coverages"
}

package report

import (
	"slices"
	"strings"
	"testing"

	"github.com/ckd-project/ckd/cmd/ckd/internal/report/document"
	"github.com/ckd-project/ckd/decomp"
	"github.com/ckd-project/ckd/eval"
	"github.com/ckd-project/ckd/policy"
)

// TestNoCurveHidesAnother gives two rankings the same curve, and expects one line that names both.
func TestNoCurveHidesAnother(t *testing.T) {
	t.Parallel()
	r, table, labels := byHand()
	for i := range r.Curves.Rows { // in byHand all curves are the same
		if r.Curves.Rows[i].Name != "cbec" && r.Curves.Rows[i].Name != "mi" {
			r.Curves.Rows[i].CriticalMissed = slices.Clone(r.Curves.Rows[i].CriticalMissed)
			r.Curves.Rows[i].CriticalMissed[3] += float64(i)
		}
	}
	d, err := Evaluation(r, table, labels, Given{})
	if err != nil {
		t.Fatal(err)
	}
	f := d.Sections[0].Parts[0].(*document.Figure)
	var shared []string
	for _, key := range f.Legend {
		if strings.Contains(key.Text, "safe-critical confusion") {
			shared = append(shared, key.Text)
		}
	}
	if len(shared) != 1 || !strings.Contains(shared[0], "the same curve: mutual information, any input") {
		t.Errorf("the legend says %q, expected one line for cbec and mi", shared)
	}
	if lines := len(f.Plots[0].Lines) - 1; lines != len(f.Legend)-1 { // one is the coverage
		t.Errorf("%d lines and %d entries", lines, len(f.Legend)-1)
	}
}

// TestOneRowForTheSameRanking expects the names of both in one row, and words on any of them to speak
// of it.
func TestOneRowForTheSameRanking(t *testing.T) {
	t.Parallel()
	r, table, labels := byHand()
	r.Policies[2].SameAs = "c_crit_max" // cbec
	d, err := Evaluation(r, table, labels, Given{})
	if err != nil {
		t.Fatal(err)
	}
	rows := d.Sections[0].Parts[1].(*document.Table).Rows
	var names []any
	for _, row := range rows {
		names = append(names, row[0])
	}
	if want := []any{"no review", "mi", "c_crit_max = cbec", "policy"}; !slices.Equal(names, want) {
		t.Errorf("rows %q, want %q", names, want)
	}
	e := &evaluation{report: r, byRisk: true}
	if row := e.row(policy.AllInputs, "cbec"); row == nil || row.Name != "c_crit_max" {
		t.Errorf("cbec is row %+v", row)
	}
}

// TestConstantScores expects scores that order nothing never to be called the best: their rows show
// the order of the inputs in the file.
func TestConstantScores(t *testing.T) {
	t.Parallel()
	recording, labels := synthetic(60, 3)
	passes, values := recording.Passes.Passes, recording.Passes.Float64
	for i := range values {
		values[i] = values[i%(len(values)/passes)] // every pass is the first one
	}
	r, table := evaluate(t, recording, labels, decomp.Spec{Classes: 3, Critical: []int{2}, Safe: []int{0, 1}}, eval.Options{Classes: []string{"a", "b", "c"}})
	r.Policies[slices.IndexFunc(r.Policies, func(row eval.Row) bool { return row.Name == mi })].CriticalMissed = 0
	e := &evaluation{report: r, table: table, byRisk: true}
	for _, scope := range e.scopes() {
		best := e.fewest(scope)
		if score, _ := decomp.ParseScore(best.Name); slices.Min(table.Scores[score]) == slices.Max(table.Scores[score]) {
			t.Errorf("scope %s: the best score is said to be %s, which is the same for all inputs", scope, best.Name)
		}
	}
}

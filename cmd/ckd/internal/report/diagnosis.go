package report

import (
	"cmp"
	"fmt"
	"slices"
	"strings"

	"github.com/ckd-project/ckd/cmd/ckd/internal/report/document"
	"github.com/ckd-project/ckd/eval"
)

// diagnosisSection shows what the model does not know.
func diagnosisSection(e *evaluation) document.Section {
	return document.NewSection("diagnosis", "What the model does not know",
		"The contributions of classes say where the ignorance of the model lies, for the inputs of each class and for "+
			"each kind of error.",
		profileFigure(e), confusionFigure(e), signatureTable(e))
}

// profileFigure shows the mean contribution of each class by true class. It returns nil where the
// report has none.
func profileFigure(e *evaluation) *document.Figure {
	p := e.report.Profiles
	if len(p.Raw) != e.table.K || len(p.Normalised) != e.table.K {
		return nil
	}
	shares := e.classes.matrix("Share of the contributions (%)", "true \\ class",
		func(i, j int) float64 { return float64(p.Normalised[i][j]) },
		func(_, _ int, v float64) any { return strings.TrimSuffix(document.WholePercent(v), "%") })
	shares.Outlined = e.classes.anyCritical
	return &document.Figure{
		Title: "Epistemic profiles: about which classes the model is ignorant, by true class",
		Says:  profileSays(e),
		How: "Rows are the inputs of a true class. The first table has the mean contribution of each class, the second its " +
			"share of the contributions of the input. " + e.classes.outlineSentence() + e.classes.shownSentence(),
		Matrices: []*document.Matrix{
			e.classes.nats("Mean contribution", "true \\ class", false, func(i, j int) float64 { return float64(p.Raw[i][j]) }),
			shares,
		},
	}
}

// profileSays names the class of the largest share for the classes that matter: up to three critical
// ones with the most inputs, else any.
func profileSays(e *evaluation) string {
	var of []int
	for k, c := range e.report.Classes {
		if c.Support > 0 && (c.Critical || !e.classes.anyCritical) {
			of = append(of, k)
		}
	}
	text := ""
	for i, k := range largest(e.report.Classes, of, 3) {
		row := e.report.Profiles.Normalised[k]
		top := slices.Index(row, slices.Max(row))
		switch {
		case i == 0:
			text = fmt.Sprintf("Where the truth is %s (%s), %s of the ignorance is about %s", e.report.Classes[k].Name,
				document.Noun(e.report.Classes[k].Support, "input"), document.Percent(row[top]), e.report.Classes[top].Name)
		default:
			text += fmt.Sprintf("; where it is %s (%s), %s is about %s", e.report.Classes[k].Name, document.Count(e.report.Classes[k].Support),
				document.Percent(row[top]), e.report.Classes[top].Name)
		}
	}
	if text == "" {
		return "No input belongs to a critical class."
	}
	return text + "."
}

// confusionFigure shows the epistemic confusion matrix. It returns nil where the report has none.
func confusionFigure(e *evaluation) *document.Figure {
	c := e.report.Confusion
	if c == nil || len(c.Matrix) != e.table.K {
		return nil
	}
	return &document.Figure{
		Title: "Epistemic confusion: between which classes the model cannot decide",
		Says:  confusionSays(e),
		How: "Mean pair term: how much of the ignorance is about this pair, one class gaining what the " +
			"other loses. Symmetric. " + e.classes.outlineSentence() + e.classes.shownSentence(),
		Matrices: []*document.Matrix{e.classes.nats("Mean pair term", "class \\ class", true, func(i, j int) float64 { return c.Matrix[i][j] })},
	}
}

// confusionSays names the most confused pair and compares the blocks.
func confusionSays(e *evaluation) string {
	c := e.report.Confusion
	x, y := 0, min(1, e.table.K-1)
	for i := range c.Matrix {
		for j := range i {
			if c.Matrix[i][j] > c.Matrix[x][y] {
				x, y = j, i
			}
		}
	}
	text := fmt.Sprintf("The pair most confused is %s and %s (%s nats).", e.report.Classes[x].Name, e.report.Classes[y].Name,
		document.Decimal(c.Matrix[x][y]))
	if !e.classes.anyCritical {
		return text
	}
	var in [3]int // safe, neither, critical
	for _, class := range e.report.Classes {
		in[group(class)]++
	}
	var means, ratios []string
	if in[0] > 0 && in[2] > 0 {
		means = append(means, document.Decimal(c.CrossBoundary)+" nats across the boundary of safe and critical")
	}
	if in[0] > 1 {
		means = append(means, document.Decimal(c.WithinSafe)+" between two safe classes")
		ratios = append(ratios, times(c.CrossToSafe)+" times that of two safe classes")
	}
	if in[2] > 1 {
		means = append(means, document.Decimal(c.WithinCritical)+" between two critical ones")
		ratios = append(ratios, times(c.CrossToCritical)+" times that of two critical ones")
	}
	if len(means) > 0 {
		text += " The mean of a pair is " + document.List(means) + "."
	}
	if len(means) > len(ratios) && len(ratios) > 0 { // there is a mean across
		text += " Across is " + document.List(ratios) + "."
	}
	return text
}

// mostRows bounds the rows of the table of signatures.
const mostRows = 200

// signatures returns those of the report by importance: missed, false alarms, other errors, right
// ones; within each, the most inputs first.
func signatures(e *evaluation) []eval.Signature {
	all := slices.DeleteFunc(slices.Clone(e.report.Signatures), func(s eval.Signature) bool { return len(s.C) != e.table.K })
	slices.SortStableFunc(all, func(x, y eval.Signature) int {
		return cmp.Or(cmp.Compare(kindOf(e, x), kindOf(e, y)), cmp.Compare(y.N, x.N))
	})
	return all
}

// kindWords has a word for each rank of kindOf.
var kindWords = [...]string{"missed", "false alarm", "other error", "right"}

// kindOf ranks a signature by importance: 0 missed, 1 false alarm, 2 another error, 3 right.
func kindOf(e *evaluation, s eval.Signature) int {
	from, predictedCritical := isCritical(e, s.True), isCritical(e, s.Predicted)
	switch {
	case s.True == s.Predicted:
		return 3
	case from && !predictedCritical:
		return 0
	case predictedCritical && !from:
		return 1
	default:
		return 2
	}
}

func isCritical(e *evaluation, class string) bool {
	return slices.ContainsFunc(e.report.Classes, func(c eval.Class) bool { return c.Critical && c.Name == class })
}

// signatureTable shows all signatures, the important ones first. It returns nil without any.
func signatureTable(e *evaluation) *document.Table {
	all := signatures(e)
	if len(all) == 0 {
		return nil
	}
	t := &document.Table{
		Caption:     "Signatures of every true and predicted class",
		Says:        "Mean contributions in nats. The errors that matter most come first, right predictions last.",
		Head:        []string{"true", "predicted", "kind", "dominant", "inputs", "MI (nats)"},
		TextColumns: 4,
		Closed:      true,
	}
	if len(all) > mostRows {
		t.Says += fmt.Sprintf(" The first %d of %s.", mostRows, document.Count(len(all)))
		all = all[:mostRows]
	}
	few := e.table.K <= 8
	if few {
		for _, c := range e.report.Classes {
			t.Head = append(t.Head, c.Name)
		}
	}
	if !few {
		t.Head = append(t.Head, "its contribution")
	}
	for _, s := range all {
		cells := []any{s.True, s.Predicted, kindWords[kindOf(e, s)], s.Dominant, s.N, document.Number(s.MI)}
		if few {
			for _, c := range s.C {
				cells = append(cells, document.Number(c))
			}
		}
		if !few {
			cells = append(cells, document.Number(slices.Max(s.C)))
		}
		t.Add(cells...)
	}
	return t
}

package report

import (
	"fmt"

	"github.com/ckd-project/ckd/cmd/ckd/internal/report/document"
	"github.com/ckd-project/ckd/eval"
)

// modelSection shows the model without deferral.
func modelSection(e *evaluation) document.Section {
	return document.NewSection("model", "The model without review", e.accuracySays(), confusionMatrix(e), classTable(e))
}

// accuracySays says how often the model is right.
func (e *evaluation) accuracySays() string {
	s := e.report.Summary
	return fmt.Sprintf("The model is right on %s of %s (%s).", document.Count(e.correct()), document.Noun(s.Inputs, "input"),
		document.Percent(s.Accuracy))
}

// confusionMatrix counts true against predicted classes. It returns nil where the report has no
// matrix.
func confusionMatrix(e *evaluation) *document.Figure {
	counts := e.report.Matrix
	if len(counts) != e.table.K {
		return nil
	}
	classTotals := make([]int, e.table.K)
	for k, row := range counts {
		for _, n := range row {
			classTotals[k] += n
		}
	}
	m := e.classes.matrix("Inputs by true class (rows) and predicted class (columns)", "true \\ predicted",
		func(i, j int) float64 { return share(counts[i][j], classTotals[i]) },
		func(i, j int, _ float64) any { return fmt.Sprint(counts[i][j]) })
	m.Outlined = true
	return &document.Figure{
		Title: "Confusion matrix: what the model calls each class",
		Says:  mistakeSays(e),
		How: e.classes.outlineSentence() + "Colour is the share of the true class; the diagonal is right. " +
			e.classes.shownSentence(),
		Matrices: []*document.Matrix{m},
	}
}

// mistakeSays describes the most frequent mistake.
func mistakeSays(e *evaluation) string {
	m, classes := e.report.Matrix, e.report.Classes
	from, to, wrong, missed := 0, 0, 0, 0
	for i, row := range m {
		for j, n := range row {
			if i == j {
				continue
			}
			wrong += n
			if classes[i].Critical && !classes[j].Critical {
				missed += n
			}
			if from == to || n > m[from][to] {
				from, to = i, j
			}
		}
	}
	if wrong == 0 {
		return "The model makes no mistake on this recording."
	}
	s := fmt.Sprintf("Of %s, the most frequent is %s called %s: %s of the %s of that class (%s).",
		document.Noun(wrong, "mistake"), classes[from].Name, classes[to].Name, document.Count(m[from][to]),
		document.Noun(classes[from].Support, "input"), document.Percent(share(m[from][to], classes[from].Support)))
	if e.byRisk {
		s += fmt.Sprintf(" %s of them call a critical input not critical.", document.Count(missed))
	}
	return s
}

// classTable shows the figures of every class and their averages.
func classTable(e *evaluation) *document.Table {
	s := e.report.Summary
	t := &document.Table{
		Caption: "Classification report",
		Says: fmt.Sprintf("Accuracy %s, macro-F1 %s, quadratic weighted kappa %s (classes taken as grades in their order). "+
			"Class uncertainty is the mean predictive entropy of the inputs of the class, in nats. "+
			"Dominant: the share of inputs in which the class has the largest contribution.",
			document.Percent(s.Accuracy), document.Decimal(s.MacroF1), document.Decimal(s.QWK)),
		Head: []string{"class", "group", "inputs", "predicted", "precision", "recall", "F1", "class uncertainty",
			"dominant in"},
		TextColumns: 2,
		Closed:      e.table.K > document.LongTable,
	}
	var macro, weighted [3]average // of precision, recall and F1
	for k, c := range e.report.Classes {
		var dominant any
		if k < len(e.report.Dominant) {
			dominant = document.Share(e.report.Dominant[k])
		}
		t.Add(c.Name, []string{"safe", "", "critical"}[group(c)], c.Support, c.Predicted, document.Number(c.Precision),
			document.Number(c.Recall), document.Number(c.F1), document.Number(c.Uncertainty), dominant)
		for i, v := range []eval.Figure{c.Precision, c.Recall, c.F1} {
			macro[i].add(v, 1)
			weighted[i].add(v, float64(c.Support))
		}
	}
	add := func(name string, of [3]average) {
		t.Add(name, "", s.Inputs, s.Inputs, of[0].cell(), of[1].cell(), of[2].cell(), nil, nil)
	}
	add("macro average", macro)
	add("weighted average", weighted)
	t.Main = e.classes.main(len(t.Rows))
	return t
}

// average is a weighted mean of the figures that are defined.
type average struct{ sum, weight float64 }

func (a *average) add(f eval.Figure, weight float64) {
	if f.Defined() {
		a.sum += weight * float64(f)
		a.weight += weight
	}
}

// cell returns the mean, n/a of no figures.
func (a average) cell() any { return document.Number(a.sum / a.weight) }

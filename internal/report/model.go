package report

import (
	"fmt"
	"strconv"
)

// modelSection is the model without deferral.
func (b *builder) modelSection() section {
	s := section{ID: "model", Title: "The model without deferral", Intro: b.unaided()}
	if f := b.confusionMatrix(); f != nil {
		s.Parts = append(s.Parts, part{Figure: f})
	}
	s.Parts = append(s.Parts, part{Table: b.classTable()})
	return s
}

// confusionMatrix counts true against predicted classes. Nil where the report
// has none.
func (b *builder) confusionMatrix() *figure {
	m := b.r.Matrix
	if len(m) != b.t.K {
		return nil
	}
	f := &figure{
		Title: "Confusion matrix: what the model calls each class",
		Says:  b.mistakeSays(),
		How:   blocks(b) + "Colour is the share of the true class; the diagonal is right. " + b.shownSentence(),
	}
	of := make([]int, b.t.K)
	for k, row := range m {
		for _, n := range row {
			of[k] += n
		}
	}
	h := b.matrix("Inputs by true class (rows) and predicted class (columns)", "true \\ predicted", true, false,
		func(i, j int) float64 { return share(m[i][j], of[i]) }, func(float64) string { return "" })
	for r, i := range b.shown {
		for c, j := range b.shown {
			h.Rows[r].Cells[c].Text = strconv.Itoa(m[i][j])
		}
	}
	f.Heats = []heat{h}
	return f
}

// blocks says what the outlines of a matrix mean; "" without critical classes.
func blocks(b *builder) string {
	if !b.anyCritical() {
		return ""
	}
	return "Solid outline: critical classes among themselves. Dashed outline: across the boundary of safe and critical. "
}

// mistakeSays names the most frequent mistake.
func (b *builder) mistakeSays() string {
	m := b.r.Matrix
	from, to, wrong, missed := 0, 0, 0, 0
	for i, row := range m {
		for j, n := range row {
			if i == j {
				continue
			}
			wrong += n
			if b.r.Classes[i].Critical && !b.r.Classes[j].Critical {
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
		noun(wrong, "mistake", "mistakes"), b.r.Classes[from].Name, b.r.Classes[to].Name, count(m[from][to]),
		noun(b.r.Classes[from].Support, "input", "inputs"), percent(share(m[from][to], b.r.Classes[from].Support)))
	if b.byRisk {
		s += fmt.Sprintf(" %s of them call a critical input not critical.", count(missed))
	}
	return s
}

// classTable is the classification report.
func (b *builder) classTable() *table {
	s := b.r.Summary
	t := &table{
		Caption: "Classification report",
		Says: fmt.Sprintf("Accuracy %s, macro-F1 %s, quadratic weighted kappa %s (classes taken as grades in their order). "+
			"Class uncertainty is the mean predictive entropy of the inputs of the class, in nats, and its share. "+
			"Dominant: the share of inputs in which the class has the largest contribution.",
			percent(s.Accuracy), number(s.MacroF1), number(s.QWK)),
		Head: []string{"class", "group", "inputs", "predicted", "precision", "recall", "F1", "class uncertainty", "share",
			"dominant in"},
		Text:   2,
		Closed: b.t.K > longTable,
	}
	for k, c := range b.r.Classes {
		dominant := ""
		if k < len(b.r.Dominant) {
			dominant = percent(b.r.Dominant[k])
		}
		t.Rows = append(t.Rows, []string{c.Name, []string{"safe", "", "critical"}[group(c)], count(c.Support), count(c.Predicted),
			number(c.Precision), number(c.Recall), number(c.F1), number(c.Uncertainty), percent(c.UncertaintyShare), dominant})
	}
	return t
}

package report

import (
	"cmp"
	"fmt"
	"math"
	"slices"

	"github.com/ckd-project/ckd/cmd/ckd/internal/report/document"
	"github.com/ckd-project/ckd/eval"
)

// trustSection shows how far the contributions of classes can be taken at face value.
func trustSection(e *evaluation) document.Section {
	return document.NewSection("trust", "Can the contributions of classes be trusted?",
		"The contribution C_k of a class is an approximation of its part in the mutual information. It is good where the "+
			"passes spread evenly around their mean, and skewness says where they do not.",
		residualTable(e), skewnessTable(e), ownSkewnessTable(e), skewnessByTrue(e))
}

// sumSays compares the sum of contributions with mutual information.
func sumSays(s eval.Summary) string {
	return fmt.Sprintf("The sum of contributions follows mutual information with a correlation of %s (Pearson; Spearman %s), "+
		"and is %s times as large on average, of which a factor of %s comes from the variance in use. The rank "+
		"correlation of their distance with the largest skewness is %s.", times(s.Pearson), times(s.Spearman),
		times(s.Inflation), times(s.Factor), times(s.ResidualSkewness))
}

// residualTable shows sum_c - MI by skewness.
func residualTable(e *evaluation) *document.Table {
	t := &document.Table{
		Caption:     "Sum of contributions less mutual information, by the largest skewness of the input",
		Says:        sumSays(e.report.Summary),
		Head:        []string{"largest skewness", "inputs", "mean difference (nats)", "relative to mean MI"},
		TextColumns: 1,
	}
	for _, bin := range e.report.Residual {
		name := "over " + document.Plain(bin.Above)
		if bin.UpTo != nil {
			name = document.Plain(bin.Above) + " to " + document.Plain(*bin.UpTo)
		}
		t.Add(name, bin.N, document.Number(bin.Mean), document.Share(bin.Relative))
	}
	return t
}

// skewnessSays names the classes that are most and least often reliable.
func skewnessSays(e *evaluation) string {
	s := e.report.Summary
	text := fmt.Sprintf("All classes of an input are reliable at once (skewness under %s) in %s of the inputs.",
		document.Plain(e.report.Source.Reliability), document.Percent(s.AllReliable))
	if len(e.report.Skewness) > 0 {
		byMedian := func(x, y eval.Skewness) int { return cmp.Compare(x.Median, y.Median) }
		least, most := slices.MinFunc(e.report.Skewness, byMedian), slices.MaxFunc(e.report.Skewness, byMedian)
		text = fmt.Sprintf("The median skewness is lowest for %s (%s) and highest for %s (%s). ", least.Class,
			document.Digits(least.Median), most.Class, document.Digits(most.Median)) + text
	}
	if e.classes.anyCritical {
		text += fmt.Sprintf(" In %s some critical class is over the threshold, so that the paper's rule falls back.",
			document.Percent(s.FallbackShare))
	}
	return text
}

// sweep has the thresholds of SkewnessOf.Reliable.
var sweep = []string{"0.1", "0.2", "0.3", "0.5"}

// skewnessTable shows the skewness of each class over all inputs.
func skewnessTable(e *evaluation) *document.Table {
	t := &document.Table{
		Caption:     "Skewness by class over all inputs",
		Says:        skewnessSays(e) + " Reliable: the share of inputs under the threshold.",
		Head:        append([]string{"class"}, skewnessHead()...),
		TextColumns: 1,
		Closed:      e.table.K > document.LongTable,
	}
	for _, s := range e.report.Skewness {
		t.Add(append([]any{s.Class}, skewnessCells(s.SkewnessOf)...)...)
	}
	t.Main = e.classes.main(len(t.Rows))
	return t
}

// ownSkewnessTable shows the skewness of each class over the inputs of that class. It returns nil
// where the report has no skewness by true class.
func ownSkewnessTable(e *evaluation) *document.Table {
	t := &document.Table{
		Caption:     "Skewness of the true class",
		Says:        "Of each class over the inputs that belong to it.",
		Head:        append([]string{"class", "inputs"}, skewnessHead()...),
		TextColumns: 1,
		Closed:      true,
	}
	for _, s := range e.report.Skewness {
		for _, row := range s.ByTrue {
			if row.True == s.Class {
				t.Add(append([]any{s.Class, row.N}, skewnessCells(row.SkewnessOf)...)...)
			}
		}
	}
	if len(t.Rows) == 0 {
		return nil
	}
	t.Main = e.classes.main(len(t.Rows))
	return t
}

func skewnessHead() []string {
	head := []string{"median", "mean", "90th percentile"}
	for _, threshold := range sweep {
		head = append(head, "reliable at "+threshold)
	}
	return head
}

func skewnessCells(s eval.SkewnessOf) []any {
	cells := []any{document.Short(s.Median), document.Short(s.Mean), document.Short(s.P90)}
	for _, threshold := range sweep {
		cells = append(cells, document.Share(s.Reliable[threshold]))
	}
	return cells
}

// skewnessByTrue shows the median skewness of each class over the inputs of each true class. It
// returns nil where the report has none.
func skewnessByTrue(e *evaluation) *document.Figure {
	all, shown := e.report.Skewness, e.classes.shown
	incomplete := func(s eval.Skewness) bool { return len(s.ByTrue) != e.table.K }
	if len(all) != e.table.K || slices.ContainsFunc(all, incomplete) {
		return nil
	}
	value := func(i, j int) float64 { return float64(all[j].ByTrue[i].Median) }
	high, widest := shown[0], shown[0]
	for _, i := range shown {
		for _, j := range shown {
			if value(i, j) > value(widest, high) || math.IsNaN(value(widest, high)) {
				widest, high = i, j
			}
		}
	}
	return &document.Figure{
		Title: "Median skewness of each class, by true class",
		Says: fmt.Sprintf("It is highest for %s where the truth is %s: %s over %s.", e.report.Classes[high].Name,
			e.report.Classes[widest].Name, document.Digits(value(widest, high)), document.Noun(all[high].ByTrue[widest].N, "input")),
		How: "Colour is on a scale up to the largest value. " + e.classes.shownSentence(),
		Matrices: []*document.Matrix{
			e.classes.matrix("Median skewness, by true class (rows), of each class (columns)", "true \\ class", value, shortCell),
		},
	}
}

// paperRuleTable shows the paper's choice of one score for a recording. It returns
// nil without one.
func paperRuleTable(e *evaluation) *document.Table {
	r := e.report.PaperRule
	if r == nil {
		return nil
	}
	side := "not over"
	if r.MedianCriticalSkewness > e.report.Source.Reliability {
		side = "over"
	}
	t := &document.Table{
		Caption: "The paper's choice of one score for a recording",
		Says: fmt.Sprintf("The largest median skewness of a critical class is %s, %s the threshold of %s: the paper takes %s.",
			document.Digits(r.MedianCriticalSkewness), side, document.Plain(e.report.Source.Reliability), r.Score),
		Head:        []string{"judged by", "best score", "cost of that choice"},
		TextColumns: 2,
	}
	t.Add("AUSC of critical FNR, where defined", r.BestAUSC, document.Number(r.CostAUSC))
	t.Add("critical FNR at "+document.RoundPercent(e.report.Source.Coverage)+" coverage", r.BestCriticalFNR,
		document.Number(r.CostCriticalFNR))
	return t
}

// times returns a ratio of two means.
func times[F ~float64](x F) string {
	if math.IsNaN(float64(x)) {
		return "n/a"
	}
	return fmt.Sprintf("%.2f", float64(x))
}

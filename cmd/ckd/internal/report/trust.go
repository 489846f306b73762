package report

import (
	"cmp"
	"fmt"
	"math"
	"slices"

	"github.com/ckd-project/ckd/cmd/ckd/internal/report/document"
	"github.com/ckd-project/ckd/decomp"
	"github.com/ckd-project/ckd/eval"
)

// trustSection shows how far the contributions of classes can be taken at face value.
func trustSection(e *evaluation) document.Section {
	return document.NewSection("trust", "Can the contributions of classes be trusted?",
		"The contribution C_k of a class is an approximation of its part in the mutual information. It is good where the "+
			"passes spread evenly around their mean, and skewness says where they do not.",
		scatterFigure(e), residualTable(e), skewnessFigure(e), skewnessTable(e), ownSkewnessTable(e), skewnessByTrue(e))
}

// mostPoints bounds the points of the scatter. More would make the file large and the picture no
// clearer.
const mostPoints = 2000

// scatterFigure draws sum_c against MI, a point for each input.
func scatterFigure(e *evaluation) *document.Figure {
	s := e.report.Summary
	f := &document.Figure{
		Title: "Sum of the contributions against mutual information, by the largest skewness of any class",
		Says: fmt.Sprintf("The sum of contributions follows mutual information with a correlation of %s (Pearson; Spearman %s), "+
			"and is %s times as large on average, of which a factor of %s comes from the variance in use. The rank "+
			"correlation of their distance with the largest skewness is %s.", times(s.Pearson), times(s.Spearman),
			times(s.Inflation), times(s.Factor), times(s.ResidualSkewness)),
		How: "On the diagonal the contributions add up to exactly the mutual information. Circles: largest skewness up to the " +
			"threshold of " + document.Plain(e.report.Source.Reliability) + "; triangles: above it.",
		LegendTitle: "largest skewness:",
	}
	drawn := spread(e.table.Inputs, mostPoints)
	if len(drawn) < e.table.Inputs {
		f.How += fmt.Sprintf(" %s of the %s inputs are drawn, evenly spaced in their order.", document.Count(len(drawn)),
			document.Count(e.table.Inputs))
	}
	bins := skewnessBins(e.report.Source.Reliability)
	points := make([]document.Points, len(bins))
	for i, bin := range bins {
		points[i] = document.Points{Mark: document.MarkCircle, Ink: bin.ink, Radius: 2, Faint: true}
		if bin.over {
			points[i].Mark, points[i].Radius = document.MarkTriangle, 2.4
		}
		f.Legend = append(f.Legend, document.Key{Mark: points[i].Mark, Ink: bin.ink, Text: bin.text})
	}
	highest := 0.0
	for _, i := range drawn {
		largest := slices.Max(e.table.Skewness[i*e.table.K : (i+1)*e.table.K])
		of := &points[slices.IndexFunc(bins, func(bin skewnessBin) bool { return !(largest > bin.upTo) })]
		x, y := e.table.Scores[decomp.MI][i], e.table.SumC[i]
		of.X, of.Y = append(of.X, x), append(of.Y, y)
		highest = max(highest, x, y)
	}
	// The bin with the most points is drawn first, so that the rare ones are on top.
	points = slices.DeleteFunc(points, func(p document.Points) bool { return len(p.X) == 0 })
	slices.SortStableFunc(points, func(x, y document.Points) int { return cmp.Compare(len(y.X), len(x.X)) })

	end := document.RoundUp(highest, 6)
	ticks := document.Ticks{About: 6, Unit: 1}
	diagonal := document.Stroke{Ink: document.Foreground, Dash: document.MarkDashed, Width: 1}
	f.Legend = append(f.Legend, diagonal.Key("sum equal to mutual information"))
	f.Plots = []document.Plot{{
		Height: 400,
		X:      document.Axis{Label: "mutual information (nats)", Max: end, Ticks: ticks},
		Y:      document.Axis{Label: "sum of contributions (nats)", Max: end, Ticks: ticks},
		Lines:  []document.Line{{Stroke: diagonal, X: []float64{0, end}, Y: []float64{0, end}}},
		Points: points,
	}}
	return f
}

// spread returns at most most of n positions, evenly spaced from the first to the last.
func spread(n, most int) []int {
	most = min(n, most)
	positions := make([]int, most)
	for i := range positions {
		positions[i] = i * (n - 1) / max(most-1, 1)
	}
	return positions
}

// skewnessBin is a range of skewness with one colour.
type skewnessBin struct {
	upTo float64
	over bool // above the reliability threshold
	ink  document.Ink
	text string
}

// skewnessBins returns three ranges up to the reliability threshold, and three above it.
func skewnessBins(threshold float64) []skewnessBin {
	ends := []float64{threshold / 3, 2 * threshold / 3, threshold, 2 * threshold, 5 * threshold, math.Inf(1)}
	bins := make([]skewnessBin, len(ends))
	above := 0.0
	for i, end := range ends {
		bins[i] = skewnessBin{upTo: end, over: end > threshold, ink: document.Under0 + document.Ink(i),
			text: fmt.Sprintf("%.2g to %.2g", above, end)}
		above = end
	}
	bins[len(bins)-1].text = fmt.Sprintf("over %.2g", ends[len(ends)-2])
	return bins
}

// residualTable shows sum_c - MI by skewness.
func residualTable(e *evaluation) *document.Table {
	t := &document.Table{
		Caption:     "Sum of contributions less mutual information, by the largest skewness of the input",
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

// skewnessFigure draws the distribution of skewness over the inputs, for each class.
func skewnessFigure(e *evaluation) *document.Figure {
	least := document.Plain(leastSkewness)
	f := &document.Figure{
		Title: "Skewness of each class over all inputs",
		Says:  skewnessSays(e),
		How: fmt.Sprintf("Logarithmic scale; what is under %s is drawn at %s. Boxes hold the middle half of the inputs, with their "+
			"median; whiskers reach from the 5th to the 95th percentile. The dashed line is the reliability threshold: left of it "+
			"a contribution is taken at face value.", least, least),
	}
	if s := e.classes.shownSentence(); s != "" {
		f.How += " " + s
	}
	inks := [...]document.Ink{document.Safe: document.Blue, document.Neither: document.Grey, document.Critical: document.Vermillion}
	var seen [len(inks)]bool
	p := document.Plot{Height: float64(50 + 22*len(e.classes.shown))}
	var names []string
	highest := 10 * leastSkewness
	for i, k := range e.classes.shown {
		logs := make([]float64, e.table.Inputs)
		for j := range logs {
			skewness := max(leastSkewness, e.table.Skewness[j*e.table.K+k])
			highest = max(highest, skewness)
			logs[j] = math.Log10(skewness)
		}
		of := group(e.report.Classes[k])
		seen[of] = true
		names = append(names, e.report.Classes[k].Name)
		p.Boxes = append(p.Boxes, document.Box{Ink: inks[of], At: float64(len(e.classes.shown) - 1 - i), Values: logs, Percentiles: true})
	}
	slices.Reverse(names) // the first class is on top
	p.X = document.Axis{Label: "skewness", Min: math.Log10(leastSkewness), Max: math.Ceil(math.Log10(highest) - 1e-9),
		Ticks: document.Ticks{Decades: true}}
	p.Y = document.Axis{Min: -0.7, Max: float64(len(names)) - 0.3, Ticks: document.Ticks{Names: names}}
	dashed := document.Stroke{Ink: document.Foreground, Dash: document.MarkDashed, Width: 1}
	threshold := e.report.Source.Reliability
	if threshold > leastSkewness {
		p.Upright(math.Log10(threshold), dashed)
	}
	for of, name := range [...]string{"safe", "neither safe nor critical", "critical"} {
		if seen[of] && e.classes.anyCritical {
			f.Legend = append(f.Legend, document.Key{Mark: document.MarkBox, Ink: inks[of], Text: name})
		}
	}
	f.Legend = append(f.Legend, dashed.Key("reliability threshold, "+document.Plain(threshold)))
	f.Plots = []document.Plot{p}
	return f
}

// leastSkewness is the left end of the logarithmic scale, which has no zero.
const leastSkewness = 0.001

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
		text += fmt.Sprintf(" In %s some critical class is over the threshold, so that gate any-critical falls back.",
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
		Says:        "Reliable: the share of inputs under the threshold.",
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
		for _, of := range s.ByTrue {
			if of.True == s.Class {
				t.Add(append([]any{s.Class, of.N}, skewnessCells(of.SkewnessOf)...)...)
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
	high, of := shown[0], shown[0]
	for _, i := range shown {
		for _, j := range shown {
			if value(i, j) > value(of, high) || math.IsNaN(value(of, high)) {
				of, high = i, j
			}
		}
	}
	return &document.Figure{
		Title: "Median skewness of each class, by true class",
		Says: fmt.Sprintf("It is highest for %s where the truth is %s: %s over %s.", e.report.Classes[high].Name,
			e.report.Classes[of].Name, document.Digits(value(of, high)), document.Noun(all[high].ByTrue[of].N, "input")),
		How: "Colour is on a scale up to the largest value. " + e.classes.shownSentence(),
		Matrices: []*document.Matrix{
			e.classes.matrix("Median skewness, by true class (rows), of each class (columns)", "true \\ class", value, shortCell),
		},
	}
}

// paperRuleTable shows which score the paper's rule would choose for the whole recording. It returns
// nil without the rule.
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
		Caption: "One score for the whole recording, by the paper's rule",
		Says: fmt.Sprintf("The largest median skewness of a critical class is %s, %s the threshold of %s: the rule chooses %s.",
			document.Digits(r.MedianCriticalSkewness), side, document.Plain(e.report.Source.Reliability), r.Score),
		Head:        []string{"judged by", "best score", "cost of the rule's choice"},
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

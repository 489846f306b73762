package report

import (
	"cmp"
	"fmt"
	"math"
	"slices"

	"gonum.org/v1/plot"
	"gonum.org/v1/plot/plotter"
	"gonum.org/v1/plot/vg"
	"gonum.org/v1/plot/vg/draw"

	"github.com/ckd-project/ckd/decomp"
	"github.com/ckd-project/ckd/eval"
)

// trustSection is how far the contributions of classes can be taken at face
// value.
func (b *builder) trustSection() (section, error) {
	s := section{
		ID:    "trust",
		Title: "Can the contributions of classes be trusted?",
		Intro: "The contribution C_k of a class is an approximation of its part in the mutual information. It is good where the " +
			"passes spread evenly around their mean, and skewness says where they do not.",
	}
	scatter, err := b.scatterFigure()
	if err != nil {
		return s, err
	}
	s.Parts = append(s.Parts, part{Figure: scatter}, part{Table: b.residualTable()})
	skewness, err := b.skewnessFigure()
	if err != nil {
		return s, err
	}
	s.Parts = append(s.Parts, part{Figure: skewness}, part{Table: b.skewnessTable()})
	if f := b.skewnessByTrue(); f != nil {
		s.Parts = append(s.Parts, part{Figure: f})
	}
	if t := b.paperRuleTable(); t != nil {
		s.Parts = append(s.Parts, part{Table: t})
	}
	return s, nil
}

// mostPoints bounds the points of the scatter: more make the file large and the
// picture no clearer.
const mostPoints = 2000

// scatterFigure is sum_c against MI, a point for each input.
func (b *builder) scatterFigure() (*figure, error) {
	s := b.r.Summary
	f := &figure{
		Title: "Sum of the contributions against mutual information, by the largest skewness of any class",
		Says: fmt.Sprintf("The sum of contributions follows mutual information with a correlation of %s (Pearson; Spearman %s), "+
			"and is %s times as large on average, of which a factor of %s comes from the variance in use. The rank "+
			"correlation of their distance with the largest skewness is %s.", times(s.Pearson), times(s.Spearman),
			times(s.Inflation), times(s.Factor), times(s.ResidualSkewness)),
		How: "On the diagonal the contributions add up to exactly the mutual information. Circles: largest skewness up to the " +
			"threshold of " + trim(b.r.Source.Reliability) + "; triangles: above it.",
	}
	p := newPlot("mutual information (nats)", "sum of contributions (nats)")
	drawn := spaced(b.t.Inputs, mostPoints)
	if len(drawn) < b.t.Inputs {
		f.How += fmt.Sprintf(" %s of the %s inputs are drawn, evenly spaced in their order.", count(len(drawn)), count(b.t.Inputs))
	}
	bins := b.skewnessBins()
	inBin := make([]plotter.XYs, len(bins))
	highest := 0.0
	for _, i := range drawn {
		at := slices.IndexFunc(bins, func(bin skewnessBin) bool { return !(b.largestSkewness(i) > bin.upTo) })
		xy := plotter.XY{X: b.t.Scores[decomp.MI][i], Y: b.t.SumC[i]}
		inBin[at] = append(inBin[at], xy)
		highest = max(highest, xy.X, xy.Y)
	}
	end := roundUp(highest, 6)
	p.X.Min, p.X.Max, p.Y.Min, p.Y.Max = 0, end, 0, end
	p.X.Tick.Marker, p.Y.Tick.Marker = numberTicks(6, 1, ""), numberTicks(6, 1, "")
	if err := addLine(p, stroke{foreground, "dashed", 1}, []float64{0, end}, []float64{0, end}); err != nil {
		return nil, err
	}
	// The bin of most points comes first, so that the rare ones are on top of it.
	order := make([]int, len(bins))
	for i := range order {
		order[i] = i
	}
	slices.SortStableFunc(order, func(x, y int) int { return cmp.Compare(len(inBin[y]), len(inBin[x])) })
	for _, i := range order {
		if len(inBin[i]) == 0 {
			continue
		}
		scatter, err := plotter.NewScatter(inBin[i])
		if err != nil {
			return nil, err
		}
		scatter.GlyphStyle = draw.GlyphStyle{Color: bins[i].ink.faint(190), Radius: 2, Shape: draw.CircleGlyph{}}
		if bins[i].over {
			scatter.GlyphStyle.Shape, scatter.GlyphStyle.Radius = triangleGlyph{}, 2.4
		}
		p.Add(scatter)
	}
	for _, bin := range bins {
		shape := "dot "
		if bin.over {
			shape = "triangle "
		}
		f.Legend = append(f.Legend, key{shape + bin.ink.String(), bin.text})
	}
	f.LegendTitle = "largest skewness:"
	f.Legend = append(f.Legend, key{"dashed fg", "sum equal to mutual information"})
	var err error
	f.SVG, err = render(figureWidth, 400, f.Title+". "+f.Says, p.Draw)
	return f, err
}

// spaced are up to so many of n inputs, evenly spaced.
func spaced(n, most int) []int {
	inputs := make([]int, min(n, most))
	for j := range inputs {
		inputs[j] = j * n / len(inputs)
	}
	return inputs
}

// triangleGlyph is a filled triangle.
type triangleGlyph struct{}

// DrawGlyph draws it.
func (triangleGlyph) DrawGlyph(c *draw.Canvas, s draw.GlyphStyle, at vg.Point) {
	r := s.Radius
	c.FillPolygon(s.Color, []vg.Point{{X: at.X - r, Y: at.Y - r}, {X: at.X + r, Y: at.Y - r}, {X: at.X, Y: at.Y + r}})
}

// skewnessBin is a range of skewness with one colour.
type skewnessBin struct {
	upTo float64
	over bool // over the reliability threshold
	ink  ink
	text string
}

// skewnessBins are three ranges up to the reliability threshold, and three over it.
func (b *builder) skewnessBins() []skewnessBin {
	t := b.r.Source.Reliability
	ends := []float64{t / 3, 2 * t / 3, t, 2 * t, 5 * t, math.Inf(1)}
	bins := make([]skewnessBin, len(ends))
	above := 0.0
	for i, end := range ends {
		bins[i] = skewnessBin{upTo: end, over: end > t, ink: under0 + ink(i), text: fmt.Sprintf("%.2g to %.2g", above, end)}
		above = end
	}
	bins[len(bins)-1].text = fmt.Sprintf("over %.2g", ends[len(ends)-2])
	return bins
}

// largestSkewness of the classes of an input.
func (b *builder) largestSkewness(i int) float64 {
	return slices.Max(b.t.Skewness[i*b.t.K : (i+1)*b.t.K])
}

// residualTable is sum_c - MI by skewness.
func (b *builder) residualTable() *table {
	t := &table{
		Caption: "Sum of contributions less mutual information, by the largest skewness of the input",
		Head:    []string{"largest skewness", "inputs", "mean difference (nats)", "relative to mean MI"},
		Text:    1,
	}
	for _, bin := range b.r.Residual {
		name := "over " + trim(bin.Above)
		if bin.UpTo != nil {
			name = trim(bin.Above) + " to " + trim(*bin.UpTo)
		}
		t.Rows = append(t.Rows, []string{name, count(bin.N), number(bin.Mean), percent(bin.Relative)})
	}
	return t
}

// skewnessFigure is the distribution of skewness over the inputs, for each class.
func (b *builder) skewnessFigure() (*figure, error) {
	f := &figure{
		Title: "Skewness of each class over all inputs",
		Says:  b.skewnessSays(),
		How: fmt.Sprintf("Logarithmic scale; what is under %s is drawn at %s. Boxes hold the middle half of the inputs, with their "+
			"median; whiskers reach from the 5th to the 95th percentile. The dashed line is the reliability threshold: left of it "+
			"a contribution is taken at face value.", trim(leastSkewness), trim(leastSkewness)),
	}
	if s := b.shownSentence(); s != "" {
		f.How += " " + s
	}
	p := newPlot("skewness", "")
	var ticks plot.ConstantTicks
	highest := 10 * leastSkewness
	groups := [...]ink{blue, grey, vermillion}
	var seen [len(groups)]bool
	for i, k := range b.shown {
		logs := make([]float64, b.t.Inputs)
		for j := range logs {
			skewness := max(leastSkewness, b.t.Skewness[j*b.t.K+k])
			highest = max(highest, skewness)
			logs[j] = math.Log10(skewness)
		}
		if len(logs) == 0 {
			continue
		}
		at := float64(len(b.shown) - 1 - i)
		ticks = append(ticks, plot.Tick{Value: at, Label: label(b.r.Classes[k].Name) + " "})
		of := group(b.r.Classes[k])
		seen[of] = true
		box, err := plotter.NewBoxPlot(12, at, plotter.Values(logs))
		if err != nil {
			return nil, err
		}
		styleBox(box, stroke{groups[of], "solid", 1})
		slices.Sort(logs)
		box.AdjLow, box.AdjHigh, box.Outside = logs[(len(logs)-1)*5/100], logs[(len(logs)-1)*95/100], nil
		p.Add(box)
	}
	p.X.Min, p.X.Max = math.Log10(leastSkewness), math.Ceil(math.Log10(highest)-1e-9)
	p.X.Tick.Marker = decadeTicks{}
	p.Y.Min, p.Y.Max = -0.7, float64(len(b.shown))-0.3
	p.Y.Tick.Marker = ticks
	if t := b.r.Source.Reliability; t > leastSkewness {
		if err := upright(p, stroke{foreground, "dashed", 1}, math.Log10(t)); err != nil {
			return nil, err
		}
	}
	for of, name := range [...]string{"safe", "neither safe nor critical", "critical"} {
		if seen[of] && b.anyCritical() {
			f.Legend = append(f.Legend, key{"box " + groups[of].String(), name})
		}
	}
	f.Legend = append(f.Legend, key{"dashed fg", "reliability threshold, " + trim(b.r.Source.Reliability)})
	var err error
	f.SVG, err = render(figureWidth, vg.Length(50+22*len(b.shown)), f.Title+". "+f.Says, p.Draw)
	return f, err
}

// leastSkewness is the left end of the scale, which has no zero.
const leastSkewness = 0.001

// decadeTicks mark an axis of decimal logarithms.
type decadeTicks struct{}

// Ticks are named at each power of ten, without a name between.
func (decadeTicks) Ticks(low, high float64) []plot.Tick {
	var ticks []plot.Tick
	for e := math.Ceil(low); e <= high; e++ {
		ticks = append(ticks, plot.Tick{Value: e, Label: trim(math.Pow10(int(e)))})
		for m := 2.0; m < 10; m++ {
			ticks = append(ticks, plot.Tick{Value: e + math.Log10(m)})
		}
	}
	return ticks
}

// skewnessSays is which class is most and least often reliable.
func (b *builder) skewnessSays() string {
	s := b.r.Summary
	text := fmt.Sprintf("All classes of an input are reliable at once (skewness under %s) in %s of the inputs.",
		trim(b.r.Source.Reliability), percent(s.AllReliable))
	if len(b.r.Skewness) > 0 {
		byMedian := func(x, y eval.Skewness) int { return cmp.Compare(x.Median, y.Median) }
		least, most := slices.MinFunc(b.r.Skewness, byMedian), slices.MaxFunc(b.r.Skewness, byMedian)
		text = fmt.Sprintf("The median skewness is lowest for %s (%s) and highest for %s (%s). ", least.Class, short(least.Median),
			most.Class, short(most.Median)) + text
	}
	if b.anyCritical() {
		text += fmt.Sprintf(" In %s some critical class is over the threshold, so that gate any-critical falls back.",
			percent(s.FallbackShare))
	}
	return text
}

// sweep is the thresholds of SkewnessOf.Reliable.
var sweep = []string{"0.1", "0.2", "0.3", "0.5"}

func (b *builder) skewnessTable() *table {
	t := &table{
		Caption: "Skewness by class over all inputs",
		Says:    "Reliable: the share of inputs under the threshold.",
		Head:    []string{"class", "median", "mean", "90th percentile"},
		Text:    1,
		Closed:  b.t.K > longTable,
	}
	for _, threshold := range sweep {
		t.Head = append(t.Head, "reliable at "+threshold)
	}
	for _, s := range b.r.Skewness {
		cells := []string{s.Class, short(s.Median), short(s.Mean), short(s.P90)}
		for _, threshold := range sweep {
			cells = append(cells, percent(s.Reliable[threshold]))
		}
		t.Rows = append(t.Rows, cells)
	}
	return t
}

// skewnessByTrue is the median skewness of each class over the inputs of each
// true class. Nil where the report has none.
func (b *builder) skewnessByTrue() *figure {
	if len(b.r.Skewness) != b.t.K {
		return nil
	}
	for _, s := range b.r.Skewness {
		if len(s.ByTrue) != b.t.K {
			return nil
		}
	}
	f := &figure{
		Title: "Median skewness of each class, by true class",
		How:   "Colour is on a scale up to the largest value. " + b.shownSentence(),
	}
	high, of := b.shown[0], b.shown[0]
	value := func(i, j int) float64 { return b.r.Skewness[j].ByTrue[i].Median }
	for _, i := range b.shown {
		for _, j := range b.shown {
			if value(i, j) > value(of, high) {
				of, high = i, j
			}
		}
	}
	f.Says = fmt.Sprintf("It is highest for %s where the truth is %s: %s over %s.", b.r.Classes[high].Name, b.r.Classes[of].Name,
		short(value(of, high)), noun(b.r.Skewness[high].ByTrue[of].N, "input", "inputs"))
	f.Heats = []heat{b.matrix("Median skewness, by true class (rows), of each class (columns)", "true \\ class", false, false,
		value, b.cellText())}
	return f
}

// paperRuleTable is what the paper's rule would choose for the recording. Nil
// without it.
func (b *builder) paperRuleTable() *table {
	r := b.r.PaperRule
	if r == nil {
		return nil
	}
	side := "not over"
	if r.MedianCriticalSkewness > b.r.Source.Reliability {
		side = "over"
	}
	t := &table{
		Caption: "One score for the whole recording, by the paper's rule",
		Says: fmt.Sprintf("The largest median skewness of a critical class is %s, %s the threshold of %s: the rule chooses %s.",
			short(r.MedianCriticalSkewness), side, trim(b.r.Source.Reliability), r.Score),
		Head: []string{"judged by", "best score", "cost of the rule's choice"},
		Text: 2,
	}
	t.Rows = [][]string{
		{"AUSC of critical FNR", r.BestAUSC, number(r.CostAUSC)},
		{"critical FNR at " + roundPercent(b.r.Source.Coverage) + " coverage", r.BestCriticalFNR, number(r.CostCriticalFNR)},
	}
	return t
}

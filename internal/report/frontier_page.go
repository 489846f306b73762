package report

import (
	"bytes"
	"cmp"
	"fmt"
	"html/template"
	"io"
	"math"
	"slices"
	"strconv"
	"strings"

	"gonum.org/v1/plot"
	"gonum.org/v1/plot/plotter"
	"gonum.org/v1/plot/text"
	"gonum.org/v1/plot/vg"
	"gonum.org/v1/plot/vg/draw"
)

// WriteFrontier writes a frontier as an HTML page. Nothing is written where it fails
// before the page is complete.
func WriteFrontier(w io.Writer, f *Frontier) error {
	figure, err := frontierFigure(f)
	if err != nil {
		return fmt.Errorf("report: %w", err)
	}
	style, err := files.ReadFile("style.css")
	if err != nil {
		return fmt.Errorf("report: %w", err)
	}
	s := f.Summary
	p := &page{
		Title: "What deciding early saves",
		Style: template.CSS(style),
		Subject: fmt.Sprintf("Model %s: %s, %s each, %s", f.Policy.Model, noun(s.Inputs, "input", "inputs"),
			noun(s.Passes, "pass", "passes"), noun(s.Classes, "class", "classes")),
		Lead:  []string{figure.Says, halvesSay(f)},
		Tiles: frontierTiles(f),
		Notes: f.Notes,
		Words: frontierWords(f),
		Sections: []section{
			{
				ID: "frontier", Title: "Passes saved, and what they cost",
				Intro: fmt.Sprintf("Rules were learned on %s drawn at random, and are drawn on the %s.", noun(s.LearnedOn, "input", "inputs"),
					noun(s.DrawnOn, "other", "others")),
				Parts: []part{{Figure: figure}, {Table: savingsTable(f)}},
			},
			{ID: "points", Title: "Every point", Intro: pointsIntro(f), Parts: pointTables(f)},
			{
				ID: "computed", Title: "How this was computed",
				Intro: "By ckd evaluate settle, from the files named here; the same files, settings and version give the same numbers.",
				Parts: []part{{Table: frontierSource(f)}},
			},
		},
	}
	if name := f.Source.Passes.Name; name != "" {
		p.Title += ": " + name
	}
	var out bytes.Buffer
	if err := pageTemplate.Execute(&out, p); err != nil {
		return fmt.Errorf("report: %w", err)
	}
	_, err = w.Write(out.Bytes())
	return err
}

// WriteFrontierSVG writes the picture of a frontier alone, as an SVG file that loads
// nothing and follows the reader's light or dark theme.
func WriteFrontierSVG(w io.Writer, f *Frontier) error {
	plots, heights, err := frontierPlots(f)
	if err != nil {
		return fmt.Errorf("report: %w", err)
	}
	const title, row = 20, 17
	lines := frontierLines(f)
	head := vg.Length(title + row*((len(lines)+1)/2) + 6)
	svg, err := standalone(figureWidth, head+total(heights), frontierTitle(f)+". "+frontierSays(f), func(c draw.Canvas) {
		style := text.Style{Color: foreground, Font: sans(13), Handler: plot.DefaultTextHandler}
		c.FillText(style, vg.Point{X: c.Min.X, Y: c.Max.Y - 12}, frontierTitle(f))
		style.Font = sans(11)
		for i, l := range lines {
			x, y := c.Min.X+vg.Length(i%2)*figureWidth/2, c.Max.Y-title-row*vg.Length(i/2)-8
			if l.glyph != nil {
				c.DrawGlyph(draw.GlyphStyle{Color: l.stroke.ink, Radius: 4.5, Shape: l.glyph}, vg.Point{X: x + 14, Y: y + 4})
			} else {
				c.StrokeLine2(l.stroke.style(), x, y+4, x+28, y+4)
			}
			c.FillText(style, vg.Point{X: x + 36, Y: y}, l.words)
		}
		c.Max.Y -= head
		drawStack(c, plots, heights)
	})
	if err != nil {
		return fmt.Errorf("report: %w", err)
	}
	_, err = w.Write(svg)
	return err
}

// frontierLine is one of the things that are drawn.
type frontierLine struct {
	words  string
	stroke stroke
	glyph  draw.GlyphDrawer // of a single point
	points []FrontierPoint  // from that of all passes, by saving
}

// frontierLines are what is drawn, those that matter most last.
func frontierLines(f *Frontier) []frontierLine {
	strokes := map[string]stroke{
		FewerPasses:   {grey, "dotted", 2},
		ScoreOnlyRule: {orange, "dashed", 1.8},
		LearnedRule:   {blue, "solid", 2.4},
	}
	var lines []frontierLine
	for _, name := range []string{FewerPasses, ScoreOnlyRule, LearnedRule} {
		m := f.Method(name)
		if m == nil {
			continue
		}
		points := append([]FrontierPoint{f.Full}, m.Points...)
		slices.SortStableFunc(points, func(a, b FrontierPoint) int { return cmp.Compare(a.Saving, b.Saving) })
		lines = append(lines, frontierLine{MethodWords(name), strokes[name], nil, points})
	}
	slices.Reverse(lines)
	lines = append(lines, frontierLine{fmt.Sprintf("all %d passes", f.Summary.Passes), stroke{foreground, "dot", 0}, draw.CircleGlyph{},
		[]FrontierPoint{f.Full}})
	if f.Rule != nil {
		words := fmt.Sprintf("the policy's rule (certified: at most %s", shortPercent(f.Rule.Certified))
		if f.Rule.Flattered {
			words += "; learned here"
		}
		lines = append(lines, frontierLine{words + ")",
			stroke{vermillion, "triangle", 0}, diamondGlyph{}, []FrontierPoint{f.Rule.FrontierPoint}})
	}
	return lines
}

func frontierTitle(f *Frontier) string {
	if f.Full.Critical != nil {
		return "Passes saved, against decisions changed and critical inputs missed"
	}
	return "Passes saved, against decisions changed"
}

func frontierFigure(f *Frontier) (*figure, error) {
	fig := &figure{
		Title: frontierTitle(f),
		Says:  frontierSays(f),
		How: "To the right more passes are saved: 2 means that half of them are. Upper panel: the share of inputs that are decided " +
			"otherwise than by all passes. Lower and further right is better. Fewer passes for every input soon leave the panel.",
	}
	for _, l := range frontierLines(f) {
		key := l.stroke.key(l.words)
		if l.stroke.dash == "triangle" {
			key.Class = "dot " + l.stroke.ink.String()
		}
		fig.Legend = append(fig.Legend, key)
	}
	if f.Full.Critical != nil {
		fig.How += " Lower panel: critical inputs missed, as a share of those retained. The band is the exact 95% interval of that of all passes."
		fig.Legend = append(fig.Legend, key{"band", "95% interval of all passes"})
	}
	plots, heights, err := frontierPlots(f)
	if err != nil {
		return nil, err
	}
	fig.SVG, err = stack(fig.Title+". "+fig.Says, plots, heights)
	return fig, err
}

// frontierPlots are the panels, upper first.
func frontierPlots(f *Frontier) ([]*plot.Plot, []vg.Length, error) {
	lines := frontierLines(f)
	highest := frontierHighest(f)
	furthest := 1.2
	for _, l := range lines {
		for _, p := range l.points {
			if p.Disagreement <= highest {
				furthest = max(furthest, p.Saving)
			}
		}
	}
	upper := newPlot("", "decided otherwise")
	if r := f.Rule; r != nil {
		if err := addLine(upper, stroke{vermillion, "dotted", 1}, []float64{1, furthest}, []float64{r.Certified, r.Certified}); err != nil {
			return nil, nil, err
		}
	}
	err := frontierPanel(upper, lines, furthest, highest, func(p *FrontierPoint) float64 { return p.Disagreement })
	if err != nil {
		return nil, nil, err
	}
	const axis = "passes saved: all of them over the mean of those used"
	if f.Full.Critical == nil {
		upper.X.Label.Text = axis
		return []*plot.Plot{upper}, []vg.Length{300}, nil
	}
	lower := newPlot(axis, "critical FNR")
	full := f.Full.Critical
	reach := full.FNRInterval[1]
	for _, l := range lines {
		for _, p := range l.points {
			if p.Saving <= furthest && p.Disagreement <= highest {
				reach = max(reach, p.Critical.FNR)
			}
		}
	}
	x := []float64{1, furthest}
	if err := addBand(lower, grey, x, repeated(full.FNRInterval[0], 2), repeated(full.FNRInterval[1], 2)); err != nil {
		return nil, nil, err
	}
	if err := addLine(lower, stroke{foreground, "dotted", 1}, x, repeated(full.FNR, 2)); err != nil {
		return nil, nil, err
	}
	if err := frontierPanel(lower, lines, furthest, reach, func(p *FrontierPoint) float64 { return p.Critical.FNR }); err != nil {
		return nil, nil, err
	}
	upper.X.Tick.Marker = unnamed{upper.X.Tick.Marker}
	return []*plot.Plot{upper, lower}, []vg.Length{260, 170}, nil
}

// frontierHighest is the largest share of disagreements that is drawn: where the rules
// end, but not so large that what matters is small.
func frontierHighest(f *Frontier) float64 {
	highest := 0.01
	for _, name := range []string{LearnedRule, ScoreOnlyRule} {
		if m := f.Method(name); m != nil {
			for _, p := range m.Points {
				highest = max(highest, 1.1*p.Disagreement)
			}
		}
	}
	if f.Rule != nil {
		highest = max(highest, 1.1*f.Rule.Disagreement, 1.1*f.Rule.Certified)
	}
	return roundUp(min(highest, 0.06), 5)
}

// frontierPanel draws a figure of the points over what they save.
func frontierPanel(p *plot.Plot, lines []frontierLine, furthest, highest float64, of func(*FrontierPoint) float64) error {
	p.X.Tick.Marker, p.Y.Tick.Marker = numberTicks(10, 1, "x"), numberTicks(5, 100, "%")
	for _, l := range slices.Backward(lines) {
		if l.glyph != nil {
			continue
		}
		x, y := mixed(l.points, of)
		if err := addLine(p, l.stroke, x, y); err != nil {
			return err
		}
	}
	for _, l := range lines {
		if l.glyph == nil {
			continue
		}
		points, err := plotter.NewScatter(plotter.XYs{{X: l.points[0].Saving, Y: of(&l.points[0])}})
		if err != nil {
			return err
		}
		points.GlyphStyle = draw.GlyphStyle{Color: l.stroke.ink, Radius: 4.5, Shape: l.glyph}
		p.Add(points)
	}
	p.X.Min, p.X.Max = 1, furthest // now that nothing more is added, which would widen them
	p.Y.Min, p.Y.Max = 0, roundUp(highest, 5)
	return nil
}

// mixed is a figure of the points over what they save. Between two points are those
// of inputs of which some are decided by the one rule, and some by the other: in
// proportion to passes, not to what is saved.
func mixed(points []FrontierPoint, of func(*FrontierPoint) float64) (x, y []float64) {
	const steps = 10
	for i := range points {
		a, b := &points[max(i-1, 0)], &points[i]
		for j := 1; j <= steps; j++ {
			part := float64(j) / steps
			x = append(x, a.Saving*b.Saving/(b.Saving+part*(a.Saving-b.Saving)))
			y = append(y, of(a)+part*(of(b)-of(a)))
		}
	}
	return x, y
}

// frontierSays compares the methods at 1% of disagreements.
func frontierSays(f *Frontier) string {
	const share = 0.01
	var words []string
	for _, m := range f.Methods {
		for _, at := range m.At {
			if at.Disagreement != share {
				continue
			}
			words = append(words, fmt.Sprintf("%s %.1f (%s fewer)", MethodWords(m.Name), at.MeanPasses, savingWords(at)))
		}
	}
	text := fmt.Sprintf("Where %s of the inputs may be decided otherwise than by all %d passes, this many are used on average: by %s.",
		shortPercent(share), f.Summary.Passes, list(words))
	if r := f.Rule; r != nil {
		text += fmt.Sprintf(" The policy's rule uses %.1f (%sx fewer), and decides %s otherwise; it is certified for at most %s with confidence %v.",
			r.MeanPasses, times(r.Saving), shortPercent(r.Disagreement), shortPercent(r.Certified), r.Confidence)
		if r.Flattered {
			text += " It was learned on this very recording, which flatters it."
		}
	}
	return text
}

func halvesSay(f *Frontier) string {
	s := f.Summary
	return fmt.Sprintf("How much the same decision is worth: one half of the passes decides %s of the inputs otherwise than the other half "+
		"does (95%% interval %s).", percent(s.HalvesDiffer), percentInterval(s.HalvesDifferInterval[0], s.HalvesDifferInterval[1]))
}

func frontierTiles(f *Frontier) []tile {
	const share = 0.01
	var tiles []tile
	for _, m := range f.Methods {
		for _, at := range m.At {
			if at.Disagreement == share {
				tiles = append(tiles, tile{Value: savingWords(at), Label: "passes saved by " + MethodWords(m.Name),
					Detail: "at " + shortPercent(share) + " decided otherwise", Strong: m.Name == LearnedRule})
			}
		}
	}
	if r := f.Rule; r != nil {
		tiles = append(tiles, tile{Value: times(r.Saving) + "x", Label: "passes saved by the policy's rule",
			Detail: "at " + shortPercent(r.Disagreement) + " decided otherwise, certified at most " + shortPercent(r.Certified)})
	}
	return append(tiles, tile{Value: percent(f.Summary.HalvesDiffer), Label: "decided otherwise by two halves of the passes",
		Detail: "what the same decision is worth"})
}

func frontierWords(f *Frontier) []word {
	words := []word{
		{"pass", "One of several answers of the model to the same input."},
		{"settled", "Decided before the last pass: its decision is certain enough not to wait for."},
		{"passes saved", "All passes over the mean of those used: 4x means that a quarter of them is used."},
		{"decided otherwise", "With another action than all passes, or retained both times, but predicted critical only once."},
		{"retained instead", "Of the inputs that all passes defer, those that are retained."},
		{MethodWords(LearnedRule), "Asks between passes, from five statistics of those so far, how likely the decision is to be overturned."},
		{MethodWords(ScoreOnlyRule), "The same, from the score over its threshold alone."},
		{MethodWords(FewerPasses), "No rule: the policy decides on that many passes of each."},
	}
	if f.Full.Critical != nil {
		words = append(words, word{"critical FNR", "Of the critical inputs retained, the share that is predicted not critical (false negative rate)."})
	}
	return words
}

func savingsTable(f *Frontier) *table {
	t := &table{
		Caption: "Passes saved, at a share of inputs decided otherwise",
		Says:    "Between two points of a method, in proportion. Where its boldest rule does not reach the share, what that one saves at least.",
		Head:    []string{"method"}, Text: 1,
	}
	for i, m := range f.Methods {
		row, naive := []string{MethodWords(m.Name)}, []string{"decided otherwise by as many passes for every input"}
		for _, at := range m.At {
			if i == 0 {
				t.Head = append(t.Head, shortPercent(at.Disagreement))
			}
			row, naive = append(row, savingWords(at)), append(naive, shortPercent(at.FewerPasses))
		}
		t.Rows = append(t.Rows, row)
		if m.Name == LearnedRule {
			t.Rows = append(t.Rows, naive)
		}
	}
	return t
}

func pointsIntro(f *Frontier) string {
	s := f.Source
	if s.Orders > 1 {
		return fmt.Sprintf("Shares are means over %d orders of the passes of each input. Counts and exact 95%% intervals are by inputs: of the "+
			"first order of each alone.", s.Orders)
	}
	return "Passes are in one order. Intervals are exact, 95%."
}

func pointTables(f *Frontier) []part {
	head := []string{"mean passes", "saved", "decided otherwise", "of", "95% interval", "retained instead, of deferred"}
	if f.Full.Critical != nil {
		head = append(head, "critical FNR", "missed of retained", "95% interval")
	}
	row := func(p *FrontierPoint) []string {
		cells := []string{times(p.MeanPasses), times(p.Saving) + "x", finePercent(p.Disagreement),
			fmt.Sprintf("%d of %d", p.Disagreements, f.Summary.DrawnOn), fineInterval(p.DisagreementInterval), finePercent(p.Released)}
		if c := p.Critical; c != nil {
			cells = append(cells, percent(c.FNR), fmt.Sprintf("%d of %d", c.Missed, c.Retained),
				percentInterval(c.FNRInterval[0], c.FNRInterval[1]))
		}
		return cells
	}
	own := &table{Caption: fmt.Sprintf("All %d passes", f.Summary.Passes), Head: head, Rows: [][]string{row(&f.Full)}}
	if f.Rule != nil {
		own.Caption += ", and the policy's rule"
		own.Rows = append(own.Rows, row(&f.Rule.FrontierPoint))
	}
	parts := []part{{Table: own}}
	for _, m := range f.Methods {
		words := MethodWords(m.Name)
		t := &table{Caption: strings.ToUpper(words[:1]) + words[1:] + ", from cautious to bold", Head: head, Closed: len(m.Points) > longTable}
		for i := range m.Points {
			t.Rows = append(t.Rows, row(&m.Points[i]))
		}
		parts = append(parts, part{Table: t})
	}
	return parts
}

func frontierSource(f *Frontier) *table {
	s := f.Source
	t := &table{Caption: "Files and settings", Head: []string{"what", "value"}, Text: 2}
	add := func(name, value string) { t.Rows = append(t.Rows, []string{name, value}) }
	add("software", s.Software)
	add("passes", s.Passes.Name)
	add("SHA-256 of the passes", s.Passes.SHA256)
	if s.Labels != nil {
		add("labels", s.Labels.Name)
		add("SHA-256 of the labels", s.Labels.SHA256)
	}
	add("policy of model", f.Policy.Model)
	add("hash of the policy", f.Policy.Hash)
	add("gate, scope", string(f.Policy.Gate)+", "+string(f.Policy.Scope))
	add("kind of rows", s.Kind)
	add("variance", s.Variance)
	add("seed", strconv.FormatUint(s.Seed, 10))
	order := "any"
	if s.Ordered {
		order = "as recorded"
	}
	add("order of the passes", order)
	add("times that each input was followed", fmt.Sprintf("%d to learn from, %d to draw", s.LearningOrders, s.Orders))
	return t
}

// savingWords is a saving, as in 4.6x.
func savingWords(at FrontierAt) string {
	if !at.Reached {
		return "at least " + times(at.Saving) + "x"
	}
	return times(at.Saving) + "x"
}

// shortPercent has as many decimals as it needs, up to two.
func shortPercent(share float64) string {
	return strconv.FormatFloat(math.Round(1e4*share)/100, 'f', -1, 64) + "%"
}

// finePercent is for shares about 1%.
func finePercent(share float64) string { return fmt.Sprintf("%.2f%%", 100*share) }

func fineInterval(i [2]float64) string { return finePercent(i[0]) + " to " + finePercent(i[1]) }

func repeated(v float64, n int) []float64 { return slices.Repeat([]float64{v}, n) }

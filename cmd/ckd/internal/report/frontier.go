package report

import (
	"cmp"
	"fmt"
	"math"
	"slices"
	"strconv"
	"strings"

	"github.com/ckd-project/ckd/calibrate"
	"github.com/ckd-project/ckd/cmd/ckd/internal/report/document"
)

// FrontierDocument returns a frontier as a document.
func FrontierDocument(f *calibrate.Frontier) *document.Document {
	figure, s := FrontierFigure(f), f.Summary
	main := document.NewSection("frontier", "Passes saved, and what they cost",
		fmt.Sprintf("Rules were learned on %s drawn at random, and are drawn on the %s, of which all passes defer %s.",
			document.Noun(s.LearnedOn, "input"), document.Noun(s.DrawnOn, "other"), document.Count(s.Deferred)),
		figure, savingsTable(f))
	points := document.NewSection("points", "Every point", pointsIntro(f), pointTables(f)...)
	return &document.Document{
		Title: titled("What deciding early saves", f.Source.Passes),
		Subject: fmt.Sprintf("Model %s: %s, %s each, %s", f.Policy.Model, document.Noun(s.Inputs, "input"),
			document.Noun(s.Passes, "pass"), document.Noun(s.Classes, "class")),
		Lead:     []string{figure.Says, halvesSay(f)},
		Tiles:    frontierTiles(f),
		Notes:    f.Notes,
		Words:    frontierWords(f),
		Sections: []document.Section{main, points, frontierSource(f)},
	}
}

// frontierLine is a method or a single point of the figure.
type frontierLine struct {
	key    document.Key
	width  float64                   // width of the line; 0 for a single point
	points []calibrate.FrontierPoint // from that of all passes, by saving
}

// frontierLines returns what is drawn, the most important first, and single points last.
func frontierLines(f *calibrate.Frontier) []frontierLine {
	strokes := map[string]document.Stroke{
		calibrate.LearnedRule:   {Ink: document.Blue, Dash: document.MarkSolid, Width: 2.4},
		calibrate.ScoreOnlyRule: {Ink: document.Orange, Dash: document.MarkDashed, Width: 1.8},
		calibrate.FewerPasses:   {Ink: document.Grey, Dash: document.MarkDotted, Width: 2},
	}
	var lines []frontierLine
	for _, name := range []string{calibrate.LearnedRule, calibrate.ScoreOnlyRule, calibrate.FewerPasses} {
		m := f.Method(name)
		if m == nil {
			continue
		}
		points := append([]calibrate.FrontierPoint{f.Full}, m.Points...)
		slices.SortStableFunc(points, func(a, b calibrate.FrontierPoint) int { return cmp.Compare(a.Saving, b.Saving) })
		lines = append(lines, frontierLine{strokes[name].Key(calibrate.MethodWords(name)), strokes[name].Width, points})
	}
	all := document.Key{Mark: document.MarkCircle, Ink: document.Foreground, Text: fmt.Sprintf("all %d passes", f.Summary.Passes)}
	lines = append(lines, frontierLine{key: all, points: []calibrate.FrontierPoint{f.Full}})
	if f.Rule != nil {
		words := fmt.Sprintf("the policy's rule (certified: at most %s", shortPercent(f.Rule.Certified))
		if f.Rule.Flattered {
			words += "; learned here"
		}
		own := document.Key{Mark: document.MarkDiamond, Ink: document.Vermillion, Text: words + ")"}
		lines = append(lines, frontierLine{key: own, points: []calibrate.FrontierPoint{f.Rule.FrontierPoint}})
	}
	return lines
}

// FrontierFigure returns the figure of a frontier: decisions changed and, with labels, critical inputs
// missed, over the passes saved.
func FrontierFigure(f *calibrate.Frontier) *document.Figure {
	fig := &document.Figure{
		Title: "Passes saved, against decisions changed",
		Says:  frontierSays(f),
		How: "To the right more passes are saved: 2 means that half of them are. Upper panel: the share of inputs that are decided " +
			"otherwise than by all passes. Lower and further right is better. Fewer passes for every input soon leave the panel.",
	}
	lines := frontierLines(f)
	for _, l := range lines {
		fig.Legend = append(fig.Legend, l.key)
	}
	highest, furthest := frontierHighest(f), 1.2
	for _, l := range lines {
		for _, p := range l.points {
			if p.Disagreement <= highest {
				furthest = max(furthest, p.Saving)
			}
		}
	}
	upper := frontierPanel("decided otherwise", 260, lines, furthest, highest, func(p *calibrate.FrontierPoint) float64 { return p.Disagreement })
	if r := f.Rule; r != nil {
		upper.Lines = append([]document.Line{level(r.Certified, furthest, document.Vermillion)}, upper.Lines...)
	}
	const axis = "passes saved: all of them over the mean of those used"
	if !hasCriticalFNR(f) {
		upper.Height, upper.X.Label = 300, axis
		fig.Plots = []document.Plot{upper}
		return fig
	}
	fig.Title += " and critical inputs missed"
	fig.How += " Lower panel: critical inputs missed, as a share of those retained. The band is the 95% interval of that of all passes, " + f.Intervals() + "."
	fig.Legend = append(fig.Legend, document.Key{Mark: document.MarkBand, Ink: document.Grey, Text: "95% interval of all passes, " + f.Intervals()})
	full := f.Full.Critical
	reach := full.FNRInterval[1]
	for _, l := range lines {
		for _, p := range l.points {
			if p.Saving <= furthest && p.Disagreement <= highest && p.Critical.FNR.Defined() {
				reach = max(reach, float64(p.Critical.FNR))
			}
		}
	}
	lower := frontierPanel("critical FNR", 170, lines, furthest, reach, func(p *calibrate.FrontierPoint) float64 { return float64(p.Critical.FNR) })
	low, high := level(full.FNRInterval[0], furthest, document.Grey), level(full.FNRInterval[1], furthest, document.Grey)
	lower.Bands = []document.Band{{Ink: document.Grey, X: low.X, Low: low.Y, High: high.Y}}
	lower.Lines = append([]document.Line{level(float64(full.FNR), furthest, document.Foreground)}, lower.Lines...)
	lower.X.Label, upper.X.Ticks.Unnamed = axis, true
	fig.Plots = []document.Plot{upper, lower}
	return fig
}

// hasCriticalFNR reports whether all passes retain critical inputs of which some could be missed.
func hasCriticalFNR(f *calibrate.Frontier) bool {
	return f.Full.Critical != nil && f.Full.Critical.FNRInterval != nil
}

// level returns a horizontal line over the whole width.
func level(y, furthest float64, ink document.Ink) document.Line {
	return document.Line{
		Stroke: document.Stroke{Ink: ink, Dash: document.MarkDotted, Width: 1},
		X:      []float64{1, furthest}, Y: []float64{y, y},
	}
}

// frontierHighest returns the largest share of disagreements that is drawn: where the rules end, but
// not so large that the small shares, which matter, cannot be read.
func frontierHighest(f *calibrate.Frontier) float64 {
	highest := 0.01
	for _, name := range []string{calibrate.LearnedRule, calibrate.ScoreOnlyRule} {
		if m := f.Method(name); m != nil {
			for _, p := range m.Points {
				highest = max(highest, 1.1*p.Disagreement)
			}
		}
	}
	if f.Rule != nil {
		highest = max(highest, 1.1*f.Rule.Disagreement, 1.1*f.Rule.Certified)
	}
	return document.RoundUp(min(highest, 0.06), 5)
}

// frontierPanel draws a figure of the points over the passes that they save. The axes end at furthest
// and have room for highest.
func frontierPanel(label string, height float64, lines []frontierLine, furthest, highest float64,
	of func(*calibrate.FrontierPoint) float64) document.Plot {
	p := document.Plot{
		Height: height,
		X:      document.Axis{Min: 1, Max: furthest, Ticks: document.Ticks{About: 10, Unit: 1, Sign: "x"}},
		Y:      document.Axis{Label: label, Max: document.RoundUp(highest, 5), Ticks: document.Ticks{About: 5, Unit: 100, Sign: "%"}},
	}
	for _, l := range slices.Backward(lines) { // the most important on top
		if l.width > 0 {
			x, y := mixed(slices.DeleteFunc(slices.Clone(l.points), func(p calibrate.FrontierPoint) bool { return math.IsNaN(of(&p)) }), of)
			stroke := document.Stroke{Ink: l.key.Ink, Dash: l.key.Mark, Width: l.width}
			p.Lines = append(p.Lines, document.Line{Stroke: stroke, X: x, Y: y})
		}
	}
	for _, l := range lines {
		if l.width == 0 {
			p.Points = append(p.Points, document.Points{Mark: l.key.Mark, Ink: l.key.Ink, Radius: 4.5,
				X: []float64{l.points[0].Saving}, Y: []float64{of(&l.points[0])}})
		}
	}
	return p
}

// mixed returns a curve through points, over the passes that they save. Between two points, some
// inputs are decided by one rule and the rest by the other: the mean of passes is linear there, and the
// saving is not.
func mixed(points []calibrate.FrontierPoint, of func(*calibrate.FrontierPoint) float64) (x, y []float64) {
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
func frontierSays(f *calibrate.Frontier) string {
	const share = 0.01
	var words []string
	for _, m := range f.Methods {
		for _, at := range m.At {
			if at.Disagreement != share {
				continue
			}
			words = append(words, fmt.Sprintf("%s %.1f (%s fewer)", calibrate.MethodWords(m.Name), at.MeanPasses, savingWords(at)))
		}
	}
	text := fmt.Sprintf("Where %s of the inputs may be decided otherwise than by all %d passes, this many are used on average: by %s.",
		shortPercent(share), f.Summary.Passes, document.List(words))
	if r := f.Rule; r != nil {
		text += fmt.Sprintf(" The policy's rule uses %.1f (%sx fewer), and decides %s otherwise; it is certified for at most %s with confidence %v.",
			r.MeanPasses, times(r.Saving), shortPercent(r.Disagreement), shortPercent(r.Certified), r.Confidence)
		if r.Flattered {
			text += " It was learned on this very recording, which flatters it."
		}
	}
	return text
}

func halvesSay(f *calibrate.Frontier) string {
	s := f.Summary
	return fmt.Sprintf("How much the same decision is worth: one half of the passes decides %s of the inputs otherwise than the other half "+
		"does (95%% interval %s, %s).", document.Percent(s.HalvesDiffer), document.PercentRange(s.HalvesDifferInterval[0], s.HalvesDifferInterval[1]), f.Intervals())
}

func frontierTiles(f *calibrate.Frontier) []document.Tile {
	const share = 0.01
	var tiles []document.Tile
	for _, m := range f.Methods {
		for _, at := range m.At {
			if at.Disagreement == share {
				tiles = append(tiles, document.Tile{Value: savingWords(at), Label: "passes saved by " + calibrate.MethodWords(m.Name),
					Detail: "at " + shortPercent(share) + " decided otherwise", Strong: m.Name == calibrate.LearnedRule})
			}
		}
	}
	if r := f.Rule; r != nil {
		tiles = append(tiles, document.Tile{Value: times(r.Saving) + "x", Label: "passes saved by the policy's rule",
			Detail: "at " + shortPercent(r.Disagreement) + " decided otherwise, certified at most " + shortPercent(r.Certified)})
	}
	return append(tiles, document.Tile{Value: document.Percent(f.Summary.HalvesDiffer), Label: "decided otherwise by two halves of the passes",
		Detail: "what the same decision is worth"})
}

func frontierWords(f *calibrate.Frontier) []document.Word {
	words := []document.Word{
		{"pass", "One of several answers of the model to the same input."},
		{"early stopping", "Deciding before the last pass, where the decision is certain enough not to wait for it."},
		{"passes saved", "All passes over the mean of those used: 4x means that a quarter of them is used."},
		{"decided otherwise", "With another action than all passes, or retained both times, but predicted critical only once."},
		{"retained instead", "Of the inputs that all passes defer, those that are retained."},
		{calibrate.MethodWords(calibrate.LearnedRule), "Asks between passes, from five statistics of those so far, how likely the decision is to be overturned."},
		{calibrate.MethodWords(calibrate.ScoreOnlyRule), "The same, from the score over its threshold alone."},
		{calibrate.MethodWords(calibrate.FewerPasses), "No rule: the policy decides on that many passes of each."},
	}
	if f.Full.Critical != nil {
		words = append(words, document.Word{"critical FNR", "Of the critical inputs retained, the share that is predicted not critical (false negative rate)."})
	}
	return words
}

func savingsTable(f *calibrate.Frontier) *document.Table {
	t := &document.Table{
		Caption: "Passes saved, at a share of inputs decided otherwise",
		Says:    "Between two points of a method, in proportion. Where its boldest rule does not reach the share, what that one saves at least.",
		Head:    []string{"method"}, TextColumns: 1,
	}
	for i, m := range f.Methods {
		row, naive := []any{calibrate.MethodWords(m.Name)}, []any{"otherwise by as many passes for every input"}
		for _, at := range m.At {
			if i == 0 {
				t.Head = append(t.Head, shortPercent(at.Disagreement))
			}
			row, naive = append(row, savingWords(at)), append(naive, shortPercent(at.FewerPasses))
		}
		t.Add(row...)
		if m.Name == calibrate.LearnedRule {
			t.Add(naive...)
		}
	}
	return t
}

func pointsIntro(f *calibrate.Frontier) string {
	s := f.Source
	if s.Orders > 1 {
		return fmt.Sprintf("Shares are means over %d orders of the passes of each input. Counts and 95%% intervals are of the first order of each alone; "+
			"intervals are %s.", s.Orders, f.Intervals())
	}
	return "Passes are in one order. Intervals are of 95%, " + f.Intervals() + "."
}

// pointTables returns a table of all passes and the policy's rule, and one for each method.
func pointTables(f *calibrate.Frontier) []document.Part {
	head := []string{"mean passes", "saved", "decided otherwise", "of", "95% interval", "retained instead, of deferred", "95% interval"}
	if f.Full.Critical != nil {
		head = append(head, "critical FNR", "missed of retained", "95% interval")
	}
	add := func(t *document.Table, p *calibrate.FrontierPoint) {
		cells := []any{times(p.MeanPasses), document.Times(p.Saving), document.FineShare(p.Disagreement),
			document.Of{p.Disagreements, f.Summary.DrawnOn}, document.FineInterval(p.DisagreementInterval), document.FineShare(p.Released),
			(*document.FineInterval)(p.ReleasedInterval)}
		if c := p.Critical; c != nil {
			cells = append(cells, document.Share(c.FNR), document.Of{c.Missed, c.Retained}, c.FNRInterval)
		}
		t.Add(cells...)
	}
	own := &document.Table{Caption: fmt.Sprintf("All %d passes", f.Summary.Passes), Head: head}
	add(own, &f.Full)
	if f.Rule != nil {
		own.Caption += ", and the policy's rule"
		add(own, &f.Rule.FrontierPoint)
	}
	tables := []document.Part{own}
	for _, m := range f.Methods {
		words := calibrate.MethodWords(m.Name)
		t := &document.Table{Caption: strings.ToUpper(words[:1]) + words[1:] + ", from cautious to bold", Head: head,
			Closed: len(m.Points) > document.LongTable}
		for i := range m.Points {
			add(t, &m.Points[i])
		}
		t.Main = spread(len(t.Rows), 20)
		tables = append(tables, t)
	}
	return tables
}

func frontierSource(f *calibrate.Frontier) document.Section {
	s := f.Source
	settings := append([]setting{{"software", s.Software}}, fileSettings("passes", s.Passes)...)
	if s.Labels != nil {
		settings = append(settings, fileSettings("labels", *s.Labels)...)
	}
	if s.GroupsFile != nil {
		settings = append(settings, fileSettings("groups", *s.GroupsFile)...)
	}
	order := "any"
	if s.Ordered {
		order = "as recorded"
	}
	return computed("ckd evaluate settle", append(settings,
		setting{"policy of model", f.Policy.Model},
		setting{"hash of the policy", f.Policy.Hash},
		setting{"gate, scope", string(f.Policy.Gate) + ", " + string(f.Policy.Scope)},
		setting{"kind of rows", s.Kind},
		setting{"variance", s.Variance},
		setting{"seed", strconv.FormatUint(s.Seed, 10)},
		setting{"order of the passes", order},
		setting{"times that each input was followed", fmt.Sprintf("%d to learn from, %d to draw", s.LearningOrders, s.Orders)})...)
}

// savingWords returns a saving, as in 4.60x.
func savingWords(at calibrate.FrontierAt) string {
	if !at.Reached {
		return "at least " + times(at.Saving) + "x"
	}
	return times(at.Saving) + "x"
}

// shortPercent returns a share as a percentage with as few decimals as it needs, up to two.
func shortPercent(share float64) string {
	return strconv.FormatFloat(math.Round(1e4*share)/100, 'f', -1, 64) + "%"
}

package report

import (
	"cmp"
	"fmt"
	"math"
	"slices"

	"github.com/ckd-project/ckd/cmd/ckd/internal/report/document"
	"github.com/ckd-project/ckd/decomp"
	"github.com/ckd-project/ckd/eval"
	"github.com/ckd-project/ckd/policy"
)

// missesFigure draws the critical inputs missed against the reviews that people do, and below them
// the critical calls that nobody looks at.
func (e *evaluation) missesFigure() *document.Figure {
	r := e.rule()
	f := &document.Figure{
		Title: "Critical inputs missed against reviews",
		Says: fmt.Sprintf("At %s %s misses %s of %s; without review %s are missed.", reviews(r.at), r.name,
			document.Count(r.at.CriticalMissed), document.Noun(e.report.Summary.Critical, "critical input"), document.Count(e.report.Summary.Missed)),
		How: "At the left end nobody reviews. Lower is better. The lower panel shows what goes out on the model's word as critical.",
	}
	if r.gain == nil {
		f.Says = fmt.Sprintf("Without review %s are missed.", document.Noun(e.report.Summary.Missed, "critical input"))
	}
	plots := []document.Plot{
		{Height: 270, Y: document.Axis{Label: "critical inputs missed", Ticks: document.Ticks{About: 5, Unit: 1}}},
		{Height: 150, Y: document.Axis{Label: "critical calls kept per 1,000", Ticks: document.Ticks{About: 3, Unit: 1}}},
	}
	missed, called := 1.0, 1.0
	for _, g := range e.missesLines() {
		l := g.line
		var x, above, below []float64
		for c := range e.report.Curves.Coverage {
			x = append(x, e.reviews(l.curve, c))
			above = append(above, float64(l.curve.CriticalMissed[c]))
			below = append(below, e.thousand(l.curve.CalledCritical[c]))
		}
		missed, called = max(missed, slices.Max(above)), max(called, slices.Max(below))
		plots[0].Lines = append(plots[0].Lines, document.Line{Stroke: l.stroke, X: x, Y: above})
		plots[1].Lines = append(plots[1].Lines, document.Line{Stroke: l.stroke, X: x, Y: below})
		f.Legend = append(f.Legend, l.stroke.Key(g.name))
	}
	plots[0].Y.Max, plots[1].Y.Max = document.RoundUp(missed, 5), document.RoundUp(called, 3)
	for i := range plots {
		plots[i].X = document.Axis{Max: 1000, Ticks: document.Ticks{About: 10, Unit: 1}}
		plots[i].Upright(r.at.Per1000.Reviews, document.Stroke{Ink: document.Muted, Dash: document.MarkDotted, Width: 1})
	}
	plots[0].X.Ticks.Unnamed = true
	plots[1].X.Label = "reviews per 1,000 inputs"
	f.Plots = plots
	f.Legend = append(f.Legend, document.Key{Mark: document.MarkThin, Ink: document.Muted,
		Text: perThousand(r.at.Per1000.Reviews) + " reviews per 1,000 inputs"})
	return f
}

// reviews returns the reviews per 1,000 inputs at a coverage.
func (e *evaluation) reviews(c *eval.Curve, at int) float64 {
	n := float64(e.report.Summary.Inputs - e.report.Curves.Retained[at])
	if e.report.Source.CriticalCalls == eval.Reviewed {
		n += c.CalledCritical[at]
	}
	return e.thousand(n)
}

// thousand returns a count of inputs per 1,000.
func (e *evaluation) thousand(n float64) float64 {
	return 1000 * share(n, float64(e.report.Summary.Inputs))
}

// namedLine is a line with its text in the legend.
type namedLine struct {
	line
	name string
}

// missesLines selects the rankings of the figure: the given policy, the best simple score among inputs
// called safe, and mutual information, the paper's rule and the score of the fewest
// misses. Rankings that miss the same everywhere share a line, which names them all.
func (e *evaluation) missesLines() []namedLine {
	var lines []line
	add := func(row *eval.Row, s document.Stroke) {
		if row == nil || slices.ContainsFunc(lines, func(l line) bool { return l.row == row }) {
			return
		}
		if curve := e.curve(row.Scope, row.Name); curve != nil {
			lines = append(lines, line{row: row, curve: curve, stroke: s})
		}
	}
	if p := e.report.Policy; p != nil {
		add(e.row(p.Scope, "policy"), document.Stroke{Ink: document.Vermillion, Dash: document.MarkSolid, Width: widest})
	}
	add(e.simplest(policy.PredictedSafe), document.Stroke{Ink: document.Sky, Dash: document.MarkSolid, Width: 2.2})
	add(e.row(e.budgetScope(), mi), document.Stroke{Ink: document.Grey, Dash: document.MarkDashed, Width: 1.6})
	add(e.row(e.budgetScope(), string(policy.AnyCritical)), document.Stroke{Ink: document.Green, Dash: document.MarkDotted, Width: 1.8})
	add(e.fewest(e.budgetScope()), document.Stroke{Ink: document.Blue, Dash: document.MarkSolid, Width: 1.2})

	var named []namedLine
	for _, l := range inSight(lines) {
		name := e.rowName(l.row)
		if l.stroke.Ink == document.Vermillion {
			name = "this policy"
		}
		hidden := slices.IndexFunc(named, func(n namedLine) bool {
			return slices.Equal(n.curve.CriticalMissed, l.curve.CriticalMissed) &&
				slices.Equal(n.curve.CalledCritical, l.curve.CalledCritical)
		})
		if hidden >= 0 {
			named[hidden].name += "; the same curve: " + name
			continue
		}
		named = append(named, namedLine{l, name})
	}
	return named
}

// noun returns a count per 1,000 inputs with its noun.
func noun(x float64, singular string) string { return perThousand(x) + " " + singular + "s" }

// missesTable shows every ranking at the coverage of the report: the model alone, then simple scores,
// then the others, the fewest missed first.
func (d *deferral) missesTable() *document.Table {
	t := &document.Table{
		Caption: fmt.Sprintf("Every ranking at %s (%s)", d.deferrals(), d.scope.Words()),
		Says:    "Critical miss rate: missed and not reviewed, of all critical inputs. Critical calls kept, and false ones among them: per 1,000 inputs.",
	}
	reviewed := d.report.Source.CriticalCalls == eval.Reviewed
	if reviewed {
		t.Says += " Reviews are the deferred and the called critical."
	}
	if d.report.Policy != nil && math.Abs(d.report.Policy.Per1000.Deferred-1000*(1-d.report.Source.Coverage)) > 0.5 {
		t.Says += " The policy is ranked at this number of deferrals; at its own thresholds it defers " + perThousand(d.report.Policy.Per1000.Deferred) + "."
	}
	all := d.report.Summary.Critical
	rows := append([]*eval.Row{{Name: noReview, Scope: d.scope, At: d.report.Summary.WithoutDeferral}},
		sorted(d.rankings(d.scope), func(x, y *eval.Row) int { return cmp.Or(cmp.Compare(rank(x), rank(y)), d.byMisses(x, y)) })...)
	return fill(t, rows, d.names, []column{
		{"missed", true, func(r *eval.Row) any { return document.Of{r.CriticalMissed, all} }},
		{"critical miss rate", true, func(r *eval.Row) any { return document.Share(r.CriticalMissRate) }},
		{d.interval95(), true, func(r *eval.Row) any { return r.CriticalMissRateInterval }},
		{"reviews", reviewed, func(r *eval.Row) any { return perThousand(r.Per1000.Reviews) }},
		{"critical calls kept", true, func(r *eval.Row) any { return perThousand(r.Per1000.CalledCritical) }},
		{"false ones", true, func(r *eval.Row) any { return perThousand(r.Per1000.FalseCalls) }},
		{"accuracy", true, func(r *eval.Row) any { return document.Share(r.Accuracy) }},
	})
}

// rank puts simple scores before others, and what is no score last.
func rank(row *eval.Row) int {
	score, isScore := decomp.ParseScore(row.Name)
	switch {
	case !isScore:
		return 2
	case slices.Contains(eval.SimpleScores, score):
		return 0
	}
	return 1
}

// errorsTable shows every ranking at the coverage where no input is critical.
func (d *deferral) errorsTable() *document.Table {
	t := &document.Table{Caption: fmt.Sprintf("Every ranking at %s", d.deferrals())}
	return fill(t, sorted(d.rankings(d.scope), d.byMisses), d.names, []column{
		{"retained", true, func(r *eval.Row) any { return r.Retained }},
		{"accuracy", true, func(r *eval.Row) any { return document.Share(r.Accuracy) }},
		{d.resampled95(), d.resampled(), func(r *eval.Row) any { return within(r.BootstrapAt.Accuracy) }},
		{"macro-F1", true, func(r *eval.Row) any { return document.Number(r.MacroF1) }},
		{"called critical, per 1,000", d.classes.anyCritical, func(r *eval.Row) any { return perThousand(r.Per1000.CalledCritical) }},
	})
}

// classMisses shows what is missed of each critical class, the worst first. It returns nil of one
// class, whose figures are the pooled ones.
func (e *evaluation) classMisses() *document.Table {
	r := e.rule()
	if len(r.at.CriticalClasses) < 2 || r.gain == nil {
		return nil
	}
	t := &document.Table{
		Caption: "Missed of each critical class at " + reviews(r.at),
		Says:    fmt.Sprintf("%s Classes with fewer than %d inputs have counts alone.", e.intervalsAre(), eval.FewOfClass),
		Head:    []string{"class", "inputs", "without review"}, TextColumns: 1,
	}
	columns := []namedAt{{r.name, r.at}}
	if row := e.row(e.budgetScope(), mi); row != nil {
		columns = append(columns, namedAt{e.rowName(row), row.At})
	}
	for _, c := range columns {
		t.Head = append(t.Head, "missed by "+c.name, "rate", e.interval95())
	}
	order := make([]int, len(r.at.CriticalClasses))
	for i := range order {
		order[i] = i
	}
	slices.SortStableFunc(order, func(a, b int) int {
		x, y := r.at.CriticalClasses[a], r.at.CriticalClasses[b]
		return cmp.Or(ascending(-x.CriticalMissRate, -y.CriticalMissRate), cmp.Compare(y.Missed, x.Missed))
	})
	without := e.report.Summary.WithoutDeferral.CriticalClasses
	for _, i := range order {
		c := r.at.CriticalClasses[i]
		cells := []any{c.Class, c.Inputs, nil}
		if i < len(without) {
			cells[2] = without[i].Missed
		}
		for _, column := range columns {
			missed := column.at.CriticalClasses[i]
			cells = append(cells, missed.Missed, rateCell(missed), intervalCell(missed))
		}
		t.Add(cells...)
	}
	t.Closed = len(t.Rows) > document.LongTable
	return t
}

// namedAt holds the figures of a ranking with its name.
type namedAt struct {
	name string
	at   eval.At
}

// rateCell returns the miss rate of a class, nothing for one with counts alone.
func rateCell(c eval.ClassMisses) any {
	if !c.CriticalMissRate.Defined() {
		return nil
	}
	return document.Share(c.CriticalMissRate)
}

func intervalCell(c eval.ClassMisses) any {
	if c.CriticalMissRateInterval == nil {
		return nil
	}
	return c.CriticalMissRateInterval
}

// point is a coverage at which tables show counts: one of the 200, or the report's own.
type point struct {
	retained int // inputs
	curve    int // its number among the 200; -1 for the report's own
}

// points returns the coverages nearest to the ten tenths. The report's own coverage stands in for the
// nearest of the 200, so that all tables have the same counts there.
func (d *deferral) points() []point {
	own := d.rankings(d.scope)[0].Retained
	var points []point
	for tenth := 1; tenth <= 10; tenth++ {
		p := point{curve: nearest(d.report.Curves.Coverage, float64(tenth)/10)}
		p.retained = d.report.Curves.Retained[p.curve]
		if nearest(d.report.Curves.Coverage, d.report.Source.Coverage) == p.curve {
			p = point{own, -1}
		}
		points = append(points, p)
	}
	return points
}

// figures returns the counts of a ranking at the point.
func (p point) figures(row *eval.Row, curve *eval.Curve) eval.At {
	if p.curve < 0 {
		return row.At
	}
	return eval.At{
		CriticalMissed: curve.CriticalMissed[p.curve], CriticalRetained: curve.CriticalRetained[p.curve],
		CalledCritical: curve.CalledCritical[p.curve],
	}
}

// intervalsAre says in a sentence of which kind the intervals of shares are.
func (e *evaluation) intervalsAre() string {
	if e.byGroup() {
		return "Intervals are by group, 95% (Gaffke): inputs of one group may hang together in any way."
	}
	return "Intervals are exact, 95% (Clopper-Pearson)."
}

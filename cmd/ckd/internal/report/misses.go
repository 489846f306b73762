package report

import (
	"cmp"
	"fmt"
	"slices"

	"github.com/ckd-project/ckd/cmd/ckd/internal/report/document"
	"github.com/ckd-project/ckd/decomp"
	"github.com/ckd-project/ckd/eval"
	"github.com/ckd-project/ckd/policy"
)

// missesFigure draws the critical inputs missed against the reviews that people do, and below them
// the inputs that are called critical and kept.
func (d *deferral) missesFigure() *document.Figure {
	best := d.fewest(d.scope)
	if best == nil {
		return nil
	}
	f := &document.Figure{
		Title: fmt.Sprintf("Critical inputs missed against reviews (scope %s)", d.scope),
		Says:  d.missesSay(best),
		How: "At the left end nobody reviews; towards the right more goes to people. Lower is better. The lower panel shows what goes " +
			"out on the model's word as critical.",
	}
	reviewed := "Reviews are the inputs deferred."
	if d.report.Source.CriticalCalls == eval.Reviewed {
		reviewed = "Reviews are the inputs deferred, and those called critical that are kept."
	}
	f.How += " " + reviewed
	plots := []document.Plot{
		{Height: 270, Y: document.Axis{Label: "critical inputs missed", Ticks: document.Ticks{About: 5, Unit: 1}}},
		{Height: 205, Y: document.Axis{Label: "critical calls kept per 1,000", Ticks: document.Ticks{About: 3, Unit: 1}}},
	}
	missed, called := 1.0, 1.0
	for _, g := range d.missesLines(best) {
		l := g.line
		var x, above, below []float64
		for c := range d.report.Curves.Coverage {
			x = append(x, d.reviews(l.curve, c))
			above = append(above, float64(l.curve.CriticalMissed[c]))
			below = append(below, d.thousand(l.curve.CalledCritical[c]))
		}
		missed, called = max(missed, slices.Max(above)), max(called, slices.Max(below))
		plots[0].Lines = append(plots[0].Lines, document.Line{Stroke: l.stroke, X: x, Y: above})
		plots[1].Lines = append(plots[1].Lines, document.Line{Stroke: l.stroke, X: x, Y: below})
		f.Legend = append(f.Legend, l.stroke.Key(g.name))
	}
	plots[0].Y.Max, plots[1].Y.Max = document.RoundUp(missed, 5), document.RoundUp(called, 3)
	for i := range plots {
		plots[i].X = document.Axis{Max: 1000, Ticks: document.Ticks{About: 10, Unit: 1}}
		plots[i].Upright(best.Per1000.Reviews, document.Stroke{Ink: document.Muted, Dash: document.MarkDotted, Width: 1})
	}
	plots[0].X.Ticks.Unnamed = true
	plots[1].X.Label = "reviews per 1,000 inputs"
	f.Plots = plots
	f.Legend = append(f.Legend, document.Key{Mark: document.MarkThin, Ink: document.Muted,
		Text: perThousand(best.Per1000.Reviews) + " reviews per 1,000 inputs"})
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

// missesLines selects the rankings of the figure: those with the fewest misses in this scope and in
// the other one, mutual information, p_critical and the given policy. Rankings that miss the same
// everywhere share a line, which names them all.
func (d *deferral) missesLines(best *eval.Row) []namedLine {
	var lines []line
	add := func(row *eval.Row, s document.Stroke) {
		if row == nil || slices.ContainsFunc(lines, func(l line) bool { return l.row == row }) {
			return
		}
		if curve := d.curve(row.Scope, row.Name); curve != nil {
			lines = append(lines, line{row: row, curve: curve, stroke: s})
		}
	}
	add(d.row(d.scope, "policy"), document.Stroke{Ink: document.Vermillion, Dash: document.MarkSolid, Width: widest})
	add(best, document.Stroke{Ink: document.Sky, Dash: document.MarkSolid, Width: 2.2})
	add(d.row(d.scope, mi), document.Stroke{Ink: document.Grey, Dash: document.MarkDashed, Width: 1.6})
	add(d.row(d.scope, "p_critical"), document.Stroke{Ink: document.Purple, Dash: document.MarkDashDot, Width: 1.4})
	add(d.row(d.scope, decomp.CCritMax.String()), document.Stroke{Ink: document.Blue, Dash: document.MarkSolid, Width: 1.2})
	other := policy.PredictedSafe
	if d.scope == policy.PredictedSafe {
		other = policy.AllInputs
	}
	add(d.fewest(other), document.Stroke{Ink: document.Green, Dash: document.MarkDotted, Width: 1.8})

	var named []namedLine
	for _, l := range inSight(lines) {
		name := d.lineName(l.row)
		if l.row == best {
			name += " (fewest of the scores at the coverage)"
		}
		if l.row.Scope != d.scope {
			name += fmt.Sprintf(" (scope %s, fewest of its scores)", l.row.Scope)
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

// missesSay says what the score with the fewest misses and mutual information miss.
func (d *deferral) missesSay(best *eval.Row) string {
	s := d.report.Summary
	text := fmt.Sprintf("At %s per 1,000 inputs %s of %s are missed by %s", noun(best.Per1000.Reviews, "review"),
		document.Count(best.CriticalMissed), document.Noun(s.Critical, "critical input"), d.withEqual(best))
	if miRow := d.row(d.scope, mi); miRow != nil && miRow != best {
		text += fmt.Sprintf("; by mutual information %s", document.Count(miRow.CriticalMissed))
		if d.report.Source.CriticalCalls == eval.Reviewed && d.scope == policy.AllInputs {
			text += fmt.Sprintf(" at %s", noun(miRow.Per1000.Reviews, "review"))
		}
	}
	text += fmt.Sprintf(", without deferral %s.", document.Count(s.Missed))
	fewer := slices.DeleteFunc(d.rankings(d.scope), func(row *eval.Row) bool { return row.CriticalMissed >= best.CriticalMissed })
	if len(fewer) > 0 {
		row := slices.MinFunc(fewer, d.byMisses)
		text += fmt.Sprintf(" %s, which is no score, misses %s.", d.lineName(row), document.Count(row.CriticalMissed))
	}
	return text
}

// noun returns a count per 1,000 inputs with its noun.
func noun(x float64, singular string) string { return perThousand(x) + " " + singular + "s" }

// missesTable shows every ranking at the coverage of the report, the fewest missed first.
func (d *deferral) missesTable() *document.Table {
	t := &document.Table{
		Caption: fmt.Sprintf("Every ranking at %s (scope %s)", d.deferrals(), d.scope),
		Says: "Critical miss rate: retained and missed, of all critical inputs. Four counts are per 1,000 inputs: deferred, called " +
			"critical and kept, of these false, missed.",
	}
	several := len(d.report.Summary.WithoutDeferral.CriticalClasses) > 1
	if several {
		t.Says += fmt.Sprintf(" Worst class: the critical one of %d inputs or more with the highest critical miss rate.", eval.FewOfClass)
	}
	reviewed := d.report.Source.CriticalCalls == eval.Reviewed
	if reviewed {
		t.Says += " Reviews are the deferred and the called critical."
	}
	if d.report.Policy != nil {
		t.Says += " The row policy is the order of the given policy at this number of deferrals; at its own thresholds it defers " +
			perThousand(d.report.Policy.Per1000.Deferred) + "."
	}
	all := d.report.Summary.Critical
	rows := append(sorted(d.rankings(d.scope), d.byMisses),
		&eval.Row{Name: "without deferral", Scope: d.scope, At: d.report.Summary.WithoutDeferral})
	return fill(t, rows, d.names, []column{
		{"missed", true, func(r *eval.Row) any { return document.Of{r.CriticalMissed, all} }},
		{"critical miss rate", true, func(r *eval.Row) any { return document.Share(r.CriticalMissRate) }},
		{d.interval95(), true, func(r *eval.Row) any { return r.CriticalMissRateInterval }},
		{"per 1,000: deferred", true, func(r *eval.Row) any { return perThousand(r.Per1000.Deferred) }},
		{"reviews", reviewed, func(r *eval.Row) any { return perThousand(r.Per1000.Reviews) }},
		{"called critical", true, func(r *eval.Row) any { return perThousand(r.Per1000.CalledCritical) }},
		{"of these false", true, func(r *eval.Row) any { return perThousand(r.Per1000.FalseCalls) }},
		{"missed", true, func(r *eval.Row) any { return perThousand(r.Per1000.Missed) }},
		{"worst class", several, func(r *eval.Row) any { return worstCell(r.At) }},
		{"accuracy", true, func(r *eval.Row) any { return document.Share(r.Accuracy) }},
	})
}

// errorsTable shows every ranking at the coverage where no input is critical.
func (d *deferral) errorsTable() *document.Table {
	t := &document.Table{Caption: fmt.Sprintf("Every ranking at %s (scope %s)", d.deferrals(), d.scope)}
	return fill(t, sorted(d.rankings(d.scope), d.byMisses), d.names, []column{
		{"retained", true, func(r *eval.Row) any { return r.Retained }},
		{"accuracy", true, func(r *eval.Row) any { return document.Share(r.Accuracy) }},
		{d.resampled95(), d.resampled(), func(r *eval.Row) any { return within(r.BootstrapAt.Accuracy) }},
		{"macro-F1", true, func(r *eval.Row) any { return document.Number(r.MacroF1) }},
		{"called critical, per 1,000", d.classes.anyCritical, func(r *eval.Row) any { return perThousand(r.Per1000.CalledCritical) }},
	})
}

// classTable shows what is missed of each critical class, the worst first.
func (d *deferral) classTable() *document.Table {
	best := d.fewest(d.scope)
	if best == nil {
		return nil
	}
	t := &document.Table{
		Caption: fmt.Sprintf("Missed of each critical class at %s (scope %s)", d.deferrals(), d.scope),
		Says:    fmt.Sprintf("%s Classes with fewer than %d inputs have counts alone.", d.intervalsAre(), eval.FewOfClass),
		Head:    []string{"class", "inputs", "without deferral"}, TextColumns: 1,
	}
	type of struct {
		name string
		at   eval.At
	}
	columns := []of{{plain(best.Name), best.At}}
	if row := d.row(d.scope, mi); row != nil && row != best {
		columns = append(columns, of{plain(mi), row.At})
	}
	if row := d.row(d.scope, "policy"); row != nil && row != best {
		columns = append(columns, of{"policy", row.At})
	}
	for _, c := range columns {
		t.Head = append(t.Head, "missed by "+c.name, "rate", d.interval95())
	}
	order := make([]int, len(best.CriticalClasses))
	for i := range order {
		order[i] = i
	}
	slices.SortStableFunc(order, func(a, b int) int {
		x, y := best.CriticalClasses[a], best.CriticalClasses[b]
		return cmp.Or(ascending(-x.CriticalMissRate, -y.CriticalMissRate), cmp.Compare(y.Missed, x.Missed))
	})
	without := d.report.Summary.WithoutDeferral.CriticalClasses
	for _, i := range order {
		c := best.CriticalClasses[i]
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

package report

import (
	"fmt"
	"html/template"
	"math"

	"gonum.org/v1/plot"
	"gonum.org/v1/plot/vg"

	"github.com/ckd-project/ckd/decomp"
	"github.com/ckd-project/ckd/eval"
	"github.com/ckd-project/ckd/policy"
)

// riskFigure is the risk over coverage, and what it is a share of.
func (b *builder) riskFigure(scope policy.Scope, lines []line) (*figure, error) {
	f := &figure{
		Title: "Critical inputs missed, as a share of those retained, at every coverage",
		Says:  b.riskSays(scope),
		How: "Coverage is the share of inputs that the model decides alone: at the right end nobody reviews, towards the " +
			"left more goes to people. Lower is better. Where the lower panel is near zero, the curve above it rests on a " +
			"few inputs and means little.",
		Legend: b.legend(lines, true),
	}
	above, below := "missed of retained critical", "critical retained"
	if !b.byRisk {
		f.Title = "Errors, as a share of the inputs retained, at every coverage"
		above, below = "errors of retained", "retained"
	}
	upper, lower := newPlot("", above), newPlot("coverage", below)
	for _, l := range lines {
		if b.byRisk && l.hasBand() {
			if err := addBand(upper, l.stroke.ink, b.r.Curves.Coverage, l.curve.Low, l.curve.High); err != nil {
				return nil, err
			}
		}
	}
	steady, most := 0.0, 1.0 // the highest risk of enough inputs, and the most inputs
	for _, l := range lines {
		risk, of := b.riskCurve(l.curve)
		for i := range risk {
			most = max(most, of[i])
			if of[i] >= fewRetained {
				steady = max(steady, risk[i])
			}
		}
	}
	steady = min(1, 1.1*steady)
	var err error
	f.SVG, err = b.panels(f, lines, b.riskCurve,
		panel{upper, 270, steady, numberTicks(5, 100, "%")}, panel{lower, 115, most, numberTicks(3, 1, "")})
	if end := roundUp(steady, 5); end < 1 && b.byRisk {
		f.How += fmt.Sprintf(" The upper panel ends at %s: bands may leave it, and so may curves where fewer than %d critical "+
			"inputs are retained.", roundPercent(end), fewRetained)
	}
	return f, err
}

// fewRetained is so few inputs that a risk may be anywhere: the axis does not
// make room for it.
const fewRetained = 10

// riskCurve is the risk at every coverage, no number where nothing is retained
// that could be missed, and what it is a share of.
func (b *builder) riskCurve(c *eval.Curve) (risk, of []float64) {
	missed, kept := c.Wrong, b.r.Curves.Retained
	if b.byRisk {
		missed, kept = c.CriticalMissed, c.CriticalRetained
	}
	for i := range b.r.Curves.Coverage {
		r := math.NaN()
		if kept[i] > 0 {
			r = share(missed[i], kept[i])
		}
		risk, of = append(risk, r), append(of, float64(kept[i]))
	}
	return risk, of
}

// riskSays compares, at the coverage, what c_crit_max and mutual information
// miss, and which score misses least.
func (b *builder) riskSays(scope policy.Scope) string {
	best, of := b.best(scope, b.risk), b.row(scope, mi)
	if best == nil {
		return "There is no score in this scope."
	}
	text := "At " + roundPercent(b.r.Source.Coverage) + " coverage "
	if !b.byRisk {
		text += errorsOf(best) + ", the lowest error rate of a score"
		if of != nil && of != best {
			text += "; " + errorsOf(of)
		}
		return text + "."
	}
	first := b.row(scope, decomp.CCritMax.String())
	if first == nil {
		first = best
	}
	text += fmt.Sprintf("%s retains %s and misses %s (%s)", alone(first.Name),
		noun(first.CriticalRetained, "critical input", "critical inputs"), count(first.CriticalMissed), percent(first.CriticalFNR))
	if of != nil && of != first {
		text += "; " + alone(mi) + " misses " + missedOf(of.At)
	}
	text += "."
	if best == first || best == of {
		text += " No score has a lower critical FNR than " + plain(best.Name) + "."
	} else {
		text += " The lowest critical FNR of a score is that of " + best.Name + ": " + missedOf(best.At) + "."
	}
	for i := range b.r.Policies {
		if row := &b.r.Policies[i]; row.Scope == scope && !isScore(row.Name) && !isGate(row.Name) {
			text += " Ranked as the given policy does, " + missedOf(row.At) + " are missed."
		}
	}
	return text
}

func errorsOf(row *eval.Row) string {
	return fmt.Sprintf("%s retains %s with %s errors", alone(row.Name), noun(row.Retained, "input", "inputs"),
		percent(1-row.Accuracy))
}

// jointFigure is what becomes of all critical inputs: retained and missed, and
// retained. Nil where there are none.
func (b *builder) jointFigure(scope policy.Scope, lines []line) (*figure, error) {
	best := b.best(scope, func(row *eval.Row) float64 { return float64(row.CriticalMissed) })
	if !b.byRisk || best == nil {
		return nil, nil
	}
	all := b.r.Summary.Critical
	f := &figure{
		Title: "Critical inputs missed, as a share of all critical inputs, at every coverage",
		How: "The joint curve divides by all critical inputs and not by those retained, so that it is steady at low " +
			"coverage too. The lower panel shows how many critical inputs the model still decides alone; the rest goes to people.",
		Legend: b.legend(lines, false),
	}
	f.Says = fmt.Sprintf("Of %s, at %s coverage %s", noun(all, "critical input", "critical inputs"),
		roundPercent(b.r.Source.Coverage), fate(best, all))
	if of := b.row(scope, mi); of != nil && of != best {
		f.Says += "; " + fate(of, all)
	}
	f.Says += fmt.Sprintf(". Without deferral %s are missed (%s).", count(b.r.Summary.Missed),
		percent(share(b.r.Summary.Missed, all)))

	highest := 0.0
	for _, l := range lines {
		for _, missed := range l.curve.CriticalMissed {
			highest = max(highest, share(missed, all))
		}
	}
	joint := func(c *eval.Curve) (missed, retained []float64) {
		for i := range b.r.Curves.Coverage {
			missed = append(missed, share(c.CriticalMissed[i], all))
			retained = append(retained, share(c.CriticalRetained[i], all))
		}
		return missed, retained
	}
	var err error
	f.SVG, err = b.panels(f, lines, joint,
		panel{newPlot("", "missed of all critical"), 230, highest, numberTicks(5, 100, "%")},
		panel{newPlot("coverage", "retained"), 115, 1, numberTicks(2, 100, "%")})
	return f, err
}

// fate of all critical inputs under a ranking.
func fate(row *eval.Row, all int) string {
	return fmt.Sprintf("%s leaves %s missed (%s) and hands %s to people (%s)", alone(row.Name), count(row.CriticalMissed),
		percent(share(row.CriticalMissed, all)), count(all-row.CriticalRetained), percent(row.CriticalDeferredShare))
}

// panel is a plot over coverage, with what it must have room for.
type panel struct {
	plot    *plot.Plot
	height  vg.Length
	highest float64
	ticks   plot.Ticker
}

// panels draws two curves of every line under each other, and marks the coverage
// asked for.
func (b *builder) panels(f *figure, lines []line, curves func(*eval.Curve) (above, below []float64),
	upper, lower panel) (template.HTML, error) {
	for _, l := range lines {
		above, below := curves(l.curve)
		if err := addLine(upper.plot, l.stroke, b.r.Curves.Coverage, above); err != nil {
			return "", err
		}
		if err := addLine(lower.plot, l.stroke, b.r.Curves.Coverage, below); err != nil {
			return "", err
		}
	}
	for _, p := range []panel{upper, lower} { // which have all that could widen their axes
		p.plot.X.Min, p.plot.X.Max = 0, 1
		p.plot.Y.Min, p.plot.Y.Max = 0, roundUp(p.highest, 5)
		p.plot.X.Tick.Marker, p.plot.Y.Tick.Marker = numberTicks(10, 100, "%"), p.ticks
		if err := upright(p.plot, stroke{muted, "dotted", 1}, b.r.Source.Coverage); err != nil {
			return "", err
		}
	}
	upper.plot.X.Tick.Marker = unnamed{upper.plot.X.Tick.Marker}
	return stack(f.Title+". "+f.Says, []*plot.Plot{upper.plot, lower.plot}, []vg.Length{upper.height, lower.height})
}

func (b *builder) legend(lines []line, bands bool) []key {
	var keys []key
	var banded []string
	for _, l := range lines {
		text := l.row.Name
		if b.r.Policy != nil && !isScore(text) && !isGate(text) {
			text += " (" + b.r.Policy.Model + ")"
		}
		if l.row == b.best(l.row.Scope, b.area) {
			text += " (lowest area of all scores)"
		}
		keys = append(keys, l.stroke.key(text))
		if l.hasBand() {
			banded = append(banded, l.row.Name)
		}
	}
	if bands && b.byRisk && len(banded) > 0 {
		keys = append(keys, key{"band", "95% bootstrap band of " + list(banded)})
	}
	return append(keys, key{"dotted thin muted", roundPercent(b.r.Source.Coverage) + " coverage"})
}

package calibrate

import (
	"cmp"
	"context"
	"fmt"
	"math"
	"slices"
	"strconv"
	"strings"

	"github.com/ckd-project/ckd/calibrate/internal/learn"
	"github.com/ckd-project/ckd/eval"
	"github.com/ckd-project/ckd/policy"
	"github.com/ckd-project/ckd/policy/earlystop"
)

// drawnOrders is the number of orders of each input's passes that a point is the mean over.
const drawnOrders = 8

// frontierPlot holds a frontier while it is drawn.
type frontierPlot struct {
	*Frontier
	model    *policy.Policy
	labelled bool // and there are critical classes
	progress eval.Progress
	naive    []learn.Evidence
}

// draw learns the rules and draws all methods.
func (p *frontierPlot) draw(ctx context.Context, r learn.Recording, classes int) error {
	seed := p.Source.Seed
	step := 0
	next := func() {
		const steps = 4
		p.progress(step, steps)
		step++
	}
	next()
	d, err := learn.Decide(ctx, p.model, r)
	if err != nil {
		return err
	}
	learning, rest := halves(r.Inputs, r.Groups, seed)
	most := max(1, mostStatistics/r.Passes)
	learning, rest = firstGroups(learning, r.Groups, most), firstGroups(rest, r.Groups, most)
	p.Source.LearningOrders = min(learn.DefaultOrders, max(1, most/max(1, len(learning))))
	p.Source.Orders = min(drawnOrders, max(1, most/max(1, len(rest))))
	if r.Ordered {
		p.Source.Orders = 1
	}
	p.Summary = FrontierSummary{Inputs: r.Inputs, Passes: r.Passes, Classes: classes, LearnedOn: len(learning), DrawnOn: len(rest)}
	if r.Groups != nil {
		p.Source.Groups = slices.Max(r.Groups) + 1
	}
	fewer, fewerOnce, err := p.twice(func(orders int) ([]learn.Evidence, error) {
		return learn.FewerPasses(ctx, d, rest, orders, seed)
	})
	if err != nil {
		return err
	}
	p.naive = fewer
	frontier := func(sequence *learn.Sequence) (all, once []learn.Evidence, err error) {
		return p.twice(func(orders int) ([]learn.Evidence, error) {
			return learn.Frontier(ctx, d, sequence, rest, orders, seed)
		})
	}
	for _, m := range []struct {
		name string
		kind learn.Kind
	}{{LearnedRule, learn.Learned}, {ScoreOnlyRule, learn.ScoreOnly}} {
		next()
		sequence, err := learn.Learn(ctx, d, learning, learn.Options{Orders: p.Source.LearningOrders, Kind: m.kind, Seed: seed,
			Fewest: fewestToLearn(p.model, p.model.Gate, p.model.ReliabilityThreshold, r.Passes)})
		if err != nil {
			return err
		}
		all, once, err := frontier(sequence)
		if err != nil {
			return err
		}
		p.add(m.name, all, once)
	}
	p.add(FewerPasses, fewer, fewerOnce)
	next()
	if rule := p.model.EarlyStop(); rule != nil && rule.Passes == r.Passes {
		all, once, err := frontier(&learn.Sequence{Rules: []*earlystop.Rule{rule}})
		if err != nil {
			return err
		}
		s := p.model.EarlyStopping
		p.Rule = &FrontierRule{
			FrontierPoint: p.point(&all[1], &once[1]), Certified: s.Certificate.Disagreement, Confidence: s.Certificate.Confidence,
			Flattered: s.PassesSHA256 != "" && s.PassesSHA256 == p.Source.Passes.SHA256,
		}
	}
	differ, err := learn.Noise(ctx, d, rest, seed)
	if err != nil {
		return err
	}
	p.Summary.HalvesDiffer = float64(len(differ)) / float64(len(rest))
	p.Summary.HalvesDifferInterval = exactInterval(len(differ), len(rest))
	if r.Groups != nil {
		p.Summary.HalvesDifferInterval = intervalByGroup(r.Groups, rest, differ)
	}
	next()
	return nil
}

// frontierShares are the shares of disagreements at which methods are compared.
var frontierShares = []float64{0.001, 0.0025, 0.005, 0.01, 0.02, 0.05}

// add adds a method, drawn in all orders and in the first one alone.
func (p *frontierPlot) add(name string, all, once []learn.Evidence) {
	p.Full = p.point(&all[0], &once[0])
	p.Summary.Deferred = all[0].Deferred
	m := FrontierMethod{Name: name, At: []FrontierAt{}, Points: []FrontierPoint{}}
	for i := range all[1:] {
		m.Points = append(m.Points, p.point(&all[i+1], &once[i+1]))
	}
	boldest := slices.MaxFunc(all, func(a, b learn.Evidence) int { return cmp.Compare(a.DisagreementShare(), b.DisagreementShare()) })
	for _, share := range frontierShares {
		used := learn.PassesAt(all, share)
		m.At = append(m.At, FrontierAt{Disagreement: share, MeanPasses: used, Saving: float64(p.Summary.Passes) / used,
			Reached: boldest.DisagreementShare() >= share, FewerPasses: p.naiveAt(used)})
	}
	p.Methods = append(p.Methods, m)
}

// naiveAt returns the share of inputs decided differently if every input gets the given number of
// passes, interpolated between whole numbers.
func (p *frontierPlot) naiveAt(passes float64) float64 {
	for i, fewer := range p.naive {
		if i > 0 && fewer.MeanPasses() <= passes {
			more := p.naive[i-1]
			part := (more.MeanPasses() - passes) / (more.MeanPasses() - fewer.MeanPasses())
			return more.DisagreementShare() + part*(fewer.DisagreementShare()-more.DisagreementShare())
		}
	}
	return p.naive[len(p.naive)-1].DisagreementShare()
}

// twice draws two results: over all orders of the passes, and over the first order of each input
// alone.
func (p *frontierPlot) twice(draw func(orders int) ([]learn.Evidence, error)) (all, once []learn.Evidence, err error) {
	if all, err = draw(p.Source.Orders); err != nil || p.Source.Orders == 1 {
		return all, all, err
	}
	once, err = draw(1)
	return all, once, err
}

// point returns a point with shares over all orders, and with intervals over inputs in one order
// each.
func (p *frontierPlot) point(all, once *learn.Evidence) FrontierPoint {
	interval := func(of learn.Share) *[2]float64 {
		if _, cases := of(&once.Counts); cases == 0 {
			return nil
		}
		low, high := once.Interval(of)
		return &[2]float64{low, high}
	}
	f := FrontierPoint{
		MeanPasses: all.MeanPasses(), Saving: all.Saving(),
		Disagreement: all.DisagreementShare(), Disagreements: once.Disagreements,
		DisagreementInterval: *interval(learn.Disagreements),
		Released:             ratio(all.Released, all.Deferred), ReleasedInterval: interval(learn.Released),
	}
	if p.labelled {
		f.Critical = &FrontierCritical{
			FNR: ratio(all.CriticalMissed, all.CriticalRetained), Retained: once.CriticalRetained, Missed: once.CriticalMissed,
			FNRInterval: interval(learn.Missed),
			Released:    ratio(all.CriticalReleased, all.CriticalDeferred),
		}
	}
	return f
}

// ratio returns a share, NaN of nothing.
func ratio(n, of int) eval.Figure { return eval.Figure(float64(n) / float64(of)) }

// frontierNotes returns what to know before believing the rest.
func frontierNotes(f *Frontier, model *policy.Policy, narrowed bool) []string {
	s := f.Summary
	notes := dominance(f)
	note := func(format string, args ...any) { notes = append(notes, fmt.Sprintf(format, args...)) }
	note("one half of the passes decides %s of the inputs otherwise than the other half does: the decision of all passes is that much a "+
		"matter of chance itself", percent(s.HalvesDiffer))
	note("one half of the inputs was drawn at random to learn from: another --seed draws another, and all figures move with it")
	if f.Source.Orders > 1 {
		note("shares are means over %d orders of the passes; intervals are %s, of the first order of each alone", f.Source.Orders, f.Intervals())
	}
	for _, share := range slices.Backward(frontierShares) {
		if float64(s.DrawnOn)*share < 5 {
			note("a share of %v%% is fewer than 5 of the %d inputs drawn on: what is saved there, and below, can be chance", 100*share, s.DrawnOn)
			break
		}
	}
	if s.LearnedOn+s.DrawnOn < s.Inputs {
		note("of %d inputs, %d were drawn to learn from and %d to draw on: more would take too much memory", s.Inputs, s.LearnedOn, s.DrawnOn)
	}
	if e := model.ExpectedPasses; e != 0 && e != s.Passes {
		note("the policy expects %d passes; here all %d that were recorded make the full decision", e, s.Passes)
	}
	if narrowed {
		note("the passes are float64, and were narrowed to float32, as the daemon takes them")
	}
	if f.Source.Labels != nil && f.Full.Critical == nil {
		note("the policy has no critical classes: labels tell nothing here")
	}
	if c := model.Calibration; c != nil && policy.IsEnsemble(c.Posterior) && !f.Source.Ordered {
		note("the policy is for an ensemble, but its members are drawn in any order: say --ordered if they come in one")
	}
	return append(notes, ruleNotes(f, model)...)
}

// ruleNotes returns notes on the policy's own rule.
func ruleNotes(f *Frontier, model *policy.Policy) (notes []string) {
	switch {
	case model.EarlyStopping == nil:
	case model.EarlyStop() == nil:
		notes = append(notes, "the policy's rule is not drawn: it was learned before the policy was changed, and is not in force")
	case f.Rule == nil:
		notes = append(notes, fmt.Sprintf("the policy's rule is not drawn: it is for %d passes, and there are %d", model.EarlyStopping.Rule.Passes,
			f.Summary.Passes))
	case f.Rule.Flattered:
		notes = append(notes, "the policy's rule was learned from and certified on this very recording, which flatters it; the other points are of "+
			"inputs that their rules were not learned from")
	}
	return notes
}

// dominance says at which shares the learned rule saves no less than the other methods, and where
// it saves less.
func dominance(f *Frontier) (notes []string) {
	learned := f.Method(LearnedRule)
	for _, name := range []string{ScoreOnlyRule, FewerPasses} {
		var more, less []string
		for i, at := range learned.At {
			against := f.Method(name).At[i]
			switch apart := math.Round(100*at.Saving) - math.Round(100*against.Saving); {
			case !against.Reached: // it may save more than is known
			case apart >= 0:
				more = append(more, fmt.Sprintf("%v%%", 100*at.Disagreement))
			case at.Reached:
				less = append(less, fmt.Sprintf("%v%% (%.2fx against %.2fx)", 100*at.Disagreement, at.Saving, against.Saving))
			}
		}
		words := fmt.Sprintf("the learned rule against %s: it saves ", MethodWords(name))
		switch {
		case less == nil && more == nil:
			words += "what cannot be compared at any share"
		case less == nil:
			words += "no less at every share where they can be compared"
		case more == nil:
			words += "less at every share: " + listed(less)
		default:
			words += fmt.Sprintf("no less at %s, less at %s", listed(more), listed(less))
		}
		notes = append(notes, words)
	}
	return notes
}

func listed(words []string) string {
	if n := len(words); n > 1 {
		return strings.Join(words[:n-1], ", ") + " and " + words[n-1]
	}
	return strings.Join(words, "")
}

func percent(share float64) string { return strconv.FormatFloat(100*share, 'f', 1, 64) + "%" }

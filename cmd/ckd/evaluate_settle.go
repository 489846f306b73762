package main

import (
	"cmp"
	"errors"
	"fmt"
	"io"
	"math"
	"math/rand/v2"
	"slices"
	"strings"

	"github.com/ckd-project/ckd/internal/binomial"
	"github.com/ckd-project/ckd/internal/record"
	"github.com/ckd-project/ckd/internal/report"
	"github.com/ckd-project/ckd/policy"
	"github.com/ckd-project/ckd/settle"
	"github.com/ckd-project/ckd/settle/learn"
)

// frontierCmd draws what deciding before the last pass saves.
type frontierCmd struct {
	Passes string `required:"" placeholder:"FILE" help:"Recorded passes: .npy, or .npz with one array (or FILE.npz:NAME)."`
	Labels string `placeholder:"FILE" help:"The true class of each input, by number, by name or one-hot, for what becomes of critical inputs: .npy or .npz."`
	rowFlags
	policyFlags

	Ordered bool   `help:"The passes are an ensemble's members: they keep their order. Implied where the policy's own rule says so."`
	Seed    uint64 `default:"42" placeholder:"N" help:"Seed of the random halves and orders. (${default})"`

	Format string `enum:"table,json,html,svg" default:"table" help:"Form of the output: ${enum}; svg is the picture alone. (${default})"`
	Out    string `placeholder:"PATH" help:"Write to a file. Default: the standard output."`
}

// settleForm is the flag form of ckd evaluate settle: ckd evaluate --settle.
func settleForm(args []string) []string {
	if len(args) < 2 || args[0] != "evaluate" || !strings.HasPrefix(args[1], "-") {
		return args
	}
	if i := slices.Index(args, "--settle"); i > 0 {
		return slices.Concat([]string{"evaluate", "settle"}, args[1:i], args[i+1:])
	}
	return args
}

// Help is the long text of ckd evaluate settle --help.
func (*frontierCmd) Help() string {
	return `Draws the frontier: the passes that are saved by deciding before the last one, against the share of inputs that are
then decided otherwise than by all passes; with labels, against critical FNR too. Rules are learned on one random half of
the inputs and drawn on the other, beside the score alone and fewer passes for every input.

    ckd evaluate settle --policy deploy/policy --passes mc_predictions.npy --labels y_true.npy
    ckd evaluate --settle --policy deploy/policy --passes mc_predictions.npy --format html --out frontier.html

Exit codes: 0 the report is out; 1 a file or the policy has a fault, or nothing can be learned from them; 2 wrong usage.
docs/evaluate.md explains every figure, docs/settle.md the rule.`
}

// Validate refuses flags that make no sense; kong calls it.
func (c *frontierCmd) Validate() error {
	if c.Policy == "" {
		return errors.New("expected --policy with the policy whose decisions are to be settled")
	}
	return c.rowFlags.check()
}

// Run draws the frontier.
func (c *frontierCmd) Run(ctx *cmdContext) error {
	flags := labelledFlags{Passes: c.Passes, Labels: c.Labels, rowFlags: c.rowFlags, policyFlags: c.policyFlags}
	model, err := flags.model()
	if err != nil {
		return err
	}
	out, err := openOutput(ctx, c.Out, c.Passes, c.Labels, c.Policy)
	if err != nil {
		return err
	}
	defer out.discard()
	f, err := c.frontier(ctx, &flags, model)
	if err != nil {
		return interrupted(ctx, err)
	}
	if err := c.write(out, f); err != nil {
		return err
	}
	return out.commit()
}

func (c *frontierCmd) write(w io.Writer, f *report.Frontier) error {
	switch c.Format {
	case "json":
		return writeJSON(w, f)
	case "html":
		return report.WriteFrontier(w, f)
	case "svg":
		return report.WriteFrontierSVG(w, f)
	}
	return writeFrontierTables(w, f)
}

// frontier reads the recording, learns on one half and draws on the other.
func (c *frontierCmd) frontier(ctx *cmdContext, flags *labelledFlags, model *policy.Policy) (*report.Frontier, error) {
	if why := unsettleable(model); why != "" {
		return nil, fmt.Errorf("model %s: nothing can be settled before the last pass: %s", model.Name, why)
	}
	passes, err := flags.read(ctx, c.Passes, model)
	if err != nil {
		return nil, err
	}
	if least := max(model.FewestPasses, 2); passes.S <= least {
		return nil, fmt.Errorf("%s has %d passes, expected more than %d, the fewest after which an input may be decided: none could be saved",
			c.Passes, passes.S, least)
	}
	if passes.S > policy.MaxSettlePasses {
		return nil, fmt.Errorf("%s has %d passes, expected at most %d, those of which decisions are settled", c.Passes, passes.S,
			policy.MaxSettlePasses)
	}
	var labels []int
	if c.Labels != "" {
		if labels, err = readLabels(c.Labels, passes, model.Classes); err != nil {
			return nil, err
		}
	}
	f := &report.Frontier{
		Source: report.FrontierSource{Software: software(), Kind: string(model.Kind), Variance: string(model.Variance), Seed: c.Seed},
		Policy: report.FrontierPolicy{Model: model.Name, Hash: model.Hash, Gate: model.Gate, Scope: model.Scope},
		Notes:  []string{},
	}
	if f.Source.Passes, err = hashFile(c.Passes); err != nil {
		return nil, err
	}
	if labels != nil {
		file, err := hashFile(c.Labels)
		if err != nil {
			return nil, err
		}
		f.Source.Labels = &file
	}
	f.Source.Ordered = c.Ordered || model.SettleRule() != nil && model.Settle.Order == policy.MembersOrder
	p := frontierPlot{Frontier: f, ctx: ctx, model: model, labelled: labels != nil && len(model.Critical) > 0}
	recording := settleRecording(passes, labels, f.Source.Ordered)
	if err := untilInterrupted(ctx, func() error { return p.draw(recording, passes.K) }); err != nil {
		return nil, fmt.Errorf("%s: %w", c.Passes, err)
	}
	f.Notes = append(f.Notes, frontierNotes(f, model, passes)...)
	return f, nil
}

// unsettleable says why nothing can be settled, whatever number of passes the policy
// expects: those recorded take its place.
func unsettleable(model *policy.Policy) string {
	p := *model
	p.ExpectedPasses = p.FewestPasses + 1
	return p.Unsettleable()
}

// drawnOrders of the passes of each input that points are means over.
const drawnOrders = 8

// frontierPlot is a frontier that is being drawn.
type frontierPlot struct {
	*report.Frontier
	ctx      *cmdContext
	model    *policy.Policy
	labelled bool // and there are critical classes
	naive    []learn.Point
}

// draw all there is.
func (p *frontierPlot) draw(r learn.Recording, classes int) error {
	seed := p.Source.Seed
	working := newLateBar(p.ctx, "learning and drawing")
	defer working.stop()
	step := 0
	next := func() {
		const steps = 4
		working.update(step, steps)
		step++
	}
	next()
	d, err := learn.Decide(p.model, r)
	if err != nil {
		return err
	}
	learning, rest := halves(r.Inputs, seed)
	most := max(1, mostStatistics/r.Passes)
	learning, rest = learning[:min(len(learning), most)], rest[:min(len(rest), most)]
	p.Source.LearningOrders = min(learn.DefaultOrders, max(1, most/max(1, len(learning))))
	p.Source.Orders = min(drawnOrders, max(1, most/max(1, len(rest))))
	if r.Ordered {
		p.Source.Orders = 1
	}
	p.Summary = report.FrontierSummary{Inputs: r.Inputs, Passes: r.Passes, Classes: classes, LearnedOn: len(learning), DrawnOn: len(rest)}
	fewer, fewerOnce := p.twice(func(orders int) []learn.Point { return learn.FewerPasses(d, rest, orders, seed) })
	p.naive = fewer
	for _, m := range []struct {
		name string
		kind learn.Kind
	}{{report.LearnedRule, learn.Learned}, {report.ScoreOnlyRule, learn.ScoreOnly}} {
		next()
		path, err := learn.Learn(d, learning, learn.Options{Orders: p.Source.LearningOrders, Kind: m.kind, Seed: seed,
			Fewest: max(p.model.FewestPasses, 2)})
		if err != nil {
			return err
		}
		all, once := p.twice(func(orders int) []learn.Point { return learn.Frontier(d, path, m.name, rest, orders, seed) })
		p.add(m.name, all, once)
	}
	p.add(report.FewerPasses, fewer, fewerOnce)
	next()
	p.addRule(r.Passes, func(path *learn.Path, orders int) []learn.Point {
		return learn.Frontier(d, path, "the policy's rule", rest, orders, seed)
	})
	differ := learn.Noise(d, rest, seed)
	p.Summary.HalvesDiffer = float64(differ) / float64(len(rest))
	p.Summary.HalvesDifferInterval = exact(differ, len(rest))
	next()
	return nil
}

// halves of the inputs, at random.
func halves(inputs int, seed uint64) (learning, rest []int) {
	perm := rand.New(rand.NewPCG(seed, 0x4a1f)).Perm(inputs)
	return perm[:inputs/2], perm[inputs/2:]
}

// frontierShares are those of decisions that are not those of all passes, at which
// methods are compared.
var frontierShares = []float64{0.001, 0.0025, 0.005, 0.01, 0.02, 0.05}

// add a method, in all orders and in the first.
func (p *frontierPlot) add(name string, all, once []learn.Point) {
	p.Full = p.point(all[0], once[0])
	p.Summary.Deferred = all[0].Deferred
	m := report.FrontierMethod{Name: name, At: []report.FrontierAt{}, Points: []report.FrontierPoint{}}
	for i := range all[1:] {
		m.Points = append(m.Points, p.point(all[i+1], once[i+1]))
	}
	boldest := slices.MaxFunc(all, func(a, b learn.Point) int { return cmp.Compare(a.DisagreementShare(), b.DisagreementShare()) })
	for _, share := range frontierShares {
		used := learn.PassesAt(all, share)
		m.At = append(m.At, report.FrontierAt{Disagreement: share, MeanPasses: used, Saving: float64(p.Summary.Passes) / used,
			Reached: boldest.DisagreementShare() >= share, FewerPasses: p.naiveAt(used)})
	}
	p.Methods = append(p.Methods, m)
}

// naiveAt is the share that so many passes of every input decide otherwise, between
// two whole numbers in proportion.
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

// addRule adds the policy's own rule, where one is in force for as many passes.
func (p *frontierPlot) addRule(passes int, draw func(path *learn.Path, orders int) []learn.Point) {
	rule := p.model.SettleRule()
	if rule == nil || rule.Passes != passes {
		return
	}
	path := &learn.Path{Rules: []*settle.Rule{rule}}
	all, once := p.twice(func(orders int) []learn.Point { return draw(path, orders) })
	s := p.model.Settle
	p.Rule = &report.FrontierRule{
		FrontierPoint: p.point(all[1], once[1]), Certified: s.Certificate.Disagreement, Confidence: s.Certificate.Confidence,
		Flattered: s.PassesSHA256 != "" && s.PassesSHA256 == p.Source.Passes.SHA256,
	}
}

// twice draws over all orders, and over the first of each input alone.
func (p *frontierPlot) twice(draw func(orders int) []learn.Point) (all, once []learn.Point) {
	all = draw(p.Source.Orders)
	if p.Source.Orders == 1 {
		return all, all
	}
	return all, draw(1)
}

// point has shares over all orders, and intervals over inputs, each in one order.
func (p *frontierPlot) point(all, once learn.Point) report.FrontierPoint {
	f := report.FrontierPoint{
		MeanPasses: all.MeanPasses(), Saving: all.Saving(),
		Disagreement: all.DisagreementShare(), Disagreements: once.Disagreements,
		DisagreementInterval: exact(once.Disagreements, once.Inputs),
		Released:             ratio(all.Released, all.Deferred), ReleasedInterval: exact(once.Released, once.Deferred),
	}
	if p.labelled {
		f.Critical = &report.FrontierCritical{
			FNR: all.CriticalFNR(), Retained: once.CriticalRetained, Missed: once.CriticalMissed,
			FNRInterval: exact(once.CriticalMissed, once.CriticalRetained),
			Released:    ratio(all.CriticalReleased, all.CriticalDeferred),
		}
	}
	return f
}

// exact is the 95% interval of a share of which k of n were seen.
func exact(k, n int) [2]float64 {
	low, high := binomial.Interval(k, n, 0.95)
	return [2]float64{low, high}
}

func ratio(n, of int) float64 { return float64(n) / max(1, float64(of)) }

// frontierNotes say what to know before believing the rest.
func frontierNotes(f *report.Frontier, model *policy.Policy, passes *record.Passes) []string {
	s := f.Summary
	notes := dominance(f)
	note := func(format string, args ...any) { notes = append(notes, fmt.Sprintf(format, args...)) }
	note("one half of the passes decides %s of the inputs otherwise than the other half does: the decision of all passes is that much a "+
		"matter of chance itself", percent(s.HalvesDiffer))
	note("one half of the inputs was drawn at random to learn from: another --seed draws another, and all figures move with it")
	if f.Source.Orders > 1 {
		note("shares are means over %d orders of the passes; intervals are exact, by inputs, in the first order of each alone", f.Source.Orders)
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
	if passes.Float64 != nil {
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

// ruleNotes are on the policy's own rule.
func ruleNotes(f *report.Frontier, model *policy.Policy) (notes []string) {
	switch {
	case model.Settle == nil:
	case model.SettleRule() == nil:
		notes = append(notes, "the policy's rule is not drawn: it was learned before the policy was changed, and is not in force")
	case f.Rule == nil:
		notes = append(notes, fmt.Sprintf("the policy's rule is not drawn: it is for %d passes, and there are %d", model.Settle.Rule.Passes,
			f.Summary.Passes))
	case f.Rule.Flattered:
		notes = append(notes, "the policy's rule was learned from and certified on this very recording, which flatters it; the other points are of "+
			"inputs that their rules were not learned from")
	}
	return notes
}

// dominance says at which shares the learned rule saves no less than the others, and
// where it does not.
func dominance(f *report.Frontier) (notes []string) {
	learned := f.Method(report.LearnedRule)
	for _, name := range []string{report.ScoreOnlyRule, report.FewerPasses} {
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
		words := fmt.Sprintf("the learned rule against %s: it saves ", report.MethodWords(name))
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

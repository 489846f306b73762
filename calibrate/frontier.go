package calibrate

import (
	"context"
	"fmt"

	"github.com/ckd-project/ckd/eval"
	"github.com/ckd-project/ckd/policy"
)

// Frontier says what deciding before the last pass saves and what it costs, as `ckd evaluate settle
// --format json` prints it. A share of nothing is null, and no list is.
type Frontier struct {
	Source  FrontierSource   `json:"source"`
	Policy  FrontierPolicy   `json:"policy"`
	Summary FrontierSummary  `json:"summary"`
	Full    FrontierPoint    `json:"full"`
	Methods []FrontierMethod `json:"methods"`
	// Rule says what the policy's own rule does; nil if none is in force.
	Rule *FrontierRule `json:"rule,omitempty"`
	// Notes say what a reader has to know before believing the rest.
	Notes []string `json:"notes"`
}

// FrontierSource says how a frontier was computed.
type FrontierSource struct {
	Software string     `json:"software"`
	Passes   eval.File  `json:"passes"`
	Labels   *eval.File `json:"labels,omitempty"`
	// Groups counts the groups of the recording; 0 where inputs count as independent.
	Groups int `json:"groups,omitempty"`
	// GroupsFile is the file of groups, nil where inputs count as independent.
	GroupsFile *eval.File `json:"groups_file,omitempty"`
	Kind       string     `json:"kind"`
	Variance   string     `json:"variance"`
	Seed       uint64     `json:"seed"`
	// Ordered passes are the members of an ensemble, which keep their order.
	Ordered bool `json:"ordered"`
	// LearningOrders counts how often each input was followed to learn from, each time in another
	// order and with slightly moved thresholds. Orders counts how often it was followed to draw.
	LearningOrders int `json:"learning_orders"`
	Orders         int `json:"orders"`
}

// FrontierPolicy names the policy whose decisions the rules try to repeat.
type FrontierPolicy struct {
	Model string       `json:"model"`
	Hash  string       `json:"hash"`
	Gate  policy.Gate  `json:"gate"`
	Scope policy.Scope `json:"scope"`
}

// FrontierSummary describes the recording, and what all its passes decide.
type FrontierSummary struct {
	Inputs  int `json:"inputs"`
	Passes  int `json:"passes"` // S
	Classes int `json:"classes"`
	// LearnedOn and DrawnOn count the inputs of the two random parts.
	LearnedOn int `json:"learned_on"`
	DrawnOn   int `json:"drawn_on"`
	// Deferred counts the inputs drawn on that all passes defer.
	Deferred int `json:"deferred"`
	// HalvesDiffer is the share of the inputs drawn on whose decision by one half of the passes
	// differs from that by the other half, with its 95% interval.
	HalvesDiffer         float64    `json:"halves_differ"`
	HalvesDifferInterval [2]float64 `json:"halves_differ_interval"`
}

// FrontierMethod holds one way to decide before the last pass.
type FrontierMethod struct {
	Name string `json:"name"` // one of the names of methods
	// At has the method at some shares of decisions that differ from those of all passes.
	At []FrontierAt `json:"at"`
	// Points go from cautious to bold. The point of all passes is not among them.
	Points []FrontierPoint `json:"points"`
}

// Methods have these names.
const (
	LearnedRule   = "learned"
	ScoreOnlyRule = "score_only"
	FewerPasses   = "fewer_passes"
)

// FrontierAt holds a method at a share of disagreements, interpolated between two of its points.
type FrontierAt struct {
	Disagreement float64 `json:"disagreement"`
	MeanPasses   float64 `json:"mean_passes"`
	Saving       float64 `json:"saving"`
	// Reached reports whether some point has that large a share. If not, the figures are those of
	// the boldest point, and bolder rules would save more.
	Reached bool `json:"reached"`
	// FewerPasses is the share of inputs that are decided otherwise if every input takes only that
	// many passes.
	FewerPasses float64 `json:"fewer_passes"`
}

// FrontierPoint says what one rule does. Shares are means over all orders of the passes. Counts take
// the first order of each input, and their 95% intervals are exact. Where inputs come in groups,
// the intervals count groups.
type FrontierPoint struct {
	MeanPasses float64 `json:"mean_passes"`
	// Saving is S over MeanPasses.
	Saving float64 `json:"saving"`
	// Disagreement is the share of inputs decided otherwise than by all passes.
	Disagreement         float64    `json:"disagreement"`
	Disagreements        int        `json:"disagreements"`
	DisagreementInterval [2]float64 `json:"disagreement_interval"`
	// Released is the share of the inputs deferred by all passes that the rule retains.
	Released         eval.Figure `json:"released"`
	ReleasedInterval *[2]float64 `json:"released_interval"`
	// Critical is nil without labels or without critical classes.
	Critical *FrontierCritical `json:"critical,omitempty"`
}

// FrontierCritical says what becomes of critical inputs.
type FrontierCritical struct {
	// FNR is the share of the retained critical inputs that are predicted not critical.
	FNR         eval.Figure `json:"fnr"`
	Retained    int         `json:"retained"`
	Missed      int         `json:"missed"`
	FNRInterval *[2]float64 `json:"fnr_interval"`
	// Released is the share of the critical inputs deferred by all passes that the rule retains.
	Released eval.Figure `json:"released"`
}

// FrontierRule holds the policy's own rule.
type FrontierRule struct {
	FrontierPoint
	// Certified is the share of disagreements that the rule's certificate bounds, with Confidence.
	Certified  float64 `json:"certified"`
	Confidence float64 `json:"confidence"`
	// Flattered reports whether the rule was learned and certified on this very recording.
	Flattered bool `json:"flattered"`
}

// Method returns the method of a name, or nil.
func (f *Frontier) Method(name string) *FrontierMethod {
	for i := range f.Methods {
		if f.Methods[i].Name == name {
			return &f.Methods[i]
		}
	}
	return nil
}

// Intervals returns of which kind the intervals are.
func (f *Frontier) Intervals() string {
	if f.Source.Groups > 0 {
		return "by group"
	}
	return "exact, by inputs"
}

// MethodWords returns how a sentence names a method.
func MethodWords(name string) string {
	return map[string]string{LearnedRule: "the learned rule", ScoreOnlyRule: "the score alone",
		FewerPasses: "fewer passes for every input"}[name]
}

// FrontierOptions say how to draw a frontier.
type FrontierOptions struct {
	// Ordered passes are the members of an ensemble, which keep their order. It is implied if the
	// policy's own rule says so.
	Ordered bool
	// Groups has a number for each input, the same for inputs that are not independent. The halves
	// consist of whole groups, and intervals count groups. Nil says that all inputs are independent.
	Groups []int
	// Seed draws the halves and the orders.
	Seed uint64
	// Source says where the recording comes from. Posterior is not used.
	Source Source
	// Progress, if not nil, receives the progress of the work.
	Progress Progress
}

// DrawFrontier learns early-stopping rules for a policy on one half of the inputs of a recording,
// at random, and draws on the other what they save and what they cost. Labels may be nil. The
// policy's own rule is drawn too if it is in force for as many passes.
func DrawFrontier(ctx context.Context, r eval.Recording, p *policy.Policy, o FrontierOptions) (*Frontier, error) {
	if err := checkDrawable(r, p); err != nil {
		return nil, err
	}
	f := &Frontier{
		Source: FrontierSource{
			Software: o.Source.Software, Passes: o.Source.Passes, Kind: string(p.Kind), Variance: string(p.Variance), Seed: o.Seed,
			Ordered: o.Ordered || p.EarlyStop() != nil && p.EarlyStopping.Order == policy.MembersOrder,
		},
		Policy: FrontierPolicy{Model: p.Name, Hash: p.Hash, Gate: p.Gate, Scope: p.Scope},
		Notes:  []string{},
	}
	if r.Labels != nil {
		f.Source.Labels = &o.Source.Labels
	}
	if o.Groups != nil {
		if len(o.Groups) != r.Passes.Inputs {
			return nil, fmt.Errorf("%d groups, expected %d, one for each input", len(o.Groups), r.Passes.Inputs)
		}
		f.Source.GroupsFile = &o.Source.Groups
	}
	plot := frontierPlot{Frontier: f, model: p, labelled: r.Labels != nil && len(p.Critical) > 0, progress: o.Progress.of("learning and drawing")}
	recording, narrowed, classes := learnable(r, f.Source.Ordered), r.Passes.Float64 != nil, r.Classes
	recording.Groups = numbered(o.Groups)
	name := eval.Recording{Name: r.Name}
	r = eval.Recording{} // garbage where it had to be copied
	if err := plot.draw(ctx, recording, classes); err != nil {
		return nil, named(name, err)
	}
	f.Notes = append(f.Notes, frontierNotes(f, p, narrowed)...)
	return f, nil
}

// checkDrawable refuses a recording that leaves no pass to save. The number of recorded passes
// takes the place of the one that the policy expects.
func checkDrawable(r eval.Recording, p *policy.Policy) error {
	with := *p
	with.ExpectedPasses = p.FewestPasses + 1
	if why := with.WhyNoEarlyStop(); why != "" {
		return fmt.Errorf("model %s: no input can stop early: %s", p.Name, why)
	}
	if r.Classes != len(p.Classes) {
		return fmt.Errorf("%s has %d classes, but model %s has %d", nameOf(r), r.Classes, p.Name, len(p.Classes))
	}
	if least := fewestToLearn(p, p.Gate, p.ReliabilityThreshold, r.Passes.Passes); r.Passes.Passes <= least {
		return fmt.Errorf("%s has %d passes, expected more than %d, the fewest after which an input may be decided: none could be saved",
			nameOf(r), r.Passes.Passes, least)
	}
	if r.Passes.Passes > policy.MaxEarlyStopPasses {
		return fmt.Errorf("%s has %d passes, expected at most %d, the most of an early-stopping rule", nameOf(r), r.Passes.Passes,
			policy.MaxEarlyStopPasses)
	}
	if r.Labels != nil {
		return r.CheckLabels()
	}
	return nil
}

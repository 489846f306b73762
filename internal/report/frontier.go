package report

import (
	"github.com/ckd-project/ckd/eval"
	"github.com/ckd-project/ckd/policy"
)

// Frontier is what deciding before the last pass saves against what it costs, as
// `ckd evaluate settle --format json` prints it. Shares of nothing are 0, and no list is null.
type Frontier struct {
	Source  FrontierSource   `json:"source"`
	Policy  FrontierPolicy   `json:"policy"`
	Summary FrontierSummary  `json:"summary"`
	Full    FrontierPoint    `json:"full"`
	Methods []FrontierMethod `json:"methods"`
	// Rule is what the policy's own rule does; nil where none is in force.
	Rule *FrontierRule `json:"rule,omitempty"`
	// Notes say what a reader has to know before believing the rest.
	Notes []string `json:"notes"`
}

// FrontierSource says how a frontier was computed.
type FrontierSource struct {
	Software string     `json:"software"`
	Passes   eval.File  `json:"passes"`
	Labels   *eval.File `json:"labels,omitempty"`
	Kind     string     `json:"kind"`
	Variance string     `json:"variance"`
	Seed     uint64     `json:"seed"`
	// Ordered passes are the members of an ensemble, which keep their order.
	Ordered bool `json:"ordered"`
	// LearningOrders is how often each input was followed to learn from, in another order
	// and with thresholds a little lower or higher; Orders is how often to draw.
	LearningOrders int `json:"learning_orders"`
	Orders         int `json:"orders"`
}

// FrontierPolicy is the policy whose decisions are to be the same.
type FrontierPolicy struct {
	Model string       `json:"model"`
	Hash  string       `json:"hash"`
	Gate  policy.Gate  `json:"gate"`
	Scope policy.Scope `json:"scope"`
}

// FrontierSummary is the recording, and what all its passes decide.
type FrontierSummary struct {
	Inputs  int `json:"inputs"`
	Passes  int `json:"passes"` // S
	Classes int `json:"classes"`
	// LearnedOn so many inputs, and DrawnOn so many others, at random.
	LearnedOn int `json:"learned_on"`
	DrawnOn   int `json:"drawn_on"`
	// Deferred of those drawn on, by all passes.
	Deferred int `json:"deferred"`
	// HalvesDiffer is the share of those drawn on that one half of their passes decides
	// otherwise than the other, with its exact 95% interval.
	HalvesDiffer         float64    `json:"halves_differ"`
	HalvesDifferInterval [2]float64 `json:"halves_differ_interval"`
}

// FrontierMethod is a way to decide before the last pass.
type FrontierMethod struct {
	Name string `json:"name"` // one of the names of methods
	// At some shares of decisions that are not those of all passes.
	At []FrontierAt `json:"at"`
	// Points from cautious to bold, without that of all passes.
	Points []FrontierPoint `json:"points"`
}

// The names of methods.
const (
	LearnedRule   = "learned"
	ScoreOnlyRule = "score_only"
	FewerPasses   = "fewer_passes"
)

// FrontierAt is a method at a share of disagreements, between two of its points.
type FrontierAt struct {
	Disagreement float64 `json:"disagreement"`
	MeanPasses   float64 `json:"mean_passes"`
	Saving       float64 `json:"saving"`
	// Reached is whether a point has so large a share. Else the figures are of the boldest,
	// and bolder rules would save more.
	Reached bool `json:"reached"`
	// FewerPasses is the share that as many passes for every input decide otherwise.
	FewerPasses float64 `json:"fewer_passes"`
}

// FrontierPoint is what a rule does. Shares are over all orders of the passes; exact
// 95% intervals and counts are over inputs, in the first order of each alone.
type FrontierPoint struct {
	MeanPasses float64 `json:"mean_passes"`
	// Saving is S over MeanPasses.
	Saving float64 `json:"saving"`
	// Disagreement is the share of inputs decided otherwise than by all passes.
	Disagreement         float64    `json:"disagreement"`
	Disagreements        int        `json:"disagreements"`
	DisagreementInterval [2]float64 `json:"disagreement_interval"`
	// Released is the share of the inputs that all passes defer which is retained.
	Released         float64    `json:"released"`
	ReleasedInterval [2]float64 `json:"released_interval"`
	// Critical is nil without labels, or without critical classes.
	Critical *FrontierCritical `json:"critical,omitempty"`
}

// FrontierCritical is what becomes of critical inputs.
type FrontierCritical struct {
	// FNR is the share of those retained that is missed: predicted not critical.
	FNR         float64    `json:"fnr"`
	Retained    int        `json:"retained"`
	Missed      int        `json:"missed"`
	FNRInterval [2]float64 `json:"fnr_interval"`
	// Released is the share of those that all passes defer which is retained.
	Released float64 `json:"released"`
}

// FrontierRule is the policy's own rule.
type FrontierRule struct {
	FrontierPoint
	// Certified is the share of disagreements that is not exceeded, with so much Confidence.
	Certified  float64 `json:"certified"`
	Confidence float64 `json:"confidence"`
	// Flattered is whether it was learned from and certified on this very recording.
	Flattered bool `json:"flattered"`
}

// Method of a name; nil where there is none.
func (f *Frontier) Method(name string) *FrontierMethod {
	for i := range f.Methods {
		if f.Methods[i].Name == name {
			return &f.Methods[i]
		}
	}
	return nil
}

// MethodWords is how a sentence names a method.
func MethodWords(name string) string {
	return map[string]string{LearnedRule: "the learned rule", ScoreOnlyRule: "the score alone",
		FewerPasses: "fewer passes for every input"}[name]
}

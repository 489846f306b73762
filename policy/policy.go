package policy

import (
	"reflect"

	"github.com/ckd-project/ckd/internal/strictyaml"
)

// The bounds of a policy.
const (
	// MaxFileBytes bounds the size of a file.
	MaxFileBytes = strictyaml.MaxBytes
	// MaxPairs bounds the safe x critical pairs, each of which is memory in every open input.
	MaxPairs = 1_000_000

	maxClasses = 100_000
	maxPasses  = 1_000_000
)

// DefaultReliabilityThreshold is the paper's value.
const DefaultReliabilityThreshold = 0.3

// DefaultTensor names the tensor that has the passes.
const DefaultTensor = "passes"

// defaultTopClasses applies to models that have as many classes.
const defaultTopClasses = 10

// Policy is one model's policy. As Build and Parse return it, every default is filled in, the sets of
// classes are ascending, and it is immutable. A program that makes one for Build gives what a file may
// say: a field that has the zero value was not given. Classes are named in files, and known by their
// positions here. The comments of the fields document the keys of a file.
type Policy struct {
	// Hash is the SHA-256, in hex, of everything that a decision, or the refusal of an input, depends
	// on, and of the lines that its outcomes are tested against. Build and Parse set it.
	Hash string

	// The model's name: what clients call it, a metric label, and part of URLs. Letters, digits, dot,
	// dash and underscore, at most 128, the first a letter or digit. No two models share one.
	Name string `key:"name,required" form:"name"`
	// Your own text for this state of the policy. It goes with every decision and is not part of the
	// hash.
	Version string `key:"version" otherwise:"empty"`

	// The model's classes in the order of its outputs, each letter by letter as written: [no, yes, on]
	// are three texts.
	Classes []string `key:"classes,required" range:"2..100000"`
	// The classes that must not be missed. They may be left out when no score, gate or scope in use
	// needs them.
	Critical []int `key:"critical" form:"class" range:"0..100000" otherwise:"none"`
	// The classes whose confusion with critical ones counts in cbec. No class is both.
	Safe []int `key:"safe" form:"class" range:"0..100000" otherwise:"the classes that are not critical"`

	// What a row is: probabilities that sum to one, logits whose softmax is then computed in float64,
	// or the one row of positive concentrations of an evidential model.
	Kind Kind `key:"kind,spelled" default:"probabilities"`
	// An input that ends with fewer passes is an error. At least 2; with a gate that reads skewness, so
	// many that skewness can exceed the reliability threshold. Dirichlet: 1.
	FewestPasses int `in:"passes" key:"fewest" range:"1..1000000" otherwise:"the fewest that the gate can do with, at least 2"`
	// An input is answered when it has this many passes. Without it, only when its caller says that it
	// is complete. Dirichlet: 1.
	ExpectedPasses int `in:"passes" key:"expected" range:"1..1000000" otherwise:"none"`
	// How far the sum of a row of probabilities may be from 1, and a value outside of 0 to 1, before
	// the row is refused. Values within it are clamped, and rows are never renormalised. Correct
	// rounding alone costs up to 6e-8 in float32, 5e-4 in float16 and 4e-3 in bfloat16; what comes as
	// FP16 or BF16 by the Open Inference Protocol is allowed that rounding on top.
	SumTolerance float64 `key:"sum_tolerance" range:"1e-7..0.1" default:"0.001"`
	// The name of the tensor that has the passes, in requests by the Open Inference Protocol: the
	// output of your classifier, where ckd gets its answer as it is. It is not part of the hash.
	Tensor string `key:"tensor" form:"tensor" default:"passes"`
	// What sums of squares are divided by: sample by passes - 1, population by passes, as the authors'
	// own code does. No meaning for dirichlet.
	Variance Variance `key:"variance,spelled" default:"sample"`
	// The skewness ratio above which C_k of a class is not trusted. It depends on the task.
	ReliabilityThreshold float64 `key:"reliability_threshold,spelled" range:">0" default:"0.3"`
	// When the fallback score decides: when any critical class is above the reliability threshold,
	// always, or never.
	Gate Gate `key:"gate" otherwise:"any-critical; always for dirichlet"`
	// Which inputs may be deferred: all, or only those that are not predicted critical already
	// (predicted-safe).
	Scope Scope `key:"scope,spelled" default:"all"`
	// The score that decides while C_k is trusted. It has a threshold if that is above 0; HasThreshold
	// is for one of 0.
	Primary Rule `key:"primary"`
	// The score that decides where the gate says so.
	Fallback Rule `key:"fallback"`
	// Pairs of a safe and a critical class that count more or less than others in cbec.
	PairWeights []PairWeight `key:"pair_weights" otherwise:"every pair weighs 1"`
	// Which pairs of classes are reported; all only up to 32 classes. No score depends on it.
	Pairs Pairs `key:"pairs" default:"safe-critical"`
	// How many of the most probable classes the truncated sum of C_k takes. No score depends on it.
	TopClasses int `key:"top_classes" range:"1..100000" otherwise:"10, or all classes where there are fewer"`
	// What becomes of an input whose passes hardly differ, or whose softmax was taken twice: its
	// uncertainty is absent, not zero. score treats it like any other.
	Degenerate Handling `key:"degenerate,spelled" default:"defer"`
	// The same where all passes are one row, one-hot, as a confident model gives them in float32.
	Saturated Handling `key:"saturated,spelled" default:"defer"`
	// Which inputs are deferred as unfamiliar, in every scope and whatever class is predicted.
	// p_critical and risk are blind to inputs unlike anything learned. A guard finds some of these, not
	// all.
	Guard *Guard `key:"guard" otherwise:"none"`
	// Which of the retained inputs a person looks at, so that outcomes can show whether the policy
	// keeps its promise. It is not part of the hash.
	Audit *Audit `key:"audit" otherwise:"none"`
	// What the decision log keeps of the decisions, where the daemon has one. It is not part of the hash.
	Log *Log `key:"log" otherwise:"what is to be reviewed, without ids"`
	// Which alarm of its model this policy answers. It is not part of the hash.
	Answers *Answers `key:"answers" otherwise:"none"`

	// What ckd calibrate measured, nil where it did not.
	Calibration *Calibration `in:"calibrated" key:",inline"`
	// How probable it is that an input is truly critical: it is reported for every input, and is what
	// score risk compares.
	Risk *Risk `in:"calibrated" key:"risk"`
	// When an input is decided before its last pass, for clients that accept it.
	EarlyStopping *EarlyStopping `in:"calibrated" key:"early_stopping"`
}

// Rule holds a score and the threshold up to which an input is retained.
type Rule struct {
	// The score. By default the primary one is c_crit_max, the fallback cbec.
	Score Score `key:"score,spelled" otherwise:"c_crit_max or cbec"`
	// The input is retained exactly when this score is at or under it. A policy gives one for each score
	// that its gate can reach, or none at all and observes.
	Threshold float64 `key:"threshold" range:">=0" if:"HasThreshold" otherwise:"none"`
	// HasThreshold says that Threshold means something.
	HasThreshold bool
}

// PairWeight gives the weight of a safe x critical pair in cbec.
type PairWeight struct {
	// The safe class of the pair.
	Safe int `key:"safe,required" form:"class"`
	// The critical class of the pair.
	Critical int `key:"critical,required" form:"class"`
	// How much the pair counts in cbec.
	Weight float64 `key:"weight,required" range:">=0"`
}

// Draft returns a copy to be changed, of which Build makes a policy. The two share no memory.
func (p *Policy) Draft() Policy {
	d := deepCopy(reflect.ValueOf(*p)).Interface().(Policy)
	if d.Safe == nil {
		d.Safe = []int{}
	}
	return d
}

// Observes reports whether the policy has no thresholds. It then decides nothing, and every input
// is answered with action observe.
func (p *Policy) Observes() bool {
	return !p.Primary.HasThreshold && !p.Fallback.HasThreshold
}

// Score names a deferral score: a number, higher = defer first.
type Score string

// The paper's ten scores, and p_critical.
const (
	Entropy   Score = "entropy"
	MI        Score = "mi"
	MaxProb   Score = "maxprob"
	EUVar     Score = "eu_var"
	VarCrit   Score = "var_crit"
	EUVarCrit Score = "eu_var_crit"
	OvAMI     Score = "ova_mi"
	CCritSum  Score = "c_crit_sum"
	CCritMax  Score = "c_crit_max"
	CBEC      Score = "cbec"
	PCritical Score = "p_critical"
)

// Scores lists the scores in the order in which they are reported.
func Scores() []Score {
	return []Score{Entropy, MI, MaxProb, EUVar, VarCrit, EUVarCrit, OvAMI, CCritSum, CCritMax, CBEC, PCritical}
}

// needsCritical reports whether the score is undefined without a critical set.
func (s Score) needsCritical() bool {
	switch s {
	case VarCrit, EUVarCrit, OvAMI, CCritSum, CCritMax, CBEC, PCritical, RiskScore:
		return true
	}
	return false
}

// needsSafe reports whether the score is undefined without a safe set.
func (s Score) needsSafe() bool { return s == CBEC }

// Kind says what the rows are.
type Kind string

// The kinds of rows.
const (
	Probabilities Kind = "probabilities" // in [0,1], summing to one
	Logits        Kind = "logits"        // unnormalised; the softmax is ours
	Dirichlet     Kind = "dirichlet"     // one row of positive concentrations
)

// Variance says what sums of squares are divided by.
type Variance string

// The divisors.
const (
	Sample     Variance = "sample"     // S-1
	Population Variance = "population" // S
)

// Gate says when the fallback score decides in place of the primary one.
type Gate string

// The gates.
const (
	AnyCritical Gate = "any-critical" // when any critical class is unreliable
	Always      Gate = "always"
	Never       Gate = "never"
)

// ReadsSkewness reports whether the gate rests on the skewness ratio.
func (g Gate) ReadsSkewness() bool { return g == AnyCritical }

// ReachesPrimary reports whether the primary score can ever decide.
func (g Gate) ReachesPrimary() bool { return g != Always }

// ReachesFallback reports whether the fallback score can ever decide.
func (g Gate) ReachesFallback() bool { return g != Never }

// Scope says which inputs may be deferred.
type Scope string

// The scopes.
const (
	AllInputs     Scope = "all"
	PredictedSafe Scope = "predicted-safe" // never one predicted critical
)

// Pairs says which pair terms are computed.
type Pairs string

// The choices of pairs.
const (
	SafeCriticalPairs Pairs = "safe-critical"
	AllPairs          Pairs = "all"
)

// maxClassesForAllPairs bounds Pairs "all": beyond it the number of pairs, and
// of their time series, is no longer small.
const maxClassesForAllPairs = 32

// Handling says what becomes of an input whose passes say nothing.
type Handling string

// The ways to handle them.
const (
	HandleDefer   Handling = "defer"
	HandleRetain  Handling = "retain"
	HandleByScore Handling = "score" // as any other input
)

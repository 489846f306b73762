package policy

// Policy is one model's policy, as Build and Parse return it: every default filled in, every class
// name resolved to its position. It is immutable.
type Policy struct {
	// Name names the model.
	Name string
	// Version is the owner's own text for this state of the policy.
	Version string
	// Hash is the SHA-256, in hex, of everything that a decision, or the refusal of an input,
	// depends on.
	Hash string

	// Classes has the names. Everything else refers to a class by its position here.
	Classes []string
	// Critical and Safe are disjoint sets of classes, each ascending.
	Critical, Safe []int

	// Kind says what rows are accepted.
	Kind Kind
	// FewestPasses is the least number of passes that an input may have.
	FewestPasses int
	// ExpectedPasses finishes an input; 0 if only a final block does.
	ExpectedPasses int
	// SumTolerance is how far the sum of a row of probabilities may be from 1.
	SumTolerance float64
	// Tensor names the tensor that has the passes, in requests by the Open Inference Protocol. The
	// hash does not cover it.
	Tensor string
	// Variance says what sums of squares are divided by.
	Variance Variance
	// TopClasses is the number of most probable classes in the truncated sum of C_k.
	TopClasses int

	// ReliabilityThreshold is the skewness above which C_k is not trusted.
	ReliabilityThreshold float64
	// Gate says when the fallback score decides.
	Gate Gate
	// Scope says which inputs may be deferred at all.
	Scope Scope
	// Primary and Fallback are the two scores, with their thresholds.
	Primary, Fallback Rule
	// PairWeights has the weights in cbec that differ from 1.
	PairWeights []PairWeight
	// Pairs says which pair terms are computed.
	Pairs Pairs
	// Degenerate and Saturated say what becomes of inputs whose passes say nothing.
	Degenerate, Saturated Handling

	// Risk gives the probability that an input is truly critical; nil if that is not known.
	Risk *Risk
	// Guard defers inputs unlike those of the calibration; nil for none.
	Guard *Guard

	// Calibration says where the thresholds come from; nil if unknown. It decides nothing, and the
	// hash does not cover it.
	Calibration *Calibration

	// Audit says which retained inputs are audited; nil for none. The hash does not cover it.
	Audit *Audit

	// EarlyStopping says when inputs are answered before their last pass; nil for never. Its rule
	// counts only while it is in force: see EarlyStop.
	EarlyStopping *EarlyStopping
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

// PairWeight holds the weight of one safe x critical pair in cbec.
type PairWeight struct {
	Safe, Critical int
	Weight         float64
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

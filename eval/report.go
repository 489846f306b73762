package eval

import (
	"encoding/json"

	"github.com/ckd-project/ckd/passcheck"
	"github.com/ckd-project/ckd/policy"
)

// Report holds everything that a labelled recording says. `ckd evaluate --format json` prints it.
// A Figure over nothing, and its interval, is null. Slices over classes are in the order of Classes.
// No list is null: tables of class by class, and Signatures, are empty beyond maxMatrixClasses.
type Report struct {
	// Signs say in which ways the recording is not what it seems, the labels included. It comes first,
	// since nothing else holds where they are right.
	Signs   []passcheck.Sign `json:"signs"`
	Source  Source           `json:"source"`
	Summary Summary          `json:"summary"`
	// Gain says whether the recording supports a policy: left out without critical classes.
	Gain    *RuleGain `json:"gain,omitempty"`
	Classes []Class   `json:"classes"`
	// Matrix counts inputs as [true][predicted].
	Matrix [][]int `json:"matrix"`

	Policies []Row `json:"policies"`
	// Pairwise compares every two rankings of a scope by their AUSC.
	Pairwise []Pairwise `json:"pairwise"`
	Curves   Curves     `json:"curves"`
	// Policy has the figures of the given policy at its own thresholds.
	Policy *OperatingPoint `json:"policy,omitempty"`

	Residual  []ResidualBin `json:"residual"`
	Skewness  []Skewness    `json:"skewness"`
	PaperRule *PaperRule    `json:"paper_rule,omitempty"`

	Profiles   Profiles    `json:"profiles"`
	Signatures []Signature `json:"signatures"`
	Confusion  *Confusion  `json:"confusion,omitempty"`
	// Dominant has, for each class, the share of inputs in which it has the largest C_k. Ties, and
	// inputs without any uncertainty, count for the lowest class.
	Dominant []float64 `json:"dominant"`
	// Notes say what a reader must know before relying on the report: a class without inputs,
	// constant scores, few critical inputs and the like.
	Notes []string `json:"notes"`
}

// Source says how a report was computed.
type Source struct {
	Software string `json:"software"`
	Passes   File   `json:"passes"`
	Labels   File   `json:"labels"`
	// Groups counts the groups of inputs that are not independent, by which every interval of a share is
	// then computed (package clustered) rather than exactly (Clopper-Pearson): read from GroupsFile, or copies of
	// each other where that is nil. 0 where every input counts as independent.
	Groups      int     `json:"groups,omitempty"`
	GroupsFile  *File   `json:"groups_file,omitempty"`
	Kind        string  `json:"kind"`
	Variance    string  `json:"variance"`
	Coverage    float64 `json:"coverage"`
	Bootstrap   int     `json:"bootstrap"`
	Seed        uint64  `json:"seed"`
	Reliability float64 `json:"reliability_threshold"`
	// CriticalCalls says what happens to inputs called critical that are retained; empty where the
	// site has not said.
	CriticalCalls CriticalCalls `json:"critical_calls"`
	// ReviewsPer1000 is the budget of reviews that Coverage was computed from; 0 where none was given.
	ReviewsPer1000 float64 `json:"reviews_per_1000,omitempty"`
}

// File names a file and its content.
type File struct {
	Name   string `json:"name"`
	SHA256 string `json:"sha256"`
}

// Summary of a recording.
type Summary struct {
	Inputs   int `json:"inputs"`
	Passes   int `json:"passes"`
	Classes  int `json:"classes"`
	Critical int `json:"critical"` // inputs whose true class is critical
	Missed   int `json:"missed"`   // of Critical, those predicted not critical

	Accuracy float64 `json:"accuracy"`
	MacroF1  Figure  `json:"macro_f1"`
	QWK      Figure  `json:"qwk"` // quadratic weighted kappa, classes taken as grades in their order
	// WithoutDeferral has the figures of a model that decides every input alone.
	WithoutDeferral At `json:"without_deferral"`

	// Pearson is the correlation of sum_c with MI, and Spearman that of their ranks; Inflation is the ratio of their
	// means. Factor is the part of the ratio that comes from the divisor of variances: S/(S-1) with
	// the sample variance, 1 with the population variance.
	Pearson   Figure  `json:"pearson"`
	Spearman  Figure  `json:"spearman"`
	Inflation Figure  `json:"inflation"`
	Factor    float64 `json:"inflation_factor"`
	// ResidualSkewness is the Spearman correlation of |sum_c - MI| with the largest skewness of any
	// class.
	ResidualSkewness Figure `json:"residual_skewness"`

	// FallbackShare is the share of inputs with a critical class above the reliability threshold,
	// which gate any-critical hands to the fallback. AllReliable is the share of inputs with no
	// class above it.
	FallbackShare Figure  `json:"fallback_share"`
	AllReliable   float64 `json:"all_reliable"`
	Degenerate    int     `json:"degenerate"`
	Saturated     int     `json:"saturated"`
}

// Class is a row of the classification report.
type Class struct {
	Name      string `json:"name"`
	Critical  bool   `json:"critical"`
	Safe      bool   `json:"safe"`
	Support   int    `json:"support"`   // inputs of the class
	Predicted int    `json:"predicted"` // inputs predicted so
	Precision Figure `json:"precision"`
	Recall    Figure `json:"recall"`
	F1        Figure `json:"f1"`
	// Uncertainty is the class uncertainty of Baltaci et al.: the mean predictive entropy of the
	// inputs of the class, in nats. UncertaintyShare divides it by its sum over classes.
	Uncertainty      Figure `json:"uncertainty"`
	UncertaintyShare Figure `json:"uncertainty_share"`
}

// Row holds the figures of one ranking, at the coverage asked for and over all coverages.
type Row struct {
	Name  string       `json:"name"`
	Scope policy.Scope `json:"scope"`
	// SameAs names an earlier row of the scope that orders the inputs alike up to rounding, so that
	// both are one ranking. Tables show such rows once; wins and pairs leave this row out.
	SameAs string `json:"same_as,omitempty"`
	At

	// AUSC is taken over the coverages from AUSCFrom on, where every row of the scope retains
	// critical inputs. Rows of scores that the paper lacks do not move AUSCFrom.
	AUSC     AUSC   `json:"ausc"`
	AUSCFrom Figure `json:"ausc_from"`
	// AUSCPaper is taken over all 200 coverages, with a risk of 0 where no critical input is
	// retained. It equals AUSC where critical inputs are retained everywhere.
	AUSCPaper AUSC `json:"ausc_paper"`
	// AURC is the area of the error rate, and AUGRC the generalised one, in expectation over the order within ties.
	AURC  float64 `json:"aurc"`
	AUGRC float64 `json:"augrc"`
	// JointArea is the area under the share of all critical inputs that are retained and missed.
	// Unlike that of AUSC.CriticalFNR, its denominator does not shrink with the coverage.
	JointArea Figure `json:"joint_area"`

	Bootstrap      Bootstrap `json:"bootstrap"`       // the AUSC of critical FNR over resamples
	BootstrapPaper Interval  `json:"bootstrap_paper"` // the same over all 200 coverages
	// BootstrapAt resamples the figures at the coverage.
	BootstrapAt BootstrapAt `json:"bootstrap_at_coverage"`
}

// At holds the figures for the inputs retained at one coverage. Where the coverage cuts through a tie
// of a ranking, counts are expected over a random order of the tied inputs, and need not be whole;
// shares are of these counts.
type At struct {
	Coverage float64 `json:"coverage"` // retained/inputs
	Retained int     `json:"retained"`

	// CriticalMissed counts the critical inputs that are retained and predicted not critical.
	// CriticalMissRate divides them by all critical inputs, with its 95% interval;
	// CriticalFNR by those retained (app-cfnr).
	CriticalMissed           float64     `json:"critical_missed"`
	CriticalMissRate         Figure      `json:"critical_miss_rate"`
	CriticalMissRateInterval *[2]float64 `json:"critical_miss_rate_interval"`
	// CalledCritical counts the retained inputs that are predicted critical, FalseCalls the
	// calls among them that are wrong.
	CalledCritical float64 `json:"called_critical"`
	FalseCalls     float64 `json:"false_calls"`
	Per1000        Per1000 `json:"per_1000"`
	// CriticalClasses has an entry for each critical class. WorstClass names the one with the
	// highest critical miss rate of those with FewOfClass inputs or more; empty where there is none.
	CriticalClasses []ClassMisses `json:"critical_classes"`
	WorstClass      string        `json:"worst_class"`

	CriticalFNR      Figure  `json:"critical_fnr"`
	CriticalError    Figure  `json:"critical_error"` // share of the retained critical inputs predicted wrong (app-cerr)
	Accuracy         Figure  `json:"accuracy"`       // share of the retained inputs predicted right (app-acc)
	MacroF1          Figure  `json:"macro_f1"`       // mean F1 over classes
	CriticalRetained float64 `json:"critical_retained"`
	// CriticalDeferredShare is the share of all critical inputs that are deferred.
	CriticalDeferredShare Figure `json:"critical_deferred_share"`
}

// CriticalCalls says what happens to an input that is predicted critical and retained.
type CriticalCalls string

// What happens to critical calls.
const (
	ActedOn  CriticalCalls = "acted-on" // without a look
	Reviewed CriticalCalls = "reviewed" // by people, whatever the policy says
)

// Per1000 holds counts for each 1,000 inputs.
type Per1000 struct {
	Deferred float64 `json:"deferred"`
	// Reviews are the inputs that people look at: the deferred ones and, where critical calls are
	// reviewed, the retained ones that are called critical.
	Reviews        float64 `json:"reviews"`
	CalledCritical float64 `json:"called_critical"`
	FalseCalls     float64 `json:"false_calls"`
	Missed         float64 `json:"missed"`
}

// FewOfClass is the number of inputs of a class under which it has counts alone.
const FewOfClass = 20

// ClassMisses counts the missed inputs of one critical class: retained, and predicted not critical.
type ClassMisses struct {
	Class  string  `json:"class"`
	Inputs int     `json:"inputs"`
	Missed float64 `json:"missed"`
	// CriticalMissRate is Missed/Inputs with its 95% interval. Both are null for a
	// class of fewer than FewOfClass inputs.
	CriticalMissRate         Figure      `json:"critical_miss_rate"`
	CriticalMissRateInterval *[2]float64 `json:"critical_miss_rate_interval"`
}

// AUSC holds areas under a risk over coverage (app-ausc), by trapezoids over 200 coverages from
// 0.05 to 1.
type AUSC struct {
	CriticalFNR   Figure `json:"critical_fnr"`
	CriticalError Figure `json:"critical_error"`
	ErrorRate     Figure `json:"error_rate"`
}

// Interval has a figure over resamples: its mean, standard deviation and 95% percentile interval, of
// the resamples in which it is defined. All are null where there are none.
type Interval struct {
	Mean Figure `json:"mean"`
	SD   Figure `json:"sd"`
	Low  Figure `json:"low"`
	High Figure `json:"high"`
}

// Bootstrap describes the AUSC of critical FNR over resamples of the inputs, or of the groups.
type Bootstrap struct {
	Interval
	// WinShare is the share of resamples with the lowest AUSC of the paper's scores; several at once share the win. A ranking that is none of them wins where
	// it is lower than all. Resamples without any AUSC do not count. Null without critical inputs.
	WinShare Figure `json:"win_share"`
	// Samples has the AUSC of each resample, over the coverages where every row of the scope
	// retains critical inputs in that resample.
	Samples []Figure `json:"-"`
}

// BootstrapAt describes how the figures at the requested coverage vary over resamples.
type BootstrapAt struct {
	CriticalFNR   Interval `json:"critical_fnr"`
	CriticalError Interval `json:"critical_error"`
	Accuracy      Interval `json:"accuracy"`
}

// Pairwise is the share of resamples in which the row's AUSC of critical FNR is lower than the
// column's, of those in which both are defined. There are none without critical inputs.
type Pairwise struct {
	Row    string       `json:"row"`
	Column string       `json:"column"`
	Scope  policy.Scope `json:"scope"`
	P      Figure       `json:"p"`
}

// Curves holds the counts behind every figure, at each coverage. A risk divides two of them:
// critical FNR is CriticalMissed/CriticalRetained, and the joint curve divides both by
// Summary.Critical. Within ties, counts are expected values, as in At.
type Curves struct {
	Coverage []float64 `json:"coverage"` // asked for
	Retained []int     `json:"retained"`
	Rows     []Curve   `json:"rows"`
}

// Curve holds the counts of one ranking among the retained inputs.
type Curve struct {
	Name             string       `json:"name"`
	Scope            policy.Scope `json:"scope"`
	CriticalRetained []float64    `json:"critical_retained"`
	CriticalMissed   []float64    `json:"critical_missed"`
	Wrong            []float64    `json:"wrong"`
	CalledCritical   []float64    `json:"called_critical"`
}

// OperatingPoint holds the figures of a policy at its own thresholds.
type OperatingPoint struct {
	Model    string       `json:"model"`
	Hash     string       `json:"hash"`
	Scope    policy.Scope `json:"scope"`
	Observes bool         `json:"observes"` // no thresholds: nothing is deferred
	At
	// CriticalFNRInterval is the 95% interval of CriticalFNR.
	CriticalFNRInterval *[2]float64 `json:"critical_fnr_interval"`
	// ByFallback is the share of inputs that the gate hands to the fallback score, including inputs
	// that scope or identical passes then decide.
	ByFallback float64 `json:"by_fallback"`
	// Differs says what speaks against this recording as evidence on a policy that was calibrated:
	// see CertificateCheck.Differs.
	Differs []string `json:"differs"`
	// Certificate says what this recording shows of the certificate in the policy.
	Certificate *CertificateCheck `json:"certificate,omitempty"`
}

// CertificateCheck holds a policy's certificate against another recording. Every input counts as
// independent of all others, unless Source.Groups says otherwise.
type CertificateCheck struct {
	Kind string `json:"kind"`
	// Confidence of the certificate.
	Confidence float64 `json:"confidence"`
	// Groups is the number of groups that the certificate rests on, 0 if it counts every input as
	// independent.
	Groups int `json:"groups,omitempty"`
	// BoundCheck judges the first bound, Further judges the others, each on its own.
	BoundCheck
	Further []BoundCheck `json:"further,omitempty"`
	// Differs lists differences from the policy or its calibration: another kind of rows, other
	// critical classes, another number of passes, or the very passes that it was calibrated on, by
	// their SHA-256. Nothing else is compared. Where there are any, no verdict is evidence.
	Differs []string `json:"differs"`
}

// BoundCheck says what a recording shows of one share that a certificate bounds.
type BoundCheck struct {
	Bounds policy.Figure `json:"bounds"`
	// Class is the critical class whose inputs are counted; empty for all critical classes.
	Class  string  `json:"class,omitempty"`
	Target float64 `json:"target"`
	// Cases counts the inputs of which the share is: critical inputs, for critical FNR the retained
	// ones. Misses counts the cases that are retained and called safe.
	Cases  int `json:"cases"`
	Misses int `json:"misses"`
	// Observed is Misses/Cases.
	Observed Figure `json:"observed"`
	// Verdict is empty, in JSON null, without any case.
	Verdict Verdict `json:"verdict"`
	// PValue is the chance of as many misses or more if the true share were the target, 1 without any
	// case. Small values speak against the bound.
	PValue float64 `json:"p_value"`
	// PShown is the chance of as few misses or fewer if the true share were the target, 1 without any
	// case. Small values speak for the bound.
	PShown float64 `json:"p_shown"`
	// PowerAtDouble is the chance of the verdict Contradicted, among as many cases, if the true share
	// were twice the target. It is undefined without any case, for targets of 0.5 and above, and with
	// groups, as it depends on how the inputs of a group hang together.
	PowerAtDouble Figure `json:"power_at_double"`
}

// Verdict says what a recording shows of a bound.
type Verdict string

// The verdicts.
const (
	// Shown: the exact one-sided test shows, at the confidence of the certificate, that the share is
	// at most the target.
	Shown Verdict = "shown"
	// NotContradicted: neither of the others. How much that says depends on PowerAtDouble.
	NotContradicted Verdict = "not_contradicted"
	// Contradicted: PValue is under 0.05. A higher share than the target alone does not contradict a
	// bound: by chance, a share just under the target is often exceeded.
	Contradicted Verdict = "contradicted"
)

// MarshalJSON returns the verdict, or null where there is none.
func (v Verdict) MarshalJSON() ([]byte, error) {
	if v == "" {
		return []byte("null"), nil
	}
	return json.Marshal(string(v))
}

// ResidualBin holds sum_c - MI over the inputs whose largest skewness is in (Above, UpTo]. The
// first bin includes 0, and the last has no end.
type ResidualBin struct {
	Above    float64  `json:"above"`
	UpTo     *float64 `json:"up_to"`
	N        int      `json:"n"`
	Mean     Figure   `json:"mean"`     // nats
	Relative Figure   `json:"relative"` // mean over mean MI of the bin
}

// SkewnessOf describes a distribution of skewness. Reliable is the share of inputs under each
// threshold: "0.1", "0.2", "0.3" and "0.5".
type SkewnessOf struct {
	Median   Figure            `json:"median"`
	Mean     Figure            `json:"mean"`
	P90      Figure            `json:"p90"`
	Reliable map[string]Figure `json:"reliable"`
}

// Skewness describes one class over all inputs, and over those of each true class (empty beyond
// maxMatrixClasses).
type Skewness struct {
	Class string `json:"class"`
	SkewnessOf
	ByTrue []SkewnessByTrue `json:"by_true"`
}

// SkewnessByTrue describes the skewness of a class over the inputs of a true class.
type SkewnessByTrue struct {
	True string `json:"true"`
	N    int    `json:"n"`
	SkewnessOf
}

// PaperRule is the paper's choice of one score for a recording: cbec where
// MedianCriticalSkewness is above the reliability threshold, else c_crit_max.
// MedianCriticalSkewness is the largest, over the critical classes, of the median skewness over all
// inputs. Costs compare the chosen score with the best one of the paper's in scope all; they are 0
// where the rule chose the best, and null where the figure is that of nothing.
type PaperRule struct {
	MedianCriticalSkewness float64 `json:"median_critical_skewness"`
	Score                  string  `json:"score"`
	BestAUSC               string  `json:"best_ausc"`
	CostAUSC               Figure  `json:"cost_ausc"`
	BestCriticalFNR        string  `json:"best_critical_fnr"` // at the coverage
	CostCriticalFNR        Figure  `json:"cost_critical_fnr"`
}

// Profiles holds the mean C_k as [true][k]: raw, in nats, and normalised by the sum of C_k of the
// input (app-profile), with 0 where that sum is 0. Both are empty beyond maxMatrixClasses, and null
// for a class without inputs. N counts the inputs of each true class.
type Profiles struct {
	N          []int      `json:"n"`
	Raw        [][]Figure `json:"raw"`
	Normalised [][]Figure `json:"normalised"`
}

// Signature holds the mean C_k and MI, in nats, of the inputs of one true and one predicted class
// (app-sig). Pairs without inputs are left out.
type Signature struct {
	True      string    `json:"true"`
	Predicted string    `json:"predicted"`
	N         int       `json:"n"`
	MI        float64   `json:"mi"`
	C         []float64 `json:"c"`
	Dominant  string    `json:"dominant"` // class of the largest mean C_k; ties go to the first
}

// Confusion is the epistemic confusion matrix (app-eij), in nats: symmetric, with zero diagonal.
// The block means are over pairs of two different classes: one safe and one critical, two safe, or
// two critical. That of a block without pairs is null.
type Confusion struct {
	Matrix         [][]float64 `json:"matrix"`
	CrossBoundary  Figure      `json:"cross_boundary"`
	WithinSafe     Figure      `json:"within_safe"`
	WithinCritical Figure      `json:"within_critical"`
	// CrossToSafe is cross_boundary/within_safe, and CrossToCritical likewise; null where the divisor
	// is 0.
	CrossToSafe     Figure `json:"cross_to_safe"`
	CrossToCritical Figure `json:"cross_to_critical"`
}

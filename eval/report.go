package eval

import "github.com/ckd-project/ckd/policy"

// Report holds everything that a labelled recording says. `ckd evaluate --format json` prints it.
// Means and shares over nothing are 0, with the count beside them. Slices over classes are in the
// order of Classes. No list is null: tables of class by class, and Signatures, are empty beyond
// MaxMatrixClasses.
type Report struct {
	Source  Source  `json:"source"`
	Summary Summary `json:"summary"`
	Classes []Class `json:"classes"`
	// Matrix counts inputs as [true][predicted].
	Matrix [][]int `json:"matrix"`

	Policies []Row      `json:"policies"`
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
	Software    string  `json:"software"`
	Passes      File    `json:"passes"`
	Labels      File    `json:"labels"`
	Kind        string  `json:"kind"`
	Variance    string  `json:"variance"`
	Coverage    float64 `json:"coverage"`
	Bootstrap   int     `json:"bootstrap"`
	Seed        uint64  `json:"seed"`
	Reliability float64 `json:"reliability_threshold"`
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

	Accuracy    float64 `json:"accuracy"`
	MacroF1     float64 `json:"macro_f1"`
	QWK         float64 `json:"qwk"` // quadratic weighted kappa, classes taken as grades in their order
	CriticalFNR float64 `json:"critical_fnr"`

	// Pearson and Spearman correlate sum_c with MI over the inputs; Inflation is the ratio of their
	// means. Factor is the part of the ratio that comes from the divisor of variances: S/(S-1) with
	// the sample variance, 1 with the population variance.
	Pearson   float64 `json:"pearson"`
	Spearman  float64 `json:"spearman"`
	Inflation float64 `json:"inflation"`
	Factor    float64 `json:"inflation_factor"`
	// ResidualSkewness is the Spearman correlation of |sum_c - MI| with the largest skewness of any
	// class.
	ResidualSkewness float64 `json:"residual_skewness"`

	// FallbackShare is the share of inputs with a critical class above the reliability threshold,
	// which gate any-critical hands to the fallback. AllReliable is the share of inputs with no
	// class above it.
	FallbackShare float64 `json:"fallback_share"`
	AllReliable   float64 `json:"all_reliable"`
	Degenerate    int     `json:"degenerate"`
	Saturated     int     `json:"saturated"`
}

// Class is a row of the classification report.
type Class struct {
	Name      string  `json:"name"`
	Critical  bool    `json:"critical"`
	Safe      bool    `json:"safe"`
	Support   int     `json:"support"`   // inputs of the class
	Predicted int     `json:"predicted"` // inputs predicted so
	Precision float64 `json:"precision"`
	Recall    float64 `json:"recall"`
	F1        float64 `json:"f1"`
	// Uncertainty is the class uncertainty of Baltaci et al.: the mean predictive entropy of the
	// inputs of the class, in nats. UncertaintyShare divides it by its sum over classes.
	Uncertainty      float64 `json:"uncertainty"`
	UncertaintyShare float64 `json:"uncertainty_share"`
}

// Row holds the figures of one ranking, at the coverage asked for and over all coverages.
type Row struct {
	Name  string       `json:"name"`
	Scope policy.Scope `json:"scope"`
	At

	AUSC AUSC `json:"ausc"`
	// AURC and AUGRC are areas of the error rate, in expectation over the order within ties.
	AURC  float64 `json:"aurc"`
	AUGRC float64 `json:"augrc"`
	// JointArea is the area under the share of all critical inputs that are retained and missed.
	// Unlike that of AUSC.CriticalFNR, its denominator does not shrink with the coverage.
	JointArea float64 `json:"joint_area"`

	Bootstrap Bootstrap `json:"bootstrap"` // of AUSC.CriticalFNR
	// BootstrapAt resamples the figures at the coverage.
	BootstrapAt BootstrapAt `json:"bootstrap_at_coverage"`
}

// At holds the figures for the inputs retained at one coverage (app-cfnr, app-cerr, app-acc).
type At struct {
	Coverage float64 `json:"coverage"` // retained/inputs
	Retained int     `json:"retained"`

	CriticalFNR      float64 `json:"critical_fnr"`
	CriticalError    float64 `json:"critical_error"`
	Accuracy         float64 `json:"accuracy"`
	MacroF1          float64 `json:"macro_f1"`
	CriticalRetained int     `json:"critical_retained"`
	CriticalMissed   int     `json:"critical_missed"`
	// CriticalDeferredShare is the share of all critical inputs that are deferred.
	CriticalDeferredShare float64 `json:"critical_deferred_share"`
}

// AUSC holds areas under a risk over coverage (app-ausc), by trapezoids over 200 coverages from
// 0.05 to 1.
type AUSC struct {
	CriticalFNR   float64 `json:"critical_fnr"`
	CriticalError float64 `json:"critical_error"`
	ErrorRate     float64 `json:"error_rate"`
}

// Interval describes a figure over resamples by its mean, its standard deviation and its 95%
// percentile interval.
type Interval struct {
	Mean float64 `json:"mean"`
	SD   float64 `json:"sd"`
	Low  float64 `json:"low"`
	High float64 `json:"high"`
}

// Bootstrap describes the AUSC of critical FNR over resamples of the inputs. Within ties, inputs
// are in the order of the draw and not of the file, so that many ties set the mean apart from the
// AUSC.
type Bootstrap struct {
	Interval
	// WinShare is the share of resamples in which the ranking has the lowest AUSC of the scores of
	// its scope; several at once share the win. A ranking that is no score wins where it is lower
	// than every score. 0 without critical inputs.
	WinShare float64 `json:"win_share"`
	// Samples has the AUSC of each resample.
	Samples []float64 `json:"-"`
}

// BootstrapAt describes how the figures at the requested coverage vary over resamples.
type BootstrapAt struct {
	CriticalFNR   Interval `json:"critical_fnr"`
	CriticalError Interval `json:"critical_error"`
	Accuracy      Interval `json:"accuracy"`
}

// Pairwise is the share of resamples in which the row's AUSC of critical FNR is lower than the
// column's. There are none without critical inputs.
type Pairwise struct {
	Row    string       `json:"row"`
	Column string       `json:"column"`
	Scope  policy.Scope `json:"scope"`
	P      float64      `json:"p"`
}

// Curves holds the counts behind every figure, at each coverage. A risk divides two of them:
// critical FNR is CriticalMissed/CriticalRetained, and the joint curve divides both by
// Summary.Critical.
type Curves struct {
	Coverage []float64 `json:"coverage"` // asked for
	Retained []int     `json:"retained"`
	Rows     []Curve   `json:"rows"`
}

// Curve holds the counts of one ranking among the retained inputs.
type Curve struct {
	Name             string       `json:"name"`
	Scope            policy.Scope `json:"scope"`
	CriticalRetained []int        `json:"critical_retained"`
	CriticalMissed   []int        `json:"critical_missed"`
	CriticalWrong    []int        `json:"critical_wrong"` // predicted as any other class
	Wrong            []int        `json:"wrong"`
	// Low and High are the 95% band of critical FNR over the first 1000 resamples. They are empty
	// unless Options.Bands asks for them.
	Low  []float64 `json:"-"`
	High []float64 `json:"-"`
}

// OperatingPoint holds the figures of a policy at its own thresholds.
type OperatingPoint struct {
	Model    string       `json:"model"`
	Hash     string       `json:"hash"`
	Scope    policy.Scope `json:"scope"`
	Observes bool         `json:"observes"` // no thresholds: nothing is deferred
	At
	// CriticalFNRInterval is the exact 95% interval (Clopper-Pearson) of CriticalFNR.
	CriticalFNRInterval [2]float64 `json:"critical_fnr_interval"`
	// MissShare is the share of all critical inputs that are retained and missed, with its exact
	// 95% interval.
	MissShare         float64    `json:"miss_share"`
	MissShareInterval [2]float64 `json:"miss_share_interval"`
	// ByFallback is the share of inputs that the gate hands to the fallback score, including inputs
	// that scope or identical passes then decide.
	ByFallback float64 `json:"by_fallback"`
	// Differs says what speaks against this recording as evidence on a policy that was calibrated:
	// see CertificateCheck.Differs.
	Differs []string `json:"differs"`
	// Certificate says whether the certificate in the policy held here.
	Certificate *CertificateCheck `json:"certificate,omitempty"`
}

// CertificateCheck compares a policy's certificate with another recording.
type CertificateCheck struct {
	Kind   string  `json:"kind"`
	Target float64 `json:"target"`
	// Confidence of the certificate; 0 where its kind has none.
	Confidence float64 `json:"confidence,omitempty"`
	// Observed is the figure that the certificate bounds, measured on this recording.
	Observed float64 `json:"observed"`
	// Held is false where PValue is under 0.05. A higher figure than the target alone does not
	// break a certificate: by chance, a share just under the target is often exceeded. Nil where
	// the figure is of no input.
	Held *bool `json:"held"`
	// PValue is the chance of as many misses or more if the true share were the target. Small
	// values speak against the certificate.
	PValue float64 `json:"p_value"`
	// Differs lists differences from the policy or its calibration: another kind of rows, other
	// critical classes, another number of passes, or the very passes that it was calibrated on, by
	// their SHA-256. Nothing else is compared.
	Differs []string `json:"differs"`
}

// ResidualBin holds sum_c - MI over the inputs whose largest skewness is in (Above, UpTo]. The
// first bin includes 0, and the last has no end.
type ResidualBin struct {
	Above    float64  `json:"above"`
	UpTo     *float64 `json:"up_to"`
	N        int      `json:"n"`
	Mean     float64  `json:"mean"`     // nats
	Relative float64  `json:"relative"` // mean over mean MI of the bin
}

// SkewnessOf describes a distribution of skewness. Reliable is the share of inputs under each
// threshold: "0.1", "0.2", "0.3" and "0.5".
type SkewnessOf struct {
	Median   float64            `json:"median"`
	Mean     float64            `json:"mean"`
	P90      float64            `json:"p90"`
	Reliable map[string]float64 `json:"reliable"`
}

// Skewness describes one class over all inputs, and over those of each true class (empty beyond
// MaxMatrixClasses).
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

// PaperRule is the score that the paper's rule chooses for a whole recording: cbec where
// MedianCriticalSkewness is above the reliability threshold, else c_crit_max.
// MedianCriticalSkewness is the largest, over the critical classes, of the median skewness over all
// inputs. Costs compare the chosen score with the best one in scope all; they are 0 where the rule
// chose the best.
type PaperRule struct {
	MedianCriticalSkewness float64 `json:"median_critical_skewness"`
	Score                  string  `json:"score"`
	BestAUSC               string  `json:"best_ausc"`
	CostAUSC               float64 `json:"cost_ausc"`
	BestCriticalFNR        string  `json:"best_critical_fnr"` // at the coverage
	CostCriticalFNR        float64 `json:"cost_critical_fnr"`
}

// Profiles holds the mean C_k as [true][k]: raw, in nats, and normalised by the sum of C_k of the
// input (app-profile), with 0 where that sum is 0. Both are empty beyond MaxMatrixClasses. N counts
// the inputs of each true class.
type Profiles struct {
	N          []int       `json:"n"`
	Raw        [][]float64 `json:"raw"`
	Normalised [][]float64 `json:"normalised"`
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
// two critical. A block without pairs has 0.
type Confusion struct {
	Matrix         [][]float64 `json:"matrix"`
	CrossBoundary  float64     `json:"cross_boundary"`
	WithinSafe     float64     `json:"within_safe"`
	WithinCritical float64     `json:"within_critical"`
	// CrossToSafe and CrossToCritical divide CrossBoundary by the other two means; 0 where those
	// are 0.
	CrossToSafe     float64 `json:"cross_to_safe"`
	CrossToCritical float64 `json:"cross_to_critical"`
}

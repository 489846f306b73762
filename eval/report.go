package eval

import "github.com/ckd-project/ckd/policy"

// Report is everything that a labelled recording says, as `ckd evaluate
// --format json` prints it. Means and shares over nothing are 0, with the count
// beside them. Slices over classes are in the order of Classes. No list is ever
// null: tables of class x class are empty beyond MaxMatrixClasses, and so is
// Signatures.
type Report struct {
	Source  Source  `json:"source"`
	Summary Summary `json:"summary"`
	Classes []Class `json:"classes"`
	// Matrix [true][predicted] is the confusion matrix of the predictions, in inputs.
	Matrix [][]int `json:"matrix"`

	Policies []Row      `json:"policies"`
	Pairwise []Pairwise `json:"pairwise"`
	Curves   Curves     `json:"curves"`
	// Policy is how the given policy does at its own thresholds.
	Policy *OperatingPoint `json:"policy,omitempty"`

	Residual  []ResidualBin `json:"residual"`
	Skewness  []Skewness    `json:"skewness"`
	PaperRule *PaperRule    `json:"paper_rule,omitempty"`

	Profiles   Profiles    `json:"profiles"`
	Signatures []Signature `json:"signatures"`
	Confusion  *Confusion  `json:"confusion,omitempty"`
	// Dominant is the share of inputs in which the class has the largest C_k;
	// ties, and inputs without any uncertainty, count for the lowest class.
	Dominant []float64 `json:"dominant"`
	// Notes say what a reader has to know before believing the rest: a class
	// without inputs, constant scores, few critical inputs, ...
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

// File is a file by name and content.
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

	// Pearson and Spearman correlation of sum_c with MI over the inputs, and
	// the ratio of their means. With the sample variance the ratio carries a
	// factor S/(S-1), which Factor is; it is 1 with the population variance.
	Pearson   float64 `json:"pearson"`
	Spearman  float64 `json:"spearman"`
	Inflation float64 `json:"inflation"`
	Factor    float64 `json:"inflation_factor"`
	// ResidualSkewness is the Spearman correlation of |sum_c - MI| with the
	// largest skewness of any class.
	ResidualSkewness float64 `json:"residual_skewness"`

	// FallbackShare is the share of inputs with a critical class above the
	// reliability threshold, those that gate any-critical hands to the fallback;
	// AllReliable that with every class under it.
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
	// Uncertainty is the class uncertainty of Baltaci et al.: the mean predictive
	// entropy of the inputs of the class, nats; UncertaintyShare is it divided
	// by its sum over classes.
	Uncertainty      float64 `json:"uncertainty"`
	UncertaintyShare float64 `json:"uncertainty_share"`
}

// Row is how one ranking does: at the coverage asked for, and over all.
type Row struct {
	Name  string       `json:"name"`
	Scope policy.Scope `json:"scope"`
	At

	AUSC AUSC `json:"ausc"`
	// AURC and AUGRC are of the error rate, in expectation over the order of ties.
	AURC  float64 `json:"aurc"`
	AUGRC float64 `json:"augrc"`
	// JointArea is the area under the share of all critical inputs that are
	// retained and missed: as AUSC, but over a denominator that does not shrink.
	JointArea float64 `json:"joint_area"`

	Bootstrap Bootstrap `json:"bootstrap"` // of AUSC.CriticalFNR
	// BootstrapAt is of the figures at the coverage.
	BootstrapAt BootstrapAt `json:"bootstrap_at_coverage"`
}

// At is what is retained at one coverage (app-cfnr, app-cerr, app-acc).
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

// AUSC is the area under a risk over coverage (app-ausc): trapezoids over 200
// coverages from 0.05 to 1.
type AUSC struct {
	CriticalFNR   float64 `json:"critical_fnr"`
	CriticalError float64 `json:"critical_error"`
	ErrorRate     float64 `json:"error_rate"`
}

// Interval is a figure over resamples: its mean, standard deviation and 95%
// percentile interval.
type Interval struct {
	Mean float64 `json:"mean"`
	SD   float64 `json:"sd"`
	Low  float64 `json:"low"`
	High float64 `json:"high"`
}

// Bootstrap is the AUSC of critical FNR over resamples of the inputs. A resample
// is a recording of its own: its ties are in the order in which it was drawn,
// not in that of the file, so that many ties set its mean apart from the AUSC.
type Bootstrap struct {
	Interval
	// WinShare is the share of resamples in which the ranking has the lowest
	// AUSC of the scores of its scope; several at once share the win. For a
	// ranking that is no score: in which it is lower than every score's. 0
	// without critical inputs.
	WinShare float64 `json:"win_share"`
	// Samples are the resamples themselves.
	Samples []float64 `json:"-"`
}

// BootstrapAt is the figures at the coverage over resamples.
type BootstrapAt struct {
	CriticalFNR   Interval `json:"critical_fnr"`
	CriticalError Interval `json:"critical_error"`
	Accuracy      Interval `json:"accuracy"`
}

// Pairwise is the share of resamples in which the row's AUSC of critical FNR is
// lower than the column's. There are none without critical inputs.
type Pairwise struct {
	Row    string       `json:"row"`
	Column string       `json:"column"`
	Scope  policy.Scope `json:"scope"`
	P      float64      `json:"p"`
}

// Curves are the counts behind every figure, at each coverage. A risk is a
// quotient of two: critical FNR is CriticalMissed/CriticalRetained, and the
// joint curve is both of them over Summary.Critical.
type Curves struct {
	Coverage []float64 `json:"coverage"` // asked for
	Retained []int     `json:"retained"`
	Rows     []Curve   `json:"rows"`
}

// Curve is the counts of one ranking among what is retained.
type Curve struct {
	Name             string       `json:"name"`
	Scope            policy.Scope `json:"scope"`
	CriticalRetained []int        `json:"critical_retained"`
	CriticalMissed   []int        `json:"critical_missed"`
	CriticalWrong    []int        `json:"critical_wrong"` // predicted as any other class
	Wrong            []int        `json:"wrong"`
	// Low and High are the 95% band of critical FNR over resamples (the first
	// 1000 of them), where asked for.
	Low  []float64 `json:"-"`
	High []float64 `json:"-"`
}

// OperatingPoint is how a policy does at its own thresholds.
type OperatingPoint struct {
	Model    string       `json:"model"`
	Hash     string       `json:"hash"`
	Scope    policy.Scope `json:"scope"`
	Observes bool         `json:"observes"` // no thresholds: nothing is deferred
	At
	// CriticalFNRInterval is the exact 95% interval (Clopper-Pearson) of CriticalFNR.
	CriticalFNRInterval [2]float64 `json:"critical_fnr_interval"`
	// MissShare is the share of all critical inputs that are retained and
	// missed, with its exact interval.
	MissShare         float64    `json:"miss_share"`
	MissShareInterval [2]float64 `json:"miss_share_interval"`
	// ByFallback is the share of inputs that the gate hands to the fallback score,
	// also where scope or identical passes then decide.
	ByFallback float64 `json:"by_fallback"`
	// Differs says what speaks against this recording as evidence on a policy that
	// was calibrated: see CertificateCheck.Differs.
	Differs []string `json:"differs"`
	// Certificate says whether the certificate in the policy held here.
	Certificate *CertificateCheck `json:"certificate,omitempty"`
}

// CertificateCheck holds a policy's certificate against another recording.
type CertificateCheck struct {
	Kind   string  `json:"kind"`
	Target float64 `json:"target"`
	// Confidence of the certificate; 0 where its kind has none.
	Confidence float64 `json:"confidence,omitempty"`
	// Observed is the figure that the certificate bounds, in this recording.
	Observed float64 `json:"observed"`
	// Held unless PValue is under 0.05: a share just under the target is often
	// exceeded by chance. Nil where the figure is of no input.
	Held *bool `json:"held"`
	// PValue is the chance of so many misses or more among as many inputs, were
	// the true share the target: small values speak against the certificate.
	PValue float64 `json:"p_value"`
	// Differs says that the kind of rows or the critical classes are not those of
	// the policy, that the number of passes is not that of the recording that it
	// was calibrated on, or that the passes are that recording, by their SHA-256.
	// Nothing else is compared.
	Differs []string `json:"differs"`
}

// ResidualBin is sum_c - MI over the inputs whose largest skewness is in
// (Above, UpTo]; the first bin begins with 0, the last has no end.
type ResidualBin struct {
	Above    float64  `json:"above"`
	UpTo     *float64 `json:"up_to"`
	N        int      `json:"n"`
	Mean     float64  `json:"mean"`     // nats
	Relative float64  `json:"relative"` // mean over mean MI of the bin
}

// SkewnessOf is how skewness is distributed. Reliable is the share of inputs
// under each threshold of the sweep, by its text: "0.1", "0.2", "0.3", "0.5".
type SkewnessOf struct {
	Median   float64            `json:"median"`
	Mean     float64            `json:"mean"`
	P90      float64            `json:"p90"`
	Reliable map[string]float64 `json:"reliable"`
}

// Skewness of one class over all inputs, and over those of each true class
// (empty beyond MaxMatrixClasses).
type Skewness struct {
	Class string `json:"class"`
	SkewnessOf
	ByTrue []SkewnessByTrue `json:"by_true"`
}

// SkewnessByTrue is the skewness of a class over the inputs of a true class.
type SkewnessByTrue struct {
	True string `json:"true"`
	N    int    `json:"n"`
	SkewnessOf
}

// PaperRule is the score that the paper's rule chooses for a whole recording:
// c_crit_max, or cbec where MedianCriticalSkewness is above the reliability
// threshold. That is the largest, over the critical classes, of the medians of
// their skewness over all inputs. Costs are its figures less those of the best
// score, in scope all; 0 where it chose the best.
type PaperRule struct {
	MedianCriticalSkewness float64 `json:"median_critical_skewness"`
	Score                  string  `json:"score"`
	BestAUSC               string  `json:"best_ausc"`
	CostAUSC               float64 `json:"cost_ausc"`
	BestCriticalFNR        string  `json:"best_critical_fnr"` // at the coverage
	CostCriticalFNR        float64 `json:"cost_critical_fnr"`
}

// Profiles are the mean C_k [true][k], raw in nats, and of C_k over the sum of
// C_k of the input (app-profile), 0 where the sum is. Both are empty beyond
// MaxMatrixClasses. N is the inputs of each true class.
type Profiles struct {
	N          []int       `json:"n"`
	Raw        [][]float64 `json:"raw"`
	Normalised [][]float64 `json:"normalised"`
}

// Signature is the mean C_k and MI of the inputs of one true and one predicted
// class, nats (app-sig). Pairs without inputs are left out.
type Signature struct {
	True      string    `json:"true"`
	Predicted string    `json:"predicted"`
	N         int       `json:"n"`
	MI        float64   `json:"mi"`
	C         []float64 `json:"c"`
	Dominant  string    `json:"dominant"` // class of the largest mean C_k; ties go to the first
}

// Confusion is the epistemic confusion matrix (app-eij), nats: symmetric, with
// zero diagonal. The block means are over pairs of two different classes: one
// safe and one critical, two safe, two critical; 0 where a block has no pair.
type Confusion struct {
	Matrix         [][]float64 `json:"matrix"`
	CrossBoundary  float64     `json:"cross_boundary"`
	WithinSafe     float64     `json:"within_safe"`
	WithinCritical float64     `json:"within_critical"`
	// CrossToSafe and CrossToCritical are CrossBoundary over the other two; 0
	// where they are.
	CrossToSafe     float64 `json:"cross_to_safe"`
	CrossToCritical float64 `json:"cross_to_critical"`
}

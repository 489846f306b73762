package calibrate

import (
	"fmt"
	"strings"

	"github.com/ckd-project/ckd/eval"
	"github.com/ckd-project/ckd/passcheck"
	"github.com/ckd-project/ckd/policy"
)

// Report says what a calibration found, as `ckd calibrate --format json` prints it.
type Report struct {
	// Signs say in which ways the recording is not what it seems. Where one of them voids it, nothing
	// certifies.
	Signs []passcheck.Sign `json:"signs"`
	// Software is the version that computed this, from these files.
	Software   string    `json:"software"`
	PassesFile eval.File `json:"passes_file"`
	LabelsFile eval.File `json:"labels_file"`
	// GroupsFile is nil without groups.
	GroupsFile *eval.File `json:"groups_file,omitempty"`

	// Objective states the objective in words. It is empty of LearnEarlyStop, which keeps gate, scores
	// and thresholds.
	Objective string       `json:"objective"`
	Scope     policy.Scope `json:"scope"`
	Seed      uint64       `json:"seed"`
	Inputs    int          `json:"inputs"`
	Critical  int          `json:"critical"` // inputs whose true class is critical
	Missed    int          `json:"missed"`   // of them, those predicted not critical
	Passes    int          `json:"passes"`
	// Groups counts the groups of inputs, those of GroupsFile or of copies; 0 where all inputs count as
	// independent.
	Groups int `json:"groups,omitempty"`
	// FromOutcomes says that the inputs are reviewed decisions, see FromOutcomes, and PassesFile names
	// where these come from. Counts are without weights; shares are weighted.
	FromOutcomes bool `json:"from_outcomes,omitempty"`

	// Chosen holds what the policy decides by; nil if nothing certifies.
	Chosen *Chosen `json:"chosen"`
	// Why says how the choice was made, in sentences.
	Why []string `json:"why"`
	// Gain compares the policy with as many reviews drawn at random; nil if nothing was chosen.
	Gain *eval.Gain `json:"gain"`
	// Unsupported says why the recording supports no policy; empty if it does. Such a policy is not made,
	// unless Options.Force.
	Unsupported string `json:"unsupported,omitempty"`
	// Curve has the critical inputs missed against the inputs deferred; nil for outcomes.
	Curve *Curve `json:"curve,omitempty"`
	// CriticalCalls repeats Options.CriticalCalls.
	CriticalCalls eval.CriticalCalls `json:"critical_calls,omitempty"`
	// Comparison shows all candidates, in both scopes. ComparisonBasis
	// says on which inputs that was measured.
	Comparison      []Row  `json:"comparison"`
	ComparisonBasis string `json:"comparison_basis"`
	// CriticalClasses has the policy's misses of each critical class, on the inputs of the comparison; empty
	// for outcomes, and where nothing was chosen.
	CriticalClasses []ClassMisses `json:"critical_classes,omitempty"`
	// Risk says what the policy's risk is worth; nil if it has none.
	Risk *RiskReport `json:"risk"`
	// Reread has critical inputs called safe, least risk first, at most 1,000. The
	// labels of the first are to be read again.
	Reread []Reread `json:"reread,omitempty"`
	// Costs has costs of thresholds on the risk; empty without a ratio
	// asked for.
	Costs []CostPoint `json:"costs,omitempty"`
	// Expected says what unseen inputs will show, with 95% intervals; nil if nothing was
	// chosen.
	Expected *Expected `json:"expected"`
	// Certificate says what is guaranteed; nil if nothing is.
	Certificate *Certificate `json:"certificate"`
	// Lines says what outcomes are tested against; empty where nothing is, or nothing was chosen.
	Lines []policy.Line `json:"lines,omitempty"`
	// Refusal says why nothing certifies; nil if something does.
	Refusal *Refusal `json:"refusal"`
	// Notes say what to know first.
	Notes []string `json:"notes"`

	// EarlyStop says when inputs are answered before their last pass; nil if no rule was asked for.
	EarlyStop *EarlyStop `json:"settle"`
	// PolicyHash and PolicyText belong to the policy. They are empty if nothing certifies.
	PolicyHash string `json:"policy_hash"`
	PolicyText string `json:"policy"`

	// Policy is the finished policy; nil if nothing certifies.
	Policy *policy.Policy `json:"-"`
	// Warnings repeat the most important notes.
	Warnings []string `json:"-"`
}

func newReport(objective string, scope policy.Scope, seed uint64) *Report {
	return &Report{
		Objective: objective, Scope: scope, Seed: seed, Why: []string{}, Comparison: []Row{}, Notes: []string{}, Signs: []passcheck.Sign{},
	}
}

// setSource says where the recording comes from.
func (r *Report) setSource(s *Source, grouped bool) {
	r.Software, r.PassesFile, r.LabelsFile = s.Software, s.Passes, s.Labels
	if grouped {
		r.GroupsFile = &s.Groups
	}
}

// Refused reports whether nothing certifies or nothing is gained, so that there is no policy.
func (r *Report) Refused() bool {
	return r.Refusal != nil || r.EarlyStop != nil && r.EarlyStop.Refusal != nil
}

func (r *Report) note(format string, args ...any) {
	r.Notes = append(r.Notes, fmt.Sprintf(format, args...))
}

// why adds a reason for the choice.
func (r *Report) why(format string, args ...any) {
	r.Why = append(r.Why, fmt.Sprintf(format, args...))
}

// warn adds a note that is also shown as a warning.
func (r *Report) warn(format string, args ...any) {
	r.note(format, args...)
	r.Warnings = append(r.Warnings, r.Notes[len(r.Notes)-1])
}

// suspect takes the signs of a recording, and refuses to certify anything where one voids it.
func (r *Report) suspect(signs []passcheck.Sign) (void bool) {
	r.Signs = append(r.Signs, signs...)
	if found := passcheck.Void(signs); len(found) > 0 {
		r.Refusal = &Refusal{Reason: strings.Join(passcheck.Texts(found), " ")}
	}
	return r.Refusal != nil
}

// ClassMisses counts the inputs of a critical class, and those of them that are missed.
type ClassMisses struct {
	Class  string `json:"class"`
	Inputs int    `json:"inputs"`
	Missed int    `json:"missed"`
	// CriticalMissRate is Missed/Inputs, with its 95% interval; null without inputs.
	CriticalMissRate         *float64    `json:"critical_miss_rate"`
	CriticalMissRateInterval *[2]float64 `json:"critical_miss_rate_interval"`
}

// Reread is an input whose label is to be read again: it is labelled critical, and the model is sure
// that it is not.
type Reread struct {
	Input     int    `json:"input"` // its place in the file, from 0
	Label     string `json:"label"`
	Predicted string `json:"predicted"`
	// Risk is that of the policy; where it has none, p_critical.
	Risk float64 `json:"risk"`
}

// Chosen holds a gate, its scores and their thresholds.
type Chosen struct {
	Gate                 policy.Gate `json:"gate"`
	ReliabilityThreshold float64     `json:"reliability_threshold"`
	Primary              Threshold   `json:"primary"`
	Fallback             *Threshold  `json:"fallback"` // nil with gate never
	// Guard has what defers unfamiliar inputs; nil for
	// no guard.
	Guard *Threshold `json:"guard"`
	// Compared is the number of candidates that it was chosen from.
	Compared int `json:"compared"`
}

// Threshold holds a score and its threshold.
type Threshold struct {
	Score     string  `json:"score"`
	Threshold float64 `json:"threshold"`
}

// Row says how one candidate does.
type Row struct {
	Rule  string       `json:"rule"`
	Scope policy.Scope `json:"scope"`
	// Calibrated marks the procedure itself, in either scope.
	Calibrated bool `json:"calibrated"`
	// KeepsCalls says that the rule never defers critical calls by its score.
	KeepsCalls bool `json:"keeps_calls"`
	// Nothing says that the candidate cannot be expected to reach any coverage. All figures are
	// then 0 or null.
	Nothing bool `json:"nothing"`
	// Inputs counts the inputs of the comparison, Deferred those of them that a person sees.
	Inputs   int     `json:"inputs"`
	Deferred int     `json:"deferred"`
	Coverage float64 `json:"coverage"`
	// Accuracy is of the retained inputs; null where none is.
	Accuracy *float64 `json:"accuracy"`
	// CriticalMissRate is Missed/CriticalInputs, with its 95% interval; null without critical inputs.
	// Intervals are exact, or by group where there are groups.
	CriticalMissRate         *float64    `json:"critical_miss_rate"`
	CriticalMissRateInterval *[2]float64 `json:"critical_miss_rate_interval"`
	CriticalInputs           int         `json:"critical_inputs"`
	Missed                   int         `json:"missed"`
	// CriticalKept counts the retained inputs that are called critical, FalseKept those of them that
	// are not.
	CriticalKept int `json:"critical_kept"`
	FalseKept    int `json:"false_kept"`
	// Reviews counts what people look at: Deferred, and CriticalKept too where critical calls are
	// reviewed.
	Reviews int `json:"reviews"`
	// CriticalFNR is Missed/CriticalRetained, the paper's figure, with its 95% interval; null
	// where no critical input is retained.
	CriticalFNR         *float64    `json:"critical_fnr"`
	CriticalFNRInterval *[2]float64 `json:"critical_fnr_interval"`
	CriticalRetained    int         `json:"critical_retained"`
}

// Expected holds figures for unseen inputs, with 95% intervals, exact or by group. The critical
// miss rate and the critical FNR are null if there is a certificate: the misses chose the
// thresholds, so that their share would flatter the policy. The certificate bounds it.
type Expected struct {
	Coverage                 float64     `json:"coverage"`
	CoverageInterval         [2]float64  `json:"coverage_interval"`
	CriticalMissRate         *float64    `json:"critical_miss_rate"`
	CriticalMissRateInterval *[2]float64 `json:"critical_miss_rate_interval"`
	CriticalFNR              *float64    `json:"critical_fnr"`
	CriticalFNRInterval      *[2]float64 `json:"critical_fnr_interval"`
}

// Certificate states a guarantee for inputs drawn as those of the recording were.
type Certificate struct {
	policy.Certificate
	// Void says why nothing is guaranteed after all; empty if the certificate holds.
	Void string `json:"void,omitempty"`
}

// forPolicy returns the certificate as a policy has it. A policy puts it into words itself where the
// statement is too long to hold.
func (c *Certificate) forPolicy() *policy.Certificate {
	const mostStatement = 2048
	p := c.Certificate
	if len(p.Statement) > mostStatement {
		p.Statement = ""
	}
	return &p
}

// Refusal says how far off a certificate is.
type Refusal struct {
	Reason string `json:"reason"`
	// Cases and Misses are those of the point that came closest, PValue is its p-value.
	Cases  int     `json:"cases"`
	Misses int     `json:"misses"`
	PValue float64 `json:"p_value,omitempty"`
	// SmallestCases is the least number of inputs, of those that Cases counts, that could certify at
	// the same share of misses. It is 0 if not even a million could.
	SmallestCases int `json:"smallest_cases"`
	// SmallestInputs is about how many labelled inputs like these that takes; 0 if unknown.
	SmallestInputs int `json:"smallest_inputs"`
	// Would says what would have been certified instead: another bound, coverage or scope. On this
	// recording a second attempt is void, so that these are hints for fresh data.
	Would []string `json:"would,omitempty"`
}

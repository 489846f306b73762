package promise

import (
	"math"
	"time"

	"github.com/ckd-project/ckd/internal/outcome/evidence"
	"github.com/ckd-project/ckd/internal/outcome/receipt"
	"github.com/ckd-project/ckd/internal/outcome/truth"
	"github.com/ckd-project/ckd/policy"
)

// A Promise is the state of one policy hash and model version: what outcomes say about the risk
// among its decisions. It is never changed once returned.
type Promise struct {
	Policy [32]byte
	// Version is the model version's text; its hash in hex until a daemon has told the text.
	Version     string
	VersionHash uint64
	Model       string
	// Classes has the policy's class names; Critical the positions of the critical ones.
	Classes  []string
	Critical []int
	// AsOf is when the state was computed.
	AsOf time.Time
	// Audit holds the settings last told; nil for none.
	Audit *policy.Audit

	// Verdict is that of the pooled figures, and Violated if the alarm of any class is up. Why says
	// what stands against Holding.
	Verdict Verdict
	Why     []string
	// Alarm says that a pooled alarm of the model is up, on which on_breach acts. Alarms of single classes
	// do not.
	Alarm bool

	// Since begins the first cohort of the model, of whichever policy, that its evidence rests on: the first
	// after an alarm last ended. It is zero where there is none.
	Since time.Time
	// Expected is what the outcomes of earlier policies said of this one when it came into force; nil if
	// none could say anything.
	Expected *Expected
	// Cohorts says how far outcomes are due.
	Cohorts Cohorts
	// Mature summarises the cohorts whose outcomes are all due, Provisional all cohorts: there,
	// outcomes that come fast count before others, and everything may change.
	Mature, Provisional Summary
	// Strata has what was issued, due and arrived, by stratum, in the order of their numbers.
	Strata []Stratum
	// Traffic is the share of the decisions whose clients take receipts: audits are drawn there only.
	Traffic Share
	// History has one point for each cohort taken into the evidence.
	History []Point
}

// Verdict says whether a promise is kept.
type Verdict uint8

// The verdicts, each worse than those before. That of a promise is the worst of its pooled figures.
const (
	// NoLine: the policy has no line to hold the risk against.
	NoLine Verdict = iota
	// Holding: no alarm is up and nothing is in doubt, the upper limit of the risk lies below the line, and
	// at most 5% of what the figures need is missing: outcomes of each stratum that are overdue, critical
	// readings that are unconfirmed or withdrawn.
	Holding
	// TooFew outcomes to tell.
	TooFew
	// InDoubt: no alarm is up, but the evidence is over half of its logarithm, or the interval lies above
	// the line.
	InDoubt
	// Violated: an alarm is up.
	Violated
	verdicts
)

// String returns the verdict's name in JSON and metrics.
func (v Verdict) String() string {
	if v < verdicts {
		return [verdicts]string{"no_line", "holding", "too_few_outcomes", "in_doubt", "violated"}[v]
	}
	return ""
}

// Cohorts says how far outcomes are due.
type Cohorts struct {
	// Period is the length of a cohort, Due how long after its end a cohort matures.
	Period, Due time.Duration
	// Mature and Open count cohorts with outcomes, or with decisions of which daemons told.
	Mature, Open int
	// Since begins the first cohort; Until ends the last mature one. Both are zero where none is.
	Since, Until time.Time
	// NextMature is when the next cohort matures; zero where none is open.
	NextMature time.Time
}

// A Summary says what the outcomes of some cohorts add up to.
type Summary struct {
	// Decided counts the decisions with a countable truth: reviewed, and the first of equal draws.
	Decided uint64
	// MissRate is the critical miss rate, Classes has that of each critical class.
	MissRate Figure
	Classes  []Figure
	// FNRs has the critical false negative rates of the retained that have a line: that of all critical
	// classes first.
	FNRs []Figure
	// Slices has the miss rate of each declared slice.
	Slices []Figure

	Yield       Yield
	Confusion   []Cell
	Calibration []RiskBin
	Readers     Readers
	Lag         Lag
	// Kinds has the miss rate by how the truth was found; the weights of one kind alone estimate nothing
	// about all inputs.
	Kinds []KindShare
}

// A Share is a part of a whole with its 95% interval. Value, Low and High are NaN if nothing was seen.
type Share struct {
	// Of names the whole.
	Of               string
	Value, Low, High float64
	// Events of Total were counted, without weights.
	Events, Total uint64
}

// Known reports whether anything was seen.
func (s Share) Known() bool { return !math.IsNaN(s.Value) }

// A Limits holds a value with limits; all NaN where nothing was seen.
type Limits struct{ Value, Low, High float64 }

// A Figure is a weighted risk with its confidence sequence.
type Figure struct {
	Risk evidence.Risk
	// Class names the critical class whose inputs are counted; empty for all critical classes.
	Class string
	// Slice is a declared slice as "name=value"; empty for all inputs.
	Slice string

	// Outcomes counts reviewed inputs that are a step of the risk, Critical the critical ones among
	// them, Misses the missed among these: counts without weights.
	Outcomes, Critical, Misses uint64
	// Disputed counts inputs of which two readers disagree whether they are critical. They are no
	// misses in Value; the interval takes both ways.
	Disputed uint64
	// Value is the estimate, a share of all critical inputs or of the retained critical inputs. Low
	// and High limit the average since the policy came into force, with 95% at all times at once. All
	// are NaN where no critical input was seen.
	Value, Low, High float64
	// Unweighted is Misses/Critical: what one must not look at, as a warning.
	Unweighted float64
	// Lately is the estimate over the last cohorts alone, with an interval for one look.
	Lately Share
	// Overdue is the estimate with overdue outcomes taken as not missed (Low) and as missed (High).
	// Only pooled figures have it.
	Overdue Limits
	// AtSensitivity is the estimate if readers find only a share of the misses: see
	// the policy's audit.reader_sensitivity. It equals Value, Low and High at 1.
	AtSensitivity Limits

	// Model is the risk over all policies and versions of the model, since Promise.Since; unknown without
	// a line, of classes and of slices.
	Model Limits

	// Line is what the risk is held against; NaN for none. LineOrigin says in words where it comes from.
	Line       float64
	LineOrigin string
	Monitor    *Monitor // nil without a line, of slices, and of provisional figures
	Verdict    Verdict
	// Needed is about how many further outcomes would show that the risk is below the line, if it is
	// what the estimate says: NaN where none would, or nothing is known.
	Needed float64
}

// A Monitor is the alarm of one figure.
type Monitor struct {
	// Evidence is compared with RunLength, the average number of outcomes before a false alarm.
	// RunLengthInputs is the same in inputs, at the present share of outcomes; NaN where unknown.
	Evidence, RunLength, RunLengthInputs float64
	// LogEvidence is log(1+evidence)/log(1+run length): 1 raises the alarm.
	LogEvidence float64
	// Raised says that the alarm is up; RaisedBy begins the cohort that raised it, RaisedAt is when that
	// was seen. Since is an estimate of when the risk rose; nil where no alarm is up.
	Raised             bool
	RaisedBy, RaisedAt time.Time
	Since              *Since
	// Cleared is when a person last took the alarm down: the evidence is of later cohorts. Zero for
	// never, and once the line has changed since.
	Cleared time.Time
	// Replayed is the evidence that the outcomes give as they are now, late and corrected ones
	// included. It never changes the alarm. Changed says that it differs from Evidence.
	Replayed float64
	Changed  bool
}

// A Stratum says what was issued and what has arrived of one stratum. Due, Arrived and Overdue are of
// mature cohorts.
type Stratum struct {
	Stratum receipt.Stratum
	// Decisions, Eligible, Receipts and Reviews are as in Issued, over all cohorts; Expected is the
	// sum of pi over the eligible, to compare with Reviews. NaN where no daemon told.
	Decisions, Eligible, Receipts, Reviews uint64
	Expected                               float64
	// Due counts the reviews whose outcome is due, Arrived those that came, Overdue the others. Untold
	// counts the arrived of decisions that no daemon has told of: one that was killed could not.
	Due, Arrived, Overdue, Untold uint64
	// Late is the share of the due that is overdue; Lately the same over the last cohorts alone.
	Late, Lately Share
	// Free says that the stratum's outcomes count whether or not a person was asked, which holds only
	// where at least 95% of them arrive. FreeMet says whether they do; true where nothing is due.
	Free, FreeMet bool
	// Apart counts readings of drawn audits by people who had seen the model's answer.
	Apart uint64
}

// Yield is what deferring was worth.
type Yield struct {
	// Worth is the share of the deferred with an outcome that was worth a person's look: predicted
	// wrong. Critical is the share that is critical and was called safe.
	Worth, Critical Share
	Reasons         []ReasonYield
}

// ReasonYield is the yield of one reason for deferring.
type ReasonYield struct {
	Reason          policy.Reason
	Worth, Critical Share
}

// A Cell says how many reviewed inputs are predicted one class and truly another.
type Cell struct {
	Predicted, True int
	Count           uint64
	// Weight sums 1/pi: an estimate of how many of all inputs.
	Weight float64
	// Share is of all inputs predicted so.
	Share Share
}

// A RiskBin compares expected with observed misses among retained inputs called safe.
type RiskBin struct {
	From, To float64 // of the risk
	// Expected is the mean risk, Observed the share of misses; both weighted.
	Expected float64
	Observed Share
}

// Readers says how far readers agree.
type Readers struct {
	// Agreement is the share of the inputs with two readings whose first two agree whether the input
	// is critical, weighted to all inputs with a reading.
	Agreement Share
	// ReaderMisses is the share of the inputs first read as not critical, and re-read at random, that
	// the second reader found critical.
	ReaderMisses Share
	// SecondWanted counts the inputs of which a second reading is or was wanted, SecondArrived those
	// that have one.
	SecondWanted, SecondArrived uint64
	// Missed counts the inputs that the model called safe and some reading critical. Of these, Unconfirmed
	// counts those whose cohort is mature and of which no second source has said anything, Withdrawn
	// those whose reading was taken back by its source.
	Missed, Unconfirmed, Withdrawn uint64
	// Disputed counts the inputs for which a third reading is wanted.
	Disputed uint64
	// Blind and Sighted are the shares of first readings that agree with the model whether the input
	// is critical, by whether the reader had seen its answer. Sighted above Blind says that it is
	// followed.
	Blind, Sighted Share
	// Corrected counts readings that were replaced by a later one of the same source.
	Corrected uint64
}

// Lag says how long after the decision the first truth was found, in seconds. Quantiles are exact up
// to a twentieth. NaN where nothing was seen.
type Lag struct {
	Count       uint64
	Median, P90 Limits
}

// KindShare is the miss rate among the truths found in one way.
type KindShare struct {
	Kind truth.Kind
	// Decided counts the decisions whose truth was found so.
	Decided  uint64
	MissRate Share
}

// A Point says what the cohorts up to one add up to, by the outcomes as they are now. Line and evidence
// are those with which the cohort was taken, and stay.
type Point struct {
	// Start begins the cohort.
	Start time.Time
	// Rate is the critical miss rate, FNR the critical FNR; unknown where that has no line.
	Rate PointRisk
	FNR  PointRisk
}

// PointRisk is one risk at one point. Value, Low and High are averages since the policy came into
// force, Cohort is that of the cohort alone; NaN where no critical input was seen. Line and
// LogEvidence are NaN without a line.
type PointRisk struct {
	Value, Low, High, Cohort, Line, LogEvidence float64
}

// Watched returns the figures that may have lines: the miss rate, pooled and of classes, then FNRs.
func (s *Summary) Watched() []*Figure {
	all := []*Figure{&s.MissRate}
	for _, figures := range [][]Figure{s.Classes, s.FNRs} {
		for i := range figures {
			all = append(all, &figures[i])
		}
	}
	return all
}

// FNR returns the critical FNR of all critical classes; nil where that has no line.
func (s *Summary) FNR() *Figure {
	if len(s.FNRs) > 0 && s.FNRs[0].Class == "" {
		return &s.FNRs[0]
	}
	return nil
}

// Name names a figure to people, such as "critical miss rate of melanoma".
func (f *Figure) Name() string { return f.watch().String() }

func (f *Figure) watch() Watch { return Watch{Risk: f.Risk, Class: f.Class} }

package triage

import (
	"encoding/hex"
	"math"
	"time"

	"github.com/ckd-project/ckd/outcome/evidence"
	"github.com/ckd-project/ckd/outcome/ledger"
	"github.com/ckd-project/ckd/policy"
)

// maxPoints is how many points of a promise's history the page shows, the last ones.
const maxPoints = 400

// Promise is the evidence of outcomes on the policy in force, with one version of the model. Counts are
// of reviewed inputs, without weights; every share has weights.
type Promise struct {
	ModelVersion string `json:"model_version"`
	Verdict      string `json:"verdict"` // no_line, too_few_outcomes, holding or violated
	Alarm        bool   `json:"alarm"`   // of the figures over all critical classes
	Defers       bool   `json:"defers"`  // the policy defers all that is called safe while it is up
	// Why lists the reasons against the verdict holding.
	Why []string `json:"why"`
	// Period is the length of a cohort, and Due how long after its end outcomes are due, in seconds.
	Period  float64    `json:"period"`
	Due     float64    `json:"due"`
	Mature  int        `json:"mature_cohorts"`
	Open    int        `json:"open_cohorts"`
	Since   *time.Time `json:"since"`       // begin of the first cohort; null before
	Next    *time.Time `json:"next_mature"` // when the next cohort matures; null if none is open
	Decided float64    `json:"decided"`     // inputs with an outcome, in all cohorts
	Figures []Figure   `json:"figures"`     // of mature cohorts: figures with a line, pooled ones first
	// Provisional is the critical FNR over all cohorts, where outcomes that come fast count before
	// others; null if nothing was seen.
	Provisional *Interval `json:"provisional"`
	Strata      []Stratum `json:"strata"`
	// Traffic is the share of the decisions whose clients take receipts; audits are drawn there only.
	Traffic *Interval `json:"traffic"`
	// Worth is the share of the deferred that was worth a person's look: predicted wrong. Critical is
	// the share that is critical and was called safe. Null where nothing was seen.
	Worth    *Interval `json:"yield_worth"`
	Critical *Interval `json:"yield_critical"`
	Yield    []Yield   `json:"yield"` // by reason
	// History has one point for each mature cohort, the last ones.
	History []PromisePoint `json:"history"`
}

// Figure is a risk with its interval, its line and its alarm.
type Figure struct {
	Name     string  `json:"name"`  // critical_fnr or critical_miss_rate
	Class    string  `json:"class"` // a critical class; empty for all
	Outcomes float64 `json:"outcomes"`
	Critical float64 `json:"critical"`
	Misses   float64 `json:"misses"`
	// Average is since the policy came into force; its 95% interval is valid at all times at once.
	Average *Interval `json:"average"`
	// Lately is over the last cohorts, with an interval for one look.
	Lately     *Interval `json:"lately"`
	Unweighted *float64  `json:"unweighted"` // misses over critical ones: too good, and shown as a warning
	// OverdueLow and OverdueHigh are the average if no overdue outcome, or every one, were a miss.
	OverdueLow  *float64 `json:"overdue_low"`
	OverdueHigh *float64 `json:"overdue_high"`
	Line        *float64 `json:"line"`
	// Evidence is on a logarithmic scale on which 1 raises the alarm.
	Evidence        *float64   `json:"evidence"`
	RunLength       *float64   `json:"run_length"`        // outcomes between false alarms, on average
	RunLengthInputs *float64   `json:"run_length_inputs"` // the same in inputs
	Raised          bool       `json:"raised"`
	RaisedBy        *time.Time `json:"raised_by"`
	Verdict         string     `json:"verdict"`
	Needed          *float64   `json:"needed"` // further outcomes until it may be holding; null if none would do
}

// Stratum counts issued, due and arrived reviews of one stratum.
type Stratum struct {
	Name      string    `json:"name"`
	Decisions float64   `json:"decisions"`
	Reviews   float64   `json:"reviews"`
	Expected  *float64  `json:"expected"` // reviews, by the probabilities that they were drawn with; null if unknown, or no review is asked for
	Due       float64   `json:"due"`
	Arrived   float64   `json:"arrived"`
	Overdue   float64   `json:"overdue"`
	Late      *Interval `json:"late"` // share of the due that is overdue
}

// Yield is the worth of deferring for one reason.
type Yield struct {
	Reason   string    `json:"reason"`
	Worth    *Interval `json:"worth"`
	Critical *Interval `json:"critical"`
}

// PromisePoint is the critical FNR as it was known when a cohort matured.
type PromisePoint struct {
	At       int64    `json:"at"` // begin of the cohort, in ms since 1970
	Value    *float64 `json:"value"`
	Low      *float64 `json:"low"`
	High     *float64 `json:"high"`
	Cohort   *float64 `json:"cohort"` // of the cohort alone
	Line     *float64 `json:"line"`
	Evidence *float64 `json:"evidence"`
}

// strata names the strata.
var strata = [...]string{"", "deferred", "called_critical", "called_safe"}

// promisesOf returns the promises of a policy as the page shows them; nil without a ledger.
func promisesOf(all []*ledger.Promise, hash string) []Promise {
	if all == nil {
		return nil
	}
	found := []Promise{}
	for _, p := range all {
		if hex.EncodeToString(p.Policy[:]) == hash {
			found = append(found, describePromise(p))
		}
	}
	return found
}

func describePromise(p *ledger.Promise) Promise {
	d := Promise{
		ModelVersion: p.Version, Verdict: p.Verdict.String(), Alarm: p.Alarm, Why: append([]string{}, p.Why...),
		Period: p.Cohorts.Period.Seconds(), Due: p.Cohorts.Due.Seconds(), Mature: p.Cohorts.Mature, Open: p.Cohorts.Open,
		Since: timeOrNull(p.Cohorts.Since), Next: timeOrNull(p.Cohorts.NextMature), Decided: float64(p.Provisional.Decided),
		Figures: []Figure{}, Provisional: interval(p.Provisional.FNR.Value, p.Provisional.FNR.Low, p.Provisional.FNR.High),
		Strata: []Stratum{}, Traffic: shareOf(p.Traffic), Worth: shareOf(p.Mature.Yield.Worth), Critical: shareOf(p.Mature.Yield.Critical),
		Yield: []Yield{}, History: []PromisePoint{},
	}
	if p.Audit != nil {
		d.Defers = p.Audit.OnBreach == policy.DeferOnBreach
	}
	for i, f := range append([]ledger.Figure{p.Mature.FNR, p.Mature.MissRate}, p.Mature.Classes...) {
		if i < 2 || !math.IsNaN(f.Line) {
			d.Figures = append(d.Figures, describeFigure(&f))
		}
	}
	for i := range p.Strata {
		s := &p.Strata[i]
		expected := number(s.Expected)
		if s.Free {
			expected = nil // nobody is asked for a review: the outcomes come anyway
		}
		d.Strata = append(d.Strata, Stratum{
			Name: strata[s.Stratum], Decisions: float64(s.Decisions), Reviews: float64(s.Reviews), Expected: expected,
			Due: float64(s.Due), Arrived: float64(s.Arrived), Overdue: float64(s.Overdue), Late: shareOf(s.Late),
		})
	}
	for _, y := range p.Mature.Yield.Reasons {
		d.Yield = append(d.Yield, Yield{y.Reason.String(), shareOf(y.Worth), shareOf(y.Critical)})
	}
	for _, h := range p.History[max(0, len(p.History)-maxPoints):] {
		d.History = append(d.History, PromisePoint{
			At: h.Start.UnixMilli(), Value: number(h.FNR.Value), Low: number(h.FNR.Low), High: number(h.FNR.High),
			Cohort: number(h.FNR.Cohort), Line: number(h.FNR.Line), Evidence: number(h.FNR.LogEvidence),
		})
	}
	return d
}

func describeFigure(f *ledger.Figure) Figure {
	d := Figure{
		Name: map[evidence.Risk]string{evidence.FNR: "critical_fnr", evidence.MissRate: "critical_miss_rate"}[f.Risk], Class: f.Class,
		Outcomes: float64(f.Outcomes), Critical: float64(f.Critical), Misses: float64(f.Misses),
		Average: interval(f.Value, f.Low, f.High), Lately: shareOf(f.Lately), Unweighted: number(f.Unweighted),
		OverdueLow: number(f.Overdue.Low), OverdueHigh: number(f.Overdue.High),
		Line: number(f.Line), Verdict: f.Verdict.String(), Needed: number(f.Needed),
	}
	if m := f.Monitor; m != nil {
		d.Evidence, d.RunLength, d.RunLengthInputs = number(m.LogEvidence), number(m.RunLength), number(m.RunLengthInputs)
		d.Raised, d.RaisedBy = m.Raised, timeOrNull(m.RaisedBy)
	}
	return d
}

func shareOf(s ledger.Share) *Interval { return interval(s.Value, s.Low, s.High) }

// interval returns null where nothing was seen.
func interval(value, low, high float64) *Interval {
	if !finite(value) || !finite(low) || !finite(high) {
		return nil
	}
	return &Interval{value, low, high}
}

// number returns null for a number that is not finite.
func number(v float64) *float64 {
	if !finite(v) {
		return nil
	}
	return &v
}

func timeOrNull(t time.Time) *time.Time {
	if t.IsZero() {
		return nil
	}
	t = t.UTC()
	return &t
}

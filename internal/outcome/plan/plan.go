package plan

import (
	"cmp"
	"context"
	"errors"
	"fmt"
	"math"
	"slices"

	"github.com/ckd-project/ckd/policy"
)

// Input is an input of a recording, as the policy decides it.
type Input struct {
	Deferred bool
	// CalledCritical says that the predicted class is critical, Critical that the true one is.
	CalledCritical, Critical bool
	// Risk is the probability that it is truly critical; NaN where that is not known.
	Risk float64
}

// missed reports whether the input is retained and missed.
func (in *Input) missed() bool { return in.Critical && !in.CalledCritical && !in.Deferred }

// Options say what to plan for.
type Options struct {
	// Rates lists audit rates in (0,1], ascending; nil for DefaultRates. A rate of 1 audits all alike.
	Rates []float64
	// InputsPerDay is the traffic, above 0.
	InputsPerDay float64
	// Runs is the number of simulations of each figure; 0 for 100.
	Runs int
	Seed uint64
	// Progress is called with the number of rates that are done, where it is given.
	Progress func(done, rates int)
}

// DefaultRates returns the audit rates that are compared.
func DefaultRates() []float64 { return []float64{0.005, 0.01, 0.02, 0.05, 0.1} }

// Plan says what audit rates cost and show.
type Plan struct {
	// Bounds is the figure that is planned for, Line what it is tested against; nil where the policy
	// has no line. InRecording is its value in the recording; nil without critical inputs.
	Bounds      policy.Figure `json:"bounds"`
	Line        *float64      `json:"line"`
	InRecording *float64      `json:"in_recording"`
	// Expected is what the calibration expected of the figure; nil where that is not known.
	Expected *float64 `json:"expected"`
	// CountedShare is the share of inputs that the figure divides by, in [0,1]: the critical ones or, of a
	// critical FNR, the critical ones that are retained.
	CountedShare float64 `json:"counted_share"`
	// InputsPerDay repeats the option, RunLength is that of the policy's audits, and Days is how long a
	// month is.
	InputsPerDay float64 `json:"inputs_per_day"`
	Days         int     `json:"days"`
	RunLength    float64 `json:"run_length"`
	// DueDays is how long outcomes may take: no figure of this plan includes it.
	DueDays float64 `json:"due_days"`
	// PredictedCritical and M are the settings of the audits.
	PredictedCritical policy.AuditedCritical `json:"predicted_critical"`
	M                 float64                `json:"m"`
	// SurgePer1000 counts the reviews that deferring everything called safe would cause, per 1,000
	// inputs: those of inputs called safe and, by themselves, those that are deferred anyway.
	SurgePer1000 float64 `json:"surge_per_1000"`
	Rates        []Rate  `json:"rates"`
	// Everything is what reading every input shows, where no rate finds a doubling within a month;
	// nil elsewhere.
	Everything *Rate `json:"everything"`
	// Notes say why figures are missing.
	Notes []string `json:"notes"`
}

// Rate says what one audit rate costs and shows.
type Rate struct {
	Rate float64 `json:"rate"`
	// DeferredPer1000 and AuditsPer1000 count reviews per 1,000 inputs.
	DeferredPer1000 float64 `json:"deferred_per_1000"`
	AuditsPer1000   float64 `json:"audits_per_1000"`
	// InputsBetweenAlarms is the least mean number of inputs between false alarms.
	InputsBetweenAlarms float64 `json:"inputs_between_alarms"`
	// Low and High are the median ends of the 95% interval after a month, Width its median width; nil
	// where nothing would be known.
	Low   *float64 `json:"low"`
	High  *float64 `json:"high"`
	Width *float64 `json:"width"`
	// Double and Triple say when the alarm is raised, from the moment when the risk is two and three
	// times its line, after 1,000 outcomes below it; nil where that cannot be.
	Double *Delay `json:"double"`
	Triple *Delay `json:"triple"`
	// Holding says when the promise is first said to hold, from the first outcome on, with the risk of
	// the recording: when the upper limit of the risk lies below the line. Nil without a line, and where
	// the recording is not below it.
	Holding *Delay `json:"holding"`
}

// Finds reports whether 9 in 10 simulations find a doubling within some days.
func (r *Rate) Finds(inputsPerDay, days float64) bool {
	return r.Double != nil && r.Double.InputsIn90 != nil && *r.Double.InputsIn90 <= days*inputsPerDay
}

// Delay says how long something takes. A figure is nil where more runs than it speaks for
// ended without one.
type Delay struct {
	// Inputs and Audits are medians, Days is Inputs by the traffic.
	Inputs *float64 `json:"inputs"`
	Audits *float64 `json:"audits"`
	Days   *float64 `json:"days"`
	// InputsIn90 and AuditsIn90 are not exceeded in 90% of the runs.
	InputsIn90 *float64 `json:"inputs_in_90"`
	AuditsIn90 *float64 `json:"audits_in_90"`
	// Longest is the number of inputs after which runs were ended.
	Longest float64 `json:"longest"`
}

// days is how long a month is.
const days = 30

// defaultRuns is the number of simulations of each figure.
const defaultRuns = 100

// New makes a plan for a policy, by what it decides on a labelled recording. Settings other than the
// rate are those of its block audit, or their defaults.
//
// If the risk of the policy was fitted for another share of critical inputs, critical inputs are
// drawn as often as that says.
func New(ctx context.Context, p *policy.Policy, inputs []Input, o Options) (*Plan, error) {
	if o.Rates == nil {
		o.Rates = DefaultRates()
	}
	o.Runs = cmp.Or(o.Runs, defaultRuns)
	switch {
	case len(inputs) == 0:
		return nil, errors.New("no inputs to plan with")
	case !(o.InputsPerDay > 0) || math.IsInf(o.InputsPerDay, 1):
		return nil, fmt.Errorf("%v inputs a day: expected a number above 0", o.InputsPerDay)
	case slices.ContainsFunc(o.Rates, func(r float64) bool { return !(r > 0 && r <= 1) }):
		return nil, fmt.Errorf("audit rates %v: expected shares above 0, at most 1", o.Rates)
	}
	s := newStudy(p, inputs, o)
	plan := &Plan{
		Bounds: s.figure, InputsPerDay: o.InputsPerDay, Days: days, RunLength: s.settings.RunLength, Notes: s.notes,
		PredictedCritical: s.settings.PredictedCritical, M: s.settings.M, Rates: make([]Rate, len(o.Rates)),
		CountedShare: s.share(s.weights, s.counts),
		DueDays:      float64(s.settings.Due) / (24 * 60 * 60),
		SurgePer1000: 1000 * s.share(s.weights, func(in *Input) bool { return in.Deferred || !in.CalledCritical }),
	}
	if s.line > 0 {
		plan.Line = &s.line
	}
	if c := p.Calibration; c != nil && c.ExpectedCriticalMissRate != nil && s.figure == policy.CriticalMissRate {
		plan.Expected = new(c.ExpectedCriticalMissRate.Value)
	}
	if !math.IsNaN(s.risk) {
		plan.InRecording = &s.risk
	}
	for i, rate := range o.Rates {
		var err error
		if plan.Rates[i], err = s.audited(ctx, rate); err != nil {
			return nil, err
		}
		if o.Progress != nil {
			o.Progress(i+1, len(o.Rates))
		}
	}
	if slices.ContainsFunc(plan.Rates, func(r Rate) bool { return r.Double == nil || r.Finds(o.InputsPerDay, days) }) {
		return plan, nil
	}
	everything, err := s.audited(ctx, 1)
	if err != nil {
		return nil, err
	}
	plan.Everything = &everything
	return plan, nil
}

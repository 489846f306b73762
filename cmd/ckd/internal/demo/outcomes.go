package demo

import (
	"bytes"
	"context"
	"errors"
	"fmt"
	"io"
	"math/rand/v2"
	"net/http"
	"regexp"
	"strconv"
	"time"

	"golang.org/x/time/rate"

	"github.com/ckd-project/ckd/client"
	"github.com/ckd-project/ckd/cmd/ckd/internal/answer"
	"github.com/ckd-project/ckd/internal/recordings"
	ckdv1 "github.com/ckd-project/ckd/proto/ckd/v1"
)

const (
	// goodInputs are decided while everything is as it was where the policy was tuned.
	goodInputs = 30_000
	// shiftTimes is how much more frequent missed inputs become; shiftRate inputs per second, until
	// the alarm is raised or shiftInputs were decided.
	shiftTimes  = 3
	shiftRate   = 4_000
	shiftInputs = 80_000
	// chunk is the number of inputs whose outcomes are reported together.
	chunk = 1_000
	// dueTime bounds the wait for outcomes that are due within a second or two.
	dueTime = time.Minute
)

// Outcomes holds the figures by outcomes of simulated readers, beside the figures by all labels.
type Outcomes struct {
	Inputs      int `json:"inputs"`  // decided
	Reviews     int `json:"reviews"` // deferred or audited
	Audits      int `json:"audits"`  // retained, called safe, and drawn at random
	Outcomes    int `json:"outcomes"`
	SecondReads int `json:"second_reads"`
	// Truth is the critical FNR of all retained inputs, by their labels, which is unknown in
	// practice. Estimate is the weighted one, by outcomes, with the limits Low and High; Unweighted
	// is the naive average.
	Truth      float64 `json:"true_critical_fnr"`
	Estimate   float64 `json:"critical_fnr"`
	Low        float64 `json:"low"`
	High       float64 `json:"high"`
	Unweighted float64 `json:"unweighted"`
	Line       float64 `json:"line"`
	Verdict    string  `json:"verdict"`
	Seconds    float64 `json:"seconds"`
	Shift      *Shift  `json:"shift,omitempty"`
}

// Shift holds the figures after misses became more frequent.
type Shift struct {
	Times  int `json:"times"` // as frequent as before
	Inputs int `json:"inputs"`
	// Truth is the critical FNR of the retained since then, by the labels.
	Truth float64 `json:"true_critical_fnr"`
	// DriftAlarms counts the alarms of drift since then.
	DriftAlarms int  `json:"drift_alarms"`
	Raised      bool `json:"alarm"`
	// AlarmOutcomes counts the outcomes of shifted inputs up to the end of the cohort, a second, that
	// raised the alarm; AlarmAudits the audits among them. 0 if it was not raised.
	AlarmOutcomes int     `json:"outcomes_until_alarm"`
	AlarmAudits   int     `json:"audits_until_alarm"`
	Seconds       float64 `json:"seconds"`
}

// A trial streams inputs whose reviews are answered by readers.
type trial struct {
	client  *client.Client
	readers *readers
	metrics string // URL
	random  *rand.Rand
	serial  int // of the next input
}

func newTrial(c *client.Client, r *recordings.Recording, metrics string) *trial {
	return &trial{client: c, readers: &readers{client: c, recording: r}, metrics: metrics, random: rand.New(rand.NewPCG(seed1, seed2))}
}

// outcomes streams inputs drawn from the shown ones, and returns their figures when all outcomes are due.
func (t *trial) outcomes(ctx context.Context, shown []int, progress func(answered, inputs int)) (*Outcomes, error) {
	started := time.Now()
	for done := 0; done < goodInputs; done += chunk {
		if err := t.send(ctx, shown); err != nil {
			return nil, err
		}
		if progress != nil {
			progress(done+chunk, goodInputs)
		}
	}
	promise, err := t.due(ctx)
	if err != nil {
		return nil, err
	}
	figure := pooled(promise)
	if figure.GetAverage() == nil || figure.Line == nil {
		return nil, errors.New("the outcomes say nothing about the policy")
	}
	r := t.readers
	return &Outcomes{
		Inputs: r.truth.Inputs, Reviews: r.reviews, Audits: r.audits, Outcomes: len(r.readings), SecondReads: r.secondReads,
		Truth: r.truth.CriticalFNR(), Estimate: figure.GetAverage().GetValue(), Low: figure.GetAverage().GetLow(), High: figure.GetAverage().GetHigh(),
		Unweighted: figure.GetUnweighted(), Line: figure.GetLine(), Verdict: answer.Word("VERDICT_", promise.GetPromise().GetVerdict()),
		Seconds: time.Since(started).Seconds(),
	}, nil
}

// shift streams inputs among which missed ones are more frequent, until the alarm is raised.
func (t *trial) shift(ctx context.Context, shown, missed []int) (*Shift, error) {
	inputs := shown
	for range shiftTimes - 1 {
		inputs = append(inputs[:len(inputs):len(inputs)], missed...)
	}
	drifted, err := t.driftAlarms(ctx)
	if err != nil {
		return nil, err
	}
	started, before := time.Now(), t.readers.truth
	pace := rate.NewLimiter(shiftRate, chunk)
	s := &Shift{Times: shiftTimes}
	var promise *ckdv1.PromiseFigures
	for s.Inputs < shiftInputs && !pooled(promise).GetMonitor().GetRaised() {
		if err := pace.WaitN(ctx, chunk); err != nil {
			return nil, err
		}
		if err := t.send(ctx, inputs); err != nil {
			return nil, err
		}
		s.Inputs += chunk
		if promise, err = t.promise(ctx); err != nil {
			return nil, err
		}
	}
	if m := pooled(promise).GetMonitor(); m.GetRaised() {
		s.Raised = true
		s.AlarmOutcomes, s.AlarmAudits = t.readers.between(started, m.GetRaisedBy().AsTime().Add(promise.GetCohortPeriod().AsDuration()))
	}
	after := t.readers.truth
	s.Truth = float64(after.Missed-before.Missed) / float64(after.Critical-before.Critical)
	now, err := t.driftAlarms(ctx)
	s.DriftAlarms, s.Seconds = now-drifted, time.Since(started).Seconds()
	return s, err
}

// send streams one chunk of inputs, drawn with replacement, and has the readers answer. Each is a new
// case, with an id of its own.
func (t *trial) send(ctx context.Context, from []int) error {
	inputs := make([]int, chunk)
	for i := range inputs {
		inputs[i] = from[t.random.IntN(len(from))]
	}
	ids := idsOf(inputs)
	for i := range ids {
		ids[i] += "-" + strconv.Itoa(t.serial)
		t.serial++
	}
	results, err := streamInputs(ctx, t.client, t.readers.recording, inputs, ids, nil)
	if err != nil {
		return err
	}
	return t.readers.read(ctx, inputs, results)
}

// due waits until all outcomes are due, and returns the promise.
func (t *trial) due(ctx context.Context) (*ckdv1.PromiseFigures, error) {
	ctx, cancel := context.WithTimeout(ctx, dueTime)
	defer cancel()
	for {
		promise, err := t.promise(ctx)
		if err != nil {
			return nil, err
		}
		if promise.GetMature().GetDecided() > 0 && promise.GetMature().GetDecided() == promise.GetProvisional().GetDecided() {
			return promise, nil
		}
		if err := pause(ctx, 50*time.Millisecond); err != nil {
			return nil, fmt.Errorf("outcomes are not due: %w", err)
		}
	}
}

// promise returns the promise as it is now.
func (t *trial) promise(ctx context.Context) (*ckdv1.PromiseFigures, error) {
	reply, err := t.client.Outcomes().ListPromises(ctx, &ckdv1.ListPromisesRequest{Model: modelName})
	if err != nil {
		return nil, err
	}
	if n := len(reply.GetPromises()); n != 1 {
		return nil, fmt.Errorf("%d promises, expected one", n)
	}
	return reply.GetPromises()[0], nil
}

// pooled returns the critical FNR of all critical classes, nil for none.
func pooled(p *ckdv1.PromiseFigures) *ckdv1.RiskFigure {
	for _, f := range p.GetMature().GetFigures() {
		if f.GetFigure() == ckdv1.CertifiedFigure_CERTIFIED_FIGURE_CRITICAL_FNR && f.GetCriticalClass() == "" {
			return f
		}
	}
	return nil
}

var driftAlarms = regexp.MustCompile(`(?m)^ckd_drift_alarms_total\{.*\} ([0-9]+)$`)

// driftAlarms returns how often drift has raised an alarm, by the daemon's metrics.
func (t *trial) driftAlarms(ctx context.Context) (int, error) {
	request, err := http.NewRequestWithContext(ctx, http.MethodGet, t.metrics, nil)
	if err != nil {
		return 0, err
	}
	reply, err := http.DefaultClient.Do(request)
	if err != nil {
		return 0, err
	}
	defer reply.Body.Close()
	text, err := io.ReadAll(reply.Body)
	if err != nil {
		return 0, err
	}
	if !bytes.Contains(text, []byte("ckd_drift_alarm{")) {
		return 0, errors.New("the daemon does not look for drift")
	}
	alarms := 0
	for _, line := range driftAlarms.FindAllSubmatch(text, -1) { // series appear with the first alarm
		n, err := strconv.Atoi(string(line[1]))
		if err != nil {
			return 0, err
		}
		alarms += n
	}
	return alarms, nil
}

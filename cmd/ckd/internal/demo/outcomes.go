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
	"strings"
	"time"

	"golang.org/x/time/rate"

	"github.com/ckd-project/ckd/client"
	"github.com/ckd-project/ckd/cmd/ckd/internal/answer"
	"github.com/ckd-project/ckd/cmd/ckd/internal/report/document"
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

// outcomes holds the figures by outcomes of simulated readers, beside the one by all labels.
type outcomes struct {
	inputs, reviews, audits, outcomes, secondReads int
	// truth is the critical miss rate of all inputs, by their labels, which is unknown in practice. figure
	// has the weighted one, by outcomes, with its interval, and the naive average.
	truth   float64
	figure  *ckdv1.RiskFigure
	verdict string
	took    time.Duration
	shift   *shift // nil unless the demo makes one
}

// shift holds the figures after misses became more frequent.
type shift struct {
	inputs      int
	truth       float64 // critical miss rate since then, by the labels
	driftAlarms int     // of drift since then
	raised      bool
	// outcomes counts the outcomes of shifted inputs up to the end of the cohort, a second, that raised the
	// alarm; audits the audits among them.
	outcomes, audits int
	took             time.Duration
}

// says returns what outcomes say of the promise.
func (o *outcomes) says() string {
	average, judged := o.figure.GetAverage(), "verdict"
	if o.shift != nil {
		judged = "verdict before inputs like the missed ones came more often"
	}
	return fmt.Sprintf("Is it keeping its promise? Simulated readers looked at what was deferred, and at %s retained inputs drawn at random. By their %s outcomes "+
		"%s of critical inputs are missed (95%%, at all times: %.1f to %.1f); by the labels of all %s inputs %s. The naive average of the outcomes, %s, is wrong. "+
		"The alarm sounds above %s; %s: %s.",
		document.Count(o.audits), document.Count(o.outcomes), document.Percent(average.GetValue()), 100*average.GetLow(), 100*average.GetHigh(),
		document.Count(o.inputs), document.Percent(o.truth), document.Percent(o.figure.GetUnweighted()), document.Percent(o.figure.GetLine()), judged,
		strings.ReplaceAll(o.verdict, "_", " "))
}

// lead says what happened when misses became more frequent, as what the reader asked for.
func (s *shift) lead() string {
	if s == nil {
		return ""
	}
	said := fmt.Sprintf(" Then inputs like the missed ones came %d times as often, and %s of critical inputs were missed. Drift, which sees no labels, raised %s. ",
		shiftTimes, document.Percent(s.truth), strings.Replace(document.Noun(s.driftAlarms, "alarm"), "0 alarms", "no alarm", 1))
	if !s.raised {
		return said + fmt.Sprintf("Outcomes raised no alarm in %.1f s.", s.took.Seconds())
	}
	return said + fmt.Sprintf("Outcomes raised the alarm after %s of them, %s of which were audits, within %.1f s.", document.Count(s.outcomes),
		document.Count(s.audits), s.took.Seconds())
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
func (t *trial) outcomes(ctx context.Context, shown []int, progress func(answered, inputs int)) (*outcomes, error) {
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
	return &outcomes{
		inputs: r.inputs, reviews: r.reviews, audits: r.audits, outcomes: len(r.readings), secondReads: r.secondReads,
		truth: float64(r.missed) / float64(r.critical), figure: figure, verdict: answer.Word("VERDICT_", promise.GetPromise().GetVerdict()),
		took: time.Since(started),
	}, nil
}

// shift streams inputs among which missed ones are more frequent, until the alarm is raised.
func (t *trial) shift(ctx context.Context, shown, missed []int) (*shift, error) {
	inputs := shifted(shown, missed)
	drifted, err := t.driftAlarms(ctx)
	if err != nil {
		return nil, err
	}
	started, criticalBefore, missedBefore := time.Now(), t.readers.critical, t.readers.missed
	pace := rate.NewLimiter(shiftRate, chunk)
	s := &shift{}
	var promise *ckdv1.PromiseFigures
	for s.inputs < shiftInputs && !pooled(promise).GetMonitor().GetRaised() {
		if err := pace.WaitN(ctx, chunk); err != nil {
			return nil, err
		}
		if err := t.send(ctx, inputs); err != nil {
			return nil, err
		}
		s.inputs += chunk
		if promise, err = t.promise(ctx); err != nil {
			return nil, err
		}
	}
	if m := pooled(promise).GetMonitor(); m.GetRaised() {
		s.raised = true
		s.outcomes, s.audits = t.readers.between(started, m.GetRaisedBy().AsTime().Add(promise.GetCohortPeriod().AsDuration()))
	}
	s.truth = float64(t.readers.missed-missedBefore) / float64(t.readers.critical-criticalBefore)
	now, err := t.driftAlarms(ctx)
	s.driftAlarms, s.took = now-drifted, time.Since(started)
	return s, err
}

// shifted returns inputs among which the missed ones are more frequent.
func shifted(shown, missed []int) []int {
	inputs := shown
	for range shiftTimes - 1 {
		inputs = append(inputs[:len(inputs):len(inputs)], missed...)
	}
	return inputs
}

// ids returns an id of its own for each input: each is a new case.
func (t *trial) ids(inputs []int) []string {
	ids := idsOf(inputs)
	for i := range ids {
		ids[i] += "-" + strconv.Itoa(t.serial)
		t.serial++
	}
	return ids
}

// send streams one chunk of inputs, drawn with replacement, and has the readers answer.
func (t *trial) send(ctx context.Context, from []int) error {
	inputs := make([]int, chunk)
	for i := range inputs {
		inputs[i] = from[t.random.IntN(len(from))]
	}
	results, err := streamInputs(ctx, t.client, t.readers.recording, inputs, t.ids(inputs), nil)
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

// pooled returns the critical miss rate of all critical classes, nil for none.
func pooled(p *ckdv1.PromiseFigures) *ckdv1.RiskFigure {
	for _, f := range p.GetMature().GetFigures() {
		if f.GetFigure() == ckdv1.CertifiedFigure_CERTIFIED_FIGURE_CRITICAL_MISS_RATE && f.GetCriticalClass() == "" {
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

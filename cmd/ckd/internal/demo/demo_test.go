package demo

import (
	"context"
	"errors"
	"io"
	"math"
	"net/http"
	"regexp"
	"strings"
	"sync/atomic"
	"testing"
	"time"

	"github.com/ckd-project/ckd/decomp"
	"github.com/ckd-project/ckd/engine"
	"github.com/ckd-project/ckd/eval"
	"github.com/ckd-project/ckd/internal/recordings"
	"github.com/ckd-project/ckd/policy"
)

// TestReport computes offline what the demo reports of the daemon's answers.
func TestReport(t *testing.T) {
	var report *Report
	var answers atomic.Int64
	err := Run(t.Context(), Options{
		Listen: "127.0.0.1:0", HTTP: "127.0.0.1:0", Admin: "127.0.0.1:0", Log: io.Discard,
		Progress: func(answered, inputs int) {
			if answered == inputs {
				answers.Store(int64(answered))
			}
		},
		Ready: func(r *Report) error { report = r; return nil },
	})
	if err != nil {
		t.Fatal(err)
	}
	r, err := recordings.CTGMCDropout()
	if err != nil {
		t.Fatal(err)
	}
	tuning, shown := split(r.Passes.N)
	p, batch, o := tuned(t, r, tuning)
	var labels, predicted []int
	var retained []bool
	var meanC float64
	for _, i := range shown {
		if err := batch.Outcome(i, o); err != nil {
			t.Fatal(err)
		}
		labels, predicted = append(labels, r.Labels[i]), append(predicted, o.Predicted)
		retained = append(retained, o.Decision.Action == policy.Retain)
		meanC += o.C[2] / float64(len(shown))
	}
	s := eval.Select(labels, predicted, retained, r.Critical)
	ours := report.Rules[2]
	if ours.Missed != s.Missed || ours.Retained != s.Retained || ours.Critical != s.Critical || ours.CriticalFNR != s.CriticalFNR() ||
		ours.Accuracy != s.Accuracy() || report.Deferred != len(shown)-s.Retained {
		t.Errorf("the demo says %+v, offline %+v", ours, s)
	}
	if got := report.Classes[2].MeanC; math.Abs(got-meanC) > 1e-12 {
		t.Errorf("mean C_k of %s: %v, offline %v", report.Classes[2].Name, got, meanC)
	}
	if answers.Load() != int64(len(shown)) || report.Inputs != len(shown) || report.Policy.Hash != p.Hash {
		t.Errorf("%d answers, inputs %d, hash %s", answers.Load(), report.Inputs, report.Policy.Hash)
	}
	for i, d := range report.Top {
		if d.Value <= d.Threshold || d.Reason != "above_threshold" || i > 0 && d.Value/d.Threshold > report.Top[i-1].Value/report.Top[i-1].Threshold {
			t.Errorf("deferred %d: %+v", i, d)
		}
	}
	var text strings.Builder
	if err := report.WriteText(&text); err != nil {
		t.Fatal(err)
	}
	if n := strings.Count(text.String(), "is over"); n != len(report.Top) {
		t.Errorf("%d deferred inputs in the text, want %d", n, len(report.Top))
	}
}

// TestOutcomes checks that what outcomes say agrees with the labels of all inputs, and that the alarm is
// raised when misses become more frequent, although drift is silent.
func TestOutcomes(t *testing.T) {
	if testing.Short() {
		t.Skip("streams for several seconds")
	}
	var o *Outcomes
	err := Run(t.Context(), Options{
		Shift: true, Listen: "127.0.0.1:0", HTTP: "127.0.0.1:0", Admin: "127.0.0.1:0", Log: io.Discard,
		Ready: func(r *Report) error { o = r.Outcomes; return nil },
	})
	if err != nil {
		t.Fatal(err)
	}
	if o.Inputs < goodInputs || o.Audits == 0 || o.Audits >= o.Reviews || o.Reviews >= o.Outcomes || o.SecondReads == 0 {
		t.Errorf("counts: %+v", o)
	}
	// On a busy machine readers answer late, and what is overdue rules out that it is holding.
	if !(o.Low <= o.Truth && o.Truth <= o.High && o.High < o.Line) || o.Unweighted > o.Truth/2 || o.Verdict == "violated" {
		t.Errorf("the labels say %v, the outcomes %+v", o.Truth, o)
	}
	if s := o.Shift; !s.Raised || s.DriftAlarms != 0 || s.Truth < 1.5*o.Truth || s.AlarmAudits == 0 || s.AlarmAudits >= s.AlarmOutcomes {
		t.Errorf("shift: %+v", s)
	}
}

// tuned returns the tuned policy, and a function that decides by it offline.
func tuned(t *testing.T, r *recordings.Recording, tuning []int) (*policy.Policy, *engine.Batch, *engine.Outcome) {
	t.Helper()
	set, err := tune(r, tuning, settleText)
	if err != nil {
		t.Fatal(err)
	}
	p, _ := set.Get(modelName)
	m, err := engine.New(p)
	if err != nil {
		t.Fatal(err)
	}
	batch, o := m.NewBatch(), m.NewOutcome()
	if err := batch.Reset(decomp.Tensor{Passes: r.Passes.S, Inputs: r.Passes.N, Float32: r.Passes.Float32}); err != nil {
		t.Fatal(err)
	}
	return p, batch, o
}

// TestTuning checks that the thresholds retain the stated share of the tuning inputs routed to each
// score, and that no input is on both sides.
func TestTuning(t *testing.T) {
	r, err := recordings.CTGMCDropout()
	if err != nil {
		t.Fatal(err)
	}
	tuning, shown := split(r.Passes.N)
	seen := map[int]bool{}
	for _, i := range append(tuning, shown...) {
		seen[i] = true
	}
	if len(seen) != r.Passes.N || len(tuning) != r.Passes.N/2 {
		t.Fatalf("%d inputs in two halves, %d of them for tuning", len(seen), len(tuning))
	}
	_, batch, o := tuned(t, r, tuning)
	routed, retained := map[policy.GateOutcome]int{}, map[policy.GateOutcome]int{}
	for _, i := range tuning {
		if err := batch.Outcome(i, o); err != nil {
			t.Fatal(err)
		}
		routed[o.Decision.Gate]++
		if o.Decision.Value <= o.Decision.Threshold {
			retained[o.Decision.Gate]++
		}
	}
	for gate, n := range routed {
		if want := eval.Kept(coverage, n); retained[gate] != want {
			t.Errorf("%s: %d of %d tuning inputs retained, want %d", gate, retained[gate], n, want)
		}
	}
}

// TestKeep checks that the daemon stays up until the end of the context, with traffic that saves
// passes once the first inputs have been checked.
func TestKeep(t *testing.T) {
	ctx, cancel := context.WithTimeout(t.Context(), time.Minute) // a bound for a daemon that saves nothing
	defer cancel()
	saved := make(chan string, 1)
	err := Run(ctx, Options{
		Keep: true, Listen: "127.0.0.1:0", HTTP: "127.0.0.1:0", Admin: "127.0.0.1:0", Log: io.Discard, rate: 1e6,
		Ready: func(report *Report) error {
			if s := report.Policy.Settle; s == nil || s.Disagreement != 0.01 || s.Confidence != 0.9 || s.MeanPasses >= float64(report.Passes) {
				t.Errorf("the report says of the rule: %+v", s)
			}
			go func() {
				defer cancel()
				for ; ctx.Err() == nil; time.Sleep(10 * time.Millisecond) {
					if line := regexp.MustCompile(`ckd_passes_saved_total\{.*\} [1-9].*`).FindString(get(t, report.Addresses.Metrics)); line != "" {
						saved <- line
						return
					}
				}
			}()
			return nil
		},
	})
	if !errors.Is(err, context.Canceled) || len(saved) == 0 {
		t.Errorf("%d lines tell of saved passes; the demo ended with %v", len(saved), err)
	}
}

// get returns the body of a URL, or an empty text.
func get(t *testing.T, url string) string {
	t.Helper()
	answer, err := http.Get(url) //nolint:gosec,noctx // the demo's own address
	if err != nil {
		return ""
	}
	defer answer.Body.Close()
	text, err := io.ReadAll(answer.Body)
	if err != nil {
		return ""
	}
	return string(text)
}

func TestBar(t *testing.T) {
	for value, want := range map[float64]string{
		0: strings.Repeat(" ", 16), 1: "████████        ", 2: strings.Repeat("█", 16), 0.01: "▏               ", 1.9: "███████████████▎",
	} {
		if got := bar(value, []float64{2, value}); got != want {
			t.Errorf("bar of %v: %q, want %q", value, got, want)
		}
	}
	if got := bar(0, []float64{0, 0}); strings.TrimSpace(got) != "" {
		t.Errorf("bar of nothing: %q", got)
	}
}

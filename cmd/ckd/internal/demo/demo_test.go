package demo

import (
	"context"
	"errors"
	"fmt"
	"io"
	"math"
	"net/http"
	"regexp"
	"strings"
	"sync/atomic"
	"testing"
	"time"

	"github.com/jedib0t/go-pretty/v6/text"

	"github.com/ckd-project/ckd/cmd/ckd/internal/report/document"
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
	_, shown := split(r.Passes.N)
	p := committed(t)
	var labels, predicted []int
	var retained []bool
	decide(t, p, r, shown, func(o *engine.Outcome) {
		labels, predicted = append(labels, r.Labels[shown[len(labels)]]), append(predicted, o.Predicted)
		retained = append(retained, o.Decision.Action == policy.Retain)
	})
	if ours, want := report.rules()[4].Selective, eval.Select(labels, predicted, retained, r.Critical); ours != want {
		t.Errorf("the demo says %+v, offline %+v", ours, want)
	}
	if answers.Load() != int64(len(shown)) || report.model.GetPolicy().GetHash() != p.Hash {
		t.Errorf("%d answers, hash %s", answers.Load(), report.model.GetPolicy().GetHash())
	}
	last := math.Inf(1)
	for _, i := range report.caught() {
		d := report.results[i].Decomposition.GetDecision()
		if over := d.GetValue() / d.GetThreshold(); over <= 1 || over > last {
			t.Errorf("deferred %d: %v", i, d)
		} else {
			last = over
		}
	}
	without, ours := report.rules()[0], report.rules()[4]
	if caught := len(report.caught()); caught != without.Missed-ours.Missed {
		t.Errorf("%d inputs caught, %d of %d missed", caught, ours.Missed, without.Missed)
	}
	var out strings.Builder
	if err := report.WriteText(&out); err != nil {
		t.Fatal(err)
	}
	if lines := strings.Count(out.String(), "\n"); lines > document.ScreenLines || text.LongestLineLen(out.String()) > 100 {
		t.Errorf("%d lines of %d columns", lines, text.LongestLineLen(out.String()))
	}
	for _, want := range []string{fmt.Sprintf("misses %d of %d critical inputs", ours.Missed, without.Critical), "verdict: ", "What to do next"} {
		if !strings.Contains(strings.Join(strings.Fields(out.String()), " "), want) {
			t.Errorf("no %q in\n%s", want, out.String())
		}
	}
	if strings.Contains(out.String(), report.admin) {
		t.Errorf("it names the address of a daemon that ends with it:\n%s", out.String())
	}
}

// TestOutcomes checks that what outcomes say agrees with the labels of all inputs, and that the alarm is
// raised when misses become more frequent, although drift is silent.
func TestOutcomes(t *testing.T) {
	if testing.Short() {
		t.Skip("streams for several seconds")
	}
	var o *outcomes
	var log strings.Builder
	err := Run(t.Context(), Options{
		Shift: true, Listen: "127.0.0.1:0", HTTP: "127.0.0.1:0", Admin: "127.0.0.1:0", Log: &log,
		Ready: func(r *Report) error {
			o = r.outcomes
			var out strings.Builder
			err := r.WriteText(&out)
			if lines := strings.Count(out.String(), "\n"); lines > document.ScreenLines || text.LongestLineLen(out.String()) > 100 {
				t.Errorf("%d lines of %d columns", lines, text.LongestLineLen(out.String()))
			}
			return err
		},
	})
	if err != nil {
		t.Fatal(err)
	}
	if log.Len() > 0 {
		t.Errorf("the log breaks into the screen: %s", log.String())
	}
	if o.inputs < goodInputs || o.audits == 0 || o.audits >= o.reviews || o.reviews >= o.outcomes || o.secondReads == 0 {
		t.Errorf("counts: %+v", o)
	}
	average, line := o.figure.GetAverage(), o.figure.GetLine()
	// On a busy machine readers answer late, and what is overdue rules out that it is holding.
	if !(average.GetLow() <= o.truth && o.truth <= average.GetHigh() && average.GetHigh() < line) || o.figure.GetUnweighted() > o.truth/2 ||
		o.verdict == "violated" {
		t.Errorf("the labels say %v, the outcomes %s: %v", o.truth, o.verdict, o.figure)
	}
	if s := o.shift; !s.raised || s.driftAlarms != 0 || s.truth < 1.5*o.truth || s.audits == 0 || s.audits >= s.outcomes {
		t.Errorf("shift: %+v", s)
	}
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
	routed, retained := map[policy.GateOutcome]int{}, map[policy.GateOutcome]int{}
	decide(t, committed(t), r, tuning, func(o *engine.Outcome) {
		routed[o.Decision.Gate]++
		if o.Decision.Value <= o.Decision.Threshold {
			retained[o.Decision.Gate]++
		}
	})
	for gate, n := range routed {
		if want := eval.Kept(coverage, n); retained[gate] != want {
			t.Errorf("%s: %d of %d tuning inputs retained, want %d", gate, retained[gate], n, want)
		}
	}
}

// TestKeep checks that the daemon stays up until the end of the context, with traffic that saves
// passes once the first inputs have been checked.
func TestKeep(t *testing.T) {
	ctx, cancel := context.WithTimeout(t.Context(), 5*time.Minute) // a bound for a daemon that saves nothing
	defer cancel()
	saved := make(chan string, 1)
	err := Run(ctx, Options{
		Keep: true, Listen: "127.0.0.1:0", HTTP: "127.0.0.1:0", Admin: "127.0.0.1:0", Log: io.Discard, rate: 1e6,
		Ready: func(report *Report) error {
			var out strings.Builder
			if err := report.WriteText(&out); err != nil || !strings.Contains(out.String(), report.admin) {
				t.Errorf("%v, no address in\n%s", err, out.String())
			}
			if s := report.model.GetSettle(); s.GetDisagreement() != 0.01 || s.GetConfidence() != 0.9 || s.GetMeanPasses() >= float64(report.recording.Passes.S) {
				t.Errorf("the report says of the rule: %+v", s)
			}
			go func() {
				defer cancel()
				for ; ctx.Err() == nil; time.Sleep(100 * time.Millisecond) {
					text := get(t, report.admin+"/metrics")
					if line := regexp.MustCompile(`ckd_passes_saved_total\{.*\} [1-9].*`).FindString(text); line != "" {
						if !strings.Contains(text, `status="counted"} `) || strings.Contains(text, `model="fetal-health",status="duplicate"`) {
							t.Error("inputs that come again are no new cases")
						}
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

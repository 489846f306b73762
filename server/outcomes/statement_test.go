package outcomes_test

import (
	"math"
	"testing"
	"time"

	"github.com/ckd-project/ckd/internal/outcome/evidence"
	"github.com/ckd-project/ckd/internal/outcome/promise"
	"github.com/ckd-project/ckd/server/outcomes"
)

// date returns a day of 2026.
func date(month time.Month, day int) time.Time {
	return time.Date(2026, month, day, 0, 0, 0, 0, time.UTC)
}

// said returns a promise by a critical miss rate of 5% below a certified line of 10%, after a change.
func said(v promise.Verdict, change func(*promise.Promise, *promise.Figure)) *promise.Promise {
	p := &promise.Promise{Verdict: v, Since: date(time.January, 1), Cohorts: promise.Cohorts{Period: 24 * time.Hour, Since: date(time.March, 1)}}
	p.Mature.MissRate = promise.Figure{
		Risk: evidence.MissRate, Verdict: v, Value: 0.05, Low: 0.02, High: 0.08, AtSensitivity: promise.Limits{Value: 0.05, Low: 0.02, High: 0.08}, Outcomes: 900, Critical: 90,
		Model: promise.Limits{Value: 0.04, Low: 0.03, High: 0.05}, Line: 0.1, LineOrigin: "certified", Monitor: &promise.Monitor{},
	}
	change(p, &p.Mature.MissRate)
	return p
}

// violate raises the alarm of a figure.
func violate(f *promise.Figure) {
	f.Verdict = promise.Violated
	f.Monitor = &promise.Monitor{Raised: true, RaisedAt: date(time.November, 20), Since: &promise.Since{
		Start: date(time.November, 3), Rate: promise.Share{Value: 0.66, Low: 0.6, High: 0.72, Events: 41, Total: 62},
	}}
}

// earlier returns what outcomes of earlier policies say.
func earlier() *promise.Expected {
	return &promise.Expected{
		From: date(time.January, 1), Until: date(time.February, 28),
		MissRate: promise.Share{Value: 0.031, Low: 0.019, High: 0.046, Events: 25, Total: 812},
		FNR:      promise.Share{Value: 0.04, Low: 0.02, High: 0.06, Events: 25, Total: 700},
	}
}

// TestExpectedFigures checks that the estimate is a sentence beside the figures whatever the verdict.
func TestExpectedFigures(t *testing.T) {
	p := said(promise.Holding, func(p *promise.Promise, _ *promise.Figure) { p.Expected = earlier() })
	const want = "Decided again by this policy's rule, outcomes of earlier policies until 2026-02-28 say that 3.1% of all critical inputs are retained and called safe " +
		"(95%: 1.9% to 4.6%), by 25 misses among 812: an estimate, no evidence."
	if got := outcomes.DueFigures(p).GetExpected().GetStatement(); got != want {
		t.Errorf("\n got %s\nwant %s", got, want)
	}
	p.Expected.MissRate.Value = math.NaN()
	if got := outcomes.DueFigures(p).GetExpected(); got.GetStatement() != "" || got.GetCriticalMissRate().GetShare() != nil {
		t.Errorf("of nothing: %v", got)
	}
}

// TestStatement checks the words of a promise by verdict and by the origin of its line.
func TestStatement(t *testing.T) {
	const average = " On average since 2026-03-01, 5% of all critical inputs are retained and called safe (95%: 2% to 8%), by 900 outcomes, 90 of them critical"
	const since = " Since about 2026-11-03, 66% of all critical inputs are retained and called safe (95%: 60% to 72%), by 41 misses among 62; that date is chosen by looking." +
		" The average since 2026-03-01, 5% (95%: 2% to 8%), still includes the good time before."
	for name, c := range map[string]struct {
		promise *promise.Promise
		want    string
	}{
		"holding": {
			said(promise.Holding, func(*promise.Promise, *promise.Figure) {}),
			"The promise holds." + average + "; the line is 10%, certified.",
		},
		"raised": {
			said(promise.Holding, func(_ *promise.Promise, f *promise.Figure) { f.LineOrigin = "stated by dr. eve on 2026-03-05" }),
			"The promise holds." + average + "; the line is 10%, stated by dr. eve on 2026-03-05.",
		},
		"holding by the model": {
			said(promise.Holding, func(_ *promise.Promise, f *promise.Figure) { f.AtSensitivity.High = 0.12 }),
			"The promise holds." + average + "; the line is 10%, certified. Over all policies of the model since 2026-01-01 the critical miss rate is 4% (95%: 3% to 5%).",
		},
		"certified": {
			said(promise.Violated, func(_ *promise.Promise, f *promise.Figure) { violate(f) }),
			"Alarm since 2026-11-20: the critical miss rate is above the 10% that was certified, so that the certificate is void." + since,
		},
		"expected": {
			said(promise.Violated, func(_ *promise.Promise, f *promise.Figure) { violate(f); f.LineOrigin = "expected at most" }),
			"Alarm since 2026-11-20: the critical miss rate is above the 10% that was expected at most." + since,
		},
		"stated": {
			said(promise.Violated, func(_ *promise.Promise, f *promise.Figure) {
				violate(f)
				f.LineOrigin = "stated by dr. eve on 2026-03-05"
			}),
			"Alarm since 2026-11-20: the critical miss rate is above the line of 10% that dr. eve stated on 2026-03-05." + since,
		},
		"several": {
			said(promise.Violated, func(p *promise.Promise, f *promise.Figure) {
				violate(f)
				class := *f
				class.Class, class.LineOrigin = "melanoma", ""
				p.Mature.Classes = []promise.Figure{class, class, class}
			}),
			"Alarm since 2026-11-20: the critical miss rate is above the 10% that was certified, so that the certificate is void; the critical miss rate of melanoma is above its line of 10%; " +
				"the critical miss rate of melanoma is above its line of 10%; and 1 more." + since,
		},
		"of a new policy": {
			said(promise.Violated, func(_ *promise.Promise, f *promise.Figure) { violate(f); f.Value, f.Monitor.Since = math.NaN(), nil }),
			"Alarm since 2026-11-20: the critical miss rate is above the 10% that was certified, so that the certificate is void. No critical input has come back yet, of outcomes that are due.",
		},
		"in doubt": {
			said(promise.InDoubt, func(_ *promise.Promise, f *promise.Figure) { f.Monitor.LogEvidence = 0.72 }),
			"Whether the promise holds is in doubt: the evidence against the critical miss rate is at 72% of what raises the alarm." + average + "; the line is 10%, certified.",
		},
		"in doubt by the model": {
			said(promise.InDoubt, func(_ *promise.Promise, f *promise.Figure) {
				f.Model = promise.Limits{Value: 0.2, Low: 0.15, High: 0.3}
			}),
			"Whether the promise holds is in doubt: the interval of the critical miss rate lies above its line." + average +
				"; the line is 10%, certified. Over all policies of the model since 2026-01-01 the critical miss rate is 20% (95%: 15% to 30%).",
		},
		"certified FNR": {
			said(promise.TooFew, func(p *promise.Promise, f *promise.Figure) {
				f.Verdict = promise.Holding
				fnr := *f
				fnr.Risk, fnr.Verdict = evidence.FNR, promise.TooFew
				p.Mature.FNRs = []promise.Figure{fnr}
			}),
			"Too few outcomes to tell whether the promise holds. On average since 2026-03-01, 5% of the retained critical inputs are called safe (95%: 2% to 8%), " +
				"by 900 outcomes, 90 of them critical; the line is 10%, certified.",
		},
		"missing": {
			said(promise.TooFew, func(p *promise.Promise, f *promise.Figure) {
				f.Verdict, p.Why = promise.Holding, []string{"9 of 90 outcomes of inputs called safe are overdue, at most 5% may be"}
			}),
			"Whether the promise holds is not known: 9 of 90 outcomes of inputs called safe are overdue, at most 5% may be." + average + "; the line is 10%, certified.",
		},
		"expected of a new policy": {
			said(promise.TooFew, func(p *promise.Promise, f *promise.Figure) {
				f.Value, p.Expected = math.NaN(), earlier()
			}),
			"Too few outcomes to tell whether the promise holds. No critical input has come back yet, of outcomes that are due; the line is 10%, certified. " +
				"Decided again by this policy's rule, outcomes of earlier policies until 2026-02-28 say that 3.1% of all critical inputs are retained and called safe " +
				"(95%: 1.9% to 4.6%), by 25 misses among 812: an estimate, no evidence.",
		},
		"expected where nothing was seen": {
			said(promise.TooFew, func(p *promise.Promise, f *promise.Figure) {
				f.Value, p.Expected = math.NaN(), earlier()
				p.Expected.MissRate.Value = math.NaN()
			}),
			"Too few outcomes to tell whether the promise holds. No critical input has come back yet, of outcomes that are due; the line is 10%, certified.",
		},
		"expected of a policy with outcomes": {
			said(promise.Holding, func(p *promise.Promise, _ *promise.Figure) { p.Expected = earlier() }),
			"The promise holds." + average + "; the line is 10%, certified.",
		},
		"cleared": {
			said(promise.TooFew, func(_ *promise.Promise, f *promise.Figure) {
				f.Value, f.Monitor.Cleared = math.NaN(), date(time.March, 5)
			}),
			"The alarm was cleared on 2026-03-05; whether the promise holds since then is not known yet. No critical input has come back yet, of outcomes that are due; the line is 10%, certified.",
		},
		"no line": {
			said(promise.NoLine, func(_ *promise.Promise, f *promise.Figure) { f.Monitor, f.Line, f.LineOrigin = nil, math.NaN(), "" }),
			"The policy has no line that its misses could be held against." + average + ".",
		},
	} {
		if got := outcomes.Statement(c.promise); got != c.want {
			t.Errorf("%s:\n got %s\nwant %s", name, got, c.want)
		}
		at := c.promise.Mature.MissRate.Monitor
		if got := outcomes.DueFigures(c.promise).GetMature().GetFigures()[0].GetMonitor().GetClearedAt(); (got != nil) != (at != nil && !at.Cleared.IsZero()) {
			t.Errorf("%s: cleared at %v, expected that of %+v", name, got, at)
		}
	}
}

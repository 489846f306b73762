package main

import (
	"fmt"
	"strings"
	"testing"
	"time"

	"google.golang.org/protobuf/types/known/timestamppb"

	ckdv1 "github.com/ckd-project/ckd/proto/ckd/v1"
)

// figuresOf returns a promise with all that can be printed.
func figuresOf(model string, verdict ckdv1.Verdict) *ckdv1.PromiseFigures {
	line, unweighted, needed, inputs := 0.12, 0.003, 41.5, 6_616_123.
	risk := func(f ckdv1.CertifiedFigure, class string) *ckdv1.RiskFigure {
		return &ckdv1.RiskFigure{Figure: f, CriticalClass: class, Average: &ckdv1.Share{Value: .136, Low: .1, High: .2}, Line: &line, Outcomes: 812,
			Monitor: &ckdv1.RiskMonitor{LogEvidence: .5, RunLength: 4e6, RunLengthInputs: &inputs}, Unweighted: &unweighted, OutcomesNeeded: &needed,
			Overdue: &ckdv1.Share{Low: .1, High: .3}}
	}
	p := &ckdv1.PromiseFigures{
		Promise: &ckdv1.Promise{Policy: &ckdv1.PolicyRef{Model: model, Hash: strings.Repeat("ab", 32)}, Verdict: verdict, Statement: "A sentence about " + model + "."},
		Why:     []string{"one", "two", "three", "four"},
		Mature: &ckdv1.OutcomeSummary{Figures: []*ckdv1.RiskFigure{risk(ckdv1.CertifiedFigure_CERTIFIED_FIGURE_CRITICAL_MISS_RATE, "")},
			YieldWrong: &ckdv1.CountedShare{Share: &ckdv1.Share{Value: .3, Low: .2, High: .4}}, Readers: &ckdv1.ReaderAgreement{Missed: 17, Unconfirmed: 3}},
		Expected: &ckdv1.Expectation{Statement: "Outcomes of earlier policies say 3.1%."},
		Traffic:  &ckdv1.CountedShare{Share: &ckdv1.Share{Value: .5}},
	}
	for n := range 8 {
		p.Mature.Figures = append(p.Mature.Figures, risk(ckdv1.CertifiedFigure_CERTIFIED_FIGURE_CRITICAL_MISS_RATE, fmt.Sprint("class", n)))
	}
	for n := range 3 {
		p.Strata = append(p.Strata, &ckdv1.StratumCount{Stratum: ckdv1.Stratum(n + 1), Decisions: 1900, Due: 40, Overdue: 2, Late: &ckdv1.CountedShare{Share: &ckdv1.Share{Value: .05}}})
	}
	return p
}

// TestFiguresText checks that the sentence to decide by comes first, that of the worst before the others, and what to do
// where an alarm is up after it; that the figures of one promise take 26 lines, and all of it 40 unless asked for more.
func TestFiguresText(t *testing.T) {
	one := figuresOf("one", ckdv1.Verdict_VERDICT_TOO_FEW_OUTCOMES)
	text := promiseText(one)
	if n := strings.Count(text, "\n"); n > 26 {
		t.Errorf("%d lines, expected 26 at most:\n%s", n, text)
	}
	wantFragments(t, text, " critical miss rate 13.6% (10% to 20%) not known 12% 50% 812 ", " called critical 1,900 0 40 0 2 (5%) ", "Naive average of the outcomes (wrong): 0.3%.",
		"About 42 more outcomes", "one in 4,000,000 outcomes, about 6,620,000 inputs", "if all were 30%", "Only 50% of the inputs", "17 inputs called safe and read as critical, 3 are unconfirmed")
	wantFragments(t, text, "earlier policies say 3.1%")
	one.Promise.Statement += " " + one.Expected.Statement
	if strings.Contains(promiseText(one), "earlier policies") {
		t.Error("what the statement has is printed again")
	}
	holding := figuresOf("well", ckdv1.Verdict_VERDICT_HOLDING)
	violated := figuresOf("ill", ckdv1.Verdict_VERDICT_VIOLATED)
	violated.Mature.Figures[0].Monitor.Raised = true
	violated.Mature.Figures[0].Monitor.Since = timestamppb.New(time.Date(2026, 11, 3, 9, 0, 0, 0, time.UTC))
	alone := strings.Split(figuresText([]*ckdv1.PromiseFigures{violated}, false), "\n")
	if alone[0] != violated.Promise.Statement || !strings.HasPrefix(alone[1], "What to do: defer") || !strings.Contains(alone[1], "since 2026-11-03 09:00") ||
		!strings.Contains(alone[1], "clear --model ill") {
		t.Errorf("expected the statement and what to do first:\n%s", strings.Join(alone, "\n"))
	}
	text = figuresText([]*ckdv1.PromiseFigures{holding, one, violated}, false)
	if lines := strings.Split(text, "\n"); !strings.HasPrefix(lines[0], "ill, version not stated, policy abababababab: A sentence about ill.") || !strings.HasPrefix(lines[2], "well, ") {
		t.Errorf("expected the violated promise first and the one that holds last:\n%s", text)
	}
	if n := strings.Count(text, "\n"); n > mostLines || strings.Contains(figuresText([]*ckdv1.PromiseFigures{holding}, false), "What to do") {
		t.Errorf("%d lines:\n%s", n, text)
	}
	wantFragment(t, text, "Figures of 2 more: --all")
	wantFragments(t, text, "50% ALARM")
	text = figuresText([]*ckdv1.PromiseFigures{holding, one, violated}, true)
	if n := strings.Count(text, "share missed"); n != 3 {
		t.Errorf("figures of %d promises with --all, expected 3", n)
	}
	var many []*ckdv1.PromiseFigures
	for n := range 100 {
		many = append(many, figuresOf(fmt.Sprint("m", n), ckdv1.Verdict_VERDICT_HOLDING))
	}
	if text := figuresText(many, false); strings.Count(text, "\n") > mostLines || !strings.Contains(text, "... and 90 more") {
		t.Errorf("%s", text)
	}
	wantFragment(t, figuresText(nil, false), "Nothing is known")
}

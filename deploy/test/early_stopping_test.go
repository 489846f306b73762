package deploytest

import (
	"path/filepath"
	"strings"
	"testing"

	"github.com/ckd-project/ckd/client"
	"github.com/ckd-project/ckd/integration_test/testbed"
	"github.com/ckd-project/ckd/internal/monitor/fullpass"
	"github.com/ckd-project/ckd/internal/record"
	"github.com/ckd-project/ckd/policy"
	"github.com/ckd-project/ckd/policy/earlystop"
)

// stopAfter is the number of passes after which the rule of stopEarly decides any input.
const stopAfter = 5

// stopEarly adds a rule to the policy of a file that decides all inputs after the same number of
// passes, with a certificate of the given shares.
func stopEarly(t *testing.T, path string, disagreement, released float64) {
	t.Helper()
	parse := func(text string) policy.Policy {
		t.Helper()
		set, err := policy.Parse(policy.File{Name: filepath.Base(path), Data: []byte(text)})
		if err != nil {
			t.Fatal(err)
		}
		return *set.All()[0]
	}
	p := parse(getFile(t, path))
	p.FewestPasses = stopAfter // it was calibrated without a rule, and accepts no fewer than the recording has
	whatever := &earlystop.Form{Boundaries: []earlystop.Boundary{
		{Passes: stopAfter, Retain: earlystop.Never, Defer: earlystop.Never},
		{Passes: p.ExpectedPasses - 1, Retain: earlystop.Never, Defer: earlystop.Never},
	}}
	p.EarlyStopping = &policy.EarlyStopping{
		PolicyHash: p.HashWithoutEarlyStop(), Order: policy.AnyOrder, Rule: whatever.Rule(p.ExpectedPasses, 0), MeanPasses: stopAfter,
		Certificate: policy.EarlyStopCertificate{Disagreement: disagreement, Confidence: 0.9, Released: policy.ReleasedShare{AtMost: released}},
	}
	calibration := *p.Calibration
	stopping := parse(string(p.Marshal()))
	calibration.PolicyHash = stopping.HashWithoutLines()
	p.Calibration = &calibration
	putFile(t, path, string(p.Marshal()))
}

// sendStopping sends a recording as a client that accepts results before the last pass and leaves
// decided inputs out. None of the first inputs may be decided early. It returns how many were.
func sendStopping(t *testing.T, d *testbed.Daemon, model, path string, none int) (settled int) {
	t.Helper()
	passes, err := record.ReadPasses(path, record.Options{})
	if err != nil {
		t.Fatal(err)
	}
	c, err := client.Dial(d.GRPC[0])
	if err != nil {
		t.Fatal(err)
	}
	defer c.Close()
	s, err := c.Session(t.Context(), client.SessionConfig{Model: model, AcceptSettled: true})
	if err != nil {
		t.Fatal(err)
	}
	defer s.Close()
	if !s.Info().GetSettles() {
		t.Fatalf("%s: inputs are not settled at present", model)
	}
	const inputs = 100 // inputs of a group
	for first := 0; first < passes.N; first += inputs {
		open := min(inputs, passes.N-first)
		g, err := s.Open(t.Context(), make([]string, open))
		if err != nil {
			t.Fatal(err)
		}
		for pass := range passes.S {
			if pass == stopAfter && first >= none {
				// The few inputs that are checked need all passes.
				testbed.Eventually(t, "most inputs of the group are answered", func() bool { return len(g.Rows()) <= open/2 })
			}
			rows, values := g.Rows(), []float32{}
			if len(rows) == 0 {
				break
			}
			for _, row := range rows {
				values = append(values, passes.Float32[(pass*passes.N+first+row)*passes.K:][:passes.K]...)
			}
			if err := g.SendRows(rows, values); err != nil {
				t.Fatal(err)
			}
		}
		results, err := g.Wait(t.Context())
		if err != nil {
			t.Fatal(err)
		}
		for _, r := range results {
			if r.Err != nil {
				t.Fatal(r.Err)
			}
			if r.Settled() {
				settled++
			}
		}
	}
	return settled
}

// TestPageEarlyStopping checks that the page shows what early stopping saves, what its full-pass
// checks say, and that it has stopped. Without a rule in force it shows none of that.
func TestPageEarlyStopping(t *testing.T) {
	t.Parallel()
	path := calibrated(t)
	without := getFile(t, path)
	d := testbed.Serve(t, ckd, "--policy", path)
	b := open(t, d.Admin+"/?model=digits&span=15")
	b.until(`document.querySelector("#inputs")?.value === "0"`, "the page is there")
	if !get[bool](b, `!document.querySelector("#settling").checkVisibility() && !document.querySelector('nav a[href="#settling"]').checkVisibility()`) {
		t.Error("without a rule there is a section on early stopping")
	}
	stopEarly(t, path, 0.5, 0.9)
	b.until(`document.querySelector("#settling").checkVisibility() && document.querySelector('nav a[href="#settling"]').checkVisibility()`,
		"with a rule there is a section on early stopping")
	b.until(`document.querySelector('[data-part="settling-passes"]').textContent.includes("No inputs came that might be decided early")`, "no inputs came")

	const inputs = 506
	settled := sendStopping(t, d, "digits", recording("digits-id"), int(fullpass.NewSampler(0).First)) + sendStopping(t, d, "digits", recording("digits-id"), 0)
	if settled < inputs { // all but the first 400 and a few
		t.Errorf("%d inputs of %d were decided early", settled, 2*inputs)
	}
	b.until(`document.querySelector("#inputs")?.value === "1012"`, "the page counts the inputs")
	m := d.Metrics()
	b.equals("#passes-used", m.Sum("ckd_passes_used_sum", "model", "digits")/m.Sum("ckd_passes_used_count", "model", "digits"))
	for key, name := range map[string]string{"saved": "ckd_passes_saved_total"} {
		b.equals(`[data-part="settling-passes"] tr[data-key="`+key+`"] td:nth-child(3) data`, m.Sum(name, "model", "digits"))
	}
	for key, name := range map[string]string{"audited": "ckd_early_stop_checked_total", "disagreed": "ckd_early_stop_disagreements_total", "lost": "ckd_early_stop_checks_lost_total"} {
		b.equals(`[data-part="settling-watch"] tr[data-key="`+key+`"] td:nth-child(3) data`, m.Sum(name, "model", "digits"))
	}
	b.equals(`[data-part="settling-watch"] tr[data-key="all"] td:nth-child(2) data`, m.Sum("ckd_early_stop_disagreement", "bound", "high", "inputs", "all"))
	b.equals(`[data-part="settling-watch"] tr[data-key="all"] td:nth-child(3) data`, 0.5)
	b.equals(`[data-part="settling-watch"] tr[data-key="deferred"] td:nth-child(2) data`, m.Sum("ckd_early_stop_disagreement", "bound", "high", "inputs", "deferred"))
	b.equals(`#settling-evidence`, m.Sum("ckd_early_stop_evidence", "model", "digits"))
	if m.Sum("ckd_early_stop_disagreements_total") == 0 || m.Sum("ckd_passes_saved_total") == 0 {
		t.Error("nothing was saved, or all full-pass checks agreed: there is nothing to be seen")
	}
	if got := b.text("#settling-h"); !strings.Contains(got, "in force") || strings.Contains(got, "stopped") {
		t.Errorf("the section is called %q", got)
	}
	rules(t, b)
	for _, scheme := range []string{"light", "dark"} {
		b.scheme(scheme)
		contrast(t, b, scheme)
	}
	b.screenshot("triage-settling-dark.png")
	b.scheme("light")
	b.narrow()
	b.screenshot("triage-settling-phone.png")
	b.window(1440, 900, false)

	putFile(t, path, without)
	b.until(`!document.querySelector("#settling").checkVisibility()`, "without a rule the section goes")
	stopEarly(t, path, 0.001, 0.9)
	b.until(`document.querySelector("#settling").checkVisibility()`, "and comes again")
	sendStopping(t, d, "digits", recording("digits-id"), inputs)
	b.until(`document.querySelector('[data-part="attention"]').textContent.includes("Early stopping has ended") &&
		document.querySelector("#settling-h").textContent.includes("stopped")`,
		"far more disagreement than is certified ends early stopping, which is shown")
	if got := b.text(`[role="status"]`); !strings.Contains(got, "Early stopping has ended") {
		t.Errorf("screen readers are told %q", got)
	}
	if stopped := d.Metrics().Sum("ckd_early_stop_halted"); stopped != 1 {
		t.Errorf("ckd_early_stop_halted is %v", stopped)
	}
	b.screenshot("triage-settling-stopped.png")
	b.clean(d)
}

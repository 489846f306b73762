package deploytest

import (
	"os"
	"path/filepath"
	"strings"
	"testing"
	"time"

	"github.com/ckd-project/ckd/client"
	"github.com/ckd-project/ckd/integration_test/testbed"
	"github.com/ckd-project/ckd/internal/record"
	"github.com/ckd-project/ckd/policy"
	"github.com/ckd-project/ckd/settle"
	"github.com/ckd-project/ckd/settle/audit"
)

// settledAfter is how many passes settle any input under the rule of settleAll.
const settledAfter = 5

// settleAll gives the policy of a file, which has none, a rule that settles all inputs
// after the same number of passes, and says what of it is certified.
func settleAll(t *testing.T, path string, disagreement, released float64) {
	t.Helper()
	text, err := os.ReadFile(path)
	if err != nil {
		t.Fatal(err)
	}
	parse := func(text []byte) policy.Policy {
		t.Helper()
		set, err := policy.Parse(policy.File{Name: filepath.Base(path), Data: text})
		if err != nil {
			t.Fatal(err)
		}
		return *set.All()[0]
	}
	p := parse(text)
	rule := settle.Rule{Passes: p.ExpectedPasses, Fewest: settledAfter}
	for range rule.Passes - rule.Fewest {
		whatever := settle.Side{AtMost: settle.Never, Coefficients: [settle.Terms]float64{1}}
		step := settle.Step{Retain: whatever, Defer: whatever}
		rule.Steps = append(rule.Steps, step)
	}
	p.Settle = &policy.Settle{
		PolicyHash: p.HashWithoutSettle(), Order: policy.AnyOrder, Rule: rule, MeanPasses: settledAfter,
		Certificate: policy.SettleCertificate{Disagreement: disagreement, Confidence: 0.9, Released: policy.ReleasedShare{AtMost: released}},
	}
	calibration := *p.Calibration
	calibration.PolicyHash = parse(p.Marshal()).Hash
	p.Calibration = &calibration
	if err := os.WriteFile(path, p.Marshal(), 0o600); err != nil {
		t.Fatal(err)
	}
}

// sendSettling sends a recording as a client does that takes results before the last
// pass, and leaves out inputs that are settled: of the first inputs none is. It returns
// how many were.
func sendSettling(t *testing.T, d *testbed.Daemon, model, path string, none int) (settled int) {
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
	const inputs = 100 // in a group
	for first := 0; first < passes.N; first += inputs {
		open := min(inputs, passes.N-first)
		g, err := s.Open(t.Context(), make([]string, open))
		if err != nil {
			t.Fatal(err)
		}
		for pass := range passes.S {
			if pass == settledAfter && first >= none {
				awaitSettled(t, g, open)
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

// awaitSettled waits until a group has the answers to inputs that are settled: nearly all,
// as few are audited.
func awaitSettled(t *testing.T, g *client.Group, inputs int) {
	t.Helper()
	for range 2000 {
		if len(g.Rows()) <= inputs/2 {
			return
		}
		time.Sleep(10 * time.Millisecond)
	}
	t.Fatalf("within 20 s %d inputs of %d have no answer", len(g.Rows()), inputs)
}

// TestPageSettles: the page says what settling saves and what its audits say, and that
// it has stopped; where no rule is in force it says nothing of it.
func TestPageSettles(t *testing.T) {
	path := calibrated(t)
	without, err := os.ReadFile(path)
	if err != nil {
		t.Fatal(err)
	}
	d := testbed.Serve(t, ckd, "--policy", path)
	b := open(t, d.Admin+"/?model=digits&span=15")
	b.until(`document.querySelector("#inputs")?.value === "0"`, "the page is there")
	if !get[bool](b, `!document.querySelector("#settling").checkVisibility() && !document.querySelector('nav a[href="#settling"]').checkVisibility()`) {
		t.Error("without a rule there is a section on settling")
	}
	settleAll(t, path, 0.5, 0.9)
	b.until(`document.querySelector("#settling").checkVisibility() && document.querySelector('nav a[href="#settling"]').checkVisibility()`,
		"with a rule there is a section on settling")
	b.until(`document.querySelector('[data-part="settling-passes"]').textContent.includes("No inputs that might be settled came")`, "no inputs came")

	const inputs = 506
	settled := sendSettling(t, d, "digits", recordings+"digits-id.passes.npy", audit.DefaultFirst) + sendSettling(t, d, "digits", recordings+"digits-id.passes.npy", 0)
	if settled < inputs { // but for the first 400 and a few
		t.Errorf("%d inputs of %d were settled", settled, 2*inputs)
	}
	b.until(`document.querySelector("#inputs")?.value === "1012"`, "the page counts the inputs")
	m := scrape(t, d)
	b.equals("#passes-used", m.sum("ckd_passes_used_sum", `model="digits"`)/m.sum("ckd_passes_used_count", `model="digits"`))
	for key, name := range map[string]string{"saved": "ckd_passes_saved_total", "audits": "ckd_settle_passes_audited_total"} {
		b.equals(`[data-part="settling-passes"] tr[data-key="`+key+`"] td:nth-child(3) data`, m.sum(name, `model="digits"`))
	}
	for key, name := range map[string]string{"audited": "ckd_settle_audited_total", "disagreed": "ckd_settle_disagreements_total", "lost": "ckd_settle_audits_lost_total"} {
		b.equals(`[data-part="settling-audits"] tr[data-key="`+key+`"] td:nth-child(3) data`, m.sum(name, `model="digits"`))
	}
	b.equals(`[data-part="settling-audits"] tr[data-key="all"] td:nth-child(2) data`, m.sum("ckd_settle_disagreement_high", `of="all"`))
	b.equals(`[data-part="settling-audits"] tr[data-key="all"] td:nth-child(3) data`, 0.5)
	b.equals(`[data-part="settling-audits"] tr[data-key="deferred"] td:nth-child(2) data`, m.sum("ckd_settle_disagreement_high", `of="deferred"`))
	b.equals(`#settling-evidence`, m.sum("ckd_settle_evidence", `model="digits"`))
	if m.sum("ckd_settle_disagreements_total") == 0 || m.sum("ckd_passes_saved_total") == 0 {
		t.Error("nothing was saved, or all audits agreed: there is nothing to be seen")
	}
	if got := b.text("#settling-h"); !strings.Contains(got, "settling") || strings.Contains(got, "stopped") {
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

	if err := os.WriteFile(path, without, 0o600); err != nil {
		t.Fatal(err)
	}
	b.until(`!document.querySelector("#settling").checkVisibility()`, "without a rule the section goes")
	settleAll(t, path, 0.001, 0.9)
	b.until(`document.querySelector("#settling").checkVisibility()`, "and comes again")
	sendSettling(t, d, "digits", recordings+"digits-id.passes.npy", inputs)
	b.until(`document.querySelector('[data-part="attention"]').textContent.includes("Settling has stopped") &&
		document.querySelector("#settling-verdict time") !== null && document.querySelector("#settling-h").textContent.includes("stopped")`,
		"far more disagreement than is certified stops settling, which is shown, and when")
	if got := b.text(`[role="status"]`); !strings.Contains(got, "Settling has stopped") {
		t.Errorf("screen readers are told %q", got)
	}
	if stopped := scrape(t, d).sum("ckd_settle_stopped"); stopped != 1 {
		t.Errorf("ckd_settle_stopped is %v", stopped)
	}
	b.screenshot("triage-settling-stopped.png")
	b.clean(d)
}

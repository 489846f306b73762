package deploytest

import (
	"encoding/json"
	"fmt"
	"net/http"
	"net/http/httptest"
	"slices"
	"strings"
	"sync"
	"testing"
	"time"

	"github.com/ckd-project/ckd/integration_test/testbed"
	"github.com/ckd-project/ckd/internal/pagestate"
	"github.com/ckd-project/ckd/web/triage"
)

// TestPageNews checks that the page shows and announces when nothing new comes, and when it comes again.
func TestPageNews(t *testing.T) {
	t.Parallel()
	state := acted("a", "b")
	d := serveState(t, state)
	b := open(t, d.Admin)
	const announced = `document.querySelector("#announcer").textContent`
	b.until(`document.querySelector("#connection").dataset.state === "live"`, "it is live")
	get[int](b, `(() => { const was = performance.now.bind(performance); performance.now = () => was() + 30000; return 0 })()`)
	b.until(`document.querySelector("#connection").dataset.state === "old"`, "after 30 s of the clock there is no news")
	b.until(announced+`.includes("No news")`, "it is announced")
	if got := get[string](b, `document.title`); !strings.Contains(got, "no news") {
		t.Errorf("the title is %q", got)
	}
	d.show(state)
	b.until(`document.querySelector("#connection").dataset.state === "live" && `+announced+`.includes("Live again")`, "it is live again, and said to be")
	if got := get[string](b, `document.title`); got != "acted: ckd triage" {
		t.Errorf("the title is %q", got)
	}
}

// TestPageGone checks that a model that is no longer served is a warning, and cannot be chosen.
func TestPageGone(t *testing.T) {
	t.Parallel()
	state := acted("a", "b")
	d := serveState(t, state)
	b := open(t, d.Admin+"/?model=acted")
	b.until(`document.querySelector("#attention").dataset.level === "none"`, "there is nothing to attend to")
	gone := *state
	gone.Model, gone.Models = nil, []string{"other"}
	d.show(&gone)
	b.until(`document.querySelector("#attention").dataset.level === "warn"`, "it is a warning")
	const says = `No model "acted" is served`
	for _, selector := range []string{"#attention", "#announcer"} {
		if got := b.text(selector); !strings.Contains(got, says) {
			t.Errorf("%s says %q", selector, got)
		}
	}
	if got := get[string](b, `[...document.querySelectorAll("#model option")].map((o) => o.textContent + (o.selected ? ", chosen" : "") + (o.disabled ? ", disabled" : "")).join("; ")`); got != "other; acted (not served), chosen, disabled" {
		t.Errorf("the chooser has %q", got)
	}
	if n := b.count(`#attention a`); n != 0 {
		t.Error("there is a link to what is not shown")
	}
	d.show(state)
	b.until(`document.querySelector("#announcer").textContent === "Nothing needs attention." && document.querySelector("#model option:disabled") === null`, "it is served again")
}

// TestPageDegenerate checks that what does not look like passes is the page's first line, before other
// alarms, and names what was done to it.
func TestPageDegenerate(t *testing.T) {
	t.Parallel()
	state := acted("a", "b")
	state.Daemon.Reload.OK = false
	for i := range state.Model.Spans {
		s := &state.Model.Spans[i]
		s.Inputs, s.Deferred, s.Degenerate = 1000, 1000, 900
		s.Reasons = []pagestate.Reason{{Reason: "softmax_twice", Count: 880}, {Reason: "degenerate", Count: 20}}
	}
	b := open(t, serveState(t, state).Admin)
	const first = `document.querySelector("#attention li").textContent`
	b.until(`document.querySelectorAll("#attention li").length >= 2 && `+first+`.includes("softmax was taken twice")`, "it comes first")
}

// TestPageNotices checks that the page warns of a fallback score that decides most inputs unless the policy was
// calibrated so, and notes once that nothing certifies the thresholds. A policy that only observes has neither.
func TestPageNotices(t *testing.T) {
	t.Parallel()
	const fallback, uncertified = "The fallback score decided 95.0% of the inputs", "No certificate"
	d := serveState(t, acted("a", "b"))
	b := open(t, d.Admin)
	inputs := 1000.0 // differs by state, so that the test can wait for it
	for name, c := range map[string]struct {
		change func(m *pagestate.Model)
		share  float64
		want   string
		level  string
	}{
		"thresholds":      {func(*pagestate.Model) {}, 0.5, uncertified, "note"},
		"mostly fallback": {func(*pagestate.Model) {}, 0.95, fallback + " " + uncertified, "warn"},
		"calibrated so":   {func(m *pagestate.Model) { m.CalibratedFallback = &pagestate.Bounds{Low: 0.875, High: 1} }, 0.95, fallback + " " + uncertified, "note"},
		"risen since":     {func(m *pagestate.Model) { m.CalibratedFallback = &pagestate.Bounds{Low: 0.6, High: 0.7} }, 0.95, fallback + " " + uncertified, "warn"},
		"holding": {func(m *pagestate.Model) {
			m.Promises = []json.RawMessage{json.RawMessage(`{"promise": {"verdict": "VERDICT_HOLDING"}, "strata": [], "history": []}`)}
		}, 0.5, "", "none"},
		"always fallback": {func(m *pagestate.Model) { m.Message = policyOf("ALWAYS", `, "threshold": 0.02`) }, 0.95, uncertified, "note"},
		"certificate":     {func(m *pagestate.Model) { m.Certificate = "At most 5%." }, 0.95, fallback, "warn"},
		"changed by hand": {func(m *pagestate.Model) { m.Changed = true }, 0, "", "alarm"},
		"observes":        {func(m *pagestate.Model) { m.Message = policyOf("ANY_CRITICAL", "") }, 0.95, "", "none"},
	} {
		t.Run(name, func(t *testing.T) {
			state := acted("a", "b")
			state.Model.Message = policyOf("ANY_CRITICAL", `, "threshold": 0.02`)
			c.change(state.Model)
			inputs += 1000
			for i := range state.Model.Spans {
				state.Model.Spans[i].Inputs, state.Model.Spans[i].Fallback = inputs, c.share*inputs
			}
			d.show(state)
			b.until(fmt.Sprintf(`document.querySelector("#inputs")?.value === "%v"`, inputs), "the page has it")
			said := b.text(`[data-part="attention"]`)
			for _, sentence := range []string{fallback, uncertified} {
				want := 0
				if strings.Contains(c.want, sentence) {
					want = 1
				}
				if n := strings.Count(said, sentence); n != want {
					t.Errorf("%q is said %d times, want %d, in %q", sentence, n, want, said)
				}
			}
			if level := b.attribute("#attention", "data-level"); level != c.level {
				t.Errorf("level %q, want %q: %q", level, c.level, said)
			}
		})
	}
}

// TestPagePromise checks that the page begins with what outcomes say, if the daemon keeps a ledger, and
// that what nobody knows yet is n/a.
func TestPagePromise(t *testing.T) {
	t.Parallel()
	d := serveState(t, acted("a", "b"))
	b := open(t, d.Admin)
	b.until(`document.querySelector("#panels").dataset.model === "shown"`, "the page has a state")
	if n := get[int](b, `document.querySelectorAll('#promise, nav a[href="#promise"]').length + document.querySelectorAll(':is(#promise, nav a[href="#promise"])[hidden]').length`); n != 4 {
		t.Errorf("without a ledger the section and its link are not hidden: %d, want both, twice", n)
	}
	state := acted("a", "b")
	state.Model.Promises = []json.RawMessage{}
	d.show(state)
	b.until(`document.querySelector("#promise").innerText.includes("No outcome")`, "an empty ledger is said to be")

	const promise = `{
		"promise": {"model_version": "7", "verdict": "VERDICT_%s", "alarm": %t}, "why": ["the upper limit lies above the line"],
		"expected": {"critical_miss_rate": {"share": {"value": 0.031, "low": 0.02, "high": 0.04}}},
		"cohort_period": "86400s", "due": "1209600s", "mature_cohorts": 2, "open_cohorts": 0, "provisional": {"decided": "12", "figures": []},
		"mature": {"readers": {"missed": "40", "unconfirmed": "7", "withdrawn": "3", "disputed": "2"}, "yield_by_reason": [], "figures": [
			{"figure": "CERTIFIED_FIGURE_CRITICAL_FNR", "critical_class": "", "outcomes": "0", "line": 0.2},
			{"figure": "CERTIFIED_FIGURE_CRITICAL_MISS_RATE", "critical_class": "b", "outcomes": "0"},
			{"figure": "CERTIFIED_FIGURE_CRITICAL_MISS_RATE", "critical_class": "", "outcomes": "0", "line": 0.12, "outcomes_needed": 250.2 %s}
		]},
		"strata": [{"stratum": "STRATUM_DEFERRED", "decisions": "250"}, {"stratum": "STRATUM_CALLED_SAFE", "decisions": "1000", "reviews": "52", "due": "0", "arrived": "0", "overdue": "0"}],
		"history": [%s]
	}`
	state.Model.Promises = []json.RawMessage{json.RawMessage(fmt.Sprintf(promise, "TOO_FEW_OUTCOMES", false, "", ""))}
	d.show(state)
	b.until(`document.querySelector("#promise-state")?.dataset.verdict === "too_few_outcomes"`, "the verdict is shown")
	if got := b.text("#promise"); !strings.Contains(got, "About 250 more outcomes would do") || strings.Contains(got, "NaN") {
		t.Errorf("it says %q", got)
	}
	if got := names(b, `[data-part="promise-figures"] tbody tr`, "data-key"); !slices.Equal(got, []string{"critical_miss_rate ", "critical_miss_rate b", "critical_fnr "}) {
		t.Errorf("the figures are %q, want the miss rate first, and a critical FNR only where it has a line", got)
	}
	if got := b.text(`[data-key="critical_miss_rate "]`); strings.Count(got, "n/a") != 3 {
		t.Errorf("of a risk that nobody knows it says %q", got)
	}

	const average = `"average": {"value": 0.1, "low": 0.08, "high": 0.15}`
	var points []string
	for day := range 3 {
		points = append(points, fmt.Sprintf(`{"start": "2026-01-0%dT00:00:00Z", "critical_miss_rate": {%s, "line": 0.12, "log_evidence": 1.1}}`, day+1, average))
	}
	state.Model.DefersOnAlarm = true
	state.Model.Promises = []json.RawMessage{
		json.RawMessage(`{"promise": {"model_version": "6", "verdict": "VERDICT_HOLDING"}, "provisional": {"decided": "100"}}`),
		json.RawMessage(fmt.Sprintf(promise, "VIOLATED", true, `, "line_origin": "stated by dr. eve on 2026-03-05", "model_average": {"value": 0.18, "low": 0.16, "high": 0.2},
			"monitor": {"log_evidence": 1.1, "run_length": 1000, "raised": true, "raised_at": "2026-01-03T00:00:00Z", "since": "2026-01-02T00:00:00Z",
				"since_rate": {"share": {"value": 0.66, "low": 0.6, "high": 0.7}, "events": "12", "total": "30"}}, `+average, strings.Join(points, ", "))),
	}
	d.show(state)
	b.until(`document.querySelector("#promise-state").dataset.verdict === "violated" && document.title.startsWith("■")`, "the violation is an alarm")
	b.equals("#since-onset", 0.66)
	b.equals(`[data-key="critical_miss_rate "] td:nth-child(3) data`, 0.1)
	for _, want := range []string{"3.1%", "stated by dr. eve on 5 Mar 2026", "66.0%", "12 misses were seen among 30", "line 12%", "about 66 of 100", "18.0%", "7 lack a second source and 3 were withdrawn", "all that is called safe is deferred: about 1,000 of 1,000 inputs", "2 model versions",
		"deferred or not", "ckd keeps no list of it", "ckd outcomes clear --addr 127.0.0.1:8590 --model acted --policy 0f --by NAME"} {
		if got := b.text("#promise"); !strings.Contains(got, want) {
			t.Errorf("it says %q, expected %q", got, want)
		}
	}
	if got := b.text(`[data-part="attention"]`); strings.Contains(got, "missed") {
		t.Errorf("the alarm is said a second time: %q", got)
	}
	if got := names(b, `[data-chart="promise"] .moment`); len(got) != 2 || !strings.Contains(got[0], "began to rise") || !strings.Contains(got[1], "alarm") {
		t.Errorf("the moments on the curve are %q", got)
	}
	b.screenshot("triage-promise.png")

	state.Model.DefersOnAlarm = false
	d.show(state)
	b.until(`document.querySelector("#promise").textContent.includes("on_breach: defer\nsurge: 1000")`, "the lines to write defer what is called safe, and nothing else")
	state.Model.Promises = []json.RawMessage{json.RawMessage(fmt.Sprintf(promise, "VIOLATED", false, "", strings.Join(points, ", ")))}
	d.show(state)
	b.until(`document.querySelector("#promise").textContent.includes("gate: never # no") && document.querySelector(".acts").textContent.includes("every input, 1,000 of 1,000")`,
		"an alarm of one class, on which no policy acts, takes the deferral of all")

	state.Model.Promises = []json.RawMessage{json.RawMessage(fmt.Sprintf(promise, "TOO_FEW_OUTCOMES", false,
		`, "monitor": {"log_evidence": 0, "run_length": 1000, "cleared_at": "2026-01-03T12:00:00Z"}, `+average, strings.Join(points, ", ")))}
	d.show(state)
	b.until(`document.querySelector("#promise-state").textContent.startsWith("The alarm was cleared 3 Jan 2026")`, "the page says that the alarm was cleared")
	if first := get[string](b, `document.querySelector(".column").firstElementChild.id`); first != "promise" {
		t.Errorf("the page begins with %s", first)
	}
	if got := names(b, `[data-chart="evidence"] .moment`); len(got) != 2 || !strings.Contains(got[0], "reached 100% 1 Jan 2026") || !strings.Contains(got[1], "cleared 3 Jan 2026") {
		t.Errorf("the moments on the curve are %q", got)
	}
	if got := b.text("#promise"); !strings.Contains(got, "ckd outcomes export --trail --addr 127.0.0.1:8590 says who") {
		t.Errorf("it says %q", got)
	}
	b.narrow()
	b.clean(d.Daemon)
}

// TestPagePrevalence looks at the share of critical inputs that live traffic suggests, beside the policy's: what
// to do is said only where the two differ.
func TestPagePrevalence(t *testing.T) {
	t.Parallel()
	state := acted("a", "b")
	state.Model.Message = json.RawMessage(strings.Replace(string(state.Model.Message), `"kind"`, `"risk_prevalence": 0.1, "kind"`, 1))
	d := serveState(t, state)
	b := open(t, d.Admin)
	b.until(`document.querySelector("#policy").innerText.includes("for traffic of which 10.0% is critical")`, "the policy's share is shown")
	if got := b.text("#policy"); strings.Contains(got, "suggestion") {
		t.Errorf("of nothing it suggests %q", got)
	}
	for _, c := range []struct {
		suggested pagestate.Interval
		want      string
	}{
		{pagestate.Interval{Value: 0.021, Low: 0.016, High: 0.027}, "; live traffic looks like 2.1% (1.6 to 2.7%), by the last 40,000 inputs at most, without labels: a suggestion. " +
			"If it is so, risks are too high: ckd calibrate --prevalence fits them to it"},
		{pagestate.Interval{Value: 0.3, Low: 0.2, High: 0.4}, "; live traffic looks like 30.0% (20.0 to 40.0%), by the last 40,000 inputs at most, without labels: a suggestion. " +
			"If it is so, risks are too low: ckd calibrate --prevalence fits them to it"},
		{pagestate.Interval{Value: 0.11, Low: 0.09, High: 0.13}, "; live traffic looks like 11.0% (9.0 to 13.0%), by the last 40,000 inputs at most, without labels: a suggestion"},
	} {
		state.Model.Suggested = &pagestate.Suggested{Interval: c.suggested, Inputs: 40_000}
		d.show(state)
		b.until(fmt.Sprintf(`document.querySelector("#suggested-prevalence data")?.value === "%v"`, c.suggested.Value), "the suggestion is shown")
		if got := strings.TrimSpace(b.text("#suggested-prevalence")); got != c.want {
			t.Errorf("it says %q, expected %q", got, c.want)
		}
	}
	b.clean(d.Daemon)
}

// TestPagePhone checks that a phone shows all of each deferred input, even long names, with a
// heading for each column.
func TestPagePhone(t *testing.T) {
	t.Parallel()
	long := strings.Repeat("sinus-tachycardia-", 4)
	threshold := 0.0245
	state := acted("a", long)
	state.Model.Recent = &pagestate.Recent{Kept: 5}
	for i := range 3 {
		state.Model.Recent.Inputs = append(state.Model.Recent.Inputs, pagestate.Deferred{
			At: state.At, ID: strings.Repeat("id", 20*i), Predicted: long, Deciding: long, DecidingCritical: true, Score: "c_crit_max", Value: 0.0557,
			Threshold: &threshold, Reason: "above_threshold", Passes: 30, Fingerprint: []pagestate.Share{{Class: long, Critical: true, C: 0.1}, {Class: "a", C: 0.01}},
		})
	}
	b := open(t, serveState(t, state).Admin)
	b.until(`document.querySelectorAll('[data-part="recent"] tbody tr').length === 3`, "the page is there")
	heads := names(b, `[data-part="recent"] thead th`)
	if n := b.count(`[data-part="recent"] tbody tr:first-child > *`); n != len(heads) || slices.Contains(heads, "") {
		t.Errorf("%d columns have the headings %q", n, heads)
	}
	if last := `[data-part="recent"] tbody tr:first-child > :last-child`; heads[len(heads)-1] != "Largest C_k" || b.text(last+" summary > span:nth-child(2)") != "◆critical: "+long {
		t.Errorf("the last column, %q, is %q", heads[len(heads)-1], b.text(last))
	}
	for _, width := range []int64{320, 360, 390, 640} {
		b.window(width, 844, true)
		out := get[[]string](b, `[...document.querySelectorAll('[data-part="recent"] tbody tr > *')].flatMap((e) => [e, ...e.querySelectorAll("bdi, data, .score-track")])
			.filter((e) => { const r = e.getBoundingClientRect(); return r.width === 0 || r.left < 0 || r.right > innerWidth + 0.5; }).map((e) => e.className + " " + e.textContent)`)
		// A closed fingerprint draws none of its contents.
		out = slices.DeleteFunc(out, func(s string) bool { return strings.HasPrefix(s, " 0.") || s == " a" || s == " "+long })
		if len(out) > 0 {
			t.Errorf("at %d out of sight: %q", width, out)
		}
		if over := get[int](b, `(() => { const e = document.querySelector('[data-part="recent"] .scroll'); return e.scrollWidth - e.clientWidth })()`); over > 0 {
			t.Errorf("at %d the deferred inputs are %d wider than their box", width, over)
		}
	}
	b.window(390, 844, true)
	if links := get[[]float64](b, `[...document.querySelectorAll(".bar nav a:not([hidden])")].map((e) => e.getBoundingClientRect().height)`); len(links) < 5 || slices.Min(links) < 43.5 {
		t.Errorf("the links to the sections are %v high", links)
	}
	b.screenshot("triage-phone-deferred.png")
}

// TestPageHidden checks that the page writes out characters in names and ids that are invisible or
// change the direction of text.
func TestPageHidden(t *testing.T) {
	t.Parallel()
	const class, model = "a\u202eb\u2066c", "m\u200bn"
	state := acted(class, "d\ne")
	state.Model.Name, state.Models = model, []string{model}
	state.Model.Warnings = []string{"of " + class}
	state.Model.Drift = &pagestate.Drift{Reference: 500, Alarm: 5.5, Windows: []pagestate.DriftWindow{{Inputs: 64, Visible: 0.3, Full: true}},
		Classes: []pagestate.ClassDrift{{Class: 0, Epistemic: pagestate.Signal{Z: []pagestate.Number{9}, Shift: []pagestate.Number{0.5}, Alarm: true},
			Skewness:  pagestate.Signal{Z: []pagestate.Number{0}, Shift: []pagestate.Number{0}},
			Predicted: pagestate.Signal{Z: []pagestate.Number{0}, Shift: []pagestate.Number{0}}}}}
	state.Model.Recent = &pagestate.Recent{Kept: 5, Inputs: []pagestate.Deferred{{
		At: state.At, ID: "\u202egnp.exe\u0000\u2028\n\U000e0041 مريض", Predicted: class, Deciding: "d\ne", Score: "cbec", Reason: "above_threshold",
		Fingerprint: []pagestate.Share{{Class: class, C: 0.1}},
	}}}
	b := open(t, serveState(t, state).Admin)
	b.until(`document.querySelectorAll('[data-part="recent"] tbody tr').length === 1`, "the page is there")
	for selector, want := range map[string]string{
		`[data-part="recent"] th.id bdi`:                `\u202egnp.exe\u0000\u2028\n\u{e0041} مريض`,
		`[data-part="recent"] tbody td:nth-child(5)`:    `d\ne`,
		`[data-part="classes"] tbody tr:last-child bdi`: `a\u202eb\u2066c`,
		`#model option`: `m\u200bn`,
	} {
		if got := b.text(selector); got != want {
			t.Errorf("%s shows %q, want %q", selector, got, want)
		}
	}
	if got := b.text(`[data-part="attention"]`); !strings.Contains(got, `a\u202eb\u2066c`) {
		t.Errorf("what needs attention is %q", got)
	}
	if n := b.count(`[data-part="recent"] th.id .escaped`); n != 5 {
		t.Errorf("%d characters of the id are marked, want 5", n)
	}
	for _, text := range get[[]string](b, `[document.title, document.body.textContent, ...[...document.querySelectorAll("[aria-label]")].map((e) => e.getAttribute("aria-label"))]
		.filter((text) => /(?![\n\t])[\p{C}\p{Zl}\p{Zp}]/u.test(text))`) {
		t.Errorf("%q has what cannot be seen", text)
	}
	b.screenshot("triage-hidden.png")
}

// acted returns the state of a daemon that has one model with these classes, the last one critical,
// and no inputs.
func acted(classes ...string) *pagestate.State {
	at := time.Date(2026, 1, 2, 12, 2, 0, 0, time.UTC)
	model := &pagestate.Model{
		Name: "acted", RecentWhy: "off",
		Policy: pagestate.Policy{Message: policyOf("NEVER", ""), Pairs: "safe-critical"},
	}
	for k, name := range classes {
		critical := k == len(classes)-1
		model.Classes = append(model.Classes, pagestate.Class{Name: name, Critical: critical, Safe: !critical, Of: 1})
	}
	for _, minutes := range []int{1, 5, 15} {
		model.Spans = append(model.Spans, pagestate.Span{Minutes: minutes, Seconds: 60 * float64(minutes), Classes: make([]pagestate.ClassSpan, len(classes))})
	}
	return &pagestate.State{At: at, Models: []string{model.Name}, Model: model,
		Daemon: pagestate.Daemon{Version: "1", Started: at, Serving: true, Ledger: "127.0.0.1:8590", Reload: pagestate.Reload{OK: true, At: at, Success: at}}}
}

// policyOf returns the policy of a model with a gate, and with more fields of both its rules.
func policyOf(gate, ofRules string) json.RawMessage {
	return json.RawMessage(fmt.Sprintf(`{"policy": {"version": "", "hash": "0f"}, "kind": "KIND_PROBABILITIES", "fewest_passes": 2, "expected_passes": 0, "gate": "GATE_%s",
		"scope": "SCOPE_ALL", "observes": %t, "primary": {"score": "SCORE_C_CRIT_MAX"%[3]s}, "fallback": {"score": "SCORE_CBEC"%[3]s}}`, gate, ofRules == "", ofRules))
}

// actor serves the page with states of the test in place of a daemon.
type actor struct {
	*testbed.Daemon // only its address is set

	mu    sync.Mutex
	at    time.Time // of the last state
	state []byte

	entered bool // an outcome was
}

// serveReviews answers with twelve inputs to review. Once an outcome was entered its input, the second, is settled,
// the first is no longer kept, and a new one has come.
func (a *actor) serveReviews(w http.ResponseWriter, _ *http.Request) {
	a.mu.Lock()
	defer a.mu.Unlock()
	l := pagestate.ReviewList{Kept: 100, Models: []string{"acted"}, Version: fmt.Sprint(a.entered), Enter: true, Lost: 187,
		Classes: map[string][]string{"0f": {"normal", "suspect", "pathologic"}}}
	for i := range 12 {
		l.Reviews = append(l.Reviews, pagestate.Review{Key: fmt.Sprint("key-", i), At: a.at.Add(-time.Duration(i) * time.Minute), Model: "acted", ID: fmt.Sprint("case-", 1990-i),
			Policy: "0f", State: "open"})
	}
	if a.entered {
		l.Reviews[1].State, l.Reviews[1].Outcome = "entered", &pagestate.EnteredOutcome{Truth: "suspect", Predicted: "normal"}
		l.Reviews[0] = pagestate.Review{Key: "new", At: a.at, Model: "acted", ID: "case-new", Policy: "0f", State: "open"}
	}
	if err := json.NewEncoder(w).Encode(l); err != nil {
		panic(err) // a list always encodes
	}
}

func serveState(t *testing.T, state *pagestate.State) *actor {
	t.Helper()
	a := &actor{at: state.At}
	a.show(state)
	mux := http.NewServeMux()
	mux.Handle("/", triage.New(triage.Options{}).Handler())
	mux.HandleFunc("/triage/state", func(w http.ResponseWriter, _ *http.Request) {
		a.mu.Lock()
		defer a.mu.Unlock()
		_, _ = w.Write(a.state)
	})
	mux.HandleFunc("/triage/reviews", a.serveReviews)
	mux.HandleFunc("POST /triage/outcome", func(w http.ResponseWriter, _ *http.Request) {
		a.mu.Lock()
		defer a.mu.Unlock()
		a.entered = true
		_, _ = w.Write([]byte(`{"status": "OUTCOME_STATUS_COUNTED", "predicted": "normal", "decided": "2026-01-02T12:00:00Z"}`))
	})
	server := httptest.NewServer(mux)
	t.Cleanup(func() {
		server.CloseClientConnections()
		server.Close()
	})
	a.Daemon = &testbed.Daemon{Admin: server.URL}
	return a
}

// show makes the page show a state, as of a second after the one before.
func (a *actor) show(state *pagestate.State) {
	a.mu.Lock()
	defer a.mu.Unlock()
	a.at = a.at.Add(time.Second)
	now := *state
	now.At = a.at
	encoded, err := json.Marshal(&now)
	if err != nil {
		panic(err) // a state always encodes
	}
	a.state = encoded
}

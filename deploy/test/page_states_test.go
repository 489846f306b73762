package deploytest

import (
	"encoding/json"
	"fmt"
	"math"
	"net/http"
	"net/http/httptest"
	"slices"
	"strings"
	"sync"
	"testing"
	"time"

	"github.com/ckd-project/ckd/integration_test/testbed"
	"github.com/ckd-project/ckd/web/triage"
)

// TestPageBursts checks that the charts draw each step that has inputs over its whole width, and no
// other, whatever comes before and after it.
func TestPageBursts(t *testing.T) {
	const step = 15.0
	const none = -1 // no step
	inputs := []float64{20, 0, 20, 40, none, 0, 20, 0}
	state := acted("a", "b", "c")
	begin := time.Date(2026, 1, 2, 12, 0, 0, 0, time.UTC)
	state.Model.Policy.Calibration = &triage.Calibration{ExpectedCoverage: &triage.Interval{Value: 0.8, Low: 0.77, High: 0.83}}
	for i, n := range inputs {
		if n == none {
			continue
		}
		s := triage.Step{At: begin.Add(time.Duration(i*step) * time.Second).UnixMilli(), Seconds: step, Inputs: n, Retained: n * 3 / 4, Deferred: n / 4}
		s.Quantiles = make([]*[4]float64, 3)
		if n > 0 {
			for k := range s.Quantiles {
				s.Quantiles[k] = &[4]float64{0.001, 0.0001 * n, 0.1, 0.2}
			}
		}
		state.Model.History = append(state.Model.History, s)
	}
	b := open(t, serveState(t, state).Admin)
	b.until(`document.querySelectorAll("[data-chart] canvas").length === 5`, "the charts are there")
	b.draw()

	for selector, colour := range map[string]string{
		`[data-chart="deferral"]`: "--chart-line2",
		`[data-chart="class"]`:    "--chart-line",
	} {
		var last float64
		for i, n := range inputs {
			// The height of the line near the beginning, in the middle and near the end of the
			// step, or -1. The chart has 8 steps.
			heights := get[[]float64](b, fmt.Sprintf(`(() => {
				const canvas = document.querySelector(%s).querySelector("canvas"), [left, right] = [46, canvas.width - 18];
				const wanted = getComputedStyle(document.documentElement).getPropertyValue(%s).match(/[0-9a-f]{2}/g).map((x) => parseInt(x, 16));
				return [0.15, 0.5, 0.85].map((within) => {
					const x = Math.round(left + (%d + within) / 8 * (right - left));
					const { data } = canvas.getContext("2d").getImageData(x, 0, 1, canvas.height);
					for (let y = 0; y < canvas.height; y++)
						if (data[4 * y + 3] > 200 && wanted.every((w, c) => Math.abs(w - data[4 * y + c]) < 40)) return y;
					return -1;
				});
			})()`, quoted(selector), quoted(colour), i))
			for _, height := range heights {
				if (height >= 0) != (n > 0) || math.Abs(height-heights[0]) > 1 {
					t.Errorf("%s: step %d of %v inputs is drawn at %v", selector, i, n, heights)
					break
				}
			}
			if colour == "--chart-line" && i > 0 && n > 0 && inputs[i-1] > 0 && math.Abs(heights[0]-last) < 3 {
				t.Errorf("%s: steps %d and %d, of different values, are at %v and %v", selector, i-1, i, last, heights[0])
			}
			last = heights[0]
		}
	}
	for within, want := range map[float64]string{0.3: ":00: 25.0%", 0.7: ":00: 25.0%", 1.3: ":15: –"} {
		get[bool](b, fmt.Sprintf(`(() => {
			const over = document.querySelector('[data-chart="deferral"] .u-over'), { left, top, width } = over.getBoundingClientRect();
			const at = { bubbles: true, clientX: left + %v / 8 * width, clientY: top + 20 };
			return over.dispatchEvent(new MouseEvent("mouseenter", at)) && over.dispatchEvent(new MouseEvent("mousemove", at));
		})()`, within))
		b.until(fmt.Sprintf(`document.querySelector('[data-readout="deferral"]').textContent.endsWith(%q)`, want),
			fmt.Sprintf("after %v steps the readout ends with %s", within, want))
	}
	b.screenshot("triage-bursts.png")
}

// TestPageNews checks that the page shows and announces when events stop, and when they come again.
func TestPageNews(t *testing.T) {
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
	d.full()
	b.until(`document.querySelector("#connection").dataset.state === "polling" && `+announced+`.includes("every 5 s")`, "it asks from time to time, and says so")
}

// TestPageGone checks that a model that is no longer served is a warning, and cannot be chosen.
func TestPageGone(t *testing.T) {
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
	state := acted("a", "b")
	state.Daemon.Reload.OK = false
	for i := range state.Model.Spans {
		s := &state.Model.Spans[i]
		s.Inputs, s.Deferred, s.Degenerate = 1000, 1000, 900
		s.Reasons = []triage.Reason{{Reason: "softmax_twice", Count: 880}, {Reason: "degenerate", Count: 20}}
	}
	b := open(t, serveState(t, state).Admin)
	const first = `document.querySelector("#attention li").textContent`
	b.until(`document.querySelectorAll("#attention li").length >= 2 && `+first+`.includes("softmax was taken twice")`, "it comes first")
}

// TestPageFits checks that the table of few classes fits from 1024 px on, even with a drift alarm,
// and that short names do not break.
func TestPageFits(t *testing.T) {
	state := acted("class-000", "class-001", "class-002")
	state.Model.Drift = &triage.Drift{Reference: 500, Alarm: 5.5, Windows: []triage.DriftWindow{{Inputs: 64, Visible: 0.3, Full: true}}}
	for k := range state.Model.Classes {
		moved := triage.Signal{Z: []triage.Number{-123.4}, Shift: []triage.Number{-0.5}, Alarm: true, Alarms: 1}
		state.Model.Drift.Classes = append(state.Model.Drift.Classes, triage.ClassDrift{Class: k, Epistemic: moved, Skewness: moved, Predicted: moved})
	}
	for i := range state.Model.Spans {
		s := &state.Model.Spans[i]
		s.Inputs, s.Retained, s.Deferred, s.DeferredShare = 1000, 500, 500, &triage.Interval{Value: 0.5, Low: 0.4, High: 0.6}
		for k := range s.Classes {
			s.Classes[k] = triage.ClassSpan{Observations: 1000, Predicted: 333, Dominant: 333, Deciding: 167, Unreliable: 999.9,
				MeanC: 0.0042, Quantiles: &[4]float64{0.001, 0.0031, 0.0099, 0.0012}}
		}
	}
	b := open(t, serveState(t, state).Admin)
	b.until(`document.querySelectorAll('[data-part="classes"] tbody .alarm').length === 3`, "the classes are there")
	for _, width := range []int64{1024, 1100, 1180, 1279, 1280, 1439, 1440, 1600} {
		b.window(width, 900, false)
		if over := get[int](b, `(() => { const e = document.querySelector('[data-part="classes"]'); return e.scrollWidth - e.clientWidth })()`); over > 0 {
			t.Errorf("at %d the table is %d wider than its box", width, over)
		}
		if over := get[int](b, `document.documentElement.scrollWidth - innerWidth`); over > 0 {
			t.Errorf("at %d the page is %d wider than its window", width, over)
		}
		b.screenshot(fmt.Sprintf("triage-fits-%d.png", width))
	}
	b.window(390, 844, true)
	if n := get[int](b, `[...document.querySelectorAll('[data-part="classes"] th bdi')].filter((e) => e.getClientRects().length !== 1).length`); n != 0 {
		t.Errorf("%d short names are broken", n)
	}
	b.screenshot("triage-fits-390.png")
}

// TestPageNotices checks that the page warns of a fallback score that decides most inputs, and
// notes once that nothing certifies the thresholds. A policy that only observes has neither.
func TestPageNotices(t *testing.T) {
	const fallback, uncertified = "The fallback score, cbec, decided 95.0% of the inputs", "Nothing is certified"
	threshold := 0.02
	d := serveState(t, acted("a", "b"))
	b := open(t, d.Admin)
	inputs := 1000.0 // differs by state, so that the test can wait for it
	for name, c := range map[string]struct {
		change func(p *triage.Policy)
		share  float64
		want   string
		level  string
	}{
		"thresholds":      {func(*triage.Policy) {}, 0.5, uncertified, "note"},
		"mostly fallback": {func(*triage.Policy) {}, 0.95, fallback + " " + uncertified, "warn"},
		"always fallback": {func(p *triage.Policy) { p.Gate = "always" }, 0.95, uncertified, "note"},
		"certificate":     {func(p *triage.Policy) { p.Calibration = &triage.Calibration{Certificate: "At most 5%."} }, 0.95, fallback, "warn"},
		"no certificate":  {func(p *triage.Policy) { p.Calibration = &triage.Calibration{Objective: "coverage"} }, 0, uncertified, "note"},
		"changed by hand": {func(p *triage.Policy) { p.Calibration = &triage.Calibration{Changed: true} }, 0, "", "alarm"},
		"observes": {func(p *triage.Policy) {
			p.Observes, p.Primary.Threshold, p.Fallback.Threshold = true, nil, nil
		}, 0.95, "", "none"},
	} {
		t.Run(name, func(t *testing.T) {
			state := acted("a", "b")
			p := &state.Model.Policy
			p.Gate, p.Primary, p.Fallback = "any-critical", triage.Rule{Score: "c_crit_max", Threshold: &threshold}, triage.Rule{Score: "cbec", Threshold: &threshold}
			c.change(p)
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
	d := serveState(t, acted("a", "b"))
	b := open(t, d.Admin)
	b.until(`document.querySelector("#panels").dataset.model === "shown"`, "the page has a state")
	if n := get[int](b, `document.querySelectorAll('#promise, nav a[href="#promise"]').length + document.querySelectorAll(':is(#promise, nav a[href="#promise"])[hidden]').length`); n != 4 {
		t.Errorf("without a ledger the section and its link are not hidden: %d, want both, twice", n)
	}
	state := acted("a", "b")
	state.Model.Promises = []triage.Promise{}
	d.show(state)
	b.until(`document.querySelector("#promise").innerText.includes("No outcome")`, "an empty ledger is said to be")

	line, evidence, needed := 0.12, 0.4, 250.2
	promise := triage.Promise{
		ModelVersion: "7", Verdict: "too_few_outcomes", Why: []string{"the upper limit lies above the line"}, Period: 86400, Due: 14 * 86400, Decided: 12,
		Figures: []triage.Figure{{Name: "critical_fnr", Line: &line, Evidence: &evidence, Needed: &needed}, {Name: "critical_miss_rate"}},
		Strata:  []triage.Stratum{{Name: "called_safe", Decisions: 1000, Reviews: 52}},
		Yield:   []triage.Yield{}, History: []triage.PromisePoint{},
	}
	state.Model.Promises = []triage.Promise{promise}
	d.show(state)
	b.until(`document.querySelector("#promise-state")?.dataset.verdict === "too_few_outcomes"`, "the verdict is shown")
	if got := b.text("#promise"); !strings.Contains(got, "About 251 more would do") || strings.Contains(got, "NaN") {
		t.Errorf("it says %q", got)
	}
	if got := b.text(`[data-key="critical_fnr "]`); strings.Count(got, "n/a") != 2 {
		t.Errorf("of a risk that nobody knows it says %q", got)
	}

	average, at := triage.Interval{Value: 0.2, Low: 0.15, High: 0.25}, time.Date(2026, 1, 1, 0, 0, 0, 0, time.UTC)
	f := &promise.Figures[0]
	evidence, f.Raised, f.RaisedBy, f.Average, f.Verdict = 1.1, true, &at, &average, "violated"
	promise.Verdict, promise.Alarm, promise.Defers, promise.Mature = "violated", true, true, 2
	for i := range int64(3) {
		promise.History = append(promise.History, triage.PromisePoint{
			At: at.UnixMilli() + i*86400000, Value: &average.Value, Low: &average.Low, High: &average.High, Line: &line, Evidence: &evidence,
		})
	}
	state.Model.Promises = []triage.Promise{{ModelVersion: "6", Verdict: "holding", Decided: 100}, promise}
	d.show(state)
	b.until(`document.querySelector("#attention").dataset.level === "alarm" && document.title.startsWith("■")`, "the violation is an alarm")
	b.equals(`[data-key="critical_fnr "] b data`, 0.2)
	b.until(`document.querySelector('[data-chart="promise"] canvas')`, "the interval over time is drawn")
	if got := b.text("#promise"); !strings.Contains(got, "2 model versions") || !strings.Contains(got, "deferred until") {
		t.Errorf("it says %q", got)
	}
	b.screenshot("triage-promise.png")
	b.narrow()
	b.clean(d.Daemon)
}

// TestPageTimes checks that every visible time has its zone.
func TestPageTimes(t *testing.T) {
	state := acted("a", "b")
	state.Daemon.Reload.At, state.Daemon.CertificateEnds = state.At, &state.At
	state.Model.Recent = &triage.Recent{Kept: 5, Inputs: []triage.Deferred{{At: state.At, ID: "x", Predicted: "a", Score: "cbec", Reason: "above_threshold"}}}
	b := open(t, serveState(t, state).Admin)
	b.until(`document.querySelectorAll('[data-part="recent"] tbody tr').length === 1`, "the page is there")
	zone := get[string](b, `new Intl.DateTimeFormat("en-GB", { hour: "2-digit", timeZoneName: "short" }).formatToParts(new Date()).find((p) => p.type === "timeZoneName").value`)
	for selector, want := range map[string]string{
		`[data-part="recent"] thead th`:  "Time, " + zone,
		`[data-part="history"] thead th`: "From, " + zone,
		`[data-part="span"]`:             "times in " + zone,
	} {
		if got := b.text(selector); !strings.Contains(got, want) {
			t.Errorf("%s is %q, expected %q in it", selector, got, want)
		}
	}
	for _, got := range append(names(b, "#policy time"), b.text("#policy time")) {
		if !strings.HasSuffix(got, " "+zone) {
			t.Errorf("a time is %q, expected its zone, %s", got, zone)
		}
	}
}

// TestPagePhone checks that a phone shows all of each deferred input, even long names, with a
// heading for each column.
func TestPagePhone(t *testing.T) {
	long := strings.Repeat("sinus-tachycardia-", 4)
	threshold := 0.0245
	state := acted("a", long)
	state.Model.Recent = &triage.Recent{Kept: 5}
	for i := range 3 {
		state.Model.Recent.Inputs = append(state.Model.Recent.Inputs, triage.Deferred{
			At: state.At, ID: strings.Repeat("id", 20*i), Predicted: long, Deciding: long, DecidingCritical: true, Score: "c_crit_max", Value: 0.0557,
			Threshold: &threshold, Reason: "above_threshold", Passes: 30, Fingerprint: []triage.Share{{Class: long, Critical: true, C: 0.1}, {Class: "a", C: 0.01}},
		})
	}
	b := open(t, serveState(t, state).Admin)
	b.until(`document.querySelectorAll('[data-part="recent"] tbody tr').length === 3`, "the page is there")
	heads := names(b, `[data-part="recent"] thead th`)
	if n := b.count(`[data-part="recent"] tbody tr:first-child > *`); n != len(heads) || slices.Contains(heads, "") {
		t.Errorf("%d columns have the headings %q", n, heads)
	}
	if last := `[data-part="recent"] tbody tr:first-child > :last-child`; heads[len(heads)-1] != "Largest C_k" || b.text(last) != "◆critical: "+long {
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
	b.screenshot("triage-phone-deferred.png")
}

// TestPageHidden checks that the page writes out characters in names and ids that are invisible or
// change the direction of text.
func TestPageHidden(t *testing.T) {
	const class, model = "a\u202eb\u2066c", "m\u200bn"
	state := acted(class, "d\ne")
	state.Model.Name, state.Models = model, []string{model}
	state.Model.Policy.Warnings = []string{"of " + class}
	state.Model.Drift = &triage.Drift{Reference: 500, Alarm: 5.5, Windows: []triage.DriftWindow{{Inputs: 64, Visible: 0.3, Full: true}},
		Classes: []triage.ClassDrift{{Class: 0, Epistemic: triage.Signal{Z: []triage.Number{9}, Shift: []triage.Number{0.5}, Alarm: true},
			Skewness:  triage.Signal{Z: []triage.Number{0}, Shift: []triage.Number{0}},
			Predicted: triage.Signal{Z: []triage.Number{0}, Shift: []triage.Number{0}}}}}
	state.Model.Recent = &triage.Recent{Kept: 5, Inputs: []triage.Deferred{{
		At: state.At, ID: "\u202egnp.exe\u0000\u2028\n\U000e0041 مريض", Predicted: class, Deciding: "d\ne", Score: "cbec", Reason: "above_threshold",
		Fingerprint: []triage.Share{{Class: class, C: 0.1}},
	}}}
	b := open(t, serveState(t, state).Admin)
	b.until(`document.querySelectorAll('[data-part="recent"] tbody tr').length === 1`, "the page is there")
	for selector, want := range map[string]string{
		`[data-part="recent"] th.id bdi`:                `\u202egnp.exe\u0000\u2028\n\u{e0041} مريض`,
		`[data-part="recent"] tbody td:nth-child(3)`:    `a\u202eb\u2066c`,
		`[data-part="recent"] tbody td:nth-child(6)`:    `d\ne`,
		`[data-part="classes"] tbody th bdi`:            `d\ne`,
		`[data-part="classes"] tbody tr:last-child bdi`: `a\u202eb\u2066c`,
		`[data-part="confusion"] tbody th bdi`:          `d\ne`,
		`[data-part="drift"] tbody th bdi`:              `a\u202eb\u2066c`,
		`#policy .warnings li`:                          `of a\u202eb\u2066c`,
		`#policy dd`:                                    `m\u200bn`,
		`#model option`:                                 `m\u200bn`,
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

// TestPageNoPairs checks that a policy with only critical classes, or with none, has no pairs of
// both kinds.
func TestPageNoPairs(t *testing.T) {
	d := serveState(t, acted("a", "b"))
	b := open(t, d.Admin)
	for _, c := range []struct {
		critical []bool
		pairs    string
		want     string
		counted  []triage.Pair
		said     string // a share only if all pairs are computed
	}{
		{[]bool{false, true}, "safe-critical", "safe and critical", []triage.Pair{{A: 0, B: 1, Nats: 0.01, Block: true}}, "Confusion between safe and critical classes: 0.010 nats per input."},
		{[]bool{false, false}, "safe-critical", "none: no class is critical", nil, "No confusion was counted."},
		{[]bool{true, true}, "safe-critical", "none: no class is safe", nil, "No confusion was counted."},
		{[]bool{false, false}, "all", "all", []triage.Pair{{A: 0, B: 1, Nats: 0.01}}, "Of all confusion, 0% is between safe and critical classes: 0 nats per input."},
	} {
		state := acted("a", "b")
		state.Model.Policy.Pairs = c.pairs
		for k, critical := range c.critical {
			state.Model.Classes[k].Critical, state.Model.Classes[k].Safe = critical, !critical
		}
		for i := range state.Model.Spans {
			state.Model.Spans[i].Inputs, state.Model.Spans[i].Pairs = 100, c.counted
		}
		d.show(state)
		what := fmt.Sprintf("pairs %s of %v: the policy says %q, the legend %q", c.pairs, c.critical, c.want, c.said)
		b.until(fmt.Sprintf(`[...document.querySelectorAll("#policy dt")].find((e) => e.textContent === "Pairs")?.nextSibling.textContent === %q &&
			document.querySelector('[data-part="legend"] p')?.textContent === %q`, c.want, c.said), what)
	}
}

// acted returns the state of a daemon that has one model with these classes, the last one critical,
// and no inputs.
func acted(classes ...string) *triage.State {
	at := time.Date(2026, 1, 2, 12, 2, 0, 0, time.UTC)
	model := &triage.Model{
		Name: "acted", RecentWhy: "off",
		Policy: triage.Policy{Hash: strings.Repeat("0f", 32), Gate: "never", Scope: "all", Primary: triage.Rule{Score: "cbec"},
			Fallback: triage.Rule{Score: "mi"}, Fewest: 2, Pairs: "safe-critical"},
	}
	for k, name := range classes {
		critical := k == len(classes)-1
		model.Classes = append(model.Classes, triage.Class{Name: name, Critical: critical, Safe: !critical, Of: 1})
	}
	for _, minutes := range []int{1, 5, 15} {
		model.Spans = append(model.Spans, triage.Span{Minutes: minutes, Seconds: 60 * float64(minutes), Classes: make([]triage.ClassSpan, len(classes))})
	}
	return &triage.State{At: at, Models: []string{model.Name}, Model: model,
		Daemon: triage.Daemon{Version: "1", Started: at, Serving: true, Reload: triage.Reload{OK: true, At: at, Success: at}}}
}

// actor serves the page with states of the test in place of a daemon.
type actor struct {
	*testbed.Daemon // only its address is set

	mu     sync.Mutex
	state  []byte
	news   chan struct{} // closed by the next state
	isFull bool
}

func serveState(t *testing.T, state *triage.State) *actor {
	t.Helper()
	a := &actor{news: make(chan struct{})}
	a.show(state)
	assets := triage.New(triage.Options{}).Handler()
	mux := http.NewServeMux()
	mux.Handle("/", assets)
	mux.HandleFunc("/triage/state", func(w http.ResponseWriter, _ *http.Request) {
		now, _, _ := a.now()
		_, _ = w.Write(now)
	})
	mux.HandleFunc("/triage/events", a.events)
	server := httptest.NewServer(mux)
	t.Cleanup(func() {
		server.CloseClientConnections()
		server.Close()
	})
	a.Daemon = &testbed.Daemon{Admin: server.URL}
	return a
}

// show makes the page show a state.
func (a *actor) show(state *triage.State) {
	encoded, err := json.Marshal(state)
	if err != nil {
		panic(err) // a state always encodes
	}
	a.mu.Lock()
	defer a.mu.Unlock()
	a.state = encoded
	close(a.news)
	a.news = make(chan struct{})
}

// full makes the actor refuse further streams.
func (a *actor) full() {
	a.mu.Lock()
	defer a.mu.Unlock()
	a.isFull = true
	close(a.news)
	a.news = make(chan struct{})
}

func (a *actor) now() (state []byte, news chan struct{}, full bool) {
	a.mu.Lock()
	defer a.mu.Unlock()
	return a.state, a.news, a.isFull
}

func (a *actor) events(w http.ResponseWriter, r *http.Request) {
	w.Header().Set("Content-Type", "text/event-stream")
	for begun := false; ; begun = true {
		state, news, full := a.now()
		if full {
			if !begun {
				http.Error(w, "there are as many watchers as may be", http.StatusServiceUnavailable)
			}
			return
		}
		_, _ = fmt.Fprintf(w, "retry: 100\nevent: state\ndata: %s\n\n", state)
		w.(http.Flusher).Flush()
		select {
		case <-news:
		case <-r.Context().Done():
			return
		}
	}
}

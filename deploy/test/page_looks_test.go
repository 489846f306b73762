package deploytest

import (
	"encoding/json"
	"fmt"
	"io"
	"net"
	"net/http"
	"os/exec"
	"slices"
	"strings"
	"testing"
	"time"

	"github.com/chromedp/chromedp"
	"github.com/chromedp/chromedp/kb"

	"github.com/ckd-project/ckd/integration_test/testbed"
	"github.com/ckd-project/ckd/internal/pagestate"
)

// TestPageLooks opens both pages, without an alarm and with one, on a phone and on a desk, in light and dark. It
// checks that nothing is wider than the window, and that fingers meet every button. The screenshots stay with
// CKD_ARTIFACTS.
func TestPageLooks(t *testing.T) {
	t.Parallel()
	for name, alarm := range map[string]bool{"calm": false, "alarm": true} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			d := serveState(t, busy(alarm))
			b := open(t, d.Admin+"/")
			b.until(`document.querySelector("#promise-state") && document.querySelectorAll(".review tbody tr").length > 0`, "the page has its state and its list")
			if alarm {
				leads(t, b)
			} else {
				b.recent(t)
				if got := b.text(`[data-part="deferral"]`); !strings.Contains(got, "in doubt: ◆critical: pathologic, 90.0% of 200 deferrals") {
					t.Errorf("of deferrals it says %q", got)
				}
				b.equals("#reads-per-day", 24*(2000+8000*450.0/9000)) // the deferred, and the audited of the retained
			}
			b.look(name)
			if alarm {
				b.window(390, 844, true)
				d.show(busy(true))
				b.until(`document.querySelectorAll('[data-part="recent"] tbody tr').length === 3`, "a phone begins with three deferred inputs")
			}
			b.clean(d.Daemon)
		})
	}
}

// TestPageReviewLooks does the same with the list to review, and enters an outcome there: nothing moves.
func TestPageReviewLooks(t *testing.T) {
	t.Parallel()
	d := serveState(t, busy(false))
	b := open(t, strings.Replace(d.Admin, "//", "//reader:password@", 1)+"/review")
	b.until(`document.querySelectorAll(".review tbody tr").length > 2`, "the list is there")
	if got := b.text("#review-lost"); got != "; 187 more are no longer listed" {
		t.Errorf("of what is lost it says %q", got)
	}
	b.look("review")
	b.window(390, 844, true)
	get[int](b, `(() => { const e = document.querySelector('[name="review-source"]'); e.value = "r"; e.dispatchEvent(new Event("input", { bubbles: true })); return 0 })()`)
	b.click(chooseSecond)
	b.until(`document.querySelector(".confirming:not(.idle)")`, "a phone asks to confirm")
	b.fits("confirming, phone", true)
	b.screenshot("looks-confirm-phone.png")
	b.press(kb.Escape)
	b.window(1400, 900, false)
	stays(t, b)
}

// TestPageDemo takes the picture of the page that README.md shows: docs/triage.png is looks-demo.png, of
// `ckd demo --keep`. It is not parallel: another test could take the port that the demo is to have.
func TestPageDemo(t *testing.T) {
	testbed.Program(t, "chromium", "CHROMIUM")
	d := runDemo(t)
	b := open(t, d.Admin+"/?span=1")
	b.until(`document.querySelector("#promise-state")?.dataset.verdict === "holding" && Number(document.querySelector("#inputs")?.value) > 0 &&
		document.querySelectorAll('[data-part="recent"] tbody tr').length === 10`, "the promise holds, and inputs are deferred")
	b.window(1400, 780, false)
	b.fits("demo", false)
	b.picture("looks-demo.png")
	b.clean(d)
}

// look takes a screenshot in each size and scheme, and checks the layout.
func (b *browser) look(name string) {
	b.t.Helper()
	for _, size := range []struct {
		name          string
		width, height int64
	}{{"phone", 390, 844}, {"desk", 1400, 900}} {
		for _, scheme := range []string{"light", "dark"} {
			b.scheme(scheme)
			b.window(size.width, size.height, size.name == "phone")
			b.fits(fmt.Sprintf("%s, %s, %s", name, size.name, scheme), size.name == "phone")
			b.screenshot(fmt.Sprintf("looks-%s-%s-%s.png", name, size.name, scheme))
		}
	}
	b.scheme("light")
}

// fits checks that nothing reaches beyond the window, but for the contents of boxes that scroll. For fingers, all
// that is pressed is in view and at least 44 pixels wide and high.
func (b *browser) fits(name string, fingers bool) {
	b.t.Helper()
	for _, fault := range get[[]string](b, fmt.Sprintf(`(() => {
		const fingers = %t, faults = [], width = document.documentElement.clientWidth;
		if (document.documentElement.scrollWidth > width) faults.push("the page is " + document.documentElement.scrollWidth + " wide in a window of " + width);
		const said = (e, r, what) => faults.push(what + ": " + e.outerHTML.slice(0, 120) + " from " + r.left + " to " + r.right + ", " + r.height + " high");
		for (const e of document.querySelectorAll("body *")) {
			const r = e.getBoundingClientRect(), pressed = e.matches("button, select, summary, input, [type=radio] + span");
			if (r.width === 0 || !e.checkVisibility({ visibilityProperty: true }) || e.closest(".unseen, .skip, thead") || e.matches(".moment, .moment *")) continue;
			if (fingers && e.matches(".scroll") && e.scrollWidth > e.clientWidth + 1) said(e, r, "it scrolls sideways");
			if ((r.right > width + 0.5 || r.left < -0.5) && (pressed && fingers || !e.parentElement.closest(".scroll"))) said(e, r, "out of view");
			if (fingers && e.matches("button, select, summary, input:not([type=radio], [type=checkbox]), [type=radio] + span, .check") && (r.height < 43.5 || r.width < 43.5)) said(e, r, "too small");
		}
		return faults.slice(0, 5);
	})()`, fingers)) {
		b.t.Errorf("%s: %s", name, fault)
	}
}

// leads checks that the page with an alarm begins with it: the moment, then what to do, then the rate since the
// risk began to rise, and that the average, which looks fine, stays in the details.
func leads(t *testing.T, b *browser) {
	t.Helper()
	if first := get[string](b, `document.querySelector(".column").firstElementChild.id`); first != "promise" {
		t.Errorf("the page begins with %s", first)
	}
	if got := b.text("#promise-state"); !strings.Contains(got, "Alarm since ") {
		t.Errorf("the headline is %q", got)
	}
	b.until(`document.querySelectorAll('[data-chart="promise"] .moment').length === 2`, "the rise and the alarm are marked on the curve")
	if ordered := get[bool](b, `(() => { const [a, b, c] = ["#promise-state", ".acts", "#since-onset"].map((s) => document.querySelector(s).getBoundingClientRect().top);
		return a < b && b < c })()`); !ordered {
		t.Error("the verdict, what to do and the rate since the rise are not in this order")
	}
	if rate := numbers(b, "#since-onset"); len(rate) != 1 || rate[0] <= 0.12 {
		t.Errorf("the rate since the rise is %v, want more than the line", rate)
	}
	shown := get[string](b, `document.querySelector("#promise [data-part=promise-verdict]").innerText`)
	if strings.Contains(shown, "average") {
		t.Errorf("an average leads: %q", shown)
	}
	if got := b.text(`[data-part="rate"]`); !strings.Contains(got, "2,000 deferred since") || strings.Contains(got, "a day") {
		t.Errorf("before there is an hour of traffic it says %q", got)
	}
	if got := b.text("#attention summary"); got != "Less urgent: Deferral rate" || get[bool](b, `document.querySelector("#attention li.warn").checkVisibility()`) {
		t.Errorf("a warning stands beside the alarm, under %q", got)
	}
	for _, want := range []string{"about 17 of 100", "at most 12", "1,000 of 1,000 inputs go to them, in place of 200", "122 misses were seen among 3,086"} {
		if !strings.Contains(shown, want) {
			t.Errorf("it says %q, expected %q", shown, want)
		}
	}
}

// chooseSecond is the first class of the second row.
const chooseSecond = `.review tbody tr:nth-child(2) [data-act="choose"]`

// click presses the first such element with the pointer, which stays there.
func (b *browser) click(selector string) {
	b.t.Helper()
	at := get[[]float64](b, fmt.Sprintf(`(() => { const e = document.querySelector(%s); e.scrollIntoView({ block: "nearest" }); const r = e.getBoundingClientRect(); return [r.left + r.width / 2, r.top + r.height / 2] })()`, quoted(selector)))
	b.do(chromedp.MouseClickXY(at[0], at[1]))
}

// recent checks that ten deferred inputs are shown until more are asked for, with what is the same of all said once.
func (b *browser) recent(t *testing.T) {
	t.Helper()
	const rows = `[data-part="recent"] tbody tr`
	if n := b.count(rows); n != 10 {
		t.Errorf("%d deferred inputs are shown, want 10", n)
	}
	if n := strings.Count(b.text("#recent"), "over the threshold"); n != 1 {
		t.Errorf("the reason of all is said %d times", n)
	}
	if heads := names(b, `[data-part="recent"] thead th`); !slices.Contains(heads, "Score") || slices.Contains(heads, "Passes") {
		t.Errorf("the columns are %q, want the score, which differs, and not the passes", heads)
	}
	b.focus(`#recent [data-act="more"]`)
	b.press(kb.Enter)
	b.until(`document.querySelectorAll('`+rows+`').length === 25`, "more are shown")
}

// stays enters an outcome by the pointer and checks that no row moves or changes its height, however the list
// changes meanwhile.
func stays(t *testing.T, b *browser) {
	t.Helper()
	const places = `[...document.querySelectorAll(".review tbody tr")].map((e) => { const r = e.getBoundingClientRect(); return [e.dataset.key, r.left, r.top, r.height].join(" ") }).join("\n")`
	before := get[string](b, places)
	b.click(chooseSecond)
	b.until(`document.querySelector(".confirming:not(.idle)")`, "the confirmation is shown")
	if now := get[string](b, places); now != before {
		t.Errorf("choosing a class moves rows from\n%s\nto\n%s", before, now)
	}
	b.click(`.confirming:not(.idle) [data-act="confirm"]`)
	b.until(`document.querySelector(".review .echo")`, "the row says what came of it")
	b.until(`document.querySelector('[data-act="fresh"]:not(.idle)')?.textContent.includes("1 new")`, "another input came")
	if now := get[string](b, places); now != before {
		t.Errorf("an entry moves rows from\n%s\nto\n%s", before, now)
	}
	b.screenshot("looks-entered.png")
	b.click(`[data-act="fresh"]`)
	b.until(`document.querySelector(".review tbody th").textContent === "case-new" && !document.querySelector(".review .echo")`, "it is shown when it is asked for")
}

// runDemo runs the demo until the end of the test.
func runDemo(t *testing.T, arguments ...string) *testbed.Daemon {
	t.Helper()
	listener, err := net.Listen("tcp", "127.0.0.1:0")
	if err != nil {
		t.Fatal(err)
	}
	address := listener.Addr().String()
	if err := listener.Close(); err != nil {
		t.Fatal(err)
	}
	command := exec.CommandContext(t.Context(), ckd, append([]string{"demo", "--keep", "--admin", address}, arguments...)...)
	if err := command.Start(); err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() {
		_ = command.Process.Kill() // it has no other end
		_ = command.Wait()
	})
	d := &testbed.Daemon{Admin: "http://" + address}
	testbed.Eventually(t, "the demo has a promise and reviews", func() bool {
		return strings.Contains(fetched(t, d.Admin+"/triage/state"), `"promise"`) && strings.Contains(fetched(t, d.Admin+"/triage/reviews"), `"key"`)
	})
	return d
}

// busy returns the state of a daemon with traffic and outcomes, with an alarm up or without.
func busy(alarm bool) *pagestate.State {
	state := acted("normal", "suspect", "pathologic")
	m := state.Model
	m.Name, m.RecentWhy, m.Certificate = "fetal-health", "", "With confidence 95%, at most 12% of the retained critical inputs are missed."
	state.Models = []string{m.Name}
	m.Classes[1].Critical, m.Classes[1].Safe = true, false
	m.Message = policyOf("ANY_CRITICAL", `, "threshold": 0.02`)
	threshold := 0.0245
	m.Recent = &pagestate.Recent{Kept: 100}
	for i := range 25 {
		score := "cbec"
		if i%4 == 0 {
			score = "c_crit_max"
		}
		m.Recent.Inputs = append(m.Recent.Inputs, pagestate.Deferred{
			At: state.At.Add(-time.Duration(i) * time.Second), ID: fmt.Sprintf("case-%d", 2000+i), Predicted: "normal", Score: score, Value: pagestate.Number(0.03 + 0.002*float64(i)),
			Threshold: &threshold, Reason: "above_threshold", Deciding: "pathologic", DecidingCritical: true, Passes: 30,
			Fingerprint: []pagestate.Share{{Class: "pathologic", Critical: true, C: 0.1}, {Class: "normal", C: 0.06}, {Class: "suspect", Critical: true, C: 0.01, Unreliable: true}},
		})
	}
	for i := range m.Spans {
		s := &m.Spans[i]
		s.Counts = pagestate.Counts{Inputs: 1000, Retained: 800, Deferred: 200, Fallback: 300}
		s.DeferredShare = &pagestate.Interval{Value: 0.2, Low: 0.176, High: 0.226}
		s.Reasons = []pagestate.Reason{{Reason: "under_threshold", Count: 800}, {Reason: "above_threshold", Count: 200}}
		for k := range s.Classes {
			c := float64(k + 1)
			s.Classes[k] = pagestate.ClassSpan{Observations: 1000, Predicted: 800 / (c * c), Dominant: 250 * c, Deciding: 60 * c, Unreliable: 100 * c, MeanC: 0.01 * c,
				Quantiles: &[4]float64{0.0002 * c, 0.004 * c, 0.03 * c, 0.1 * c}}
		}
		s.Pairs = []pagestate.Pair{{A: 0, B: 1, Nats: 0.01}, {A: 0, B: 2, Nats: 0.02}}
	}
	for i := range 20 {
		m.History = append(m.History, pagestate.Step{At: state.At.Add(time.Duration(i-20) * 15 * time.Second).UnixMilli(), Seconds: 15,
			Counts: pagestate.Counts{Inputs: 200, Retained: float64(160 - i%3), Deferred: float64(40 + i%3)}, Quantiles: make([]*[4]float64, len(m.Classes))})
	}
	m.LastHour = pagestate.Hour{Since: state.At.Add(-time.Hour), Seconds: 3600, Retained: 8000, Deferred: 2000}
	if alarm {
		m.LastHour.Since, m.LastHour.Seconds = state.At.Add(-time.Minute), 60
		for i := range m.Spans {
			m.Spans[i].Mismatched = 3
		}
	}
	const point = `{"start": %q, "critical_miss_rate": {"average": {"value": %g, "low": %g, "high": %g}, "line": 0.12, "log_evidence": %g}}`
	var points []string
	verdict, monitor, began := "HOLDING", `"log_evidence": 0.3, "run_length": 1000`, state.At.Add(-40*time.Hour)
	for i := range 40 {
		width, average, evidence := 0.3/float64(5+i), 0.06, 0.3
		if late := float64(i - 28); alarm && late > 0 {
			average, evidence = 0.06+0.003*late, 0.3+0.07*late
		}
		points = append(points, fmt.Sprintf(point, began.Add(time.Duration(i)*time.Hour).Format(time.RFC3339), average, max(0, average-width), average+width, evidence))
	}
	if alarm {
		verdict = "VIOLATED"
		monitor = fmt.Sprintf(`"log_evidence": 1.07, "run_length": 1000, "raised": true, "raised_at": %q, "since": %q,
			"since_rate": {"share": {"value": 0.171, "low": 0.146, "high": 0.198}, "events": "122", "total": "3086"}`,
			began.Add(38*time.Hour).Format(time.RFC3339), began.Add(28*time.Hour).Format(time.RFC3339))
	}
	m.Promises = []json.RawMessage{json.RawMessage(fmt.Sprintf(`{
		"promise": {"model_version": "7", "verdict": "VERDICT_%s", "alarm": %t}, "why": [], "cohort_period": "3600s", "due": "3600s", "mature_cohorts": 40, "open_cohorts": 2,
		"provisional": {"decided": "4000", "figures": []}, "strata": [
			{"stratum": "STRATUM_DEFERRED", "decisions": "2250", "reviews": "2250", "due": "2200", "arrived": "2200", "overdue": "0", "free": true},
			{"stratum": "STRATUM_CALLED_CRITICAL", "decisions": "0", "reviews": "0", "due": "0", "arrived": "0", "overdue": "0", "free": true},
			{"stratum": "STRATUM_CALLED_SAFE", "decisions": "9000", "reviews": "450", "expected": 440.5, "due": "440", "arrived": "438", "overdue": "2"}],
		"mature": {"readers": {}, "yield_by_reason": [], "figures": [
			{"figure": "CERTIFIED_FIGURE_CRITICAL_FNR", "critical_class": "", "outcomes": "9000", "average": {"value": 0.5, "low": 0.4, "high": 0.6}},
			{"figure": "CERTIFIED_FIGURE_CRITICAL_MISS_RATE", "critical_class": "", "outcomes": "9000", "critical": "6871", "misses": "181", "line": 0.12, "line_origin": "stated by dr. eve on 2026-03-05",
				"average": {"value": 0.095, "low": 0.08, "high": 0.11}, "monitor": {%s}}
		]}, "history": [%s]}`, verdict, alarm, monitor, strings.Join(points, ", ")))}
	return state
}

// fetched returns what a URL answers; nothing while nobody does.
func fetched(t *testing.T, url string) string {
	t.Helper()
	response, err := http.Get(url)
	if err != nil {
		return ""
	}
	defer response.Body.Close()
	data, err := io.ReadAll(response.Body)
	if err != nil {
		return ""
	}
	return string(data)
}

package deploytest

import (
	"fmt"
	"math"
	"net/url"
	"os/exec"
	"path/filepath"
	"slices"
	"strings"
	"testing"

	"github.com/chromedp/cdproto/accessibility"
	"github.com/chromedp/chromedp"
	"github.com/chromedp/chromedp/kb"

	"github.com/ckd-project/ckd/client"
	"github.com/ckd-project/ckd/integration_test/testbed"
	"github.com/ckd-project/ckd/internal/pagestate"
)

// digits lists the classes of the recordings digits-*. The tests take two of them for critical.
const (
	digits         = "0,1,2,3,4,5,6"
	digitsCritical = "3,5"
)

// TestPage compares the page in a browser with /metrics after a replay. It follows drift and failed
// reloads, in both colour schemes and on a phone.
func TestPage(t *testing.T) {
	t.Parallel()
	policy := calibrated(t)
	d := testbed.Serve(t, ckd, "--policy", policy)
	b := open(t, d.Admin+"/?model=digits&span=15")
	b.until(`document.querySelector("#inputs")?.value === "0"`, "the page shows that there was no input")
	if got := b.text(`[data-part="recent"]`); !strings.Contains(got, "not kept") {
		t.Errorf("without recent-inputs it says %q", got)
	}
	replay(t, d, "digits", recording("digits-id"))
	b.until(`document.querySelector("#inputs")?.value === "506"`, "the page counts the replay")

	metrics := d.Metrics()
	inputs := metrics.Sum("ckd_decisions_total")
	deferred := metrics.Sum("ckd_decisions_total", "action", "defer")
	b.equals(`#deferral-rate`, deferred/inputs)
	b.equals(`[data-part="shares"] tr[data-key="fallback"] td:nth-child(3) data`, 0)
	b.equals(`[data-part="reasons"] tr[data-key="above_threshold"] td:nth-child(3) data`, deferred)
	for _, class := range strings.Split(digits, ",") {
		row := fmt.Sprintf(`[data-part="classes"] tr[data-key="%s"] td:nth-child(%%d) data`, class)
		b.equals(fmt.Sprintf(row, 6), metrics.Sum("ckd_class_epistemic_nats_sum", "class", class)/metrics.Sum("ckd_class_epistemic_nats_count", "class", class))
		b.equals(fmt.Sprintf(row, 7), metrics.Sum("ckd_class_unreliable_total", "class", class)/inputs)
		b.equals(fmt.Sprintf(row, 8), metrics.Sum("ckd_class_predicted_total", "class", class)/inputs)
		b.equals(fmt.Sprintf(row, 9), metrics.Sum("ckd_class_dominant_total", "class", class)/inputs)
		b.equals(fmt.Sprintf(row, 10), metrics.Sum("ckd_class_deciding_total", "class", class)/deferred)
	}
	if hash := b.attribute(`#policy code[title]`, "title"); metrics.Sum("ckd_policy_info", "hash", hash) != 1 {
		t.Errorf("the policy's hash is %q, not that of ckd_policy_info", hash)
	}
	if got := b.attribute(`[data-verdict]`, "data-verdict"); got != "agrees" {
		t.Errorf("the deferral rate of what the policy was calibrated on is judged %q", got)
	}
	if got := names(b, `[data-part="classes"] tbody th .unseen`); len(got) != 2 || got[0] != "critical: " {
		t.Errorf("critical classes are said to be %q", got)
	}
	if got := names(b, `[data-part="classes"] tbody tr`, "data-key"); !slices.Equal(got, []string{"3", "5", "0", "1", "2", "4", "6"}) {
		t.Errorf("order of classes %q, want critical ones first", got)
	}
	t.Run("heat map", func(t *testing.T) { heatMap(t, b, metrics, inputs) })
	t.Run("rules", func(t *testing.T) { rules(t, b) })
	t.Run("looks", func(t *testing.T) { looks(t, b) })

	t.Run("drift", func(t *testing.T) {
		if got := b.text(`[data-part="attention"]`); strings.Contains(got, "Drift") {
			t.Fatalf("an alarm before there is drift: %s", got)
		}
		replay(t, d, "digits", recording("digits-ood"))
		b.until(`document.querySelector("#attention").dataset.level === "alarm" &&
			document.querySelector('[data-part="attention"]').textContent.includes("Drift")`, "the alarm is shown")
		b.until(`document.querySelectorAll("td.z.alarm").length > 0`, "the table has it")
		if got := b.text(`[role="status"]`); !strings.Contains(got, "Drift") {
			t.Errorf("screen readers are told %q", got)
		}
		for _, z := range numbers(b, `td.z.alarm .z-value data`) {
			if math.Abs(z) <= 5.5 {
				t.Errorf("an alarm at z %g", z)
			}
		}
		b.screenshot("triage-drift.png")
	})
	t.Run("reload", func(t *testing.T) {
		good := getFile(t, policy)
		putFile(t, policy, good+"    gate: sometimes\n")
		b.until(`document.querySelector("#reload-error")?.textContent.includes("gate") &&
			document.querySelector('[data-part="attention"]').textContent.includes("could not be loaded")`, "the failed reload is shown")
		putFile(t, policy, strings.Replace(good, "models:\n", "# mended\nmodels:\n", 1))
		b.until(`!document.querySelector("#reload-error") &&
			!document.querySelector('[data-part="attention"]').textContent.includes("could not be loaded")`, "and goes away")
		putFile(t, policy, strings.Replace(good, ", threshold: ", ", threshold: 1", 1))
		b.until(`document.querySelector('[data-part="attention"]').textContent.includes("not as it was calibrated") &&
			document.querySelector("#policy").textContent.includes("was changed since it was calibrated") &&
			document.querySelector("[data-verdict]").dataset.verdict === "changed"`, "a policy that was changed by hand is said to be")
	})
	b.clean(d)
}

// TestPageRecent checks that ids are shown only where they are kept, and as text.
func TestPageRecent(t *testing.T) {
	t.Parallel()
	d := testbed.Serve(t, ckd, "--policy", putFile(t, filepath.Join(t.TempDir(), "policy.yaml"), `
models:
  - name: eager
    classes: [benign, malignant]
    critical: [malignant]
    passes: {fewest: 2}
    gate: never
    primary: {score: c_crit_max, threshold: 0.0001}
`), "--recent-inputs", "5")
	c, err := client.Dial(d.GRPC[0])
	if err != nil {
		t.Fatal(err)
	}
	defer c.Close()
	const html = `<img src=x onerror="document.title='broken into'"><b>bold</b>`
	const retained = "steady"
	_, err = c.Decompose(t.Context(), client.Batch{
		Model: "eager", Passes: 2, Inputs: 2, IDs: []string{html, retained},
		Values: []float32{0.9, 0.1, 0.9, 0.1, 0.4, 0.6, 0.9, 0.1001},
	})
	if err != nil {
		t.Fatal(err)
	}
	b := open(t, d.Admin+"/")
	b.until(`document.querySelectorAll('[data-part="recent"] tbody tr').length === 1`, "the deferred input is shown")
	if got := b.text(`[data-part="recent"] th.id`); got != html {
		t.Errorf("the id is shown as %q", got)
	}
	if n := b.count(`[data-part="recent"] img, [data-part="recent"] th b`); n != 0 {
		t.Errorf("%d elements come from an id", n)
	}
	// Passes (0.9, 0.1) and (0.4, 0.6) have the means 0.65 and 0.35 and the variance 0.125 each, so
	// that C is 0.125/2/0.65 and 0.125/2/0.35.
	for column, want := range map[int]string{3: "benign", 5: "◆critical: malignant"} {
		if got := b.text(fmt.Sprintf(`[data-part="recent"] tbody tr > :nth-child(%d)`, column)); got != want {
			t.Errorf("column %d is %q, want %q", column, got, want)
		}
	}
	if got := b.text("#recent-common"); !strings.Contains(got, "over the threshold") || !strings.Contains(got, "2 passes") {
		t.Errorf("of what is the same of all it says %q", got)
	}
	for i, want := range []float64{0.125 / 2 / 0.35, 0.125 / 2 / 0.65} {
		// The passes are float32.
		if got := numbers(b, `[data-part="recent"] .fingerprint li data`); len(got) != 2 || math.Abs(got[i]-want) > 1e-6 {
			t.Errorf("the fingerprint is %v, want %g at %d", got, want, i)
		}
	}
	if got := numbers(b, `[data-part="recent"] .score-text data`); len(got) != 2 || math.Abs(got[0]-0.125/2/0.35) > 1e-6 || got[1] != 0.0001 {
		t.Errorf("score and threshold are %v", got)
	}
	b.focus(".fingerprint summary")
	b.press(kb.Enter)
	b.until(`document.querySelector(".fingerprint").open`, "Enter opens the fingerprint")
	b.next()
	if !get[bool](b, `document.querySelector(".fingerprint").open`) {
		t.Error("what was opened is closed by the next event")
	}
	if strings.Contains(b.text("body"), retained) {
		t.Error("an input that was retained is shown")
	}
	b.clean(d)
}

// TestPageKeyboard reaches and works everything on the page without a mouse.
func TestPageKeyboard(t *testing.T) {
	t.Parallel()
	dir := t.TempDir()
	for _, name := range []string{"first", "second"} {
		putFile(t, filepath.Join(dir, name+".yaml"), fmt.Sprintf(
			"models:\n  - {name: %s, classes: [a, b, c], critical: [b], passes: {fewest: 5}}\n", name))
	}
	d := testbed.Serve(t, ckd, "--policy", dir)
	b := open(t, d.Admin+"/")
	b.until(`document.querySelectorAll('[data-part="classes"] tbody tr').length === 3`, "the page is there")
	get[bool](b, `(document.querySelector("#confusion").open = true)`)

	// Tab goes from the top until the focus leaves the page.
	var reached []string
	for range 80 {
		b.press(kb.Tab)
		at := get[string](b, `(() => { const e = document.activeElement; return e === document.body ? "" :
			e.id || e.name || e.dataset.sort || (e.dataset.cell && "cell") || e.dataset.part || e.textContent.trim() })()`)
		if at == "" {
			break
		}
		reached = append(reached, at)
		if visible := get[bool](b, `(() => { const e = document.activeElement, s = e.matches("#span input") ? e.nextElementSibling : e;
			return getComputedStyle(s).outlineStyle !== "none" && parseFloat(getComputedStyle(s).outlineWidth) >= 2 })()`); !visible {
			t.Errorf("the focus cannot be seen on %q", at)
		}
	}
	if len(reached) == 0 || reached[0] != "Skip to the content" {
		t.Errorf("the first that Tab reaches is not the skip link: %q", reached)
	}
	for _, want := range []string{"model", "span", "class", "p90", "deciding", "cell", "classes", "What this shows"} {
		if !slices.Contains(reached, want) {
			t.Errorf("Tab does not reach %q, but %q", want, reached)
		}
	}

	b.focus("#model")
	b.press(kb.ArrowDown)
	b.until(`new URLSearchParams(location.search).get("model") === "second" && document.querySelector("#policy dd").textContent === "second"`,
		"the arrow chooses the other model, and the address remembers it")
	b.focus(`#span input[value="5"]`)
	b.press(kb.ArrowRight)
	b.until(`new URLSearchParams(location.search).get("span") === "15"`, "the arrow chooses the longer span")
	b.focus(`[data-sort="p90"]`)
	b.press(kb.Enter)
	b.until(`document.querySelector('th[aria-sort="descending"]')?.textContent.includes("p90")`, "Enter sorts")
	b.until(`document.activeElement.dataset.sort === "p90"`, "and the focus stays")
	b.focus(`[data-cell][tabindex="0"]`)
	b.press(kb.ArrowDown)
	b.press(kb.ArrowRight)
	b.until(`document.activeElement.dataset.cell === "1 2" && document.querySelector('[data-part="cell"]').textContent === "a and c: not computed."`,
		"the arrows walk the heat map")
	b.press(kb.Home)
	b.until(`document.querySelector('[data-part="cell"]').textContent.startsWith("a and b (critical): ")`, "and say what the cell is")
	b.focus("#recent summary")
	b.press(kb.Enter)
	b.until(`document.querySelector("#recent details").open`, "Enter opens an explanation")
	b.visit(get[string](b, `location.href`))
	b.until(`document.querySelector("#model").value === "second" && document.querySelector('#span input[value="15"]').checked`,
		"a page that is opened by its address shows the same")
	b.clean(d)
}

// TestPageManyClasses checks that the page works with 100 classes and says what it leaves out.
func TestPageManyClasses(t *testing.T) {
	t.Parallel()
	const classes, shown = 100, 16
	names16 := []string{"class 7", "class 40", "class 99"}
	for k := range shown - 3 {
		names16 = append(names16, fmt.Sprintf("class %d", 10+k))
	}
	state := acted(append(names16, "other")...)
	for k := range state.Model.Classes {
		c := &state.Model.Classes[k]
		c.Critical, c.Safe = k < 3, k >= 3
	}
	rest := &state.Model.Classes[shown]
	rest.Shared, rest.Of = true, classes-shown
	state.Model.ClassesCut, state.Model.PairsCut = classes-shown, 3*(classes-shown)
	for a := range 3 {
		for c := 3; c < shown; c++ {
			for i := range state.Model.Spans {
				state.Model.Spans[i].Pairs = append(state.Model.Spans[i].Pairs, pagestate.Pair{A: a, B: c, Nats: 0.01})
			}
		}
	}
	d := serveState(t, state)
	b := open(t, d.Admin)
	b.until(`document.querySelectorAll('[data-part="classes"] tbody tr').length > 0`, "the page has a state")
	if got := names(b, `[data-part="classes"] tbody tr`, "data-key"); len(got) != shown+1 || !slices.Equal(got[:3], names16[:3]) {
		t.Errorf("the rows are %q, want %d and one for the others, critical ones first", got, shown)
	}
	if got := b.text("#classes-cut"); !strings.Contains(got, "16 of 100") || !strings.Contains(got, "other 84") {
		t.Errorf("of the classes that are left out it says %q", got)
	}
	if got := b.text("#pairs-cut"); !strings.Contains(got, fmt.Sprint(3*(classes-shown))) {
		t.Errorf("of the pairs that are left out it says %q, want 3 times 84", got)
	}
	if n := b.count(`[data-part="confusion"] tbody td`); n != shown*shown {
		t.Errorf("%d cells, want %d", n, shown*shown)
	}
	if n := b.count(`[data-part="confusion"] td[data-block]`); n != 2*3*(shown-3) {
		t.Errorf("%d cells in the block, want %d", n, 2*3*(shown-3))
	}
	if got := b.text(`#drift`); !strings.Contains(got, "no reference") {
		t.Errorf("without a reference, drift says %q", got)
	}
	b.screenshot("triage-hundred.png")
	b.narrow()
	b.clean(d.Daemon)
}

// TestPageReconnects checks that a page that loses its daemon says so, and finds it again. It is not parallel:
// another test could take the daemon's port meanwhile.
func TestPageReconnects(t *testing.T) {
	policy := putFile(t, filepath.Join(t.TempDir(), "policy.yaml"),
		"models:\n  - {name: only, classes: [a, b], critical: [b], passes: {fewest: 5}}\n")
	d := testbed.Serve(t, ckd, "--policy", policy)
	b := open(t, d.Admin+"/")
	b.until(`document.querySelector("#connection").dataset.state === "live"`, "it is live")
	b.until(`document.querySelector("[data-verdict]").dataset.verdict === "observes"`, "a policy without thresholds is said to observe")
	d.Stop()
	b.until(`document.querySelector("#connection").textContent.includes("reconnecting")`, "it says that the daemon is gone")
	admin, err := url.Parse(d.Admin)
	if err != nil {
		t.Fatal(err)
	}
	testbed.Start(t, exec.Command(ckd, "serve", "--policy", policy, "--listen", "127.0.0.1:0", "--admin", admin.Host), 1)
	b.until(`document.querySelector("#connection").dataset.state === "live"`, "it is live again")
}

// heatMap compares the critical rows with the metrics. Cells that are not computed must be empty,
// not zero.
func heatMap(t *testing.T, b *browser, metrics testbed.Metrics, inputs float64) {
	if n := b.count(`[data-part="confusion"] td[data-block]`); n != 2*2*5 {
		t.Errorf("%d cells in the block, want 20", n)
	}
	if n := b.count(`[data-part="confusion"] td.absent`); n != 7*6-2*2*5 {
		t.Errorf("%d cells are absent, want 22", n)
	}
	if n := b.count(`[data-part="confusion"] td.absent data`); n != 0 {
		t.Errorf("%d absent cells have a value", n)
	}
	for _, said := range names(b, `[data-part="confusion"] td.absent`) {
		if said != "not computed" {
			t.Errorf("an absent cell says %q", said)
		}
	}
	if n := b.count(`.legend .swatch.absent`); n != 1 {
		t.Error("the legend does not tell what absent cells are")
	}
	// Critical classes come first: rows 0 and 1 are 3 and 5, columns 2 to 6 are 0, 1, 2, 4, 6.
	for r, critical := range []string{"3", "5"} {
		for c, safe := range []string{"0", "1", "2", "4", "6"} {
			low, high := min(critical, safe), max(critical, safe)
			want := metrics.Sum("ckd_pair_confusion_nats_total", "class_a", low, "class_b", high) / inputs
			b.equals(fmt.Sprintf(`[data-cell="%d %d"] data`, r, c+2), want)
			b.equals(fmt.Sprintf(`[data-cell="%d %d"] data`, c+2, r), want)
		}
	}
	outlined := get[bool](b, `(() => { const s = (c) => getComputedStyle(document.querySelector('[data-cell="' + c + '"]'));
		return s("0 2").borderTopWidth === "2px" && s("0 2").borderLeftWidth === "2px" && s("1 6").borderBottomWidth === "2px"
			&& s("1 6").borderRightWidth === "2px" && s("0 3").borderLeftWidth !== "2px" && s("0 1").borderTopWidth !== "2px" })()`)
	if !outlined {
		t.Error("the block is not outlined")
	}
}

// looks checks contrast in light and dark, and the width on a phone.
func looks(t *testing.T, b *browser) {
	for _, scheme := range []string{"light", "dark"} {
		b.scheme(scheme)
		contrast(t, b, scheme)
		b.screenshot("triage-" + scheme + ".png")
	}
	light := get[string](b, `getComputedStyle(document.body).backgroundColor`)
	b.scheme("light")
	if dark := get[string](b, `getComputedStyle(document.body).backgroundColor`); light == dark {
		t.Errorf("light and dark have the same ground, %s", light)
	}
	b.narrow()
	b.screenshot("triage-phone.png")
	b.window(1440, 900, false)
}

// rules checks the page against rules of accessibility.
func rules(t *testing.T, b *browser) {
	t.Helper()
	get[int](b, `document.querySelectorAll("details").forEach((d) => (d.open = true)) ?? 0`)
	tree, err := chromedp.Call(b.ctx, accessibility.GetFullAXTree, accessibility.GetFullAXTreeParams{})
	if err != nil {
		t.Fatal(err)
	}
	named := []string{"button", "link", "combobox", "radio", "radiogroup", "table", "grid", "image", "img", "region", "navigation",
		"DisclosureTriangle", "gridcell", "option", "columnheader", "rowheader"}
	seen := map[string]int{}
	for _, node := range tree.Nodes {
		role := text(node.Role)
		if node.Ignored || !slices.Contains(named, role) {
			continue
		}
		seen[role]++
		if strings.TrimSpace(text(node.Name)) == "" {
			t.Errorf("a %s has no name (node %d)", role, node.BackendDOMNodeID)
		}
	}
	for _, role := range []string{"button", "link", "combobox", "radio", "table", "grid", "image", "DisclosureTriangle"} {
		if seen[role] == 0 && !(role == "image" && seen["img"] > 0) {
			t.Errorf("the accessibility tree has no %s: %v", role, seen)
		}
	}
	for rule, broken := range map[string]string{
		"a picture has a text alternative": `[...document.querySelectorAll("img, svg, canvas")].filter((e) =>
			!e.closest("[aria-hidden=true]") && !(e.closest("[role=img]")?.getAttribute("aria-label")))`,
		"a table has a caption": `[...document.querySelectorAll("table")].filter((e) => !e.caption?.textContent.trim())`,
		"a header has a scope":  `[...document.querySelectorAll("th")].filter((e) => !e.scope)`,
		"headings are in order": `[...document.querySelectorAll("h1, h2, h3, h4, h5, h6")].filter((e, i, all) =>
			Number(e.tagName[1]) > (i ? Number(all[i - 1].tagName[1]) + 1 : 1))`,
		"there is one first heading":        `[...document.querySelectorAll("h1")].slice(1)`,
		"a group of fields has a legend":    `[...document.querySelectorAll("fieldset")].filter((e) => !e.querySelector("legend")?.textContent.trim())`,
		"ids are unique":                    `[...document.querySelectorAll("[id]")].filter((e, i, all) => all.findIndex((o) => o.id === e.id) !== i)`,
		"what is labelled by an id has it":  `[...document.querySelectorAll("[aria-labelledby]")].filter((e) => !document.getElementById(e.getAttribute("aria-labelledby")))`,
		"style comes from the style sheets": `[...document.querySelectorAll("style, script:not([src])")]`,
	} {
		if got := get[[]string](b, broken+`.map((e) => e.outerHTML.slice(0, 200))`); len(got) > 0 {
			t.Errorf("%s, but not %q", rule, got)
		}
	}
}

// contrast checks that text has a contrast of 4.5 to its background, or of 3 where it is large.
func contrast(t *testing.T, b *browser, scheme string) {
	t.Helper()
	type poor struct {
		Text, Ink, Ground string
		Ratio             float64
	}
	for _, p := range get[[]poor](b, `(() => {
		const parse = (c) => { const [r, g, b, a = 1] = c.match(/[\d.]+/g).map(Number); return [r, g, b, a] };
		const over = ([r, g, b, a], [R, G, B]) => [r * a + R * (1 - a), g * a + G * (1 - a), b * a + B * (1 - a), 1];
		const light = (c) => { const [r, g, b] = c.slice(0, 3).map((v) => (v /= 255) <= 0.04045 ? v / 12.92 : ((v + 0.055) / 1.055) ** 2.4);
			return 0.2126 * r + 0.7152 * g + 0.0722 * b };
		const ground = (e) => { const all = []; for (; e; e = e.parentElement) all.push(parse(getComputedStyle(e).backgroundColor));
			return all.reverse().reduce((under, c) => over(c, under), [255, 255, 255, 1]) };
		document.querySelectorAll("details").forEach((d) => (d.open = true));
		const found = [], walker = document.createTreeWalker(document.body, NodeFilter.SHOW_TEXT);
		while (walker.nextNode()) {
			const e = walker.currentNode.parentElement, style = getComputedStyle(e);
			if (!walker.currentNode.nodeValue.trim() || e.closest(".unseen, noscript, .skip, option") || !e.checkVisibility()) continue;
			const under = ground(e), ink = over(parse(style.color), under), [a, b] = [light(ink), light(under)];
			const ratio = (Math.max(a, b) + 0.05) / (Math.min(a, b) + 0.05), size = parseFloat(style.fontSize);
			if (ratio < (size >= 24 || (size >= 18.66 && style.fontWeight >= 700) ? 3 : 4.5))
				found.push({ Text: e.textContent.slice(0, 40), Ink: style.color, Ground: under.join(), Ratio: ratio });
		}
		document.querySelectorAll("details").forEach((d) => (d.open = false));
		return found;
	})()`) {
		t.Errorf("%s: %q has a contrast of %.2f, %s on %s", scheme, p.Text, p.Ratio, p.Ink, p.Ground)
	}
}

// calibrated returns the file of a policy with thresholds and a drift reference.
func calibrated(t *testing.T) string {
	t.Helper()
	return calibrate(t, t.TempDir(), "digits", "digits-id", "--classes", digits, "--critical", digitsCritical)
}

func replay(t *testing.T, d *testbed.Daemon, model, passes string) {
	t.Helper()
	got := testbed.Run(t, exec.Command(ckd, "replay", "--addr", d.GRPC[0], "--model", model, "--passes", passes, "--quiet"))
	if got.Code != 0 {
		t.Fatalf("replay: %d %s", got.Code, got.Stderr)
	}
}

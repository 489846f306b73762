package deploytest

import (
	"context"
	"encoding/json"
	"fmt"
	"math"
	"os"
	"path/filepath"
	"strings"
	"sync"
	"testing"

	"github.com/chromedp/cdproto/accessibility"
	"github.com/chromedp/cdproto/cdp"
	"github.com/chromedp/cdproto/emulation"
	"github.com/chromedp/cdproto/log"
	"github.com/chromedp/cdproto/network"
	"github.com/chromedp/cdproto/page"
	"github.com/chromedp/cdproto/runtime"
	"github.com/chromedp/chromedp"

	"github.com/ckd-project/ckd/integration_test/testbed"
)

// narrow makes the window that of a phone. Only tables may be wider.
func (b *browser) narrow() {
	b.t.Helper()
	b.window(360, 740, true)
	if width := get[int](b, `document.documentElement.scrollWidth`); width > 360 {
		b.t.Errorf("the page is %d wide in a window of 360", width)
	}
}

// browser is a page in a window of its own, with its own storage.
type browser struct {
	t    *testing.T
	ctx  context.Context
	size emulation.SetDeviceMetricsOverrideParams // of the window

	mu       sync.Mutex
	trouble  []string // errors of the console, the security policy and scripts
	requests []string // URLs
}

// chromium is the one process that has all windows, since each start takes seconds. closeChromium ends it.
var chromium struct {
	sync.Mutex
	ctx    context.Context // nil before the first window
	closes context.CancelFunc
}

func startedChromium(t *testing.T) context.Context {
	t.Helper()
	path := testbed.Program(t, "chromium", "CHROMIUM")
	chromium.Lock()
	defer chromium.Unlock()
	if chromium.ctx == nil {
		ctx, closes := chromedp.NewContext(context.Background(), chromedp.WithAllocatorOptions(
			chromedp.ExecPath(path), chromedp.NoSandbox, chromedp.Flag("disable-dev-shm-usage", true)))
		if err := chromedp.Do(ctx); err != nil {
			closes()
			t.Fatal(err)
		}
		chromium.ctx, chromium.closes = ctx, closes
	}
	return chromium.ctx
}

func closeChromium() {
	if chromium.closes != nil {
		chromium.closes()
	}
}

// open opens a page in a new window. The end of the test closes it.
func open(t *testing.T, address string) *browser {
	t.Helper()
	limited, cancel := context.WithTimeout(startedChromium(t), 3*testbed.Hang)
	t.Cleanup(cancel)
	ctx, closes := chromedp.NewContext(limited, chromedp.WithNewBrowserContext())
	t.Cleanup(closes)
	b := &browser{t: t, ctx: ctx}
	if err := chromedp.Listen(ctx, b.hear); err != nil {
		t.Fatal(err)
	}
	for _, enable := range []cdp.Command[cdp.Empty, cdp.Empty]{log.Enable, runtime.Enable, accessibility.Enable} {
		if _, err := chromedp.Call(ctx, enable, cdp.Empty{}); err != nil {
			t.Fatal(err)
		}
	}
	if _, err := chromedp.Call(ctx, network.Enable, network.EnableParams{}); err != nil {
		t.Fatal(err)
	}
	// Whichever window has the focus of the browser, each page behaves as if it had it.
	if _, err := chromedp.Call(ctx, emulation.SetFocusEmulationEnabled, emulation.SetFocusEmulationEnabledParams{Enabled: true}); err != nil {
		t.Fatal(err)
	}
	b.window(1440, 900, false)
	b.scheme("light")
	b.visit(address)
	return b
}

func (b *browser) hear(event any) {
	b.mu.Lock()
	defer b.mu.Unlock()
	switch e := event.(type) {
	case *log.EventEntryAdded:
		if e.Entry.Level == log.EntryLevelError || e.Entry.Level == log.EntryLevelWarning {
			b.trouble = append(b.trouble, fmt.Sprintf("%s: %s %s", e.Entry.Source, e.Entry.Text, e.Entry.URL))
		}
	case *runtime.EventExceptionThrown:
		b.trouble = append(b.trouble, e.ExceptionDetails.Text)
		if thrown := e.ExceptionDetails.Exception; thrown != nil {
			b.trouble = append(b.trouble, thrown.Description)
		}
	case *runtime.EventConsoleAPICalled:
		b.trouble = append(b.trouble, fmt.Sprintf("console.%s", e.Type))
	case *network.EventRequestWillBeSent:
		b.requests = append(b.requests, e.Request.URL)
	}
}

// clean checks that nothing went wrong in the page, and that it spoke only to its daemon.
func (b *browser) clean(d *testbed.Daemon) {
	b.t.Helper()
	b.mu.Lock()
	defer b.mu.Unlock()
	if len(b.trouble) > 0 {
		b.t.Errorf("the browser complains: %q", b.trouble)
	}
	for _, request := range b.requests {
		if !strings.HasPrefix(request, d.Admin+"/") {
			b.t.Errorf("the page asks for %s", request)
		}
	}
	if len(b.requests) < 5 {
		b.t.Errorf("only %d requests were seen: %q", len(b.requests), b.requests)
	}
}

func (b *browser) visit(address string) {
	b.t.Helper()
	b.do(chromedp.Navigate(address))
}

func (b *browser) window(width, height int64, mobile bool) {
	b.t.Helper()
	b.size = emulation.SetDeviceMetricsOverrideParams{Width: width, Height: height, DeviceScaleFactor: 1, Mobile: mobile}
	if _, err := chromedp.Call(b.ctx, emulation.SetDeviceMetricsOverride, b.size); err != nil {
		b.t.Fatal(err)
	}
	b.draw()
}

func (b *browser) scheme(name string) {
	b.t.Helper()
	_, err := chromedp.Call(b.ctx, emulation.SetEmulatedMedia,
		emulation.SetEmulatedMediaParams{Features: []*emulation.MediaFeature{{Name: "prefers-color-scheme", Value: name}}})
	if err != nil {
		b.t.Fatal(err)
	}
	b.draw()
}

// draw waits until the page has been laid out and drawn twice.
func (b *browser) draw() {
	b.t.Helper()
	b.do(func(ctx context.Context, target *chromedp.Target) (chromedp.Void, error) {
		_, err := chromedp.Evaluate[bool](`new Promise((done) => requestAnimationFrame(() => requestAnimationFrame(() => done(true))))`,
			chromedp.EvalAwaitPromise)(ctx, target)
		return chromedp.Void{}, err
	})
}

// screenshot saves a picture of the whole page among the artifacts.
func (b *browser) screenshot(name string) {
	b.t.Helper()
	// The window must hold all of it: a browser does not draw everything beyond.
	before := b.size
	b.window(before.Width, get[int64](b, `document.documentElement.scrollHeight`), before.Mobile)
	b.picture(name)
	b.window(before.Width, before.Height, before.Mobile)
}

// picture saves a picture of the window among the artifacts.
func (b *browser) picture(name string) {
	b.t.Helper()
	dir := os.Getenv("CKD_ARTIFACTS")
	if dir == "" {
		dir = b.t.TempDir()
	} else if err := os.MkdirAll(dir, 0o750); err != nil {
		b.t.Fatal(err)
	}
	shot, err := chromedp.Call(b.ctx, page.CaptureScreenshot, page.CaptureScreenshotParams{})
	if err != nil {
		b.t.Fatal(err)
	}
	if err := os.WriteFile(filepath.Join(dir, name), shot.Data, 0o600); err != nil {
		b.t.Fatal(err)
	}
}

func (b *browser) press(key string) {
	b.t.Helper()
	b.do(chromedp.KeyEvent(key))
}

func (b *browser) focus(selector string) {
	b.t.Helper()
	if !get[bool](b, fmt.Sprintf(`(() => { const e = document.querySelector(%s); e?.focus(); return e !== null && document.activeElement === e })()`, quoted(selector))) {
		b.t.Fatalf("%s cannot be focused", selector)
	}
}

func (b *browser) do(action chromedp.Action[chromedp.Void]) {
	b.t.Helper()
	if err := chromedp.Do(b.ctx, action); err != nil {
		b.t.Fatal(err)
	}
}

// until waits until a JavaScript expression is true.
func (b *browser) until(expression, what string) {
	b.t.Helper()
	held := false
	defer func() {
		if !held {
			b.t.Logf("the page says\n%s\nand the browser %q", b.text("main"), b.trouble)
		}
	}()
	testbed.Eventually(b.t, what, func() bool {
		held = get[bool](b, "Boolean("+expression+")")
		return held
	})
}

// next waits until an event has updated the page.
func (b *browser) next() {
	b.t.Helper()
	const at = `document.querySelector("#connection").title`
	before := get[string](b, at)
	b.until(fmt.Sprintf(`%s !== %q`, at, before), "the next event has come")
}

// equals checks the number behind an element.
func (b *browser) equals(selector string, want float64) {
	b.t.Helper()
	got := numbers(b, selector)
	// JSON and divisions round.
	if len(got) != 1 || math.IsNaN(want) || math.Abs(got[0]-want) > 1e-9*math.Abs(want) {
		b.t.Errorf("%s is %v, want %g", selector, got, want)
	}
}

func (b *browser) text(selector string) string {
	b.t.Helper()
	return get[string](b, fmt.Sprintf(`document.querySelector(%s)?.textContent ?? "nothing at all"`, quoted(selector)))
}

func (b *browser) attribute(selector, name string) string {
	b.t.Helper()
	return get[string](b, fmt.Sprintf(`document.querySelector(%s)?.getAttribute(%s) ?? ""`, quoted(selector), quoted(name)))
}

func (b *browser) count(selector string) int {
	b.t.Helper()
	return get[int](b, fmt.Sprintf(`document.querySelectorAll(%s).length`, quoted(selector)))
}

// names returns the texts of elements, or one of their attributes.
func names(b *browser, selector string, attribute ...string) []string {
	b.t.Helper()
	of := "e.textContent"
	if len(attribute) > 0 {
		of = fmt.Sprintf("e.getAttribute(%s)", quoted(attribute[0]))
	}
	return get[[]string](b, fmt.Sprintf(`[...document.querySelectorAll(%s)].map((e) => %s)`, quoted(selector), of))
}

// numbers returns the numbers behind elements.
func numbers(b *browser, selector string) []float64 {
	b.t.Helper()
	return get[[]float64](b, fmt.Sprintf(`[...document.querySelectorAll(%s)].map((e) => Number(e.value))`, quoted(selector)))
}

func get[T any](b *browser, expression string) T {
	b.t.Helper()
	value, err := chromedp.Run(b.ctx, chromedp.Evaluate[T](expression))
	if err != nil {
		b.t.Fatalf("%s: %v", expression, err)
	}
	return value
}

func quoted(s string) string {
	text, _ := json.Marshal(s) // a string always encodes
	return string(text)
}

func text(v *accessibility.Value) string {
	if v == nil {
		return ""
	}
	var s string
	_ = json.Unmarshal(v.Value, &s) // roles and names are strings
	return s
}

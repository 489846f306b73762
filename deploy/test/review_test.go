package deploytest

import (
	"encoding/json"
	"io"
	"net/http"
	"strings"
	"testing"

	"github.com/chromedp/chromedp/kb"

	"github.com/ckd-project/ckd/client"
	"github.com/ckd-project/ckd/integration_test/testbed"
	"github.com/ckd-project/ckd/internal/pagestate"
)

// TestPageReview finds an input in the list to review, enters its outcome by keyboard, and reads what the
// ledger answers.
func TestPageReview(t *testing.T) {
	t.Parallel()
	policy := calibrated(t)
	addAudits(t, policy)
	d := testbed.Serve(t, ckd, "--policy", policy, "--receipt-keys", receiptKeys(t), "--ledger", testbed.Ledger(t, ckd),
		"--recent-inputs", "1000", "--case-url", "https://pacs.example/case/{id}")
	c, err := client.Dial(d.GRPC[0])
	if err != nil {
		t.Fatal(err)
	}
	defer c.Close()
	reviews := len(sendReviewed(t, c, "digits", "digits-id", strings.Split(digits, ",")))
	list := reviewsOf(t, d)
	if len(list.Reviews) != reviews {
		t.Fatalf("%d inputs in the list, want %d", len(list.Reviews), reviews)
	}
	one := list.Reviews[reviews/2]

	b := open(t, d.Admin+"/review")
	b.until(`document.querySelectorAll(".review tbody tr").length > 0`, "the list is there")
	if shown := b.count(`section:not(#review)`); shown == 0 || get[bool](b, `[...document.querySelectorAll("section:not(#review)")].some((e) => e.checkVisibility())`) {
		t.Error("readers are shown more than the list")
	}
	if got := get[string](b, `location.pathname`); got != "/review" {
		t.Errorf("the page is at %q", got)
	}
	b.focus(`[name="review-search"]`)
	for _, r := range one.ID {
		b.press(string(r))
	}
	row := `.review tr[data-key="` + one.Key + `"] `
	b.until(`document.querySelector('`+row+`') && [...document.querySelectorAll(".review tbody .id bdi")].every((e) => e.textContent.includes("`+one.ID+`"))`, "the search finds it")
	if got := b.attribute(row+"a", "href"); got != "https://pacs.example/case/"+one.ID {
		t.Errorf("it links to %q", got)
	}
	b.focus(row + `[data-truth="3"]`)
	b.press(kb.Enter)
	b.until(`document.activeElement.name === "review-source"`, "it asks for a name first")
	b.press("r")
	b.focus(row + `[data-truth="3"]`)
	b.press(kb.Enter)
	b.until(`document.activeElement.dataset.act === "confirm"`, "the focus is on the confirmation")
	b.press(kb.Escape)
	b.until(`document.activeElement.dataset.truth === "3"`, "Escape takes it back, and the focus with it")
	b.press(kb.Enter)
	b.press(kb.Enter)
	b.until(`document.querySelector('`+row+`.echo')?.textContent.includes("The model had said")`, "the row says what the ledger answered")
	if got := b.text(`[data-part="review-said"]`); !strings.Contains(got, "Counted") || !strings.Contains(got, one.ID) {
		t.Errorf("screen readers are told %q", got)
	}
	for _, r := range reviewsOf(t, d).Reviews {
		if entered := r.State != "open"; entered != (r.Key == one.Key) {
			t.Errorf("%+v", r)
		}
	}
	for _, scheme := range []string{"light", "dark"} {
		b.scheme(scheme)
		contrast(t, b, scheme)
	}
	b.screenshot("review.png")
	b.focus(`[name="review-source"]`)
	b.press("2")
	b.until(`!document.querySelector(".review .echo") && document.querySelector('[data-part="review-said"]').textContent === ""`, "the next reader is not told what the one before was answered")
	b.clean(d)

	b.visit(d.Admin + "/")
	b.until(`document.querySelectorAll(".review tbody tr").length > 0 && document.querySelector("#connection").dataset.state === "live"`, "the list is on the page too")
	if got := b.text(`[data-part="recent"]`); !strings.Contains(got, "wait for a reading") {
		t.Errorf("of inputs to read the last deferred ones say %q", got)
	}
	rules(t, b)
	b.screenshot("triage-review.png")
	b.narrow()
	b.clean(d)
}

// reviewsOf returns the list to review.
func reviewsOf(t *testing.T, d *testbed.Daemon) *pagestate.ReviewList {
	t.Helper()
	response, err := http.Get(d.Admin + "/triage/reviews?source=r")
	if err != nil {
		t.Fatal(err)
	}
	defer response.Body.Close()
	data, err := io.ReadAll(response.Body)
	if err != nil {
		t.Fatal(err)
	}
	var list pagestate.ReviewList
	if err := json.Unmarshal(data, &list); err != nil {
		t.Fatalf("%s: %v", data, err)
	}
	return &list
}

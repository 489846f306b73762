package integration_test

import (
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"net/http"
	"os"
	"path/filepath"
	"strings"
	"testing"

	"google.golang.org/protobuf/encoding/protojson"

	"github.com/ckd-project/ckd/internal/pagestate"
	ckdv1 "github.com/ckd-project/ckd/proto/ckd/v1"
)

// TestReviewList enters outcomes from the triage pages of a daemon with a ledger and of one that tells
// it, and exports what is left in the form that the command line sends back.
func TestReviewList(t *testing.T) {
	t.Parallel()
	f := newLedgered(t)
	listen := "unix:" + filepath.Join(t.TempDir(), "s")
	list := []string{"--recent-inputs", "500", "--case-url", "https://pacs.example/{id}"}
	keeper := f.serve(t, listen, append(list, "--ledger", f.ledger)...)
	other := f.serve(t, "127.0.0.1:0", append(list, "--ledger-at", listen, "--http", "127.0.0.1:0")...)
	for _, d := range []*daemon{keeper, other} {
		prefix := fmt.Sprintf("%p-", d)
		reviewed, _ := outcomesOf(f.stream(t, d, prefix, 100))
		truths := map[string]string{}
		for _, one := range reviewed {
			truths[one.ID] = one.truth
		}
		reviews := reviewsOf(t, d)
		if len(reviews.Reviews) != len(reviewed) || !reviews.Enter {
			t.Fatalf("%d inputs in the list, want %d; enter %v %q", len(reviews.Reviews), len(reviewed), reviews.Enter, reviews.EnterWhy)
		}
		first := reviews.Reviews[0]
		if first.State != "open" || first.URL != "https://pacs.example/"+first.ID || first.Outcome != nil {
			t.Errorf("%+v", first)
		}
		eventually(t, "the ledger knows the policy", func() bool { return f.decisions(t, keeper) >= 100 })
		before, _ := f.figures(t, keeper)
		entry, err := json.Marshal(pagestate.Entry{Key: first.Key, Truth: truths[first.ID], Source: "page"})
		if err != nil {
			t.Fatal(err)
		}
		response, err := http.Post(d.Admin+"/triage/outcome", "application/json", strings.NewReader(string(entry)))
		if err != nil {
			t.Fatal(err)
		}
		answer, err := io.ReadAll(response.Body)
		_ = response.Body.Close()
		var entered ckdv1.OutcomeAnswer
		if err = errors.Join(err, protojson.Unmarshal(answer, &entered)); err != nil || response.StatusCode != http.StatusOK || entered.Predicted == "" || entered.Decided == nil {
			t.Fatalf("%d %s %v", response.StatusCode, answer, err)
		}
		if after, _ := f.figures(t, keeper); after.GetProvisional().GetDecided() != before.GetProvisional().GetDecided()+1 {
			t.Errorf("%d outcomes, want one more than %d", after.GetProvisional().GetDecided(), before.GetProvisional().GetDecided())
		}

		// The others are answered in the file that the page exports.
		code, text, _ := d.Get("/triage/reviews.csv?state=open")
		rows := strings.Split(strings.TrimSpace(text), "\n")
		if code != http.StatusOK || len(rows) < len(reviewed) {
			t.Fatalf("%d, %d rows of %d reviews", code, len(rows), len(reviewed))
		}
		for i, row := range rows[1:] {
			if truth := truths[strings.SplitN(row, ",", 2)[0]]; strings.HasSuffix(row, ",,") && truth != "" {
				rows[i+1] = strings.TrimSuffix(row, ",,") + "," + truth + ",room"
			}
		}
		path := filepath.Join(t.TempDir(), "to-review.csv")
		if err := os.WriteFile(path, []byte(strings.Join(rows, "\n")), 0o600); err != nil {
			t.Fatal(err)
		}
		mustRun(t, "outcomes", "send", "--addr", keeper.GRPC[0], "--file", path, "--quiet")
		if after, _ := f.figures(t, keeper); after.GetProvisional().GetDecided() != before.GetProvisional().GetDecided()+uint64(len(reviewed)) {
			t.Errorf("%d outcomes of %d reviews", after.GetProvisional().GetDecided()-before.GetProvisional().GetDecided(), len(reviewed))
		}
	}
	// The page of the other daemon shows what the ledger says of both.
	eventually(t, "the other daemon knows all figures", func() bool {
		var state pagestate.State
		_, text, _ := other.Get("/triage/state")
		if err := json.Unmarshal([]byte(text), &state); err != nil {
			t.Fatal(err)
		}
		if state.Daemon.Ledger != listen {
			t.Errorf("the page says that the ledger is at %q", state.Daemon.Ledger)
		}
		if len(state.Model.Promises) != 1 {
			return false
		}
		promise := &ckdv1.PromiseFigures{}
		if err := protojson.Unmarshal(state.Model.Promises[0], promise); err != nil {
			t.Fatal(err)
		}
		strata := promise.GetStrata()
		return promise.GetProvisional().GetDecided() > 0 && len(strata) == 3 && strata[0].GetDecisions() > 0
	})
	if r := other.mustAsk(http.MethodGet, "/v1/promises", ""); r.code != http.StatusNotImplemented || !strings.Contains(r.body, "ask the one at "+listen) {
		t.Errorf("without a ledger of its own: %d %s", r.code, r.body)
	}
	for _, one := range reviewsOf(t, keeper).Reviews {
		if one.State == "open" {
			t.Errorf("%+v is open after its outcome came by the command line", one)
		}
	}
}

// reviewsOf returns the list to review.
func reviewsOf(t *testing.T, d *daemon) *pagestate.ReviewList {
	t.Helper()
	code, text, _ := d.Get("/triage/reviews?source=room")
	var list pagestate.ReviewList
	if err := json.Unmarshal([]byte(text), &list); err != nil || code != http.StatusOK {
		t.Fatalf("%d %.300s: %v", code, text, err)
	}
	return &list
}

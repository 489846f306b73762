package triage

import (
	"context"
	"encoding/base64"
	"encoding/csv"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"mime"
	"net/http"
	"slices"
	"strings"
	"time"

	"google.golang.org/grpc/status"

	"github.com/ckd-project/ckd/internal/pagestate"
	ckdv1 "github.com/ckd-project/ckd/proto/ckd/v1"
)

const (
	maxEntry  = 64 << 10         // bytes of an Entry
	maxSource = 256              // bytes of a source
	enterTime = 20 * time.Second // how long the ledger may take
)

// entryFault says why an outcome was not entered.
type entryFault struct {
	code int
	text string
}

func (f *entryFault) Error() string { return f.text }

// serveReviews answers with the list to review as JSON, or with 204 if the version is known.
func (p *Page) serveReviews(w http.ResponseWriter, r *http.Request) {
	list := p.reviewList(r)
	if since := r.URL.Query().Get("since"); since != "" && since == list.Version {
		w.WriteHeader(http.StatusNoContent)
		return
	}
	writeJSON(w, http.StatusOK, list)
}

// serveReviewFile answers with the list as a CSV file, which comes back through ckd outcomes send when
// truth and source are filled in.
func (p *Page) serveReviewFile(w http.ResponseWriter, r *http.Request) {
	wanted, list := r.URL.Query().Get("state"), p.reviewList(r)
	if list.Why != "" {
		http.Error(w, "there is no list: "+list.Why, http.StatusForbidden)
		return
	}
	w.Header().Set("Content-Type", "text/csv; charset=utf-8")
	w.Header().Set("Content-Disposition", `attachment; filename="to-review.csv"`)
	file := csv.NewWriter(w)
	// The decision's time has a name of its own: time would be read as that of the outcome.
	_ = file.Write([]string{"id", "model", "decided", "receipt", "truth", "source"})
	for _, review := range list.Reviews {
		if wanted != "" && (wanted == openState) != (review.State == openState) {
			continue
		}
		// An error is of the connection: the client left.
		_ = file.Write([]string{asText(review.ID), asText(review.Model), review.At.Format(time.RFC3339Nano), base64.StdEncoding.EncodeToString(review.Receipt), "", ""})
	}
	file.Flush()
}

// asText returns a text that a spreadsheet does not take for a formula.
func asText(text string) string {
	if text != "" && strings.ContainsRune("=+-@\t\r", rune(text[0])) {
		return "'" + text
	}
	return text
}

// serveEntry enters an outcome.
func (p *Page) serveEntry(w http.ResponseWriter, r *http.Request) {
	entered, err := p.enter(w, r)
	if fault := (*entryFault)(nil); errors.As(err, &fault) {
		http.Error(w, fault.text, fault.code)
		return
	}
	if err != nil {
		http.Error(w, "the ledger did not take it: "+status.Convert(err).Message(), http.StatusBadGateway)
		return
	}
	writeJSON(w, http.StatusOK, entered)
}

func (p *Page) enter(w http.ResponseWriter, r *http.Request) (json.RawMessage, error) {
	kind, _, _ := mime.ParseMediaType(r.Header.Get("Content-Type"))
	if kind != "application/json" {
		return nil, &entryFault{http.StatusUnsupportedMediaType, "Content-Type: expected application/json"}
	}
	body, err := io.ReadAll(http.MaxBytesReader(w, r.Body, maxEntry))
	if err != nil {
		return nil, &entryFault{http.StatusRequestEntityTooLarge, fmt.Sprintf("body: expected at most %d bytes", maxEntry)}
	}
	var e pagestate.Entry
	if err := json.Unmarshal(body, &e); err != nil {
		return nil, &entryFault{http.StatusBadRequest, "body: not an outcome as JSON: " + err.Error()}
	}
	if p.options.Inputs == nil || p.options.Enter == nil {
		return nil, &entryFault{http.StatusForbidden, "no outcomes are entered here: the daemon has no list to review, or no ledger"}
	}
	model, review, found := p.options.Inputs.find(e.Key)
	if found && (!p.options.MaySeeRecent(r.Context(), model) || !p.options.MayEnter(r.Context(), model)) {
		return nil, &entryFault{http.StatusForbidden, "you may not enter outcomes: that takes the rights recent and outcomes, and the model"}
	}
	if !found {
		return nil, &entryFault{http.StatusNotFound, "the input is no longer in the list: send its outcome with ckd outcomes send"}
	}
	if source := p.options.Source(r.Context()); source != "" {
		e.Source = source
	}
	if err := checkEntry(&e, &review); err != nil {
		return nil, err
	}
	outcome := &ckdv1.Outcome{Receipt: review.receipt[:], Truth: e.Truth, Source: e.Source, SawModel: e.SawModel}
	ctx, cancel := context.WithTimeout(r.Context(), enterTime)
	defer cancel()
	answer, err := p.options.Enter(ctx, outcome)
	if err != nil {
		return nil, err
	}
	if why := answer.GetError(); why != nil {
		return nil, &entryFault{http.StatusUnprocessableEntity, "the ledger did not keep it: " + why.GetMessage()}
	}
	p.options.Inputs.Reported([]*ckdv1.Outcome{outcome}, []*ckdv1.OutcomeAnswer{answer})
	return apiJSON(answer)
}

// checkEntry checks an entry about an input.
func checkEntry(e *pagestate.Entry, kept *input) error {
	switch {
	case !slices.Contains(kept.classes, e.Truth):
		return &entryFault{http.StatusUnprocessableEntity, fmt.Sprintf("truth: %.80q, expected one of the classes of the policy", e.Truth)}
	case strings.TrimSpace(e.Source) == "" || len(e.Source) > maxSource:
		return &entryFault{http.StatusUnprocessableEntity, fmt.Sprintf("source: %d bytes, expected an opaque name of 1 to %d", len(e.Source), maxSource)}
	case kept.settled():
		return &entryFault{http.StatusConflict, "the input has its outcome already; ckd outcomes send corrects it"}
	case kept.stateFor(e.Source) == enteredState:
		return &entryFault{http.StatusConflict, fmt.Sprintf("source: %.80q has read this input already; ckd outcomes send corrects it", e.Source)}
	}
	return nil
}

func writeJSON(w http.ResponseWriter, code int, value any) {
	data, err := json.Marshal(value)
	if err != nil {
		http.Error(w, "internal error", http.StatusInternalServerError)
		return
	}
	w.Header().Set("Content-Type", "application/json")
	w.WriteHeader(code)
	_, _ = w.Write(data) // a client that left needs no answer
}

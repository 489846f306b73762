package triage

import (
	"bytes"
	"context"
	"encoding/binary"
	"encoding/csv"
	"encoding/json"
	"errors"
	"fmt"
	"net/http"
	"net/http/httptest"
	"slices"
	"strings"
	"testing"
	"time"

	gocmp "github.com/google/go-cmp/cmp"
	"google.golang.org/grpc/codes"
	"google.golang.org/grpc/status"
	"google.golang.org/protobuf/encoding/protojson"
	"google.golang.org/protobuf/testing/protocmp"
	"google.golang.org/protobuf/types/known/timestamppb"

	"github.com/ckd-project/ckd/engine"
	"github.com/ckd-project/ckd/internal/outcome/receipt"
	"github.com/ckd-project/ckd/internal/pagestate"
	"github.com/ckd-project/ckd/policy"
	ckdv1 "github.com/ckd-project/ckd/proto/ckd/v1"
)

const withAudit = "audit: {rate: 0.5, due: 1s}"

// sealedAs returns a receipt with a number.
func sealedAs(number uint64) []byte {
	r := make([]byte, receipt.Size)
	binary.BigEndian.PutUint64(r[20:], number)
	return r
}

// refer adds one deferred input and one audited input to the list, in an order of the caller's.
func (d *daemon) refer(t *testing.T, first policy.Action) {
	t.Helper()
	s := d.models["m"]
	o := outcome(3)
	for i, action := range []policy.Action{first, policy.Retain + policy.Defer - first} {
		d.clock.advance(time.Second)
		o.Decision.Action = action
		d.inputs.Add(s.policy, []byte([]string{"one", "two"}[i]), o, sealedAs(uint64(i)))
	}
}

func (d *daemon) list(t *testing.T, query string) *pagestate.ReviewList {
	t.Helper()
	answer := d.get(t, "/triage/reviews"+query)
	var l pagestate.ReviewList
	if err := json.Unmarshal(answer.Body.Bytes(), &l); err != nil || answer.Code != http.StatusOK {
		t.Fatalf("%d %s: %v", answer.Code, answer.Body, err)
	}
	return &l
}

// post enters an outcome.
func (d *daemon) post(t *testing.T, e pagestate.Entry) *httptest.ResponseRecorder {
	t.Helper()
	body, err := json.Marshal(e)
	if err != nil {
		t.Fatal(err)
	}
	r := httptest.NewRequest(http.MethodPost, "/triage/outcome", bytes.NewReader(body))
	r.Header.Set("Content-Type", "application/json")
	w := httptest.NewRecorder()
	d.page.Handler().ServeHTTP(w, r)
	return w
}

// answers returns a ledger that gives an answer.
func answers(a *ckdv1.OutcomeAnswer) func(context.Context, *ckdv1.Outcome) (*ckdv1.OutcomeAnswer, error) {
	return func(context.Context, *ckdv1.Outcome) (*ckdv1.OutcomeAnswer, error) { return a, nil }
}

var counted = &ckdv1.OutcomeAnswer{
	Status: ckdv1.OutcomeStatus_OUTCOME_STATUS_COUNTED, Predicted: "c2", Decided: timestamppb.New(time.Unix(1_700_000_000, 0)),
}

// TestReviewsBlind checks that nothing that the page answers tells which of two unread inputs was
// deferred and which is audited: it is the same whichever is which.
func TestReviewsBlind(t *testing.T) {
	t.Parallel()
	said := map[policy.Action][]string{}
	for _, first := range []policy.Action{policy.Defer, policy.Retain} {
		d := newDaemon(t, Options{Inputs: NewInputs(4), Enter: answers(counted)}, 0, manyClasses("m", 3, 1, allDeferred, withAudit))
		d.page.sample()
		d.refer(t, first)
		for _, path := range []string{"/triage/reviews", "/triage/reviews?model=m", "/triage/reviews.csv", "/triage/state?model=m"} {
			said[first] = append(said[first], d.get(t, path).Body.String())
		}
		if list := d.list(t, ""); len(list.Reviews) != 2 || list.Reviews[0].ID != "one" {
			t.Errorf("%+v, expected both inputs, the oldest first", list.Reviews)
		}
		if got := d.state(t, "m").Model.Recent; len(got.Inputs) != 0 || !got.Blind {
			t.Errorf("%+v, expected that unread inputs are left out", got)
		}
	}
	if diff := gocmp.Diff(said[policy.Defer], said[policy.Retain]); diff != "" {
		t.Errorf("the answers tell (-deferred first +audited first):\n%s", diff)
	}
}

// TestReviewsWithoutAudits checks that the details of deferred inputs stay where nothing is audited.
func TestReviewsWithoutAudits(t *testing.T) {
	t.Parallel()
	d := newDaemon(t, Options{Inputs: NewInputs(4)}, 0, manyClasses("m", 3, 1, allDeferred))
	d.inputs.Add(d.models["m"].policy, []byte("x"), outcome(3), sealedAs(1))
	d.inputs.Add(d.models["m"].policy, []byte("y"), outcome(3), nil) // its client takes no receipts
	got := d.state(t, "m").Model.Recent
	if len(got.Inputs) != 2 || got.Blind {
		t.Errorf("%+v, expected both inputs", got)
	}
	list := d.list(t, "")
	if len(list.Reviews) != 1 || list.Reviews[0].ID != "x" || list.Enter || list.EnterWhy != "no ledger" {
		t.Errorf("%+v, expected the input with a receipt", list)
	}
}

// TestSecondReadersBlind checks that nothing tells a second reader that an input was read: all that the
// page answers is the same before and after. Its first reader is not offered it again.
func TestSecondReadersBlind(t *testing.T) {
	t.Parallel()
	for name, answer := range map[string]*ckdv1.OutcomeAnswer{
		"second": {Status: ckdv1.OutcomeStatus_OUTCOME_STATUS_SECOND_READ_WANTED, Wanted: ckdv1.Wanted_WANTED_SECOND_READ, Predicted: "c2"},
		"third":  {Status: ckdv1.OutcomeStatus_OUTCOME_STATUS_COUNTED, Wanted: ckdv1.Wanted_WANTED_THIRD_READ, Predicted: "c2"},
		"apart":  {Status: ckdv1.OutcomeStatus_OUTCOME_STATUS_APART, Predicted: "c2"},
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			d := newDaemon(t, Options{Inputs: NewInputs(4), Enter: answers(answer)}, 0, manyClasses("m", 3, 1, allDeferred, withAudit))
			d.page.sample()
			d.refer(t, policy.Defer)
			said := func() (all []string) {
				for _, path := range []string{"/triage/reviews", "/triage/reviews?source=b", "/triage/reviews.csv?state=open&source=b", "/triage/state?model=m"} {
					all = append(all, d.get(t, path).Body.String())
				}
				return all
			}
			before, key := said(), d.list(t, "").Reviews[0].Key
			if w := d.post(t, pagestate.Entry{Key: key, Truth: "c0", Source: "a"}); w.Code != http.StatusOK {
				t.Fatalf("%d %s", w.Code, w.Body)
			}
			if diff := gocmp.Diff(before, said()); diff != "" {
				t.Errorf("a second reader is told (-before +after the first reading):\n%s", diff)
			}
			if got := d.list(t, "?source=a").Reviews[1]; got.State != enteredState || got.Outcome != nil {
				t.Errorf("%+v, expected that its reader is not offered it again", got)
			}
			if w := d.post(t, pagestate.Entry{Key: key, Truth: "c0", Source: "a"}); w.Code != http.StatusConflict || !strings.Contains(w.Body.String(), "has read") {
				t.Errorf("a second reading by the same source: %d %s", w.Code, w.Body)
			}
		})
	}
}

// TestRecentBlind checks that no deferred input is shown while it, or one of its id, waits for a reading: who
// reads it next must not know what the model said.
func TestRecentBlind(t *testing.T) {
	t.Parallel()
	second := &ckdv1.OutcomeAnswer{Status: ckdv1.OutcomeStatus_OUTCOME_STATUS_SECOND_READ_WANTED, Wanted: ckdv1.Wanted_WANTED_SECOND_READ, Predicted: "c2"}
	duplicate := &ckdv1.OutcomeAnswer{Status: ckdv1.OutcomeStatus_OUTCOME_STATUS_DUPLICATE, Predicted: "c2"}
	for name, block := range map[string]string{"audits": withAudit, "no audits": ""} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			d := newDaemon(t, Options{Inputs: NewInputs(4), Enter: answers(counted)}, 0, manyClasses("m", 3, 1, allDeferred, block))
			p := d.models["m"].policy
			d.inputs.Add(p, []byte("x"), outcome(3), sealedAs(1))
			d.inputs.Add(p, []byte("x"), outcome(3), sealedAs(2)) // the client sent it again
			d.inputs.Add(p, nil, outcome(3), sealedAs(3))
			d.inputs.Add(p, nil, outcome(3), nil) // no client will report on it
			hear := func(receipt uint64, source string, a *ckdv1.OutcomeAnswer) {
				d.inputs.Reported([]*ckdv1.Outcome{{Receipt: sealedAs(receipt), Truth: "c0", Source: source}}, []*ckdv1.OutcomeAnswer{a})
			}
			shown := func(want int, when string) {
				t.Helper()
				if got := d.later(t, "m").Recent; len(got.Inputs) != want || !got.Blind {
					t.Errorf("%s: %+v, expected %d inputs, and that others are left out", when, got, want)
				}
			}
			shown(1, "unread")
			hear(1, "a", second)
			shown(1, "a second reading is wanted")
			hear(2, "a", duplicate)
			shown(1, "the same case is settled under another receipt")
			hear(1, "b", counted)
			shown(3, "both are settled")
		})
	}
}

// TestEntry enters outcomes and follows the state of their input.
func TestEntry(t *testing.T) {
	t.Parallel()
	again := &ckdv1.OutcomeAnswer{
		Status: ckdv1.OutcomeStatus_OUTCOME_STATUS_SECOND_READ_WANTED, Wanted: ckdv1.Wanted_WANTED_SECOND_READ, Predicted: "c2", Decided: counted.GetDecided(),
	}
	var sent []*ckdv1.Outcome
	var answer *ckdv1.OutcomeAnswer
	enter := func(_ context.Context, o *ckdv1.Outcome) (*ckdv1.OutcomeAnswer, error) {
		sent = append(sent, o)
		return answer, nil
	}
	d := newDaemon(t, Options{Inputs: NewInputs(4), Enter: enter}, 0, manyClasses("m", 3, 1, allDeferred, withAudit))
	d.refer(t, policy.Defer)
	listed := d.list(t, "").Reviews[0] // "one", which is deferred

	answer = &ckdv1.OutcomeAnswer{Status: ckdv1.OutcomeStatus_OUTCOME_STATUS_APART, Note: "seen"}
	if w := d.post(t, pagestate.Entry{Key: listed.Key, Truth: "c0", Source: "seer", SawModel: true}); w.Code != http.StatusOK || !sent[0].GetSawModel() {
		t.Fatalf("%d %s", w.Code, w.Body)
	}
	if got := d.list(t, "").Reviews[0]; got.State != openState {
		t.Errorf("%+v, expected that it is open after a reading that is kept apart", got)
	}

	answer = again
	w := d.post(t, pagestate.Entry{Key: listed.Key, Truth: "c0", Source: "reader"})
	entered := &ckdv1.OutcomeAnswer{}
	if err := protojson.Unmarshal(w.Body.Bytes(), entered); err != nil {
		t.Fatal(err, w.Body)
	}
	if diff := gocmp.Diff(again, entered, protocmp.Transform()); diff != "" {
		t.Errorf("(-want +got):\n%s", diff)
	}
	if got := d.list(t, "").Reviews[0]; got.State != openState || got.Outcome != nil {
		t.Errorf("%+v, expected that another reader learns nothing", got)
	}
	if got := d.later(t, "m").Recent; len(got.Inputs) != 0 {
		t.Errorf("%+v, expected it left out while another reading is wanted", got)
	}
	if w := d.post(t, pagestate.Entry{Key: listed.Key, Truth: "c0", Source: "reader"}); w.Code != http.StatusConflict {
		t.Errorf("a second reading by the same source: %d %s", w.Code, w.Body)
	}

	answer = counted
	if w := d.post(t, pagestate.Entry{Key: listed.Key, Truth: "c1", Source: "another"}); w.Code != http.StatusOK {
		t.Fatalf("%d %s", w.Code, w.Body)
	}
	got := d.list(t, "?source=third")
	if r := got.Reviews[1]; r.State != otherState || r.Outcome != nil {
		t.Errorf("%+v, expected that who has not read it is told that another has, and nothing more", r)
	}
	got = d.list(t, "?source=another")
	if diff := gocmp.Diff(&pagestate.EnteredOutcome{Truth: "c1", Predicted: "c2"}, got.Reviews[1].Outcome); diff != "" || got.Reviews[1].State != enteredState {
		t.Errorf("%+v: (-want +got):\n%s", got.Reviews[1], diff)
	}
	if got := d.later(t, "m").Recent.Inputs; len(got) != 1 || got[0].ID != "one" {
		t.Errorf("%+v, expected the deferred input that was read", got)
	}
	if w := d.post(t, pagestate.Entry{Key: listed.Key, Truth: "c1", Source: "third"}); w.Code != http.StatusConflict {
		t.Errorf("what is entered is entered again: %d %s", w.Code, w.Body)
	}
	if len(sent) != 3 || !bytes.Equal(sent[2].GetReceipt(), sealedAs(0)) || sent[2].GetTruth() != "c1" || sent[2].GetSource() != "another" {
		t.Errorf("sent %v", sent)
	}

	// The other input is answered by another way.
	d.inputs.Reported([]*ckdv1.Outcome{{Receipt: []byte("short")}, {Receipt: sealedAs(1), Truth: "c2", Source: "file"}}, []*ckdv1.OutcomeAnswer{counted, counted})
	if list := d.list(t, "?source=another"); list.Reviews[0].State != otherState || list.Version == got.Version {
		t.Errorf("%+v, expected that another has read it", list)
	}
}

// TestEntryFaults checks what is refused, with what it says, and that nothing is noted then.
func TestEntryFaults(t *testing.T) {
	t.Parallel()
	refused := &ckdv1.OutcomeAnswer{Status: ckdv1.OutcomeStatus_OUTCOME_STATUS_UNKNOWN_KEY, Error: status.New(codes.InvalidArgument, "receipt: unknown key").Proto()}
	good := pagestate.Entry{Truth: "c0", Source: "reader"}
	for name, c := range map[string]struct {
		options func(*Options)
		change  func(*pagestate.Entry)
		code    int
		says    string
	}{
		"class":       {nil, func(e *pagestate.Entry) { e.Truth = "c9" }, http.StatusUnprocessableEntity, "truth:"},
		"source":      {nil, func(e *pagestate.Entry) { e.Source = " " }, http.StatusUnprocessableEntity, "source:"},
		"long source": {nil, func(e *pagestate.Entry) { e.Source = strings.Repeat("x", 257) }, http.StatusUnprocessableEntity, "source:"},
		"gone":        {nil, func(e *pagestate.Entry) { e.Key = "AAAA" }, http.StatusNotFound, "ckd outcomes send"},
		"no ledger":   {func(o *Options) { o.Enter = nil }, nil, http.StatusForbidden, "no ledger"},
		"not his":     {func(o *Options) { o.MayEnter = func(context.Context, string) bool { return false } }, nil, http.StatusForbidden, "outcomes"},
		"not to see": {
			func(o *Options) { o.MaySeeRecent = func(context.Context, string) bool { return false } },
			nil, http.StatusForbidden, "recent",
		},
		"refused": {func(o *Options) { o.Enter = answers(refused) }, nil, http.StatusUnprocessableEntity, "unknown key"},
		"away": {
			func(o *Options) {
				o.Enter = func(context.Context, *ckdv1.Outcome) (*ckdv1.OutcomeAnswer, error) {
					return nil, errors.New("no route")
				}
			}, nil, http.StatusBadGateway, "no route",
		},
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			o := Options{Inputs: NewInputs(4), Enter: answers(counted)}
			if c.options != nil {
				c.options(&o)
			}
			d := newDaemon(t, o, 0, manyClasses("m", 3, 1, allDeferred, withAudit))
			d.refer(t, policy.Defer)
			listed := func() pagestate.Review {
				l := &pagestate.ReviewList{Classes: map[string][]string{}}
				d.inputs.reviews(l, []string{"m"}, "", "")
				return l.Reviews[0]
			}
			e := good
			e.Key = listed().Key
			if c.change != nil {
				c.change(&e)
			}
			if w := d.post(t, e); w.Code != c.code || !strings.Contains(w.Body.String(), c.says) {
				t.Errorf("%d %s, expected %d with %q", w.Code, w.Body, c.code, c.says)
			}
			if after := listed(); after.State != openState {
				t.Errorf("%+v, expected it open", after)
			}
		})
	}
	t.Run("form", func(t *testing.T) { // what a page of another site could send without asking
		d := newDaemon(t, Options{Inputs: NewInputs(4), Enter: answers(counted)}, 0, manyClasses("m", 3, 1))
		r := httptest.NewRequest(http.MethodPost, "/triage/outcome", strings.NewReader("{}"))
		r.Header.Set("Content-Type", "text/plain")
		w := httptest.NewRecorder()
		d.page.Handler().ServeHTTP(w, r)
		if w.Code != http.StatusUnsupportedMediaType {
			t.Errorf("%d %s", w.Code, w.Body)
		}
	})
}

// TestEntrySource checks that a known sender's name wins over the one that was typed.
func TestEntrySource(t *testing.T) {
	t.Parallel()
	var sent *ckdv1.Outcome
	d := newDaemon(t, Options{
		Inputs: NewInputs(1), Source: func(context.Context) string { return "ann" },
		Enter: func(_ context.Context, o *ckdv1.Outcome) (*ckdv1.OutcomeAnswer, error) { sent = o; return counted, nil },
	}, 0, manyClasses("m", 3, 1))
	d.inputs.Add(d.models["m"].policy, []byte("x"), outcome(3), sealedAs(1))
	list := d.list(t, "")
	if w := d.post(t, pagestate.Entry{Key: list.Reviews[0].Key, Truth: "c0", Source: "bob"}); w.Code != http.StatusOK || sent.GetSource() != "ann" || list.Source != "ann" {
		t.Errorf("%d %s: source %q, listed %q", w.Code, w.Body, sent.GetSource(), list.Source)
	}
}

// TestReviewList checks who gets which list, and that it is sent again only if it changed.
func TestReviewList(t *testing.T) {
	t.Parallel()
	d := newDaemon(t, Options{
		Inputs: NewInputs(2), CaseURL: "https://pacs.example/case/{id}?view=1",
		MaySeeRecent: func(_ context.Context, model string) bool { return model != "c" },
	}, 0, manyClasses("a", 3, 1), manyClasses("b", 4, 1), manyClasses("c", 3, 1))
	for i, id := range []string{"first", "a/b c&d+é", "..", "last"} {
		d.clock.advance(time.Second)
		d.inputs.Add(d.models["a"].policy, []byte(id), outcome(3), sealedAs(uint64(i)))
	}
	d.clock.advance(time.Second)
	d.inputs.Add(d.models["b"].policy, []byte("=1+1"), outcome(4), sealedAs(9))
	d.inputs.Add(d.models["c"].policy, []byte("secret"), outcome(3), sealedAs(10))
	type row struct{ Model, ID, URL string }
	for query, want := range map[string][]row{
		"":         {{"a", "..", ""}, {"a", "last", "https://pacs.example/case/last?view=1"}, {"b", "=1+1", "https://pacs.example/case/%3D1%2B1?view=1"}},
		"?model=a": {{"a", "..", ""}, {"a", "last", "https://pacs.example/case/last?view=1"}},
		"?model=c": nil,
	} {
		var got []row
		for _, r := range d.list(t, query).Reviews {
			got = append(got, row{r.Model, r.ID, r.URL})
		}
		if diff := gocmp.Diff(want, got); diff != "" {
			t.Errorf("%s: (-want +got):\n%s", query, diff)
		}
	}
	list := d.list(t, "")
	if !slices.Equal(list.Models, []string{"a", "b"}) || len(list.Classes[d.models["b"].policy.Hash]) != 4 {
		t.Errorf("%+v", list)
	}
	if w := d.get(t, "/triage/reviews?since="+list.Version); w.Code != http.StatusNoContent {
		t.Errorf("an unchanged list: %d", w.Code)
	}
	d.inputs.Add(d.models["a"].policy, []byte("more"), outcome(3), sealedAs(11))
	if w := d.get(t, "/triage/reviews?since="+list.Version); w.Code != http.StatusOK {
		t.Errorf("a changed list: %d", w.Code)
	}
	for why, o := range map[string]Options{"off": {}, "not allowed": {Inputs: NewInputs(1), MaySeeRecent: func(context.Context, string) bool { return false }}} {
		d := newDaemon(t, o, 0, manyClasses("a", 3, 1))
		if got := d.list(t, ""); got.Why != why {
			t.Errorf("%+v, expected why %q", got, why)
		}
		if w := d.get(t, "/triage/reviews.csv"); w.Code != http.StatusForbidden {
			t.Errorf("a file although it is %s: %d", why, w.Code)
		}
	}
	rows, err := csv.NewReader(d.get(t, "/triage/reviews.csv?model=b&state=open").Body).ReadAll()
	if err != nil || len(rows) != 2 || !slices.Equal(rows[0], []string{"id", "model", "decided", "receipt", "truth", "source"}) || rows[1][0] != "'=1+1" || rows[1][4] != "" {
		t.Errorf("%v %v", rows, err)
	}
}

// TestReviewsFull checks that a full list gives up what waits for nothing first, and counts what waited.
func TestReviewsFull(t *testing.T) {
	t.Parallel()
	d := newDaemon(t, Options{Inputs: NewInputs(3), Enter: answers(counted)}, 0, manyClasses("m", 3, 1, allDeferred, withAudit))
	second := &ckdv1.OutcomeAnswer{Status: ckdv1.OutcomeStatus_OUTCOME_STATUS_SECOND_READ_WANTED, Wanted: ckdv1.Wanted_WANTED_SECOND_READ}
	for i, c := range []struct {
		answer *ckdv1.OutcomeAnswer // to the first reading; nil for none
		want   string
		lost   int
	}{{second, "0", 0}, {counted, "01", 0}, {nil, "021", 0}, {nil, "023", 0}, {nil, "034", 1}, {counted, "345", 2}, {nil, "346", 2}} {
		d.clock.advance(time.Second)
		d.inputs.Add(d.models["m"].policy, []byte(fmt.Sprint(i)), outcome(3), sealedAs(uint64(i)))
		if c.answer != nil {
			d.inputs.Reported([]*ckdv1.Outcome{{Receipt: sealedAs(uint64(i)), Truth: "c0", Source: "a"}}, []*ckdv1.OutcomeAnswer{c.answer})
		}
		l, got := d.list(t, "?source=b"), ""
		for _, r := range l.Reviews {
			got += r.ID
		}
		if got != c.want || l.Lost != c.lost {
			t.Errorf("after input %d: %q and %d no longer listed, expected %q and %d", i, got, l.Lost, c.want, c.lost)
		}
	}
}

// TestReviewAllocates checks that adding an input with a receipt allocates nothing once the ring is full.
func TestReviewAllocates(t *testing.T) {
	d, o := NewInputs(4), outcome(100)
	p := parse(t, manyClasses("m", 100, 1, allDeferred, withAudit)).policy
	id, sealed := []byte("an-id-of-some-length"), sealedAs(1)
	add := func(o *engine.Outcome) { d.Add(p, id, o, sealed) }
	for range 4 {
		add(o)
	}
	if n := testing.AllocsPerRun(100, func() { add(o) }); n != 0 {
		t.Errorf("%v allocations", n)
	}
}

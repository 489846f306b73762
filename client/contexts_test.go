package client_test

import (
	"slices"
	"strings"
	"testing"

	"github.com/google/go-cmp/cmp"

	"github.com/ckd-project/ckd/client"
	ckdv1 "github.com/ckd-project/ckd/proto/ckd/v1"
)

// long makes contexts count where messages are cut, which the fake daemon holds against its limit.
var long = strings.Repeat("g", 250)

var someContexts = []*ckdv1.InputContext{{Group: long}, {Group: long + "b", Slices: map[string]string{"site": "north"}}, {}}

// receiptsBy returns the receipts of results by id.
func receiptsBy(results []client.Result) map[string]string {
	receipts := map[string]string{}
	for _, r := range results {
		receipts[r.ID] = strings.ReplaceAll(string(r.Receipt()), long, "long")
	}
	return receipts
}

// TestReceiptsOfSession lets the daemon refuse one input at first: what is sent again must still have
// the contexts of its own inputs.
func TestReceiptsOfSession(t *testing.T) {
	f := newFake(2)
	f.info.Limits.MessageBytes = 750
	crowded := false
	f.crowds = func(id string) bool {
		now := id == "b" && !crowded
		crowded = crowded || now
		return now
	}
	s := f.session(t, client.SessionConfig{Model: model, Receipts: client.ReceiptsAll, ModelVersion: "v7", Reconnect: hasty})
	g, err := s.OpenWithContexts(t.Context(), []string{"a", "b", "c"}, someContexts)
	ok(t, err)
	ok(t, g.SendPasses(2, every(low, 6)))
	want := map[string]string{"a": "v7 a long map[]", "b": "v7 b longb map[site:north]", "c": "v7 c  map[]"}
	if diff := cmp.Diff(want, receiptsBy(wait(t, g))); diff != "" {
		t.Error(diff)
	}
	if !crowded {
		t.Error("the daemon refused no input")
	}
}

func TestReceiptsOfBatch(t *testing.T) {
	f := newFake(0)
	f.info.Limits.MessageBytes = 600
	b := client.Batch{
		Model: model, Passes: 2, Inputs: 3, IDs: []string{"a", "b", "c"}, ModelVersion: "v7",
		Values: slices.Concat(low, low, high, low, low, high), Contexts: someContexts,
	}
	c := f.dial(t, client.WithMessageBytes(600))
	for name, tt := range map[string]struct {
		asked ckdv1.Receipts
		want  map[string]string
	}{
		"none":     {0, map[string]string{"a": "", "b": "", "c": ""}},
		"reviewed": {client.ReceiptsReviewed, map[string]string{"a": "", "b": "", "c": "v7 c  map[]"}},
		"all":      {client.ReceiptsAll, map[string]string{"a": "v7 a long map[]", "b": "v7 b longb map[site:north]", "c": "v7 c  map[]"}},
	} {
		t.Run(name, func(t *testing.T) {
			b.Receipts = tt.asked
			results, err := c.Decompose(t.Context(), b)
			ok(t, err)
			if diff := cmp.Diff(tt.want, receiptsBy(results)); diff != "" {
				t.Error(diff)
			}
			if got, want := results[2].Review(), tt.asked != 0; got != want {
				t.Errorf("the deferred input is a review: %v, expected %v", got, want)
			}
		})
	}
	if len(f.calls) < 6 {
		t.Errorf("calls of %v inputs, expected several for each batch", f.calls)
	}
}

func TestWrongContexts(t *testing.T) {
	s := newFake(1).session(t, client.SessionConfig{Model: model})
	for name, tt := range map[string]struct {
		contexts []*ckdv1.InputContext
		want     string
	}{
		"too few":        {make([]*ckdv1.InputContext, 1), "1 contexts, expected none or one for each of 2 inputs"},
		"text":           {[]*ckdv1.InputContext{{}, {Group: "\xff"}}, "UTF-8"},
		"text of slices": {[]*ckdv1.InputContext{{}, {Slices: map[string]string{"a": "\xff"}}}, "UTF-8"},
		"too large":      {[]*ckdv1.InputContext{{Group: strings.Repeat("g", 5<<20)}, {}}, "the ids and contexts of a group take"},
	} {
		t.Run(name, func(t *testing.T) {
			_, err := s.OpenWithContexts(t.Context(), []string{"a", "b"}, tt.contexts)
			saying(tt.want).check(t, "open", err)
		})
	}
}

package server

import (
	"fmt"
	"slices"
	"sync"
	"testing"

	gocmp "github.com/google/go-cmp/cmp"

	"github.com/ckd-project/ckd/engine"
	"github.com/ckd-project/ckd/policy"
	ckdv1 "github.com/ckd-project/ckd/proto/ckd/v1"
)

// TestReferred checks that the hook is called once for each deferred input, with its id and scores,
// whatever way it came, and for no other input. Nobody may wait for a shard of the metrics
// meanwhile.
func TestReferred(t *testing.T) {
	h := newHarness(t)
	var mu sync.Mutex
	var reported []string
	h.server.decider.referred = func(p *policy.Policy, id []byte, o *engine.Outcome, receipt []byte) {
		h.expectScrape(t)
		mu.Lock()
		defer mu.Unlock()
		reported = append(reported, fmt.Sprintf("%s %q %s %v", p.Name, id, o.Decision.Action, o.Decision.Value > 0))
		if len(receipt) > 0 {
			t.Errorf("input %q has a receipt that nobody asked for", id)
		}
	}
	var values []float32 // [passes][inputs][classes]: retained, deferred, refused, deferred
	calm, torn := moving(false), moving(true)
	for s := range calm {
		values = slices.Concat(values, calm[s], torn[s], []float32{0.9, 0.9, 0.9}, torn[s])
	}
	ids := []string{"calm", "torn", "wrong", ""}
	want := []string{`ctg "" defer true`, `ctg "torn" defer true`}
	h.decompose(t, &ckdv1.DecomposeRequest{Model: "ctg", Layout: ckdv1.Layout_LAYOUT_SNK, Passes: 30, Inputs: 4, InputIds: ids, Values: values})
	stream := h.open(t, &ckdv1.StreamHeader{Model: "ctg"})
	stream.sendBlock(&ckdv1.Block{InputIds: ids, Passes: 30, Values: values, Final: true})
	stream.rest()
	mu.Lock()
	defer mu.Unlock()
	for way, got := range map[string][]string{"Decompose": reported[:min(2, len(reported))], "DecomposeStream": reported[min(2, len(reported)):]} {
		got = slices.Sorted(slices.Values(got))
		if !slices.Equal(got, want) {
			t.Errorf("%s: reported %q, want %q", way, got, want)
		}
	}
}

// TestReferredReviews checks that the hook has every input that is to be reviewed, deferred or audited,
// with the receipt that its client got, and of the others those that are deferred.
func TestReferredReviews(t *testing.T) {
	const inputs = 400
	for _, which := range []ckdv1.Receipts{ckdv1.Receipts_RECEIPTS_UNSPECIFIED, ckdv1.Receipts_RECEIPTS_REVIEWED, ckdv1.Receipts_RECEIPTS_ALL} {
		t.Run(which.String(), func(t *testing.T) {
			h := newHarness(t)
			h.withReceipts(t, auditedPolicy)
			got := map[string]string{}
			var mu sync.Mutex
			h.server.decider.referred = func(_ *policy.Policy, id []byte, o *engine.Outcome, receipt []byte) {
				mu.Lock()
				defer mu.Unlock()
				got[string(id)] = fmt.Sprintf("%v %x", o.Decision.Action, receipt)
			}
			request := tensor(ctg(t), inputs)
			request.InputIds, request.Receipts = idsOf(inputs, "case-"), which
			audits := 0
			want := map[string]string{}
			for _, r := range h.decompose(t, request).GetResults() {
				d := r.GetDecomposition()
				deferred := d.GetDecision().GetAction() == ckdv1.Action_ACTION_DEFER
				if !d.GetReview() && !deferred {
					continue
				}
				action, sealed := policy.Retain, d.GetReceipt()
				if deferred {
					action = policy.Defer
				} else {
					audits++
				}
				want[r.GetInputId()] = fmt.Sprintf("%v %x", action, sealed)
			}
			if diff := gocmp.Diff(want, got); diff != "" {
				t.Errorf("(-in the results +reported):\n%s", diff)
			}
			if asked := which != ckdv1.Receipts_RECEIPTS_UNSPECIFIED; asked != (audits > 0) || len(want) == audits {
				t.Errorf("%d audits of %d: the inputs show nothing", audits, len(want))
			}
		})
	}
}

package server

import (
	"slices"
	"strings"
	"testing"

	gocmp "github.com/google/go-cmp/cmp"
	"google.golang.org/protobuf/testing/protocmp"

	"github.com/ckd-project/ckd/internal/outcome/receipt"
	ckdv1 "github.com/ckd-project/ckd/proto/ckd/v1"
)

// TestViolated checks that everything called safe is deferred while an alarm of the policy is up and its
// audit says so, on every way in, that receipts hold what the policy decided, and that GetModel says it.
func TestViolated(t *testing.T) {
	const inputs = 200
	deferring := strings.Replace(auditedPolicy, "      m: 0.5\n", "      m: 0.5\n      on_breach: defer\n      surge: 700\n", 1)
	for _, c := range []struct {
		name, policy string
		hash         string // of the promise; empty: that of the policy
		alarm        bool
		want         bool // deferred
	}{
		{"an alarm", deferring, "", true, true},
		{"no alarm", deferring, "", false, false},
		{"an alarm of another policy", deferring, strings.Repeat("0", 64), true, false},
		{"an audit that only raises the alarm", auditedPolicy, "", true, false},
	} {
		t.Run(c.name, func(t *testing.T) {
			h := newHarness(t)
			keys := h.withReceipts(t, c.policy)
			request := tensor(ctg(t), inputs)
			request.InputIds, request.Receipts = idsOf(inputs, "i"), ckdv1.Receipts_RECEIPTS_ALL
			before := h.decompose(t, request).GetResults()
			was := openReceipts(t, keys, before)

			promise := &ckdv1.Promise{
				Policy: &ckdv1.PolicyRef{Model: "ctg", Hash: c.hash}, ModelVersion: "v1", Verdict: ckdv1.Verdict_VERDICT_VIOLATED, Alarm: c.alarm,
			}
			if c.hash == "" {
				promise.Policy.Hash = h.model(t, "ctg").GetPolicy().GetHash()
			}
			h.server.SetPromises([]*ckdv1.Promise{promise})
			h.set(t, strings.Replace(c.policy, "rate: 0.1", "rate: 0.2", 1)) // the next policy with this hash heeds it too
			h.set(t, c.policy)
			if said := h.model(t, "ctg").GetPromises(); c.hash == "" {
				if diff := gocmp.Diff([]*ckdv1.Promise{promise}, said, protocmp.Transform()); diff != "" {
					t.Errorf("GetModel (-want +got):\n%s", diff)
				}
			} else if len(said) > 0 {
				t.Errorf("GetModel says %v of another policy", said)
			}

			s := h.open(t, &ckdv1.StreamHeader{Model: "ctg", Receipts: ckdv1.Receipts_RECEIPTS_ALL})
			values := make([]float32, 0, inputs*90)
			p := ctg(t)
			for pass := range p.S {
				values = append(values, rowsOfPass(p, pass, 0, inputs)...)
			}
			s.sendBlock(&ckdv1.Block{Group: 1, InputIds: idsOf(inputs, "i"), Passes: uint32(p.S), Values: values})
			streamed := s.rest()
			slices.SortFunc(streamed, func(a, b *ckdv1.Result) int { return int(a.GetRow()) - int(b.GetRow()) })

			for way, results := range map[string][]*ckdv1.Result{"unary": h.decompose(t, request).GetResults(), "stream": streamed} {
				now := openReceipts(t, keys, results)
				deferred := 0
				for i, r := range results {
					d, old := r.GetDecomposition(), before[i].GetDecomposition()
					safe := was[i].Receipt.Stratum == receipt.CalledSafe
					want := old.GetDecision().GetReason()
					if safe && c.want {
						deferred++
						want = ckdv1.DecisionReason_DECISION_REASON_VIOLATED
						if d.GetDecision().GetAction() != ckdv1.Action_ACTION_DEFER || d.GetDecision().GetValue() != old.GetDecision().GetValue() {
							t.Fatalf("%s: input %d: %v", way, i, d.GetDecision())
						}
					}
					if got := d.GetDecision().GetReason(); got != want {
						t.Fatalf("%s: input %d: reason %v, want %v", way, i, got, want)
					}
					expected := was[i].Receipt
					if safe && c.want {
						expected.Review, expected.Propensity = true, 1
					}
					if diff := gocmp.Diff(expected, now[i].Receipt, sameContent()...); diff != "" {
						t.Fatalf("%s: input %d: receipt (-want +got):\n%s", way, i, diff)
					}
					if d.GetReview() != expected.Review {
						t.Fatalf("%s: input %d: review %v", way, i, d.GetReview())
					}
				}
				if c.want && deferred == 0 {
					t.Errorf("%s: no input is called safe", way)
				}
			}
			if got := h.metric(t, "ckd_decisions_total", "reason", "violated"); (got > 0) != c.want {
				t.Errorf("%v decisions counted as violated", got)
			}
			h.server.SetPromises(nil)
			if again := h.decompose(t, request).GetResults(); again[0].GetDecomposition().GetDecision().GetReason() != before[0].GetDecomposition().GetDecision().GetReason() {
				t.Error("what was called safe is deferred after the alarm was cleared")
			}
		})
	}
}

package server

import (
	"context"
	"fmt"
	"path/filepath"
	"strings"
	"testing"

	"google.golang.org/grpc/metadata"

	"github.com/ckd-project/ckd/internal/decisionlog"
	ckdv1 "github.com/ckd-project/ckd/proto/ckd/v1"
)

// loggedDecisions returns what a server keeps in its decision log while do runs, by id hash, and the counts.
func loggedDecisions(t *testing.T, do func(h *harness)) (map[string]*decisionlog.Decision, decisionlog.Counts) {
	t.Helper()
	path := filepath.Join(t.TempDir(), "decisions.log")
	log, err := decisionlog.Open(decisionlog.Options{Path: path})
	if err != nil {
		t.Fatal(err)
	}
	h := newHarness(t, func(o *Options) { o.Decisions = log })
	do(h)
	if err := log.Close(context.Background()); err != nil {
		t.Fatal(err)
	}
	all := map[string]*decisionlog.Decision{}
	err = decisionlog.Each(path, func(l *decisionlog.Line) error {
		d, err := l.Decision()
		if d != nil {
			all[d.IDHash] = d
		}
		return err
	})
	if err != nil {
		t.Fatal(err)
	}
	return all, log.Counts()
}

// TestDecisionsAreKept checks which decisions have a record under each setting, and that a record says what the client
// was answered: also where an alarm makes it another decision than the policy's.
func TestDecisionsAreKept(t *testing.T) {
	const inputs = 200
	for name, c := range map[string]struct {
		log     string
		breach  bool
		want    func(d *ckdv1.Decomposition) bool
		maybe   bool // the others are drawn
		vectors bool
	}{
		"reviewed": {"{id: hash}", false, func(d *ckdv1.Decomposition) bool { return d.GetReview() }, false, false},
		"all":      {"{id: hash, decisions: all, vectors: true}", false, func(*ckdv1.Decomposition) bool { return true }, false, true},
		"a share":  {"{id: hash, decisions: 0.5}", false, func(d *ckdv1.Decomposition) bool { return d.GetReview() }, true, false},
		"under a breach": {"{id: hash}", true, func(d *ckdv1.Decomposition) bool {
			return d.GetReview() || d.GetDecision().GetAction() == ckdv1.Action_ACTION_DEFER
		}, false, false},
	} {
		t.Run(name, func(t *testing.T) {
			text := auditedPolicy + "    log: " + c.log + "\n"
			hashes := make([]string, inputs)
			var reply *ckdv1.DecomposeResponse
			kept, counts := loggedDecisions(t, func(h *harness) {
				if c.breach {
					text = strings.Replace(text, "m: 0.5", "on_breach: defer\n      surge: 700", 1)
					h.server.SetLedgerState(LedgerState{Heard: false})
				}
				keys := h.withReceipts(t, text)
				request := tensor(ctg(t), inputs)
				request.Receipts = ckdv1.Receipts_RECEIPTS_REVIEWED
				for i := range inputs {
					id := fmt.Sprint("exam ", i)
					request.InputIds = append(request.InputIds, id)
					hashes[i] = fmt.Sprintf("%016x", keys.IDHashes([]byte(id))[0])
				}
				ctx := metadata.AppendToOutgoingContext(t.Context(), "traceparent", "00-0af7651916cd43dd8448eb211c80319c-b7ad6b7169203331-01")
				var err error
				if reply, err = h.client.Decompose(ctx, request); err != nil {
					t.Fatal(err)
				}
			})
			if counts.Decisions != inputs || counts.Written != uint64(len(kept)) || counts.LeftOut != inputs-counts.Written {
				t.Errorf("%+v, with %d records", counts, len(kept))
			}
			others := 0
			for i, result := range reply.GetResults() {
				d := result.GetDecomposition()
				r, want := kept[hashes[i]], c.want(d)
				if r == nil {
					if want {
						t.Errorf("input %d has no record", i)
					}
					continue
				}
				if !want {
					if others++; !c.maybe || r.Share == nil || *r.Share != 0.5 {
						t.Errorf("input %d has a record: %+v", i, r)
					}
				}
				action := strings.ToLower(strings.TrimPrefix(d.GetDecision().GetAction().String(), "ACTION_"))
				reason := strings.ToLower(strings.TrimPrefix(d.GetDecision().GetReason().String(), "DECISION_REASON_"))
				if r.Action != action || r.Reason != reason || r.Review != d.GetReview() || *r.Value != d.GetDecision().GetValue() ||
					r.PolicyHash != reply.GetPolicy().GetHash() || r.Passes != int(d.GetPasses()) ||
					r.Predicted != []string{"normal", "suspect", "pathologic"}[d.GetPredicted()] || r.Propensity == nil ||
					r.TraceID != "0af7651916cd43dd8448eb211c80319c" || r.ID != "" || len(r.Scores) < 10 {
					t.Fatalf("input %d: record %+v, answered %v", i, r, d)
				}
				if toReview := d.GetReview() || action == "defer"; (len(r.Mean) == 3) != (c.vectors && toReview) {
					t.Errorf("input %d: mean %v", i, r.Mean)
				}
			}
			if c.maybe && (others < 10 || others > inputs-10) {
				t.Errorf("%d of the inputs that nobody reviews have a record, expected about half", others)
			}
		})
	}
}

package ledger_test

import (
	"strings"
	"testing"
	"time"

	"github.com/ckd-project/ckd/internal/outcome/ledger"
	"github.com/ckd-project/ckd/internal/outcome/outcometest"
	"github.com/ckd-project/ckd/internal/outcome/receipt"
	"github.com/ckd-project/ckd/internal/outcome/truth"
)

// held returns the IDs of all decisions that the ledger holds.
func (b *bench) held() map[receipt.ID]bool {
	b.Helper()
	ids := make(map[receipt.ID]bool)
	if err := b.Walk(func(d *truth.Decision) error { ids[d.ID] = true; return nil }); err != nil {
		b.Fatal(err)
	}
	return ids
}

// TestDeleteGroup deletes what belongs to a group, under a key that was replaced since too, and keeps what evidence
// has not taken.
func TestDeleteGroup(t *testing.T) {
	b := openBench(t, ledger.Options{})
	b.now = day0.Add(20 * oneDay)
	mine, other := audited(.1), audited(.1)
	mine.Group, other.Group = b.keys.DrawKey().Group([]byte("patient-7")), b.keys.DrawKey().Group([]byte("patient-8"))
	b.decide(0, 3, mine, "c")
	b.decide(0, 4, other, "c")
	b.decide(19, 2, mine, "c")
	keys := outcometest.Keys(t, strings.Repeat("ab", 32), outcometest.Key)
	b.keys = keys
	b.sealer = receipt.NewSealer(keys)
	under := audited(.1)
	under.Group = keys.DrawKey().Group([]byte("patient-7"))
	b.decide(1, 5, under, "c")
	before := b.state()
	d, err := b.Delete("dpo", "consent withdrawn", ledger.Choice{Group: "patient-7"})
	want := ledger.Deleted{Decisions: 8, Left: 2, Until: day0.Add(34 * oneDay)}
	if err != nil || d != want {
		t.Fatalf("%+v, %v; want %+v", d, err, want)
	}
	if n := len(b.held()); n != 6 {
		t.Errorf("%d decisions are left, want 4 of another group and 2 to be deleted later", n)
	}
	before.AsOf = b.state().AsOf
	same(t, b.state(), before)
	events, err := b.Trail()
	if err != nil {
		t.Fatal(err)
	}
	if last := events[len(events)-1]; last.Kind != "outcomes_deleted" || strings.Contains(last.Detail, "patient") || !strings.Contains(last.Detail, "8 decisions") || !strings.Contains(last.Detail, "2 remain") {
		t.Errorf("the trail says %+v", last)
	}
}

// TestDeleteReceipts deletes the inputs of receipts: with an id all equal inputs, without one exactly the decision.
func TestDeleteReceipts(t *testing.T) {
	b := openBench(t, ledger.Options{})
	b.now = day0.Add(20 * oneDay)
	drawn := audited(.1)
	drawn.Draw = 77
	twice, plain := b.decide(0, 2, drawn, "c"), b.decide(0, 3, audited(.1), "c")
	never := b.seal(audited(.1))
	d, err := b.Delete("dpo", "consent withdrawn", ledger.Choice{Receipts: [][]byte{twice[1], plain[2], plain[2], never, []byte("no receipt")}})
	if err != nil || d.Decisions != 3 || d.Left != 0 || d.Unreadable != 1 {
		t.Fatalf("%+v, %v; want 3 deleted and 1 unreadable", d, err)
	}
	ids := b.held()
	for i, sealed := range append(twice, plain...) {
		_, id, err := b.keys.Open(sealed)
		if err != nil {
			t.Fatal(err)
		}
		if want := i == 2 || i == 3; ids[id] != want {
			t.Errorf("decision %d: held %v, want %v", i, ids[id], want)
		}
	}
}

// TestDuplicateOutlivesFirst deletes the outcomes up to the one that counts of equal inputs: a later one that is sent
// again is still a duplicate, and is held once.
func TestDuplicateOutlivesFirst(t *testing.T) {
	b := openBench(t, ledger.Options{})
	b.now = day0.Add(20 * oneDay)
	drawn := audited(.1)
	drawn.Draw = 77
	var later ledger.Outcome
	for day := range 2 {
		later = ledger.Outcome{Receipt: b.seal(receiptAt(drawn, day0.Add(time.Duration(day)*oneDay))), Truth: "c", Source: "ann", At: day0.Add(2 * oneDay)}
		b.report(later)
	}
	if d, err := b.Delete("dpo", "kept for a day", ledger.Choice{Before: day0.Add(oneDay)}); err != nil || d.Decisions != 1 {
		t.Fatalf("%+v, %v; want 1 deleted", d, err)
	}
	for range 2 {
		if a := b.report(later)[0]; a.Status != ledger.Duplicate {
			t.Errorf("sent again: %+v, want a duplicate", a)
		}
	}
	if held := b.held(); len(held) != 1 {
		t.Errorf("%d are held, want 1", len(held))
	}
}

// TestReviews says of receipts what is missing of them.
func TestReviews(t *testing.T) {
	b := openBench(t, ledger.Options{})
	b.now = day0.Add(20 * oneDay)
	at := func(r receipt.Receipt, day int) []byte {
		return b.seal(receiptAt(r, day0.Add(time.Duration(day)*oneDay)))
	}
	unseen, unaudited, wanted, drawn := at(audited(.1), 0), audited(.1), at(audited(.1), 0), audited(.1)
	unaudited.Review, drawn.Draw = false, 77
	equal := []byte(nil)
	first := at(drawn, 0)
	equal = at(drawn, 1)
	b.report(ledger.Outcome{Receipt: wanted, Truth: "a", Source: "ann", At: day0.Add(oneDay)}, ledger.Outcome{Receipt: first, Truth: "c", Source: "ann", At: day0.Add(oneDay)})
	stranger := receipt.NewSealer(func() *receipt.Keys {
		keys, err := receipt.ParseKeys("keys", []byte(strings.Repeat("ab", 32)))
		if err != nil {
			t.Fatal(err)
		}
		return keys
	}())
	foreign, unknown := audited(.1), audited(.1)
	foreign.Policy, unknown.Policy = b.policy, [32]byte{1}
	got, err := b.Reviews([][]byte{unseen, at(audited(.1), 19), at(unaudited, 0), at(free(), 0), wanted, equal, stranger.Seal(nil, &foreign), []byte("x"), b.seal(unknown)})
	if err != nil {
		t.Fatal(err)
	}
	want := []ledger.ReviewStatus{ledger.ReviewOverdue, ledger.ReviewOpen, ledger.ReviewNone, ledger.ReviewOverdue, ledger.ReviewAnswered, ledger.ReviewDuplicate,
		ledger.ReviewUnknownKey, ledger.ReviewForged, ledger.ReviewPolicyUnknown}
	for i, v := range got {
		if v.Status != want[i] {
			t.Errorf("receipt %d: status %d, want %d", i, v.Status, want[i])
		}
	}
	if got[4].Want.String() != "second_read" || len(got[4].Sources) != 1 || got[4].Sources[0] != "ann" {
		t.Errorf("the one read as critical: %+v, want a second read", got[4])
	}
	if due := day0.Add(15 * oneDay); !got[0].Due.Equal(due) {
		t.Errorf("due %v, want %v", got[0].Due, due)
	}
}

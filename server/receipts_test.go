package server

import (
	"fmt"
	"math"
	"slices"
	"strings"
	"testing"

	gocmp "github.com/google/go-cmp/cmp"

	"github.com/ckd-project/ckd/internal/outcome/outcometest"
	"github.com/ckd-project/ckd/internal/outcome/receipt"
	ckdv1 "github.com/ckd-project/ckd/proto/ckd/v1"
)

// auditedPolicy is the policy ctg of the tests with audits of a tenth.
var auditedPolicy = strings.SplitAfter(testPolicies, "threshold: 0.003}\n")[0] + `    audit:
      rate: 0.1
      m: 0.5
      slices:
        - {name: site, values: [north, south]}
        - {name: scanner, values: [old, new]}
`

// withReceipts puts keys in force and returns those that open receipts.
func (h *harness) withReceipts(t testing.TB, policies string) *receipt.Keys {
	t.Helper()
	keys := receiptKeys(t, 1)
	h.server.SetReceiptKeys(keys)
	h.set(t, policies)
	return keys
}

// receiptKeys returns keys of which the first is made of a byte.
func receiptKeys(t testing.TB, first byte) *receipt.Keys {
	t.Helper()
	return outcometest.Keys(t, fmt.Sprintf("%064x", first))
}

// TestUndeclaredSlices checks that slices which the policy does not declare are counted, and have one line.
func TestUndeclaredSlices(t *testing.T) {
	h := newHarness(t)
	h.withReceipts(t, auditedPolicy)
	request := tensor(ctg(t), 2)
	request.Receipts = ckdv1.Receipts_RECEIPTS_ALL
	request.Contexts = slices.Repeat([]*ckdv1.InputContext{{Slices: map[string]string{"scanner": "older", "site": "north"}}}, 2)
	h.decompose(t, request)
	h.eventually(t, 2, "ckd_refused_total", "resource", "slices")
	if logged := h.logs.FilterMessageSnippet("slice that the policy's audit does not declare").All(); len(logged) != 1 ||
		logged[0].ContextMap()["slice"] != "scanner" || logged[0].ContextMap()["value"] != "older" {
		t.Errorf("logged %v, expected one line", logged)
	}
}

// TestReceiptKeysChange checks that a stream goes on under the next keys.
func TestReceiptKeysChange(t *testing.T) {
	h := newHarness(t)
	before := h.withReceipts(t, auditedPolicy)
	st := h.open(t, &ckdv1.StreamHeader{Model: "ctg", Receipts: ckdv1.Receipts_RECEIPTS_ALL})
	for group, keys := range []*receipt.Keys{before, receiptKeys(t, 2)} {
		if group > 0 {
			h.server.SetReceiptKeys(keys)
		}
		st.sendBlock(&ckdv1.Block{Group: uint64(group), InputIds: []string{"a"}, Passes: 30, Values: tensor(ctg(t), 1).GetValues()})
		if _, _, err := keys.Open(st.receive().GetResults()[0].GetDecomposition().GetReceipt()); err != nil {
			t.Errorf("group %d: %v", group, err)
		}
	}
}

// TestModelVersions checks that clients cannot have any number of versions counted.
func TestModelVersions(t *testing.T) {
	h := newHarness(t)
	keys := h.withReceipts(t, auditedPolicy)
	version := func(stated string) uint64 {
		r := tensor(ctg(t), 1)
		r.Receipts, r.ModelVersion = ckdv1.Receipts_RECEIPTS_ALL, stated
		content, _, err := keys.Open(h.decompose(t, r).GetResults()[0].GetDecomposition().GetReceipt())
		if err != nil {
			t.Fatal(err)
		}
		return content.Version
	}
	for i := range mostVersions {
		if stated := fmt.Sprint("build ", i); version(stated) != receipt.VersionHash(stated) {
			t.Fatalf("the receipt does not hold %q", stated)
		}
	}
	for stated, want := range map[string]string{"one more": "v1", "": "v1", "build 3": "build 3"} {
		if version(stated) != receipt.VersionHash(want) {
			t.Errorf("stated %q: the receipt does not hold %q", stated, want)
		}
	}
	versions := map[string]bool{}
	for _, counts := range h.server.Issued(0, math.MaxInt) {
		versions[counts.Version] = true
	}
	if len(versions) != mostVersions+1 {
		t.Errorf("%d versions are counted, expected %d", len(versions), mostVersions+1)
	}
}

// TestIssuedPeriods checks that short periods are counted apart, and that old ones are forgotten.
func TestIssuedPeriods(t *testing.T) {
	p := parsePolicies(t, strings.Replace(auditedPolicy, "m: 0.5", "due: 10s", 1)).All()[0]
	s, _, _ := newServer(t)
	if err := s.SetPolicies(parsePolicies(t, string(p.Marshal()))); err != nil {
		t.Fatal(err)
	}
	m := s.catalog.models()["ctg"]
	one := &byStratum{}
	one[receipt.Deferred].Decisions = 1
	const second = int64(1e6)
	for _, at := range []int64{100, 101, 109, 110, 129} {
		s.receipts.issued.add(m, "", at*second, one)
	}
	counts := func() map[int64]uint64 {
		got := map[int64]uint64{}
		for _, n := range s.Issued(0, math.MaxInt) {
			got[n.Start/second] += n.Decisions
		}
		return got
	}
	if diff := gocmp.Diff(map[int64]uint64{100: 3, 110: 1, 120: 1}, counts()); diff != "" {
		t.Errorf("(-want +got):\n%s", diff)
	}
	for range 8 {
		s.receipts.issued.add(m, "", (200+10*mostCountPeriods)*second, one)
	}
	if diff := gocmp.Diff(map[int64]uint64{200 + 10*mostCountPeriods: 8}, counts()); diff != "" {
		t.Errorf("(-want +got):\n%s", diff)
	}
}

// TestIssuedChanges checks that a position leads to what has changed since, and that a month of hours is
// kept, but no more keys than are bounded.
func TestIssuedChanges(t *testing.T) {
	s, _, _ := newServer(t)
	if err := s.SetPolicies(parsePolicies(t, auditedPolicy)); err != nil {
		t.Fatal(err)
	}
	m := s.catalog.models()["ctg"]
	one := &byStratum{}
	one[receipt.Deferred].Decisions, one[receipt.CalledSafe].Decisions = 1, 2
	const hour = int64(3600e6)
	now := 500_000 * hour
	for h := range int64(31 * 24) {
		s.receipts.issued.add(m, "", now+h*hour, one)
	}
	all := s.Issued(0, math.MaxInt)
	if len(all) != 2*31*24 || all[0].Start != now || all[0].InForce != m.Policy() {
		t.Fatalf("%d counts of a month, from %d", len(all), all[0].Start)
	}
	part := s.Issued(0, 10)
	if len(part) != 20 || part[19] != all[19] {
		t.Errorf("%d counts of the first ten keys", len(part))
	}
	if rest := s.Issued(part[19].Position, math.MaxInt); len(rest) != len(all)-20 || rest[0] != all[20] {
		t.Errorf("%d counts after them", len(rest))
	}
	last := all[len(all)-1].Position
	if got := s.Issued(last, 1); got != nil {
		t.Errorf("nothing changed, but %v", got)
	}
	s.receipts.issued.add(m, "", now, one)
	if got := s.Issued(last, math.MaxInt); len(got) != 2 || got[0].Start != now || got[1].Decisions != 4 {
		t.Errorf("one hour changed, but %v", got)
	}
	for v := range mostCountPeriods {
		s.receipts.issued.add(m, fmt.Sprint(v), now+31*24*hour, one)
	}
	if got := len(s.Issued(0, math.MaxInt)); got != 2*mostCountPeriods {
		t.Errorf("%d counts, expected %d", got, 2*mostCountPeriods)
	}
}

// TestDeferring checks when a policy with on_breach: defer defers what it calls safe, and that GetModel
// says why.
func TestDeferring(t *testing.T) {
	s, _, _ := newServer(t)
	if err := s.SetPolicies(parsePolicies(t, strings.Replace(auditedPolicy, "m: 0.5", "on_breach: defer\n      surge: 700", 1))); err != nil {
		t.Fatal(err)
	}
	for _, c := range []struct {
		name string
		set  *LedgerState
		why  string
	}{
		{"without a ledger", nil, ""},
		{"never heard", &LedgerState{}, "The ledger has not answered"},
		{"heard", &LedgerState{Heard: true}, ""},
		{"of another model", &LedgerState{Heard: true, Alarms: []*ckdv1.Alarm{{Model: "another"}}}, ""},
		{"of one class", &LedgerState{Heard: true, Alarms: []*ckdv1.Alarm{{Model: "ctg", CriticalClass: "pathologic"}}}, ""},
		{"alarm", &LedgerState{Heard: true, Alarms: []*ckdv1.Alarm{{Model: "ctg", Figure: ckdv1.CertifiedFigure_CERTIFIED_FIGURE_CRITICAL_MISS_RATE}}}, "An alarm on the critical miss rate is up since "},
	} {
		if c.set != nil {
			s.SetLedgerState(*c.set)
		}
		m := s.catalog.models()["ctg"]
		if got := s.describe(m).GetDeferring(); m.isViolated() != (c.why != "") || !strings.HasPrefix(got, c.why) || c.why == "" && got != "" {
			t.Errorf("%s: defers %v: %q", c.name, m.isViolated(), got)
		}
	}
}

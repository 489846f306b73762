package server

import (
	"cmp"
	"fmt"
	"math"
	"slices"
	"strings"
	"testing"
	"time"

	gocmp "github.com/google/go-cmp/cmp"
	"github.com/google/go-cmp/cmp/cmpopts"

	"github.com/ckd-project/ckd/decomp"
	"github.com/ckd-project/ckd/internal/outcome/receipt"
	"github.com/ckd-project/ckd/policy"
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
	keys, err := receipt.ParseKeys("keys", fmt.Appendf(nil, "%064x\n", first))
	if err != nil {
		t.Fatal(err)
	}
	return keys
}

// opened is what a result says about reviews.
type opened struct {
	Review  bool
	Receipt receipt.Receipt
}

// openReceipts opens the receipts of results, each of which must have one.
func openReceipts(t testing.TB, keys *receipt.Keys, results []*ckdv1.Result) (all []opened) {
	t.Helper()
	seen := map[receipt.ID]bool{}
	for _, r := range results {
		d := r.GetDecomposition()
		content, id, err := keys.Open(d.GetReceipt())
		if err != nil || seen[id] {
			t.Fatalf("the receipt of row %d does not open, or its number %x came before: %v", r.GetRow(), id, err)
		}
		seen[id] = true
		all = append(all, opened{d.GetReview(), content})
	}
	return all
}

// sameContent compares receipts of the same inputs: all but the time is the same.
func sameContent(also ...string) []gocmp.Option {
	return []gocmp.Option{cmpopts.IgnoreFields(receipt.Receipt{}, append(also, "Time")...), cmpopts.EquateNaNs()}
}

func idsOf(n int, prefix string) []string {
	ids := make([]string, n)
	for i := range ids {
		ids[i] = fmt.Sprintf("%s%d", prefix, i)
	}
	return ids
}

// TestReceipts checks that a stream, a unary call and a call by another protocol have receipts of the
// same content, which is what the result says.
func TestReceipts(t *testing.T) {
	const inputs = 400
	h := newHarness(t)
	keys := h.withReceipts(t, auditedPolicy)
	begun := time.Now().UnixMicro()
	request := tensor(ctg(t), inputs)
	request.InputIds, request.Receipts, request.ModelVersion = idsOf(inputs, "i"), ckdv1.Receipts_RECEIPTS_ALL, "v7"
	for i := range inputs {
		request.Contexts = append(request.Contexts, &ckdv1.InputContext{Group: fmt.Sprint(i / 2), Slices: map[string]string{"site": "south", "undeclared": "x"}})
	}
	request.Contexts[0] = &ckdv1.InputContext{Slices: map[string]string{"scanner": "older", "site": "north"}}
	results := h.decompose(t, request).GetResults()
	unary := openReceipts(t, keys, results)

	t.Run("slices that the policy does not declare", func(t *testing.T) {
		h.eventually(t, inputs, "ckd_refused_total", "resource", "slices")
		if logged := h.logs.FilterMessageSnippet("slice that the policy's audit does not declare").All(); len(logged) != 1 ||
			logged[0].ContextMap()["slice"] != "scanner" || logged[0].ContextMap()["value"] != "older" {
			t.Errorf("logged %v, expected one line", logged)
		}
	})
	t.Run("what they say", func(t *testing.T) {
		m := h.server.catalog.models()["ctg"]
		reference := referenceFor(t, m.lean.Model, decomp.Tensor{Passes: 30, Inputs: inputs, Float32: request.GetValues()})
		reviews, expected := map[receipt.Stratum]float64{}, map[receipt.Stratum]float64{}
		for i, got := range unary {
			o, d := reference(i), results[i].GetDecomposition()
			want := receipt.Receipt{
				Policy: m.hash, Version: receipt.VersionHash("v7"), Stratum: receipt.CalledSafe, Propensity: 0.1,
				Action: uint8(d.GetDecision().GetAction()), Reason: uint8(d.GetDecision().GetReason()), Gate: uint8(d.GetDecision().GetGate()),
				Predicted: d.GetPredicted(), Passes: 30, Degenerate: d.GetDegenerate(), Risk: float32(math.NaN()),
				Draw:  keys.DrawKey().Hash(&m.hash, []byte(request.GetInputIds()[i]), 30, o.Mean),
				Group: keys.DrawKey().Group([]byte(request.GetContexts()[i].GetGroup())),
			}
			if want.Slices[0] = policy.SliceHash("site", "south"); i == 0 {
				want.Slices[0], want.Group = policy.SliceHash("site", "north"), 0
			}
			for score, v := range o.Scores {
				want.Scores[score] = float32(v)
			}
			switch {
			case o.Decision.Action == policy.Defer:
				want.Stratum, want.Propensity = receipt.Deferred, 1
			case o.Predicted != 0:
				want.Stratum = receipt.CalledCritical
			}
			want.Review = got.Review
			if diff := gocmp.Diff(want, got.Receipt, sameContent()...); diff != "" {
				t.Fatalf("input %d: (-want +got):\n%s", i, diff)
			}
			if at := got.Receipt.Time; at < begun || at > time.Now().UnixMicro() {
				t.Errorf("input %d was decided at %d, expected a time since %d", i, at, begun)
			}
			expected[want.Stratum] += float64(want.Propensity)
			if got.Review {
				reviews[want.Stratum]++
			}
		}
		for stratum, want := range expected { // the draws are those of the fixed key
			if got := reviews[stratum]; math.Abs(got-want) > 4*math.Sqrt(want) {
				t.Errorf("%v: %v reviews, expected about %.1f", stratum, got, want)
			}
		}
	})

	t.Run("of a stream", func(t *testing.T) {
		st := h.open(t, &ckdv1.StreamHeader{Model: "ctg", Receipts: ckdv1.Receipts_RECEIPTS_ALL, ModelVersion: "v7"})
		if !st.info.GetAudits() {
			t.Error("the stream says that nothing is audited")
		}
		st.sendBlock(&ckdv1.Block{Group: 1, InputIds: request.GetInputIds(), Contexts: request.GetContexts()})
		for pass := range 30 {
			st.sendBlock(&ckdv1.Block{Group: 1, Values: rowsOfPass(ctg(t), pass, 0, inputs)})
		}
		got := openReceipts(t, keys, byRow(t, st.rest(), inputs))
		if diff := gocmp.Diff(unary, got, sameContent()...); diff != "" {
			t.Errorf("(-unary +stream):\n%s", diff)
		}
	})

	t.Run("by another protocol", func(t *testing.T) {
		call := foreign(t, inputs)
		call.Receipts, call.ModelVersion = ckdv1.Receipts_RECEIPTS_ALL, "v7"
		got := make([]opened, inputs)
		_, err := h.server.Decide(t.Context(), call, func(i int, d *Decided, err error) {
			content, _, openErr := keys.Open(d.Receipt)
			if err != nil || openErr != nil || d.Review != content.Review {
				t.Error(i, err, openErr, d.Review)
			}
			got[i] = opened{d.Review, content}
		})
		if err != nil {
			t.Fatal(err)
		}
		for i := range got { // it has no ids, so that its draws are random
			if r := &got[i].Receipt; r.Draw != 0 || r.Stratum == receipt.Deferred && !r.Review {
				t.Errorf("input %d: %+v", i, r)
			}
			got[i].Review, got[i].Receipt.Review = unary[i].Review, unary[i].Review
		}
		if diff := gocmp.Diff(unary, got, sameContent("Draw", "Group", "Slices")...); diff != "" {
			t.Errorf("(-unary +other):\n%s", diff)
		}
	})
}

// TestReceiptsReviewed checks who gets receipts, and that they are counted.
func TestReceiptsReviewed(t *testing.T) {
	const inputs = 200
	for name, tt := range map[string]struct {
		audit   string
		asks    ckdv1.Receipts
		receipt func(r *opened) bool // by what all receipts say
	}{
		"none":           {"audit: {rate: 0.1}", ckdv1.Receipts_RECEIPTS_UNSPECIFIED, func(*opened) bool { return false }},
		"reviewed":       {"audit: {rate: 0.1}", ckdv1.Receipts_RECEIPTS_REVIEWED, func(r *opened) bool { return r.Review }},
		"free":           {"audit: {rate: 0.1, predicted-critical: free}", ckdv1.Receipts_RECEIPTS_REVIEWED, func(r *opened) bool { return r.Review || r.Receipt.Stratum == receipt.CalledCritical }},
		"without audits": {"", ckdv1.Receipts_RECEIPTS_REVIEWED, func(r *opened) bool { return r.Receipt.Stratum == receipt.Deferred }},
	} {
		t.Run(name, func(t *testing.T) {
			h := newHarness(t)
			keys := h.withReceipts(t, strings.SplitAfter(testPolicies, "threshold: 0.003}\n")[0]+"    "+tt.audit+"\n")
			request := tensor(ctg(t), inputs)
			request.InputIds, request.Receipts = idsOf(inputs, "i"), ckdv1.Receipts_RECEIPTS_ALL
			all := openReceipts(t, keys, h.decompose(t, request).GetResults())
			request.Receipts = tt.asks
			receipts, reviews := map[string]float64{}, map[string]float64{}
			for i, r := range h.decompose(t, request).GetResults() {
				d, want := r.GetDecomposition(), tt.receipt(&all[i])
				if got := len(d.GetReceipt()) > 0; got != want {
					t.Errorf("input %d: has a receipt: %v, expected %v", i, got, want)
				}
				if want := all[i].Review && tt.asks != 0; d.GetReview() != want {
					t.Errorf("input %d: review %v, expected %v", i, d.GetReview(), want)
				}
				stratum := all[i].Receipt.Stratum.String()
				if receipts[stratum]++; want { // all of the first call, and these
					receipts[stratum]++
				}
				for _, reviewed := range []bool{all[i].Review, d.GetReview()} {
					if reviewed {
						reviews[stratum]++
					}
				}
			}
			calls, drawn := 1.0, 0.0
			if tt.asks != 0 {
				calls = 2
			}
			h.eventually(t, calls*inputs, "ckd_receipts_eligible_total")
			for i := range all { // what is free is not drawn
				if r := &all[i].Receipt; r.Stratum != receipt.CalledCritical || r.Propensity < 1 {
					drawn += calls * float64(r.Propensity)
				}
			}
			if got := h.metric(t, "ckd_audit_propensity_total"); math.Abs(got-drawn) > 1e-6 {
				t.Errorf("%v reviews were to be expected, by the receipts %v", got, drawn)
			}
			for s := receipt.Deferred; s < receipt.Strata; s++ {
				h.eventually(t, reviews[s.String()], "ckd_reviews_total", "stratum", s.String())
			}
			expectIssued(t, h.server, receipts, reviews, uint64(calls)*inputs)
		})
	}
}

// expectIssued checks the counts for ledgers, by stratum.
func expectIssued(t *testing.T, s *Server, receipts, reviews map[string]float64, eligible uint64) {
	t.Helper()
	decisions, eligibles := uint64(0), uint64(0)
	for _, got := range s.Issued() {
		name := got.Stratum.String()
		if got.Model != "ctg" || got.Version != "v1" || got.Policy != s.catalog.models()["ctg"].hash || got.Start%int64(time.Hour/time.Microsecond) != 0 {
			t.Errorf("counts of %+v", got.IssuedKey)
		}
		if float64(got.Receipts) != receipts[name] || float64(got.Reviews) != reviews[name] {
			t.Errorf("%s: %d receipts and %d reviews, expected %v and %v", name, got.Receipts, got.Reviews, receipts[name], reviews[name])
		}
		decisions, eligibles = decisions+got.Decisions, eligibles+got.Eligible
	}
	if decisions != 400 || eligibles != eligible {
		t.Errorf("%d decisions, %d of clients with receipts; expected 400 and %d", decisions, eligibles, eligible)
	}
}

// TestDraws checks that a retry is drawn alike, by any process with the same key, and that nothing
// else is: with other passes, another id, another policy or another key, about as many inputs change
// as chance changes.
func TestDraws(t *testing.T) {
	const inputs = 300
	half := strings.Replace(auditedPolicy, "rate: 0.1", "rate: 0.5", 1)
	draws := func(key byte, policies, prefix string, first int) []bool {
		h := newHarness(t)
		keys := receiptKeys(t, key)
		h.server.SetReceiptKeys(keys)
		h.set(t, policies)
		p := ctg(t)
		r := &ckdv1.DecomposeRequest{Model: "ctg", Layout: ckdv1.Layout_LAYOUT_SNK, Passes: 30, Inputs: inputs}
		for s := range 30 {
			r.Values = append(r.Values, rowsOfPass(p, s, first, first+inputs)...)
		}
		if r.Receipts = ckdv1.Receipts_RECEIPTS_REVIEWED; prefix != "" {
			r.InputIds = idsOf(inputs, prefix)
		}
		var drawn []bool
		for _, result := range h.decompose(t, r).GetResults() {
			drawn = append(drawn, result.GetDecomposition().GetReview())
		}
		return drawn
	}
	first := draws(1, half, "i", 0)
	for name, tt := range map[string]struct {
		drawn []bool
		alike bool
	}{
		"a retry":        {draws(1, half, "i", 0), true},
		"other settings": {draws(1, strings.Replace(half, "m: 0.5", "m: 1", 1), "i", 0), true},
		"another id":     {draws(1, half, "j", 0), false},
		"other passes":   {draws(1, half, "i", inputs), false},
		"another policy": {draws(1, strings.Replace(half, "0.003", "0.0031", 1), "i", 0), false},
		"another key":    {draws(2, half, "i", 0), false},
		"without ids":    {draws(1, half, "", 0), false},
	} {
		t.Run(name, func(t *testing.T) {
			same := 0
			for i := range first {
				if first[i] == tt.drawn[i] {
					same++
				}
			}
			if (same == inputs) != tt.alike {
				t.Errorf("%d of %d inputs are drawn alike", same, inputs)
			}
		})
	}
}

// TestReceiptsRefused checks what is refused of what clients state for receipts.
func TestReceiptsRefused(t *testing.T) {
	nine := map[string]string{}
	for i := range 9 {
		nine[fmt.Sprint(i)] = ""
	}
	long := strings.Repeat("g", DefaultLimits().InputIDBytes+1)
	three := func(second *ckdv1.InputContext) []*ckdv1.InputContext {
		return []*ckdv1.InputContext{{}, second, {Group: "the last"}}
	}
	for name, tt := range map[string]struct {
		receipts ckdv1.Receipts
		version  string
		contexts []*ckdv1.InputContext
		keyless  bool
		reason   string
		text     string
		alone    bool // only the second input is refused
	}{
		"no keys":         {receipts: 1, keyless: true, reason: "RECEIPTS_UNAVAILABLE", text: "without --receipt-keys"},
		"unknown number":  {receipts: 3, reason: "WRONG_ENUM", text: "receipts: got 3, expected a value of the enum"},
		"long version":    {version: strings.Repeat("v", 129), reason: "WRONG_CONTEXT", text: "129 bytes of model_version, over the limit of 128"},
		"few contexts":    {contexts: three(nil)[:2], reason: "WRONG_CONTEXT", text: "contexts: got 2, expected none or 3"},
		"long group":      {receipts: 1, contexts: three(&ckdv1.InputContext{Group: long}), reason: "WRONG_CONTEXT", text: "257 bytes of a group, over the limit of 256", alone: true},
		"many slices":     {receipts: 1, contexts: three(&ckdv1.InputContext{Slices: nine}), reason: "WRONG_CONTEXT", text: "contexts[1]: more than 8 slices", alone: true},
		"not asked":       {contexts: three(&ckdv1.InputContext{Group: long}), alone: true},
		"nothing to seal": {keyless: true, contexts: three(&ckdv1.InputContext{Group: "g"}), alone: true},
	} {
		t.Run(name, func(t *testing.T) {
			h := newHarness(t)
			if h.set(t, auditedPolicy); !tt.keyless {
				h.server.SetReceiptKeys(receiptKeys(t, 1))
			}
			check := func(results []*ckdv1.Result) {
				t.Helper()
				for i, r := range results {
					if i != 1 || tt.reason == "" {
						if r.GetDecomposition() == nil {
							t.Errorf("input %d is refused: %v", i, r.GetError())
						}
						continue
					}
					if expectError(t, r.GetError(), tt.reason); !strings.Contains(r.GetError().GetMessage(), tt.text) {
						t.Errorf("got %q, expected %q", r.GetError().GetMessage(), tt.text)
					}
				}
			}
			r := tensor(ctg(t), 3)
			r.Receipts, r.ModelVersion, r.Contexts = tt.receipts, tt.version, tt.contexts
			response, err := h.client.Decompose(t.Context(), r)
			if tt.alone {
				if err != nil {
					t.Fatal(err)
				}
				check(response.GetResults())
			} else if expectFault(t, err, tt.reason); !strings.Contains(err.Error(), tt.text) {
				t.Errorf("got %v, expected %q", err, tt.text)
			}

			streamHeader := &ckdv1.StreamHeader{Model: "ctg", Receipts: tt.receipts, ModelVersion: tt.version}
			if len(tt.contexts) == 0 {
				st, err := h.client.DecomposeStream(t.Context())
				if err != nil {
					t.Fatal(err)
				}
				_ = st.Send(header(streamHeader)) // Recv says why
				_, err = st.Recv()
				expectFault(t, err, tt.reason)
				return
			}
			st := h.open(t, streamHeader)
			st.sendBlock(&ckdv1.Block{Group: 1, InputIds: make([]string, 3), Contexts: tt.contexts, Passes: 30, Values: r.GetValues()})
			reply := st.receive()
			if tt.alone {
				results := reply.GetResults()
				slices.SortFunc(results, func(a, b *ckdv1.Result) int { return cmp.Compare(a.GetRow(), b.GetRow()) })
				check(results)
				return
			}
			if len(reply.GetFaults()) != 1 {
				t.Fatalf("%v, expected a fault", reply)
			}
			expectError(t, reply.GetFaults()[0], tt.reason)
		})
	}
}

// TestReceiptKeysChange checks that a stream goes on under the next keys.
func TestReceiptKeysChange(t *testing.T) {
	h := newHarness(t)
	before := h.withReceipts(t, auditedPolicy)
	st := h.open(t, &ckdv1.StreamHeader{Model: "ctg", Receipts: ckdv1.Receipts_RECEIPTS_ALL})
	decided := func(group uint64) []*ckdv1.Result {
		st.sendBlock(&ckdv1.Block{Group: group, InputIds: []string{"a"}, Passes: 30, Values: tensor(ctg(t), 1).GetValues()})
		return st.receive().GetResults()
	}
	openReceipts(t, before, decided(1))
	after := receiptKeys(t, 2)
	h.server.SetReceiptKeys(after)
	openReceipts(t, after, decided(2))
}

// TestAuditRate checks that GetModel tells of audits where they can be drawn.
func TestAuditRate(t *testing.T) {
	h := newHarness(t)
	h.set(t, auditedPolicy)
	if m := h.model(t, "ctg"); m.AuditRate != nil {
		t.Errorf("rate %v without keys", m.GetAuditRate())
	}
	h.withReceipts(t, auditedPolicy)
	if m := h.model(t, "ctg"); m.AuditRate == nil || m.GetAuditRate() != 0.1 {
		t.Errorf("rate %v, expected 0.1", m.AuditRate)
	}
	h.set(t, strings.Replace(auditedPolicy, "rate: 0.1", "rate: 0.2", 1))
	if got := h.model(t, "ctg").GetAuditRate(); got != 0.2 {
		t.Errorf("rate %v after a change of nothing else, expected 0.2", got)
	}
	h.set(t, testPolicies)
	if m := h.model(t, "ctg"); m.AuditRate != nil {
		t.Errorf("rate %v of a policy without audits", m.GetAuditRate())
	}
}

// TestModelVersions checks that clients cannot have any number of versions counted.
func TestModelVersions(t *testing.T) {
	h := newHarness(t)
	keys := h.withReceipts(t, auditedPolicy)
	version := func(stated string) uint64 {
		r := tensor(ctg(t), 1)
		r.Receipts, r.ModelVersion = ckdv1.Receipts_RECEIPTS_ALL, stated
		return openReceipts(t, keys, h.decompose(t, r).GetResults())[0].Receipt.Version
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
	for _, counts := range h.server.Issued() {
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
		for _, n := range s.Issued() {
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

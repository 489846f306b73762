package outcomes_test

import (
	"context"
	"crypto/sha256"
	"encoding/hex"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"math"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"sync"
	"testing"
	"time"

	"github.com/google/go-cmp/cmp"
	"github.com/prometheus/client_golang/prometheus"
	"go.uber.org/goleak"
	"go.uber.org/zap"
	"google.golang.org/grpc"
	"google.golang.org/grpc/codes"
	"google.golang.org/grpc/metadata"
	"google.golang.org/grpc/status"
	"google.golang.org/protobuf/proto"
	"google.golang.org/protobuf/types/known/timestamppb"

	"github.com/ckd-project/ckd/internal/auth"
	"github.com/ckd-project/ckd/internal/metrics"
	"github.com/ckd-project/ckd/internal/outcome/ledger"
	"github.com/ckd-project/ckd/internal/outcome/outcometest"
	"github.com/ckd-project/ckd/internal/outcome/receipt"
	"github.com/ckd-project/ckd/internal/servertest"
	ckdv1 "github.com/ckd-project/ckd/proto/ckd/v1"
	"github.com/ckd-project/ckd/server"
	"github.com/ckd-project/ckd/server/outcomes"
)

func TestMain(m *testing.M) { goleak.VerifyTestMain(m) }

const policyText = `models:
  - name: triage
    version: model-7
    classes: [a, b, c, d]
    critical: [a, b]
    passes: {fewest: 4}
    primary: {score: entropy, threshold: 0.5}
    fallback: {score: maxprob, threshold: 0.5}
    audit: {rate: 0.5, due: 1s, slices: [{name: site, values: [north, south]}]}
    calibrated:
      expected_critical_miss_rate: {value: 0.1, low: 0.05, high: 0.2}
`

// daemon is a server with a ledger.
type daemon struct {
	testing.TB
	ckdv1.OutcomeServiceClient
	ledger *ledger.Ledger
	sealer *receipt.Sealer
	hash   [32]byte // of the policy
	name   string   // the same in hex
	keyIDs []string
	period time.Time // of what was issued

	mu     sync.Mutex
	counts map[ledger.Status]int
}

// messageBytes is the largest message of the daemons here.
const messageBytes = 512 << 10

// start serves a ledger that knows the policy, to everybody or by an access file.
func start(t testing.TB, access string) *daemon {
	t.Helper()
	d := &daemon{TB: t, counts: map[ledger.Status]int{}, period: time.Now().Add(-time.Hour).Truncate(time.Second)}
	keys := outcometest.Keys(t, outcometest.Key)
	d.sealer, d.keyIDs = receipt.NewSealer(keys), keys.IDs()
	dir := t.TempDir()
	err := ledger.Begin(dir, ledger.Options{})
	if err != nil {
		t.Fatal(err)
	}
	if d.ledger, err = ledger.Open(dir, ledger.Options{Keys: func() *receipt.Keys { return keys }}); err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() {
		if err := d.ledger.Close(); err != nil {
			t.Error(err)
		}
	})
	if err := d.ledger.AddPolicy([]byte(policyText)); err != nil {
		t.Fatal(err)
	}
	p := outcometest.Policy(t, policyText)
	d.name, d.hash = p.Hash, p.HashBytes()

	registry := prometheus.NewRegistry()
	m, err := metrics.New(registry, metrics.Options{ClassLabels: 8})
	if err != nil {
		t.Fatal(err)
	}
	limits := server.DefaultLimits()
	limits.MessageBytes = messageBytes
	options := server.Options{Limits: limits, Logger: zap.NewNop(), Metrics: m, Registry: registry}
	if access != "" {
		path := filepath.Join(t.TempDir(), "access.yaml")
		if err := os.WriteFile(path, []byte(access), 0o600); err != nil {
			t.Fatal(err)
		}
		if options.Auth, err = auth.Open(path, auth.Options{}); err != nil {
			t.Fatal(err)
		}
	}
	s, err := server.New(options)
	if err != nil {
		t.Fatal(err)
	}
	outcomes.Register(s, outcomes.Options{
		Ledger: d.ledger, Keys: func() *receipt.Keys { return keys }, Log: zap.NewNop(),
		Answered: func(_ string, s ledger.Status) {
			d.mu.Lock()
			defer d.mu.Unlock()
			d.counts[s]++
		},
	})
	conn := servertest.Dial(t, servertest.Serve(t, s.GRPC()))
	d.OutcomeServiceClient = ckdv1.NewOutcomeServiceClient(conn)
	return d
}

// receipt returns the receipt of an input called class c, decided an hour ago.
func (d *daemon) receipt(stratum receipt.Stratum, change ...func(*receipt.Receipt)) []byte {
	r := receipt.Receipt{
		Policy: d.hash, Version: receipt.VersionHash("model-7"), Time: time.Now().Add(-time.Hour).UnixMicro(), Stratum: stratum,
		Action: 1, Reason: 2, Predicted: 2, Passes: 30, Review: true, Risk: float32(math.NaN()), Propensity: 0.5,
	}
	if stratum == receipt.Deferred {
		r.Action, r.Reason, r.Propensity = 2, 1, 1
	}
	for _, f := range change {
		f(&r)
	}
	return d.sealer.Seal(nil, &r)
}

// report sends outcomes and returns the answers.
func (d *daemon) report(all ...*ckdv1.Outcome) []*ckdv1.OutcomeAnswer {
	d.Helper()
	reply, err := d.ReportOutcomes(d.Context(), &ckdv1.ReportOutcomesRequest{Outcomes: all})
	if err != nil || len(reply.GetAnswers()) != len(all) {
		d.Fatalf("%d answers, want %d; error %v", len(reply.GetAnswers()), len(all), err)
	}
	return reply.GetAnswers()
}

// TestReportOutcomes checks what becomes of good and bad outcomes in one call.
func TestReportOutcomes(t *testing.T) {
	d := start(t, "")
	good := d.receipt(receipt.CalledSafe)
	forged := append([]byte{}, good...)
	forged[len(forged)-20] ^= 1
	foreign := receipt.NewSealer(outcometest.Keys(d, "ff112233445566778899aabbccddeeff00112233445566778899aabbccddeeff")).
		Seal(nil, &receipt.Receipt{Policy: d.hash, Stratum: receipt.Deferred})
	other := d.receipt(receipt.CalledSafe, func(r *receipt.Receipt) { r.Policy[0] ^= 1 })
	tests := []struct {
		name  string
		given *ckdv1.Outcome
		want  ckdv1.OutcomeStatus
		field string // of what is wrong
	}{
		{"a reading", &ckdv1.Outcome{Receipt: good, Truth: "c", Source: "r1"}, ckdv1.OutcomeStatus_OUTCOME_STATUS_COUNTED, ""},
		{"the same again", &ckdv1.Outcome{Receipt: good, Truth: "c", Source: "r1"}, ckdv1.OutcomeStatus_OUTCOME_STATUS_DUPLICATE, ""},
		{"a critical reading", &ckdv1.Outcome{Receipt: d.receipt(receipt.CalledSafe), Truth: "a", Source: "r1"},
			ckdv1.OutcomeStatus_OUTCOME_STATUS_SECOND_READ_WANTED, ""},
		{"not picked for review", &ckdv1.Outcome{Receipt: d.receipt(receipt.CalledSafe, func(r *receipt.Receipt) { r.Review = false }), Truth: "c", Source: "r1"},
			ckdv1.OutcomeStatus_OUTCOME_STATUS_APART, ""},
		{"forged", &ckdv1.Outcome{Receipt: forged, Truth: "c", Source: "r1"}, ckdv1.OutcomeStatus_OUTCOME_STATUS_FORGED, "receipt"},
		{"cut", &ckdv1.Outcome{Receipt: good[:50], Truth: "c", Source: "r1"}, ckdv1.OutcomeStatus_OUTCOME_STATUS_FORGED, "receipt"},
		{"another key", &ckdv1.Outcome{Receipt: foreign, Truth: "c", Source: "r1"}, ckdv1.OutcomeStatus_OUTCOME_STATUS_UNKNOWN_KEY, "receipt"},
		{"another policy", &ckdv1.Outcome{Receipt: other, Truth: "c", Source: "r1"}, ckdv1.OutcomeStatus_OUTCOME_STATUS_POLICY_UNKNOWN, "receipt"},
		{"no such class", &ckdv1.Outcome{Receipt: good, Truth: "z", Source: "r1"}, ckdv1.OutcomeStatus_OUTCOME_STATUS_INVALID, "truth"},
		{"no source", &ckdv1.Outcome{Receipt: good, Truth: "c"}, ckdv1.OutcomeStatus_OUTCOME_STATUS_INVALID, "source"},
		{"in the future", &ckdv1.Outcome{Receipt: good, Truth: "c", Source: "r1", Time: timestamppb.New(time.Now().Add(time.Hour))},
			ckdv1.OutcomeStatus_OUTCOME_STATUS_INVALID, "time"},
		{"no time", &ckdv1.Outcome{Receipt: good, Truth: "c", Source: "r1", Time: &timestamppb.Timestamp{Nanos: -1}},
			ckdv1.OutcomeStatus_OUTCOME_STATUS_INVALID, "time"},
		// Clients sent what their language has for no time, and it was taken for now: an old reading replaced its correction.
		{"the zero time", &ckdv1.Outcome{Receipt: good, Truth: "d", Source: "r1", Time: timestamppb.New(time.Time{})},
			ckdv1.OutcomeStatus_OUTCOME_STATUS_INVALID, "time"},
		{"a lost character", &ckdv1.Outcome{Receipt: good, Truth: "d", Source: "M\ufffdller"}, ckdv1.OutcomeStatus_OUTCOME_STATUS_INVALID, "source"},
		{"another kind", &ckdv1.Outcome{Receipt: good, Truth: "c", Source: "r1", Kind: 99}, ckdv1.OutcomeStatus_OUTCOME_STATUS_INVALID, "kind"},
		{"nothing", &ckdv1.Outcome{}, ckdv1.OutcomeStatus_OUTCOME_STATUS_FORGED, "receipt"},
	}
	var all []*ckdv1.Outcome
	for _, c := range tests {
		all = append(all, c.given)
	}
	answers := d.report(all...)
	for i, c := range tests {
		t.Run(c.name, func(t *testing.T) {
			a := answers[i]
			if a.GetStatus() != c.want {
				// One reading in twenty is read twice, whatever it says.
				if !(c.want == ckdv1.OutcomeStatus_OUTCOME_STATUS_COUNTED && a.GetStatus() == ckdv1.OutcomeStatus_OUTCOME_STATUS_SECOND_READ_WANTED) {
					t.Errorf("status %v, want %v (%v)", a.GetStatus(), c.want, a.GetError())
				}
			}
			if c.field == "" {
				if a.GetError() != nil || a.GetPredicted() != "c" || a.GetDecided() == nil {
					t.Errorf("answer %v, want what was decided, for confirmation", a)
				}
				return
			}
			st := status.FromProto(a.GetError())
			if want := fmt.Sprintf("outcomes[%d].%s", i, c.field); servertest.FaultOf(st.Err()).Field != want || !strings.HasPrefix(st.Message(), want+": ") || st.Code() == codes.OK {
				t.Errorf("status %v, want the field %s", st, want)
			}
			if a.GetPredicted() != "" {
				t.Error("an outcome that is not kept says what was predicted")
			}
		})
	}
	d.mu.Lock()
	defer d.mu.Unlock()
	if d.counts[ledger.Forged] != 3 || d.counts[ledger.Duplicate] != 1 {
		t.Errorf("counted as %v", d.counts)
	}
}

// TestMostOutcomes checks the two bounds of a call, each at the bound and one over. Somebody who sent 3,000
// outcomes of a month, as the only bound that was written down allowed, was refused by the other one.
func TestMostOutcomes(t *testing.T) {
	d := start(t, "")
	send := func(all []*ckdv1.Outcome) (answers int, refusal *status.Status) {
		reply, err := d.ReportOutcomes(t.Context(), &ckdv1.ReportOutcomesRequest{Outcomes: all}, grpc.MaxCallRecvMsgSize(64<<20))
		return len(reply.GetAnswers()), status.Convert(err)
	}
	const most = 10_000
	if n, refusal := send(make([]*ckdv1.Outcome, most)); n != most {
		t.Errorf("%d answers: %v", n, refusal)
	}
	if _, refusal := send(make([]*ckdv1.Outcome, most+1)); refusal.Code() != codes.InvalidArgument || servertest.FaultOf(refusal.Err()).Field != "outcomes" ||
		!strings.Contains(refusal.Message(), "10001 outcomes, expected at most 10000") {
		t.Errorf("one over: %v", refusal)
	}

	each := &ckdv1.Outcome{Receipt: d.receipt(receipt.CalledSafe), Truth: "pathologic", Source: "reader-7", Time: timestamppb.Now()}
	size := proto.Size(&ckdv1.ReportOutcomesRequest{Outcomes: []*ckdv1.Outcome{each}})
	if fit := 1 << 20 / size; fit < 4000 || fit > 5000 {
		t.Errorf("an outcome has %d bytes, so that %d fit into 1 MiB, where the contract says some 4,500", size, fit)
	}
	const limit = messageBytes
	all := slices.Repeat([]*ckdv1.Outcome{each}, limit/size-1)
	filled := proto.Clone(each).(*ckdv1.Outcome)
	all = append(all, filled)
	for proto.Size(&ckdv1.ReportOutcomesRequest{Outcomes: all}) < limit {
		filled.Source += "x"
	}
	if n, refusal := send(all); n != len(all) {
		t.Errorf("%d answers to %d bytes: %v", n, limit, refusal)
	}
	filled.Source += "x"
	if _, refusal := send(all); refusal.Code() != codes.ResourceExhausted {
		t.Errorf("one byte over: %v", refusal)
	}
}

// issue tells the ledger what was issued, an hour ago, with receipts for all.
func (d *daemon) issue(decisions uint64, audit *ckdv1.AuditSettings) *ckdv1.ReportIssuedResponse {
	d.Helper()
	reply, err := d.ReportIssued(d.Context(), &ckdv1.ReportIssuedRequest{
		Process: "p1", PolicyHashes: []string{d.name, strings.Repeat("ab", 32)},
		Counts: []*ckdv1.IssuedCount{{
			PolicyHash: d.name, ModelVersion: "model-7", Stratum: ckdv1.Stratum_STRATUM_CALLED_SAFE,
			Start: timestamppb.New(d.period), Decisions: decisions, Eligible: decisions, Receipts: decisions,
			Reviews: decisions, Propensity: float64(decisions), InversePropensity: float64(decisions), Audit: audit,
		}},
	})
	if err != nil {
		d.Fatal(err)
	}
	return reply
}

// TestReportIssued checks that counts are absolute, that unknown policies are asked for, and that states
// come back.
func TestReportIssued(t *testing.T) {
	d := start(t, "")
	d.issue(7, nil)
	reply := d.issue(10, nil)
	if diff := cmp.Diff([]string{strings.Repeat("ab", 32)}, reply.GetUnknownPolicies()); diff != "" {
		t.Errorf("unknown policies (-want +got):\n%s", diff)
	}
	d.report(&ckdv1.Outcome{Receipt: d.receipt(receipt.CalledSafe), Truth: "c", Source: "r1"})
	list, err := d.ListPromises(t.Context(), &ckdv1.ListPromisesRequest{Model: "triage"})
	if err != nil || len(list.GetPromises()) != 1 {
		t.Fatalf("%v, %v, want one promise", list, err)
	}
	p := list.GetPromises()[0]
	for _, s := range p.GetStrata() {
		if s.GetStratum() == ckdv1.Stratum_STRATUM_CALLED_SAFE && (s.GetDecisions() != 10 || s.GetReceipts() != 10) {
			t.Errorf("%v, want 10 decisions: counts are absolute", s)
		}
	}
	if p.GetPromise().GetPolicy().GetHash() != d.name || p.GetPromise().GetModelVersion() != "model-7" || p.GetPromise().GetStatement() == "" {
		t.Errorf("promise %v", p.GetPromise())
	}
	for name, r := range map[string]*ckdv1.ReportIssuedRequest{
		"process":          {},
		"policies[0]":      {Process: "p", Policies: [][]byte{[]byte("models: [{name: 1}]")}},
		"policy_hashes[0]": {Process: "p", PolicyHashes: []string{"xyz"}},
		"sealed[0].sealer": {Process: "p", Sealed: []*ckdv1.SealedCount{{Sealer: []byte("short")}}},
		"counts[0]":        {Process: "p", Counts: []*ckdv1.IssuedCount{{PolicyHash: d.name}}},
		"alarms[0].raised": {Process: "p", Alarms: []*ckdv1.Alarm{{Model: "triage"}}},
		"time":             {Process: "p", Time: &timestamppb.Timestamp{Nanos: -1}},
	} {
		if _, err := d.ReportIssued(t.Context(), r); status.Code(err) != codes.InvalidArgument || servertest.FaultOf(err).Field != name {
			t.Errorf("error %v, want one of %s", err, name)
		}
	}
}

// TestLedgerIsSomebody checks that answers name the ledger, that a daemon which remembers a later state of it
// shows that an older copy was put back, and that a replica's key and clock are known from its first tell.
func TestLedgerIsSomebody(t *testing.T) {
	d := start(t, "")
	first := d.issue(7, nil).GetLedger()
	later := d.issue(10, nil).GetLedger()
	if first.GetId() == "" || first.GetBranch() == "" || later.GetId() != first.GetId() || later.GetCommit() <= first.GetCommit() {
		t.Errorf("%v, then %v", first, later)
	}
	remembered := func(i *ckdv1.LedgerIdentity) *ckdv1.ReportIssuedResponse {
		t.Helper()
		reply, err := d.ReportIssued(t.Context(), &ckdv1.ReportIssuedRequest{
			Process: "p2", Remembered: i, Time: timestamppb.New(time.Now().Add(-time.Hour)), ReceiptKeys: append(d.keyIDs, "ffffff"),
		})
		if err != nil {
			t.Fatal(err)
		}
		return reply
	}
	if got := remembered(later).GetLedger(); got.GetGeneration() != later.GetGeneration() {
		t.Errorf("what is remembered is what the ledger is, but it became %v", got)
	}
	if got := remembered(&ckdv1.LedgerIdentity{Id: "another", Commit: 1e6}).GetLedger(); got.GetGeneration() != later.GetGeneration() {
		t.Errorf("a daemon remembers another ledger, and this one became %v", got)
	}
	lost := proto.CloneOf(later)
	lost.Commit += 1000
	reply := remembered(lost)
	if got := reply.GetLedger(); got.GetId() != first.GetId() || got.GetGeneration() <= later.GetGeneration() || got.GetBranch() == later.GetBranch() {
		t.Errorf("an older copy became %v", got)
	}
	if diff := cmp.Diff([]string{"ffffff"}, reply.GetUnknownReceiptKeys()); diff != "" {
		t.Errorf("keys that the ledger lacks (-want +got):\n%s", diff)
	}
	if age := time.Since(reply.GetTime().AsTime()); age < 0 || age > time.Minute || reply.GetNext().AsDuration() < time.Second {
		t.Errorf("time %v, next after %v", reply.GetTime(), reply.GetNext())
	}
	alarm := &ckdv1.Alarm{Model: "triage", Figure: ckdv1.CertifiedFigure_CERTIFIED_FIGURE_CRITICAL_MISS_RATE, Raised: timestamppb.New(time.Now().Add(-time.Hour).Truncate(time.Microsecond)), Ledger: first.GetId()}
	foreign := proto.CloneOf(alarm)
	foreign.Ledger, foreign.Figure = "another", ckdv1.CertifiedFigure_CERTIFIED_FIGURE_CRITICAL_MISS_RATE
	for range 2 { // once is enough
		if _, err := d.ReportIssued(t.Context(), &ckdv1.ReportIssuedRequest{Process: "p2", Remembered: reply.GetLedger(), Alarms: []*ckdv1.Alarm{alarm, foreign}}); err != nil {
			t.Fatal(err)
		}
	}
	if got := d.issue(10, nil).GetAlarms(); len(got) != 1 || got[0].GetFigure() != alarm.GetFigure() || !got[0].GetRaised().AsTime().Equal(alarm.GetRaised().AsTime()) || got[0].GetEnded() != nil {
		t.Errorf("another daemon is told of alarms %v, want the one that the copy lacked", got)
	}
	remembered(reply.GetLedger())
	replicas := d.ledger.Replicas()
	if len(replicas) != 1 || replicas[0].Process != "p2" || replicas[0].ClockAhead > -59*time.Minute || len(replicas[0].Keys) != 2 || replicas[0].Remembers.ID != first.GetId() {
		t.Errorf("replicas %+v", replicas)
	}
}

// TestStatesComeInParts checks that an answer is bounded, and that all policies are answered in turn.
func TestStatesComeInParts(t *testing.T) {
	d := start(t, "")
	var counts []*ckdv1.IssuedCount
	for v := range 700 {
		counts = append(counts, &ckdv1.IssuedCount{
			PolicyHash: d.name, ModelVersion: fmt.Sprintf("%03d%s", v, strings.Repeat("x", 240)), Stratum: ckdv1.Stratum_STRATUM_DEFERRED,
			Start: timestamppb.New(time.Now().Add(-time.Hour).Truncate(time.Second)), Decisions: 1,
		})
	}
	ask := []string{d.name, d.name, d.name, d.name}
	for len(counts) > 0 || len(ask) > 0 {
		part := min(len(counts), 400)
		r := &ckdv1.ReportIssuedRequest{Process: "p", Counts: counts[:part]}
		if counts = counts[part:]; len(r.Counts) == 0 {
			r.PolicyHashes = ask
		}
		reply, err := d.ReportIssued(t.Context(), r)
		if err != nil {
			t.Fatal(err)
		}
		if len(r.PolicyHashes) == 0 {
			continue
		}
		n := int(reply.GetAnsweredPolicies())
		if n < 1 || n > 3 || len(reply.GetPromises()) != 256*n || proto.Size(reply) > 512<<10 {
			t.Fatalf("%d policies answered, with %d states in %d bytes", n, len(reply.GetPromises()), proto.Size(reply))
		}
		ask = ask[n:]
	}
}

// TestClearAlarm checks that clearing needs a known promise, a name and a reason.
func TestClearAlarm(t *testing.T) {
	d := start(t, "")
	d.report(&ckdv1.Outcome{Receipt: d.receipt(receipt.CalledSafe), Truth: "c", Source: "r1"})
	d.issue(10, nil)
	for name, c := range map[string]struct {
		r    *ckdv1.ClearAlarmRequest
		code codes.Code
	}{
		"no hash":            {&ckdv1.ClearAlarmRequest{By: "ann", Reason: "x"}, codes.InvalidArgument},
		"nobody":             {&ckdv1.ClearAlarmRequest{PolicyHash: d.name, Reason: "x"}, codes.InvalidArgument},
		"no reason":          {&ckdv1.ClearAlarmRequest{PolicyHash: d.name, By: "ann"}, codes.InvalidArgument},
		"an unknown version": {&ckdv1.ClearAlarmRequest{PolicyHash: d.name, ModelVersion: "9", By: "ann", Reason: "x"}, codes.NotFound},
		"no alarm":           {&ckdv1.ClearAlarmRequest{PolicyHash: d.name, ModelVersion: "model-7", By: "ann", Reason: "x"}, codes.FailedPrecondition},
	} {
		if _, err := d.ClearAlarm(t.Context(), c.r); status.Code(err) != c.code {
			t.Errorf("%s: error %v, want %v", name, err, c.code)
		}
	}
}

// TestRaiseLine refuses a line without a person, and downwards.
func TestRaiseLine(t *testing.T) {
	d := start(t, "")
	d.report(&ckdv1.Outcome{Receipt: d.receipt(receipt.CalledSafe), Truth: "c", Source: "r1"})
	const rate = ckdv1.CertifiedFigure_CERTIFIED_FIGURE_CRITICAL_MISS_RATE
	model, _, _ := d.ledger.Policy(d.hash)
	states, err := d.ledger.States()
	if err != nil {
		t.Fatal(err)
	}
	line := states[0].Mature.MissRate.Line
	for name, c := range map[string]struct {
		r    *ckdv1.RaiseLineRequest
		code codes.Code
	}{
		"nobody":           {&ckdv1.RaiseLineRequest{Model: model, Figure: rate, Line: .9, Reason: "x"}, codes.InvalidArgument},
		"no reason":        {&ckdv1.RaiseLineRequest{Model: model, Figure: rate, Line: .9, By: "ann"}, codes.InvalidArgument},
		"no figure":        {&ckdv1.RaiseLineRequest{Model: model, Line: .9, By: "ann", Reason: "x"}, codes.InvalidArgument},
		"an unknown model": {&ckdv1.RaiseLineRequest{Model: "nobody's", Figure: rate, Line: .9, By: "ann", Reason: "x"}, codes.NotFound},
		"downwards":        {&ckdv1.RaiseLineRequest{Model: model, Figure: rate, Line: line / 2, By: "ann", Reason: "x"}, codes.FailedPrecondition},
		"upwards":          {&ckdv1.RaiseLineRequest{Model: model, Figure: rate, Line: (1 + line) / 2, By: "ann", Reason: "x"}, codes.OK},
	} {
		if _, err := d.RaiseLine(t.Context(), c.r); status.Code(err) != c.code {
			t.Errorf("%s: error %v, want %v", name, err, c.code)
		}
	}
}

// exported returns the lines of an export.
func (d *daemon) exported(ctx context.Context, r *ckdv1.ExportOutcomesRequest) (lines []string, err error) {
	stream, err := d.ExportOutcomes(ctx, r)
	for err == nil {
		var part *ckdv1.ExportOutcomesResponse
		if part, err = stream.Recv(); err == nil {
			lines = append(lines, part.GetLines()...)
		}
	}
	if errors.Is(err, io.EOF) {
		err = nil
	}
	return lines, err
}

// TestExportOutcomes checks that an export has every outcome once, in both forms, and the trail.
func TestExportOutcomes(t *testing.T) {
	d := start(t, "")
	const n = 1000
	var all []*ckdv1.Outcome
	for range n {
		all = append(all, &ckdv1.Outcome{Receipt: d.receipt(receipt.Deferred), Truth: "c", Source: "r1"})
	}
	d.report(all...)
	seen := map[string]bool{}
	lines, err := d.exported(t.Context(), &ckdv1.ExportOutcomesRequest{})
	if err != nil || len(lines) != n {
		t.Fatalf("%d lines, want %d; %v", len(lines), n, err)
	}
	for _, line := range lines {
		var row struct {
			ID string `json:"id"`
		}
		if err := json.Unmarshal([]byte(line), &row); err != nil || seen[row.ID] {
			t.Fatalf("%v, or twice: %s", err, line)
		}
		seen[row.ID] = true
	}
	table, err := d.exported(t.Context(), &ckdv1.ExportOutcomesRequest{Format: ckdv1.ExportFormat_EXPORT_FORMAT_CSV, Model: "triage"})
	if err != nil || len(table) != n+1 || !strings.Contains(table[0], "truth") {
		t.Errorf("%d lines of CSV, want %d and a header; %v", len(table), n, err)
	}
	none, err := d.exported(t.Context(), &ckdv1.ExportOutcomesRequest{Model: "another"})
	if err != nil || len(none) != 0 {
		t.Errorf("%d lines of another model; %v", len(none), err)
	}
	trail, err := d.exported(t.Context(), &ckdv1.ExportOutcomesRequest{Trail: true})
	if err != nil || len(trail) == 0 || !strings.Contains(trail[0], "policy_added") {
		t.Errorf("trail %q; %v", trail, err)
	}
}

// TestDeleteOutcomes checks that what is deleted is gone, and that the trail says who did it.
func TestDeleteOutcomes(t *testing.T) {
	d := start(t, "")
	d.issue(1, &ckdv1.AuditSettings{Rate: 0.5, M: 0.5})
	d.report(&ckdv1.Outcome{Receipt: d.receipt(receipt.CalledSafe), Truth: "c", Source: "r1"})
	for name, r := range map[string]*ckdv1.DeleteOutcomesRequest{
		"before": {Reason: "x", By: "ann", Before: timestamppb.New(time.Now().Add(time.Hour))},
		"reason": {By: "ann", Before: timestamppb.Now()},
		"by":     {Reason: "x", Before: timestamppb.Now()},
		// An empty request must not choose everything, nor must one choice hide another.
		"before ":  {Reason: "x", By: "ann"},
		"before  ": {Reason: "x", By: "ann", Before: timestamppb.Now(), Group: "g"},
		"receipts": {Reason: "x", By: "ann", Receipts: make([][]byte, 10_001)},
	} {
		name = strings.TrimSpace(name)
		if _, err := d.DeleteOutcomes(t.Context(), r); servertest.FaultOf(err).Field != name {
			t.Errorf("%s: error %v", name, err)
		}
	}
	if _, err := d.DeleteOutcomes(t.Context(), &ckdv1.DeleteOutcomesRequest{By: "ann", Reason: "kept for a year", Before: timestamppb.Now()}); err != nil {
		t.Fatal(err)
	}
	trail, err := d.exported(t.Context(), &ckdv1.ExportOutcomesRequest{Trail: true})
	if last := trail[len(trail)-1]; err != nil || !strings.Contains(last, "ann") || !strings.Contains(last, "kept for a year") {
		t.Errorf("trail ends with %s; %v", last, err)
	}
}

// TestRights checks that every RPC asks for its right, and that nobody learns anything of a model that
// they may not use.
func TestRights(t *testing.T) {
	sum := func(token string) string {
		h := sha256.Sum256([]byte(token))
		return hex.EncodeToString(h[:])
	}
	const reader, operator, sidecar, stranger = "reader-0123456789", "operator-0123456789", "sidecar-0123456789", "stranger-0123456789"
	d := start(t, `
identities:
- {name: reader, tokens: [{sha256: `+sum(reader)+`}], models: [triage], outcomes: true}
- {name: operator, tokens: [{sha256: `+sum(operator)+`}], models: ["*"], clear: true}
- {name: sidecar, tokens: [{sha256: `+sum(sidecar)+`}], models: [triage], issue: true}
- {name: stranger, tokens: [{sha256: `+sum(stranger)+`}], models: [other], outcomes: true, clear: true, issue: true}
`)
	ctx := t.Context()
	as := func(token string) {
		ctx = metadata.AppendToOutgoingContext(t.Context(), "authorization", "Bearer "+token)
	}
	errOf := func(_ any, err error) error { return err }
	calls := map[string]func() error{
		"report": func() error { return errOf(d.ReportOutcomes(ctx, &ckdv1.ReportOutcomesRequest{})) },
		"issue":  func() error { return errOf(d.ReportIssued(ctx, &ckdv1.ReportIssuedRequest{Process: "p"})) },
		"list":   func() error { return errOf(d.ListPromises(ctx, &ckdv1.ListPromisesRequest{})) },
		"clear": func() error {
			return errOf(d.ClearAlarm(ctx, &ckdv1.ClearAlarmRequest{PolicyHash: d.name, ModelVersion: "none", Reason: "x"}))
		},
		"delete": func() error {
			return errOf(d.DeleteOutcomes(ctx, &ckdv1.DeleteOutcomesRequest{Before: timestamppb.New(time.Unix(1, 0)), Reason: "x"}))
		},
		"export": func() error { return errOf(d.exported(ctx, &ckdv1.ExportOutcomesRequest{})) },
		"find":   func() error { return errOf(d.FindReviews(ctx, &ckdv1.FindReviewsRequest{})) },
		"import": func() error { return errOf(d.ImportOutcomes(ctx, &ckdv1.ImportOutcomesRequest{Reason: "x"})) },
	}
	for token, may := range map[string]string{
		reader: "report list export find", operator: "clear delete import", sidecar: "issue", stranger: "report list export find issue",
	} {
		as(token)
		for name, call := range calls {
			denied := status.Code(call()) == codes.PermissionDenied
			if allowed := strings.Contains(may, name); allowed == denied {
				t.Errorf("%s by %s: denied %v", name, token, denied)
			}
		}
	}
	as(stranger)
	reply, err := d.ReportOutcomes(ctx, &ckdv1.ReportOutcomesRequest{Outcomes: []*ckdv1.Outcome{{Receipt: d.receipt(receipt.CalledSafe), Truth: "c", Source: "s"}}})
	if a := reply.GetAnswers(); err != nil || a[0].GetStatus() != ckdv1.OutcomeStatus_OUTCOME_STATUS_NOT_ALLOWED || a[0].GetPredicted() != "" {
		t.Errorf("an outcome of a model that the identity may not use: %v, %v", a, err)
	}
	found, err := d.FindReviews(ctx, &ckdv1.FindReviewsRequest{Receipts: [][]byte{d.receipt(receipt.CalledSafe)}})
	if want := (&ckdv1.ReviewState{Status: ckdv1.ReviewStatus_REVIEW_STATUS_NOT_ALLOWED}); err != nil || !proto.Equal(found.GetStates()[0], want) {
		t.Errorf("a receipt of a model that the identity may not use: %v, %v", found, err)
	}
	if lines, err := d.exported(ctx, &ckdv1.ExportOutcomesRequest{Issued: true}); err != nil || len(lines) > 0 {
		t.Errorf("what was issued of other models: %v, %v", lines, err)
	}
	_, err = d.ReportIssued(ctx, &ckdv1.ReportIssuedRequest{Process: "p", Policies: [][]byte{[]byte(policyText)}})
	if status.Code(err) != codes.PermissionDenied {
		t.Errorf("a policy of a model that the identity may not use: %v", err)
	}
}

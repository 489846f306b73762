package server

import (
	"context"
	"errors"
	"fmt"
	"maps"
	"math"
	"slices"
	"strings"
	"testing"

	"github.com/google/go-cmp/cmp"
	"go.uber.org/zap"
	"go.uber.org/zap/zaptest/observer"
	"google.golang.org/grpc"
	"google.golang.org/grpc/codes"
	healthv1 "google.golang.org/grpc/health/grpc_health_v1"
	"google.golang.org/grpc/metadata"
	"google.golang.org/grpc/status"
	"google.golang.org/protobuf/proto"
	"google.golang.org/protobuf/testing/protocmp"

	"github.com/ckd-project/ckd/decomp"
	"github.com/ckd-project/ckd/internal/servertest"
	"github.com/ckd-project/ckd/policy"
	ckdv1 "github.com/ckd-project/ckd/proto/ckd/v1"
	"github.com/ckd-project/ckd/server/internal/wire"
)

// TestBadInput checks that what is wrong with one input fails it alone, and what the error names.
func TestBadInput(t *testing.T) {
	h := newHarness(t)
	h.withReceipts(t, testPolicies)
	passes := ctg(t)
	const class = "inputs[1].passes[7].classes[2]"
	inClass := func(value, expected string) map[string]string {
		return map[string]string{"pass": "7", "class": "2", "class_name": "pathologic", "value": value, "expected": expected}
	}
	row := func(v float32) func(*ckdv1.DecomposeRequest) { // pass 7 of input 1
		return func(r *ckdv1.DecomposeRequest) { copy(r.GetValues()[(7*3+1)*3:], []float32{0.25, 0, v}) }
	}
	context := func(x *ckdv1.InputContext) func(*ckdv1.DecomposeRequest) {
		return func(r *ckdv1.DecomposeRequest) {
			r.Receipts, r.Contexts = ckdv1.Receipts_RECEIPTS_ALL, []*ckdv1.InputContext{{}, x, {Group: "the last"}}
		}
	}
	nine := map[string]string{}
	for i := range 9 {
		nine[fmt.Sprint(i)] = ""
	}
	for name, c := range map[string]struct {
		change func(*ckdv1.DecomposeRequest)
		reason string
		field  string
		meta   map[string]string // beside input and row
	}{
		"NaN":         {row(float32(math.NaN())), "NOT_FINITE", class, inClass("NaN", "a finite number")},
		"infinite":    {row(float32(math.Inf(-1))), "NOT_FINITE", class, inClass("-Inf", "a finite number")},
		"negative":    {row(-0.5), "NEGATIVE", class, inClass("-0.5", "a probability in [0,1]")},
		"above one":   {row(1.5), "ABOVE_ONE", class, inClass("1.5", "a probability in [0,1]")},
		"sum":         {row(0.5), "SUM_NOT_ONE", "inputs[1].passes[7]", map[string]string{"pass": "7", "value": "0.75", "expected": "1 within 0.001"}},
		"long group":  {context(&ckdv1.InputContext{Group: strings.Repeat("g", 257)}), "WRONG_CONTEXT", "inputs[1].contexts[1].group", map[string]string{"value": "257", "expected": "at most 256"}},
		"many slices": {context(&ckdv1.InputContext{Slices: nine}), "WRONG_CONTEXT", "inputs[1].contexts[1].slices", map[string]string{"value": "more than 8", "expected": "at most 8"}},
	} {
		t.Run(name, func(t *testing.T) {
			request := tensor(passes, 3)
			request.InputIds = []string{"x", "y", "z"}
			c.change(request)
			for i, r := range h.decompose(t, request).GetResults() {
				if i != 1 {
					if r.GetDecomposition() == nil {
						t.Errorf("input %d: %v", i, r.GetError())
					}
					continue
				}
				got := expectError(t, r.GetError(), c.reason)
				want := map[string]string{"input": "y", "row": "1"}
				maps.Copy(want, c.meta)
				if diff := cmp.Diff(want, got.Metadata); diff != "" || got.Field != c.field {
					t.Errorf("field %s, want %s; metadata (-want, +got):\n%s", got.Field, c.field, diff)
				}
			}
		})
	}
}

// TestUnaryRefusals checks that the call is refused if the tensor cannot be read.
func TestUnaryRefusals(t *testing.T) {
	h := newHarness(t, func(o *Options) {
		o.Limits.InputsPerRequest, o.Limits.PassesPerInput, o.Limits.ReplyBytes = 100, 1000, 16<<10
	})
	passes := ctg(t)
	for name, c := range map[string]struct {
		change func(*ckdv1.DecomposeRequest)
		reason string
		text   string
	}{
		"unknown model":   {func(r *ckdv1.DecomposeRequest) { r.Model = "nobody" }, "UNKNOWN_MODEL", `no policy names the model "nobody", expected one of: ctg, `},
		"misspelt model":  {func(r *ckdv1.DecomposeRequest) { r.Model = "evidental" }, "UNKNOWN_MODEL", `, did you mean "evidential"?`},
		"no model":        {func(r *ckdv1.DecomposeRequest) { r.Model = "" }, "UNKNOWN_MODEL", `""`},
		"wrong classes":   {func(r *ckdv1.DecomposeRequest) { r.Classes = []string{"normal", "suspect", "other"} }, "WRONG_CLASSES", "classes[2]"},
		"wrong K":         {func(r *ckdv1.DecomposeRequest) { r.Classes = []string{"normal"} }, "WRONG_CLASSES", "3 classes"},
		"wrong kind":      {func(r *ckdv1.DecomposeRequest) { r.Kind = ckdv1.Kind_KIND_DIRICHLET }, "WRONG_KIND", "KIND_DIRICHLET"},
		"posterior":       {func(r *ckdv1.DecomposeRequest) { r.Posterior = strings.Repeat("x", 129) }, "WRONG_POSTERIOR", "posterior: got"},
		"unknown detail":  {func(r *ckdv1.DecomposeRequest) { r.Detail = 9 }, "WRONG_ENUM", "detail"},
		"no layout":       {func(r *ckdv1.DecomposeRequest) { r.Layout = 0 }, "WRONG_LAYOUT", "LAYOUT_UNSPECIFIED"},
		"unknown layout":  {func(r *ckdv1.DecomposeRequest) { r.Layout = 9 }, "WRONG_LAYOUT", "layout: got 9"},
		"one value short": {func(r *ckdv1.DecomposeRequest) { r.Values = r.Values[1:] }, "WRONG_LENGTH", "179 values, expected 30 passes x 2 inputs x 3 classes"},
		"overflow":        {func(r *ckdv1.DecomposeRequest) { r.Passes, r.Inputs = 1000, 100 }, "WRONG_LENGTH", "1000 passes"},
		"odd bytes":       {func(r *ckdv1.DecomposeRequest) { r.Values, r.ValuesLe = nil, make([]byte, 7) }, "WRONG_LENGTH", "values_le: got 7, expected a multiple of 4 bytes"},
		"two encodings":   {func(r *ckdv1.DecomposeRequest) { r.ValuesLe = make([]byte, 4) }, "TWO_ENCODINGS", "values and values_le"},
		"too few passes":  {func(r *ckdv1.DecomposeRequest) { r.Passes, r.Values = 3, r.Values[:18] }, "TOO_FEW_PASSES", "3 passes, expected at least 4"},
		"one pass":        {func(r *ckdv1.DecomposeRequest) { r.Passes, r.Values = 1, r.Values[:6] }, "TOO_FEW_PASSES", "expected at least"},
		"too many passes": {func(r *ckdv1.DecomposeRequest) { r.Passes = 1001 }, "TOO_MANY_PASSES", "limit of 1000"},
		"too many inputs": {func(r *ckdv1.DecomposeRequest) { r.Inputs = 101 }, "TOO_MANY_INPUTS", "limit of 100"},
		"receipts":        {func(r *ckdv1.DecomposeRequest) { r.Receipts = 1 }, "RECEIPTS_UNAVAILABLE", "without --receipt-keys"},
		"which receipts":  {func(r *ckdv1.DecomposeRequest) { r.Receipts = 3 }, "WRONG_ENUM", "receipts: got 3, expected a value of the enum"},
		"long version":    {func(r *ckdv1.DecomposeRequest) { r.ModelVersion = strings.Repeat("v", 129) }, "WRONG_CONTEXT", "129 bytes of model_version, over the limit of 128"},
		"few contexts":    {func(r *ckdv1.DecomposeRequest) { r.Contexts = []*ckdv1.InputContext{{}} }, "WRONG_CONTEXT", "contexts: got 1, expected none or 2"},
		"large reply":     {func(r *ckdv1.DecomposeRequest) { r.Inputs, r.Detail = 50, ckdv1.Detail_DETAIL_FULL }, "REPLY_TOO_LARGE", "50 inputs with DETAIL_FULL would be a reply of"},
		"other classes":   {func(r *ckdv1.DecomposeRequest) { r.Values = make([]float32, 30*2*4) }, "WRONG_LENGTH", `found 4 classes, expected 3, as the policy of model "ctg" has`},
		"ids missing":     {func(r *ckdv1.DecomposeRequest) { r.InputIds = []string{"a"} }, "WRONG_ID_COUNT", "input_ids: got 1, expected none or 2"},
	} {
		t.Run(name, func(t *testing.T) {
			request := tensor(passes, 2)
			c.change(request)
			_, err := h.client.Decompose(t.Context(), request)
			if expectFault(t, err, c.reason); !strings.Contains(err.Error(), c.text) {
				t.Errorf("got %v, want %q", err, c.text)
			}
		})
	}
	h.eventually(t, 0, "ckd_decisions_total")
	h.eventually(t, 0, "ckd_passes_total")
	h.eventually(t, 3*2, "ckd_inputs_rejected_total", "model", "", "reason", "unknown_model")
}

// TestLongTexts checks that errors clip what the client sent: they travel in headers, which have a
// limit.
func TestLongTexts(t *testing.T) {
	h := newHarness(t)
	long := strings.Repeat("\u00e9", 1<<20)
	for name, r := range map[string]*ckdv1.DecomposeRequest{
		"model":   {Model: long},
		"classes": {Model: "ctg", Classes: []string{"normal", long, "pathologic"}},
	} {
		t.Run(name, func(t *testing.T) {
			_, err := h.client.Decompose(t.Context(), r)
			if st := status.Convert(err); err == nil || proto.Size(st.Proto()) > 2048 {
				t.Errorf("%v with %d bytes", st.Code(), proto.Size(st.Proto()))
			}
		})
	}
	for _, e := range h.logs.All() {
		if n := len(fmt.Sprint(e.ContextMap())); n > 2048 {
			t.Errorf("a line of the log has %d bytes", n)
		}
	}
}

// TestNotLogits checks that probabilities sent as logits fail, with all passes at fault.
func TestNotLogits(t *testing.T) {
	results := newHarness(t).decompose(t, &ckdv1.DecomposeRequest{
		Model: "logits", Layout: ckdv1.Layout_LAYOUT_NSK, Passes: 2, Inputs: 1, Values: []float32{1, 0, 0, 0.5, 0.25, 0.25},
	}).GetResults()
	if e := expectError(t, results[0].GetError(), "NOT_LOGITS"); e.Field != "inputs[0].passes" {
		t.Errorf("%+v", e)
	}
}

// TestModels checks what clients are told about the policies.
func TestModels(t *testing.T) {
	h := newHarness(t)
	list, err := h.client.ListModels(t.Context(), &ckdv1.ListModelsRequest{})
	if err != nil {
		t.Fatal(err)
	}
	var names []string
	for _, m := range list.GetModels() {
		names = append(names, m.GetPolicy().GetModel())
	}
	if want := []string{"ctg", "evidential", "logits", "open-ended"}; !slices.Equal(names, want) {
		t.Errorf("models %v, want %v", names, want)
	}
	want := &ckdv1.Model{
		Policy: list.GetModels()[0].GetPolicy(), Classes: []string{"normal", "suspect", "pathologic"},
		Critical: []uint32{1, 2}, Safe: []uint32{0}, Kind: ckdv1.Kind_KIND_PROBABILITIES, FewestPasses: 4, ExpectedPasses: 30,
		SumTolerance: 1e-3, Variance: ckdv1.Variance_VARIANCE_SAMPLE, ReliabilityThreshold: 0.3,
		Gate: ckdv1.Gate_GATE_ANY_CRITICAL, Scope: ckdv1.Scope_SCOPE_ALL,
		Primary:  &ckdv1.ScoreRule{Score: ckdv1.Score_SCORE_C_CRIT_MAX, Threshold: proto.Float64(0.02)},
		Fallback: &ckdv1.ScoreRule{Score: ckdv1.Score_SCORE_CBEC, Threshold: proto.Float64(0.003)},
		Limits:   DefaultLimits().message(leastMessage),
	}
	for way, got := range map[string]*ckdv1.Model{"ListModels": list.GetModels()[0], "GetModel": h.model(t, "ctg")} {
		if diff := cmp.Diff(want, got, protocmp.Transform()); diff != "" {
			t.Errorf("%s (-want, +got):\n%s", way, diff)
		}
	}
	_, err = h.client.GetModel(t.Context(), &ckdv1.GetModelRequest{Model: "nobody"})
	expectFault(t, err, "UNKNOWN_MODEL")
}

// TestModelTells checks what clients are told of the parts that a policy need not have.
func TestModelTells(t *testing.T) {
	h := newHarness(t)
	const more = `threshold: 0.003}
    guard: {score: mi, threshold: 0.3}
    audit: {rate: 0.1}
    calibrated: {risk: {called_safe: {intercept: 0, slope: 0.5}, called_critical: {intercept: 0, slope: 2}, prevalence: 0.2, quantiles: [QUANTILES 1]}}`
	p := *stoppingPolicy(t, 0, -1, 1, "threshold: 0.003}", strings.Replace(more, "QUANTILES", strings.Repeat("0.25, ", policy.Levels-1), 1))
	p.EarlyStopping.MeanPasses, p.EarlyStopping.Order = 6.5, policy.MembersOrder
	p.EarlyStopping.Certificate.CriticalReleased, p.EarlyStopping.Certificate.Groups = &policy.ReleasedShare{AtMost: 0.1}, 240
	h.put(t, &p)
	promise := &ckdv1.Promise{Policy: &ckdv1.PolicyRef{Model: "ctg", Hash: h.model(t, "ctg").GetPolicy().GetHash()}, Verdict: ckdv1.Verdict_VERDICT_VIOLATED}
	h.server.SetLedgerState(LedgerState{Heard: true, Promises: []*ckdv1.Promise{promise, {Policy: &ckdv1.PolicyRef{Hash: "another"}}}})
	want := &ckdv1.Model{
		Settle: &ckdv1.Settle{
			Passes: 30, Fewest: 4, Ordered: true, Disagreement: 0.01, Confidence: 0.9, Released: 0.05, CriticalReleased: proto.Float64(0.1), MeanPasses: 6.5, Groups: 240,
		},
		Guard:    &ckdv1.ScoreRule{Score: ckdv1.Score_SCORE_MI, Threshold: proto.Float64(0.3)},
		Promises: []*ckdv1.Promise{promise}, RiskPrevalence: proto.Float64(0.2),
	}
	for _, keys := range []bool{false, true} {
		if keys { // without them nothing is audited
			h.server.SetReceiptKeys(receiptKeys(t, 1))
			want.AuditRate = proto.Float64(0.1)
		}
		m := h.model(t, "ctg")
		got := &ckdv1.Model{Settle: m.GetSettle(), Guard: m.GetGuard(), Promises: m.GetPromises(), AuditRate: m.AuditRate, RiskPrevalence: m.RiskPrevalence}
		if diff := cmp.Diff(want, got, protocmp.Transform()); diff != "" {
			t.Errorf("(-want, +got):\n%s", diff)
		}
	}
}

// TestHealth checks the health of the daemon and of each model.
func TestHealth(t *testing.T) {
	h := newHarness(t)
	client := healthv1.NewHealthClient(h.conn)
	check := func(service string) healthv1.HealthCheckResponse_ServingStatus {
		r, err := client.Check(t.Context(), &healthv1.HealthCheckRequest{Service: service})
		if err != nil {
			t.Fatalf("%q: %v", service, err)
		}
		return r.GetStatus()
	}
	for _, service := range []string{"", "ctg", "evidential"} {
		if got := check(service); got != healthv1.HealthCheckResponse_SERVING {
			t.Errorf("%q is %v", service, got)
		}
	}
	if _, err := client.Check(t.Context(), &healthv1.HealthCheckRequest{Service: "nobody"}); status.Code(err) != codes.NotFound {
		t.Errorf("an unknown model: %v", err)
	}
	h.server.Drain()
	if got := check(""); got != healthv1.HealthCheckResponse_NOT_SERVING || h.server.Serving() {
		t.Errorf("while stopping: %v", got)
	}
}

// TestRequestID checks that the request id of the client is returned and logged, and that a call
// without one gets a new one.
func TestRequestID(t *testing.T) {
	h := newHarness(t)
	requestIDOf := func(ctx context.Context) string {
		t.Helper()
		var header metadata.MD
		if _, err := h.client.ListModels(ctx, &ckdv1.ListModelsRequest{}, grpc.Header(&header)); err != nil {
			t.Fatal(err)
		}
		return strings.Join(header.Get(requestIDKey), ", ")
	}
	if got := requestIDOf(metadata.AppendToOutgoingContext(t.Context(), requestIDKey, "my-request")); got != "my-request" {
		t.Errorf("request id %q", got)
	}
	if h.logs.FilterField(zap.String("request_id", "my-request")).Len() == 0 {
		t.Errorf("no line of the log has the request id: %v", h.logs.All())
	}
	if got := requestIDOf(t.Context()); len(got) != 16 {
		t.Errorf("a new request id %q", got)
	}
}

// TestTraceID checks that log lines of a call have the trace that it is part of.
func TestTraceID(t *testing.T) {
	const trace = "4bf92f3577b34da6a3ce929d0e0e4736"
	for name, c := range map[string]struct {
		sent string
		want any
	}{
		"valid":    {"00-" + trace + "-00f067aa0ba902b7-01", trace},
		"zeros":    {"00-" + strings.Repeat("0", 32) + "-00f067aa0ba902b7-01", nil},
		"no hex":   {"00-" + strings.Repeat("x", 32) + "-00f067aa0ba902b7-01", nil},
		"junk":     {"junk", nil},
		"empty":    {"", nil},
		"too long": {strings.Repeat("-", 500), nil},
	} {
		t.Run(name, func(t *testing.T) {
			h := newHarness(t)
			ctx := metadata.AppendToOutgoingContext(t.Context(), "traceparent", c.sent)
			if _, err := h.client.ListModels(ctx, &ckdv1.ListModelsRequest{}); err != nil {
				t.Fatal(err)
			}
			lines := h.logs.FilterMessage("finished call").All()
			if len(lines) != 1 || lines[0].ContextMap()["trace_id"] != c.want {
				t.Errorf("logged %v, want the trace %v", lines, c.want)
			}
		})
	}
}

// TestPanicIsInternal checks that a panic becomes Internal with a fixed text, and is logged with
// its stack.
func TestPanicIsInternal(t *testing.T) {
	h := newHarness(t)
	broken := models{"broken": &model{ref: &ckdv1.PolicyRef{}, standing: &standing{}}} // without an engine
	h.server.catalog.current.Store(&broken)
	_, err := h.client.Decompose(t.Context(), &ckdv1.DecomposeRequest{Model: "broken"})
	if expectFault(t, err, "INTERNAL"); strings.Contains(err.Error(), "nil pointer") {
		t.Errorf("got %v", err)
	}
	h.expectPanic(t, "Decompose")
}

// expectPanic checks that a panic was logged with a stack that names a function.
func (h *harness) expectPanic(t *testing.T, function string) {
	t.Helper()
	lines := h.logs.FilterMessage("panic in a call").All()
	if len(lines) != 1 || !strings.Contains(fmt.Sprint(lines[0].ContextMap()["stack"]), function) {
		t.Errorf("logged %v, want one panic with the stack of %s", lines, function)
	}
}

// TestEnumsAreMapped checks that every word of policies and decisions has the enum value of its
// name, and that scores, actions, gates and reasons have no other values.
func TestEnumsAreMapped(t *testing.T) {
	if n := len(ckdv1.Score_name) - 1; len(policy.RuleScores()) != n || decomp.NumScores+1 != n {
		t.Errorf("%d scores on the wire, %d in policies, %d computed", n, len(policy.RuleScores()), decomp.NumScores)
	}
	said := map[string]bool{}
	for _, value := range []fmt.Stringer{
		kindMessage(policy.Probabilities), kindMessage(policy.Logits), kindMessage(policy.Dirichlet),
		enum[ckdv1.Gate](ckdv1.Gate_value, "GATE_", policy.AnyCritical),
		enum[ckdv1.Gate](ckdv1.Gate_value, "GATE_", policy.Always), enum[ckdv1.Gate](ckdv1.Gate_value, "GATE_", policy.Never),
		enum[ckdv1.Scope](ckdv1.Scope_value, "SCOPE_", policy.AllInputs), enum[ckdv1.Scope](ckdv1.Scope_value, "SCOPE_", policy.PredictedSafe),
		enum[ckdv1.Variance](ckdv1.Variance_value, "VARIANCE_", policy.Sample), enum[ckdv1.Variance](ckdv1.Variance_value, "VARIANCE_", policy.Population),
	} {
		said[value.String()] = true
	}
	expect := func(got fmt.Stringer, prefix, word string) {
		t.Helper()
		if want := prefix + strings.ToUpper(strings.ReplaceAll(word, "-", "_")); got.String() != want {
			t.Errorf("%s is %s, want %s", word, got, want)
		}
		said[got.String()] = true
	}
	for _, s := range policy.RuleScores() {
		expect(scoreMessage(s), "SCORE_", string(s))
		if _, ok := decomp.ParseScore(string(s)); ok == (s == policy.RiskScore) {
			t.Errorf("score %s: computed by decomp %v", s, ok)
		}
	}
	for a, got := range actionMessages[1:] {
		expect(got, "ACTION_", policy.Action(1+a).String())
	}
	for g, got := range gateMessages[1:] {
		expect(got, "GATE_OUTCOME_", policy.GateOutcome(1+g).String())
	}
	for r, got := range reasonMessages[1:] {
		expect(got, "DECISION_REASON_", policy.Reason(1+r).String())
	}
	for _, names := range []map[int32]string{
		ckdv1.Kind_name, ckdv1.Gate_name, ckdv1.Scope_name, ckdv1.Variance_name, ckdv1.Score_name,
		ckdv1.Action_name, ckdv1.GateOutcome_name, ckdv1.DecisionReason_name,
	} {
		for number, name := range names {
			if said[name] != (number != 0) {
				t.Errorf("%s: said %v", name, said[name])
			}
		}
	}
}

// TestUnaryCancelled checks that nothing is computed for a caller that has gone.
func TestUnaryCancelled(t *testing.T) {
	s, registry, _ := newServer(t)
	ctx, cancel := context.WithCancel(t.Context())
	cancel()
	raw, err := proto.Marshal(tensor(ctg(t), 10))
	if err != nil {
		t.Fatal(err)
	}
	var in wire.Incoming
	if err := (wire.Codec{}).Unmarshal(segments(raw, len(raw)/2), &in); err != nil {
		t.Fatal(err)
	}
	defer in.Free()
	if _, err := s.decider.decompose(ctx, &in); !errors.Is(err, context.Canceled) {
		t.Errorf("a cancelled call: %v", err)
	}
	servertest.Eventually(t, registry, 10, "ckd_inputs_abandoned_total", "model", "ctg")
}

// TestUnaryCancelledIsSaid expects a call whose caller has gone to end as such, in metrics and log too.
func TestUnaryCancelledIsSaid(t *testing.T) {
	core, logs := observer.New(zap.DebugLevel)
	ends := &callEnds{log: zap.New(core), refusals: &Refusals{}}
	ctx := context.WithValue(t.Context(), callKey{}, &callInfo{})
	_, err := ends.unary(ctx, nil, nil, func(context.Context, any) (any, error) { return nil, context.Canceled })
	if status.Code(err) != codes.Canceled {
		t.Errorf("the call ends with %v", err)
	}
	if lines := logs.FilterMessage("finished call").FilterFieldKey("grpc.code").All(); len(lines) != 1 || lines[0].ContextMap()["grpc.code"] != "Canceled" {
		t.Errorf("logged %v", logs.All())
	}
}

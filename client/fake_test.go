package client_test

import (
	"context"
	"encoding/binary"
	"errors"
	"fmt"
	"io"
	"math"
	"net"
	"path/filepath"
	"slices"
	"strings"
	"sync"
	"sync/atomic"
	"testing"
	"time"

	"go.uber.org/goleak"
	"google.golang.org/genproto/googleapis/rpc/errdetails"
	"google.golang.org/grpc"
	"google.golang.org/grpc/codes"
	"google.golang.org/grpc/keepalive"
	"google.golang.org/grpc/status"
	"google.golang.org/grpc/test/bufconn"
	"google.golang.org/protobuf/proto"
	"google.golang.org/protobuf/types/known/durationpb"

	"github.com/ckd-project/ckd/client"
	ckdv1 "github.com/ckd-project/ckd/proto/ckd/v1"
)

func TestMain(m *testing.M) { goleak.VerifyTestMain(m) }

const model = "fetal-health"

// fake implements a daemon that keeps the contract, unless a test makes it misbehave. Its policy
// defers inputs whose mean for class 1 is above 0.2.
type fake struct {
	ckdv1.UnimplementedUncertaintyServiceServer

	info *ckdv1.StreamInfo
	// deliver sends an answer. Its error ends the stream.
	deliver func(send send, answer *reply) error
	// at is called between any two messages of a stream. Its error ends the stream.
	at func(moment) error
	// terms changes what the first reply states.
	terms func(*ckdv1.StreamInfo)
	// drains reports, when a group is opened, whether its stream drains from now on.
	drains func() bool
	// crowds reports whether an input that is opened finds no room; room is then its answer.
	crowds func(id string) bool
	room   *status.Status
	// early reports, before the last pass, whether an input is decided on the passes it has. nil
	// stands for a daemon or policy without an early-stopping rule.
	early func(*fakeInput) bool
	// finished is called for every input that has an outcome.
	finished func(*fakeInput)
	// unary changes the reply of Decompose.
	unary func(*ckdv1.DecomposeResponse) (*ckdv1.DecomposeResponse, error)
	// report answers outcomes; nil stands for a daemon without a ledger.
	report func(*ckdv1.ReportOutcomesRequest) (*ckdv1.ReportOutcomesResponse, error)
	// wrap changes the client's end of a connection.
	wrap func(net.Conn) net.Conn

	server  *grpc.Server
	stop    func()
	address string         // where listen serves
	client  *client.Client // made by dial

	streams, blocks atomic.Int64
	passes          atomic.Int64 // passes received for inputs
	late            atomic.Int64 // those for inputs that were already answered

	mu     sync.Mutex
	faults []string // breaches of the contract by the client
	calls  []int    // number of inputs of each unary call
	conns  []net.Conn
}

type (
	reply = ckdv1.DecomposeStreamResponse
	send  = func(*reply) error
)

var (
	errEnd  = errors.New("end the stream without a status")
	errKill = errors.New("end all connections")
)

// moment names a point between two messages of a stream.
type moment int

const (
	begun    moment = iota // nothing was received
	headed                 // the header was received, nothing was sent
	welcomed               // the first reply was sent
	received               // a block was received and not yet read
	decided                // the block was read, its answer not yet sent
	answered               // the answer was sent
	closing                // the half-close was received, nothing is finished yet
)

// newFake returns a daemon with three classes that expects the given number of passes, or any
// number for 0.
func newFake(passes uint32) *fake {
	return &fake{
		room:    crowded,
		deliver: func(send send, answer *reply) error { return send(answer) },
		info: &ckdv1.StreamInfo{
			Classes:        []string{"normal", "suspect", "pathological"},
			Kind:           ckdv1.Kind_KIND_PROBABILITIES,
			ExpectedPasses: passes,
			FewestPasses:   2,
			Limits:         &ckdv1.Limits{OpenInputsPerStream: 64, OpenGroupsPerStream: 8, MessageBytes: 4 << 20},
		},
	}
}

// serve serves on a listener until stop.
func (f *fake) serve(listener net.Listener, opts ...grpc.ServerOption) {
	f.server = grpc.NewServer(append(opts,
		grpc.MaxRecvMsgSize(64<<20), // the fake checks the limit itself
		grpc.KeepaliveEnforcementPolicy(keepalive.EnforcementPolicy{MinTime: 10 * time.Second}))...)
	ckdv1.RegisterUncertaintyServiceServer(f.server, f)
	if f.report != nil {
		ckdv1.RegisterOutcomeServiceServer(f.server, ledger{fake: f})
	}
	var wg sync.WaitGroup
	wg.Go(func() { _ = f.server.Serve(recordingListener{listener, f}) })
	f.stop = sync.OnceFunc(func() {
		f.server.Stop()
		wg.Wait()
	})
}

// start serves in memory. It returns a client and a function that stops both.
func (f *fake) start(opts ...client.Option) (*client.Client, func()) {
	listener := bufconn.Listen(1 << 16)
	f.serve(listener)
	dial := grpc.WithContextDialer(func(ctx context.Context, _ string) (net.Conn, error) {
		conn, err := listener.DialContext(ctx)
		if err == nil && f.wrap != nil {
			conn = f.wrap(conn)
		}
		return conn, err
	})
	c, err := client.Dial("passthrough:///fake", append(opts, client.WithInsecure(), client.WithDialOptions(dial))...)
	if err != nil {
		panic(err)
	}
	return c, func() {
		_ = c.Close()
		f.stop()
	}
}

// dial starts the fake and returns a client. The end of the test stops both.
func (f *fake) dial(t tester, opts ...client.Option) *client.Client {
	t.Helper()
	c, stop := f.start(opts...)
	f.client = c
	t.Cleanup(func() {
		stop()
		f.mu.Lock()
		defer f.mu.Unlock()
		for _, fault := range f.faults {
			t.Errorf("the client broke the contract: %s", fault)
		}
	})
	return c
}

// session starts the fake and opens a session on it. The end of the test stops both.
func (f *fake) session(t tester, config client.SessionConfig) *client.Session {
	t.Helper()
	return newSession(t, f.dial(t), config)
}

// listen serves a fake that expects two passes on a real socket.
func listen(t *testing.T, network string, opts ...grpc.ServerOption) *fake {
	t.Helper()
	address := "127.0.0.1:0"
	if network == "unix" {
		address = filepath.Join(t.TempDir(), "s")
	}
	listener, err := net.Listen(network, address)
	ok(t, err)
	f := newFake(2)
	f.address = listener.Addr().String()
	f.serve(listener, opts...)
	t.Cleanup(f.stop)
	return f
}

// recordingListener keeps the connections that it accepts.
type recordingListener struct {
	net.Listener
	fake *fake
}

func (l recordingListener) Accept() (net.Conn, error) {
	conn, err := l.Listener.Accept()
	if err == nil {
		l.fake.mu.Lock()
		l.fake.conns = append(l.fake.conns, conn)
		l.fake.mu.Unlock()
	}
	return conn, err
}

// kill closes all connections, as if the daemon died.
func (f *fake) kill() {
	f.mu.Lock()
	defer f.mu.Unlock()
	for _, conn := range f.conns {
		_ = conn.Close()
	}
	f.conns = nil
}

// hold makes the daemon keep its answers back until the channel is closed.
func (f *fake) hold() chan struct{} {
	slow := make(chan struct{})
	f.deliver = func(send send, answer *reply) error {
		<-slow
		return send(answer)
	}
	return slow
}

// outOfReach makes the daemon refuse all streams from a call of gone until one of back.
func (f *fake) outOfReach(refusal error) (gone func(), tried *atomic.Int64, back func()) {
	var away atomic.Bool
	tried = new(atomic.Int64)
	f.at = func(moment) error {
		if !away.Load() {
			return nil
		}
		tried.Add(1)
		return refusal
	}
	return func() { away.Store(true); f.kill() }, tried, func() { away.Store(false) }
}

// reach lets the test act at a moment.
func (f *fake) reach(m moment) error {
	if f.at == nil {
		return nil
	}
	err := f.at(m)
	if errors.Is(err, errKill) {
		f.kill()
	}
	return err
}

func (f *fake) fault(format string, args ...any) {
	f.mu.Lock()
	defer f.mu.Unlock()
	f.faults = append(f.faults, fmt.Sprintf(format, args...))
}

func (f *fake) DecomposeStream(stream ckdv1.UncertaintyService_DecomposeStreamServer) error {
	f.streams.Add(1)
	if err := f.stream(stream); !errors.Is(err, errEnd) {
		return err
	}
	return nil
}

func (f *fake) stream(stream ckdv1.UncertaintyService_DecomposeStreamServer) error {
	if err := f.reach(begun); err != nil {
		return err
	}
	first, err := stream.Recv()
	if err != nil {
		return err
	}
	header := first.GetHeader()
	if header == nil {
		return fail(codes.InvalidArgument, ckdv1.ErrorReason_ERROR_REASON_HEADER_MISSING, "no header", nil).Err()
	}
	if header.GetModel() != model {
		return fail(codes.NotFound, ckdv1.ErrorReason_ERROR_REASON_UNKNOWN_MODEL,
			fmt.Sprintf("no policy for model %q", header.GetModel()), nil).Err()
	}
	if err := f.reach(headed); err != nil {
		return err
	}
	info := proto.CloneOf(f.info)
	if header.GetPasses() > 0 {
		info.ExpectedPasses = header.GetPasses()
	}
	info.Acknowledges = header.GetAcceptSettled()
	info.Settles = header.GetAcceptSettled() && f.early != nil
	if f.terms != nil {
		f.terms(info)
	}
	st := &fakeStream{
		fake: f, info: info, detail: header.GetDetail(), receipts: receiptsOf(header.GetReceipts(), header.GetModelVersion()),
		groups: map[uint64][]*fakeInput{},
	}
	send := func(r *reply) error {
		st.openInputs -= len(r.GetResults())
		return stream.Send(r)
	}
	if err := send(&reply{Info: info}); err != nil {
		return err
	}
	if err := f.reach(welcomed); err != nil {
		return err
	}
	for {
		request, err := stream.Recv()
		var results []*ckdv1.Result
		switch {
		case errors.Is(err, io.EOF):
			if err := f.reach(closing); err != nil {
				return err
			}
			results = st.finishAll()
		case err != nil:
			return err
		default:
			if n := proto.Size(request); n > int(info.GetLimits().GetMessageBytes()) {
				f.fault("a message of %d bytes, limit %d", n, info.GetLimits().GetMessageBytes())
			}
			if err := f.reach(received); err != nil {
				return err
			}
			results = st.block(request.GetBlock())
			st.blocks++
		}
		if len(results) > 0 || err == nil && info.GetAcknowledges() {
			if err := f.reach(decided); err != nil {
				return err
			}
			answer := &reply{Policies: []*ckdv1.PolicyRef{fakePolicy}, Results: results}
			if info.GetAcknowledges() {
				answer.Blocks = st.blocks
			}
			if err := f.deliver(send, answer); err != nil {
				return err
			}
			if err := f.reach(answered); err != nil {
				return err
			}
		}
		if err != nil {
			return nil
		}
		if st.draining && st.openInputs == 0 {
			return draining.Err()
		}
	}
}

var crowded = retryIn(time.Millisecond, full)

// full refuses an input for good; crowded refuses it for now.
var full = fail(codes.ResourceExhausted, ckdv1.ErrorReason_ERROR_REASON_OUT_OF_MEMORY_BUDGET, "no room for the input", nil)

// retryIn adds to a status the delay after which to try again.
func retryIn(delay time.Duration, st *status.Status) *status.Status {
	st, err := st.WithDetails(&errdetails.RetryInfo{RetryDelay: durationpb.New(delay)})
	if err != nil {
		panic(err)
	}
	return st
}

var draining = fail(codes.Unavailable, ckdv1.ErrorReason_ERROR_REASON_DRAINING, "the daemon is stopping", nil)

var fakePolicy = &ckdv1.PolicyRef{Model: model, Version: "1", Hash: "abc"}

// fakeStream holds the state of one stream.
type fakeStream struct {
	fake       *fake
	info       *ckdv1.StreamInfo
	detail     ckdv1.Detail
	receipts   func(*fakeInput, *ckdv1.Decomposition)
	groups     map[uint64][]*fakeInput
	last       uint64
	openInputs int // inputs without an answer
	openGroups int
	blocks     uint64
	draining   bool
}

type fakeInput struct {
	id     string
	group  uint64
	row    int
	passes [][]float32
	done   bool

	context  *ckdv1.InputContext
	receipts func(*fakeInput, *ckdv1.Decomposition)
}

// receiptsOf returns what adds receipts to results: they say in plain text what they are about.
func receiptsOf(asked ckdv1.Receipts, version string) func(*fakeInput, *ckdv1.Decomposition) {
	return func(in *fakeInput, d *ckdv1.Decomposition) {
		if d.Review = d.GetDecision().GetAction() == ckdv1.Action_ACTION_DEFER && asked != 0; d.Review || asked == client.ReceiptsAll {
			d.Receipt = fmt.Appendf(nil, "%s %s %s %v", version, in.id, in.context.GetGroup(), in.context.GetSlices())
		}
	}
}

// contextOf returns the context of an input in a message.
func contextOf(contexts []*ckdv1.InputContext, i int) *ckdv1.InputContext {
	if len(contexts) == 0 {
		return nil
	}
	return contexts[i]
}

func (st *fakeStream) block(b *ckdv1.Block) []*ckdv1.Result {
	st.fake.blocks.Add(1)
	var results []*ckdv1.Result
	if len(b.GetInputIds()) > 0 {
		if b.GetGroup() <= st.last {
			st.fake.fault("group %d opened after group %d", b.GetGroup(), st.last)
		}
		st.last = b.GetGroup()
		st.draining = st.draining || st.fake.drains != nil && st.fake.drains()
		if st.draining {
			st.openInputs += len(b.GetInputIds())
			return st.refuse(b)
		}
		for i, id := range b.GetInputIds() {
			in := &fakeInput{id: id, group: b.GetGroup(), row: i, context: contextOf(b.GetContexts(), i), receipts: st.receipts}
			if st.fake.crowds != nil && st.fake.crowds(id) {
				in.done = true
				results = append(results, in.refused(st.fake.room))
			}
			st.groups[b.GetGroup()] = append(st.groups[b.GetGroup()], in)
		}
		if len(results) < len(b.GetInputIds()) {
			st.openGroups++
		}
		st.openInputs += len(b.GetInputIds())
		if most := int(st.info.GetLimits().GetOpenInputsPerStream()); st.openInputs > most {
			st.fake.fault("%d inputs open, limit %d", st.openInputs, most)
		}
		if most := int(st.info.GetLimits().GetOpenGroupsPerStream()); most > 0 && st.openGroups > most {
			st.fake.fault("%d groups open, limit %d", st.openGroups, most)
		}
	}
	group := st.groups[b.GetGroup()]
	if group == nil && st.draining {
		return nil // late: the opening of its group was refused
	}
	if group == nil {
		st.fake.fault("group %d is unknown", b.GetGroup())
		return nil
	}
	named := group
	if len(b.GetRows()) > 0 {
		named = nil
		for _, r := range b.GetRows() {
			named = append(named, group[r])
		}
	}
	values, k := floats(b.GetValuesLe()), len(st.info.GetClasses())
	if len(values) != int(b.GetPasses())*len(named)*k {
		st.fake.fault("%d values for %d passes of %d rows", len(values), b.GetPasses(), len(named))
		return results
	}
	for i, in := range named {
		for p := range int(b.GetPasses()) {
			at := (p*len(named) + i) * k
			st.fake.passes.Add(1)
			if in.done {
				st.fake.late.Add(1)
				continue
			}
			in.passes = append(in.passes, values[at:at+k])
			if bad := notFinite(in); bad != nil {
				results = append(results, st.finish(in, bad))
			} else if len(in.passes) == int(st.info.GetExpectedPasses()) {
				results = append(results, st.finish(in, outcome(in, st.detail, st.info)))
			} else if st.info.GetSettles() && len(in.passes) >= 2 && st.fake.early(in) {
				r := outcome(in, st.detail, st.info)
				r.GetDecomposition().Settled = true
				results = append(results, st.finish(in, r))
			}
		}
		if b.GetFinal() && !in.done {
			results = append(results, st.finish(in, outcome(in, st.detail, st.info)))
		}
	}
	return results
}

// refuse answers the inputs of a group that was opened while the stream drains.
func (st *fakeStream) refuse(b *ckdv1.Block) []*ckdv1.Result {
	var results []*ckdv1.Result
	for i, id := range b.GetInputIds() {
		in := &fakeInput{id: id, group: b.GetGroup(), row: i}
		results = append(results, in.refused(draining))
	}
	return results
}

// refused returns the answer to an input that is not admitted.
func (in *fakeInput) refused(why *status.Status) *ckdv1.Result {
	return &ckdv1.Result{
		InputId: in.id, Group: in.group, Row: uint32(in.row), Outcome: &ckdv1.Result_Error{Error: why.Proto()},
	}
}

// finish marks an input as done and returns its result.
func (st *fakeStream) finish(in *fakeInput, r *ckdv1.Result) *ckdv1.Result {
	in.done = true
	if st.fake.finished != nil {
		st.fake.finished(in)
	}
	if !slices.ContainsFunc(st.groups[in.group], func(in *fakeInput) bool { return !in.done }) {
		st.openGroups--
	}
	return r
}

func (st *fakeStream) finishAll() []*ckdv1.Result {
	var results []*ckdv1.Result
	for _, group := range st.groups {
		for _, in := range group {
			if !in.done {
				results = append(results, st.finish(in, outcome(in, st.detail, st.info)))
			}
		}
	}
	return results
}

// outcome returns the result of an input that has its passes.
func outcome(in *fakeInput, detail ckdv1.Detail, info *ckdv1.StreamInfo) *ckdv1.Result {
	r := &ckdv1.Result{InputId: in.id, Group: in.group, Row: uint32(in.row)}
	if len(in.passes) < int(info.GetFewestPasses()) {
		r.Outcome = &ckdv1.Result_Error{Error: fail(codes.InvalidArgument, ckdv1.ErrorReason_ERROR_REASON_TOO_FEW_PASSES,
			fmt.Sprintf("%d passes, expected at least %d", len(in.passes), info.GetFewestPasses()), nil).Proto()}
		return r
	}
	d := &ckdv1.Decomposition{Passes: uint32(len(in.passes)), Decision: &ckdv1.Decision{
		Action: ckdv1.Action_ACTION_RETAIN, Reason: ckdv1.DecisionReason_DECISION_REASON_UNDER_THRESHOLD,
	}}
	mean := means(in.passes)
	if mean[1] > 0.2 {
		d.Decision.Action, d.Decision.Reason = ckdv1.Action_ACTION_DEFER, ckdv1.DecisionReason_DECISION_REASON_ABOVE_THRESHOLD
	}
	if detail >= ckdv1.Detail_DETAIL_VECTORS {
		d.Mean = mean
	}
	in.receipts(in, d)
	r.Outcome = &ckdv1.Result_Decomposition{Decomposition: d}
	return r
}

// notFinite returns an error if the input's last pass has a NaN, else nil.
func notFinite(in *fakeInput) *ckdv1.Result {
	pass := len(in.passes) - 1
	class := slices.IndexFunc(in.passes[pass], func(v float32) bool { return v != v })
	if class < 0 {
		return nil
	}
	st := fail(codes.InvalidArgument, ckdv1.ErrorReason_ERROR_REASON_NOT_FINITE,
		fmt.Sprintf("pass %d: class %d is NaN, expected a finite value", pass, class),
		map[string]string{"row": fmt.Sprint(in.row), "pass": fmt.Sprint(pass), "class": fmt.Sprint(class), "value": "NaN", "expected": "a finite value"})
	return &ckdv1.Result{InputId: in.id, Group: in.group, Row: uint32(in.row), Outcome: &ckdv1.Result_Error{Error: st.Proto()}}
}

func (f *fake) Decompose(_ context.Context, r *ckdv1.DecomposeRequest) (*ckdv1.DecomposeResponse, error) {
	f.mu.Lock()
	f.calls = append(f.calls, int(r.GetInputs()))
	f.mu.Unlock()
	f.checkSize(r)
	values, s, n := floats(r.GetValuesLe()), int(r.GetPasses()), int(r.GetInputs())
	k := len(values) / s / n
	reply := &ckdv1.DecomposeResponse{Policy: fakePolicy}
	for i := range n {
		in := &fakeInput{row: i, context: contextOf(r.GetContexts(), i), receipts: receiptsOf(r.GetReceipts(), r.GetModelVersion())}
		if len(r.GetInputIds()) > 0 {
			in.id = r.GetInputIds()[i]
		}
		for p := range s {
			at := (p*n + i) * k
			in.passes = append(in.passes, values[at:at+k])
		}
		reply.Results = append(reply.Results, outcome(in, r.GetDetail(), f.info))
	}
	if f.unary != nil {
		return f.unary(reply)
	}
	return reply, nil
}

// checkSize notes the fault of a request that is larger than the limit.
func (f *fake) checkSize(r proto.Message) {
	if n, limit := proto.Size(r), int(f.info.GetLimits().GetMessageBytes()); n > limit {
		f.fault("a request of %d bytes, limit %d", n, limit)
	}
}

func (f *fake) ListModels(context.Context, *ckdv1.ListModelsRequest) (*ckdv1.ListModelsResponse, error) {
	return &ckdv1.ListModelsResponse{Models: []*ckdv1.Model{{Policy: fakePolicy, Limits: f.info.GetLimits()}}}, nil
}

func (f *fake) GetModel(_ context.Context, r *ckdv1.GetModelRequest) (*ckdv1.GetModelResponse, error) {
	if r.GetModel() != model {
		return nil, fail(codes.NotFound, ckdv1.ErrorReason_ERROR_REASON_UNKNOWN_MODEL, "no such model", nil).Err()
	}
	return &ckdv1.GetModelResponse{Model: &ckdv1.Model{Policy: fakePolicy, Limits: f.info.GetLimits()}}, nil
}

// fail returns a status with the daemon's details.
func fail(code codes.Code, reason ckdv1.ErrorReason, message string, fields map[string]string) *status.Status {
	st, err := status.New(code, message).WithDetails(&errdetails.ErrorInfo{
		Reason: strings.TrimPrefix(reason.String(), "ERROR_REASON_"), Domain: "ckd.v1", Metadata: fields,
	})
	if err != nil {
		panic(err)
	}
	return st
}

func floats(le []byte) []float32 {
	values := make([]float32, len(le)/4)
	for i := range values {
		values[i] = math.Float32frombits(binary.LittleEndian.Uint32(le[4*i:]))
	}
	return values
}

func means(passes [][]float32) []float64 {
	mean := make([]float64, len(passes[0]))
	for _, p := range passes {
		for c, v := range p {
			mean[c] += float64(v)
		}
	}
	for c := range mean {
		mean[c] /= float64(len(passes))
	}
	return mean
}

package server

import (
	"context"
	"encoding/binary"
	"fmt"
	"math"
	"math/rand/v2"
	"slices"
	"strings"
	"testing"
	"time"

	"go.uber.org/zap"
	"google.golang.org/grpc/mem"
	"google.golang.org/protobuf/proto"

	"github.com/ckd-project/ckd/internal/monitor/fullpass"
	"github.com/ckd-project/ckd/policy"
	"github.com/ckd-project/ckd/policy/earlystop"
	ckdv1 "github.com/ckd-project/ckd/proto/ckd/v1"
	"github.com/ckd-project/ckd/server/internal/wire"
)

// load is a stream with groups, which it handles one after the other, as its exchange does, again
// and again.
type load struct {
	stream  *stream
	groups  []loadGroup
	next    uint64 // number of the last group
	in      wire.Incoming
	request wire.StreamRequest
}

// loadGroup holds the messages of a group.
type loadGroup struct {
	messages [][]byte
	buffers  []mem.BufferSlice // the same, as the transport has them
	numberAt []int             // where each has the number of its group, in 5 bytes
}

// shape is the shape of the groups of a load: passes, inputs and classes.
type shape struct{ s, n, k int }

// many returns of how many groups a megabyte of values is.
func (s shape) many() int { return max(1, 1<<18/(s.s*s.n*s.k)) }

// newLoad returns a load of one group in a number of blocks, under a policy, of a client that sends
// this header.
func newLoad(t testing.TB, p *policy.Policy, header *ckdv1.StreamHeader, of shape, blocks int) *load {
	t.Helper()
	server := newLoadServer(t, p, zap.NewNop())
	model, err := server.streams.readHeader(t.Context(), header)
	if err != nil {
		t.Fatal(err)
	}
	if takesReceipts(header) {
		server.SetReceiptKeys(receiptKeys(t, 1))
	}
	i, err := server.receipts.newIssuer(model, header.GetReceipts(), header.GetModelVersion())
	if err != nil {
		t.Fatal(err)
	}
	ctx := context.WithValue(context.Background(), callKey{}, &callInfo{account: server.budget.open(nil).account(nil)})
	l := &load{stream: newStream(server.decider, model, header, &scriptedStream{ctx: ctx}, i), next: 1 << 28}
	l.add(t, of, blocks)
	return l
}

// takesReceipts reports whether a client takes receipts, and then it says more of its inputs.
func takesReceipts(header *ckdv1.StreamHeader) bool {
	return header.GetReceipts() != ckdv1.Receipts_RECEIPTS_UNSPECIFIED
}

// add adds a group with values of its own. With few groups a processor would learn by heart which way
// each input goes.
func (l *load) add(t testing.TB, of shape, blocks int) {
	t.Helper()
	s, n, k := of.s, of.n, of.k
	values, g := softmaxes(uint64(1+len(l.groups)), s, n, k), loadGroup{}
	for b := range blocks {
		from, to := s*b/blocks*n*k*4, s*(b+1)/blocks*n*k*4
		next := &ckdv1.Block{Group: l.next, Passes: uint32(s*(b+1)/blocks - s*b/blocks), ValuesLe: values[from:to]}
		if b == 0 {
			next.InputIds = make([]string, n)
			for i := range next.InputIds {
				next.InputIds[i] = fmt.Sprintf("input-%02d", i)
				if takesReceipts(l.stream.header) {
					next.Contexts = append(next.Contexts, &ckdv1.InputContext{Group: "patient 7", Slices: map[string]string{"site": "north"}})
				}
			}
		}
		raw, err := proto.Marshal(block(next))
		if err != nil {
			t.Fatal(err)
		}
		var data mem.BufferSlice
		for at := 0; at < len(raw); at += 16 << 10 { // in pieces of the size of HTTP/2 frames
			data = append(data, mem.SliceBuffer(raw[at:min(at+16<<10, len(raw))]))
		}
		g.messages, g.buffers = append(g.messages, raw), append(g.buffers, data)
		g.numberAt = append(g.numberAt, strings.Index(string(raw), string(binary.AppendUvarint([]byte{8}, l.next)))+1)
	}
	l.groups = append(l.groups, g)
}

// loadPolicy returns the policy of a load.
func loadPolicy(t testing.TB, s, k int) *policy.Policy {
	t.Helper()
	names := make([]string, k)
	for i := range names {
		names[i] = fmt.Sprintf("c%d", i)
	}
	critical := strings.Join(names[:min(k/2, 10)], ", ")
	return parsePolicies(t, fmt.Sprintf(`
models:
  - name: m
    classes: [%s]
    critical: [%s]
    passes: {fewest: 4, expected: %d}
    primary: {score: c_crit_max, threshold: 0.02}
    fallback: {score: cbec, threshold: 0.003}
`, strings.Join(names, ", "), critical, s)).All()[0]
}

// newLoadServer returns a server of one policy that writes to a log.
func newLoadServer(t testing.TB, p *policy.Policy, log *zap.Logger) *Server {
	t.Helper()
	s, _, _ := newServer(t, func(o *Options) { o.Logger = log })
	if err := s.SetPolicies(parsePolicies(t, string(p.Marshal()))); err != nil {
		t.Fatal(err)
	}
	return s
}

// softmaxes draws passes [S][N][K], little-endian.
func softmaxes(seed uint64, s, n, k int) []byte {
	random := rand.New(rand.NewPCG(seed, uint64(k)))
	centre := make([]float64, n*k)
	for i := range centre {
		centre[i] = 2 * random.NormFloat64()
	}
	var raw []byte
	row := make([]float64, k)
	for range s {
		for i := range n {
			sum := 0.0
			for j := range row {
				row[j] = math.Exp(centre[i*k+j] + random.NormFloat64()/2)
				sum += row[j]
			}
			for _, v := range row {
				raw = binary.LittleEndian.AppendUint32(raw, math.Float32bits(float32(v/sum)))
			}
		}
	}
	return raw
}

// group handles the messages of the next group, and returns the number of results.
func (l *load) group(t testing.TB) (results int) {
	l.next++
	g := &l.groups[l.next%uint64(len(l.groups))]
	for i, raw := range g.messages {
		binary.PutUvarint(raw[g.numberAt[i]:], l.next)
		r := l.handle(t, g.buffers[i])
		l.in.Free()
		l.request.Free()
		out, ok := r.message.(*wire.Outgoing)
		if !ok {
			continue
		}
		results += out.Results()
		out.ChargeTo(l.stream.sender.account, r.cost)
		sent, err := (wire.Codec{}).Marshal(out)
		if err != nil {
			t.Fatal(err)
		}
		sent.Free()
		l.stream.sender.spare.Store(out)
		l.stream.sender.unsent.Add(-1)
	}
	return results
}

// handle handles a message and returns the reply. The caller frees the message.
func (l *load) handle(t testing.TB, message mem.BufferSlice) reply {
	if err := (wire.Codec{}).Unmarshal(message, &l.in); err != nil {
		t.Fatal(err)
	}
	if err := l.request.Decode(&l.in); err != nil {
		t.Fatal(err)
	}
	return l.stream.receive(&l.request)
}

var loadShapes = []shape{{30, 1, 4}, {30, 64, 4}, {50, 64, 10}, {30, 8, 100}, {30, 1, 1000}}

// race reports whether the race detector is on. It makes sync.Pool forget things on purpose.
var race bool

// expectNoAllocation checks that handling a group of n inputs allocates nothing.
func (l *load) expectNoAllocation(t *testing.T, n int, what ...any) {
	t.Helper()
	if race {
		t.Skip("pools forget under the race detector")
	}
	for range 3 {
		if got := l.group(t); got != n {
			t.Fatalf("%d results of %d inputs", got, n)
		}
	}
	if got := testing.AllocsPerRun(20, func() { l.group(t) }); got != 0 {
		t.Errorf("%v: %v allocations a group", what, got)
	}
}

// TestHandlerAllocatesNothing checks that handling groups allocates nothing, in any shape and
// detail.
func TestHandlerAllocatesNothing(t *testing.T) {
	for _, shape := range loadShapes {
		for _, blocks := range []int{1, shape.s} {
			for _, detail := range []ckdv1.Detail{ckdv1.Detail_DETAIL_DECISION, ckdv1.Detail_DETAIL_VECTORS, ckdv1.Detail_DETAIL_FULL} {
				l := newLoad(t, loadPolicy(t, shape.s, shape.k), &ckdv1.StreamHeader{Model: "m", Detail: detail}, shape, blocks)
				l.expectNoAllocation(t, shape.n, shape, blocks, detail)
			}
		}
	}
}

// audited returns the policy of a load with audits of 2%.
func audited(t testing.TB, s, k int) *policy.Policy {
	p := loadPolicy(t, s, k)
	p.Audit = &policy.Audit{Rate: 0.02, M: 0.5, PredictedCritical: policy.CriticalAudited, OnBreach: policy.AlarmOnBreach, Due: policy.DefaultDue,
		RunLength: policy.DefaultRunLength, ReaderSensitivity: 1, Slices: []policy.Slice{{Name: "site", Values: []string{"north"}}}}
	return p
}

// TestReceiptsAllocateNothing checks that drawing, sealing and counting allocate nothing.
func TestReceiptsAllocateNothing(t *testing.T) {
	for _, shape := range loadShapes {
		for _, blocks := range []int{1, shape.s} {
			for _, which := range []ckdv1.Receipts{ckdv1.Receipts_RECEIPTS_REVIEWED, ckdv1.Receipts_RECEIPTS_ALL} {
				l := newLoad(t, audited(t, shape.s, shape.k), &ckdv1.StreamHeader{Model: "m", Receipts: which, ModelVersion: "v7"}, shape, blocks)
				l.expectNoAllocation(t, shape.n, shape, blocks, which)
			}
		}
	}
}

// BenchmarkReceipts measures what receipts add to a group of 64 inputs that comes in one block. An
// input in 50 is audited where it says so, and deferred ones are reviewed.
func BenchmarkReceipts(b *testing.B) {
	for _, classes := range []int{4, 26} {
		for _, which := range []ckdv1.Receipts{ckdv1.Receipts_RECEIPTS_UNSPECIFIED, ckdv1.Receipts_RECEIPTS_REVIEWED, ckdv1.Receipts_RECEIPTS_ALL} {
			b.Run(fmt.Sprintf("%d classes/%v", classes, which), func(b *testing.B) {
				const inputs = 64
				l := newLoad(b, audited(b, 30, classes), &ckdv1.StreamHeader{Model: "m", Receipts: which}, shape{30, inputs, classes}, 1)
				l.group(b)
				b.ReportAllocs()
				for b.Loop() {
					l.group(b)
				}
				b.ReportMetric(float64(b.Elapsed().Nanoseconds())/float64(b.N)/inputs, "ns/input")
			})
		}
	}
}

// neverStopping returns the policy of a load with a rule that stops no input, and looks at each as
// often as learned rules look at real inputs that they do not stop: 10 times in 30 passes.
func neverStopping(t testing.TB, s, k int, gate policy.Gate) *policy.Policy {
	t.Helper()
	p := *loadPolicy(t, s, k)
	p.Gate = gate
	var terms []earlystop.Term
	for _, of := range earlystop.StatisticNames {
		terms = append(terms, earlystop.Term{Of: of, Weight: 1e-9})
	}
	form := &earlystop.Form{Retain: terms, Defer: terms, Boundaries: []earlystop.Boundary{
		{Passes: p.FewestPasses, Retain: -3, Defer: -3}, {Passes: s - 1, Retain: -3, Defer: -3},
	}}
	p.EarlyStopping = certified(&p, form.Rule(s, 8))
	return &p
}

// TestEarlyStoppingAllocatesNothing checks that following inputs and asking the rule allocates
// nothing.
func TestEarlyStoppingAllocatesNothing(t *testing.T) {
	const s, n, k = 30, 64, 4
	l := newLoad(t, neverStopping(t, s, k, policy.AnyCritical), &ckdv1.StreamHeader{Model: "m", AcceptSettled: true}, shape{s, n, k}, s)
	l.expectNoAllocation(t, n)
	if l.stream.bound.lean.Stopper().Checks().Verdicts[fullpass.SameRetain] == 0 {
		t.Fatal("no input is checked")
	}
}

// BenchmarkEarlyStopping measures what it costs, between a message of the transport and its reply,
// that inputs may stop early, where none does: groups of 64 inputs with 30 passes, in a block each.
// Streams with and without take turns, so that the ratio holds at one time.
func BenchmarkEarlyStopping(b *testing.B) {
	const s, n = 30, 64
	for _, k := range []int{3, 10, 100} {
		for _, gate := range []policy.Gate{policy.Never, policy.AnyCritical} {
			b.Run(fmt.Sprintf("K%d/%s", k, gate), func(b *testing.B) {
				p := neverStopping(b, s, k, gate)
				loads := []*load{
					newLoad(b, p, &ckdv1.StreamHeader{Model: "m"}, shape{s, n, k}, s),
					newLoad(b, p, &ckdv1.StreamHeader{Model: "m", AcceptSettled: true}, shape{s, n, k}, s),
				}
				var spent [2]time.Duration
				for b.Loop() {
					for i, l := range loads {
						start := time.Now()
						l.group(b)
						spent[i] += time.Since(start)
					}
				}
				b.ReportMetric(0, "ns/op")
				for i, name := range []string{"all", "settling"} {
					b.ReportMetric(float64(spent[i].Nanoseconds())/float64(b.N*s*n), name+"-ns/pass")
				}
				b.ReportMetric(float64(spent[1])/float64(spent[0]), "ratio")
			})
		}
	}
}

// risky returns the policy of a load with a risk model and a guard.
func risky(t testing.TB, s, k int) *policy.Policy {
	t.Helper()
	d := loadPolicy(t, s, k).Draft()
	d.Risk = &policy.Risk{
		CalledSafe:     policy.Logistic{Intercept: -1, Slope: 0.9},
		CalledCritical: policy.Logistic{Slope: 1}, Quantiles: make([]float64, policy.Levels), Prevalence: 0.1,
	}
	for i := range d.Risk.Quantiles {
		d.Risk.Quantiles[i] = float64(i) / (policy.Levels - 1)
	}
	d.Guard = &policy.Guard{Score: policy.MI, Threshold: 0.3}
	d.Calibration = &policy.Calibration{Recording: policy.Recording{Inputs: 500, CriticalInputs: 50}}
	p, err := policy.Build(d)
	if err != nil {
		t.Fatal(err)
	}
	return p
}

// TestRiskAllocatesNothing checks that risk, priority and the guard allocate nothing.
func TestRiskAllocatesNothing(t *testing.T) {
	for _, detail := range []ckdv1.Detail{ckdv1.Detail_DETAIL_DECISION, ckdv1.Detail_DETAIL_FULL} {
		l := newLoad(t, risky(t, 30, 10), &ckdv1.StreamHeader{Model: "m", Detail: detail}, shape{30, 64, 10}, 30)
		l.expectNoAllocation(t, 64, detail)
	}
}

// BenchmarkRisk measures what risk, priority and a guard cost, between a message of the transport and
// its reply: in groups with 30 passes, all in one block and in a block each, and in unary calls without
// interceptors. Loads with and without take turns of 64 inputs or more, so that the ratio holds at one
// time.
func BenchmarkRisk(b *testing.B) {
	const s = 30
	for _, shape := range []shape{{s, 1, 4}, {s, 64, 2}, {s, 64, 4}, {s, 64, 10}, {s, 8, 100}, {s, 1, 1000}} {
		policies := []*policy.Policy{loadPolicy(b, s, shape.k), risky(b, s, shape.k)}
		name := fmt.Sprintf("S%dK%dN%d", s, shape.k, shape.n)
		for _, blocks := range []int{1, s} {
			b.Run(fmt.Sprintf("%s/blocks=%d", name, blocks), func(b *testing.B) {
				var turns []func()
				for _, p := range policies {
					l := newLoad(b, p, &ckdv1.StreamHeader{Model: "m"}, shape, blocks)
					for range shape.many() - 1 {
						l.add(b, shape, blocks)
					}
					turns = append(turns, func() { l.group(b) })
				}
				compareRisk(b, shape.n, turns)
			})
		}
		b.Run(name+"/unary", func(b *testing.B) {
			var turns []func()
			for _, p := range policies {
				l := newUnaryLoad(b, p, shape, shape.many())
				l.chain = nil
				turns = append(turns, func() { l.call(b, true) })
			}
			compareRisk(b, shape.n, turns)
		})
	}
}

// compareRisk measures two functions that decide on n inputs, the second with risk, in turns.
func compareRisk(b *testing.B, n int, turns []func()) {
	var spent [2][]time.Duration
	for b.Loop() {
		for i, turn := range turns {
			start := time.Now()
			for inputs := 0; inputs < 64; inputs += n {
				turn()
			}
			spent[i] = append(spent[i], time.Since(start))
		}
	}
	b.ReportMetric(0, "ns/op")
	var median [2]float64 // other processes disturb few turns much
	for i, what := range []string{"without", "with"} {
		slices.Sort(spent[i])
		median[i] = float64(spent[i][len(spent[i])/2])
		b.ReportMetric(median[i]/64, what+"-ns/input")
	}
	b.ReportMetric(median[1]/median[0], "ratio")
}

// BenchmarkHandler measures everything between a message of the transport and its reply, for one
// group.
func BenchmarkHandler(b *testing.B) {
	for _, shape := range loadShapes {
		s, n, k := shape.s, shape.n, shape.k
		for _, blocks := range []int{1, s} {
			b.Run(fmt.Sprintf("S%dK%dN%d/blocks=%d", s, k, n, blocks), func(b *testing.B) {
				l := newLoad(b, loadPolicy(b, s, k), &ckdv1.StreamHeader{Model: "m"}, shape, blocks)
				l.group(b)
				b.ReportAllocs()
				for b.Loop() {
					l.group(b)
				}
				b.ReportMetric(float64(b.Elapsed().Nanoseconds())/float64(b.N)/float64(s*n*k), "ns/value")
			})
		}
	}
}

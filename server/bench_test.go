package server

import (
	"context"
	"encoding/binary"
	"fmt"
	"math"
	"math/rand/v2"
	"strings"
	"testing"
	"time"

	"github.com/prometheus/client_golang/prometheus"
	"go.uber.org/zap"
	"google.golang.org/grpc/mem"
	"google.golang.org/protobuf/proto"

	"github.com/ckd-project/ckd/internal/wire"
	"github.com/ckd-project/ckd/metrics"
	"github.com/ckd-project/ckd/policy"
	ckdv1 "github.com/ckd-project/ckd/proto/ckd/v1"
	"github.com/ckd-project/ckd/settle"
)

// load is one stream's messages, dealt with as the exchange of the stream does.
type load struct {
	session  *session
	messages [][]byte          // that are sent again and again
	buffers  []mem.BufferSlice // they are, as the transport has them
	groupAt  []int             // where each has its group's number, in 5 bytes
	next     uint64            // group
	in       wire.Incoming
	request  wire.StreamRequest
}

// newLoad is groups of N inputs with S passes, in so many blocks each.
func newLoad(t testing.TB, s, n, k, blocks int, ids bool, detail ckdv1.Detail) *load {
	t.Helper()
	return newLoadOf(t, loadPolicy(t, s, k), &ckdv1.StreamHeader{Model: "m", Detail: detail}, s, n, k, blocks, ids)
}

// loadPolicy is the policy of a load.
func loadPolicy(t testing.TB, s, k int) *policy.Policy {
	t.Helper()
	names := make([]string, k)
	for i := range names {
		names[i] = fmt.Sprintf("c%d", i)
	}
	critical := strings.Join(names[:min(k/2, 10)], ", ")
	set, err := policy.Parse(policy.File{Name: "bench.yaml", Data: fmt.Appendf(nil, `
models:
  - name: m
    classes: [%s]
    critical: [%s]
    passes: {fewest: 4, expected: %d}
    primary: {score: c_crit_max, threshold: 0.02}
    fallback: {score: cbec, threshold: 0.003}
`, strings.Join(names, ", "), critical, s)})
	if err != nil {
		t.Fatal(err)
	}
	return set.All()[0]
}

// newLoadOf is a load under a policy, of a client that sends a header.
func newLoadOf(t testing.TB, p *policy.Policy, header *ckdv1.StreamHeader, s, n, k, blocks int, ids bool) *load {
	t.Helper()
	set, err := policy.Parse(policy.File{Name: "load.yaml", Data: p.Marshal()})
	if err != nil {
		t.Fatal(err)
	}
	registry := prometheus.NewRegistry()
	m, err := metrics.New(registry, metrics.Options{RejectReasons: RejectReasons()})
	if err != nil {
		t.Fatal(err)
	}
	server, err := New(Options{Limits: DefaultLimits(), Logger: zap.NewNop(), Metrics: m, Registry: registry})
	if err != nil {
		t.Fatal(err)
	}
	if err := server.SetPolicies(set); err != nil {
		t.Fatal(err)
	}
	model, err := server.readHeader(t.Context(), header)
	if err != nil {
		t.Fatal(err)
	}
	l := &load{session: newSession(server, model, header, &scriptedStream{ctx: context.Background()}), next: 1 << 28}
	values := softmaxes(s, n, k)
	for b := range blocks {
		from, to := s*b/blocks*n*k*4, s*(b+1)/blocks*n*k*4
		block := &ckdv1.Block{Group: l.next, Passes: uint32(s*(b+1)/blocks - s*b/blocks), ValuesLe: values[from:to]}
		if b == 0 {
			block.InputIds = make([]string, n)
			for i := range block.InputIds {
				if ids {
					block.InputIds[i] = fmt.Sprintf("input-%02d", i)
				}
			}
		}
		raw, err := proto.Marshal(&ckdv1.DecomposeStreamRequest{Message: &ckdv1.DecomposeStreamRequest_Block{Block: block}})
		if err != nil {
			t.Fatal(err)
		}
		var data mem.BufferSlice
		for at := 0; at < len(raw); at += 16 << 10 { // as HTTP/2 frames come
			data = append(data, mem.SliceBuffer(raw[at:min(at+16<<10, len(raw))]))
		}
		l.messages, l.buffers = append(l.messages, raw), append(l.buffers, data)
		l.groupAt = append(l.groupAt, strings.Index(string(raw), string(binary.AppendUvarint([]byte{8}, l.next)))+1)
	}
	return l
}

// softmaxes is random passes [S][N][K] of a model, little-endian.
func softmaxes(s, n, k int) []byte {
	random := rand.New(rand.NewPCG(1, uint64(k)))
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

// group lets one group go through, and returns the results that its reply has.
func (l *load) group(t testing.TB) (results int) {
	l.next++
	for i, raw := range l.messages {
		binary.PutUvarint(raw[l.groupAt[i]:], l.next)
		if err := (wire.Codec{}).Unmarshal(l.buffers[i], &l.in); err != nil {
			t.Fatal(err)
		}
		if err := l.request.Decode(&l.in); err != nil {
			t.Fatal(err)
		}
		r := l.session.receive(&l.request)
		l.in.Free()
		l.request.Free()
		out, ok := r.message.(*wire.Outgoing)
		if !ok {
			continue
		}
		results += out.Results()
		sent, err := (wire.Codec{}).Marshal(out)
		if err != nil {
			t.Fatal(err)
		}
		sent.Free()
		l.session.server.openBytes.Add(-r.cost)
		l.session.unsent--
		l.session.sent = out
	}
	return results
}

var loadShapes = [][3]int{{30, 1, 4}, {30, 64, 4}, {50, 64, 10}, {30, 8, 100}, {30, 1, 1000}}

// race: under the race detector sync.Pool forgets things on purpose.
var race bool

// TestHandlerAllocatesNothing: passes come and whatever is answered.
func TestHandlerAllocatesNothing(t *testing.T) {
	if race {
		t.Skip("pools forget under the race detector")
	}
	for _, shape := range loadShapes {
		s, n, k := shape[0], shape[1], shape[2]
		for _, blocks := range []int{1, s} {
			for _, detail := range []ckdv1.Detail{ckdv1.Detail_DETAIL_DECISION, ckdv1.Detail_DETAIL_VECTORS, ckdv1.Detail_DETAIL_FULL} {
				l := newLoad(t, s, n, k, blocks, true, detail)
				for range 3 {
					if got := l.group(t); got != n {
						t.Fatalf("%d results of %d inputs", got, n)
					}
				}
				if got := testing.AllocsPerRun(20, func() { l.group(t) }); got != 0 {
					t.Errorf("S%dN%dK%d in %d blocks, %v: %v allocations a group", s, n, k, blocks, detail, got)
				}
			}
		}
	}
}

// neverSettling is the policy of a load with a rule that asks as often as learned ones do
// of inputs that they never settle, 10 times in 30 passes, and is never reached.
func neverSettling(t testing.TB, s, k int, gate policy.Gate) *policy.Policy {
	t.Helper()
	p := *loadPolicy(t, s, k)
	p.Gate = gate
	rule := settle.Rule{Passes: s, Fewest: p.FewestPasses, Patience: 8, Steps: make([]settle.Step, s-p.FewestPasses)}
	for i := range rule.Steps {
		side := settle.Side{AtMost: -3, Coefficients: [settle.Terms]float64{0, 1e-9, 1e-9, 1e-9, 1e-9, 1e-9}}
		rule.Steps[i] = settle.Step{Retain: side, Defer: side}
	}
	p.Settle = &policy.Settle{
		PolicyHash: p.HashWithoutSettle(), Order: policy.AnyOrder, Rule: rule,
		Certificate: policy.SettleCertificate{Disagreement: 0.01, Confidence: 0.9, Released: policy.ReleasedShare{AtMost: 0.05}},
	}
	return &p
}

// TestSettlingAllocatesNothing: inputs that are followed and asked for take no memory but
// what is used again.
func TestSettlingAllocatesNothing(t *testing.T) {
	if race {
		t.Skip("pools forget under the race detector")
	}
	const s, n, k = 30, 64, 4
	l := newLoadOf(t, neverSettling(t, s, k, policy.AnyCritical), &ckdv1.StreamHeader{Model: "m", AcceptSettled: true}, s, n, k, s, true)
	for range 3 {
		if got := l.group(t); got != n {
			t.Fatalf("%d results of %d inputs", got, n)
		}
	}
	if l.session.latest.settling.opened.Load() == 0 {
		t.Fatal("no input is followed")
	}
	if got := testing.AllocsPerRun(20, func() { l.group(t) }); got != 0 {
		t.Errorf("%v allocations a group", got)
	}
}

// TestFollowedInputsAreUsedAgain: by groups of about their number, whatever groups there
// are between, and not by small groups, which would hold the memory of large ones.
func TestFollowedInputsAreUsedAgain(t *testing.T) {
	if race {
		t.Skip("pools forget under the race detector")
	}
	is, err := newSettling(neverSettling(t, 30, 4, policy.AnyCritical))
	if err != nil {
		t.Fatal(err)
	}
	sizes := []int{64, 1, 1000, 3, 17}
	if got := testing.AllocsPerRun(20, func() {
		for _, n := range sizes {
			in := is.inputs(n)
			if room := in.Room(); room < n || room >= 4*n {
				t.Fatalf("room for %d, expected for %d and less than four times as many", room, n)
			}
			is.release(in)
		}
	}); got != 0 {
		t.Errorf("%v allocations", got)
	}
}

// BenchmarkSettling is what it costs, between a message of the transport and its reply,
// that inputs may be settled, where none ever is: groups of 64 inputs, a block a pass,
// 30 passes. Both take turns, so that the ratio is of one time.
func BenchmarkSettling(b *testing.B) {
	const s, n = 30, 64
	for _, k := range []int{3, 10, 100} {
		for _, gate := range []policy.Gate{policy.Never, policy.Always, policy.AnyCritical} {
			b.Run(fmt.Sprintf("K%d/%s", k, gate), func(b *testing.B) {
				p := neverSettling(b, s, k, gate)
				loads := []*load{
					newLoadOf(b, p, &ckdv1.StreamHeader{Model: "m"}, s, n, k, s, true),
					newLoadOf(b, p, &ckdv1.StreamHeader{Model: "m", AcceptSettled: true}, s, n, k, s, true),
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
				for i, what := range []string{"all", "settling"} {
					b.ReportMetric(float64(spent[i].Nanoseconds())/float64(b.N*s*n), what+"-ns/pass")
				}
				b.ReportMetric(float64(spent[1])/float64(spent[0]), "ratio")
			})
		}
	}
}

// BenchmarkHandler is everything between a message of the transport and its
// reply, of one group.
func BenchmarkHandler(b *testing.B) {
	for _, shape := range loadShapes {
		s, n, k := shape[0], shape[1], shape[2]
		for _, blocks := range []int{1, s} {
			b.Run(fmt.Sprintf("S%dK%dN%d/blocks=%d", s, k, n, blocks), func(b *testing.B) {
				l := newLoad(b, s, n, k, blocks, true, ckdv1.Detail_DETAIL_DECISION)
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

package client

import (
	"context"
	"slices"
	"testing"

	"golang.org/x/sync/semaphore"
	"google.golang.org/genproto/googleapis/rpc/errdetails"
	"google.golang.org/grpc/codes"
	"google.golang.org/grpc/status"
	"pgregory.net/rapid"

	ckdv1 "github.com/ckd-project/ckd/proto/ckd/v1"
)

// offline is a session without a stream, which keeps all that is sent.
func offline(window int, expected uint32) *Session {
	return &Session{
		window: window, classes: 2, cancel: func() {}, done: make(chan struct{}), messageBytes: 1 << 20,
		open: map[*Group]struct{}{}, info: &ckdv1.StreamInfo{ExpectedPasses: expected},
		inputs: semaphore.NewWeighted(int64(window)), groups: semaphore.NewWeighted(int64(window)),
	}
}

// However inputs are answered, what is kept is all of what those without an answer
// were sent while they needed it, in order, and of no more than as many rows again.
func TestKeptPasses(t *testing.T) {
	rapid.Check(t, func(rt *rapid.T) {
		expected := rapid.SampledFrom([]uint32{0, 5}).Draw(rt, "expected passes")
		s := offline(10, expected)
		ids := make([]string, rapid.IntRange(1, 10).Draw(rt, "inputs"))
		g, err := s.Open(context.Background(), ids)
		if err != nil {
			rt.Fatal(err)
		}
		sent := make([][]byte, len(ids)) // by row
		passes, answered, finished := make([]int, len(ids)), make([]bool, len(ids)), make([]bool, len(ids))
		needs := func(row uint32) bool {
			return !answered[row] && !finished[row] && (expected == 0 || passes[row] < int(expected))
		}
		value := float32(0)
		rt.Repeat(map[string]func(*rapid.T){
			"send": func(rt *rapid.T) {
				n := rapid.IntRange(1, 3).Draw(rt, "passes")
				rows := rapid.Permutation(slices.Clone(g.all)).Draw(rt, "rows")
				rows = rows[:rapid.IntRange(1, len(rows)).Draw(rt, "some")]
				if err := s.checkedSend(g, n, rows, &value, sent, needs); err != nil {
					rt.Fatal(err)
				}
				for _, row := range rows {
					passes[row] += n
				}
			},
			"finish": func(rt *rapid.T) {
				row := rapid.IntRange(0, len(ids)-1).Draw(rt, "row")
				if err := g.Finish(row); err != nil {
					rt.Fatal(err)
				}
				finished[row] = true
			},
			"answer": func(rt *rapid.T) {
				row := rapid.IntRange(0, len(ids)-1).Draw(rt, "row")
				s.mu.Lock()
				defer s.mu.Unlock()
				if !g.results[row].answered() {
					s.settle(g, Result{Row: row, Err: broken("x")})
					g.tidy()
				}
				answered[row] = true
			},
			"": func(rt *rapid.T) {
				var needed []int
				for row := range ids {
					if needs(uint32(row)) {
						needed = append(needed, row)
					}
				}
				if rows := g.Rows(); !slices.Equal(rows, needed) {
					rt.Fatalf("rows %v need passes, expected %v", rows, needed)
				}
				kept := 0
				for _, p := range g.parts {
					kept += len(p.values)
				}
				for _, row := range g.unanswered() {
					mine := &lot{group: g, rows: []uint32{row}, over: []bool{false}, left: 1}
					var got []byte
					for _, p := range g.parts {
						for b := range mine.share(p).blocks(1, 2, 1<<20) {
							got = append(got, b.GetValuesLe()...)
						}
					}
					if !slices.Equal(got, sent[row]) {
						rt.Fatalf("row %d has %v, expected %v", row, got, sent[row])
					}
				}
				if g.complete() && kept > 0 {
					rt.Fatalf("%d bytes kept for nobody", kept)
				}
				if 2*(len(g.ids)-len(g.order)) < g.held && !g.complete() {
					rt.Fatalf("passes of %d rows held, for %d of %d without an answer", g.held, len(g.ids)-len(g.order), len(g.ids))
				}
			},
		})
	})
}

// checkedSend sends values that occur nowhere else, and notes those that are needed.
func (s *Session) checkedSend(
	g *Group, passes int, rows []uint32, value *float32, sent [][]byte, needed func(uint32) bool,
) error {
	var values []float32
	for range passes {
		for _, row := range rows {
			both := []float32{*value, *value + 0.5}
			*value++
			values = append(values, both...)
			if needed(row) {
				sent[row] = appendValues(sent[row], both)
			}
		}
	}
	return g.send(passes, rows, values)
}

// Inputs that finish early do not weigh until the last of their group does.
func TestAnsweredPassesAreForgotten(t *testing.T) {
	s := offline(8, 0)
	g, err := s.Open(t.Context(), make([]string, 8))
	if err != nil {
		t.Fatal(err)
	}
	if err := g.SendPasses(3, make([]float32, 3*8*2)); err != nil {
		t.Fatal(err)
	}
	var held []int
	for row := range 8 {
		s.settle(g, Result{Row: row, Err: broken("x")})
		g.tidy()
		bytes := 0
		for _, p := range g.parts {
			bytes += len(p.values)
		}
		held = append(held, bytes/(3*2*valueBytes))
	}
	if want := []int{8, 8, 8, 4, 4, 2, 1, 0}; !slices.Equal(held, want) {
		t.Errorf("rows kept %v, expected %v", held, want)
	}
}

// A caller that sends on while the daemon is away does not fill the memory.
func TestPassesThatFinishNothingAreNotKept(t *testing.T) {
	s := offline(2, 3)
	g, err := s.Open(t.Context(), make([]string, 2))
	if err != nil {
		t.Fatal(err)
	}
	for range 10 {
		if err := g.SendRows([]int{1}, make([]float32, 2)); err != nil {
			t.Fatal(err)
		}
	}
	for range 10 {
		if err := g.Send(make([]float32, 4)); err != nil {
			t.Fatal(err)
		}
	}
	if n := len(g.parts); n != 3+3 {
		t.Errorf("%d parts kept, expected 3 of one row and 3 of both", n)
	}
}

func TestNothingIsKeptWhereReconnectIsOff(t *testing.T) {
	s := offline(2, 0)
	s.reconnect.Disabled = true
	g, err := s.Open(t.Context(), make([]string, 2))
	if err != nil {
		t.Fatal(err)
	}
	l := &link{
		stream: &sink{}, lots: map[uint64]*lot{}, mostInputs: 2, mostGroups: 2, messageBytes: 1 << 20,
	}
	s.link = l
	for range 3 {
		if err := g.Send(make([]float32, 4)); err != nil {
			t.Fatal(err)
		}
	}
	for i, p := range g.parts {
		if p.values != nil {
			t.Errorf("part %d keeps %d bytes", i, len(p.values))
		}
	}
	if n := l.stream.(*sink).blocks; n != 3 {
		t.Errorf("%d blocks sent, expected 3", n)
	}
}

// A stream that drains is sent no more groups: what was refused, and what comes
// later, is for the next.
func TestDrainingLinkTakesNoMore(t *testing.T) {
	s := offline(2, 0)
	s.link = &link{
		stream: &sink{}, lots: map[uint64]*lot{}, mostInputs: 2, mostGroups: 2, messageBytes: 1 << 20,
	}
	for range 2 {
		g, err := s.Open(t.Context(), []string{"a"})
		if err != nil {
			t.Fatal(err)
		}
		if err := g.Send(make([]float32, 2)); err != nil {
			t.Fatal(err)
		}
		detail := &errdetails.ErrorInfo{Domain: errorDomain, Reason: "DRAINING"}
		st, err := status.New(codes.Unavailable, "stopping").WithDetails(detail)
		if err != nil {
			t.Fatal(err)
		}
		if s.link.draining {
			continue
		}
		refused := &ckdv1.Result{InputId: "a", Group: 1, Outcome: &ckdv1.Result_Error{Error: st.Proto()}}
		if err := s.take(s.link, &ckdv1.DecomposeStreamResponse{Results: []*ckdv1.Result{refused}}); err != nil {
			t.Fatal(err)
		}
		if len(g.order) > 0 {
			t.Errorf("results %+v, expected none", g.results)
		}
	}
	if n := s.link.stream.(*sink).blocks; n != 1 || len(s.open) != 2 {
		t.Errorf("%d blocks sent, %d groups open, expected 1 and 2", n, len(s.open))
	}
}

// While a group's passes are sent again, those of inputs that are answered meanwhile
// are left out.
func TestAnswersWhileSendingAgain(t *testing.T) {
	s := offline(3, 0)
	g, err := s.Open(t.Context(), []string{"a", "b", "c"})
	if err != nil {
		t.Fatal(err)
	}
	for range 3 { // kept, as there is no stream
		if err := g.Send(make([]float32, 6)); err != nil {
			t.Fatal(err)
		}
	}
	l := &link{lots: map[uint64]*lot{}, mostInputs: 3, mostGroups: 1, messageBytes: 1 << 20}
	var rows [][]uint32
	l.stream = &sink{sent: func(b *ckdv1.Block) {
		if rows = append(rows, b.GetRows()); len(rows) > 2 {
			return
		}
		row := []uint32{1, 0}[len(rows)-1]
		settled := &ckdv1.Result{InputId: g.ids[row], Group: 1, Row: row, Outcome: &ckdv1.Result_Decomposition{
			Decomposition: &ckdv1.Decomposition{Settled: true},
		}}
		reply := &ckdv1.DecomposeStreamResponse{Policies: []*ckdv1.PolicyRef{{}}, Results: []*ckdv1.Result{settled}}
		if err := s.take(l, reply); err != nil {
			t.Error(err)
		}
	}}
	g.begun = true
	s.resume(l)
	if err := s.fill(l); err != nil {
		t.Fatal(err)
	}
	if want := [][]uint32{nil, {0, 2}, {2}}; !slices.EqualFunc(rows, want, slices.Equal[[]uint32]) {
		t.Errorf("blocks for rows %v, expected %v", rows, want)
	}
}

// sink is a stream that takes everything.
type sink struct {
	ckdv1.UncertaintyService_DecomposeStreamClient
	sent   func(*ckdv1.Block)
	blocks int
}

func (s *sink) Send(r *ckdv1.DecomposeStreamRequest) error {
	s.blocks++
	if s.sent != nil {
		s.sent(r.GetBlock())
	}
	return nil
}

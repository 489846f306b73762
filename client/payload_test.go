package client

import (
	"context"
	"slices"
	"testing"

	"pgregory.net/rapid"

	ckdv1 "github.com/ckd-project/ckd/proto/ckd/v1"
)

// offline returns a session without a stream, which keeps everything that is sent.
func offline(window int, expected uint32) *Session {
	info := &ckdv1.StreamInfo{Classes: []string{"a", "b"}, ExpectedPasses: expected}
	limits := terms{info: info, messageBytes: 1 << 20, maxInputs: window, maxGroups: window}
	return &Session{
		cancel: func() {}, done: make(chan struct{}), terms: limits,
		window: newWindow(window, limits),
	}
}

// offlineGroup returns a group of n inputs on a session without a stream.
func offlineGroup(t testing.TB, n int, expected uint32) *Group {
	t.Helper()
	g, err := offline(n, expected).Open(t.Context(), make([]string, n))
	must(t, err)
	return g
}

func must(t testing.TB, err error) {
	t.Helper()
	if err != nil {
		t.Fatal(err)
	}
}

// TestKeptPasses answers inputs in random order. The session must keep every pass that an unanswered
// input needs, in order, and passes of at most as many answered inputs.
func TestKeptPasses(t *testing.T) {
	rapid.Check(t, func(rt *rapid.T) {
		expected := rapid.SampledFrom([]uint32{0, 5}).Draw(rt, "expected passes")
		s := offline(10, expected)
		ids := make([]string, rapid.IntRange(1, 10).Draw(rt, "inputs"))
		g, err := s.Open(context.Background(), ids)
		if err != nil {
			rt.Fatal(err)
		}
		sent := make([][]byte, len(ids)) // encoded values, by row
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
					s.deliver(g, Result{Row: row, Err: broken("x")})
					g.dropAnswered()
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
				for _, p := range g.payloads {
					kept += len(p.values)
				}
				for _, row := range g.unanswered() {
					mine := newChunk(g, []uint32{row})
					var got []byte
					for _, p := range g.payloads {
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

// checkedSend sends values that are all different, and records those that are needed.
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

// TestNothingIsKeptWithoutReconnect checks that a session which does not reconnect drops passes as
// soon as they are sent.
func TestNothingIsKeptWithoutReconnect(t *testing.T) {
	g := offlineGroup(t, 2, 0)
	s, to := g.session, &sink{}
	s.reconnect.Disabled = true
	s.link = s.newLink(&stream{rpc: to, terms: s.terms})
	for range 3 {
		must(t, g.Send(make([]float32, 4)))
	}
	for i, p := range g.payloads {
		if p.values != nil {
			t.Errorf("payload %d keeps %d bytes", i, len(p.values))
		}
	}
	if n := to.blocks; n != 3 {
		t.Errorf("%d blocks sent, expected 3", n)
	}
}

// sink implements a stream that accepts everything.
type sink struct {
	ckdv1.UncertaintyService_DecomposeStreamClient
	blocks int
}

func (s *sink) Send(*ckdv1.DecomposeStreamRequest) error {
	s.blocks++
	return nil
}

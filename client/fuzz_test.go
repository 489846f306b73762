package client

import (
	"reflect"
	"testing"

	"google.golang.org/protobuf/proto"

	ckdv1 "github.com/ckd-project/ckd/proto/ckd/v1"
)

// FuzzReply checks that no reply of a daemon makes the client panic, and that every input ends with
// one answer that never changed.
func FuzzReply(f *testing.F) {
	retain := &ckdv1.Result_Decomposition{Decomposition: &ckdv1.Decomposition{
		Decision: &ckdv1.Decision{Action: ckdv1.Action_ACTION_RETAIN},
	}}
	for _, reply := range []*ckdv1.DecomposeStreamResponse{
		{},
		{Policies: []*ckdv1.PolicyRef{{}}, Results: []*ckdv1.Result{{InputId: "a", Group: 1, Outcome: retain}}},
		{Policies: []*ckdv1.PolicyRef{{}}, Results: []*ckdv1.Result{
			{InputId: "b", Group: 1, Row: 1, Outcome: retain}, {InputId: "c", Group: 2, Outcome: retain},
		}},
	} {
		wire, err := proto.Marshal(reply)
		must(f, err)
		f.Add(wire, wire)
	}
	f.Fuzz(func(t *testing.T, first, second []byte) {
		s := offline(8, 0)
		l := s.newLink(&stream{terms: s.terms})
		var groups []*Group
		for i, ids := range [][]string{{"a", "b"}, {"c"}, {"unsent"}} {
			g, err := s.Open(t.Context(), ids)
			must(t, err)
			groups = append(groups, g)
			if i < 2 {
				l.enqueue(g)
				l.openNext()
			}
		}
		var err error
		for _, wire := range [][]byte{first, second} {
			var reply ckdv1.DecomposeStreamResponse
			if proto.Unmarshal(wire, &reply) != nil {
				continue
			}
			before := snapshot(groups)
			if err == nil {
				err = l.handle(&reply)
			}
			for r, was := range before {
				if was.answered() && !reflect.DeepEqual(*r, was) {
					t.Fatalf("the answer %+v became %+v", was, *r)
				}
			}
		}
		if err == nil {
			err = broken("over")
		}
		s.end(err)
		for _, g := range groups {
			results, err := g.Wait(t.Context())
			if err != nil || len(g.order) != len(g.ids) {
				t.Fatalf("%d answers for %d inputs, error %v", len(g.order), len(g.ids), err)
			}
			for i, r := range results {
				if r.ID != g.ids[i] || r.Row != i || !r.answered() || (r.Err != nil && r.Retained()) {
					t.Fatalf("result %d is %+v", i, r)
				}
			}
		}
		// The window has all its room back.
		if !s.window.inputs.TryAcquire(8) || !s.window.groups.TryAcquire(8) {
			t.Fatal("the window has lost room")
		}
	})
}

// snapshot copies every result, by its address.
func snapshot(groups []*Group) map[*Result]Result {
	at := map[*Result]Result{}
	for _, g := range groups {
		for i := range g.results {
			at[&g.results[i]] = g.results[i]
		}
	}
	return at
}

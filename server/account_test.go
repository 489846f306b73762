package server

import (
	"fmt"
	"slices"
	"strings"
	"sync"
	"testing"
	"time"

	"github.com/google/go-cmp/cmp"
	"google.golang.org/grpc/metadata"
	"pgregory.net/rapid"

	"github.com/ckd-project/ckd/internal/servertest"
	"github.com/ckd-project/ckd/server/auth"
)

// testBudget returns a budget of 1000 bytes with a clock that stands still, and what it refused.
func testBudget() (b *budget, now *time.Duration, refused map[refusedFor]int) {
	now, refused = new(time.Duration), map[refusedFor]int{}
	b = newBudget(1000, func(_ *account, why refusedFor) { refused[why]++ })
	b.clock = func() int64 { return int64(*now) }
	return b, now, refused
}

// identities returns the identities of an access file with these rights, by name.
func identities(t *testing.T, rights map[string]string) map[string]*auth.Identity {
	t.Helper()
	if len(rights) == 0 {
		return nil
	}
	var o Options
	withIdentities(t, rights)(&o)
	all := map[string]*auth.Identity{}
	for name := range rights {
		ctx := metadata.NewIncomingContext(t.Context(), metadata.Pairs("authorization", "Bearer "+tokenOf(name)))
		_, who, err := o.Auth.Tap(ctx, "/any")
		if err != nil {
			t.Fatal(err)
		}
		all[name] = who
	}
	return all
}

// TestAccount checks who gets room and who does not, step by step. A step is an account, the bytes
// that it asks for, or gives back if negative, and why it is refused, if it is.
func TestAccount(t *testing.T) {
	type step struct {
		who   string
		bytes int64
		want  refusedFor
	}
	later := step{who: "later"}
	for name, c := range map[string]struct {
		rights map[string]string // of identities; an account is called identity/connection
		steps  []step
	}{
		"one alone": {nil, []step{{"a", 750, ""}, {"a", 1, refusedConnection}}},
		"room for the next": {nil, []step{
			{"a", 750, ""}, {"b", 250, ""}, {"b", 1, refusedFull}, {"c", 1, refusedFull},
		}},
		"more than a share, while nobody waits": {nil, []step{{"a", 600, ""}, {"b", 10, ""}, {"a", 100, ""}}},
		"more than a share, while another waits": {nil, []step{
			{"a", 700, ""}, {"b", 300, ""}, {"b", 50, refusedFull},
			{"a", -150, ""}, {"a", 10, refusedShare}, {"b", 50, ""}, {"a", -100, ""}, {"a", 50, ""},
		}},
		"another waits no longer": {nil, []step{
			{"a", 700, ""}, {"b", 300, ""}, {"b", 50, refusedFull}, {"a", -150, ""}, {"a", 10, refusedShare}, later, {"a", 10, ""},
		}},
		"who has more than a share does not wait": {nil, []step{
			{"a", 600, ""}, {"b", 400, ""}, {"a", 1, refusedFull}, {"b", -20, ""}, {"b", 10, ""},
		}},
		"those without bytes have no share": {nil, []step{
			{"a", 600, ""}, {"b", 300, ""}, {"c", 100, ""}, {"b", 10, refusedFull},
			{"c", -100, ""}, {"a", -110, ""}, {"a", 10, ""}, {"a", 1, refusedShare},
		}},
		"identities, of many connections": {map[string]string{"x": "models: []", "y": "models: []"}, []step{
			{"x/1", 400, ""}, {"x/2", 350, ""}, {"x/3", 1, refusedIdentity}, {"y/1", 187, ""}, {"y/1", 63, ""},
		}},
		"one connection of one identity": {map[string]string{"x": "models: []"}, []step{{"x/1", 750, ""}, {"x/1", 1, refusedIdentity}}},
		"one of two connections of an identity": {map[string]string{"x": "models: []"}, []step{
			{"x/2", 0, ""}, {"x/1", 563, ""}, {"x/1", 1, refusedConnection}, {"x/2", 187, ""}, {"x/2", 1, refusedIdentity},
		}},
		"within an identity that has its share": {map[string]string{"x": "bytes: 20%", "y": "bytes: 80%"}, []step{
			{"x/1", 200, ""}, {"x/1", 1, refusedIdentity}, {"x/1", -50, ""}, {"x/2", 50, ""}, {"x/2", 10, refusedIdentity}, {"x/1", -30, ""}, {"x/1", 10, refusedShare}, {"x/2", 10, ""},
			{"y/2", 0, ""}, {"y/1", 600, ""}, {"y/1", 1, refusedConnection}, {"y/2", 200, ""}, {"y/2", 1, refusedIdentity},
		}},
	} {
		t.Run(name, func(t *testing.T) {
			b, now, refused := testBudget()
			who, open := identities(t, c.rights), map[string]*account{}
			for i, s := range c.steps {
				if s == later {
					*now += patience
					continue
				}
				a := open[s.who]
				if a == nil {
					identity, _, _ := strings.Cut(s.who, "/")
					a = b.open(who[identity], s.who, nil)
					open[s.who] = a
				}
				if s.bytes < 0 {
					a.release(-s.bytes)
					continue
				}
				clear(refused)
				ok := a.reserve(s.bytes)
				if !ok {
					_ = a.refuse("field", s.bytes)
				}
				if want := map[refusedFor]int{s.want: 1}; ok != (s.want == "") || !ok && !cmp.Equal(refused, want) {
					t.Errorf("step %d, %v: reserved %v, refused %v", i, s, ok, refused)
				}
			}
		})
	}
}

// TestRefusalSaysWhoHoldsWhat checks the words and details of refusals.
func TestRefusalSaysWhoHoldsWhat(t *testing.T) {
	b, _, _ := testBudget()
	who := identities(t, map[string]string{"retina": "bytes: 50%"})["retina"]
	one, two := b.open(who, "peer", nil), b.open(nil, "peer", nil)
	b.open(who, "peer", nil)
	one.Add(100)
	b.shared.Add(850)
	for name, c := range map[string]struct {
		of    *account
		bytes int64
		want  []string
		retry time.Duration
	}{
		"no room":          {one, 60, []string{"all clients hold 950 bytes", "this connection holds 100 bytes, 10% of max-open-bytes", `identity "retina" holds 100 bytes`}, retryBudget},
		"what one may":     {one, 280, []string{"this connection holds 100 bytes", "and may hold 375"}, retryBudget},
		"more than it may": {one, 376, []string{"and may hold 375"}, 0},
		"no identity":      {two, 60, []string{"all clients hold 950 bytes", "this connection holds 0 bytes"}, retryBudget},
	} {
		t.Run(name, func(t *testing.T) {
			err := statusOf(c.of.refuse("values", c.bytes), location{}).Err()
			fault := servertest.FaultOf(err)
			if fault.Reason != "OUT_OF_MEMORY_BUDGET" || fault.Retry != c.retry {
				t.Errorf("%+v", fault)
			}
			for _, part := range c.want {
				if !strings.Contains(err.Error(), part) {
					t.Errorf("%v lacks %q", err, part)
				}
			}
		})
	}
}

// TestAccountsAddUp checks, under random traffic, that every account holds the sum of its children,
// that nothing is lost when connections end, and that no account stays without bytes or connection.
func TestAccountsAddUp(t *testing.T) {
	names := []string{"", "x", "y"}
	who := identities(t, map[string]string{"x": "models: []", "y": "bytes: 30%"})
	rapid.Check(t, func(t *rapid.T) {
		b, now, _ := testBudget()
		type connection struct {
			accounts *accounts
			held     map[*account]int64
			closed   bool
		}
		var all []*connection
		t.Repeat(map[string]func(*rapid.T){
			"connect": func(t *rapid.T) {
				all = append(all, &connection{accounts: &accounts{budget: b}, held: map[*account]int64{}})
			},
			"charge": func(t *rapid.T) {
				if len(all) == 0 {
					t.Skip("no connection")
				}
				c := rapid.SampledFrom(all).Draw(t, "connection")
				a := c.accounts.of(who[rapid.SampledFrom(names).Draw(t, "identity")])
				bytes, limit := rapid.Int64Range(0, 600).Draw(t, "bytes"), a.limit() // it may fall by what is charged
				if rapid.Bool().Draw(t, "added") {
					a.Add(bytes)
				} else if most := min(limit, b.limit-b.total()); !a.reserve(bytes) {
					if bytes <= most-a.charged() && len(b.whole.children) == 1 && a.parent == b.whole {
						t.Fatalf("%d bytes were refused to the only one, who holds %d of %d", bytes, a.charged(), most)
					}
					_ = a.refuse("", bytes)
					return
				} else if a.charged() > limit || b.total() > b.limit {
					t.Fatalf("%d reserved over the limit: %d of %d, in all %d", bytes, a.charged(), limit, b.total())
				}
				c.held[a] += bytes
			},
			"release": func(t *rapid.T) {
				for _, c := range all {
					for a, held := range c.held {
						bytes := rapid.Int64Range(0, held).Draw(t, "bytes")
						a.release(bytes)
						c.held[a] -= bytes
					}
				}
			},
			"end": func(t *rapid.T) {
				if len(all) > 0 {
					c := rapid.SampledFrom(all).Draw(t, "connection")
					c.accounts.close()
					c.closed = true
				}
			},
			"wait": func(*rapid.T) { *now += patience / 2 },
			"": func(t *rapid.T) {
				want := map[*account]int64{}
				for _, c := range all {
					for a, held := range c.held {
						for at := a; at != nil; at = at.parent {
							want[at] += held
						}
						if _, is := a.parent.children[a]; is != (held > 0 || !c.closed) {
							t.Fatalf("an account of %d bytes is known: %v; its connection has ended: %v", held, is, c.closed)
						}
					}
				}
				for a, held := range want {
					if a.charged() != held {
						t.Fatalf("%q holds %d, want %d", a.name, a.charged(), held)
					}
				}
				for a := range b.whole.children {
					if a.share != nil && b.identities[a.share] != a {
						t.Fatalf("identity %q has two accounts", a.name)
					}
				}
				if got := b.heaviest(100); len(got) > 0 && got[0].charged() < got[len(got)-1].charged() {
					t.Fatal("the heaviest is not the first")
				}
			},
		})
	})
}

// TestAccountsAtOnce checks that concurrent charges add up, and leave nothing behind.
func TestAccountsAtOnce(t *testing.T) {
	b := newBudget(1000, func(*account, refusedFor) {})
	who := identities(t, map[string]string{"x": "models: []"})["x"]
	var group sync.WaitGroup
	for i := range 8 {
		group.Go(func() {
			for n := range 2000 {
				c := accounts{budget: b, peer: fmt.Sprint(i)}
				a := c.of([]*auth.Identity{nil, who}[n%2])
				if bytes := int64(n % 400); a.reserve(bytes) {
					c.close()
					a.release(bytes)
				} else {
					_ = a.refuse("", bytes)
				}
				a.Add(5)
				c.close()
				a.Add(-5)
			}
		})
	}
	group.Wait()
	left := len(b.whole.children) - len(b.identities)
	for _, a := range b.identities {
		left += len(a.children)
	}
	if b.total() != 0 || left != 0 {
		t.Errorf("%d bytes are held, %d accounts are left", b.total(), left)
	}
}

// TestEndTheHeaviest checks that connections are found by what they hold and ended with a cause, and
// what belongs to no connection never.
func TestEndTheHeaviest(t *testing.T) {
	b, _, _ := testBudget()
	var ended []string
	for peer, bytes := range map[string]int64{"small": 100, "large": 300, "none": 0} {
		b.open(nil, peer, func(cause string) { ended = append(ended, peer+": "+cause) }).Add(bytes)
	}
	b.shared.Add(500)
	b.shared.end("never")
	for _, a := range b.heaviest(3) {
		a.end("too much")
	}
	if diff := cmp.Diff([]string{"large: too much", "small: too much"}, ended); diff != "" {
		t.Errorf("ended (-want +got):\n%s", diff)
	}
}

// TestSmallOnesAreSpared checks that connections which hold little are not ended for what stands in no
// account.
func TestSmallOnesAreSpared(t *testing.T) {
	b, _, _ := testBudget()
	var ended []string
	for peer, bytes := range map[string]int64{"large": 300, "next": 200, "small": 30, "none": 0} {
		b.open(nil, peer, func(string) { ended = append(ended, peer) }).Add(bytes)
	}
	if n := b.endHeaviest(1 << 40); n != 2 || !slices.Equal(ended, []string{"large", "next"}) {
		t.Errorf("%d connections were ended: %q", n, ended)
	}
}

// TestUnfinishedMessagesAreBounded checks that the connections with most bytes of unfinished messages
// end when all together exceed the budget, however much the others hold.
func TestUnfinishedMessagesAreBounded(t *testing.T) {
	b, _, _ := testBudget()
	ended := make(chan string, 10)
	open := func(who *auth.Identity, peer string) *account {
		var a *account
		a = b.open(who, peer, func(string) {
			ended <- peer
			time.AfterFunc(10*time.Millisecond, func() { b.arrive(a, -a.unfinished.Load()) }) // as gRPC ends its calls
		})
		return a
	}
	ann := identities(t, map[string]string{"ann": "streams: 1"})["ann"]
	small, large, holder := open(nil, "small"), open(ann, "large"), open(nil, "holder")
	holder.Add(900)
	b.arrive(small, 300)
	b.arrive(large, 700)
	b.arrive(small, -100)
	b.arrive(small, 100)
	select {
	case peer := <-ended:
		t.Fatalf("%s was ended with room for all", peer)
	default:
	}
	b.arrive(small, 1)
	if peer := <-ended; peer != "large" {
		t.Errorf("%s was ended", peer)
	}
	if !within(func() bool { return !b.ending.Load() && b.unfinished.Load() == 301 && b.total() == 1201 }) {
		t.Errorf("%d bytes are unfinished, %d held", b.unfinished.Load(), b.total())
	}
	if len(ended) > 0 {
		t.Errorf("%s was ended too", <-ended)
	}
}

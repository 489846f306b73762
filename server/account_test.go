package server

import (
	"slices"
	"strings"
	"sync"
	"testing"
	"time"

	"github.com/google/go-cmp/cmp"
	"google.golang.org/grpc/metadata"
	"pgregory.net/rapid"

	"github.com/ckd-project/ckd/internal/auth"
	"github.com/ckd-project/ckd/internal/servertest"
)

// testBudget returns a budget of 1000 bytes, and what it refused.
func testBudget() (b *budget, refused map[refusedFor]int) {
	refused = map[refusedFor]int{}
	b = newBudget(1000, func(why refusedFor) { refused[why]++ }, func() int64 { return 1 << 30 })
	return b, refused
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
	for name, c := range map[string]struct {
		rights map[string]string // of identities; an account is called identity/connection
		steps  []step
	}{
		"one alone": {nil, []step{{"a", 750, ""}, {"a", 1, refusedConnection}}},
		"the reserve is for the little": {nil, []step{
			{"a", 750, ""}, {"b", 125, ""}, {"b", 1, refusedFull}, {"c", 3, ""}, {"d", 3, ""}, {"c", 1, refusedFull}, {"a", -4, ""}, {"b", 0, refusedFull}, {"d", -3, ""}, {"c", -3, ""}, {"b", 4, ""},
		}},
		"identities, of many connections": {map[string]string{"x": "models: []", "y": "models: []"}, []step{
			{"x/1", 400, ""}, {"x/2", 350, ""}, {"x/3", 1, refusedIdentity}, {"y/1", 60, ""}, {"y/1", 65, ""}, {"y/2", 1, refusedFull},
		}},
		"an identity with a share of its own": {map[string]string{"x": "bytes: 20%", "y": "bytes: 100%"}, []step{
			{"x/1", 200, ""}, {"x/2", 1, refusedIdentity}, {"y/1", 675, ""}, {"y/1", 1, refusedFull}, {"x/1", -200, ""}, {"y/2", 200, ""}, {"y/2", 1, refusedFull},
		}},
	} {
		t.Run(name, func(t *testing.T) {
			b, refused := testBudget()
			who, open := identities(t, c.rights), map[string]*account{}
			for i, s := range c.steps {
				a := open[s.who]
				if a == nil {
					identity, _, _ := strings.Cut(s.who, "/")
					a = b.open(nil).account(who[identity])
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
	b, _ := testBudget()
	who := identities(t, map[string]string{"retina": "bytes: 50%"})["retina"]
	one, two := b.open(nil).account(who), b.open(nil).account(nil)
	one.Add(100)
	b.shared.Add(850)
	for name, c := range map[string]struct {
		account *account
		bytes   int64
		want    []string
		retry   time.Duration
	}{
		"no room":          {one, 60, []string{"all clients hold 950 bytes", "this connection holds 100 bytes, 10% of max-open-bytes", `identity "retina" holds 100 bytes`}, retryBudget},
		"what one may":     {one, 480, []string{`identity "retina" holds 100 bytes`, "and may hold 500"}, retryBudget},
		"more than it may": {one, 501, []string{"and may hold 500"}, 0},
		"no identity":      {two, 60, []string{"all clients hold 950 bytes", "this connection holds 0 bytes"}, retryBudget},
	} {
		t.Run(name, func(t *testing.T) {
			err := statusOf(c.account.refuse("values", c.bytes), location{}).Err()
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

// TestReserve checks under random traffic what the budget promises: the limit holds, holders of much leave
// half of the reserve alone, and holders of little are refused only where little ones fill that half.
func TestReserve(t *testing.T) {
	rapid.Check(t, func(t *rapid.T) {
		limit := rapid.Int64Range(256, 1<<20).Draw(t, "limit")
		b := newBudget(limit, func(refusedFor) {}, nil)
		all := make([]*account, 60)
		for i := range all {
			all[i] = b.open(nil).account(nil)
		}
		t.Repeat(map[string]func(*rapid.T){
			"take": func(t *rapid.T) {
				a := rapid.SampledFrom(all).Draw(t, "account")
				bytes := rapid.OneOf(rapid.Int64Range(0, b.little()), rapid.Int64Range(0, limit)).Draw(t, "bytes")
				little := int64(0)
				for _, other := range all {
					if other.holdsLittle() {
						little += other.own.Load()
					}
				}
				taken := a.charge(bytes, rapid.Bool().Draw(t, "reply"))
				if holds := a.own.Load() + bytes; !taken && holds <= b.little() && little+bytes <= limit/16 {
					t.Fatalf("%d bytes were refused to one who then holds %d, where little ones hold %d of %d", bytes, holds, little, limit)
				}
			},
			"release": func(t *rapid.T) {
				a := rapid.SampledFrom(all).Draw(t, "account")
				a.release(rapid.Int64Range(0, a.own.Load()).Draw(t, "bytes"))
			},
			"": func(t *rapid.T) {
				sum, much := int64(0), int64(0)
				for _, a := range all {
					sum += a.own.Load()
					if !a.holdsLittle() {
						much += a.own.Load()
					}
				}
				if b.total() != sum || sum > limit || much > limit-limit/8/2 {
					t.Fatalf("%d bytes are held, %d counted, %d by holders of much, of %d", sum, b.total(), much, limit)
				}
			},
		})
	})
}

// TestAccountsAtOnce checks that concurrent charges add up, and leave nothing behind.
func TestAccountsAtOnce(t *testing.T) {
	b := newBudget(1000, func(refusedFor) {}, nil)
	who := identities(t, map[string]string{"x": "models: []"})["x"]
	var group sync.WaitGroup
	for range 8 {
		group.Go(func() {
			for n := range 2000 {
				l := b.open(nil)
				a := l.account([]*auth.Identity{nil, who}[n%2])
				if bytes := int64(n % 400); a.reserve(bytes) {
					l.close()
					a.release(bytes)
				} else {
					_ = a.refuse("", bytes)
				}
				a.Add(5)
				l.close()
				a.Add(-5)
			}
		})
	}
	group.Wait()
	if held := b.identities[who.ByteShare()].held.Load(); b.total() != 0 || held != 0 || len(b.lines) != 0 {
		t.Errorf("%d bytes are held, %d of them by the identity, %d connections are left", b.total(), held, len(b.lines))
	}
}

// TestEndTheHeaviest checks that connections are ended by what they weigh: charges, calls and what has
// arrived for them. Those that weigh little are spared, and so is what belongs to no connection.
func TestEndTheHeaviest(t *testing.T) {
	b := newBudget(1<<20, func(refusedFor) {}, func() int64 { return 1 << 20 })
	var ended []string
	open := func(name string, calls, arrived int, charged int64) *line {
		l := b.open(func(string) { ended = append(ended, name) })
		for range calls {
			l.begin()
		}
		l.received(arrived)
		l.account(nil).Add(charged)
		return l
	}
	open("charged", 0, 0, 900<<10)
	open("half a message", 1, 800<<10, 0)
	open("small", 1, 0, 0)
	open("no call that it could be of", 0, 1<<30, 0)
	read := open("messages that were read", 1, 0, 0)
	for range 1000 {
		read.received(20_000)
		read.handed(19_900)
	}
	open("closed", 9, 1<<30, 0).close()
	b.shared.Add(500 << 10)
	if n := b.endHeaviest(100 << 10); n != 1 || !slices.Equal(ended, []string{"charged"}) {
		t.Errorf("%d connections were ended: %q", n, ended)
	}
	ended = nil
	if n := b.endHeaviest(1 << 40); n != 2 || !slices.Equal(ended, []string{"charged", "half a message"}) {
		t.Errorf("%d connections were ended: %q", n, ended)
	}
}

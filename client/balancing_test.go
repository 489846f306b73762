package client_test

import (
	"slices"
	"testing"

	"google.golang.org/grpc"
	healthpb "google.golang.org/grpc/health/grpc_health_v1"
	"google.golang.org/grpc/resolver"
	"google.golang.org/grpc/resolver/manual"

	"github.com/ckd-project/ckd/client"
)

// balanced returns a client of several replicas under one name, and the resolver that sets the
// addresses of the name.
func balanced(t *testing.T, replicas []*fake, opts ...client.Option) (*client.Client, *manual.Resolver) {
	t.Helper()
	names := manual.NewBuilderWithScheme("replicas")
	names.InitialState(addresses(replicas))
	opts = append(opts, client.WithBalancing(), client.WithInsecure(), client.WithDialOptions(grpc.WithResolvers(names)))
	c, err := client.Dial("replicas:///ckd", opts...)
	ok(t, err)
	t.Cleanup(func() { _ = c.Close() })
	return c, names
}

func addresses(replicas []*fake) resolver.State {
	var state resolver.State
	for _, r := range replicas {
		state.Endpoints = append(state.Endpoints, resolver.Endpoint{Addresses: []resolver.Address{{Addr: r.address}}})
	}
	return state
}

// TestBalancing checks that streams are spread over the replicas that serve, and that sessions move
// away from one that dies.
func TestBalancing(t *testing.T) {
	replicas := []*fake{listen(t, "tcp"), listen(t, "tcp"), listen(t, "tcp")}
	c, _ := balanced(t, replicas)
	var sessions []*client.Session
	session := func() {
		t.Helper()
		sessions = append(sessions, newSession(t, c, client.SessionConfig{Reconnect: hasty}))
	}
	// Once all connections are up, streams are spread.
	until(t, "a stream on every replica", func() bool {
		session()
		return !slices.ContainsFunc(replicas, func(r *fake) bool { return r.streams.Load() == 0 })
	})
	before := make([]int64, 3)
	for i, r := range replicas {
		before[i] = r.streams.Load()
	}
	for range 9 {
		session()
	}
	for i, r := range replicas {
		if got := r.streams.Load() - before[i]; got != 3 {
			t.Errorf("replica %d got %d streams of 9, expected 3", i, got)
		}
	}

	// A replica that is not serving gets no more streams.
	replicas[0].health.SetServingStatus("", healthpb.HealthCheckResponse_NOT_SERVING)
	until(t, "no stream on the replica that does not serve", func() bool {
		had := replicas[0].streams.Load()
		for range 6 {
			session()
		}
		return replicas[0].streams.Load() == had
	})

	// When a replica dies, its sessions go on with another.
	replicas[1].stop()
	for _, s := range sessions {
		decideOne(t, s)
	}
	for _, s := range sessions {
		ok(t, s.Close())
	}
}

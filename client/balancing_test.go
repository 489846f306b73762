package client_test

import (
	"os"
	"path/filepath"
	"slices"
	"sync/atomic"
	"testing"

	"google.golang.org/grpc"
	"google.golang.org/grpc/codes"
	healthpb "google.golang.org/grpc/health/grpc_health_v1"
	"google.golang.org/grpc/metadata"
	"google.golang.org/grpc/resolver"
	"google.golang.org/grpc/resolver/manual"
	"google.golang.org/grpc/status"

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

// TestBalancingWithToken checks that health watches present the token too.
func TestBalancingWithToken(t *testing.T) {
	path := filepath.Join(t.TempDir(), "token")
	ok(t, os.WriteFile(path, []byte("0123456789abcdef\n"), 0o600))
	var watched atomic.Int64
	known := func(srv any, stream grpc.ServerStream, info *grpc.StreamServerInfo, next grpc.StreamHandler) error {
		md, _ := metadata.FromIncomingContext(stream.Context())
		if got := md.Get("authorization"); !slices.Equal(got, []string{"Bearer 0123456789abcdef"}) {
			return status.Errorf(codes.Unauthenticated, "%s with the tokens %q", info.FullMethod, got)
		}
		if info.FullMethod == healthpb.Health_Watch_FullMethodName {
			watched.Add(1)
		}
		return next(srv, stream)
	}
	c, _ := balanced(t, []*fake{listen(t, "tcp", grpc.StreamInterceptor(known))}, client.WithTokenFile(path))
	s := newSession(t, c, client.SessionConfig{})
	decideOne(t, s)
	ok(t, s.Close())
	if watched.Load() == 0 {
		t.Error("nobody asked for the replica's health")
	}
}

// TestBalancingFindsReplicas checks that a new replica is found when the name is looked up again.
func TestBalancingFindsReplicas(t *testing.T) {
	first, second := listen(t, "tcp"), listen(t, "tcp")
	c, names := balanced(t, []*fake{first})
	s := newSession(t, c, client.SessionConfig{Reconnect: hasty})
	decideOne(t, s)
	names.UpdateState(addresses([]*fake{first, second}))
	until(t, "a call on the second", func() bool {
		_, err := c.Decompose(t.Context(), one())
		ok(t, err)
		second.mu.Lock()
		defer second.mu.Unlock()
		return len(second.calls) > 0
	})
	ok(t, s.Close())
}

package client_test

import (
	"net"
	"os"
	"path/filepath"
	"slices"
	"sync"
	"sync/atomic"
	"testing"
	"time"

	"google.golang.org/grpc"
	"google.golang.org/grpc/codes"
	"google.golang.org/grpc/health"
	healthpb "google.golang.org/grpc/health/grpc_health_v1"
	"google.golang.org/grpc/metadata"
	"google.golang.org/grpc/resolver"
	"google.golang.org/grpc/resolver/manual"
	"google.golang.org/grpc/status"

	"github.com/ckd-project/ckd/client"
	ckdv1 "github.com/ckd-project/ckd/proto/ckd/v1"
)

// replica is a daemon on the loopback that tells its health.
type replica struct {
	*fake
	health  *health.Server
	address string
	stop    func()
}

func startReplica(t *testing.T, opts ...grpc.ServerOption) *replica {
	t.Helper()
	listener, err := net.Listen("tcp", "127.0.0.1:0")
	ok(t, err)
	r := &replica{fake: newFake(2), health: health.NewServer(), address: listener.Addr().String()}
	server := grpc.NewServer(opts...)
	ckdv1.RegisterUncertaintyServiceServer(server, r)
	healthpb.RegisterHealthServer(server, r.health)
	var wg sync.WaitGroup
	wg.Go(func() { _ = server.Serve(recordingListener{listener, r.fake}) })
	r.stop = sync.OnceFunc(func() {
		server.Stop()
		wg.Wait()
	})
	t.Cleanup(r.stop)
	return r
}

// begun is how many streams it was given.
func (r *replica) begun() int {
	r.mu.Lock()
	defer r.mu.Unlock()
	return r.streams
}

// balanced is a client of some replicas under one name, and what tells the name's
// addresses.
func balanced(t *testing.T, replicas []*replica, opts ...client.Option) (*client.Client, *manual.Resolver) {
	t.Helper()
	names := manual.NewBuilderWithScheme("replicas")
	names.InitialState(addresses(replicas))
	opts = append(opts, client.WithBalancing(), client.WithInsecure(), client.WithDialOptions(grpc.WithResolvers(names)))
	c, err := client.Dial("replicas:///ckd", opts...)
	ok(t, err)
	t.Cleanup(func() { _ = c.Close() })
	return c, names
}

func addresses(replicas []*replica) resolver.State {
	var state resolver.State
	for _, r := range replicas {
		state.Endpoints = append(state.Endpoints, resolver.Endpoint{Addresses: []resolver.Address{{Addr: r.address}}})
	}
	return state
}

// until waits for what other goroutines bring about.
func until(t *testing.T, what string, is func() bool) {
	t.Helper()
	for deadline := time.Now().Add(time.Minute); !is(); time.Sleep(time.Millisecond) {
		if time.Now().After(deadline) {
			t.Fatalf("%s: not within a minute", what)
		}
	}
}

// decideOne has a session decide on one input.
func decideOne(t *testing.T, s *client.Session) {
	t.Helper()
	g := open(t, s, "a")
	ok(t, g.SendPasses(2, slices.Concat(low, low)))
	if r := wait(t, g)[0]; !r.Retained() {
		t.Errorf("result %+v, expected it retained", r)
	}
}

func TestBalancing(t *testing.T) {
	replicas := []*replica{startReplica(t), startReplica(t), startReplica(t)}
	c, _ := balanced(t, replicas)
	var sessions []*client.Session
	session := func() {
		t.Helper()
		s, err := c.Session(t.Context(), client.SessionConfig{Model: model, Reconnect: hasty})
		ok(t, err)
		sessions = append(sessions, s)
	}
	// Streams are spread, once all connections are there.
	until(t, "a stream on every replica", func() bool {
		session()
		return !slices.ContainsFunc(replicas, func(r *replica) bool { return r.begun() == 0 })
	})
	before := make([]int, 3)
	for i, r := range replicas {
		before[i] = r.begun()
	}
	for range 9 {
		session()
	}
	for i, r := range replicas {
		if got := r.begun() - before[i]; got != 3 {
			t.Errorf("replica %d got %d streams of 9, expected 3", i, got)
		}
	}

	// A replica that is not serving gets no more.
	replicas[0].health.SetServingStatus("", healthpb.HealthCheckResponse_NOT_SERVING)
	until(t, "no stream on the replica that does not serve", func() bool {
		had := replicas[0].begun()
		for range 6 {
			session()
		}
		return replicas[0].begun() == had
	})

	// Sessions of a replica that dies go on with another.
	replicas[1].stop()
	for _, s := range sessions {
		decideOne(t, s)
	}
	for _, s := range sessions {
		ok(t, s.Close())
	}
}

// Where every call needs an identity, the health of replicas is asked for with the token.
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
	c, _ := balanced(t, []*replica{startReplica(t, grpc.StreamInterceptor(known))}, client.WithTokenFile(path))
	s, err := c.Session(t.Context(), client.SessionConfig{Model: model})
	ok(t, err)
	decideOne(t, s)
	ok(t, s.Close())
	if watched.Load() == 0 {
		t.Error("nobody asked for the replica's health")
	}
}

// A replica that was added is found when the name is looked up again.
func TestBalancingFindsReplicas(t *testing.T) {
	first, second := startReplica(t), startReplica(t)
	c, names := balanced(t, []*replica{first})
	s, err := c.Session(t.Context(), client.SessionConfig{Model: model, Reconnect: hasty})
	ok(t, err)
	decideOne(t, s)
	names.UpdateState(addresses([]*replica{first, second}))
	until(t, "a call on the second", func() bool {
		_, err := c.Decompose(t.Context(), client.Batch{Model: model, Layout: client.NSK, Passes: 2, Inputs: 1,
			Values: slices.Concat(low, low)})
		ok(t, err)
		second.mu.Lock()
		defer second.mu.Unlock()
		return len(second.calls) > 0
	})
	ok(t, s.Close())
}

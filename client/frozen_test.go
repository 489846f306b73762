package client_test

import (
	"context"
	"errors"
	"net"
	"slices"
	"strings"
	"sync"
	"testing"
	"testing/synctest"
	"time"

	"google.golang.org/grpc"
	"google.golang.org/grpc/codes"
	"google.golang.org/grpc/keepalive"
	"google.golang.org/grpc/status"
	"google.golang.org/grpc/test/bufconn"

	"github.com/ckd-project/ckd/client"
	ckdv1 "github.com/ckd-project/ckd/proto/ckd/v1"
)

// freezer stands between clients and a daemon that stops dead, as by SIGSTOP: its
// connections stay, and new ones are made, but nothing comes back.
type freezer struct {
	*bufconn.Listener
	frozen chan struct{}
}

func (z freezer) dial(ctx context.Context, _ string) (net.Conn, error) {
	conn, err := z.DialContext(ctx)
	return &freezing{Conn: conn, frozen: z.frozen, closed: make(chan struct{})}, err
}

type freezing struct {
	net.Conn
	frozen, closed chan struct{}
	once           sync.Once
}

func (c *freezing) Read(p []byte) (int, error) {
	n, err := c.Conn.Read(p)
	select {
	case <-c.frozen:
		<-c.closed
		return 0, net.ErrClosed
	default:
		return n, err
	}
}

func (c *freezing) Write(p []byte) (int, error) {
	select {
	case <-c.frozen:
		return len(p), nil // into the kernel's buffers
	default:
		return c.Conn.Write(p)
	}
}

func (c *freezing) Close() error {
	c.once.Do(func() { close(c.closed) })
	return c.Conn.Close()
}

// freezable serves a fake, and returns a client of it, what freezes it, and what ends
// both.
func freezable(f *fake, opts ...client.Option) (c *client.Client, freeze, stop func()) {
	z := freezer{bufconn.Listen(1 << 16), make(chan struct{})}
	server := grpc.NewServer(grpc.KeepaliveEnforcementPolicy(keepalive.EnforcementPolicy{MinTime: 10 * time.Second}))
	ckdv1.RegisterUncertaintyServiceServer(server, f)
	var wg sync.WaitGroup
	wg.Go(func() { _ = server.Serve(z) })
	opts = append([]client.Option{client.WithInsecure(), client.WithDialOptions(grpc.WithContextDialer(z.dial))}, opts...)
	c, err := client.Dial("passthrough:///fake", opts...)
	if err != nil {
		panic(err)
	}
	return c, func() { close(z.frozen) }, func() {
		_ = c.Close()
		server.Stop()
		wg.Wait()
	}
}

// A daemon that is connected, and does not answer any more, is given up like one that
// is lost. The clock is synctest's, so that no time passes.
func TestFrozenDaemon(t *testing.T) {
	const pings, limit = 25 * time.Second, 30 * time.Second // that are missed; of Reconnect
	cases := []struct {
		name   string
		config client.SessionConfig
		opts   []client.Option
		within time.Duration
		text   string
	}{
		{"by default", client.SessionConfig{}, nil, pings + limit, "tried again for 30s"},
		{"a short limit", client.SessionConfig{Reconnect: client.Reconnect{Limit: 2 * time.Second}}, nil, pings + 2*time.Second, "tried again for 2s"},
		{"no other stream", client.SessionConfig{Reconnect: client.Reconnect{Disabled: true}}, nil, pings, "keepalive"},
		{"the caller's pings", client.SessionConfig{Reconnect: client.Reconnect{Disabled: true}},
			[]client.Option{client.WithDialOptions(grpc.WithKeepaliveParams(keepalive.ClientParameters{Time: time.Hour, Timeout: time.Minute}))},
			2 * time.Hour, "keepalive"},
	}
	for _, c := range cases {
		t.Run(c.name, func(t *testing.T) {
			synctest.Test(t, func(t *testing.T) {
				f := newFake(2)
				cl, freeze, stop := freezable(f, c.opts...)
				defer stop()
				ctx, cancel := context.WithTimeout(t.Context(), 24*time.Hour)
				defer cancel()
				c.config.Model = model
				s, err := cl.Session(ctx, c.config)
				ok(t, err)
				decideOne(t, s)
				time.Sleep(5 * time.Minute) // in which a daemon that lives is not given up

				freeze()
				since := time.Now()
				g := open(t, s, "b")
				ok(t, g.SendPasses(2, slices.Concat(low, low)))
				r := wait(t, g)[0]
				var fault *client.InputError
				if r.Retained() || !errors.As(r.Err, &fault) || !fault.Unanswered || !strings.Contains(fault.Error(), c.text) {
					t.Errorf("result %+v, expected that it is unanswered, with %q", r, c.text)
				}
				if waited := time.Since(since); waited > c.within+time.Second {
					t.Errorf("it took %v, expected %v", waited, c.within)
				}
				if strings.HasPrefix(c.name, "the caller's") && time.Since(since) < 30*time.Minute {
					t.Errorf("it took %v: the caller's own pings do not win", time.Since(since))
				}
				if err := s.Close(); status.Code(err) != codes.Unavailable {
					t.Errorf("Close: %v, expected UNAVAILABLE", err)
				}
			})
		})
	}
}

// So are a call and a first stream.
func TestFrozenDaemonAtTheStart(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		c, freeze, stop := freezable(newFake(2))
		defer stop()
		ctx, cancel := context.WithTimeout(t.Context(), time.Hour)
		defer cancel()
		batch := client.Batch{Model: model, Layout: client.NSK, Passes: 2, Inputs: 1, Values: slices.Concat(low, low)}
		_, err := c.Decompose(ctx, batch)
		ok(t, err)
		freeze()
		if _, err := c.Session(ctx, client.SessionConfig{Model: model}); status.Code(err) != codes.Unavailable {
			t.Errorf("Session: %v, expected UNAVAILABLE", err)
		}
		if _, err := c.Decompose(ctx, batch); status.Code(err) != codes.Unavailable {
			t.Errorf("Decompose: %v, expected UNAVAILABLE", err)
		}
	})
}

package client_test

import (
	"context"
	"net"
	"strings"
	"sync"
	"testing"
	"testing/synctest"
	"time"

	"google.golang.org/grpc"
	"google.golang.org/grpc/codes"
	"google.golang.org/grpc/keepalive"

	"github.com/ckd-project/ckd/client"
)

// freezing wraps a connection to a daemon that freezes, as by SIGSTOP: connections stay, new ones
// are accepted, and nothing comes back.
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
		return len(p), nil // accepted, as by the kernel's buffers
	default:
		return c.Conn.Write(p)
	}
}

func (c *freezing) Close() error {
	c.once.Do(func() { close(c.closed) })
	return c.Conn.Close()
}

// freezable lets a test freeze the daemon.
func (f *fake) freezable() (freeze func()) {
	frozen := make(chan struct{})
	f.wrap = func(c net.Conn) net.Conn { return &freezing{Conn: c, frozen: frozen, closed: make(chan struct{})} }
	return func() { close(frozen) }
}

// TestFrozenDaemon checks that the client gives up a daemon that is connected but no longer
// answers, like a lost one. synctest's clock makes the waiting instant.
func TestFrozenDaemon(t *testing.T) {
	const pings, limit = 25 * time.Second, 30 * time.Second // until missed pings are noticed; limit of Reconnect
	cases := []struct {
		name   string
		config client.SessionConfig
		opts   []client.Option
		within time.Duration
		text   string
	}{
		{"by default", client.SessionConfig{}, nil, pings + limit, "tried again for 30s"},
		{"no other stream", client.SessionConfig{Reconnect: client.Reconnect{Disabled: true}}, nil, pings, "keepalive"},
		{"the caller's pings", client.SessionConfig{Reconnect: client.Reconnect{Disabled: true}},
			[]client.Option{client.WithDialOptions(grpc.WithKeepaliveParams(keepalive.ClientParameters{Time: time.Hour, Timeout: time.Minute}))},
			2 * time.Hour, "keepalive"},
	}
	for _, c := range cases {
		t.Run(c.name, func(t *testing.T) {
			synctest.Test(t, func(t *testing.T) {
				f := newFake(2)
				freeze := f.freezable()
				cl := f.dial(t, c.opts...)
				ctx, cancel := context.WithTimeout(t.Context(), 24*time.Hour)
				defer cancel()
				c.config.Model = model
				s, err := cl.Session(ctx, c.config)
				ok(t, err)
				decideOne(t, s)
				time.Sleep(5 * time.Minute) // a living daemon is not given up in this time

				freeze()
				since := time.Now()
				g := open(t, s, "b")
				ok(t, g.SendPasses(2, every(low, 2)))
				unanswered(t, fault{codes.Unavailable, 0, c.text}, wait(t, g)...)
				if waited := time.Since(since); waited > c.within+time.Second {
					t.Errorf("it took %v, expected %v", waited, c.within)
				}
				if strings.HasPrefix(c.name, "the caller's") && time.Since(since) < 30*time.Minute {
					t.Errorf("it took %v: the caller's own pings do not win", time.Since(since))
				}
				fault{code: codes.Unavailable}.check(t, "Close", s.Close())
			})
		})
	}
}

package client_test

import (
	"context"
	"net"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"sync"
	"sync/atomic"
	"testing"

	"google.golang.org/grpc"
	"google.golang.org/grpc/codes"
	"google.golang.org/grpc/credentials/insecure"
	"google.golang.org/grpc/metadata"
	"google.golang.org/grpc/status"

	"github.com/ckd-project/ckd/client"
)

// doorman accepts some tokens and records which ones come.
type doorman struct {
	mu     sync.Mutex
	good   []string
	visits []string // headers of the calls, in order
}

func (d *doorman) check(ctx context.Context) error {
	d.mu.Lock()
	defer d.mu.Unlock()
	headers := metadata.ValueFromIncomingContext(ctx, "authorization")
	d.visits = append(d.visits, strings.Join(headers, ", "))
	if len(headers) == 1 && slices.Contains(d.good, strings.TrimPrefix(headers[0], "Bearer ")) {
		return nil
	}
	return status.Error(codes.Unauthenticated, "who are you?")
}

func (d *doorman) accept(tokens ...string) {
	d.mu.Lock()
	defer d.mu.Unlock()
	d.good, d.visits = tokens, nil
}

// came expects that exactly these tokens came since accept.
func (d *doorman) came(t *testing.T, what string, want ...string) {
	t.Helper()
	d.mu.Lock()
	defer d.mu.Unlock()
	if !slices.Equal(d.visits, want) {
		t.Errorf("%s: came with %q, expected %q", what, d.visits, want)
	}
}

func (d *doorman) options() []grpc.ServerOption {
	return []grpc.ServerOption{
		grpc.UnaryInterceptor(func(ctx context.Context, request any, _ *grpc.UnaryServerInfo, handle grpc.UnaryHandler) (any, error) {
			if err := d.check(ctx); err != nil {
				return nil, err
			}
			return handle(ctx, request)
		}),
		grpc.StreamInterceptor(func(server any, stream grpc.ServerStream, _ *grpc.StreamServerInfo, handle grpc.StreamHandler) error {
			if err := d.check(stream.Context()); err != nil {
				return err
			}
			return handle(server, stream)
		}),
	}
}

// tokenClient returns a client on the loopback with a token in a file.
func tokenClient(t *testing.T, d *doorman, token string) (c *client.Client, path string, f *fake) {
	t.Helper()
	f = listen(t, "tcp", d.options()...)
	path = filepath.Join(t.TempDir(), "token")
	write(t, path, []byte(token))
	c, err := client.Dial(f.address, client.WithTokenFile(path))
	ok(t, err)
	t.Cleanup(func() { _ = c.Close() })
	return c, path, f
}

// TestTokenIsReadAgain checks that calls and streams present the token that the file holds, or the
// last one if it holds none.
func TestTokenIsReadAgain(t *testing.T) {
	d := &doorman{good: []string{"first"}}
	c, path, _ := tokenClient(t, d, "first\n")
	call := func() error {
		_, err := c.Models(t.Context())
		return err
	}
	session := func() error {
		s, err := c.Session(t.Context(), client.SessionConfig{Model: model})
		if err == nil {
			decideOne(t, s)
			err = s.Close()
		}
		return err
	}
	for name, do := range map[string]func() error{"call": call, "session": session} {
		t.Run(name, func(t *testing.T) {
			write(t, path, []byte("first\n"))
			d.accept("first")
			ok(t, do())

			write(t, path, []byte("second"))
			d.accept("second")
			ok(t, do())
			d.came(t, "after a change", "Bearer second")
			d.accept("third")
			fault{code: codes.Unauthenticated}.check(t, "an old token", do())
			d.came(t, "without another", "Bearer second")

			// A file that cannot be read changes nothing.
			d.accept("second")
			write(t, path, nil)
			ok(t, do())
			ok(t, os.Remove(path))
			ok(t, do())
		})
	}
}

// TestTokenOfASession checks that a session whose token was replaced goes on with the new one, and
// that it ends without a new one.
func TestTokenOfASession(t *testing.T) {
	d := &doorman{good: []string{"first"}}
	c, path, f := tokenClient(t, d, "first")
	var revoke atomic.Bool
	f.at = func(m moment) error {
		if m == received && revoke.CompareAndSwap(true, false) {
			return status.Error(codes.Unauthenticated, "revoked")
		}
		return nil
	}
	s := newSession(t, c, client.SessionConfig{Reconnect: hasty})
	revoke.Store(true)
	write(t, path, []byte("second"))
	d.accept("second")
	decideOne(t, s)
	d.came(t, "the next stream", "Bearer second")

	revoke.Store(true)
	g := open(t, s, "a")
	_ = g.Send(low)
	unanswered(t, fault{code: codes.Unauthenticated}, wait(t, g)...)
	fault{code: codes.Unauthenticated}.check(t, "Close", s.Close())
}

// TestDialRefusesTokens checks that Dial refuses token files that it cannot use, and connections
// over which a token would be sent in plaintext.
func TestDialRefusesTokens(t *testing.T) {
	dir := t.TempDir()
	path := func(name, text string) string {
		write(t, filepath.Join(dir, name), []byte(text))
		return filepath.Join(dir, name)
	}
	good := path("good", "s3cret-of-ours")
	plain := client.WithDialOptions(grpc.WithTransportCredentials(insecure.NewCredentials()))
	const elsewhere = "a token is not sent over plaintext"
	for _, c := range []struct {
		name, target, token string
		option              client.Option
		want                string
	}{
		{"loopback", "localhost:8590", good, nil, ""},
		{"unix", "unix:/run/ckd.sock", good, nil, ""},
		{"TLS", "ckd:8590", good, client.WithTLS(client.TLSFiles{}), ""},
		{"plaintext that is wanted", "ckd:8590", good, client.WithInsecure(), ""},
		{"nothing", "ckd:8590", good, nil, "no credentials: plaintext is for unix sockets and loopback addresses"},
		{"plaintext", "ckd:8590", good, plain, elsewhere},
		{"no file", "localhost:8590", filepath.Join(dir, "none"), nil, "token: open " + filepath.Join(dir, "none")},
		{"empty", "localhost:8590", path("empty", " \n"), nil, "empty: the file is empty, expected a token"},
		{"not ASCII", "localhost:8590", path("umlaut", "s3crét"), nil, "expected one token of visible ASCII"},
		{"large", "localhost:8590", path("large", strings.Repeat("s3cret", 1<<12)), nil, "expected at most 16384 bytes"},
	} {
		t.Run(c.name, func(t *testing.T) {
			opts := []client.Option{client.WithTokenFile(c.token)}
			if c.option != nil {
				opts = append(opts, c.option)
			}
			checkDial(t, c.want, c.target, opts...)
		})
	}
}

// TestTokenIsNotSentOverPlaintext checks that, whatever the options, no token is sent over plaintext
// that WithInsecure did not allow.
func TestTokenIsNotSentOverPlaintext(t *testing.T) {
	d := &doorman{good: []string{"first"}}
	_, path, f := tokenClient(t, d, "first")
	plain := grpc.WithTransportCredentials(insecure.NewCredentials())
	elsewhere := grpc.WithContextDialer(func(ctx context.Context, _ string) (net.Conn, error) {
		return new(net.Dialer).DialContext(ctx, "tcp", f.address)
	})
	c, err := client.Dial("localhost:1", client.WithTokenFile(path), client.WithDialOptions(plain, elsewhere))
	ok(t, err)
	defer c.Close()
	_, err = c.Models(t.Context())
	fault{codes.Unauthenticated, 0, "a token is not sent over plaintext"}.check(t, "Models", err)
	allowed, err := client.Dial("localhost:1", client.WithTokenFile(path), client.WithInsecure(), client.WithDialOptions(elsewhere))
	ok(t, err)
	defer allowed.Close()
	_, err = allowed.Models(t.Context())
	ok(t, err)
	d.came(t, "plaintext", "Bearer first")
}

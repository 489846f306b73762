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
	"google.golang.org/grpc/credentials"
	"google.golang.org/grpc/credentials/insecure"
	"google.golang.org/grpc/metadata"
	"google.golang.org/grpc/status"

	"github.com/ckd-project/ckd/client"
)

// doorman accepts some tokens, and counts those who come.
type doorman struct {
	mu       sync.Mutex
	good     []string
	came     []string // with what
	rotating func()   // is called once, before the next is refused
}

func (d *doorman) check(ctx context.Context) error {
	d.mu.Lock()
	defer d.mu.Unlock()
	headers := metadata.ValueFromIncomingContext(ctx, "authorization")
	d.came = append(d.came, strings.Join(headers, ", "))
	if len(headers) == 1 && slices.Contains(d.good, strings.TrimPrefix(headers[0], "Bearer ")) {
		return nil
	}
	if d.rotating != nil {
		d.rotating()
		d.rotating = nil
	}
	return status.Error(codes.Unauthenticated, "who are you?")
}

func (d *doorman) accept(tokens ...string) {
	d.mu.Lock()
	defer d.mu.Unlock()
	d.good, d.came = tokens, nil
}

func (d *doorman) visits() []string {
	d.mu.Lock()
	defer d.mu.Unlock()
	return slices.Clone(d.came)
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

// tokenClient is a client with a token in a file, on the loopback.
func tokenClient(t *testing.T, d *doorman, token string) (c *client.Client, path string, r *replica) {
	t.Helper()
	r = startReplica(t, d.options()...)
	path = filepath.Join(t.TempDir(), "token")
	write(t, path, []byte(token))
	c, err := client.Dial(r.address, client.WithTokenFile(path))
	ok(t, err)
	t.Cleanup(func() { _ = c.Close() })
	return c, path, r
}

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
		write(t, path, []byte("first\n"))
		d.accept("first")
		ok(t, do())

		// Another file, before the old token is refused.
		write(t, path, []byte("second"))
		d.accept("first", "second")
		ok(t, do())
		if got := d.visits(); !slices.Equal(got, []string{"Bearer second"}) {
			t.Errorf("%s: came with %q, expected the new token", name, got)
		}

		// One that looks the same, found out by the refusal.
		is, err := os.Stat(path)
		ok(t, err)
		ok(t, os.WriteFile(path, []byte("fourth"), 0o600))
		ok(t, os.Chtimes(path, is.ModTime(), is.ModTime()))
		d.accept("fourth")
		ok(t, do())
		if got := d.visits(); !slices.Equal(got, []string{"Bearer second", "Bearer fourth"}) {
			t.Errorf("%s: came with %q, expected both tokens", name, got)
		}

		// No other token: no other attempt.
		d.accept("fifth")
		if err := do(); status.Code(err) != codes.Unauthenticated {
			t.Errorf("%s: error %v, expected Unauthenticated", name, err)
		}
		if got := d.visits(); !slices.Equal(got, []string{"Bearer fourth"}) {
			t.Errorf("%s: came with %q, expected it once", name, got)
		}

		// What cannot be read changes nothing.
		d.accept("fourth")
		write(t, path, nil)
		ok(t, do())
		ok(t, os.Remove(path))
		ok(t, do())
	}
}

// A session whose token was replaced goes on with the new one, and without one it
// ends.
func TestTokenOfASession(t *testing.T) {
	d := &doorman{good: []string{"first"}}
	c, path, r := tokenClient(t, d, "first")
	var revoke atomic.Bool
	r.at = func(m moment) error {
		if m == received && revoke.CompareAndSwap(true, false) {
			return status.Error(codes.Unauthenticated, "revoked")
		}
		return nil
	}
	s, err := c.Session(t.Context(), client.SessionConfig{Model: model, Reconnect: hasty})
	ok(t, err)
	revoke.Store(true)
	write(t, path, []byte("second"))
	d.accept("second")
	decideOne(t, s)
	if got := d.visits(); !slices.Equal(got, []string{"Bearer second"}) {
		t.Errorf("came with %q, expected the new token once", got)
	}

	revoke.Store(true)
	g := open(t, s, "a")
	_ = g.Send(low)
	if e := inputError(t, wait(t, g)[0]); e.Code != codes.Unauthenticated || !e.Unanswered {
		t.Errorf("error %v, expected Unauthenticated", e)
	}
	if err := s.Close(); status.Code(err) != codes.Unauthenticated {
		t.Errorf("Close: %v, expected Unauthenticated", err)
	}
}

// A token replaced while a call is refused is tried within the same call.
func TestTokenIsReplacedMeanwhile(t *testing.T) {
	d := &doorman{}
	c, path, _ := tokenClient(t, d, "first")
	d.rotating = func() { // called with mu held
		write(t, path, []byte("second"))
		d.good = []string{"second"}
	}
	_, err := c.Models(t.Context())
	ok(t, err)
	if got := d.visits(); !slices.Equal(got, []string{"Bearer first", "Bearer second"}) {
		t.Errorf("came with %q, expected both", got)
	}
}

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
		{"credentials", "ckd:8590", good, client.WithCredentials(credentials.NewTLS(nil)), ""},
		{"plaintext that is wanted", "ckd:8590", good, client.WithInsecure(), ""},
		{"nothing", "ckd:8590", good, nil, "no credentials: plaintext is for unix sockets and loopback addresses"},
		{"plaintext", "ckd:8590", good, plain, elsewhere},
		{"plaintext as credentials", "ckd:8590", good, client.WithCredentials(insecure.NewCredentials()), elsewhere},
		{"no file", "localhost:8590", filepath.Join(dir, "none"), nil, "token: open " + filepath.Join(dir, "none")},
		{"no name", "localhost:8590", "", nil, "token: open : no such file"},
		{"a folder", "localhost:8590", dir, nil, "is a directory"},
		{"empty", "localhost:8590", path("empty", " \n"), nil, "empty: the file is empty, expected a token"},
		{"two lines", "localhost:8590", path("two", "s3cret\nof-ours"), nil, "expected one token of visible ASCII"},
		{"two words", "localhost:8590", path("words", "Bearer s3cret-of-ours"), nil, "expected one token of visible ASCII"},
		{"not ASCII", "localhost:8590", path("umlaut", "s3crét"), nil, "expected one token of visible ASCII"},
		{"large", "localhost:8590", path("large", strings.Repeat("s3cret", 1<<12)), nil, "expected at most 16384 bytes"},
	} {
		opts := []client.Option{client.WithTokenFile(c.token)}
		if c.option != nil {
			opts = append(opts, c.option)
		}
		cl, err := client.Dial(c.target, opts...)
		if err == nil {
			ok(t, cl.Close())
		}
		if (err == nil) != (c.want == "") || err != nil && !strings.Contains(err.Error(), c.want) {
			t.Errorf("%s: error %v, expected %q", c.name, err, c.want)
		}
		if err != nil && strings.Contains(err.Error(), "s3c") {
			t.Errorf("%s: the error shows the token: %v", c.name, err)
		}
	}
}

// Whatever an option makes of the connection: over plaintext that nobody allowed, no
// token is sent.
func TestTokenIsNotSentOverPlaintext(t *testing.T) {
	d := &doorman{good: []string{"first"}}
	_, path, r := tokenClient(t, d, "first")
	plain := grpc.WithTransportCredentials(insecure.NewCredentials())
	elsewhere := grpc.WithContextDialer(func(ctx context.Context, _ string) (net.Conn, error) {
		return new(net.Dialer).DialContext(ctx, "tcp", r.address)
	})
	c, err := client.Dial("localhost:1", client.WithTokenFile(path), client.WithDialOptions(plain, elsewhere))
	ok(t, err)
	defer c.Close()
	_, err = c.Models(t.Context())
	if status.Code(err) != codes.Unauthenticated || !strings.Contains(err.Error(), "a token is not sent over plaintext") {
		t.Errorf("error %v, expected that no token is sent", err)
	}
	allowed, err := client.Dial("localhost:1", client.WithTokenFile(path), client.WithInsecure(), client.WithDialOptions(elsewhere))
	ok(t, err)
	defer allowed.Close()
	_, err = allowed.Models(t.Context())
	ok(t, err)
	if got := d.visits(); !slices.Equal(got, []string{"Bearer first"}) {
		t.Errorf("came with %q, expected the one that was allowed", got)
	}
}

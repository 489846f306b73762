package auth_test

import (
	"context"
	"errors"
	"fmt"
	"os"
	"path/filepath"
	"strings"
	"testing"
	"time"

	"google.golang.org/grpc"

	"github.com/ckd-project/ckd/integration_test/testbed"
	"github.com/ckd-project/ckd/internal/auth"
	"github.com/ckd-project/ckd/internal/watch"
)

// who returns the name of the identity that a token belongs to.
func who(s *auth.Store, token string) string {
	_, who, err := s.Tap(bearer(context.Background(), token), "/a/b")
	if err != nil {
		return ""
	}
	return who.Name()
}

// TestWatch checks that the access file and the token files are followed, those named later included,
// and that neither a fault nor a warning tells a token.
func TestWatch(t *testing.T) {
	const n1, n2, n3 = "token-number-1-0123", "token-number-2-0123", "token-number-3-0123"
	dir := t.TempDir()
	access, first, second := filepath.Join(dir, "access.yaml"), filepath.Join(dir, "first"), filepath.Join(dir, "second")
	put := func(path, text string) {
		t.Helper()
		write(t, path+".new", text)
		if err := os.Rename(path+".new", path); err != nil {
			t.Fatal(err)
		}
	}
	put(first, n1)
	put(access, "identities:\n- {name: a, tokens: [{file: first}]}\n")
	s, err := auth.Open(access, auth.Options{})
	if err != nil {
		t.Fatal(err)
	}
	s.Pace(5 * time.Millisecond)
	outcomes := make(chan watch.Outcome, 100)
	ctx, cancel := context.WithCancel(t.Context())
	done := make(chan struct{})
	go func() {
		defer close(done)
		s.Watch(ctx, func(o watch.Outcome) { outcomes <- o })
	}()
	expect := func(token, name string) {
		t.Helper()
		testbed.Eventually(t, token+" belongs to "+name, func() bool { return who(s, token) == name })
	}
	var told string
	expectOutcome := func(met func(watch.Outcome) bool) {
		t.Helper()
		for o := range outcomes {
			if told += fmt.Sprintln(o.Hash, o.Warnings, o.Err); met(o) {
				return
			}
		}
	}
	expect(n1, "a")
	put(first, n2)
	expect(n2, "a")
	expect(n1, "")
	put(second, n3)
	put(access, "identities:\n- {name: a, tokens: [{file: first}]}\n- {name: b, tokens: [{file: second}]}\n")
	expect(n3, "b")
	put(second, n1)
	expect(n1, "b")
	put(access, "identities:\n- {name: a, tokens: [{file: first}, {sha256: "+n3+"}]}\n")
	expectOutcome(func(o watch.Outcome) bool { return o.Err != nil })
	expect(n1, "b")
	put(access, "identities:\n- {name: c, tokens: [{file: first}]}\n")
	expect(n2, "c")
	if err := os.Remove(first); err != nil {
		t.Fatal(err)
	}
	expect(n2, "")
	expectOutcome(func(o watch.Outcome) bool { return strings.Contains(strings.Join(o.Warnings, ""), "withdrawn") })
	cancel()
	<-done
	for _, secret := range []string{n1, n2, n3, sumOf(n1), sumOf(n2), sumOf(n3)} {
		if strings.Contains(told, secret) {
			t.Errorf("%q tells %s", told, secret)
		}
	}
}

// TestOpenFaults checks that a file that cannot be read, or has a fault, is refused with its place.
func TestOpenFaults(t *testing.T) {
	dir := t.TempDir()
	path := filepath.Join(dir, "access.yaml")
	for name, test := range map[string]struct{ path, text, want string }{
		"empty":                      {path, "", ":1:1: empty, expected a mapping"},
		"a folder as a token":        {path, "identities:\n- {name: a, tokens: [{file: .}]}", `:2:29: identity "a": tokens[0].file: cannot read ` + dir + ": not a regular file"},
		"no file":                    {dir + "/none", "", ": cannot read: no such file or directory"},
		"something else than a file": {"/dev/zero", "", ": cannot read: not a regular file"},
	} {
		t.Run(name, func(t *testing.T) {
			write(t, path, test.text)
			_, err := auth.Open(test.path, auth.Options{})
			var faults auth.Faults
			if !errors.As(err, &faults) || err.Error() != test.path+test.want {
				t.Errorf("%v, want %s%s", err, test.path, test.want)
			}
		})
	}
}

// TestOpenByName checks that probes are open, and methods with similar names are not.
func TestOpenByName(t *testing.T) {
	s, _ := open(t, auth.Options{}, "identities: []")
	for method, want := range map[string]bool{
		"/grpc.health.v1.Health/Check": true, "/grpc.health.v1.Health/List": true, "/grpc.health.v1.Healthy/Check": false,
		"/inference.GRPCInferenceService/ServerLive": true, "/inference.GRPCInferenceService/ServerReady": true, "/inference.GRPCInferenceService/ModelReady": false,
		"/grpc.health.v1.Health/Watch": false, "/grpc.reflection.v1.ServerReflection/ServerReflectionInfo": false, "/grpc.health.v1.HealthX": false, "grpc.health.v1.Health/Check": false, "": false,
	} {
		t.Run(method, func(t *testing.T) {
			if _, _, err := s.Tap(t.Context(), method); (err == nil) != want {
				t.Errorf("%v, want open %t", err, want)
			}
		})
	}
}

// waiting is a stream that brings nothing.
type waiting struct {
	grpc.ServerStream
	ctx context.Context
}

func (w waiting) Context() context.Context { return w.ctx }

// wait opens a stream that brings nothing, with a token.
func wait(t *testing.T, s *auth.Store, token string, handler grpc.StreamHandler) error {
	t.Helper()
	ctx, _, err := s.Tap(bearer(t.Context(), token), "/a/b")
	if err != nil {
		return err
	}
	return s.Stream(nil, waiting{ctx: ctx}, nil, handler)
}

// TestStreamEndsByItsContext checks that a handler which ends because its context was cancelled
// returns the reason, and that one which had succeeded does not fail.
func TestStreamEndsByItsContext(t *testing.T) {
	for _, test := range []struct {
		ends error
		want string
	}{{context.Canceled, "UNAUTHENTICATED"}, {nil, ""}} {
		s, path := open(t, auth.Options{}, onlyA(tokenA))
		err := wait(t, s, tokenA, func(_ any, stream grpc.ServerStream) error {
			reload(t, s, path, "identities: []")
			<-stream.Context().Done()
			return test.ends
		})
		expectReason(t, err, test.want)
	}
}

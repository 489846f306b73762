package auth_test

import (
	"context"
	"errors"
	"os"
	"path/filepath"
	"strings"
	"sync"
	"testing"
	"time"

	"google.golang.org/grpc"

	"github.com/ckd-project/ckd/integration_test/testbed"
	"github.com/ckd-project/ckd/server/auth"
)

// who returns the name of the identity that a token belongs to.
func who(s *auth.Store, token string) string {
	name, err := s.Unary(bearer(context.Background(), token), nil, &grpc.UnaryServerInfo{FullMethod: "/a/b"}, func(ctx context.Context, _ any) (any, error) {
		return auth.FromContext(ctx).Name(), nil
	})
	if err != nil {
		return ""
	}
	return name.(string)
}

// TestWatch checks that the access file and the token files are followed, those named later and
// those of a Secret that is swapped included. A fault changes nothing.
func TestWatch(t *testing.T) {
	dir := t.TempDir()
	at := func(name string) string { return filepath.Join(dir, name) }
	put := func(name, text string) { // by a rename, as careful people do
		t.Helper()
		write(t, at(name+".new"), text)
		if err := os.Rename(at(name+".new"), at(name)); err != nil {
			t.Fatal(err)
		}
	}
	secret := testbed.Kubelet{Dir: t.TempDir()}
	swap := func(token string) {
		t.Helper()
		secret.MustWrite(t, map[string]string{"token": token})
	}
	const n1, n2, n3, n4 = "token-number-1-0123", "token-number-2-0123", "token-number-3-0123", "token-number-4-0123"
	put("a", n1)
	swap(n3)
	put("access.yaml", "identities:\n- {name: a, tokens: [{file: a}]}\n")
	s, err := auth.Open(at("access.yaml"), auth.Options{})
	if err != nil {
		t.Fatal(err)
	}
	s.Pace(time.Millisecond, 20*time.Millisecond, time.Hour)
	var (
		mu       sync.Mutex
		outcomes []auth.Outcome
	)
	ctx, cancel := context.WithCancel(t.Context())
	done := make(chan struct{})
	go func() {
		defer close(done)
		s.Watch(ctx, func(o auth.Outcome) {
			mu.Lock()
			defer mu.Unlock()
			outcomes = append(outcomes, o)
		})
	}()
	last := func() auth.Outcome {
		mu.Lock()
		defer mu.Unlock()
		if len(outcomes) == 0 {
			return auth.Outcome{}
		}
		return outcomes[len(outcomes)-1]
	}
	is := func(token, name string) {
		t.Helper()
		eventually(t, token+" is "+name, func() bool { return who(s, token) == name })
	}
	is(n1, "a")
	put("a", n2)
	is(n2, "a")
	is(n1, "")
	put("access.yaml", "identities:\n- {name: a, tokens: [{file: a}]}\n- {name: b, tokens: [{file: "+secret.Path("token")+"}]}\n")
	is(n3, "b")
	swap(n4)
	is(n4, "b")
	is(n3, "")
	put("access.yaml", "identities:\n- {name: a, tokens: [{file: a}, {sha256: "+n4+"}]}\n")
	eventually(t, "a fault", func() bool { return last().Err != nil })
	is(n4, "b")
	is(n2, "a")
	put("a", "short")
	eventually(t, "a fault again", func() bool { return last().Err != nil })
	is(n2, "a")
	put("access.yaml", "identities:\n- {name: c, tokens: [{file: a}]}\n")
	put("a", n1)
	is(n1, "c")
	is(n4, "")
	eventually(t, "a success", func() bool { return last().Err == nil && last().Changed })
	if err := os.Remove(at("a")); err != nil {
		t.Fatal(err)
	}
	is(n1, "")
	eventually(t, "a warning", func() bool { return len(last().Warnings) > 0 && strings.Contains(last().Warnings[0], "withdrawn") })
	put("a", n1)
	is(n1, "c")
	cancel()
	<-done
	for _, o := range outcomes {
		text := strings.Join(o.Warnings, " ") + o.Hash
		if o.Err != nil {
			text += o.Err.Error()
		}
		for _, secret := range []string{n1, n2, n3, n4, sumOf(n1), sumOf(n2), sumOf(n3), sumOf(n4), "short "} {
			if strings.Contains(text, secret) {
				t.Errorf("%q tells %s", text, secret)
			}
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

// TestReloadSameMeaning checks that a file with the same meaning is no change.
func TestReloadSameMeaning(t *testing.T) {
	const one, two, three = "token-number-1-0123", "token-number-2-0123", "token-number-3-0123"
	file := func(tokens, rest string) string {
		return "identities:\n- {name: a, tokens: [" + tokens + "], " + rest + "}\n- name: b\n"
	}
	hash := func(token string) string { return "{sha256: " + sumOf(token) + "}" }
	s, path := open(t, auth.Options{}, file(hash(one)+", "+hash(two), "certificates: [a, b], models: [m, n]"))
	write(t, filepath.Join(filepath.Dir(path), "token"), two)
	for _, step := range []struct {
		name, text string
		changed    bool
	}{
		{"another order", "# the same\nidentities:\n- {name: b, streams: 0, admin: false}\n" +
			"- {name: a, tokens: [" + hash(two) + ", " + hash(one) + "], certificates: [b, a], models: [n, m]}\n", false},
		{"a token of a file", file("{file: token}, "+hash(one), "certificates: [b, a], models: [n, m]"), false},
		{"another token", file("{file: token}, "+hash(three), "certificates: [b, a], models: [n, m]"), true},
		{"a model less", file("{file: token}, "+hash(three), "certificates: [b, a], models: [n]"), true},
		{"a certificate less", file("{file: token}, "+hash(three), "certificates: [b], models: [n]"), true},
		{"a right more", file("{file: token}, "+hash(three), "certificates: [b], models: [n], recent: true"), true},
		{"a fault", "identities: no", false},
	} {
		write(t, path, step.text)
		if out := s.Reload("test"); out.Changed != step.changed || out.Hash != s.Hash() || len(out.Hash) != 64 || out.Trigger != "test" {
			t.Errorf("%s: %+v, want changed %t", step.name, out, step.changed)
		}
	}
}

// TestOpenByName checks that health is open, and services with similar names are not.
func TestOpenByName(t *testing.T) {
	s, _ := open(t, auth.Options{}, "identities: []")
	for method, want := range map[string]bool{
		"/grpc.health.v1.Health/Check": true, "/grpc.health.v1.Health/List": true, "/grpc.health.v1.Healthy/Check": false,
		"/grpc.health.v1.HealthX": false, "grpc.health.v1.Health/Check": false, "": false,
	} {
		t.Run(method, func(t *testing.T) {
			_, err := s.Unary(t.Context(), nil, &grpc.UnaryServerInfo{FullMethod: method}, func(context.Context, any) (any, error) { return nil, nil })
			if (err == nil) != want {
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

// TestStreamEndsByItsContext checks that a handler which ends because its context was cancelled
// returns the reason, and that one which had succeeded does not fail.
func TestStreamEndsByItsContext(t *testing.T) {
	for _, test := range []struct {
		ends error
		want string
	}{{context.Canceled, "UNAUTHENTICATED"}, {nil, ""}} {
		s, path := open(t, auth.Options{}, onlyA(tokenA))
		err := s.Stream(nil, waiting{ctx: bearer(t.Context(), tokenA)}, &grpc.StreamServerInfo{FullMethod: "/a/b"}, func(_ any, stream grpc.ServerStream) error {
			reload(t, s, path, "identities: []")
			<-stream.Context().Done()
			return test.ends
		})
		expectReason(t, err, test.want)
	}
}

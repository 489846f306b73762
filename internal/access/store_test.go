package access_test

import (
	"context"
	"errors"
	"go/ast"
	"go/parser"
	"go/token"
	"os"
	"path/filepath"
	"strconv"
	"strings"
	"sync"
	"testing"
	"time"

	"google.golang.org/grpc"
	"google.golang.org/grpc/metadata"

	"github.com/ckd-project/ckd/internal/access"
	"github.com/ckd-project/ckd/internal/watch"
)

// who a token is, for a store.
func who(s *access.Store, token string) string {
	ctx := metadata.NewIncomingContext(context.Background(), metadata.Pairs("authorization", "Bearer "+token))
	name, err := s.Unary(ctx, nil, &grpc.UnaryServerInfo{FullMethod: "/a/b"}, func(ctx context.Context, _ any) (any, error) {
		return access.FromContext(ctx).Name(), nil
	})
	if err != nil {
		return ""
	}
	return name.(string)
}

// The access file and the files of tokens are followed, also those that are named
// later, and those of a Secret that is swapped. A fault changes nothing.
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
	generation := 0
	swap := func(token string) { // of a Secret, as the kubelet does
		t.Helper()
		generation++
		name := ".." + strconv.Itoa(generation)
		err := errors.Join(os.MkdirAll(filepath.Join(dir, "secret", name), 0o700),
			os.WriteFile(filepath.Join(dir, "secret", name, "token"), []byte(token), 0o600),
			os.Symlink(name, at("secret/..tmp")), os.Rename(at("secret/..tmp"), at("secret/..data")))
		if generation == 1 {
			err = errors.Join(err, os.Symlink("..data/token", at("secret/token")))
		}
		if err != nil {
			t.Fatal(err)
		}
	}
	const n1, n2, n3, n4 = "token-number-1-0123", "token-number-2-0123", "token-number-3-0123", "token-number-4-0123"
	put("a", n1)
	swap(n3)
	put("access.yaml", "identities:\n- {name: a, tokens: [{file: a}]}\n")
	s, err := access.Open(at("access.yaml"), access.Options{})
	if err != nil {
		t.Fatal(err)
	}
	s.Pace(time.Millisecond, 20*time.Millisecond, time.Hour)
	var (
		mu       sync.Mutex
		outcomes []watch.Outcome
	)
	ctx, cancel := context.WithCancel(t.Context())
	done := make(chan struct{})
	go func() {
		defer close(done)
		s.Watch(ctx, func(o watch.Outcome) {
			mu.Lock()
			defer mu.Unlock()
			outcomes = append(outcomes, o)
		})
	}()
	last := func() watch.Outcome {
		mu.Lock()
		defer mu.Unlock()
		if len(outcomes) == 0 {
			return watch.Outcome{}
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
	put("access.yaml", "identities:\n- {name: a, tokens: [{file: a}]}\n- {name: b, tokens: [{file: secret/token}]}\n")
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

func TestOpenFaults(t *testing.T) {
	dir := t.TempDir()
	path := filepath.Join(dir, "access.yaml")
	for _, test := range []struct{ text, want string }{
		{"", path + ":1:1: empty, expected a mapping"},
		{"identities:\n- {name: a, tokens: [{file: .}]}", path + `:2:29: identity "a": tokens[0].file: cannot read ` + dir + ": not a regular file"},
	} {
		write(t, path, test.text)
		_, err := access.Open(path, access.Options{})
		var faults access.Faults
		if !errors.As(err, &faults) || err.Error() != test.want {
			t.Errorf("%v, want %s", err, test.want)
		}
	}
	for path, want := range map[string]string{
		dir + "/none": dir + "/none: cannot read: no such file or directory", "/dev/zero": "/dev/zero: cannot read: not a regular file",
	} {
		if _, err := access.Open(path, access.Options{}); err == nil || err.Error() != want {
			t.Errorf("%v, want %s", err, want)
		}
	}
}

// Looking for a token takes the same way through the code whichever token it is:
// the loop over them compares by crypto/subtle alone and never branches.
func TestTokensInConstantTime(t *testing.T) {
	file, err := parser.ParseFile(token.NewFileSet(), "store.go", nil, 0)
	if err != nil {
		t.Fatal(err)
	}
	loops, compared := 0, 0
	for _, d := range file.Decls {
		f, ok := d.(*ast.FuncDecl)
		if !ok || f.Name.Name != "byToken" {
			continue
		}
		ast.Inspect(f.Body, func(n ast.Node) bool {
			loop, ok := n.(*ast.RangeStmt)
			if !ok {
				return true
			}
			loops++
			ast.Inspect(loop.Body, func(n ast.Node) bool {
				switch n := n.(type) {
				case *ast.IfStmt, *ast.ReturnStmt, *ast.BranchStmt, *ast.SwitchStmt, *ast.ForStmt, *ast.RangeStmt, *ast.BinaryExpr:
					t.Errorf("%T in the loop over the tokens", n)
				case *ast.CallExpr:
					called, ok := n.Fun.(*ast.SelectorExpr)
					if !ok || called.X.(*ast.Ident).Name != "subtle" {
						t.Error("the loop over the tokens calls what is not of crypto/subtle")
						return true
					}
					if called.Sel.Name == "ConstantTimeCompare" {
						compared++
					}
				}
				return true
			})
			return false
		})
	}
	if loops != 1 || compared != 1 {
		t.Errorf("%d loops with %d comparisons in byToken, want one of each", loops, compared)
	}
}

// Files that mean the same are no change, whatever else is different in them.
func TestReloadSameMeaning(t *testing.T) {
	const one, two, three = "token-number-1-0123", "token-number-2-0123", "token-number-3-0123"
	s, path := open(t, access.Options{}, "identities:\n- {name: a, tokens: [{sha256: "+sumOf(one)+"}, {sha256: "+sumOf(two)+"}], certificates: [a, b], models: [m, n]}\n- {name: b}\n")
	file := filepath.Join(filepath.Dir(path), "token")
	write(t, file, two)
	for i, step := range []struct {
		text    string
		changed bool
	}{
		{"# the same\nidentities:\n- {name: b, streams: 0, admin: false}\n- {name: a, tokens: [{sha256: " + sumOf(two) + "}, {sha256: " + sumOf(one) + "}], certificates: [b, a], models: [n, m]}\n", false},
		{"identities:\n- {name: a, tokens: [{file: token}, {sha256: " + sumOf(one) + "}], certificates: [b, a], models: [n, m]}\n- name: b\n", false},
		{"identities:\n- {name: a, tokens: [{file: token}, {sha256: " + sumOf(three) + "}], certificates: [b, a], models: [n, m]}\n- name: b\n", true},
		{"identities:\n- {name: a, tokens: [{file: token}, {sha256: " + sumOf(three) + "}], certificates: [b, a], models: [n]}\n- name: b\n", true},
		{"identities:\n- {name: a, tokens: [{file: token}, {sha256: " + sumOf(three) + "}], certificates: [b], models: [n]}\n- name: b\n", true},
		{"identities:\n- {name: a, tokens: [{file: token}, {sha256: " + sumOf(three) + "}], certificates: [b], models: [n], reload: true}\n- name: b\n", true},
		{"identities: no", false},
	} {
		write(t, path, step.text)
		if out := s.Reload("test"); out.Changed != step.changed || out.Hash != s.Hash() || len(out.Hash) != 64 || out.Trigger != "test" {
			t.Errorf("step %d: %+v, want changed %t", i, out, step.changed)
		}
	}
}

// Health is open, and what is only named alike is not.
func TestOpenByName(t *testing.T) {
	s, _ := open(t, access.Options{}, "identities: []")
	for method, want := range map[string]bool{
		"/grpc.health.v1.Health/Check": true, "/grpc.health.v1.Health/List": true, "/grpc.health.v1.Healthy/Check": false,
		"/grpc.health.v1.HealthX": false, "grpc.health.v1.Health/Check": false, "/grpc.channelz.v1.Channelz/GetServers": false, "": false,
	} {
		_, err := s.Unary(t.Context(), nil, &grpc.UnaryServerInfo{FullMethod: method}, func(context.Context, any) (any, error) { return nil, nil })
		if (err == nil) != want {
			t.Errorf("%s: %v, want open %t", method, err, want)
		}
	}
}

// waiting is a stream of which nothing comes.
type waiting struct {
	grpc.ServerStream
	ctx context.Context
}

func (w waiting) Context() context.Context { return w.ctx }

// A handler that ends since its context did has ended for the reason of that. One
// that was done is not made to fail.
func TestStreamEndsByItsContext(t *testing.T) {
	for _, test := range []struct {
		ends error
		want string
	}{{context.Canceled, "UNAUTHENTICATED"}, {nil, ""}} {
		s, path := open(t, access.Options{}, "identities:\n- {name: a, tokens: [{sha256: "+sumOf(tokenA)+"}]}\n")
		ctx := metadata.NewIncomingContext(t.Context(), metadata.Pairs("authorization", "Bearer "+tokenA))
		err := s.Stream(nil, waiting{ctx: ctx}, &grpc.StreamServerInfo{FullMethod: "/a/b"}, func(_ any, stream grpc.ServerStream) error {
			write(t, path, "identities: []")
			s.Reload("test")
			<-stream.Context().Done()
			return test.ends
		})
		if got := reasonOf(t, err); got != test.want || (err == nil) != (test.want == "") {
			t.Errorf("%v, want %q", err, test.want)
		}
	}
}

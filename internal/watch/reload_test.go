package watch

import (
	"context"
	"errors"
	"io/fs"
	"os"
	"path/filepath"
	"strings"
	"sync"
	"sync/atomic"
	"testing"
	"time"

	"go.uber.org/goleak"

	"github.com/ckd-project/ckd/integration_test/testbed"
)

func TestMain(m *testing.M) { goleak.VerifyTestMain(m) }

func put(t *testing.T, path, text string) {
	t.Helper()
	if err := os.WriteFile(path, []byte(text), 0o600); err != nil {
		t.Fatal(err)
	}
}

// TestWatchFollowsWhatIsNamed checks that Watch follows a file as soon as another file names it.
func TestWatchFollowsWhatIsNamed(t *testing.T) {
	dir := t.TempDir()
	list := filepath.Join(dir, "list")
	var (
		mu    sync.Mutex
		named = []string{}
		last  string
	)
	places := func() *Places {
		mu.Lock()
		defer mu.Unlock()
		return PlacesOf(append([]string{list}, named...)...)
	}
	r := NewReloader(places, func() (Result, error) {
		text, err := os.ReadFile(list)
		if err != nil {
			return Result{}, err
		}
		names, content := strings.Fields(string(text)), ""
		for i, name := range names {
			names[i] = filepath.Join(dir, name)
			one, err := os.ReadFile(names[i])
			if err != nil {
				return Result{}, err
			}
			content += string(one)
		}
		mu.Lock()
		defer mu.Unlock()
		named, last = names, content
		return Result{Changed: true}, nil
	})
	r.Quiet, r.AtMost, r.Poll = time.Millisecond, 10*time.Millisecond, time.Hour
	is := func(want string) {
		t.Helper()
		testbed.Eventually(t, want, func() bool {
			mu.Lock()
			defer mu.Unlock()
			return last == want
		})
	}
	put(t, list, "a/token")
	if err := errors.Join(os.Mkdir(filepath.Join(dir, "a"), 0o700), os.Mkdir(filepath.Join(dir, "b"), 0o700)); err != nil {
		t.Fatal(err)
	}
	put(t, filepath.Join(dir, "a/token"), "1")
	put(t, filepath.Join(dir, "b/token"), "2")
	ctx, cancel := context.WithCancel(t.Context())
	done := make(chan struct{})
	go func() {
		defer close(done)
		r.Watch(ctx, func(Outcome) {})
	}()
	is("1")
	put(t, filepath.Join(dir, "a/token"), "11")
	is("11")
	put(t, list, "b/token a/token")
	is("211")
	put(t, filepath.Join(dir, "b/token"), "22")
	is("2211")
	cancel()
	<-done
}

// TestReloadOtherwise checks that a change, another failure and other warnings are reported.
func TestReloadOtherwise(t *testing.T) {
	var next struct {
		Result
		err error
	}
	r := NewReloader(func() *Places { return PlacesOf() }, func() (Result, error) { return next.Result, next.err })
	for i, test := range []struct {
		warnings []string
		err      error
		want     bool
	}{
		{nil, nil, false},
		{[]string{"a"}, nil, true},
		{[]string{"a"}, nil, false},
		{[]string{"b"}, nil, true},
		{[]string{"b"}, fs.ErrInvalid, true},
		{[]string{"b"}, fs.ErrInvalid, false},
		{[]string{"b"}, fs.ErrClosed, true},
		{nil, fs.ErrClosed, true},
		{nil, nil, true},
		{nil, nil, false},
	} {
		next.Warnings, next.err = test.warnings, test.err
		out, otherwise := r.reload("test")
		if otherwise != test.want || !errors.Is(out.Err, test.err) || out.Trigger != "test" || out.At.IsZero() {
			t.Errorf("step %d: %+v, otherwise %t, want %t", i, out, otherwise, test.want)
		}
	}
}

// TestReloadsInTurn checks that reloads run one after another.
func TestReloadsInTurn(t *testing.T) {
	var underWay, most atomic.Int64
	r := NewReloader(func() *Places { return PlacesOf() }, func() (Result, error) {
		n := underWay.Add(1)
		defer underWay.Add(-1)
		time.Sleep(time.Millisecond) // so that others come meanwhile
		if n > 1 {
			most.Store(n)
		}
		return Result{}, nil
	})
	var all sync.WaitGroup
	for range 20 {
		all.Go(func() { r.Reload("test") })
	}
	all.Wait()
	if most.Load() > 0 {
		t.Errorf("%d at one time", most.Load())
	}
}

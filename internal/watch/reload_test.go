package watch

import (
	"context"
	"errors"
	"io/fs"
	"os"
	"path/filepath"
	"sync/atomic"
	"testing"
	"time"

	"go.uber.org/goleak"

	"github.com/ckd-project/ckd/integration_test/testbed"
	"github.com/fsnotify/fsnotify"
)

func TestMain(m *testing.M) { goleak.VerifyTestMain(m) }

func put(t *testing.T, path, text string) {
	t.Helper()
	if err := os.WriteFile(path, []byte(text), 0o600); err != nil {
		t.Fatal(err)
	}
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

// TestWatchPolls checks a watch that the system does not notify: polls find changes, a failure that
// they find again is no news, and the outcomes say why there is no watch until there is one.
func TestWatchPolls(t *testing.T) {
	file := filepath.Join(t.TempDir(), "file")
	put(t, file, "one")
	var (
		reads atomic.Int64
		can   atomic.Bool
		held  string
	)
	r := NewReloader(func() *Places { return PlacesOf(file) }, func() (Result, error) {
		reads.Add(1)
		text, err := os.ReadFile(file)
		if err == nil && string(text) == "bad" {
			err = fs.ErrInvalid
		}
		if err != nil || string(text) == held {
			return Result{}, err
		}
		held = string(text)
		return Result{Changed: true, Hash: held}, nil
	})
	r.Quiet, r.AtMost, r.Poll = time.Millisecond, time.Second, 5*time.Millisecond
	r.Notifications = func() (*fsnotify.Watcher, error) {
		if !can.Load() {
			return nil, errors.New("too many open files")
		}
		return fsnotify.NewWatcher()
	}
	replace := func(text string) {
		put(t, file+"~", text)
		if err := os.Rename(file+"~", file); err != nil {
			t.Fatal(err)
		}
	}
	outcomes := make(chan Outcome, 100)
	ctx, cancel := context.WithCancel(t.Context())
	done := make(chan struct{})
	go func() {
		defer close(done)
		r.Watch(ctx, func(o Outcome) { outcomes <- o })
	}()
	expect := func(hash string, fault error, watched bool) {
		t.Helper()
		if o := <-outcomes; o.Hash != hash || !errors.Is(o.Err, fault) || (o.WatchErr == nil) != watched {
			t.Fatalf("%+v, want %q, %v, watched %t", o, hash, fault, watched)
		}
	}
	polled := func() {
		t.Helper()
		before := reads.Load()
		testbed.Eventually(t, "10 more polls", func() bool { return reads.Load() > before+10 })
	}
	expect("one", nil, false)
	replace("bad")
	expect("", fs.ErrInvalid, false)
	polled()
	replace("one")
	expect("", nil, false)
	can.Store(true)
	expect("", nil, true)
	polled()
	cancel()
	<-done
	if len(outcomes) > 0 {
		t.Errorf("%+v is reported, and no news", <-outcomes)
	}
}

// TestWatchWaitsForQuiet checks that a watch does not read a file that still changes, not even by a
// poll, that it reads one that never rests after the longest wait, and that it reads all files when
// the system reports that it dropped events.
func TestWatchWaitsForQuiet(t *testing.T) {
	systems := make(chan *fsnotify.Watcher, 2)
	watched := func(atMost, poll time.Duration) (file string, reads *atomic.Int64) {
		file, reads = filepath.Join(t.TempDir(), "file"), new(atomic.Int64)
		put(t, file, "")
		r := NewReloader(func() *Places { return PlacesOf(file) }, func() (Result, error) {
			reads.Add(1)
			return Result{}, nil
		})
		r.Quiet, r.AtMost, r.Poll = time.Hour, atMost, poll
		r.Notifications = func() (*fsnotify.Watcher, error) {
			system, err := fsnotify.NewWatcher()
			systems <- system
			return system, err
		}
		ctx, cancel := context.WithCancel(context.Background())
		done := make(chan struct{})
		go func() {
			defer close(done)
			r.Watch(ctx, func(Outcome) {})
		}()
		t.Cleanup(func() {
			cancel()
			<-done
		})
		testbed.Eventually(t, "the watch has begun", func() bool { return reads.Load() > 0 })
		return file, reads
	}
	rested := func(reads *atomic.Int64) func() bool {
		return func() bool {
			before, tick := reads.Load(), time.NewTicker(time.Millisecond) // as rare as polls, also on a busy machine
			defer tick.Stop()
			for range 200 {
				<-tick.C
			}
			return reads.Load() == before
		}
	}
	file, reads := watched(time.Hour, time.Millisecond)
	put(t, file, "x")
	testbed.Eventually(t, "no more polls", rested(reads))
	<-systems
	file, reads = watched(50*time.Millisecond, time.Hour)
	before := reads.Load()
	testbed.Eventually(t, "a reload of a file that never rests", func() bool {
		put(t, file, "y")
		return reads.Load() > before
	})
	testbed.Eventually(t, "no more reloads", rested(reads))
	before = reads.Load()
	(<-systems).Errors <- fsnotify.ErrEventOverflow
	testbed.Eventually(t, "a reload after dropped events", func() bool { return reads.Load() > before })
}

package watch

import (
	"context"
	"errors"
	"io/fs"
	"os"
	"path/filepath"
	"strings"
	"sync/atomic"
	"testing"
	"time"

	"go.uber.org/goleak"

	"github.com/ckd-project/ckd/integration_test/testbed"
)

func TestMain(m *testing.M) { goleak.VerifyTestMain(m) }

// put replaces a file as a whole.
func put(t *testing.T, path, text string) {
	t.Helper()
	if err := os.WriteFile(path+".next", []byte(text), 0o600); err != nil {
		t.Fatal(err)
	}
	if err := os.Rename(path+".next", path); err != nil {
		t.Fatal(err)
	}
}

// TestReloadOtherwise checks that a change, another failure and other warnings are reported.
func TestReloadOtherwise(t *testing.T) {
	var next struct {
		Result
		err error
	}
	r := NewReloader(func() []string { return nil }, func() (Result, error) { return next.Result, next.err })
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

// TestWatch checks that a watch reads files that have changed and come to rest, that it reads one that
// never rests all the same, that it finds by polling what a look cannot show, and that a failure that
// it finds again is no news.
func TestWatch(t *testing.T) {
	file := filepath.Join(t.TempDir(), "file")
	put(t, file, "one")
	watched := func(t *testing.T, every, atMost, poll time.Duration, looks ...string) (reads *atomic.Int64, outcomes chan Outcome) {
		reads, outcomes = new(atomic.Int64), make(chan Outcome, 100)
		var held string
		r := NewReloader(func() []string { return looks }, func() (Result, error) {
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
		r.Every, r.AtMost, r.Poll = every, atMost, poll
		ctx, cancel := context.WithCancel(context.Background())
		done := make(chan struct{})
		go func() {
			defer close(done)
			r.Watch(ctx, func(o Outcome) { outcomes <- o })
		}()
		t.Cleanup(func() {
			cancel()
			<-done
			if len(outcomes) > 0 {
				t.Errorf("%+v is reported, and no news", <-outcomes)
			}
		})
		if o := <-outcomes; o.Hash == "" || o.Err != nil || o.Trigger != "watch" {
			t.Fatalf("%+v, want a first reload", o)
		}
		return reads, outcomes
	}
	textOf := func(i int) string { return strings.Repeat("x", 10+i) }
	change := func(i int) { put(t, file, textOf(i)) }
	expect := func(t *testing.T, outcomes <-chan Outcome, i int) {
		t.Helper()
		for o := range outcomes {
			if o.Hash == textOf(i) {
				return
			}
		}
	}

	t.Run("polls", func(t *testing.T) {
		reads, outcomes := watched(t, time.Millisecond, time.Hour, 5*time.Millisecond)
		for _, step := range []struct {
			text string
			want error
		}{{"bad", fs.ErrInvalid}, {"two", nil}} {
			put(t, file, step.text)
			if o := <-outcomes; !errors.Is(o.Err, step.want) || o.Changed != (step.want == nil) {
				t.Errorf("%s: %+v, want %v", step.text, o, step.want)
			}
			before := reads.Load()
			testbed.Eventually(t, "10 more polls", func() bool { return reads.Load() > before+10 })
		}
	})
	t.Run("rest", func(t *testing.T) {
		reads, outcomes := watched(t, 100*time.Millisecond, time.Hour, time.Hour, file)
		const changes = 1000
		for i := range changes {
			change(i)
			time.Sleep(time.Millisecond)
		}
		expect(t, outcomes, changes-1)
		if n := reads.Load(); n > 5 { // and not 2, as a busy machine may pause the changes
			t.Errorf("%d reads, want one of the file as it came to rest", n)
		}
	})
	t.Run("never rests", func(t *testing.T) {
		_, outcomes := watched(t, time.Millisecond, 50*time.Millisecond, time.Hour, file)
		last := 0
		for ; len(outcomes) == 0; last++ {
			change(last)
		}
		expect(t, outcomes, last-1)
	})
}

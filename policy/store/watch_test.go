package store_test

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

	"github.com/fsnotify/fsnotify"

	"github.com/ckd-project/ckd/integration_test/testbed"
	"github.com/ckd-project/ckd/policy/store"
)

// observer holds a store that is watched until the end of the test, and what it reports.
type observer struct {
	*store.Store
	mu       sync.Mutex
	outcomes []store.Outcome
}

// watch watches a store, which waits until its files have been quiet, at most for a time, and polls.
func watch(t *testing.T, s *store.Store, quiet, atMost, poll time.Duration) *observer {
	t.Helper()
	s.Pace(quiet, atMost, poll)
	o := &observer{Store: s}
	ctx, cancel := context.WithCancel(context.Background())
	ended := make(chan struct{})
	go func() {
		defer close(ended)
		s.Watch(ctx, func(out store.Outcome) {
			o.mu.Lock()
			defer o.mu.Unlock()
			o.outcomes = append(o.outcomes, out)
		})
	}()
	t.Cleanup(func() {
		cancel()
		<-ended
	})
	return o
}

// reports returns the reports so far.
func (o *observer) reports() []store.Outcome {
	o.mu.Lock()
	defer o.mu.Unlock()
	return append([]store.Outcome(nil), o.outcomes...)
}

func (o *observer) last() store.Outcome {
	if reports := o.reports(); len(reports) > 0 {
		return reports[len(reports)-1]
	}
	return store.Outcome{}
}

// inForce waits for a set of these models.
func (o *observer) inForce(t *testing.T, models string) {
	t.Helper()
	testbed.Eventually(t, "the models "+models+" in force and reported", func() bool {
		last := o.last()
		return strings.Join(names(o.Set()), " ") == models && last.Changed && last.Err == nil && last.Hash == o.Set().Hash()
	})
}

// failed waits for a failure to be reported last, while these models stay.
func (o *observer) failed(t *testing.T, models string) {
	t.Helper()
	testbed.Eventually(t, "a failure reported", func() bool { return o.last().Err != nil })
	if got := strings.Join(names(o.Set()), " "); got != models || o.last().Changed {
		t.Errorf("models %s in force after %+v, want %s as before", got, o.last(), models)
	}
}

// ways lists how people and machines replace policies. Each sets the files to a text, again and
// again, and says what path to open.
var ways = []struct {
	name  string
	start func(t *testing.T) (path string, put func(text string))
}{
	{"a file is written over", func(t *testing.T) (string, func(string)) {
		dir := t.TempDir()
		return filepath.Join(dir, "policy.yaml"), func(text string) { write(t, dir, "policy.yaml", text) }
	}},
	{"a file is written over, in a directory", func(t *testing.T) (string, func(string)) {
		dir := t.TempDir()
		return dir, func(text string) { write(t, dir, "policy.yaml", text) }
	}},
	{"a file is emptied and written slowly", func(t *testing.T) (string, func(string)) {
		dir := t.TempDir()
		return dir, func(text string) {
			f, err := os.Create(filepath.Join(dir, "policy.yaml"))
			if err != nil {
				t.Fatal(err)
			}
			defer f.Close()
			for _, b := range []byte(text) {
				if _, err := f.Write([]byte{b}); err != nil {
					t.Fatal(err)
				}
				time.Sleep(100 * time.Microsecond)
			}
		}
	}},
	{"a file is renamed over", func(t *testing.T) (string, func(string)) {
		dir := t.TempDir()
		return filepath.Join(dir, "policy.yaml"), func(text string) {
			rename(t, write(t, dir, ".policy.yaml.new", text), filepath.Join(dir, "policy.yaml"))
		}
	}},
	{"a file is set aside and written anew", func(t *testing.T) (string, func(string)) {
		dir := t.TempDir()
		return dir, func(text string) {
			if _, err := os.Stat(filepath.Join(dir, "policy.yaml")); err == nil {
				rename(t, filepath.Join(dir, "policy.yaml"), filepath.Join(dir, "policy.yaml~"))
			}
			write(t, dir, "policy.yaml", text)
		}
	}},
	{"another file instead", func(t *testing.T) (string, func(string)) {
		dir, before, n := t.TempDir(), "", 0
		return dir, func(text string) {
			n++
			if before != "" {
				if err := os.Remove(before); err != nil {
					t.Fatal(err)
				}
			}
			before = write(t, dir, string(rune('a'+n))+".yaml", text)
		}
	}},
	{"a ConfigMap", func(t *testing.T) (string, func(string)) {
		k := testbed.Kubelet{Dir: t.TempDir()}
		return k.Dir, func(text string) { k.MustWrite(t, map[string]string{"policy.yaml": text}) }
	}},
	{"a ConfigMap of an older kubelet", func(t *testing.T) (string, func(string)) {
		k := testbed.Kubelet{Dir: t.TempDir(), LinksFirst: true}
		return k.Dir, func(text string) { k.MustWrite(t, map[string]string{"policy.yaml": text}) }
	}},
	{"a ConfigMap whose key is renamed", func(t *testing.T) (string, func(string)) {
		k, n := testbed.Kubelet{Dir: t.TempDir()}, 0
		return k.Dir, func(text string) {
			n++
			k.MustWrite(t, map[string]string{string(rune('a'+n)) + ".yaml": text})
		}
	}},
	{"a file of a ConfigMap", func(t *testing.T) (string, func(string)) {
		k := testbed.Kubelet{Dir: t.TempDir()}
		return k.Path("policy.yaml"), func(text string) { k.MustWrite(t, map[string]string{"policy.yaml": text}) }
	}},
	{"a link to a file of a ConfigMap", func(t *testing.T) (string, func(string)) {
		k := testbed.Kubelet{Dir: t.TempDir()}
		link := filepath.Join(t.TempDir(), "policy.yaml")
		symlink(t, k.Path("policy.yaml"), link)
		return link, func(text string) { k.MustWrite(t, map[string]string{"policy.yaml": text}) }
	}},
	{"a link to a directory leads to another", func(t *testing.T) (string, func(string)) {
		dir, n := t.TempDir(), 0
		return filepath.Join(dir, "current", "policies"), func(text string) {
			n++
			version := string(rune('0' + n))
			write(t, dir, version+"/policies/policy.yaml", text)
			symlink(t, version, filepath.Join(dir, "next"))
			rename(t, filepath.Join(dir, "next"), filepath.Join(dir, "current"))
		}
	}},
	{"a file behind links is written over", func(t *testing.T) (string, func(string)) {
		dir, there := t.TempDir(), t.TempDir()
		symlink(t, there, filepath.Join(dir, "there"))
		symlink(t, "there/../"+filepath.Base(there)+"/file", filepath.Join(dir, "policy.yaml"))
		return dir, func(text string) { write(t, there, "file", text) }
	}},
	{"the directory is removed and made again", func(t *testing.T) (string, func(string)) {
		dir := filepath.Join(t.TempDir(), "policies")
		return dir, func(text string) {
			if err := os.RemoveAll(dir); err != nil {
				t.Fatal(err)
			}
			write(t, dir, "policy.yaml", text)
		}
	}},
	{"the directory is replaced", func(t *testing.T) (string, func(string)) {
		parent, n := t.TempDir(), 0
		dir := filepath.Join(parent, "policies")
		return dir, func(text string) {
			n++
			write(t, parent, "next/policy.yaml", text)
			if n > 1 {
				rename(t, dir, filepath.Join(parent, "old"))
			}
			rename(t, filepath.Join(parent, "next"), dir)
			if err := os.RemoveAll(filepath.Join(parent, "old")); err != nil {
				t.Fatal(err)
			}
		}
	}},
	{"the directory of a file behind a link is replaced", func(t *testing.T) (string, func(string)) {
		dir, n := t.TempDir(), 0
		symlink(t, "there/file", filepath.Join(dir, "policy.yaml"))
		return filepath.Join(dir, "policy.yaml"), func(text string) {
			n++
			write(t, dir, "next/file", text)
			if n > 1 {
				rename(t, filepath.Join(dir, "there"), filepath.Join(dir, string(rune('0'+n))))
			}
			rename(t, filepath.Join(dir, "next"), filepath.Join(dir, "there"))
		}
	}},
	{"the directory above is removed and made again", func(t *testing.T) (string, func(string)) {
		above := filepath.Join(t.TempDir(), "above")
		return filepath.Join(above, "b", "policies"), func(text string) {
			if err := os.RemoveAll(above); err != nil {
				t.Fatal(err)
			}
			write(t, above, "b/policies/policy.yaml", text)
		}
	}},
}

// TestWatch checks that every kind of change is noticed without polling, more than once, and after
// a fault.
func TestWatch(t *testing.T) {
	for _, way := range ways {
		t.Run(way.name, func(t *testing.T) {
			t.Parallel()
			path, put := way.start(t)
			put(model("one"))
			u := &user{}
			s := open(t, u, path)
			o := watch(t, s, 20*time.Millisecond, time.Second, time.Hour)
			put(model("two"))
			o.inForce(t, "two")
			put(bad)
			o.failed(t, "two")
			put(model("three"))
			o.inForce(t, "three")
			put(model("four"))
			o.inForce(t, "four")
			u.check(t, "one", "two", "three", "four")
			for _, out := range o.reports() {
				// In some ways there is nothing to watch for a moment.
				if out.Trigger != "watch" || out.WatchErr != nil && !errors.Is(out.WatchErr, fs.ErrNotExist) {
					t.Errorf("outcome %+v, want the trigger watch and no error of the watch itself", out)
				}
			}
		})
	}
}

// TestWatchGone checks that files that disappear for a while are a fault, and are found when they
// return.
func TestWatchGone(t *testing.T) {
	for _, gone := range []string{"above/policies/policy.yaml", "above/policies", "above"} {
		t.Run(gone, func(t *testing.T) {
			dir := t.TempDir()
			write(t, dir, "above/policies/policy.yaml", model("one"))
			s := open(t, &user{}, filepath.Join(dir, "above/policies"))
			o := watch(t, s, 20*time.Millisecond, time.Second, time.Hour)
			for _, next := range []string{"two", "three"} {
				before := strings.Join(names(s.Set()), " ")
				if err := os.RemoveAll(filepath.Join(dir, gone)); err != nil {
					t.Fatal(err)
				}
				o.failed(t, before)
				write(t, dir, "above/policies/policy.yaml", model(next))
				o.inForce(t, next)
			}
		})
	}
}

// TestWatchDirectoryStorm checks that moving a directory away, removing it and creating it again as
// fast as possible does not stop the watch.
func TestWatchDirectoryStorm(t *testing.T) {
	parent := t.TempDir()
	dir, away := filepath.Join(parent, "policies"), filepath.Join(parent, "away")
	write(t, dir, "policy.yaml", model("one"))
	s := open(t, &user{}, dir)
	o := watch(t, s, time.Microsecond, time.Millisecond, time.Hour)
	for range 300 {
		rename(t, dir, away)
		if err := os.RemoveAll(away); err != nil {
			t.Fatal(err)
		}
		write(t, dir, "policy.yaml", model("storm"))
	}
	write(t, dir, "policy.yaml", model("last"))
	testbed.Eventually(t, "the last set in force", func() bool { return names(o.Set())[0] == "last" })
}

// TestWatchBegins checks that a change between Open and Watch is found when Watch begins, and that
// a change after that waits for quiet.
func TestWatchBegins(t *testing.T) {
	dir := t.TempDir()
	write(t, dir, "policy.yaml", model("one"))
	s := open(t, &user{}, dir)
	write(t, dir, "policy.yaml", model("two"))
	o := watch(t, s, time.Hour, time.Hour, time.Hour)
	o.inForce(t, "two")
	write(t, dir, "policy.yaml", model("three"))
	time.Sleep(50 * time.Millisecond) // enough to see it if it does not wait
	o.inForce(t, "two")
}

// TestWatchWithoutQuiet checks that changes that never pause are read after they have gone on for
// long enough.
func TestWatchWithoutQuiet(t *testing.T) {
	dir := t.TempDir()
	write(t, dir, "a.yaml", model("one"))
	s := open(t, &user{}, dir)
	rename(t, write(t, dir, "new", model("two")), filepath.Join(dir, "a.yaml"))
	o := watch(t, s, time.Hour, 50*time.Millisecond, time.Hour)
	o.inForce(t, "two") // so it has begun
	for _, next := range []string{"three", "four"} {
		testbed.Eventually(t, "the new set in force", func() bool {
			write(t, dir, "a.yaml", model(next))
			return names(o.Set())[0] == next
		})
	}
}

// TestWatchPollsBelow checks that polling finds what the system does not report: here that a
// directory far above was replaced.
func TestWatchPollsBelow(t *testing.T) {
	top := t.TempDir()
	at := func(path string) string { return filepath.Join(top, path) }
	write(t, top, "above/b/policies/policy.yaml", model("one"))
	s := open(t, &user{}, at("above/b/policies"))
	write(t, top, "above/b/policies/policy.yaml", model("two"))
	o := watch(t, s, time.Millisecond, time.Millisecond, 20*time.Millisecond)
	o.inForce(t, "two") // so it has begun, and is told of the next
	write(t, top, "above/b/policies/policy.yaml", model("three"))
	o.inForce(t, "three")
	write(t, top, "next/b/policies/policy.yaml", model("four"))
	rename(t, at("above"), at("old"))
	rename(t, at("next"), at("above"))
	o.inForce(t, "four")
}

// TestWatchPollWaits checks that a poll does not read files that are still changing.
func TestWatchPollWaits(t *testing.T) {
	dir := t.TempDir()
	write(t, dir, "policy.yaml", model("one"))
	u := &user{refuse: "three"}
	s := open(t, u, dir)
	rename(t, write(t, dir, "new", model("two")), filepath.Join(dir, "policy.yaml"))
	watch(t, s, time.Hour, time.Hour, 2*time.Millisecond).inForce(t, "two") // so it has begun, and is told of the next
	rename(t, write(t, dir, "new", model("three")), filepath.Join(dir, "policy.yaml"))
	// A refused set is offered anew whenever the files are read, which is how it is seen here.
	testbed.Eventually(t, "no more reloads", func() bool {
		asked := u.asked.Load()
		time.Sleep(50 * time.Millisecond)
		return u.asked.Load() == asked
	})
}

var errNoInstances = errors.New("too many open files")

// TestWatchPolls checks a watcher that the system does not notify: polling finds changes, says once
// that it polls, and ends as soon as notifications work again.
func TestWatchPolls(t *testing.T) {
	dir := t.TempDir()
	write(t, dir, "policy.yaml", model("one"))
	u := &user{refuse: "three"}
	s := open(t, u, dir)
	var can atomic.Bool
	s.Notifications(func() (*fsnotify.Watcher, error) {
		if can.Load() {
			return fsnotify.NewWatcher()
		}
		return nil, errNoInstances
	})
	o := watch(t, s, time.Millisecond, time.Millisecond, 2*time.Millisecond)
	rename(t, write(t, dir, "new", model("two")), filepath.Join(dir, "policy.yaml"))
	o.inForce(t, "two")

	// A further refusal is no news.
	rename(t, write(t, dir, "new", model("three")), filepath.Join(dir, "policy.yaml"))
	o.failed(t, "two")
	asked := u.asked.Load()
	testbed.Eventually(t, "10 more polls", func() bool { return u.asked.Load() > asked+10 })
	failures := 0
	for _, out := range o.reports() {
		if !errors.Is(out.WatchErr, errNoInstances) {
			t.Errorf("outcome %+v, want why there is no watch", out)
		}
		if out.Err != nil {
			failures++
		}
	}
	if failures != 1 {
		t.Errorf("%d reports of the same failure, want 1", failures)
	}

	// The set in force comes back: nothing changes, but it is a success after a failure.
	rename(t, write(t, dir, "new", model("two")), filepath.Join(dir, "policy.yaml"))
	testbed.Eventually(t, "the success reported", func() bool { return o.last().Err == nil })
	if o.last().Changed {
		t.Errorf("%+v, want an unchanged set", o.last())
	}

	before := len(o.reports())
	can.Store(true)
	testbed.Eventually(t, "a watch", func() bool { return o.last().WatchErr == nil })
	if got := len(o.reports()) - before; got != 1 {
		t.Errorf("%d reports that there is a watch again, want 1", got)
	}
	u.check(t, "one", "two")
}

// TestWatchOverflow checks that the files are read when the system reports that it dropped events.
func TestWatchOverflow(t *testing.T) {
	dir := t.TempDir()
	write(t, dir, "policy.yaml", model("one"))
	u := &user{}
	s := open(t, u, dir)
	opened := make(chan *fsnotify.Watcher, 1)
	s.Notifications(func() (*fsnotify.Watcher, error) {
		w, err := fsnotify.NewWatcher()
		opened <- w
		return w, err
	})
	watch(t, s, time.Millisecond, time.Second, time.Hour)
	system := <-opened
	// Whenever the files are read, a refused set is offered again: the test counts that.
	u.mu.Lock()
	u.refuse = "two"
	u.mu.Unlock()
	write(t, dir, "policy.yaml", model("two"))
	testbed.Eventually(t, "a first reload", func() bool { return u.asked.Load() > 1 })
	for range 3 {
		asked := u.asked.Load()
		system.Errors <- fsnotify.ErrEventOverflow
		testbed.Eventually(t, "a reload after the overflow", func() bool { return u.asked.Load() > asked })
	}
}

func rename(t *testing.T, from, to string) {
	t.Helper()
	if err := os.Rename(from, to); err != nil {
		t.Fatal(err)
	}
}

func symlink(t *testing.T, target, link string) {
	t.Helper()
	if err := os.Symlink(target, link); err != nil {
		t.Fatal(err)
	}
}

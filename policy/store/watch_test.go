package store_test

import (
	"context"
	"errors"
	"os"
	"path/filepath"
	"strings"
	"sync"
	"sync/atomic"
	"testing"
	"time"

	"github.com/fsnotify/fsnotify"

	"github.com/ckd-project/ckd/policy/store"
)

// observer of a store that is watched, until the end of the test.
type observer struct {
	*store.Store
	mu       sync.Mutex
	outcomes []store.Outcome
}

func watch(t *testing.T, s *store.Store) *observer {
	t.Helper()
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

// reports so far.
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
	eventually(t, "the models "+models+" in force and reported", func() bool {
		last := o.last()
		return strings.Join(names(o.Set()), " ") == models && last.Changed && last.Err == nil && last.Hash == o.Set().Hash()
	})
}

// failed waits for a failure to be reported last, while these models stay.
func (o *observer) failed(t *testing.T, models string) {
	t.Helper()
	eventually(t, "a failure reported", func() bool { return o.last().Err != nil })
	if got := strings.Join(names(o.Set()), " "); got != models || o.last().Changed {
		t.Errorf("models %s in force after %+v, want %s as before", got, o.last(), models)
	}
}

func eventually(t *testing.T, what string, is func() bool) {
	t.Helper()
	for start := time.Now(); time.Since(start) < time.Minute; time.Sleep(time.Millisecond) {
		if is() {
			return
		}
	}
	t.Fatalf("not in a minute: %s", what)
}

// The ways in which people and machines replace policies. Each sets the files
// to a text, again and again, and says what path to open.
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
		k := kubelet{dir: t.TempDir()}
		return k.dir, func(text string) { k.mustWrite(t, map[string]string{"policy.yaml": text}) }
	}},
	{"a ConfigMap of an older kubelet", func(t *testing.T) (string, func(string)) {
		k := kubelet{dir: t.TempDir(), linksFirst: true}
		return k.dir, func(text string) { k.mustWrite(t, map[string]string{"policy.yaml": text}) }
	}},
	{"a ConfigMap whose key is renamed", func(t *testing.T) (string, func(string)) {
		k, n := kubelet{dir: t.TempDir()}, 0
		return k.dir, func(text string) {
			n++
			k.mustWrite(t, map[string]string{string(rune('a'+n)) + ".yaml": text})
		}
	}},
	{"a file of a ConfigMap", func(t *testing.T) (string, func(string)) {
		k := kubelet{dir: t.TempDir()}
		return k.path("policy.yaml"), func(text string) { k.mustWrite(t, map[string]string{"policy.yaml": text}) }
	}},
	{"a link to a file of a ConfigMap", func(t *testing.T) (string, func(string)) {
		k := kubelet{dir: t.TempDir()}
		link := filepath.Join(t.TempDir(), "policy.yaml")
		symlink(t, k.path("policy.yaml"), link)
		return link, func(text string) { k.mustWrite(t, map[string]string{"policy.yaml": text}) }
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

// Every way is noticed without the poll, more than once, and after a fault.
func TestWatch(t *testing.T) {
	for _, way := range ways {
		t.Run(way.name, func(t *testing.T) {
			t.Parallel()
			path, put := way.start(t)
			put(model("one"))
			u := &user{}
			s := open(t, u, path)
			s.Pace(20*time.Millisecond, time.Second, time.Hour)
			o := watch(t, s)
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
				if out.Trigger != "watch" || out.WatchErr != nil {
					t.Errorf("outcome %+v, want the trigger watch and no error of the watch itself", out)
				}
			}
		})
	}
}

// What is gone for a while is a fault, and found when it is back.
func TestWatchGone(t *testing.T) {
	for _, gone := range []string{"above/policies/policy.yaml", "above/policies", "above"} {
		t.Run(gone, func(t *testing.T) {
			dir := t.TempDir()
			write(t, dir, "above/policies/policy.yaml", model("one"))
			s := open(t, &user{}, filepath.Join(dir, "above/policies"))
			s.Pace(20*time.Millisecond, time.Second, time.Hour)
			o := watch(t, s)
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

// A directory that is moved away, removed and made again as fast as can be does
// not stop the watch.
func TestWatchDirectoryStorm(t *testing.T) {
	parent := t.TempDir()
	dir, away := filepath.Join(parent, "policies"), filepath.Join(parent, "away")
	write(t, dir, "policy.yaml", model("one"))
	s := open(t, &user{}, dir)
	s.Pace(time.Microsecond, time.Millisecond, time.Hour)
	o := watch(t, s)
	for range 300 {
		rename(t, dir, away)
		if err := os.RemoveAll(away); err != nil {
			t.Fatal(err)
		}
		write(t, dir, "policy.yaml", model("storm"))
	}
	write(t, dir, "policy.yaml", model("last"))
	eventually(t, "the last set in force", func() bool { return names(o.Set())[0] == "last" })
}

// What changed after Open and before Watch is found when it begins; what changes
// then waits for quiet.
func TestWatchBegins(t *testing.T) {
	dir := t.TempDir()
	write(t, dir, "policy.yaml", model("one"))
	s := open(t, &user{}, dir)
	s.Pace(time.Hour, time.Hour, time.Hour)
	write(t, dir, "policy.yaml", model("two"))
	o := watch(t, s)
	o.inForce(t, "two")
	write(t, dir, "policy.yaml", model("three"))
	time.Sleep(50 * time.Millisecond) // enough to see it if it does not wait
	o.inForce(t, "two")
}

// Changes that never pause are taken when they have gone on for long enough.
func TestWatchWithoutQuiet(t *testing.T) {
	dir := t.TempDir()
	write(t, dir, "a.yaml", model("one"))
	s := open(t, &user{}, dir)
	s.Pace(time.Hour, 50*time.Millisecond, time.Hour)
	rename(t, write(t, dir, "new", model("two")), filepath.Join(dir, "a.yaml"))
	o := watch(t, s)
	o.inForce(t, "two") // so it has begun
	for _, next := range []string{"three", "four"} {
		eventually(t, "the new set in force", func() bool {
			write(t, dir, "a.yaml", model(next))
			return names(o.Set())[0] == next
		})
	}
}

// The poll finds what the system does not tell of: here that a directory far
// above is another one.
func TestWatchPollsBelow(t *testing.T) {
	top := t.TempDir()
	at := func(path string) string { return filepath.Join(top, path) }
	write(t, top, "above/b/policies/policy.yaml", model("one"))
	s := open(t, &user{}, at("above/b/policies"))
	s.Pace(time.Millisecond, time.Millisecond, 20*time.Millisecond)
	write(t, top, "above/b/policies/policy.yaml", model("two"))
	o := watch(t, s)
	o.inForce(t, "two") // so it has begun, and is told of the next
	write(t, top, "above/b/policies/policy.yaml", model("three"))
	o.inForce(t, "three")
	write(t, top, "next/b/policies/policy.yaml", model("four"))
	rename(t, at("above"), at("old"))
	rename(t, at("next"), at("above"))
	o.inForce(t, "four")
}

// A poll does not read what has not come to rest.
func TestWatchPollWaits(t *testing.T) {
	dir := t.TempDir()
	write(t, dir, "policy.yaml", model("one"))
	u := &user{refuse: "three"}
	s := open(t, u, dir)
	s.Pace(time.Hour, time.Hour, 2*time.Millisecond)
	rename(t, write(t, dir, "new", model("two")), filepath.Join(dir, "policy.yaml"))
	watch(t, s).inForce(t, "two") // so it has begun, and is told of the next
	rename(t, write(t, dir, "new", model("three")), filepath.Join(dir, "policy.yaml"))
	// A refused set is offered anew whenever the files are read, which is how it is seen here.
	eventually(t, "no more reloads", func() bool {
		asked := u.asked.Load()
		time.Sleep(50 * time.Millisecond)
		return u.asked.Load() == asked
	})
}

var errNoInstances = errors.New("too many open files")

// Where the system cannot tell of changes the poll finds them, says so once, and
// goes back as soon as it can.
func TestWatchPolls(t *testing.T) {
	dir := t.TempDir()
	write(t, dir, "policy.yaml", model("one"))
	u := &user{refuse: "three"}
	s := open(t, u, dir)
	s.Pace(time.Millisecond, time.Millisecond, 2*time.Millisecond)
	var can atomic.Bool
	s.Notifications(func() (*fsnotify.Watcher, error) {
		if can.Load() {
			return fsnotify.NewWatcher()
		}
		return nil, errNoInstances
	})
	o := watch(t, s)
	rename(t, write(t, dir, "new", model("two")), filepath.Join(dir, "policy.yaml"))
	o.inForce(t, "two")

	// Refused for a second time and more is no news.
	rename(t, write(t, dir, "new", model("three")), filepath.Join(dir, "policy.yaml"))
	o.failed(t, "two")
	asked := u.asked.Load()
	eventually(t, "10 more polls", func() bool { return u.asked.Load() > asked+10 })
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

	// Back to what is in force: nothing changes, but it is a success again.
	rename(t, write(t, dir, "new", model("two")), filepath.Join(dir, "policy.yaml"))
	eventually(t, "the success reported", func() bool { return o.last().Err == nil })
	if o.last().Changed {
		t.Errorf("%+v, want an unchanged set", o.last())
	}

	before := len(o.reports())
	can.Store(true)
	eventually(t, "a watch", func() bool { return o.last().WatchErr == nil })
	if got := len(o.reports()) - before; got != 1 {
		t.Errorf("%d reports that there is a watch again, want 1", got)
	}
	u.check(t, "one", "two")
}

// When the system says that it dropped events, the files are read.
func TestWatchOverflow(t *testing.T) {
	dir := t.TempDir()
	write(t, dir, "policy.yaml", model("one"))
	u := &user{}
	s := open(t, u, dir)
	s.Pace(time.Millisecond, time.Second, time.Hour)
	opened := make(chan *fsnotify.Watcher, 1)
	s.Notifications(func() (*fsnotify.Watcher, error) {
		w, err := fsnotify.NewWatcher()
		opened <- w
		return w, err
	})
	watch(t, s)
	system := <-opened
	// A refused set is offered anew whenever the files are read, which is how it is seen here.
	u.mu.Lock()
	u.refuse = "two"
	u.mu.Unlock()
	write(t, dir, "policy.yaml", model("two"))
	eventually(t, "a first reload", func() bool { return u.asked.Load() > 1 })
	for range 3 {
		asked := u.asked.Load()
		system.Errors <- fsnotify.ErrEventOverflow
		eventually(t, "a reload after the overflow", func() bool { return u.asked.Load() > asked })
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

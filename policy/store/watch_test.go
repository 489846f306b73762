package store_test

import (
	"context"
	"os"
	"path/filepath"
	"strings"
	"sync"
	"testing"
	"time"

	"github.com/ckd-project/ckd/integration_test/testbed"
	"github.com/ckd-project/ckd/internal/watch"
	"github.com/ckd-project/ckd/policy/store"
)

// observer holds a store that is watched until the end of the test, and what it reports.
type observer struct {
	*store.Store
	mu       sync.Mutex
	outcomes []watch.Outcome
}

// watched watches a store, which looks at its files often.
func watched(t *testing.T, s *store.Store) *observer {
	t.Helper()
	s.Pace(20 * time.Millisecond)
	o := &observer{Store: s}
	ctx, cancel := context.WithCancel(context.Background())
	ended := make(chan struct{})
	go func() {
		defer close(ended)
		s.Watch(ctx, func(out watch.Outcome) {
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
func (o *observer) reports() []watch.Outcome {
	o.mu.Lock()
	defer o.mu.Unlock()
	return append([]watch.Outcome(nil), o.outcomes...)
}

func (o *observer) last() watch.Outcome {
	if reports := o.reports(); len(reports) > 0 {
		return reports[len(reports)-1]
	}
	return watch.Outcome{}
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
	{"a ConfigMap", func(t *testing.T) (string, func(string)) {
		k := testbed.Kubelet{Dir: t.TempDir()}
		return k.Dir, func(text string) { k.MustWrite(t, map[string]string{"policy.yaml": text}) }
	}},
	{"a ConfigMap whose key is renamed", func(t *testing.T) (string, func(string)) {
		k, n := testbed.Kubelet{Dir: t.TempDir()}, 0
		return k.Dir, func(text string) {
			n++
			k.MustWrite(t, map[string]string{string(rune('a'+n)) + ".yaml": text})
		}
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
}

// TestWatch checks that every kind of change is noticed, more than once, and after a fault.
func TestWatch(t *testing.T) {
	for _, way := range ways {
		t.Run(way.name, func(t *testing.T) {
			t.Parallel()
			path, put := way.start(t)
			put(model("one"))
			u := &user{}
			s := open(t, u, path)
			o := watched(t, s)
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
				if out.Trigger != "watch" {
					t.Errorf("outcome %+v, want the trigger watch", out)
				}
			}
		})
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

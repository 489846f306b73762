package store_test

import (
	"errors"
	"fmt"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"sync"
	"sync/atomic"
	"testing"
	"time"

	"go.uber.org/goleak"

	"github.com/ckd-project/ckd/integration_test/testbed"
	"github.com/ckd-project/ckd/internal/watch"
	"github.com/ckd-project/ckd/policy"
	"github.com/ckd-project/ckd/policy/store"
)

func TestMain(m *testing.M) { goleak.VerifyTestMain(m) }

const bad = "models: 3\n"

// user keeps the names of the models of every set that a store applies.
type user struct {
	mu      sync.Mutex
	applied []string
	refuse  string // refuses sets with these models
	asked   atomic.Int64
}

var errRefused = errors.New("over a limit")

func (u *user) apply(set *policy.Set) error {
	u.asked.Add(1)
	u.mu.Lock()
	defer u.mu.Unlock()
	models := strings.Join(names(set), " ")
	if models == u.refuse {
		return errRefused
	}
	u.applied = append(u.applied, models)
	return nil
}

func (u *user) check(t *testing.T, want ...string) {
	t.Helper()
	u.mu.Lock()
	defer u.mu.Unlock()
	if !slices.Equal(u.applied, want) {
		t.Errorf("applied %q, want %q", u.applied, want)
	}
}

func open(t *testing.T, u *user, paths ...string) *store.Store {
	t.Helper()
	s, err := store.Open(u.apply, paths...)
	if err != nil {
		t.Fatal(err)
	}
	return s
}

func TestOpen(t *testing.T) {
	path := write(t, t.TempDir(), "policy.yaml", model("a"))
	u := &user{}
	s := open(t, u, path)
	u.check(t, "a")
	if got := names(s.Set()); !slices.Equal(got, []string{"a"}) {
		t.Errorf("models %q, want a", got)
	}

	u = &user{refuse: "a"}
	if _, err := store.Open(u.apply, path); !errors.Is(err, errRefused) {
		t.Errorf("error %v, want what apply said", err)
	}
	write(t, filepath.Dir(path), "policy.yaml", bad)
	u = &user{}
	_, err := store.Open(u.apply, path)
	var faults policy.Faults
	if !errors.As(err, &faults) || len(faults) != 1 {
		t.Errorf("error %v, want policy.Faults with one", err)
	}
	u.check(t)
}

func TestReload(t *testing.T) {
	dir := t.TempDir()
	write(t, dir, "policy.yaml", model("a"))
	u := &user{refuse: "c"}
	s := open(t, u, dir)
	before := watch.Outcome{At: time.Now()}
	before.Hash = s.Set().Hash()
	fault := filepath.Join(dir, "policy.yaml") + ":1:9: models: expected a list, found 3"
	steps := []struct {
		name    string
		text    string // empty for no file
		changed bool
		fault   string
		models  string
	}{
		{"the same", model("a"), false, "", "a"},
		{"another", model("b"), true, "", "b"},
		{"a fault", bad, false, fault, "b"},
		{"the same fault", bad, false, fault, "b"},
		{"recovered to the same", model("b"), false, "", "b"},
		{"no file", "", false, dir + ": no policy files in the directory, expected *.yaml or *.yml", "b"},
		{"recovered to another", model("a"), true, "", "a"},
		{"refused", model("c"), false, "policies refused: over a limit", "a"},
		{"refused again", model("c"), false, "policies refused: over a limit", "a"},
		{"recovered from that", model("d"), true, "", "d"},
		{"an empty file", "\n", false, "policy.yaml:", "d"},
	}
	for i, step := range steps {
		if step.text == "" {
			if err := os.Remove(filepath.Join(dir, "policy.yaml")); err != nil {
				t.Fatal(err)
			}
		} else {
			write(t, dir, "policy.yaml", step.text)
		}
		trigger := fmt.Sprint("step ", i)
		out := s.Reload(trigger)
		if out.Trigger != trigger || out.Changed != step.changed {
			t.Errorf("%s: %+v, want the trigger %q and changed %v", step.name, out, trigger, step.changed)
		}
		if (out.Err == nil) != (step.fault == "") || out.Err != nil && !strings.Contains(out.Err.Error(), step.fault) {
			t.Errorf("%s: error %v, want %q", step.name, out.Err, step.fault)
		}
		if (out.Hash != before.Hash) != step.changed || out.Hash != s.Set().Hash() {
			t.Errorf("%s: hash %s after %s, that of the set in force is %s", step.name, out.Hash, before.Hash, s.Set().Hash())
		}
		if got := strings.Join(names(s.Set()), " "); got != step.models {
			t.Errorf("%s: models %s in force, want %s", step.name, got, step.models)
		}
		if out.At.Before(before.At) {
			t.Errorf("%s: done before the one before", step.name)
		}
		before = out
	}
	u.check(t, "a", "b", "a", "d")
	if got := u.asked.Load(); got != 6 {
		t.Errorf("apply was called %d times, want 6: for 4 sets, and for one that it refused twice", got)
	}
}

// TestReloadUnchanged checks that files with the same meaning are no new set, however they changed.
func TestReloadUnchanged(t *testing.T) {
	dir := t.TempDir()
	path := write(t, dir, "policy.yaml", model("a"))
	u := &user{}
	s := open(t, u, dir)
	set := s.Set()
	write(t, dir, "renamed.yml", "# Said differently.\n\nmodels:\n  - name: a\n    critical: [b]\n    classes:\n      - a\n      - b\n")
	if err := os.Remove(path); err != nil {
		t.Fatal(err)
	}
	if out := s.Reload("test"); out.Changed || out.Err != nil || out.Hash != set.Hash() || s.Set() != set {
		t.Errorf("%+v, want an unchanged set and no error", out)
	}
	u.check(t, "a")
}

// TestReloadWhileFilesChange reloads from many goroutines while good and bad sets replace the files. Every set
// that is applied is complete, and later than all sets before it.
func TestReloadWhileFilesChange(t *testing.T) {
	k := testbed.Kubelet{Dir: t.TempDir()}
	k.MustWrite(t, generation(1))
	last := 0
	s, err := store.Open(func(set *policy.Set) error { // without a lock, so that -race finds calls that overlap
		n := generationOf(t, set)
		if n <= last {
			t.Errorf("generation %d is applied after %d", n, last)
		}
		if isBad(n) {
			t.Errorf("the bad generation %d is applied", n)
		}
		last = n
		return nil
	}, k.Dir)
	if err != nil {
		t.Fatal(err)
	}

	const generations = 200 // the last is good
	stop := make(chan struct{})
	var all sync.WaitGroup
	repeat := func(f func()) {
		all.Go(func() {
			for {
				select {
				case <-stop:
					return
				default:
					f()
				}
			}
		})
	}
	var changed, failed atomic.Int64
	for i := range 8 {
		trigger := fmt.Sprint(i)
		repeat(func() {
			out := s.Reload(trigger)
			if out.Trigger != trigger || out.Changed && out.Err != nil {
				t.Errorf("outcome %+v of the trigger %s", out, trigger)
			}
			if out.Changed {
				changed.Add(1)
			}
			if out.Err != nil {
				failed.Add(1)
			}
		})
	}
	for range 2 {
		seen := 0
		repeat(func() {
			n := generationOf(t, s.Set())
			if n < seen {
				t.Errorf("generation %d in force after %d", n, seen)
			}
			seen = n
			time.Sleep(100 * time.Microsecond)
		})
	}
	for n := 2; n <= generations; n++ {
		files := generation(n)
		if isBad(n) {
			files["b.yaml"] = bad
		}
		k.MustWrite(t, files)
		time.Sleep(time.Millisecond)
	}
	close(stop)
	all.Wait()

	s.Reload("the last")
	if got := generationOf(t, s.Set()); got != generations || last != generations {
		t.Errorf("generation %d in force and %d applied at the end, want %d", got, last, generations)
	}
	if changed.Load() < 10 || failed.Load() < 10 {
		t.Errorf("%d reloads changed the set and %d failed: too little of a storm", changed.Load(), failed.Load())
	}
}

func isBad(generation int) bool { return generation%3 == 0 }

package watch

import (
	"errors"
	"maps"
	"os"
	"path/filepath"
	"slices"
	"strconv"
	"testing"
	"time"

	"github.com/fsnotify/fsnotify"
)

// TestNotifierFollows checks that a notifier listens where the paths lead now, and nowhere else.
// That may be another directory of the same name, which no event announces.
func TestNotifierFollows(t *testing.T) {
	top := t.TempDir()
	above := filepath.Join(top, "above")
	path := filepath.Join(above, "b", "files")
	n := &notifier{open: fsnotify.NewWatcher, wake: make(chan struct{}, 1)}
	defer n.close()
	for _, old := range []string{"1", "2"} {
		if err := os.MkdirAll(path, 0o755); err != nil {
			t.Fatal(err)
		}
		if err := n.follow(func() *Places { return placesIn(path) }); err != nil {
			t.Fatal(err)
		}
		if err := os.WriteFile(filepath.Join(path, "file"), nil, 0o644); err != nil {
			t.Fatal(err)
		}
		select {
		case <-n.wake:
		case <-time.After(time.Minute):
			t.Fatal("a new file does not wake in a minute")
		}
		if err := os.Rename(above, filepath.Join(top, old)); err != nil {
			t.Fatal(err)
		}
	}

	if err := n.follow(func() *Places { return placesIn(path) }); err != nil {
		t.Fatal(err)
	}
	got := slices.Sorted(maps.Keys(n.places.Load().names))
	if want, err := filepath.EvalSymlinks(top); err != nil || !slices.Equal(got, []string{want}) {
		t.Errorf("places %q, want %s alone", got, want)
	}
	if listened := n.system.WatchList(); !slices.Equal(listened, got) {
		t.Errorf("it listens to %q, want %q", listened, got)
	}
}

// TestNotifierMissesNothing checks that a notifier sees a file that appears while it begins to
// listen, or wakes for it later.
func TestNotifierMissesNothing(t *testing.T) {
	top := t.TempDir()
	n := &notifier{open: fsnotify.NewWatcher, wake: make(chan struct{}, 1)}
	defer n.close()
	for i := range 300 {
		path := filepath.Join(top, strconv.Itoa(i), "a", "b")
		made := make(chan error)
		go func() {
			err := os.MkdirAll(path, 0o755)
			made <- errors.Join(err, os.WriteFile(filepath.Join(path, "file"), nil, 0o644))
		}()
		if err := n.follow(func() *Places { return placesIn(path) }); err != nil {
			t.Fatal(err)
		}
		if err := <-made; err != nil {
			t.Fatal(err)
		}
		if n.places.Load().equal(placesIn(path)) {
			continue
		}
		select {
		case <-n.wake:
		case <-time.After(time.Minute):
			t.Fatalf("try %d: neither seen nor told in a minute: %v", i, n.places.Load().names)
		}
	}
}

// placesIn returns the places of a directory whose files all matter.
func placesIn(dir string) *Places {
	p := NewPlaces(func(string) bool { return true })
	p.Trace(dir)
	p.Trace(filepath.Join(dir, "file"))
	return p
}

package ledger

import (
	"errors"
	"os"
	"path/filepath"
	"strings"
	"testing"
	"time"

	"github.com/ckd-project/ckd/internal/outcome/store"
)

// TestRestore backs a ledger up and restores it: into an empty folder, over a ledger with later
// transactions, which is refused, over a damaged one, which is kept beside; and never from a damaged copy.
func TestRestore(t *testing.T) {
	dir, backup := t.TempDir(), filepath.Join(t.TempDir(), "ledger.bak")
	now := time.Date(2026, 11, 3, 12, 0, 0, 0, time.UTC)
	o := Options{Now: func() time.Time { return now }}
	if err := Begin(dir, o); err != nil {
		t.Fatal(err)
	}
	if err := Backup(t.Context(), dir, backup, o); err != nil {
		t.Fatal(err)
	}
	s, err := store.Open(dir, store.Options{})
	if err != nil {
		t.Fatal(err)
	}
	if at := s.Status().LastBackup; !at.Equal(now) {
		t.Errorf("the last backup was %v, expected %v", at, now)
	}
	was := s.Identity()
	if err := s.Close(); err != nil {
		t.Fatal(err)
	}

	by := RestoreOptions{Options: o, By: "ann", Reason: "a test"}
	empty := filepath.Join(t.TempDir(), "elsewhere")
	done, err := Restore(t.Context(), backup, empty, by)
	if err != nil || done.Generation != 2 || done.Aside != "" {
		t.Fatalf("restored %+v, %v", done, err)
	}
	s, err = store.Open(empty, store.Options{})
	if err != nil {
		t.Fatal(err)
	}
	if i := s.Identity(); i.ID != was.ID || i.Generation != 2 || i.Branch == was.Branch {
		t.Errorf("the identity is %+v, was %+v", i, was)
	}
	if _, err := os.Stat(filepath.Join(empty, store.FileName+"-wal")); err != nil {
		t.Errorf("the restored ledger has no log: %v", err)
	}
	if err := s.Close(); err != nil {
		t.Fatal(err)
	}
	l, err := Open(empty, o)
	if err != nil {
		t.Fatal(err)
	}
	events, err := l.Trail()
	if err != nil || len(events) != 1 || events[0].Kind != "ledger_restored" || events[0].By != "ann" || events[0].Reason != "a test" {
		t.Errorf("the trail is %+v, %v", events, err)
	}
	if err := l.Close(); err != nil {
		t.Fatal(err)
	}

	file := filepath.Join(dir, store.FileName)
	before, err := os.ReadFile(file)
	if err != nil {
		t.Fatal(err)
	}
	if _, err := Restore(t.Context(), backup, dir, by); !errors.Is(err, ErrLater) || !strings.Contains(err.Error(), "1 later transactions") {
		t.Errorf("error %v, expected ErrLater: the note of the backup itself is a transaction", err)
	}
	if after, err := os.ReadFile(file); err != nil || string(after) != string(before) {
		t.Errorf("a refused restore has changed the ledger: %v", err)
	}
	by.SetAside = true
	if done, err = Restore(t.Context(), backup, dir, by); err != nil {
		t.Fatal(err)
	}
	if kept, err := os.ReadFile(filepath.Join(done.Aside, store.FileName)); err != nil || string(kept) != string(before) {
		t.Errorf("the replaced ledger is not kept: %v", err)
	}

	now = now.Add(time.Second)
	if done, err = Restore(t.Context(), backup, dir, by); err != nil || done.Generation != 3 {
		t.Errorf("over generation 2 the same backup is %+v, expected generation 3: %v", done, err)
	}

	by.SetAside = false
	if err := os.Truncate(file, 5000); err != nil {
		t.Fatal(err)
	}
	now = now.Add(time.Second)
	if done, err = Restore(t.Context(), backup, dir, by); err != nil || done.Aside == "" {
		t.Errorf("over a damaged ledger: %+v, %v", done, err)
	}

	copied, err := os.ReadFile(backup)
	if err != nil {
		t.Fatal(err)
	}
	for name, damage := range map[string]func() []byte{
		"cut":   func() []byte { return copied[:len(copied)-4096] },
		"empty": func() []byte { return nil },
		"flipped": func() []byte {
			return append(append([]byte(nil), copied[:4096+200]...), make([]byte, len(copied)-4096-200)...)
		},
	} {
		bad, target := filepath.Join(t.TempDir(), "bad"), t.TempDir()
		if err := os.WriteFile(bad, damage(), 0o600); err != nil {
			t.Fatal(err)
		}
		if _, err := Restore(t.Context(), bad, target, by); err == nil {
			t.Errorf("%s: restored", name)
		}
		if left, err := os.ReadDir(target); err != nil || len(left) > 0 {
			t.Errorf("%s: %v is left, %v", name, left, err)
		}
	}
}

package store_test

import (
	"errors"
	"os"
	"path/filepath"
	"reflect"
	"strings"
	"syscall"
	"testing"

	"github.com/ckd-project/ckd/policy"
	"github.com/ckd-project/ckd/policy/store"
)

// model is a policy file of one model.
func model(name string) string {
	return "models: [{name: " + name + ", classes: [a, b], critical: [b]}]\n"
}

func write(t *testing.T, dir, name, text string) string {
	t.Helper()
	path := filepath.Join(dir, name)
	if err := os.MkdirAll(filepath.Dir(path), 0o755); err != nil {
		t.Fatal(err)
	}
	if err := os.WriteFile(path, []byte(text), 0o644); err != nil {
		t.Fatal(err)
	}
	return path
}

func names(set *policy.Set) []string {
	var names []string
	for _, p := range set.All() {
		names = append(names, p.Name)
	}
	return names
}

func TestLoad(t *testing.T) {
	dir := t.TempDir()
	write(t, dir, "b.yaml", model("b"))
	write(t, dir, "a.yml", model("a"))
	write(t, dir, "c.json", model("not-by-its-ending"))
	write(t, dir, ".hidden.yaml", model("hidden"))
	write(t, dir, "deeper.yaml/d.yaml", model("deeper"))
	alone := write(t, t.TempDir(), "policy.conf", model("by-name"))

	set, err := store.Load(dir, alone)
	if err != nil {
		t.Fatal(err)
	}
	if got, want := names(set), []string{"a", "b", "by-name"}; !reflect.DeepEqual(got, want) {
		t.Errorf("models %q, want %q", got, want)
	}
}

// A ConfigMap is mounted as links to ..data, itself a link, to a directory
// whose name changes with every update.
func TestLoadConfigMap(t *testing.T) {
	dir := t.TempDir()
	version := func(stamp, name string) {
		write(t, dir, "..2026_"+stamp+"/policy.yaml", model(name))
		next := filepath.Join(dir, "..data_tmp")
		if err := os.Symlink("..2026_"+stamp, next); err != nil {
			t.Fatal(err)
		}
		if err := os.Rename(next, filepath.Join(dir, "..data")); err != nil {
			t.Fatal(err)
		}
	}
	version("1", "old")
	if err := os.Symlink("..data/policy.yaml", filepath.Join(dir, "policy.yaml")); err != nil {
		t.Fatal(err)
	}
	old, err := store.Load(dir)
	if err != nil {
		t.Fatal(err)
	}
	version("2", "new")
	now, err := store.Load(dir)
	if err != nil {
		t.Fatal(err)
	}
	if got := append(names(old), names(now)...); !reflect.DeepEqual(got, []string{"old", "new"}) {
		t.Errorf("models %q, want old and then new", got)
	}
	if old.Hash() == now.Hash() {
		t.Error("an update does not change the hash of the set")
	}
	again, err := store.Load(filepath.Join(dir, "..data", "policy.yaml"))
	if err != nil {
		t.Fatal(err)
	}
	if again.Hash() != now.Hash() {
		t.Error("the same policy by another path has another hash")
	}
}

// What cannot be read is a fault beside those of what can, all at once.
func TestFaults(t *testing.T) {
	dir := t.TempDir()
	missing := filepath.Join(dir, "missing.yaml")
	empty := filepath.Join(dir, "empty")
	if err := os.Mkdir(empty, 0o755); err != nil {
		t.Fatal(err)
	}
	bad := write(t, dir, "bad.yaml", "models: 3\n")
	large := write(t, dir, "large.yaml", strings.Repeat("#", policy.MaxFileBytes+1))
	pipe := filepath.Join(dir, "pipe.yaml")
	if err := syscall.Mkfifo(pipe, 0o600); err != nil {
		t.Fatal(err)
	}
	if err := os.Symlink("nowhere", filepath.Join(dir, "dangling.yaml")); err != nil {
		t.Fatal(err)
	}

	tests := []struct {
		name  string
		paths []string
		want  []string
	}{
		{"nothing", nil, []string{"no policy files, expected at least one file or directory"}},
		{"missing", []string{missing}, []string{missing + ": cannot read: no such file or directory"}},
		{"empty directory", []string{empty}, []string{empty + ": no policy files in the directory, expected *.yaml or *.yml"}},
		{"pipe", []string{pipe}, []string{pipe + ": cannot read: not a regular file"}},
		{"missing and bad", []string{bad, missing}, []string{
			missing + ": cannot read: no such file or directory",
			bad + ":1:9: models: expected a list, found 3",
		}},
		{"directory", []string{dir}, []string{
			filepath.Join(dir, "dangling.yaml") + ": cannot read: no such file or directory",
			pipe + ": cannot read: not a regular file",
			bad + ":1:9: models: expected a list, found 3",
			large + ":1:1: too large, expected at most 4194304 bytes",
		}},
	}
	for _, test := range tests {
		t.Run(test.name, func(t *testing.T) {
			set, err := store.Load(test.paths...)
			if set != nil {
				t.Errorf("a set of %q", names(set))
			}
			var faults policy.Faults
			if !errors.As(err, &faults) {
				t.Fatalf("%T, want policy.Faults", err)
			}
			if got, want := err.Error(), strings.Join(test.want, "\n"); got != want {
				t.Errorf("faults\n%s\nwant\n%s", got, want)
			}
		})
	}
}

package store_test

import (
	"errors"
	"fmt"
	"os"
	"path/filepath"
	"reflect"
	"strconv"
	"strings"
	"syscall"
	"testing"
	"time"

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
	k := kubelet{dir: t.TempDir()}
	k.mustWrite(t, map[string]string{"policy.yaml": model("old")})
	old, err := store.Load(k.dir)
	if err != nil {
		t.Fatal(err)
	}
	k.mustWrite(t, map[string]string{"policy.yaml": model("new")})
	now, err := store.Load(k.dir)
	if err != nil {
		t.Fatal(err)
	}
	if got := append(names(old), names(now)...); !reflect.DeepEqual(got, []string{"old", "new"}) {
		t.Errorf("models %q, want old and then new", got)
	}
	if old.Hash() == now.Hash() {
		t.Error("an update does not change the hash of the set")
	}
	link := filepath.Join(t.TempDir(), "link")
	if err := os.Symlink(k.dir, link); err != nil {
		t.Fatal(err)
	}
	for _, path := range []string{k.path("policy.yaml"), k.path("..data"), k.path("..data/policy.yaml"), link} {
		again, err := store.Load(path)
		if err != nil {
			t.Fatal(err)
		}
		if again.Hash() != now.Hash() {
			t.Errorf("the same policy by the path %s has another hash", path)
		}
	}
}

// At every step of an update there are the files of one generation: those from
// before until the swap, those from after since.
func TestLoadConfigMapAtEachStep(t *testing.T) {
	for _, linksFirst := range []bool{false, true} {
		k := kubelet{dir: t.TempDir(), linksFirst: linksFirst}
		k.mustWrite(t, map[string]string{"stays.yaml": model("stays-1"), "goes.yaml": model("goes")})
		want, steps := "goes stays-1", 0
		k.after = func(step string) {
			if step == "swapped" {
				want = "comes stays-2"
			}
			steps++
			set, err := store.Load(k.dir)
			if err != nil {
				t.Errorf("links first %v: %s: %v", linksFirst, step, err)
				return
			}
			if got := strings.Join(names(set), " "); got != want {
				t.Errorf("links first %v: %s: models %s, want %s", linksFirst, step, got, want)
			}
		}
		k.mustWrite(t, map[string]string{"stays.yaml": model("stays-2"), "comes.yaml": model("comes")})
		if steps < 4 {
			t.Errorf("links first %v: %d steps, want them all", linksFirst, steps)
		}
	}
}

// What else is in the directory of a generation counts as in any other.
func TestLoadBesideConfigMap(t *testing.T) {
	k := kubelet{dir: t.TempDir()}
	elsewhere := write(t, t.TempDir(), "else", model("linked"))
	write(t, k.dir, "plain.yaml", model("plain"))
	if err := os.Symlink(elsewhere, k.path("linked.yaml")); err != nil {
		t.Fatal(err)
	}
	k.mustWrite(t, map[string]string{"a.yaml": model("a"), ".b.yaml": model("hidden"), "c": model("not-by-its-ending")})
	set, err := store.Load(k.dir)
	if err != nil {
		t.Fatal(err)
	}
	if got, want := names(set), []string{"a", "linked", "plain"}; !reflect.DeepEqual(got, want) {
		t.Errorf("models %q, want %q", got, want)
	}

	// Faults tell the names that everyone sees.
	k.mustWrite(t, map[string]string{"a.yaml": "models: 3\n"})
	_, err = store.Load(k.dir)
	if want := k.path("a.yaml") + ":1:9: models: expected a list, found 3"; err == nil || err.Error() != want {
		t.Errorf("error %v, want %s", err, want)
	}
	stamped, err := os.Readlink(k.path("..data"))
	if err != nil {
		t.Fatal(err)
	}
	if err := os.RemoveAll(k.path(stamped)); err != nil {
		t.Fatal(err)
	}
	_, err = store.Load(k.dir)
	if want := k.path("..data") + ": cannot read: no such file or directory"; err == nil || err.Error() != want {
		t.Errorf("error %v, want %s", err, want)
	}
}

// Whenever it looks, Load sees the files of one generation, or says that they
// do not come to rest; never some of one and some of another, nor some of one
// that is being removed.
func TestLoadDuringUpdates(t *testing.T) {
	for _, linksFirst := range []bool{false, true} {
		k := kubelet{dir: t.TempDir(), linksFirst: linksFirst}
		const generations = 150
		k.mustWrite(t, generation(1))
		done := make(chan error, 1)
		go func() {
			for n := 2; n <= generations; n++ {
				if err := k.write(generation(n)); err != nil {
					done <- err
					return
				}
				time.Sleep(time.Duration(n%10) * 200 * time.Microsecond)
			}
			done <- nil
		}()
		good, last := 0, 0
		for running := true; running; {
			select {
			case err := <-done:
				if err != nil {
					t.Fatal(err)
				}
				running = false
			default:
			}
			set, err := store.Load(k.dir)
			switch {
			case err != nil && !strings.Contains(err.Error(), "changed while it was read"):
				t.Fatalf("links first %v: %v", linksFirst, err)
			case err == nil:
				good++
				last = generationOf(t, set)
			}
		}
		if last != generations {
			t.Errorf("links first %v: generation %d at the end, want %d", linksFirst, last, generations)
		}
		if good < 2 {
			t.Errorf("links first %v: %d loads during %d updates, want more", linksFirst, good, generations)
		}
	}
}

// generation is the files of an update that has its number in every version.
// One file is there in every other alone.
func generation(n int) map[string]string {
	files := map[string]string{}
	for _, name := range []string{"a", "b", "c", "odd"} {
		if name != "odd" || n%2 == 1 {
			files[name+".yaml"] = fmt.Sprintf(
				"models: [{name: %s, version: \"%d\", classes: [a, b], critical: [b]}]\n", name, n)
		}
	}
	return files
}

// generationOf a set is the number of the files it was made of, which must be
// all of one.
func generationOf(t *testing.T, set *policy.Set) int {
	n, err := strconv.Atoi(set.All()[0].Version)
	if err != nil {
		t.Error(err)
	}
	if got, want := len(set.All()), len(generation(n)); got != want {
		t.Errorf("models %q of generation %d, want %d of them", names(set), n, want)
	}
	for _, p := range set.All() {
		if p.Version != strconv.Itoa(n) {
			t.Errorf("a mixture: model %s is of generation %s, model %s of %d", p.Name, p.Version, set.All()[0].Name, n)
		}
	}
	return n
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

package store_test

import (
	"errors"
	"fmt"
	"os"
	"path/filepath"
	"slices"
	"strconv"
	"strings"
	"syscall"
	"testing"

	"github.com/ckd-project/ckd/integration_test/testbed"
	"github.com/ckd-project/ckd/policy"
	"github.com/ckd-project/ckd/policy/store"
)

// model returns a policy file of one model.
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
	write(t, dir, "a.cases.yaml", "cases: []")
	write(t, dir, "deeper.yaml/d.yaml", model("deeper"))
	alone := write(t, t.TempDir(), "policy.conf", model("by-name"))

	set, err := store.Load(dir, alone)
	if err != nil {
		t.Fatal(err)
	}
	if got, want := names(set), []string{"a", "b", "by-name"}; !slices.Equal(got, want) {
		t.Errorf("models %q, want %q", got, want)
	}
}

// TestLoadConfigMapAtEachStep checks that Load sees the files of one generation at every step of an
// update: the old ones until the swap, and then the new ones.
func TestLoadConfigMapAtEachStep(t *testing.T) {
	for _, linksFirst := range []bool{false, true} {
		t.Run(fmt.Sprintf("links first %t", linksFirst), func(t *testing.T) {
			k := testbed.Kubelet{Dir: t.TempDir(), LinksFirst: linksFirst}
			k.MustWrite(t, map[string]string{"stays.yaml": model("stays-1"), "goes.yaml": model("goes")})
			want, steps := "goes stays-1", 0
			k.After = func(step string) {
				if step == "swapped" {
					want = "comes stays-2"
				}
				steps++
				set, err := store.Load(k.Dir)
				if err != nil {
					t.Errorf("%s: %v", step, err)
					return
				}
				if got := strings.Join(names(set), " "); got != want {
					t.Errorf("%s: models %s, want %s", step, got, want)
				}
			}
			k.MustWrite(t, map[string]string{"stays.yaml": model("stays-2"), "comes.yaml": model("comes")})
			if steps < 4 {
				t.Errorf("%d steps, want them all", steps)
			}
		})
	}
}

// TestLoadConfigMap checks that the files of a generation are read as those of any other directory,
// and no others.
func TestLoadConfigMap(t *testing.T) {
	k := testbed.Kubelet{Dir: t.TempDir()}
	write(t, k.Dir, "beside.yaml", model("beside"))
	k.MustWrite(t, map[string]string{"a.yaml": model("a"), ".b.yaml": model("hidden"), "c": model("not-by-its-ending")})
	set, err := store.Load(k.Dir)
	if err != nil {
		t.Fatal(err)
	}
	if got, want := names(set), []string{"a"}; !slices.Equal(got, want) {
		t.Errorf("models %q, want %q", got, want)
	}

	// Faults name the links that everyone sees.
	k.MustWrite(t, map[string]string{"a.yaml": "models: 3\n"})
	_, err = store.Load(k.Dir)
	if want := k.Path("a.yaml") + ":1:9: models: expected a list, found 3"; err == nil || err.Error() != want {
		t.Errorf("error %v, want %s", err, want)
	}
}

// generation returns the files of update n. Their versions say n, and one of them exists only in
// every other update.
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

// generationOf returns the number of the update whose files made a set, which must all be of one.
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

// TestFaults checks that a file that cannot be read is reported together with the faults of the
// other files.
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

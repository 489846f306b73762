package store_test

import (
	"errors"
	"io/fs"
	"os"
	"path/filepath"
	"testing"

	"github.com/ckd-project/ckd/internal/files"
	"github.com/ckd-project/ckd/internal/files/filestest"
	"github.com/ckd-project/ckd/policy"
	"github.com/ckd-project/ckd/policy/store"
)

// TestDiskFaults lets every operation of a reload fail in turn: of a file, of a folder with several
// files, and of one that Kubernetes writes.
func TestDiskFaults(t *testing.T) {
	model := func(name, more string) []byte {
		return []byte("models: [{name: " + name + ", classes: [a, b], critical: [b]" + more + "}]\n")
	}
	put := func(t *testing.T, path string, data []byte) {
		t.Helper()
		if err := os.WriteFile(path, data, 0o600); err != nil {
			t.Fatal(err)
		}
	}
	version := map[bool]string{true: ", version: new", false: ", version: old"}
	folders := map[string]func(t *testing.T, dir string, fresh bool){
		"file": func(t *testing.T, dir string, fresh bool) {
			put(t, filepath.Join(dir, "policy.yaml"), model("m", version[fresh]))
		},
		"folder": func(t *testing.T, dir string, fresh bool) {
			for _, name := range []string{"a", "b", "c"} {
				put(t, filepath.Join(dir, name+".yaml"), model(name, version[fresh]))
			}
		},
		"config map": func(t *testing.T, dir string, fresh bool) {
			data := filepath.Join(dir, "..data")
			generation := map[bool]string{true: "..new", false: "..old"}[fresh]
			if err := os.MkdirAll(filepath.Join(dir, generation), 0o700); err != nil {
				t.Fatal(err)
			}
			for _, name := range []string{"a.yaml", "b.yaml"} {
				put(t, filepath.Join(dir, generation, name), model(name[:1], version[fresh]))
				if err := os.Symlink(filepath.Join("..data", name), filepath.Join(dir, name)); err != nil && !errors.Is(err, fs.ErrExist) {
					t.Fatal(err)
				}
			}
			put(t, filepath.Join(dir, "beside.yaml"), model("beside", version[fresh]))
			_ = os.Remove(data) // there is none at first
			if err := os.Symlink(generation, data); err != nil {
				t.Fatal(err)
			}
		},
	}
	for name, write := range folders {
		t.Run(name, func(t *testing.T) {
			dir := t.TempDir()
			write(t, dir, false)
			path := dir
			if name == "file" {
				path = filepath.Join(dir, "policy.yaml")
			}
			disk := filestest.Failing(files.Machine, 0, filestest.Refused)
			s, err := store.OpenOn(disk, func(*policy.Set) error { return nil }, path)
			if err != nil {
				t.Fatal(err)
			}
			r := filestest.Reloaded{
				Disk: disk, Names: dir,
				Put:    func(t *testing.T, fresh bool) { write(t, dir, fresh) },
				Reload: func() (string, error) { o := s.Reload("test"); return o.Hash, o.Err },
			}
			r.Check(t)
		})
	}
}

package store_test

import (
	"errors"
	"io/fs"
	"os"
	"path/filepath"
	"testing"
)

// kubelet writes a volume of a ConfigMap as the kubelet does, step by step as
// the comment on AtomicWriter.Write in pkg/volume/util/atomic_writer.go of
// Kubernetes has it.
type kubelet struct {
	dir string
	// linksFirst is how older ones do it: the links to new files are made
	// before the swap and lead nowhere until then. Newer ones make them after.
	linksFirst bool
	// after is called with the name of each step that is done; nil for nothing.
	after func(step string)
}

// write the files of the next generation, which are all there are then.
func (k kubelet) write(files map[string]string) error {
	before, err := os.Readlink(k.path("..data"))
	if err != nil && !errors.Is(err, fs.ErrNotExist) {
		return err
	}
	stamped, err := os.MkdirTemp(k.dir, "..2006_01_02_15_04_05.")
	if err != nil {
		return err
	}
	if err := os.Chmod(stamped, 0o755); err != nil {
		return err
	}
	for name, text := range files {
		if err := os.WriteFile(filepath.Join(stamped, name), []byte(text), 0o644); err != nil {
			return err
		}
	}
	k.done("written")
	if k.linksFirst {
		if err := k.link(files); err != nil {
			return err
		}
	}
	if err := os.Symlink(filepath.Base(stamped), k.path("..data_tmp")); err != nil {
		return err
	}
	if err := os.Rename(k.path("..data_tmp"), k.path("..data")); err != nil {
		return err
	}
	k.done("swapped")
	if !k.linksFirst {
		if err := k.link(files); err != nil {
			return err
		}
		k.done("linked")
	}
	if before == "" {
		return nil
	}
	old, err := os.ReadDir(k.path(before))
	if err != nil {
		return err
	}
	for _, entry := range old {
		if _, kept := files[entry.Name()]; kept {
			continue
		}
		if err := os.Remove(k.path(entry.Name())); err != nil {
			return err
		}
	}
	k.done("unlinked")
	return os.RemoveAll(k.path(before))
}

// link the names that everyone sees, where they are new.
func (k kubelet) link(files map[string]string) error {
	for name := range files {
		if _, err := os.Readlink(k.path(name)); !errors.Is(err, fs.ErrNotExist) {
			continue
		}
		if err := os.Symlink(filepath.Join("..data", name), k.path(name)); err != nil {
			return err
		}
		k.done("linked one")
	}
	return nil
}

func (k kubelet) path(name string) string { return filepath.Join(k.dir, name) }

func (k kubelet) done(step string) {
	if k.after != nil {
		k.after(step)
	}
}

func (k kubelet) mustWrite(t *testing.T, files map[string]string) {
	t.Helper()
	if err := k.write(files); err != nil {
		t.Fatal(err)
	}
}

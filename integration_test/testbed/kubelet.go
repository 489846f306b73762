package testbed

import (
	"errors"
	"io/fs"
	"os"
	"path/filepath"
	"testing"
)

// Kubelet writes a volume of a ConfigMap or Secret as the kubelet does, step by step as the comment
// on AtomicWriter.Write in pkg/volume/util/atomic_writer.go of Kubernetes has it.
type Kubelet struct {
	Dir string
	// LinksFirst makes the links to new files before the swap, as older kubelets do: until then they
	// lead nowhere. Newer ones make them after it.
	LinksFirst bool
	// After is called with the name of each step that is done. It may be nil.
	After func(step string)
}

// MustWrite replaces all files by those of the next generation. It ends the test on an error.
func (k Kubelet) MustWrite(t *testing.T, files map[string]string) {
	t.Helper()
	if err := k.write(files); err != nil {
		t.Fatal(err)
	}
}

func (k Kubelet) write(files map[string]string) error {
	before, err := os.Readlink(k.Path("..data"))
	if err != nil && !errors.Is(err, fs.ErrNotExist) {
		return err
	}
	stamped, err := os.MkdirTemp(k.Dir, "..2006_01_02_15_04_05.")
	if err != nil {
		return err
	}
	err = os.Chmod(stamped, 0o755)
	for name, text := range files {
		err = errors.Join(err, os.WriteFile(filepath.Join(stamped, name), []byte(text), 0o644))
	}
	k.done("written")
	if k.LinksFirst {
		err = errors.Join(err, k.link(files))
	}
	err = errors.Join(err, os.Symlink(filepath.Base(stamped), k.Path("..data_tmp")), os.Rename(k.Path("..data_tmp"), k.Path("..data")))
	k.done("swapped")
	if !k.LinksFirst {
		err = errors.Join(err, k.link(files))
		k.done("linked")
	}
	if err != nil || before == "" {
		return err
	}
	old, err := os.ReadDir(k.Path(before))
	for _, entry := range old {
		if _, kept := files[entry.Name()]; !kept {
			err = errors.Join(err, os.Remove(k.Path(entry.Name())))
		}
	}
	k.done("unlinked")
	return errors.Join(err, os.RemoveAll(k.Path(before)))
}

// link makes the links that readers see, for new names.
func (k Kubelet) link(files map[string]string) error {
	for name := range files {
		if _, err := os.Readlink(k.Path(name)); !errors.Is(err, fs.ErrNotExist) {
			continue
		}
		if err := os.Symlink(filepath.Join("..data", name), k.Path(name)); err != nil {
			return err
		}
		k.done("linked one")
	}
	return nil
}

// Path returns the path of a file in the volume.
func (k Kubelet) Path(name string) string { return filepath.Join(k.Dir, name) }

func (k Kubelet) done(step string) {
	if k.After != nil {
		k.After(step)
	}
}

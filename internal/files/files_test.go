package files_test

import (
	"errors"
	"fmt"
	"io/fs"
	"os"
	"path/filepath"
	"syscall"
	"testing"

	"github.com/ckd-project/ckd/internal/files"
)

// TestReplace checks that a file is replaced as a whole or not at all, and that nothing is left
// beside it.
func TestReplace(t *testing.T) {
	dir := t.TempDir()
	path, taken := filepath.Join(dir, "file"), filepath.Join(dir, "taken")
	if err := errors.Join(os.WriteFile(filepath.Join(dir, ".file.tmp"), []byte("left by a crash"), 0o600), os.MkdirAll(filepath.Join(taken, "x"), 0o700)); err != nil {
		t.Fatal(err)
	}
	for _, text := range []string{"first", "second"} {
		if err := files.Replace(path, []byte(text), 0o600); err != nil {
			t.Fatal(err)
		}
		if got, err := os.ReadFile(path); err != nil || string(got) != text {
			t.Errorf("%q, %v, want %q", got, err, text)
		}
	}
	open, err := os.Open(path) // of the old file, which a replacement must not write to
	if err != nil {
		t.Fatal(err)
	}
	defer open.Close()
	if err := files.Replace(path, []byte("third"), 0o600); err != nil {
		t.Fatal(err)
	}
	if old, err := files.Read(fmt.Sprint("/dev/fd/", open.Fd()), 3); err != nil || string(old) != "sec" {
		t.Errorf("the old file holds %q, %v", old, err)
	}
	if err := files.Replace(taken, []byte("x"), 0o600); !errors.Is(err, syscall.EEXIST) && !errors.Is(err, syscall.EISDIR) && !errors.Is(err, syscall.ENOTEMPTY) {
		t.Errorf("%v, expected that a folder cannot be replaced", err)
	}
	if err := files.Replace(filepath.Join(dir, "none", "file"), nil, 0o600); !errors.Is(err, fs.ErrNotExist) {
		t.Errorf("%v, expected that the folder does not exist", err)
	}
	r, err := files.BeginReplacement(path, ".discarded.tmp", 0o600)
	if err != nil {
		t.Fatal(err)
	}
	r.Discard()
	r.Discard()
	if left, err := os.ReadDir(dir); err != nil || len(left) != 2 {
		t.Errorf("%v, %v, want the file and the folder alone", left, err)
	}
}

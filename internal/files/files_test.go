package files_test

import (
	"errors"
	"fmt"
	"io/fs"
	"os"
	"path/filepath"
	"strings"
	"testing"

	"github.com/ckd-project/ckd/internal/files"
	"github.com/ckd-project/ckd/internal/files/filestest"
)

// ways lists how operations fail.
var ways = map[string]filestest.How{"refused": filestest.Refused, "short": filestest.Short, "crash": filestest.Crash}

// TestReplaceWhole lets every operation of a replacement fail in turn. The file is then the old one or
// the new one, whole; it is the new one where Replace says so; and the next replacement succeeds.
func TestReplaceWhole(t *testing.T) {
	old, fresh := strings.Repeat("old\n", 1000), strings.Repeat("new\n", 2000)
	counted := filestest.Failing(files.Machine, 0, filestest.Refused)
	path := filepath.Join(t.TempDir(), "file")
	if err := files.Replace(counted, path, []byte(old), 0o600); err != nil {
		t.Fatal(err)
	}
	steps := counted.Operations()
	if len(steps) < 7 {
		t.Fatalf("%d operations, expected open, write, sync, close, rename, and open, sync and close of the directory: %q", len(steps), steps)
	}
	for name, how := range ways {
		for i, step := range steps {
			t.Run(fmt.Sprintf("%s %s %d", name, strings.Fields(step)[0], i+1), func(t *testing.T) {
				path := filepath.Join(t.TempDir(), "file")
				if err := os.WriteFile(path, []byte(old), 0o600); err != nil {
					t.Fatal(err)
				}
				disk := filestest.Failing(files.Machine, i+1, how)
				err := files.Replace(disk, path, []byte(fresh), 0o600)
				if !disk.Failed() || !errors.Is(err, filestest.ErrInjected) {
					t.Fatalf("%v, expected the injected fault", err)
				}
				is, err := os.ReadFile(path)
				if err != nil || string(is) != old && string(is) != fresh {
					t.Fatalf("%d bytes, %v; expected the old file or the new one", len(is), err)
				}
				renamed := i+1 > indexOf(steps, "rename") || i+1 == indexOf(steps, "rename") && how == filestest.Crash
				if (string(is) == fresh) != renamed {
					t.Errorf("the new file is there: %v, expected %v", string(is) == fresh, renamed)
				}
				left, err := os.ReadDir(filepath.Dir(path))
				if err != nil || how != filestest.Crash && len(left) != 1 {
					t.Errorf("%v, %v: a file was left behind", left, err)
				}
				if err := files.Replace(files.Machine, path, []byte(fresh), 0o600); err != nil {
					t.Fatal(err)
				}
				if is, err := os.ReadFile(path); err != nil || string(is) != fresh {
					t.Errorf("%d bytes, %v after another replacement", len(is), err)
				}
			})
		}
	}
}

// indexOf returns the number of the first step with this operation, from 1.
func indexOf(steps []string, operation string) int {
	for i, step := range steps {
		if strings.HasPrefix(step, operation) {
			return i + 1
		}
	}
	return 0
}

func TestReplaceNothing(t *testing.T) {
	dir := t.TempDir()
	if err := files.Replace(files.Machine, filepath.Join(dir, "none", "file"), nil, 0o600); !errors.Is(err, fs.ErrNotExist) {
		t.Errorf("%v, expected that the folder does not exist", err)
	}
	r, err := files.BeginReplacement(files.Machine, filepath.Join(dir, "file"), ".file.tmp", 0o600)
	if err != nil {
		t.Fatal(err)
	}
	r.Discard()
	r.Discard()
	if left, err := os.ReadDir(dir); err != nil || len(left) > 0 {
		t.Errorf("%v, %v after a discarded replacement", left, err)
	}
}

func TestRead(t *testing.T) {
	path := filepath.Join(t.TempDir(), "file")
	if err := os.WriteFile(path, []byte("12345"), 0o600); err != nil {
		t.Fatal(err)
	}
	if data, err := files.Read(files.Machine, path, 3); err != nil || string(data) != "123" {
		t.Errorf("%q, %v", data, err)
	}
	for name, how := range ways {
		disk := filestest.Failing(files.Machine, 2, how) // open, read
		if data, err := files.Read(disk, path, 10); !errors.Is(err, filestest.ErrInjected) {
			t.Errorf("%s: %q, %v", name, data, err)
		}
	}
}

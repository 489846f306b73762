package watch

import (
	"errors"
	"io/fs"
	"path/filepath"
	"strings"
	"testing"

	"github.com/ckd-project/ckd/internal/files"
)

func TestRead(t *testing.T) {
	dir := t.TempDir()
	a, large, none := filepath.Join(dir, "a"), filepath.Join(dir, "large"), filepath.Join(dir, "none")
	put(t, a, "12345")
	put(t, large, "123456")
	data, unread, err := Read(files.Machine, 5, a, large, none, a, dir, "/dev/zero")
	if err != nil || len(data) != 1 || string(data[a]) != "12345" || len(unread) != 4 {
		t.Fatalf("%q, %v, %v", data, unread, err)
	}
	for path, want := range map[string]string{
		large: "larger than expected, at most 5 bytes", none: "no such file or directory", dir: "not a regular file",
		"/dev/zero": "not a regular file",
	} {
		if unread[path] == nil || unread[path].Error() != want {
			t.Errorf("%s: %v, want %s", path, unread[path], want)
		}
	}
	if !errors.Is(unread[none], fs.ErrNotExist) {
		t.Errorf("%v is not that there is no file", unread[none])
	}
}

// TestReadStill checks that Read returns what two consecutive readings agree on.
func TestReadStill(t *testing.T) {
	for _, changes := range []int{0, 1, 4, 5} {
		reads := 0
		data, _, err := readStill(func() contents {
			n := min(reads, changes)
			reads++
			return contents{data: map[string][]byte{"a": {byte(n)}}}
		})
		switch {
		case changes == 5:
			if err == nil || !strings.Contains(err.Error(), "5 times over") || data != nil {
				t.Errorf("%d changes: %v, %v", changes, data, err)
			}
		case err != nil || data["a"][0] != byte(changes) || reads != changes+2:
			t.Errorf("%d changes: %v, %v after %d reads", changes, data, err, reads)
		}
	}
	// A fault that changes counts as a change.
	faults := []error{fs.ErrNotExist, fs.ErrPermission, fs.ErrPermission}
	_, unread, err := readStill(func() contents {
		fault := faults[0]
		faults = faults[1:]
		return contents{faults: map[string]error{"a": fault}}
	})
	if err != nil || !errors.Is(unread["a"], fs.ErrPermission) {
		t.Errorf("%v, %v", unread, err)
	}
}

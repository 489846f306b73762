package watch

import (
	"errors"
	"io/fs"
	"path/filepath"
	"strings"
	"testing"
)

func TestRead(t *testing.T) {
	dir := t.TempDir()
	a, large, none := filepath.Join(dir, "a"), filepath.Join(dir, "large"), filepath.Join(dir, "none")
	put(t, a, "12345")
	put(t, large, "123456")
	data, unread, err := Read(5, a, large, none, a, dir, "/dev/zero")
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

// TestStill checks that Still returns what two consecutive readings agree on, and that a fault that
// changes counts as a change.
func TestStill(t *testing.T) {
	for _, changes := range []int{0, 1, 4, 5} {
		reads := 0
		c, err := Still(func() contents {
			n := min(reads, changes)
			reads++
			if n%2 == 1 {
				return contents{faults: map[string]error{"a": errors.New(string(rune('0' + n)))}}
			}
			return contents{data: map[string][]byte{"a": {byte(n)}}}
		}, contents.equal)
		switch {
		case changes == 5:
			if err == nil || !strings.Contains(err.Error(), "5 times over") || c.data != nil {
				t.Errorf("%d changes: %v, %v", changes, c, err)
			}
		case err != nil || len(c.data)+len(c.faults) != 1 || reads != changes+2:
			t.Errorf("%d changes: %v, %v after %d reads", changes, c, err, reads)
		}
	}
}

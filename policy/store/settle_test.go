package store

import (
	"errors"
	"os"
	"path/filepath"
	"strconv"
	"testing"
	"time"
)

// A load is what was there before it read and still is after.
func TestLoadSettles(t *testing.T) {
	path := filepath.Join(t.TempDir(), "policy.yaml")
	changes := map[string]func() error{
		"touched": func() error { return os.Chtimes(path, time.Time{}, time.Now().Add(time.Hour)) },
		"longer": func() error {
			info, err := os.Stat(path)
			if err != nil {
				return err
			}
			text, err := os.ReadFile(path)
			return errors.Join(err, os.WriteFile(path, append(text, '\n'), 0o644), os.Chtimes(path, time.Time{}, info.ModTime()))
		},
		"replaced": func() error {
			info, err := os.Stat(path)
			if err != nil {
				return err
			}
			text, err := os.ReadFile(path)
			return errors.Join(err, os.WriteFile(path+"~", text, 0o644),
				os.Chtimes(path+"~", time.Time{}, info.ModTime()), os.Rename(path+"~", path))
		},
		"gone": func() error { return os.Rename(path, path+"~") },
	}
	for name, change := range changes {
		for _, times := range []int{0, 1, 4, 5} {
			if name == "gone" && times > 1 {
				continue
			}
			if err := os.WriteFile(path, []byte("models: [{name: a, classes: [a, b], critical: [b]}]\n"), 0o644); err != nil {
				t.Fatal(err)
			}
			looks := 0
			set, err := load(func() []source {
				if looks++; looks%2 == 0 && looks <= 2*times { // after reading
					if err := change(); err != nil {
						t.Fatal(err)
					}
				}
				return look([]string{path})
			})
			want := ""
			switch {
			case times == 5:
				want = path + ": changed while it was read, 5 times over, expected it to come to rest"
			case name == "gone" && times > 0:
				want = path + ": cannot read: no such file or directory"
			}
			if got := message(err); got != want || (set == nil) != (want != "") {
				t.Errorf("%s %d times: set %v, error %q, want %q", name, times, set, got, want)
			}
			if want := 2 * min(times+1, 5); looks != want {
				t.Errorf("%s %d times: it looked %d times, want %d", name, times, looks, want)
			}
		}
	}
}

// Two generations that are both gone when looked for were two, though their
// faults read alike.
func TestLoadSettlesOnOneGeneration(t *testing.T) {
	dir := t.TempDir()
	looks := 0
	_, err := load(func() []source {
		if looks++; looks <= 2 {
			link := filepath.Join(dir, dataLink)
			if err := errors.Join(os.RemoveAll(link), os.Symlink("..gone"+strconv.Itoa(looks), link)); err != nil {
				t.Fatal(err)
			}
		}
		return look([]string{dir})
	})
	if want := filepath.Join(dir, dataLink) + ": cannot read: no such file or directory"; message(err) != want || looks != 4 {
		t.Errorf("error %q after %d looks, want %q after 4", message(err), looks, want)
	}
}

func message(err error) string {
	if err == nil {
		return ""
	}
	return err.Error()
}

func TestDifference(t *testing.T) {
	a, b, other := source{name: "a", path: "1/a"}, source{name: "b", path: "1/b"}, source{name: "a", path: "2/a"}
	fault := source{name: "a", path: "1/a", fault: "cannot read: it"}
	tests := []struct {
		before, after []source
		want          string
	}{
		{nil, nil, ""},
		{[]source{a, b}, []source{a, b}, ""},
		{[]source{a}, []source{a, b}, "b"},
		{[]source{a, b}, []source{a}, "b"},
		{[]source{a, b}, []source{b}, "b"},
		{[]source{a}, []source{other}, "a"},
		{[]source{a}, []source{fault}, "a"},
	}
	for _, test := range tests {
		got, differ := difference(test.before, test.after)
		if got != test.want || differ != (test.want != "") {
			t.Errorf("%v and %v: %q, %v, want %q", test.before, test.after, got, differ, test.want)
		}
	}
}

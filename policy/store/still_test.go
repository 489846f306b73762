package store

import (
	"errors"
	"fmt"
	"os"
	"path/filepath"
	"strconv"
	"strings"
	"testing"
	"time"

	"github.com/ckd-project/ckd/internal/files"
)

// TestLoadStill checks that a load returns files that were there before it read them and still
// are afterwards.
func TestLoadStill(t *testing.T) {
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
			t.Run(fmt.Sprintf("%s %d times", name, times), func(t *testing.T) {
				if err := os.WriteFile(path, []byte("models: [{name: a, classes: [a, b], critical: [b]}]\n"), 0o644); err != nil {
					t.Fatal(err)
				}
				looks := 0
				set, err := load(files.Machine, func() []source {
					if looks++; looks%2 == 0 && looks <= 2*times { // after reading
						if err := change(); err != nil {
							t.Fatal(err)
						}
					}
					return look(files.Machine, []string{path})
				})
				want := ""
				switch {
				case times == 5:
					want = path + ": changed while it was read, 5 times over"
				case name == "gone" && times > 0:
					want = path + ": cannot read: no such file or directory"
				}
				if (set == nil) != (want != "") || (err == nil) != (want == "") || err != nil && !strings.HasPrefix(err.Error(), want) {
					t.Errorf("set %v, error %v, want %q", set, err, want)
				}
				if want := 2 * min(times+1, 5); looks != want {
					t.Errorf("it looked %d times, want %d", looks, want)
				}
			})
		}
	}
}

// TestLoadStillOnOneGeneration checks that two generations count as two even if both are gone
// when looked for, and their faults read alike.
func TestLoadStillOnOneGeneration(t *testing.T) {
	dir := t.TempDir()
	looks := 0
	_, err := load(files.Machine, func() []source {
		if looks++; looks <= 2 {
			link := filepath.Join(dir, dataLink)
			if err := errors.Join(os.RemoveAll(link), os.Symlink("..gone"+strconv.Itoa(looks), link)); err != nil {
				t.Fatal(err)
			}
		}
		return look(files.Machine, []string{dir})
	})
	if want := filepath.Join(dir, dataLink) + ": cannot read: no such file or directory"; err == nil || err.Error() != want || looks != 4 {
		t.Errorf("error %v after %d looks, want %q after 4", err, looks, want)
	}
}

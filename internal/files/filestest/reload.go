package filestest

import (
	"errors"
	"fmt"
	"strings"
	"testing"
)

// Reloaded is something that keeps what files said last in force.
type Reloaded struct {
	Disk *Disk // it reads from
	// Put writes the old files, or the new ones.
	Put func(t *testing.T, fresh bool)
	// Reload reads the files and returns the hash of what is in force then, and why it is not what
	// the files say.
	Reload func() (hash string, err error)
	Names  string // part of the files' paths, which every error must name
}

// Check lets every operation of a reload fail in turn, in each way. Either the new files are in force
// then, whole, or the old ones stay and the error names the file; and the next reload without a fault
// puts the new ones in force.
func (r *Reloaded) Check(t *testing.T) {
	t.Helper()
	mustReload := func(t *testing.T, fresh bool) string {
		t.Helper()
		r.Disk.Fail(0, Refused)
		r.Put(t, fresh)
		hash, err := r.Reload()
		if err != nil {
			t.Fatal(err)
		}
		return hash
	}
	old := mustReload(t, false)
	is := mustReload(t, true)
	steps := r.Disk.Operations()
	if old == is || len(steps) == 0 {
		t.Fatalf("old %s, new %s after %d operations, expected another hash after some", old, is, len(steps))
	}
	kept := 0
	for _, how := range []How{Refused, Short, Crash} {
		for i, step := range steps {
			t.Run(fmt.Sprintf("%v %s %d", how, strings.Fields(step)[0], i+1), func(t *testing.T) {
				mustReload(t, false)
				r.Put(t, true)
				r.Disk.Fail(i+1, how)
				hash, err := r.Reload()
				if !r.Disk.Failed() {
					t.Fatalf("%d operations, expected at least %d", len(r.Disk.Operations()), i+1)
				}
				switch {
				case err == nil && hash == is: // it was read again, or the operation did not matter
				case err == nil:
					t.Errorf("%s is in force without an error, expected the new one, %s", hash, is)
				case hash != old:
					t.Errorf("%s is in force after %v, expected the old one, %s", hash, err, old)
				case !errors.Is(err, ErrInjected) && !strings.Contains(err.Error(), ErrInjected.Error()) || !strings.Contains(err.Error(), r.Names):
					t.Errorf("%v, expected the injected fault, and a file of %s", err, r.Names)
				default:
					kept++
				}
				if hash := mustReload(t, true); hash != is {
					t.Errorf("%s is in force after a reload without a fault, expected %s", hash, is)
				}
			})
		}
	}
	if kept == 0 {
		t.Error("the old files were never kept: no fault was seen")
	}
}

func (h How) String() string {
	return [...]string{"refused", "short", "crash"}[h]
}

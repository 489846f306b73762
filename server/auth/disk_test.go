package auth_test

import (
	"path/filepath"
	"testing"

	"github.com/ckd-project/ckd/internal/files"
	"github.com/ckd-project/ckd/internal/files/filestest"
	"github.com/ckd-project/ckd/server/auth"
)

// TestDiskFaults lets every operation of a reload of an access file with token files fail in turn.
func TestDiskFaults(t *testing.T) {
	dir := t.TempDir()
	path, token := filepath.Join(dir, "access.yaml"), filepath.Join(dir, "token")
	put := func(t *testing.T, fresh bool) {
		rights := "[a]"
		secret := "the-old-token-of-at-least-32-characters"
		if fresh {
			rights, secret = "[a, b]", "the-new-token-of-at-least-32-characters"
		}
		write(t, token, secret+"\n")
		write(t, path, "identities: [{name: one, tokens: [{file: "+token+"}], models: "+rights+"}]\n")
	}
	put(t, false)
	disk := filestest.Failing(files.Machine, 0, filestest.Refused)
	s, err := auth.OpenOn(disk, path, auth.Options{})
	if err != nil {
		t.Fatal(err)
	}
	r := filestest.Reloaded{
		Disk: disk, Names: dir, Put: put,
		Reload: func() (string, error) { o := s.Reload("test"); return o.Hash, o.Err },
	}
	r.Check(t)
}

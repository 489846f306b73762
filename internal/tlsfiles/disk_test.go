package tlsfiles_test

import (
	"testing"
	"time"

	"github.com/ckd-project/ckd/internal/files"
	"github.com/ckd-project/ckd/internal/files/filestest"
	"github.com/ckd-project/ckd/internal/tlsfiles"
	"github.com/ckd-project/ckd/internal/tlsfiles/certtest"
)

// TestDiskFaults lets every operation of a reload of all four files fail in turn. A certificate is
// never in force with another's key, nor without its list.
func TestDiskFaults(t *testing.T) {
	ca := certtest.NewCA(t, "ca")
	list := ca.Revoke(t, time.Now().Add(time.Hour))
	pairs := map[bool]certtest.Pair{false: ca.Issue(t), true: ca.Issue(t)}
	f := newFiles(t, pairs[false], ca.PEM, list)
	disk := filestest.Failing(files.Machine, 0, filestest.Refused)
	s, err := tlsfiles.Load(f.options.On(disk))
	if err != nil {
		t.Fatal(err)
	}
	r := filestest.Reloaded{
		Disk: disk, Names: f.dir,
		Put: func(t *testing.T, fresh bool) {
			f.put(t, "tls.crt", pairs[fresh].CertPEM)
			f.put(t, "tls.key", pairs[fresh].KeyPEM)
		},
		Reload: func() (string, error) { o := s.Reload("test"); return o.Hash, o.Err },
	}
	r.Check(t)
}

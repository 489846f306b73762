package ledger

import (
	"context"
	"errors"
	"fmt"
	"io"
	"os"
	"path/filepath"
	"time"

	"golang.org/x/sys/unix"

	"github.com/ckd-project/ckd/internal/outcome/receipt"
	"github.com/ckd-project/ckd/internal/outcome/store"
)

// errInUse says that a process has the ledger open which was to be replaced.
var errInUse = errors.New("a daemon has the ledger open: stop it first")

// ErrLater says that a folder's ledger has what the backup that was to replace it lacks.
var ErrLater = errors.New("a ledger is there that has what the backup lacks")

// Checked counts what was verified.
type Checked = store.Checked

// Verify reads the whole ledger of a folder, which a daemon may be serving, and calls each with every
// fault. Keys open the sealed receipts; nil leaves them sealed. The error says that Verify could not go on.
func Verify(ctx context.Context, dir string, keys *receipt.Keys, each func(fault string)) (Checked, error) {
	s, err := store.OpenReadOnly(dir, store.Options{})
	if err != nil {
		return Checked{}, err
	}
	checked, err := verify(ctx, s, keys, each)
	return checked, errors.Join(err, s.Close())
}

func verify(ctx context.Context, s *store.Store, keys *receipt.Keys, each func(fault string)) (Checked, error) {
	if keys == nil {
		return s.Verify(ctx, nil, each)
	}
	return s.Verify(ctx, keys.Open, each)
}

// Backup writes the ledger of a folder as of now to a file, which is whole or not there, and notes the
// time in the ledger. A daemon may be serving it.
func Backup(ctx context.Context, dir, path string, o Options) error {
	s, err := store.Open(dir, store.Options{Now: o.Now})
	if err != nil {
		return err
	}
	return errors.Join(s.Backup(ctx, path), s.Close())
}

func (o *Options) clock() func() time.Time {
	if o.Now == nil {
		return time.Now
	}
	return o.Now
}

// RestoreOptions says how to restore a backup.
type RestoreOptions struct {
	Options
	// By and Reason are recorded in the trail; both have to be given.
	By, Reason string
	// SetAside replaces a ledger too that has what the backup lacks.
	SetAside bool
}

// Restored says what a restore has done.
type Restored struct {
	Checked
	// Generation is the one that begins with the restore.
	Generation uint64
	// Aside is the folder that keeps the ledger which was replaced; empty for none.
	Aside string
}

// Restore puts a backup into a folder. It checks the copy first, and begins a generation in it, by which
// daemons know that they have to tell again what it lacks. A ledger in the folder is kept in a folder
// beside; where that one can be read and has what the backup lacks, the error is ErrLater and nothing
// changes. The error is errInUse while another process has the ledger open: a file cannot be replaced
// under a daemon.
func Restore(ctx context.Context, path, dir string, o RestoreOptions) (_ Restored, err error) {
	var done Restored
	if o.By == "" || o.Reason == "" {
		return done, errors.New("restore: expected who restores the ledger, and why")
	}
	if err := os.MkdirAll(dir, 0o700); err != nil {
		return done, err
	}
	standing := filepath.Join(dir, store.FileName)
	unlock, err := lock(standing)
	if err != nil {
		return done, err
	}
	unlock() // reading the ledger would end the lock
	staging, err := os.MkdirTemp(dir, "restoring-")
	if err != nil {
		return done, err
	}
	defer os.RemoveAll(staging) //nolint:errcheck // what is left is in the way of nobody
	if err := copyFile(path, filepath.Join(staging, store.FileName)); err != nil {
		return done, err
	}
	s, err := store.Open(staging, store.Options{Now: o.Now})
	if err != nil {
		return done, fmt.Errorf("%s: it cannot be restored: %w", path, err)
	}
	defer s.Close() // below, unless the restore fails
	first := ""
	if done.Checked, err = verify(ctx, s, nil, func(fault string) {
		if first == "" {
			first = fault
		}
	}); err != nil {
		return done, err
	}
	if done.Faults > 0 {
		return done, fmt.Errorf("%s: it has %d faults, and is not restored: take another backup: %s", path, done.Faults, first)
	}
	copied := s.Identity()
	before, err := admits(dir, &copied, o.SetAside)
	if err != nil {
		return done, err
	}
	now := o.clock()
	if err := s.Update(func(tx *store.Tx) error {
		for range max(before, copied.Generation) + 1 - copied.Generation {
			if err := tx.NextGeneration(); err != nil {
				return err
			}
		}
		return addEvent(tx, now(), Event{Kind: eventRestored, By: o.By, Reason: o.Reason,
			Detail: fmt.Sprintf("a backup of generation %d after %d transactions, with %d decisions", copied.Generation, copied.Commit, done.Decisions)})
	}); err != nil {
		return done, err
	}
	done.Generation = s.Identity().Generation
	if err := s.Close(); err != nil { // moves the log into the file
		return done, err
	}
	if unlock, err = lock(standing); err != nil {
		return done, err
	}
	defer unlock()
	if done.Aside, err = setAside(dir, now()); err != nil {
		return done, err
	}
	if err := os.Rename(filepath.Join(staging, store.FileName), standing); err != nil {
		return done, err
	}
	return done, syncFolder(dir)
}

// admits returns the generation of a folder's ledger, 0 where it is none of the copy or damaged. The
// error is ErrLater where it has what the copy lacks and is not to be set aside.
func admits(dir string, copied *store.Identity, setAside bool) (generation uint64, err error) {
	s, err := store.OpenReadOnly(dir, store.Options{})
	switch {
	case errors.Is(err, store.ErrMissing), errors.Is(err, store.ErrDamaged):
		return 0, nil
	case err != nil:
		return 0, err
	}
	there := s.Identity()
	if err := s.Close(); err != nil {
		return 0, err
	}
	what := ""
	switch {
	case there.ID != copied.ID:
		what = "it is another ledger"
	case there.Generation > copied.Generation:
		what = fmt.Sprintf("it is of generation %d, the backup of %d", there.Generation, copied.Generation)
	case there.Commit > copied.Commit:
		what = fmt.Sprintf("it has %d later transactions", there.Commit-copied.Commit)
	}
	switch {
	case what != "" && !setAside:
		return 0, fmt.Errorf("%s: %w: %s", dir, ErrLater, what)
	case there.ID != copied.ID:
		return 0, nil
	}
	return there.Generation, nil
}

// setAside moves the files of a folder's ledger into a folder of their own, and returns its path; ""
// where there are none.
func setAside(dir string, now time.Time) (aside string, err error) {
	for _, suffix := range []string{"", "-wal", "-shm", "-journal"} {
		name := store.FileName + suffix
		if _, err := os.Lstat(filepath.Join(dir, name)); errors.Is(err, os.ErrNotExist) {
			continue
		}
		if aside == "" {
			aside = filepath.Join(dir, "replaced-"+now.UTC().Format("20060102T150405.000Z"))
			if err := os.Mkdir(aside, 0o700); err != nil {
				return "", err
			}
		}
		if err := os.Rename(filepath.Join(dir, name), filepath.Join(aside, name)); err != nil {
			return aside, err
		}
	}
	return aside, nil
}

// lock keeps other processes from opening the ledger until unlock is called. SQLite's processes lock
// these bytes of their files, those of the memory that they share even if the ledger itself was removed.
func lock(path string) (unlock func(), err error) {
	var files []*os.File
	unlock = func() {
		for _, f := range files {
			_ = f.Close() // was only locked
		}
	}
	for _, locked := range []struct {
		path          string
		start, length int64
	}{{path, 1 << 30, 512}, {path + "-shm", 128, 1}} {
		f, err := os.OpenFile(locked.path, os.O_RDWR, 0)
		if errors.Is(err, os.ErrNotExist) {
			continue
		}
		if err != nil {
			unlock()
			return nil, err
		}
		files = append(files, f)
		err = unix.FcntlFlock(f.Fd(), unix.F_SETLK, &unix.Flock_t{Type: unix.F_WRLCK, Whence: io.SeekStart, Start: locked.start, Len: locked.length})
		if errors.Is(err, unix.EAGAIN) || errors.Is(err, unix.EACCES) {
			err = fmt.Errorf("%s: %w", path, errInUse)
		}
		if err != nil {
			unlock()
			return nil, err
		}
	}
	return unlock, nil
}

// The bytes of a file of SQLite that say how it is written, and read: 2 with a log beside it. A backup
// says 1.
const (
	headerWrite = 18
	headerRead  = 19
	withLog     = 2
)

// copyFile copies a backup so that it can be opened as a ledger.
func copyFile(from, path string) error {
	in, err := os.Open(from)
	if err != nil {
		return err
	}
	defer in.Close()
	out, err := os.OpenFile(path, os.O_CREATE|os.O_EXCL|os.O_WRONLY, 0o600)
	if err != nil {
		return err
	}
	n, err := io.Copy(out, in)
	if err == nil && n > headerRead {
		_, err = out.WriteAt([]byte{withLog, withLog}, headerWrite)
	}
	if err == nil {
		err = out.Sync()
	}
	return errors.Join(err, out.Close())
}

func syncFolder(dir string) error {
	f, err := os.Open(dir)
	if err != nil {
		return err
	}
	return errors.Join(f.Sync(), f.Close())
}

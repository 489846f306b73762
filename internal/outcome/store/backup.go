package store

import (
	"context"
	"errors"
	"fmt"
	"io"
	"os"
	"path/filepath"
	"time"

	"golang.org/x/sys/unix"
)

// metaLastBackup is where the time of the last backup is noted.
const metaLastBackup = "last_backup"

// Purge has nothing remain of what was deleted, in the file or in its log, and gives its room back.
// The error is ErrBusy where a View, of this process or another, still reads what was deleted.
func (s *Store) Purge() error {
	s.writing.Lock()
	defer s.writing.Unlock()
	if s.writer == nil {
		return errClosed
	}
	if _, err := s.writer.exec("PRAGMA incremental_vacuum"); err != nil {
		return explain(s.path, err)
	}
	return explain(s.path, s.restartLog())
}

// Backup writes the ledger as of now to a file, which it replaces, beside Updates and Views: a copy
// of a snapshot, which ends however much is written meanwhile. The file is whole or as it was.
func (s *Store) Backup(ctx context.Context, path string) error {
	made := path + ".new"
	if err := removeAll(made); err != nil {
		return err
	}
	defer removeAll(made) //nolint:errcheck // it is gone, or is removed the next time
	c, err := openConn(s.path, "rw")
	if err != nil {
		return explain(s.path, err)
	}
	_, err = c.execContext(ctx, "VACUUM INTO ?", made)
	if err = errors.Join(err, c.close()); err != nil {
		return explain(s.path, err)
	}
	if err := syncFile(made); err != nil {
		return err
	}
	if err := os.Rename(made, path); err != nil {
		return err
	}
	if s.readOnly {
		return nil
	}
	now := s.options.now().UTC().Format(time.RFC3339Nano)
	if err := s.Update(func(tx *Tx) error { return tx.SetMeta(metaLastBackup, now) }); err != nil {
		return err
	}
	if err := s.Purge(); !errors.Is(err, ErrBusy) {
		return err
	}
	return nil // the next Update begins the log anew
}

// replaced is the suffix of a ledger in whose place a backup was put.
const replaced = ".replaced"

// Restore puts a backup in the place of the ledger of a folder, as a new generation of it. It
// refuses a backup that Open would, and a ledger that a process has open. The ledger that was
// there, however damaged, stays beside it, as ledger.db.replaced, until the next Restore.
func Restore(backup, dir string, o Options) error {
	if err := checkFile(backup); err != nil {
		return err
	}
	path := filepath.Join(dir, FileName)
	if err := checkUnused(path); err != nil {
		return err
	}
	part := filepath.Join(dir, "restored")
	if err := os.RemoveAll(part); err != nil {
		return err
	}
	defer os.RemoveAll(part) //nolint:errcheck // it is gone, or is removed the next time
	if err := copyFile(backup, filepath.Join(part, FileName)); err != nil {
		return err
	}
	s, err := Open(part, o)
	if err != nil {
		return err
	}
	if err := errors.Join(s.Update((*Tx).NextGeneration), s.Close(), syncFile(s.path)); err != nil {
		return err
	}
	// After a crash between these no ledger is there, which Open says, and Restore can begin again.
	if err := removeAll(path + replaced); err != nil {
		return err
	}
	for _, suffix := range []string{"", "-wal"} {
		if err := os.Rename(path+suffix, path+replaced+suffix); err != nil && !errors.Is(err, os.ErrNotExist) {
			return err
		}
	}
	if err := removeAll(path); err != nil {
		return err
	}
	return errors.Join(os.Rename(s.path, path), syncFile(dir))
}

// copyFile copies a file to the disk, into a folder that it makes.
func copyFile(from, to string) error {
	if err := os.MkdirAll(filepath.Dir(to), 0o700); err != nil {
		return err
	}
	in, err := os.Open(from)
	if err != nil {
		return err
	}
	defer in.Close()
	out, err := os.OpenFile(to, os.O_CREATE|os.O_EXCL|os.O_WRONLY, 0o600)
	if err != nil {
		return err
	}
	_, err = io.Copy(out, in)
	return errors.Join(err, out.Sync(), out.Close())
}

// The bytes of a file that SQLite locks for reading while a process has it open.
const (
	lockStart = 1<<30 + 2
	lockBytes = 510
)

// checkUnused returns ErrBusy for a ledger that is open.
func checkUnused(path string) error {
	f, err := os.OpenFile(path, os.O_RDWR, 0)
	if errors.Is(err, os.ErrNotExist) {
		return nil
	}
	if err != nil {
		return err
	}
	defer f.Close()
	lock := unix.Flock_t{Type: unix.F_WRLCK, Whence: io.SeekStart, Start: lockStart, Len: lockBytes}
	if err := unix.FcntlFlock(f.Fd(), unix.F_GETLK, &lock); err != nil {
		return err
	}
	if lock.Type != unix.F_UNLCK {
		return fmt.Errorf("%s: %w: a process has it open: stop that first", path, ErrBusy)
	}
	return nil
}

package store

import (
	"context"
	"errors"
	"os"
	"time"
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

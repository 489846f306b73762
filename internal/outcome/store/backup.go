package store

import (
	"bytes"
	"context"
	"encoding/binary"
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
	if err := s.giveRoomBack(); err != nil {
		return explain(s.path, err)
	}
	return explain(s.path, errors.Join(s.wipe(), s.restartLog()))
}

func (s *Store) giveRoomBack() error {
	_, err := s.writer.exec("PRAGMA incremental_vacuum")
	return err
}

// wipe overwrites the gaps of pages with zeros. SQLite overwrites a row that is deleted, but not the copies
// that it left in the gap of a page when it moved rows from there to the next.
func (s *Store) wipe() error {
	const most = 1000 // pages in one transaction
	for again := true; again; {
		again = false
		var pages []int64
		var listed Identity
		if err := s.exclusively(func(i *Identity) error {
			listed = *i
			return s.writer.query(func(r *row) error {
				pages = append(pages, r.int())
				return nil
			}, "SELECT pageno FROM dbstat WHERE pagetype IN ('leaf', 'internal')")
		}); err != nil {
			return err
		}
		for ; len(pages) > 0 && !again; pages = pages[min(most, len(pages)):] {
			if err := s.exclusively(func(i *Identity) error {
				if again = *i != listed; again {
					return nil // another process wrote: a page may hold something else
				}
				return s.wipePages(pages[:min(most, len(pages))])
			}); err != nil {
				return err
			}
			if s.logBytes() > softLog {
				_ = s.restartLog() // what was written stays in the log
			}
		}
	}
	return nil
}

// exclusively calls f with the identity of the ledger, in a transaction beside which nothing is written.
func (s *Store) exclusively(f func(i *Identity) error) error {
	if _, err := s.writer.exec("BEGIN IMMEDIATE"); err != nil {
		return err
	}
	i, err := readIdentity(s.writer)
	if err == nil {
		err = f(i)
	}
	end := "COMMIT"
	if err != nil {
		end = "ROLLBACK"
	}
	_, ended := s.writer.exec(end)
	return errors.Join(err, ended)
}

func (s *Store) wipePages(pages []int64) error {
	for _, number := range pages {
		var page []byte
		if _, err := s.writer.one(func(r *row) { page = r.bytes() }, "SELECT data FROM sqlite_dbpage WHERE pgno = ?", number); err != nil {
			return err
		}
		gap := gapOf(number, page)
		if len(bytes.Trim(gap, "\x00")) == 0 {
			continue
		}
		clear(gap)
		if _, err := s.writer.exec("UPDATE sqlite_dbpage SET data = ? WHERE pgno = ?", page, number); err != nil {
			return err
		}
	}
	return nil
}

// gapOf returns the bytes of a page of a tree between the places of its cells and the cells.
func gapOf(number int64, page []byte) []byte {
	header := 0
	if number == 1 {
		header = headerBytes
	}
	if len(page) < header+12 {
		return nil
	}
	low := header + 8 + 2*int(binary.BigEndian.Uint16(page[header+3:]))
	if kind := page[header]; kind == 2 || kind == 5 { // these have children
		low += 4
	}
	high := int(binary.BigEndian.Uint16(page[header+5:]))
	if low >= high || high > len(page) {
		return nil
	}
	return page[low:high]
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
	s.writing.Lock()
	defer s.writing.Unlock()
	if s.writer == nil {
		return errClosed
	}
	if err := errors.Join(s.giveRoomBack(), s.restartLog()); !errors.Is(err, ErrBusy) {
		return explain(s.path, err)
	}
	return nil // the next Update begins the log anew
}

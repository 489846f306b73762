package store

import (
	"bytes"
	"context"
	"encoding/binary"
	"errors"
	"fmt"
	"os"
	"time"
)

// metaLastBackup is where the time of the last backup is noted.
const metaLastBackup = "last_backup"

// Purge has nothing remain of what was deleted, in the file or in its log, and gives its room back.
// It reads the whole file, a piece at a time, between which Updates go on. The error is ErrBusy where a
// View, of this process or another, still reads what was deleted.
func (s *Store) Purge() error {
	s.purging.Lock() // giving room back moves pages
	defer s.purging.Unlock()
	for first := int64(1); first > 0; {
		if err := s.exclusively(func() (err error) {
			first, err = s.wipe(first)
			return err
		}); err != nil {
			return explain(s.path, err)
		}
	}
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

// exclusively calls f in a transaction that counts as no Update: what the tables say stays.
func (s *Store) exclusively(f func() error) error {
	s.writing.Lock()
	defer s.writing.Unlock()
	if s.writer == nil {
		return errClosed
	}
	if _, err := s.writer.exec("BEGIN IMMEDIATE"); err != nil {
		return err
	}
	err, end := f(), "COMMIT"
	if err != nil {
		end = "ROLLBACK"
	}
	_, ended := s.writer.exec(end)
	if s.logBytes() > s.restartAt {
		_ = s.restartLog() // what was written stays in the log
	}
	return errors.Join(err, ended)
}

// wipe overwrites the gaps of some pages with zeros, and returns the page to go on with; 0 after the last.
// SQLite overwrites a row that is deleted, but not the copies that it left in the gap of a page when it
// moved rows from there to the next.
func (s *Store) wipe(first int64) (next int64, err error) {
	const most = 1000
	var pages int64
	if _, err := s.writer.one(func(r *row) { pages = r.int() }, "PRAGMA page_count"); err != nil {
		return 0, err
	}
	if pages > mostPages {
		return 0, fmt.Errorf("the file has %d pages, expected at most %d", pages, int64(mostPages))
	}
	next = first + most
	for number := first; number < next && number <= pages; number++ {
		if number%pointerPages == 2 {
			continue
		}
		var page []byte
		if _, err := s.writer.one(func(r *row) { page = r.bytes() }, "SELECT data FROM sqlite_dbpage WHERE pgno = ?", number); err != nil {
			return 0, err
		}
		gap := gapOf(number, page)
		if len(bytes.Trim(gap, "\x00")) == 0 {
			continue
		}
		clear(gap)
		if _, err := s.writer.exec("UPDATE sqlite_dbpage SET data = ? WHERE pgno = ?", page, number); err != nil {
			return 0, err
		}
	}
	if next > pages {
		next = 0
	}
	return next, nil
}

const (
	// pointerPages is the distance of the pages that say where others are pointed to, from page 2 on:
	// each has 5 bytes for each page up to the next.
	pointerPages = pageSize/5 + 1
	// mostPages bounds the pages of a file whose gaps can be told: below it, the first byte of a page
	// that is not of a tree, which begins with the number of another, is 0.
	mostPages = 1<<24 - 1
)

// The kinds of pages of a tree, which are their first byte, or in page 1 the first after the header of the
// file.
const (
	interiorIndex = 2
	interiorTable = 5
	leafIndex     = 10
	leafTable     = 13
)

// gapOf returns the bytes between the places of the cells and the cells of a page; nil for a page that is
// not of a tree.
func gapOf(number int64, page []byte) []byte {
	header := 0
	if number == 1 {
		header = headerBytes
	}
	low := header + 8
	switch page[header] {
	case leafIndex, leafTable:
	case interiorIndex, interiorTable:
		low += 4
	default:
		return nil
	}
	cells, high := int(binary.BigEndian.Uint16(page[header+3:])), int(binary.BigEndian.Uint16(page[header+5:]))
	for range cells {
		if low+2 > high || int(binary.BigEndian.Uint16(page[low:])) < high {
			return nil
		}
		low += 2
	}
	if low > high || high > len(page) {
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
	if err := s.restartLog(); !errors.Is(err, ErrBusy) {
		return explain(s.path, err)
	}
	return nil // the next Update begins the log anew
}

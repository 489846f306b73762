package store_test

import (
	"bytes"
	"context"
	"database/sql"
	"encoding/binary"
	"errors"
	"fmt"
	"math/rand/v2"
	"os"
	"path/filepath"
	"strings"
	"testing"
	"time"

	"golang.org/x/sys/unix"

	"github.com/ckd-project/ckd/internal/outcome/receipt"
	"github.com/ckd-project/ckd/internal/outcome/store"
	"github.com/ckd-project/ckd/internal/outcome/truth"
)

// pageSize is the size of the pages of a ledger.
const pageSize = 8192

// file returns the path of the ledger of a folder.
func file(dir string) string { return filepath.Join(dir, store.FileName) }

// fill stores n decisions and something in every table.
func fill(t testing.TB, s *store.Store, n int) {
	t.Helper()
	update(t, s, func(tx *store.Tx) error {
		p := store.Promise{Policy: [32]byte{1}, Version: 7, Period: 86400e6}
		failed := errors.Join(tx.PutPolicy(p.Policy, bytes.Repeat([]byte("policy "), 1000)), tx.AddPromise(&p), tx.NameVersion(1, "v7"),
			tx.SetMeta("name", "value"), tx.PutEvidence("m", 0, bytes.Repeat([]byte("evidence "), 500)), tx.AddEvent([]byte("an event")),
			tx.PutSealer(receipt.SealerID{9}, 12, "abc", 1))
		for i := range n {
			d := decision(i)
			failed = errors.Join(failed, tx.Insert(p.Number, d, bytes.Repeat([]byte{byte(i)}, receipt.Size)))
		}
		for day := range int64(3) {
			start := day0.UnixMicro() + day*86400e6
			failed = errors.Join(failed, tx.Touch(1, start), tx.PutCount(1, start, 1, bytes.Repeat([]byte("count "), 300)),
				tx.PutTaken(1, start, []byte("bets"), []byte("point")))
			for hour := range int64(24) {
				_, err := tx.PutIssued(&store.Issued{Promise: 1, Cohort: start, Start: start + hour*3600e6, Stratum: receipt.CalledSafe, Process: "host-1",
					Counts: store.Counts{Decisions: uint64(hour + 1), Expected: 5}, Settings: []byte("rate: 0.02")})
				failed = errors.Join(failed, err)
			}
		}
		return failed
	})
}

func faults(t testing.TB, s *store.Store) (found []string) {
	t.Helper()
	if _, err := s.Verify(context.Background(), nil, func(fault string) { found = append(found, fault) }); err != nil {
		t.Error(err)
	}
	return found
}

// TestOpenRefuses opens what is no ledger, or no longer one. Nothing is made or changed by it.
func TestOpenRefuses(t *testing.T) {
	whole, s := create(t)
	fill(t, s, 2000)
	s.Close()
	data, err := os.ReadFile(file(whole))
	if err != nil {
		t.Fatal(err)
	}
	header := func(at int, to ...byte) []byte {
		changed := bytes.Clone(data)
		copy(changed[at:], to)
		return changed
	}
	for name, c := range map[string]struct {
		data    []byte // nil for no file
		is      error
		message string
	}{
		"missing":         {nil, store.ErrMissing, "begin a new ledger: ckd outcomes begin --ledger "},
		"empty":           {[]byte{}, store.ErrDamaged, "the file is empty: put a backup back: ckd outcomes restore"},
		"text":            {[]byte("hello"), store.ErrDamaged, "the file has 5 bytes, which is no ledger"},
		"zeros":           {make([]byte, 2*pageSize), store.ErrDamaged, "does not begin as a ledger does"},
		"cut in a page":   {data[:len(data)/2+100], store.ErrDamaged, "the file was cut: it has "},
		"cut by one page": {data[:len(data)-pageSize], store.ErrDamaged, "the file was cut: it has "},
		"other program":   {header(68, 0, 0, 0, 1), store.ErrForeign, "a file of another program"},
		"other version":   {header(60, 0, 0, 0, 99), store.ErrForeign, "its schema is version 99, expected 1"},
		"no schema":       {append(bytes.Clone(data[:100]), make([]byte, len(data)-100)...), store.ErrDamaged, "ckd outcomes restore"},
	} {
		t.Run(name, func(t *testing.T) {
			dir := t.TempDir()
			if c.data != nil {
				if err := os.WriteFile(file(dir), c.data, 0o600); err != nil {
					t.Fatal(err)
				}
			}
			for name, open := range map[string]func(string, store.Options) (*store.Store, error){"Open": store.Open, "OpenReadOnly": store.OpenReadOnly} {
				_, err := open(dir, store.Options{})
				if !errors.Is(err, c.is) || !strings.Contains(err.Error(), c.message) || !strings.HasPrefix(err.Error(), file(dir)) {
					t.Errorf("%s: %v, expected %q", name, err, c.message)
				}
			}
			after, err := os.ReadFile(file(dir))
			if c.data == nil {
				if !errors.Is(err, os.ErrNotExist) {
					t.Errorf("there is a file now: %v", err)
				}
			} else if !bytes.Equal(after, c.data) {
				t.Error("the file was changed")
			}
		})
	}
}

func TestCreateRefuses(t *testing.T) {
	dir, _ := create(t)
	if err := store.Create(dir, store.Options{}); !errors.Is(err, store.ErrExists) {
		t.Errorf("created twice: %v", err)
	}
	left := t.TempDir() // SQLite would read the log of another file into a new one
	if err := os.WriteFile(file(left)+"-wal", []byte("log"), 0o600); err != nil {
		t.Fatal(err)
	}
	if err := store.Create(left, store.Options{}); !errors.Is(err, store.ErrExists) {
		t.Errorf("created beside a log: %v", err)
	}
	empty := t.TempDir()
	if err := os.WriteFile(file(empty), nil, 0o600); err != nil {
		t.Fatal(err)
	}
	if err := store.Create(empty, store.Options{}); !errors.Is(err, store.ErrExists) {
		t.Errorf("created over an emptied one: %v", err)
	}
}

// TestVerifyFindsFlips flips single bits in pages that are in use. Bytes of a page that hold
// nothing are left out: a flip there changes nothing that is stored.
func TestVerifyFindsFlips(t *testing.T) {
	dir, s := create(t)
	fill(t, s, 3000)
	if found := faults(t, s); len(found) > 0 {
		t.Fatal(found)
	}
	s.Close()
	data, err := os.ReadFile(file(dir))
	if err != nil {
		t.Fatal(err)
	}
	used, stored := usedBytes(data), content(t, dir)
	seed := uint64(time.Now().UnixNano())
	rng := rand.New(rand.NewPCG(seed, 1))
	t.Logf("seed %d, %d of %d bytes are used", seed, len(used), len(data))
	for range 60 {
		at, bit := used[rng.IntN(len(used))], rng.IntN(8)
		damaged := t.TempDir()
		flipped := bytes.Clone(data)
		flipped[at] ^= 1 << bit
		if err := os.WriteFile(file(damaged), flipped, 0o600); err != nil {
			t.Fatal(err)
		}
		s, err := store.Open(damaged, store.Options{NoSync: true})
		if err != nil {
			continue // refused
		}
		found := faults(t, s)
		s.Close()
		if len(found) == 0 && content(t, damaged) != stored {
			t.Errorf("bit %d of byte %d (page %d, %d) was not found", bit, at, at/pageSize+1, at%pageSize)
		}
	}
}

// content returns all rows of a ledger. A few flips change none: in the text of the schema, or in one of two
// encodings of the same number.
func content(t *testing.T, dir string) string {
	t.Helper()
	db, err := sql.Open("sqlite", file(dir))
	if err != nil {
		t.Fatal(err)
	}
	defer db.Close()
	var tables string
	if err := db.QueryRow(`SELECT group_concat(name) FROM sqlite_master WHERE type = 'table'`).Scan(&tables); err != nil {
		t.Fatal(err)
	}
	var out strings.Builder
	for _, table := range strings.Split(tables, ",") {
		rows, err := db.Query("SELECT * FROM " + table)
		if err != nil {
			t.Fatal(err)
		}
		columns, err := rows.Columns()
		if err != nil {
			t.Fatal(err)
		}
		values, into := make([]any, len(columns)), make([]any, len(columns))
		for i := range values {
			into[i] = &values[i]
		}
		fmt.Fprintln(&out, table)
		for rows.Next() {
			if err := rows.Scan(into...); err != nil {
				t.Fatal(err)
			}
			fmt.Fprintln(&out, values...)
		}
		if err := rows.Err(); err != nil {
			t.Fatal(err)
		}
	}
	return out.String()
}

// usedBytes returns the offsets of all bytes but those in the gaps of each page of a tree, those of
// the header that say nothing of the content, and the page of pointers that only freeing pages
// needs.
func usedBytes(data []byte) (used []int) {
	for page := 0; page < len(data)/pageSize; page++ {
		begin, header := page*pageSize, 0
		if page == 0 {
			header = 100
		}
		content := data[begin : begin+pageSize]
		low, high := 0, 0
		free := make(map[int]bool)
		if kind := content[header]; kind == 2 || kind == 5 || kind == 10 || kind == 13 {
			low = header + 8 + 2*int(binary.BigEndian.Uint16(content[header+3:]))
			if kind < 10 {
				low += 4
			}
			high = int(binary.BigEndian.Uint16(content[header+5:]))
			for block := int(binary.BigEndian.Uint16(content[header+1:])); block != 0; block = int(binary.BigEndian.Uint16(content[block:])) {
				for at := block + 4; at < block+int(binary.BigEndian.Uint16(content[block+2:])); at++ {
					free[at] = true
				}
			}
		}
		for at := range pageSize {
			if page == 0 && (at >= 24 && at < 28 || at >= 36 && at < 52 || at >= 60 && at < 100) || page == 1 {
				continue
			}
			if at < low || at >= high && !free[at] {
				used = append(used, begin+at)
			}
		}
	}
	return used
}

// TestReadsFindDamage changes the class of a reading behind the back of the store.
func TestReadsFindDamage(t *testing.T) {
	dir, s := create(t)
	fill(t, s, 50)
	s.Close()
	data, err := os.ReadFile(file(dir))
	if err != nil {
		t.Fatal(err)
	}
	at := bytes.Index(data, []byte("\x03ann"))
	data[at+1] ^= 1
	if err := os.WriteFile(file(dir), data, 0o600); err != nil {
		t.Fatal(err)
	}
	s = open(t, dir)
	err = s.View(func(tx *store.Tx) error {
		return tx.Scan(1, 0, day0.AddDate(1, 0, 0).UnixMicro(), func(*truth.Decision) error { return nil })
	})
	if !errors.Is(err, store.ErrDamaged) || !strings.Contains(err.Error(), "ckd outcomes restore") {
		t.Error(err)
	}
}

// TestVerifyComparesSeals opens receipts that say otherwise than what is stored.
func TestVerifyComparesSeals(t *testing.T) {
	_, s := create(t)
	fill(t, s, 4)
	checked, err := s.Verify(context.Background(), func(sealed []byte) (receipt.Receipt, receipt.ID, error) {
		d := decision(int(sealed[0]))
		switch sealed[0] {
		case 1:
			return receipt.Receipt{}, receipt.ID{}, receipt.ErrUnknownKey
		case 2:
			return receipt.Receipt{}, receipt.ID{}, receipt.ErrForged
		case 3:
			d.Receipt.Predicted++
		}
		return d.Receipt, d.ID, nil
	}, func(fault string) { t.Log(fault) })
	if err != nil || checked.Sealed != 1 || checked.UnknownKey != 1 || checked.Faults != 2 {
		t.Errorf("%+v: %v", checked, err)
	}
}

// TestDeletedIsGone looks for deleted outcomes in the files, byte for byte.
func TestDeletedIsGone(t *testing.T) {
	dir, s := create(t)
	update(t, s, func(tx *store.Tx) error { return tx.AddPromise(&store.Promise{Policy: [32]byte{1}, Version: 7}) })
	rng := rand.New(rand.NewPCG(5, 6))
	var gone, rest []store.Key
	order := rng.Perm(6000)
	for len(order) > 0 {
		update(t, s, func(tx *store.Tx) error {
			for _, n := range order[:200] {
				d := decision(n)
				d.Readings[0].Source = fmt.Sprintf("source-of-part-%d", n%2)
				if n%2 == 0 {
					gone = append(gone, key(1, d))
				} else {
					rest = append(rest, key(1, d))
				}
				if err := tx.Insert(1, d, []byte("sealed")); err != nil {
					return err
				}
			}
			order = order[200:]
			return nil
		})
	}
	if err := s.Purge(); err != nil {
		t.Fatal(err)
	}
	before := s.Status().FileBytes
	update(t, s, func(tx *store.Tx) error { return tx.Delete(gone) })
	if err := s.Purge(); err != nil {
		t.Fatal(err)
	}
	check := func(when string, want int) {
		t.Helper()
		kept := 0
		files, err := filepath.Glob(filepath.Join(dir, "*"))
		if err != nil {
			t.Fatal(err)
		}
		for _, name := range files {
			data, err := os.ReadFile(name)
			if err != nil {
				t.Fatal(err)
			}
			if n := bytes.Count(data, []byte("source-of-part-0")); n > 0 {
				t.Errorf("%s: %s has %d deleted outcomes", when, name, n)
			}
			kept += bytes.Count(data, []byte("source-of-part-1"))
		}
		if kept < want {
			t.Errorf("%s: %d of the other %d are there", when, kept, want)
		}
	}
	check("at once", 3000)
	update(t, s, func(tx *store.Tx) error { return tx.Delete(rest[:2900]) })
	if err := s.Purge(); err != nil {
		t.Fatal(err)
	}
	if after := s.Status().FileBytes; after > before/4 {
		t.Errorf("the file has %d bytes, before %d", after, before)
	}
	if found := faults(t, s); len(found) > 0 {
		t.Error(found)
	}
	s.Close()
	check("after closing", 100)
}

// TestFullDisk fills the disk: what was stored stays, and Updates work again once there is room.
func TestFullDisk(t *testing.T) {
	dir := t.TempDir()
	if err := unix.Mount("tmpfs", dir, "tmpfs", 0, "size=4m"); err != nil {
		t.Skipf("a small disk cannot be mounted here: %v", err)
	}
	t.Cleanup(func() {
		if err := unix.Unmount(dir, 0); err != nil {
			t.Error(err)
		}
	})
	ballast := filepath.Join(dir, "ballast")
	if err := os.WriteFile(ballast, make([]byte, 1<<20), 0o600); err != nil {
		t.Fatal(err)
	}
	if err := store.Create(dir, store.Options{}); err != nil {
		t.Fatal(err)
	}
	s, err := store.Open(dir, store.Options{})
	if err != nil {
		t.Fatal(err)
	}
	defer s.Close()
	stored := 0
	add := func() error {
		return s.Update(func(tx *store.Tx) error { return tx.AddEvent(bytes.Repeat([]byte{byte(stored)}, 50_000)) })
	}
	for err == nil {
		if err = add(); err == nil {
			stored++
		}
	}
	if !errors.Is(err, store.ErrFull) || !strings.Contains(err.Error(), "make room") {
		t.Fatalf("after %d events: %v", stored, err)
	}
	if status := s.Status(); status.FailedWrites != 1 || status.LastError != err.Error() {
		t.Errorf("%+v", status)
	}
	count := func() (n int) {
		t.Helper()
		view(t, s, func(tx *store.Tx) error { return tx.Trail(func([]byte) error { n++; return nil }) })
		return n
	}
	if n := count(); n != stored || stored == 0 {
		t.Errorf("%d events, expected %d", n, stored)
	}
	if err := os.Remove(ballast); err != nil {
		t.Fatal(err)
	}
	if err := add(); err != nil {
		t.Fatal(err)
	}
	if status := s.Status(); status.FailedWrites != 1 || status.LastError != "" {
		t.Errorf("with room: %+v", status)
	}
	if n := count(); n != stored+1 {
		t.Errorf("%d events, expected %d", n, stored+1)
	}
	if found := faults(t, s); len(found) > 0 {
		t.Error(found)
	}
}

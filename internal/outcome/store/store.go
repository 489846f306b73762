package store

import (
	"context"
	"crypto/rand"
	"database/sql/driver"
	"encoding/binary"
	"encoding/hex"
	"errors"
	"fmt"
	"io"
	"os"
	"path/filepath"
	"sync"
	"sync/atomic"
	"time"

	"golang.org/x/sys/unix"
)

// FileName is the file of a ledger in its folder. Beside it stand its log (-wal) and the memory
// that processes share (-shm).
const FileName = "ledger.db"

// Options say how a store works.
type Options struct {
	Now    func() time.Time // time.Now where nil
	NoSync bool             // lets the system decide when what was stored is on the disk: for tests
}

func (o Options) now() time.Time {
	if o.Now == nil {
		return time.Now()
	}
	return o.Now()
}

// How large things may become.
const (
	pageSize = 8192
	// softLog is the size of the log from which an Update waits for the Views to end, so that the
	// log can begin anew; where it cannot, by how much it grows before the next attempt.
	softLog = 64 << 20
	// mostGrowth is by how much the log may grow beside one View.
	mostGrowth = 128 << 20
	// longestPause is how long that Update waits, and no View begins.
	longestPause = time.Second
	// maxIdle is how many connections of readers are kept.
	maxIdle = 4
)

// A Store is an open ledger. Its methods may be called by several goroutines; of Updates one runs
// at a time, in all processes.
type Store struct {
	path     string
	options  Options
	readOnly bool

	purging sync.Mutex // before writing
	writing sync.Mutex
	writer  *conn // nil where read only
	// restartAt is the size of the log, in bytes, from which an Update begins it anew. heldUp says
	// that a View kept the last one from doing so.
	restartAt int64
	heldUp    bool

	readers readers

	seen  atomic.Pointer[Identity]
	state struct {
		sync.Mutex
		failed uint64
		last   string
	}
}

// readers lends connections to Views, and holds new Views back while the log begins anew.
type readers struct {
	mu      sync.Mutex
	idle    []*conn
	closed  bool
	active  int
	changed *sync.Cond // active or paused
	paused  bool
}

// Identity says which ledger a store holds, and how far it is.
type Identity struct {
	ID         string // random, made with the ledger
	Generation uint64 // counts restores
	Branch     string // random, made with the generation
	Commit     uint64 // counts Updates that wrote
}

// Precedes reports whether a ledger of this identity may lack what one of the other identity was told: it
// is an older copy of it, or another copy of the same backup.
func (i Identity) Precedes(o Identity) bool {
	return i.ID == o.ID && (i.Generation < o.Generation || i.Generation == o.Generation && (i.Branch != o.Branch || i.Commit < o.Commit))
}

// String returns the identity in words.
func (i Identity) String() string { return fmt.Sprintf("%s, generation %d", i.ID, i.Generation) }

// Create begins a ledger in a folder, which it makes if it is missing. The error is ErrExists where
// one is there.
func Create(dir string, o Options) error {
	if err := os.MkdirAll(dir, 0o700); err != nil {
		return err
	}
	path := filepath.Join(dir, FileName)
	for _, name := range []string{path, path + "-wal"} {
		if _, err := os.Lstat(name); !errors.Is(err, os.ErrNotExist) {
			if err == nil {
				err = fmt.Errorf("%s: %w: to begin a new one, name another folder", name, ErrExists)
			}
			return err
		}
	}
	made := path + ".new"
	if err := removeAll(made); err != nil {
		return err
	}
	defer removeAll(made) //nolint:errcheck // it is gone, or is removed the next time
	if err := createFile(made); err != nil {
		return explain(made, err)
	}
	if err := syncFile(made); err != nil {
		return err
	}
	if err := os.Link(made, path); err != nil { // unlike a renaming it replaces nothing
		if errors.Is(err, os.ErrExist) {
			err = fmt.Errorf("%s: %w: to begin a new one, name another folder", path, ErrExists)
		}
		return err
	}
	return syncFile(dir)
}

// removeAll removes a file of SQLite with what stands beside it.
func removeAll(path string) error {
	for _, suffix := range []string{"", "-wal", "-shm", "-journal"} {
		if err := os.Remove(path + suffix); err != nil && !errors.Is(err, os.ErrNotExist) {
			return err
		}
	}
	return nil
}

func syncFile(path string) error {
	f, err := os.Open(path)
	if err != nil {
		return err
	}
	return errors.Join(f.Sync(), f.Close())
}

// createFile makes a file with the tables.
func createFile(path string) error {
	f, err := os.OpenFile(path, os.O_CREATE|os.O_EXCL|os.O_RDWR, 0o600)
	if err != nil {
		return err
	}
	if err := f.Close(); err != nil {
		return err
	}
	c, err := openConn(path, "rw")
	if err != nil {
		return err
	}
	defer c.close() //nolint:errcheck // after a failure
	for _, statement := range []string{
		fmt.Sprintf("PRAGMA page_size = %d", pageSize),
		"PRAGMA auto_vacuum = INCREMENTAL", // Purge gives the room of what was deleted back
		"PRAGMA journal_mode = WAL",
		fmt.Sprintf("PRAGMA application_id = %d", applicationID),
		fmt.Sprintf("PRAGMA user_version = %d", schemaVersion),
		schema,
	} {
		if _, err := c.exec(statement); err != nil {
			return err
		}
	}
	if err := putIdentity(c, &Identity{ID: random(), Generation: 1, Branch: random()}); err != nil {
		return err
	}
	return c.close()
}

func random() string {
	var b [16]byte
	rand.Read(b[:]) // never fails: it crashes the program instead
	return hex.EncodeToString(b[:])
}

func putIdentity(c *conn, i *Identity) error {
	_, err := c.exec("INSERT INTO identity VALUES (1, ?, ?, ?, ?, ?) ON CONFLICT (one) DO UPDATE SET id = excluded.id, "+
		"generation = excluded.generation, branch = excluded.branch, commits = excluded.commits, sum = excluded.sum",
		i.ID, int64(i.Generation), i.Branch, int64(i.Commit), tableIdentity.sum(i.ID, i.Generation, i.Branch, i.Commit))
	return err
}

func readIdentity(c *conn) (*Identity, error) {
	i := &Identity{}
	found, err := c.one(func(r *row) {
		i.ID, i.Generation, i.Branch, i.Commit = r.text(), r.uint(), r.text(), r.uint()
		r.check(tableIdentity.sum(i.ID, i.Generation, i.Branch, i.Commit))
	}, "SELECT id, generation, branch, commits, sum FROM identity")
	if err == nil && !found {
		err = fmt.Errorf("%w: it has no identity: put a backup back: ckd outcomes restore", ErrDamaged)
	}
	return i, err
}

// Open opens the ledger of a folder, and never makes one. It takes a few milliseconds however large
// the ledger is: Verify finds the damage that Open does not look for.
func Open(dir string, o Options) (*Store, error) { return open(dir, o, false) }

// OpenReadOnly opens the ledger of a folder beside a process that writes to it.
func OpenReadOnly(dir string, o Options) (*Store, error) { return open(dir, o, true) }

func open(dir string, o Options, readOnly bool) (*Store, error) {
	path, err := filepath.Abs(filepath.Join(dir, FileName))
	if err != nil {
		return nil, err
	}
	if err := checkFile(path); err != nil {
		return nil, err
	}
	s := &Store{path: path, options: o, readOnly: readOnly, restartAt: softLog}
	s.readers.changed = sync.NewCond(&s.readers.mu)
	if err := s.begin(); err != nil {
		return nil, errors.Join(explain(path, err), s.close())
	}
	return s, nil
}

func (s *Store) begin() error {
	if !s.readOnly {
		sync := "synchronous(FULL)"
		if s.options.NoSync {
			sync = "synchronous(OFF)"
		}
		c, err := openConn(s.path, "rw", sync, "cache_size(-65536)", "wal_autocheckpoint(8000)")
		if err != nil {
			return err
		}
		s.writer = c
		if _, _, err := checkpoint(c, "PASSIVE"); err != nil {
			return err
		}
	}
	return s.View(func(tx *Tx) error { return tx.checkPages() })
}

// checkpoint moves the log into the file, and returns how many pages the log has and how many of
// these are in the file.
func checkpoint(c *conn, mode string) (pages, moved int64, err error) {
	var busy int64
	_, err = c.one(func(r *row) { busy, pages, moved = r.int(), r.int(), r.int() }, "PRAGMA wal_checkpoint("+mode+")")
	if err == nil && busy != 0 {
		err = fmt.Errorf("%w: its log stays until what reads has ended", ErrBusy)
	}
	return pages, moved, err
}

// The offsets in the header of a file of SQLite.
const (
	headerMagic       = "SQLite format 3\x00"
	headerPageSize    = 16
	headerPages       = 28
	headerUserVersion = 60
	headerApplication = 68
	headerBytes       = 100
)

// checkFile reads the header before SQLite does, which takes an empty file for a new one.
func checkFile(path string) error {
	f, err := os.Open(path)
	if errors.Is(err, os.ErrNotExist) {
		return fmt.Errorf("%s: %w: begin a new ledger: ckd outcomes begin --ledger %s; or, if there was one, put a backup back: ckd outcomes restore",
			path, ErrMissing, filepath.Dir(path))
	}
	if err != nil {
		return err
	}
	defer f.Close()
	damaged := func(what string) error {
		return fmt.Errorf("%s: %w: %s: put a backup back: ckd outcomes restore", path, ErrDamaged, what)
	}
	info, err := f.Stat()
	if err != nil {
		return err
	}
	if info.Size() == 0 {
		return damaged("the file is empty")
	}
	var header [headerBytes]byte
	if _, err := f.ReadAt(header[:], 0); err == io.EOF {
		return damaged(fmt.Sprintf("the file has %d bytes, which is no ledger", info.Size()))
	} else if err != nil {
		return err
	}
	number := func(at int) uint32 { return binary.BigEndian.Uint32(header[at:]) }
	switch {
	case string(header[:len(headerMagic)]) != headerMagic:
		return damaged("the file does not begin as a ledger does")
	case number(headerApplication) != applicationID:
		return fmt.Errorf("%s: %w: it is a file of another program: name the folder of the ledger", path, ErrForeign)
	case number(headerUserVersion) != schemaVersion:
		return fmt.Errorf("%s: %w: its schema is version %d, expected %d: run the ckd that made it", path, ErrForeign, number(headerUserVersion), schemaVersion)
	case binary.BigEndian.Uint16(header[headerPageSize:]) != pageSize:
		return damaged(fmt.Sprintf("its pages have %d bytes, expected %d", binary.BigEndian.Uint16(header[headerPageSize:]), pageSize))
	}
	log, err := os.Stat(path + "-wal")
	if err != nil && !errors.Is(err, os.ErrNotExist) {
		return err
	}
	if want := int64(number(headerPages)) * pageSize; info.Size() < want && (log == nil || log.Size() == 0) {
		return damaged(fmt.Sprintf("the file was cut: it has %d bytes, expected %d", info.Size(), want))
	}
	return nil
}

// checkPages finds a file that was cut behind its log.
func (tx *Tx) checkPages() error {
	var pages int64
	if _, err := tx.c.one(func(r *row) { pages = r.int() }, "PRAGMA page_count"); err != nil {
		return err
	}
	info, err := os.Stat(tx.s.path)
	if err != nil {
		return err
	}
	if log := tx.s.logBytes(); log == 0 && info.Size() < pages*pageSize {
		return fmt.Errorf("%s: %w: the file was cut: it has %d bytes, expected %d: put a backup back: ckd outcomes restore",
			tx.s.path, ErrDamaged, info.Size(), pages*pageSize)
	}
	return nil
}

// Close moves the log into the file and closes it.
func (s *Store) Close() error { return explain(s.path, s.close()) }

func (s *Store) close() error {
	s.readers.mu.Lock()
	s.readers.closed = true
	var failed error
	for _, c := range s.readers.idle {
		failed = errors.Join(failed, c.close())
	}
	s.readers.idle = nil
	s.readers.mu.Unlock()
	s.writing.Lock()
	defer s.writing.Unlock()
	if s.writer != nil {
		failed = errors.Join(failed, s.writer.close()) // the last connection moves the log
		s.writer = nil
	}
	return failed
}

// errClosed is the error of a store after Close.
var errClosed = errors.New("the ledger is closed")

// borrow returns a connection for a View.
func (r *readers) borrow(path string) (*conn, error) {
	r.mu.Lock()
	for r.paused && !r.closed {
		r.changed.Wait()
	}
	if r.closed {
		r.mu.Unlock()
		return nil, errClosed
	}
	r.active++
	var c *conn
	if n := len(r.idle); n > 0 {
		c, r.idle = r.idle[n-1], r.idle[:n-1]
	}
	r.mu.Unlock()
	if c != nil {
		return c, nil
	}
	c, err := openConn(path, "rw", "query_only(ON)", "cache_size(-16384)")
	if err != nil {
		r.end()
	}
	return c, err
}

// reading reports whether a View lasts.
func (r *readers) reading() bool {
	r.mu.Lock()
	defer r.mu.Unlock()
	return r.active > 0
}

func (r *readers) end() {
	r.mu.Lock()
	r.active--
	r.changed.Broadcast()
	r.mu.Unlock()
}

// giveBack takes the connection of a View that has ended, and keeps it if its transaction ended
// too.
func (r *readers) giveBack(c *conn, whole bool) {
	r.mu.Lock()
	keep := whole && !r.closed && len(r.idle) < maxIdle
	if keep {
		r.idle = append(r.idle, c)
	}
	r.mu.Unlock()
	if !keep {
		_ = c.close() // it has only read
	}
	r.end()
}

// pause holds new Views back while it calls f, once those that read have ended or longestPause is
// over.
func (r *readers) pause(f func() error) error {
	r.mu.Lock()
	r.paused = true
	late := false
	timer := time.AfterFunc(longestPause, func() {
		r.mu.Lock()
		late = true
		r.mu.Unlock()
		r.changed.Broadcast()
	})
	for r.active > 0 && !late {
		r.changed.Wait()
	}
	timer.Stop()
	r.mu.Unlock()
	defer func() {
		r.mu.Lock()
		r.paused = false
		r.mu.Unlock()
		r.changed.Broadcast()
	}()
	return f()
}

// A Tx reads a snapshot of the ledger, and in an Update writes to it. It is for one goroutine, and
// ends with the function that it is given to.
type Tx struct {
	s        *Store
	c        *conn
	identity Identity
	wrote    bool
	writes   bool
	log      int64 // bytes when the View began
	rows     int
	promises map[int64]*Promise // those that were asked for
	cohorts  map[[2]int64]int64 // the numbers of those that were added to, by promise and start
	lasts    map[int64]int64    // the numbers of their last rows
	sealers  sealers
	texts    texts
	ctx      context.Context // nil for one that does not end
}

// View calls f with a snapshot. It is to be short: while it lasts the log only grows, and once the
// log has grown by 128 MB beside it, its next read fails with ErrLong. A long read is made of
// several Views. A View that begins while the log begins anew waits for that, up to a second.
func (s *Store) View(f func(tx *Tx) error) error {
	c, err := s.readers.borrow(s.path)
	if err != nil {
		return explain(s.path, err)
	}
	whole := false
	defer func() { s.readers.giveBack(c, whole) }()
	tx := &Tx{s: s, c: c, log: s.logBytes()}
	err = tx.run("BEGIN", f)
	_, rollback := c.exec("ROLLBACK")
	whole = rollback == nil
	return explain(s.path, err)
}

func (tx *Tx) run(begin string, f func(tx *Tx) error) error {
	if _, err := tx.c.exec(begin); err != nil {
		return err
	}
	i, err := readIdentity(tx.c)
	if err != nil {
		return err
	}
	tx.identity = *i
	tx.s.seen.Store(i)
	return f(tx)
}

// Update calls f with a transaction, which is on the disk when Update returns nil. After an error
// nothing of it is stored. An f that writes nothing makes no commit.
func (s *Store) Update(f func(tx *Tx) error) error {
	s.writing.Lock()
	defer s.writing.Unlock()
	if s.writer == nil {
		if s.readOnly {
			return fmt.Errorf("%s: opened to be read only", s.path)
		}
		return errClosed
	}
	tx := &Tx{s: s, c: s.writer, writes: true}
	committed := false
	defer func() {
		if !committed {
			_, _ = s.writer.exec("ROLLBACK") // SQLite has done so itself after some failures
		}
	}()
	err := tx.run("BEGIN IMMEDIATE", func(tx *Tx) error {
		if err := f(tx); err != nil || !tx.wrote {
			return err
		}
		tx.identity.Commit++
		if err := putIdentity(tx.c, &tx.identity); err != nil {
			return err
		}
		_, err := tx.c.exec("COMMIT")
		return err
	})
	if err != nil {
		s.note(err)
		return explain(s.path, err)
	}
	if !tx.wrote {
		return nil
	}
	committed = true
	s.note(nil)
	i := tx.identity
	s.seen.Store(&i)
	if s.logBytes() > s.restartAt || s.heldUp && !s.readers.reading() {
		_ = s.restartLog() // what was stored stays in the log
	}
	return nil
}

// restartLog moves the log into the file, and cuts it. The error is ErrBusy where a View lasts, or
// another process reads or writes.
func (s *Store) restartLog() error {
	err := s.readers.pause(func() error {
		if _, err := s.writer.exec("PRAGMA busy_timeout = 100"); err != nil {
			return err
		}
		_, _, err := checkpoint(s.writer, "TRUNCATE")
		_, reset := s.writer.exec("PRAGMA busy_timeout = 10000")
		return errors.Join(err, reset)
	})
	s.restartAt, s.heldUp = softLog, false
	if err != nil {
		s.restartAt, s.heldUp = s.logBytes()+softLog, s.readers.reading()
	}
	return err
}

// note counts an Update that failed by the disk, and forgets what failed once one does not.
func (s *Store) note(err error) {
	s.state.Lock()
	defer s.state.Unlock()
	switch {
	case err == nil:
		s.state.last = ""
	case byDisk(err):
		s.state.failed++
		s.state.last = explain(s.path, err).Error()
	}
}

// Identity returns the identity as of the last transaction of this process.
func (s *Store) Identity() Identity { return *s.seen.Load() }

// Identity returns the identity as of the transaction. In an Update Commit is that of the commit
// before.
func (tx *Tx) Identity() Identity { return tx.identity }

// NextGeneration begins a generation: what is stored is not what readers were told.
func (tx *Tx) NextGeneration() error {
	tx.identity.Generation++
	tx.identity.Branch = random()
	tx.wrote = true
	return nil
}

// commit returns the number that the transaction's commit will have.
func (tx *Tx) commit() int64 { return int64(tx.identity.Commit + 1) }

// exec writes.
func (tx *Tx) exec(query string, args ...driver.Value) (int64, error) {
	if !tx.writes {
		return 0, errors.New("a View writes nothing")
	}
	tx.wrote = true
	return tx.c.exec(query, args...)
}

// query reads. It fails once the log has grown too much beside a View.
func (tx *Tx) query(each func(r *row) error, query string, args ...driver.Value) error {
	if err := tx.bound(); err != nil {
		return err
	}
	return tx.c.query(func(r *row) error {
		if tx.rows++; tx.rows%4096 == 0 {
			if err := tx.bound(); err != nil {
				return err
			}
		}
		return each(r)
	}, query, args...)
}

func (tx *Tx) one(each func(r *row), query string, args ...driver.Value) (found bool, err error) {
	err = tx.query(func(r *row) error {
		found = true
		each(r)
		return nil
	}, query, args...)
	return found, err
}

func (tx *Tx) bound() error {
	if tx.ctx != nil && tx.ctx.Err() != nil {
		return tx.ctx.Err()
	}
	if !tx.writes && tx.s.logBytes() > tx.log+mostGrowth {
		return fmt.Errorf("%s: %w by more than %d MB: read less at a time", tx.s.path, ErrLong, mostGrowth>>20)
	}
	return nil
}

// logBytes returns the size of the log.
func (s *Store) logBytes() int64 {
	if info, err := os.Stat(s.path + "-wal"); err == nil {
		return info.Size()
	}
	return 0
}

// Status says how a store is.
type Status struct {
	FileBytes, LogBytes int64
	FreeBytes           uint64    // of the file system, for this user
	LastBackup          time.Time // zero for none
	FailedWrites        uint64    // Updates of this process that failed by the disk
	LastError           string    // of the last Update, where it failed by the disk
}

// Status returns how the store is; what cannot be read is zero.
func (s *Store) Status() Status {
	st := Status{LogBytes: s.logBytes()}
	if info, err := os.Stat(s.path); err == nil {
		st.FileBytes = info.Size()
	}
	var fs unix.Statfs_t
	if err := unix.Statfs(s.path, &fs); err == nil {
		st.FreeBytes = fs.Bavail * uint64(fs.Bsize)
	}
	_ = s.View(func(tx *Tx) error {
		text, err := tx.Meta(metaLastBackup)
		if err == nil && text != "" {
			st.LastBackup, err = time.Parse(time.RFC3339Nano, text)
		}
		return err
	})
	s.state.Lock()
	defer s.state.Unlock()
	st.FailedWrites, st.LastError = s.state.failed, s.state.last
	return st
}

// Dir returns the folder of the ledger.
func (s *Store) Dir() string { return filepath.Dir(s.path) }

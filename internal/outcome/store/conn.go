package store

import (
	"context"
	"database/sql/driver"
	"errors"
	"fmt"
	"io"
	"net/url"
	"strings"
	"sync"

	"modernc.org/sqlite"
	sqlite3 "modernc.org/sqlite/lib"
)

// A conn is one connection to the file, for one goroutine at a time. It speaks to the driver
// itself: database/sql costs more than the statements of a batch do.
type conn struct {
	driver driver.Conn
	idle   map[string]driver.Stmt // prepared statements that are not in use
	args   []driver.NamedValue
}

// The settings of every connection. Freed bytes are overwritten with zeros. A commit is on the disk
// when it returns.
var settings = []string{
	"busy_timeout(10000)", "secure_delete(ON)", "foreign_keys(OFF)", "temp_store(MEMORY)", "trusted_schema(OFF)",
}

// prepare sets how SQLite uses files, once for the process. Commits sync the data of a file without
// its times, which takes the disk half as long. Locks belong to an open file and not to the
// process, so that another part of the process that opens and closes the file does not drop them.
var prepare = sync.OnceFunc(func() {
	_, _ = sqlite.Fdatasync(true)  // without it a sync takes longer
	_, _ = sqlite.OFDLocking(true) // only Linux has them
})

// openConn opens a file that exists. SQLite would make a missing one: mode=rw has it refuse.
func openConn(path, mode string, more ...string) (*conn, error) {
	prepare()
	query := url.Values{"mode": {mode}, "_pragma": append(settings[:len(settings):len(settings)], more...)}
	opened, err := new(sqlite.Driver).Open((&url.URL{Scheme: "file", OmitHost: true, Path: path, RawQuery: query.Encode()}).String())
	if err != nil {
		return nil, err
	}
	return &conn{driver: opened, idle: make(map[string]driver.Stmt)}, nil
}

func (c *conn) close() error {
	var failed error
	for _, s := range c.idle {
		failed = errors.Join(failed, s.Close())
	}
	c.idle = nil
	return errors.Join(failed, c.driver.Close())
}

// take returns a prepared statement, which give takes back.
func (c *conn) take(query string) (driver.Stmt, error) {
	if s, ok := c.idle[query]; ok {
		delete(c.idle, query)
		return s, nil
	}
	return c.driver.Prepare(query)
}

func (c *conn) give(query string, s driver.Stmt) {
	if _, ok := c.idle[query]; ok || c.idle == nil {
		_ = s.Close() // used within itself: one is kept
		return
	}
	c.idle[query] = s
}

// named returns the arguments as the driver takes them, until the next call.
func (c *conn) named(args []driver.Value) []driver.NamedValue {
	c.args = c.args[:0]
	for i, a := range args {
		c.args = append(c.args, driver.NamedValue{Ordinal: i + 1, Value: a})
	}
	return c.args
}

// exec executes a statement and returns how many rows it changed.
func (c *conn) exec(query string, args ...driver.Value) (int64, error) {
	return c.execContext(context.Background(), query, args...)
}

// execContext is exec, which ends early when the context does.
func (c *conn) execContext(ctx context.Context, query string, args ...driver.Value) (int64, error) {
	s, err := c.take(query)
	if err != nil {
		return 0, err
	}
	defer c.give(query, s)
	result, err := s.(driver.StmtExecContext).ExecContext(ctx, c.named(args))
	if err != nil {
		return 0, err
	}
	return result.RowsAffected()
}

// query calls each with every row of a statement's result. The row is valid until each returns.
func (c *conn) query(each func(r *row) error, query string, args ...driver.Value) error {
	s, err := c.take(query)
	if err != nil {
		return err
	}
	defer c.give(query, s)
	rows, err := s.(driver.StmtQueryContext).QueryContext(context.Background(), c.named(args))
	if err != nil {
		return err
	}
	r := row{values: make([]driver.Value, len(rows.Columns()))}
	for {
		err = rows.Next(r.values)
		if err != nil {
			break
		}
		r.next = 0
		if err = each(&r); err == nil && r.damaged {
			err = errRow
		}
		if err != nil {
			break
		}
	}
	if err == io.EOF { //nolint:errorlint // the driver returns it bare
		err = nil
	}
	return errors.Join(err, rows.Close())
}

// one calls each with the only row, and reports whether there is one.
func (c *conn) one(each func(r *row), query string, args ...driver.Value) (found bool, err error) {
	err = c.query(func(r *row) error {
		found = true
		each(r)
		return nil
	}, query, args...)
	return found, err
}

// A row gives its values one after the other. One of another type than is asked for is damage.
type row struct {
	values  []driver.Value
	next    int
	damaged bool
}

func (r *row) value() driver.Value {
	v := r.values[r.next]
	r.next++
	return v
}

func (r *row) int() int64 {
	v, ok := r.value().(int64)
	r.damaged = r.damaged || !ok
	return v
}

func (r *row) uint() uint64 { return uint64(r.int()) }

func (r *row) bool() bool { return r.int() != 0 }

func (r *row) text() string {
	v, ok := r.value().(string)
	r.damaged = r.damaged || !ok
	return v
}

// bytes returns a blob; nil for an empty or a missing one.
func (r *row) bytes() []byte {
	v := r.value()
	b, ok := v.([]byte)
	r.damaged = r.damaged || !ok && v != nil
	return b
}

// check takes the last value for the checksum of those before.
func (r *row) check(sum int64) {
	r.damaged = r.damaged || r.int() != sum
}

// The errors of the disk and of the file, which callers tell apart.
var (
	ErrExists  = errors.New("a ledger is there already")
	ErrMissing = errors.New("no ledger is there")
	ErrDamaged = errors.New("the ledger is damaged")
	ErrForeign = errors.New("not a ledger of this ckd")
	ErrFull    = errors.New("the disk is full")
	ErrBusy    = errors.New("the ledger is in use")
	ErrLong    = errors.New("a reader stayed so long that the log grew beside it")

	errRow = fmt.Errorf("%w: a row does not have its checksum: put a backup back: ckd outcomes restore", ErrDamaged)
)

// explain wraps an error of SQLite with what to do about it.
func explain(path string, err error) error {
	var failed *sqlite.Error
	if !errors.As(err, &failed) {
		return err
	}
	text := strings.TrimSpace(failed.Error())
	switch failed.Code() & 0xff {
	case sqlite3.SQLITE_FULL:
		return fmt.Errorf("%s: %w: nothing of this was stored, and all that was before is there: make room and send it again (%s)", path, ErrFull, text)
	case sqlite3.SQLITE_CORRUPT, sqlite3.SQLITE_NOTADB:
		return fmt.Errorf("%s: %w: put a backup back: ckd outcomes restore (%s)", path, ErrDamaged, text)
	case sqlite3.SQLITE_BUSY, sqlite3.SQLITE_LOCKED:
		return fmt.Errorf("%s: %w: another process has written to it for longer than 10 s: try again (%s)", path, ErrBusy, text)
	}
	return fmt.Errorf("%s: %s", path, text)
}

// byDisk reports whether an error is one of the disk or of the file on it.
func byDisk(err error) bool {
	var failed *sqlite.Error
	if !errors.As(err, &failed) {
		return errors.Is(err, ErrDamaged)
	}
	switch failed.Code() & 0xff {
	case sqlite3.SQLITE_FULL, sqlite3.SQLITE_IOERR, sqlite3.SQLITE_CORRUPT, sqlite3.SQLITE_NOTADB, sqlite3.SQLITE_READONLY, sqlite3.SQLITE_CANTOPEN:
		return true
	}
	return false
}

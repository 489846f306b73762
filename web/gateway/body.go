package gateway

import (
	"bytes"
	"errors"
	"fmt"
	"io"
	"net/http"
	"os"
	"slices"
	"sync"
	"sync/atomic"
	"time"

	"google.golang.org/grpc/codes"

	"github.com/ckd-project/ckd/internal/httperror"
)

// chunkBytes is the part of a body that Options.ReadTimeout is for.
const chunkBytes = 64 << 10

// body reads the body of a request and refuses one that is too long, too slow, or beyond the budget
// that all bodies share. Its errors are *httperror.Error.
type body struct {
	call    *call
	from    io.ReadCloser
	holder  Holder
	read    int64
	held    atomic.Int64     // bytes that holder is charged with
	refusal *httperror.Error // the first one
	ended   bool             // the whole body has been read
	quiet   bool             // the client may pause: no line has begun

	whole    time.Time // deadline for the whole body; zero before the first read, and for streams
	deadline time.Time // deadline for the next bytes; zero for none
	since    int64     // bytes read since it was set

	deadlines sync.Mutex
	over      bool // linger was called; guarded by deadlines
}

// Read implements io.Reader.
func (b *body) Read(p []byte) (int, error) {
	if b.refusal != nil {
		return 0, b.refusal
	}
	if b.ended {
		return 0, io.EOF // set no deadline: net/http reads on to notice a client that goes away
	}
	b.arm()
	n, err := b.from.Read(p)
	b.read += int64(n)
	b.since += int64(n)
	options := &b.call.gateway.options
	limit := options.bodyLimit()
	var refusal *httperror.Error
	switch {
	case !b.call.unlimited && b.read > limit:
		return 0, b.fail(httperror.New(http.StatusRequestEntityTooLarge, codes.ResourceExhausted,
			fmt.Sprintf("the body is over the limit of %d bytes", limit)))
	case errors.As(b.hold(int64(n)), &refusal):
		return 0, b.fail(refusal)
	case errors.Is(err, io.EOF):
		b.ended = true
		return n, io.EOF
	case errors.Is(err, os.ErrDeadlineExceeded) && b.lingers():
		return n, io.EOF // the answer has ended
	case errors.Is(err, os.ErrDeadlineExceeded):
		return n, b.fail(httperror.New(http.StatusRequestTimeout, codes.DeadlineExceeded, b.tooSlow()))
	case err != nil:
		return n, b.fail(httperror.Invalid("the body breaks off: " + httperror.Clip(err.Error())))
	}
	return n, nil
}

// tooSlow says which deadline has passed.
func (b *body) tooSlow() string {
	options := &b.call.gateway.options
	if b.deadline.Equal(b.whole) {
		return fmt.Sprintf("the body is too slow: it may take %v", options.BodyTimeout)
	}
	return fmt.Sprintf("the body is too slow: %d bytes, or the rest, may take %v", chunkBytes, options.ReadTimeout)
}

// Close does nothing: net/http closes the body.
func (b *body) Close() error { return nil }

// fail keeps the first refusal, and returns it.
func (b *body) fail(f *httperror.Error) *httperror.Error {
	if b.refusal == nil {
		b.refusal = f
	}
	return b.refusal
}

// freeLineBytes is what a stream may hold of its lines when there is no room: it must be able to end
// inputs, which makes room.
const freeLineBytes = 64 << 10

// hold charges bytes to the holder. The error is an *httperror.Error.
func (b *body) hold(n int64) error {
	if b.call.unlimited && b.held.Load()+n <= freeLineBytes {
		b.holder.Add(n)
	} else if err := b.holder.Reserve(n); err != nil {
		st, code := httperror.Of(err)
		return &httperror.Error{HTTP: code, Status: st}
	}
	b.held.Add(n)
	return nil
}

// release gives bytes back.
func (b *body) release(n int64) {
	b.held.Add(-n)
	b.holder.Release(n)
}

// arm sets the deadline of the next bytes, if they need a new one.
func (b *body) arm() {
	if b.whole.IsZero() && !b.call.unlimited {
		b.whole = time.Now().Add(b.call.gateway.options.BodyTimeout)
	}
	switch {
	case b.quiet:
		if !b.deadline.IsZero() {
			b.setDeadline(time.Time{})
		}
	case b.deadline.IsZero() || b.since >= chunkBytes:
		next := time.Now().Add(b.call.gateway.options.ReadTimeout)
		if !b.whole.IsZero() && b.whole.Before(next) {
			next = b.whole
		}
		b.setDeadline(next)
	}
}

func (b *body) setDeadline(t time.Time) {
	b.deadline, b.since = t, 0
	b.deadlines.Lock()
	defer b.deadlines.Unlock()
	if !b.over {
		_ = b.call.control.SetReadDeadline(t) // the recorder of tests has no deadlines
	}
}

// lingerTime is how long the gateway reads on when a client still sends after the end of its
// answer. Closing at once could keep the client from reading the answer.
const lingerTime = 500 * time.Millisecond

// linger ends the read under way, and all later ones, within lingerTime.
func (b *body) linger() {
	b.deadlines.Lock()
	defer b.deadlines.Unlock()
	b.over = true
	_ = b.call.control.SetReadDeadline(time.Now().Add(lingerTime)) // as in setDeadline
}

// lingers reports whether the deadline that has passed was set by linger.
func (b *body) lingers() bool {
	b.deadlines.Lock()
	defer b.deadlines.Unlock()
	return b.over && (b.deadline.IsZero() || time.Now().Before(b.deadline))
}

// keptLineBytes is the size up to which lines keeps its buffer. A larger buffer shrinks once it is
// half empty.
const keptLineBytes = 1 << 20

// lines cuts the body of a stream into lines.
type lines struct {
	from   *body
	buffer []byte
	start  int // start of the bytes not returned yet
	last   int // bytes of the last line, which the budget still counts
	number int // number of the last line
	ended  bool
}

// next returns the next line that is not blank, or io.EOF after the last. The line is valid until
// the next call.
func (l *lines) next() ([]byte, error) {
	for {
		line, err := l.cut()
		if err != nil {
			return nil, err
		}
		l.number++
		if line = bytes.TrimSpace(line); len(line) > 0 {
			return line, nil
		}
	}
}

// cut returns the next line, blank or not.
func (l *lines) cut() ([]byte, error) {
	l.from.release(int64(l.last))
	l.last = 0
	if rest := l.buffer[l.start:]; cap(l.buffer) > keptLineBytes && len(rest) <= cap(l.buffer)/2 {
		l.buffer, l.start = slices.Clone(rest), 0
	}
	searched := l.start
	limit := int(l.from.call.gateway.options.bodyLimit())
	for {
		end := len(l.buffer)
		if i := bytes.IndexByte(l.buffer[searched:], '\n'); i >= 0 {
			end = searched + i + 1
		}
		switch complete := end > searched && l.buffer[end-1] == '\n'; {
		case end-l.start > limit:
			return nil, l.from.fail(httperror.New(http.StatusRequestEntityTooLarge, codes.ResourceExhausted,
				fmt.Sprintf("line %d is over the limit of %d bytes", l.number+1, limit)))
		case complete, l.ended && end > l.start:
			line := l.buffer[l.start:end]
			l.start, l.last = end, len(line)
			return line, nil
		case l.ended:
			return nil, io.EOF
		}
		if l.start > 0 {
			l.buffer, l.start = append(l.buffer[:0], l.buffer[l.start:]...), 0
		}
		searched = len(l.buffer)
		if len(l.buffer) == cap(l.buffer) {
			l.buffer = slices.Grow(l.buffer, max(len(l.buffer), 4096))
		}
		l.from.quiet = len(l.buffer) == 0
		n, err := l.from.Read(l.buffer[len(l.buffer):cap(l.buffer)])
		l.buffer = l.buffer[:len(l.buffer)+n]
		if errors.Is(err, io.EOF) {
			l.ended = true
		} else if err != nil {
			return nil, err
		}
	}
}

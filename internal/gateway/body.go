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

// chunkBytes of a body have Options.ReadTimeout to arrive.
const chunkBytes = 64 << 10

// body is a request's body: no longer than is allowed, no slower, and within the budget that all bodies share. What is
// wrong with it is a *fault.
type body struct {
	call  *call
	from  io.ReadCloser
	read  int64
	held  atomic.Int64 // bytes of the budget
	fault *fault       // the first one
	ended bool         // all has come
	quiet bool         // nothing need come: no line has begun

	deadline time.Time // of the next bytes; zero for none
	since    int64     // bytes that have come since it was set

	deadlines sync.Mutex
	over      bool // only the rest is read; under deadlines
}

// Read implements io.Reader.
func (b *body) Read(p []byte) (int, error) {
	if b.fault != nil {
		return 0, b.fault
	}
	if b.ended {
		return 0, io.EOF // a deadline would be that of the answer: net/http reads on, to notice a client that goes away
	}
	b.arm()
	n, err := b.from.Read(p)
	b.read += int64(n)
	b.since += int64(n)
	options := &b.call.gateway.options
	limit := options.bodyLimit()
	switch {
	case !b.call.unlimited && b.read > limit:
		return 0, b.fail(httperror.New(http.StatusRequestEntityTooLarge, codes.ResourceExhausted,
			fmt.Sprintf("the body is over the limit of %d bytes", limit)))
	case !b.hold(int64(n)):
		return 0, b.fail(httperror.New(http.StatusTooManyRequests, codes.ResourceExhausted,
			fmt.Sprintf("the bodies of all requests are over the budget of %d bytes", options.BodyBytes)).WithRetry())
	case errors.Is(err, io.EOF):
		b.ended = true
		return n, io.EOF
	case errors.Is(err, os.ErrDeadlineExceeded) && b.lingers():
		return n, io.EOF // nobody asks any more
	case errors.Is(err, os.ErrDeadlineExceeded):
		return n, b.fail(httperror.New(http.StatusRequestTimeout, codes.DeadlineExceeded,
			fmt.Sprintf("the body is too slow: %d bytes, or the rest, may take %v", chunkBytes, options.ReadTimeout)))
	case err != nil:
		return n, b.fail(httperror.Invalid("the body breaks off: " + httperror.Clip(err.Error())))
	}
	return n, nil
}

// Close implements io.Closer; net/http closes what it gave out.
func (b *body) Close() error { return nil }

func (b *body) fail(f *fault) *fault {
	if b.fault == nil {
		b.fault = f
	}
	return b.fault
}

// hold takes bytes of the budget.
func (b *body) hold(n int64) bool {
	b.held.Add(n)
	return b.call.gateway.held.Add(n) <= b.call.gateway.options.BodyBytes
}

// release gives bytes of the budget back.
func (b *body) release(n int64) {
	b.held.Add(-n)
	b.call.gateway.held.Add(-n)
}

// arm sets the deadline of the next bytes, if they need another.
func (b *body) arm() {
	switch {
	case b.quiet:
		if !b.deadline.IsZero() {
			b.setDeadline(time.Time{})
		}
	case b.deadline.IsZero() || b.since >= chunkBytes:
		b.setDeadline(time.Now().Add(b.call.gateway.options.ReadTimeout))
	}
}

func (b *body) setDeadline(t time.Time) {
	b.deadline, b.since = t, 0
	b.deadlines.Lock()
	defer b.deadlines.Unlock()
	if !b.over {
		_ = b.call.control.SetReadDeadline(t) // without deadlines, as in a recorder of tests, bodies are read all the same
	}
}

// lingerTime is how long a client that sends on after the end of its answer is listened to. To close on it at once
// could take the answer from it.
const lingerTime = 500 * time.Millisecond

// linger ends whatever read is under way soon, and gives all later ones as long.
func (b *body) linger() {
	b.deadlines.Lock()
	defer b.deadlines.Unlock()
	b.over = true
	_ = b.call.control.SetReadDeadline(time.Now().Add(lingerTime)) // as in setDeadline
}

// lingers reports whether a deadline that is over is that of linger.
func (b *body) lingers() bool {
	b.deadlines.Lock()
	defer b.deadlines.Unlock()
	return b.over && (b.deadline.IsZero() || time.Now().Before(b.deadline))
}

// all reads the whole body.
func (b *body) all() ([]byte, error) { return io.ReadAll(b) }

// keptLineBytes is what lines keeps of its memory between lines; of more, twice what is in it.
const keptLineBytes = 1 << 20

// lines cuts a stream's body into lines.
type lines struct {
	from   *body
	buffer []byte
	start  int // of what was not given out
	given  int // bytes of the last line, which the budget still counts
	number int // of the last line
	ended  bool
}

// next is the next line that is not blank, good until the next call; io.EOF after the last.
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

func (l *lines) cut() ([]byte, error) {
	l.from.release(int64(l.given))
	l.given = 0
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
			return l.take(end), nil
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

// take gives out what is before end.
func (l *lines) take(end int) []byte {
	line := l.buffer[l.start:end]
	l.start, l.given = end, len(line)
	return line
}

package decisionlog

import (
	"context"
	"crypto/rand"
	"encoding/hex"
	"errors"
	"fmt"
	"os"
	"slices"
	"strconv"
	"sync"
	"sync/atomic"
	"time"

	"github.com/ckd-project/ckd/internal/clock"
)

// Stdout is the path that stands for the standard output.
const Stdout = "stdout"

// bufferBytes is the size of each of the two buffers: one takes records while the other is written.
const bufferBytes = 8 << 20

// MemoryBytes is the memory that a log holds.
const MemoryBytes = 2 * bufferBytes

// Options configures Open. Path is required.
type Options struct {
	// Path names the file, or is Stdout.
	Path string
	// Software is the version of the daemon, for start lines.
	Software string
	// Report is told of what is lost or cannot be written, at most every ten seconds, and when that is over. May be nil.
	Report func(Trouble)

	// Tests replace these.
	open                                func() (file, error)
	buffer                              int
	flushEvery, lookEvery, closeEvery   time.Duration
	watchEvery, reportEvery, openWithin time.Duration
}

// Trouble says how a log fares. Without a Why and with nothing lost, it is over.
type Trouble struct {
	// Lost counts the records lost since the last report.
	Lost uint64
	// Waiting counts the records that could not be written so far.
	Waiting uint64
	// Why says what keeps the log from being written.
	Why string
}

// Counts says what became of the decisions of a process.
type Counts struct {
	// Decisions = Written + LeftOut + Lost + Waiting.
	Decisions uint64
	// Written counts the records in the file, LeftOut what the policy keeps no record of, Lost the records that had
	// no room, and Waiting those in memory.
	Written, LeftOut, Lost, Waiting uint64
}

// Policy is a policy in force, as start lines have it.
type Policy struct {
	Model   string `json:"model"`
	Version string `json:"version,omitempty"`
	Hash    string `json:"hash"`
	// Text is a policy file from which the hash follows, and by which inputs can be decided again.
	Text string `json:"text"`
}

// Log is a decision log. It may be used by several goroutines.
type Log struct {
	options  Options
	process  Process
	encoders sync.Pool // of *encoder

	wake    chan struct{} // the pending buffer is half full
	look    chan struct{} // see whether the file was moved
	stop    chan struct{} // closed by Close
	abandon chan struct{} // closed when Close waits no longer
	ended   chan struct{} // closed when the writer has ended
	opened  chan error    // the first attempt to open the file

	mu       sync.Mutex
	counts   Counts
	pending  []byte
	closed   bool
	policies []Policy
	changed  uint64 // how often policies were set
	why      string // the last write failed so; empty if it did not
	file     file   // in use by the writer

	busy atomic.Int64 // since when the writer is at work, in nanoseconds since 1970; 0: it is not

	watching sync.WaitGroup
}

// Process says who writes.
type Process struct {
	ID      string `json:"process"`
	Host    string `json:"host"`
	PID     int    `json:"pid"`
	Started string `json:"started"`
}

// Open opens the file for appending, and creates one where there is none. It waits a second for a file system that
// hangs, and then goes on without. Nothing is written before SetPolicies.
func Open(o Options) (*Log, error) {
	o.fill()
	l := &Log{
		options:  o,
		process:  Process{newProcessID(), hostname(), os.Getpid(), timeText(clock.Now())},
		encoders: sync.Pool{New: func() any { return new(encoder) }},
		wake:     make(chan struct{}, 1), look: make(chan struct{}, 1), opened: make(chan error, 1),
		stop: make(chan struct{}), abandon: make(chan struct{}), ended: make(chan struct{}),
		pending: make([]byte, 0, o.buffer),
	}
	w := newWriter(l)
	go w.run()
	select {
	case err := <-l.opened:
		if err != nil {
			close(l.abandon)
			close(l.stop)
			<-l.ended
			return nil, err
		}
	case <-time.After(o.openWithin):
	}
	l.watching.Go(l.watch)
	return l, nil
}

// fill fills in what tests do not set.
func (o *Options) fill() {
	if o.Report == nil {
		o.Report = func(Trouble) {}
	}
	if o.open == nil {
		o.open = func() (file, error) { return openFile(o.Path) }
	}
	if o.buffer == 0 {
		o.buffer = bufferBytes
	}
	for _, d := range []struct {
		at    *time.Duration
		usual time.Duration
	}{
		{&o.flushEvery, 100 * time.Millisecond}, {&o.lookEvery, time.Second}, {&o.closeEvery, 10 * time.Second},
		{&o.watchEvery, time.Second}, {&o.reportEvery, 10 * time.Second}, {&o.openWithin, time.Second},
	} {
		if *d.at == 0 {
			*d.at = d.usual
		}
	}
}

func newProcessID() string {
	var random [8]byte
	_, _ = rand.Read(random[:]) // never fails: crypto/rand
	return hex.EncodeToString(random[:])
}

func hostname() string {
	name, _ := os.Hostname() // without one the process id tells
	return name
}

// timeText returns a time as lines have it.
func timeText(t time.Time) string { return t.UTC().Format("2006-01-02T15:04:05.000000Z") }

// Add gives a decision its number and keeps its record, or counts it as lost where there is no room.
func (l *Log) Add(r *Record) {
	e := l.encoders.Get().(*encoder)
	line := e.encode(r)
	l.mu.Lock()
	l.counts.Decisions++
	full := l.closed || len(l.pending)+mostNumber+len(line) > cap(l.pending)
	if full {
		l.counts.Lost++
	} else {
		l.pending = append(l.pending, numberKey...)
		l.pending = strconv.AppendUint(l.pending, l.counts.Decisions, 10)
		l.pending = append(l.pending, line...)
		l.counts.Waiting++
	}
	half := len(l.pending) > cap(l.pending)/2
	l.mu.Unlock()
	if cap(e.line) <= mostKept {
		l.encoders.Put(e)
	}
	if half {
		poke(l.wake)
	}
}

// mostKept bounds the memory that an encoder keeps between records.
const mostKept = 1 << 20

// LeaveOut gives a decision its number and keeps no record of it.
func (l *Log) LeaveOut() {
	l.mu.Lock()
	l.counts.Decisions++
	l.counts.LeftOut++
	l.mu.Unlock()
}

// Counts returns what became of the decisions so far.
func (l *Log) Counts() Counts {
	l.mu.Lock()
	defer l.mu.Unlock()
	return l.counts
}

// SetPolicies says which policies are in force from now on. A start line names them.
func (l *Log) SetPolicies(all []Policy) {
	l.mu.Lock()
	defer l.mu.Unlock()
	l.policies = slices.Clone(all)
	l.changed++
}

// Reopen has the log look at once whether its file was moved away, and open it anew if so.
func (l *Log) Reopen() { poke(l.look) }

// poke sends to a channel with room for one, unless something waits there already.
func poke(c chan struct{}) {
	select {
	case c <- struct{}{}:
	default:
	}
}

// Close writes what is left, and a close line, until ctx ends. The error says how many records are lost then, and why.
// What is added later is lost too.
func (l *Log) Close(ctx context.Context) error {
	close(l.stop)
	why := ""
	select {
	case <-l.ended:
	case <-ctx.Done():
		why = l.reason(time.Now())
		close(l.abandon)
		l.release()
		select {
		case <-l.ended:
		case <-time.After(50 * time.Millisecond): // the system holds it
		}
	}
	l.watching.Wait()
	l.mu.Lock()
	defer l.mu.Unlock()
	l.closed = true
	left := l.counts.Waiting
	l.counts.Lost, l.counts.Waiting = l.counts.Lost+left, 0
	if left == 0 {
		return nil
	}
	if why == "" {
		why = "there was no time to write them"
	}
	return fmt.Errorf("%d records are lost: %s", left, why)
}

// release closes the file under a writer that waits for it, as for a pipe that nobody reads.
func (l *Log) release() {
	l.mu.Lock()
	f := l.file
	l.mu.Unlock()
	if f != nil {
		_ = f.Close() // what it does not take is lost
	}
}

// failed keeps why the last attempt to write failed; nil if it did not.
func (l *Log) failed(err error) {
	l.mu.Lock()
	defer l.mu.Unlock()
	l.why = ""
	if err != nil {
		l.why = err.Error()
	}
}

// hangs is how long a write takes that counts as hanging.
const hangs = 2 * time.Second

const hanging = "a write does not return: a pipe that nobody reads, or a file system that hangs"

// reason says why nothing is written at present; empty where all is well.
func (l *Log) reason(now time.Time) string {
	if since := l.busy.Load(); since != 0 {
		if now.Sub(time.Unix(0, since)) > hangs {
			return hanging
		}
	}
	l.mu.Lock()
	defer l.mu.Unlock()
	return l.why
}

// watch reports what is lost and what cannot be written, until the log is closed. The writer cannot: it may hang.
func (l *Log) watch() {
	tick := time.NewTicker(l.options.watchEvery)
	defer tick.Stop()
	var (
		lost uint64 // as reported
		last time.Time
		told string // why, at the last report; empty where all was well
	)
	for {
		select {
		case <-l.stop:
			return
		case now := <-tick.C:
			why, counts := l.reason(now), l.Counts()
			more := counts.Lost - lost
			if more == 0 && why == told || !last.IsZero() && now.Sub(last) < l.options.reportEvery {
				continue
			}
			if more > 0 && why == "" {
				why = "more is decided than can be written"
			}
			l.options.Report(Trouble{Lost: more, Waiting: counts.Waiting, Why: why})
			lost, last, told = counts.Lost, now, why
		}
	}
}

// errAbandoned ends a writer that Close waits for no longer.
var errAbandoned = errors.New("there was no time to write it")

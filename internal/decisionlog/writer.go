package decisionlog

import (
	"bytes"
	"crypto/sha256"
	"encoding/hex"
	"encoding/json"
	"hash"
	"time"

	"github.com/ckd-project/ckd/internal/clock"
)

// writer writes what waits to the file. All its work may hang or fail, and it goes on where it stopped.
type writer struct {
	log *Log

	file  file      // nil until it is open
	piece piece     // being written
	rest  piece     // records that the last file did not take
	spare []byte    // the buffer that takes no records
	fate  fate      // of the file: it is left unless it is current
	seen  time.Time // when that was looked at
	said  uint64    // how often policies were set, as of the last start line; 0: the file has none yet
	ended bool      // the last close line is written

	hash   hash.Hash // since the last close line
	after  string    // hash of the last close line; empty for none
	now    moment    // as of the last batch
	closed moment    // as of the last close line
	last   time.Time // when that was
}

// piece is whole lines on their way to the file.
type piece struct {
	kind    kind
	text    []byte
	done    int    // bytes that were written
	whole   int    // bytes of the lines that were
	skipped int    // bytes at the beginning that the hash does not have
	sum     string // hash of a close line
	end     bool   // it is the last one
	said    uint64 // what a start line says: how often policies were set
}

// kind says what a piece holds.
type kind int

const (
	nothing kind = iota
	records
	startLine
	closeLine
)

// moment is what had become of decisions up to a number.
type moment struct{ to, leftOut, lost uint64 }

func newWriter(l *Log) *writer {
	return &writer{log: l, spare: make([]byte, 0, l.options.buffer), hash: sha256.New(), last: time.Now()}
}

// run writes until the log is closed.
func (w *writer) run() {
	l := w.log
	defer close(l.ended)
	defer w.release()
	err := w.work(w.open)
	l.opened <- err
	tick := time.NewTicker(l.options.flushEvery)
	defer tick.Stop()
	wake := l.wake
	for stopping := false; ; {
		select {
		case <-tick.C:
			wake = l.wake
		case <-wake:
		case <-l.look:
			w.seen = time.Time{}
		case <-l.stop:
			if stopping {
				<-tick.C // and try again
			}
			stopping = true
		}
		err := w.work(func() error { return w.step(stopping) })
		if err != nil {
			wake = nil // a full disk is tried again at the next tick
		}
		if stopping && (err == nil || isClosed(l.abandon)) {
			return
		}
	}
}

// work does something that may hang, and keeps how it ended.
func (w *writer) work(do func() error) error {
	w.log.busy.Store(time.Now().UnixNano())
	err := do()
	w.log.busy.Store(0)
	w.log.failed(err)
	return err
}

func isClosed(c chan struct{}) bool {
	select {
	case <-c:
		return true
	default:
		return false
	}
}

// step writes what waits. An error changes nothing: the next step goes on where this one stopped.
func (w *writer) step(last bool) error {
	if now := time.Now(); w.file != nil && now.Sub(w.seen) >= w.log.options.lookEvery {
		w.seen, w.fate = now, max(w.fate, w.file.look())
	}
	if w.fate != current {
		w.leave()
	}
	if w.file == nil {
		if err := w.open(); err != nil {
			return err
		}
	}
	if err := w.flush(); err != nil {
		return err
	}
	policies, changed := w.policies()
	if changed == 0 {
		return nil // nothing was decided yet
	}
	if w.said != changed {
		why := startPolicies
		if w.said == 0 {
			why = startFile
		}
		w.begin(w.startLine(why, policies), startLine)
		w.piece.said = changed
		if err := w.flush(); err != nil {
			return err
		}
	}
	if w.rest.kind != nothing {
		w.piece, w.rest = w.rest, piece{}
		if err := w.flush(); err != nil {
			return err
		}
	}
	w.swap()
	if err := w.flush(); err != nil {
		return err
	}
	if w.ended || !last && (w.now.to == w.closed.to || time.Since(w.last) < w.log.options.closeEvery) {
		return nil
	}
	return w.close(last)
}

func (w *writer) policies() ([]Policy, uint64) {
	w.log.mu.Lock()
	defer w.log.mu.Unlock()
	return w.log.policies, w.log.changed
}

// open opens the file.
func (w *writer) open() error {
	f, err := w.log.options.open()
	if err != nil {
		return err
	}
	w.use(f)
	w.said, w.seen = 0, time.Now()
	return nil
}

// use makes a file the one that is written; nil for none.
func (w *writer) use(f file) {
	w.file = f
	w.log.mu.Lock()
	w.log.file = f
	w.log.mu.Unlock()
}

// leave closes the file, with a close line if it takes one. The rest of the piece goes to the next file. A file that
// was cut gets nothing: it would begin without a start line.
func (w *writer) leave() {
	if w.fate == moved && w.flush() == nil && w.said != 0 && w.rest.kind == nothing && w.now.to != w.closed.to {
		_ = w.close(false) // without it, the next close line counts these numbers too
	}
	p := w.piece
	if p.done > p.whole {
		w.file.cutBack(p.done - p.whole)
	}
	if p.kind == records {
		p.done = p.whole // a line that was cut short is written whole to the next file
		w.rest = p
	}
	w.piece = piece{}
	_ = w.file.Close() // what was written is counted
	w.use(nil)
	w.fate = current
	w.rehash()
}

// rehash begins the hash anew, after the last close line.
func (w *writer) rehash() {
	w.hash.Reset()
	w.hash.Write([]byte(w.after))
}

// release closes the file at the end.
func (w *writer) release() {
	if w.file != nil {
		_ = w.file.Close() // the close line is on the disk, or the log has said why not
	}
}

// begin makes a text the piece to write. The piece before must be written.
func (w *writer) begin(text []byte, k kind) {
	w.piece = piece{kind: k, text: text}
	if k == startLine && w.said == 0 && w.file.ragged() {
		w.piece.text, w.piece.skipped = append([]byte("\n"), text...), 1 // ends the line that another process left
	}
}

// swap makes the records that wait the piece to write.
func (w *writer) swap() {
	l := w.log
	l.mu.Lock()
	batch := l.pending
	l.pending, w.spare = w.spare[:0], batch
	w.now = moment{l.counts.Decisions, l.counts.LeftOut, l.counts.Lost}
	l.mu.Unlock()
	w.begin(batch, records)
}

// flush writes what is left of the piece.
func (w *writer) flush() error {
	p := &w.piece
	for p.done < len(p.text) {
		if isClosed(w.log.abandon) {
			return errAbandoned
		}
		n, err := w.file.Write(p.text[p.done:])
		w.wrote(n)
		if err != nil {
			return err
		}
	}
	switch p.kind {
	case startLine:
		w.said = p.said
	case closeLine:
		w.after, w.closed, w.last, w.ended = p.sum, w.now, time.Now(), p.end
		w.rehash()
	}
	*p = piece{}
	return nil
}

// wrote notes that n more bytes of the piece are in the file.
func (w *writer) wrote(n int) {
	p := &w.piece
	part := p.text[p.done : p.done+n]
	p.done += n
	end := bytes.LastIndexByte(part, '\n')
	if end < 0 {
		return
	}
	from := p.whole
	p.whole = p.done - len(part) + end + 1
	if p.kind != closeLine {
		w.hash.Write(p.text[max(from, p.skipped):p.whole])
	}
	if p.kind == records {
		lines := uint64(bytes.Count(p.text[from:p.whole], []byte{'\n'}))
		w.log.mu.Lock()
		if !w.log.closed { // else they are counted as lost
			w.log.counts.Written += lines
			w.log.counts.Waiting -= lines
		}
		w.log.mu.Unlock()
	}
}

// close writes a close line for all numbers that are settled, and puts the file on the disk.
func (w *writer) close(end bool) error {
	c := Close{Process: w.log.process.ID, Time: timeText(clock.Now()), From: w.closed.to + 1, To: w.now.to,
		LeftOut: w.now.leftOut - w.closed.leftOut, Lost: w.now.lost - w.closed.lost, After: w.after, End: end}
	c.Written = c.To + 1 - c.From - c.LeftOut - c.Lost
	text := encodeLine(struct {
		Close Close `json:"close"`
	}{c})
	text = bytes.TrimSuffix(text, []byte("}}\n"))
	covered, err := w.hash.(hash.Cloner).Clone() // the hash goes on from here only when the line is in the file
	if err != nil {
		return err
	}
	covered.Write(text)
	sum := hex.EncodeToString(covered.Sum(nil))
	text = append(append(append(text, sumKey...), sum...), "\"}}\n"...)
	w.begin(text, closeLine)
	w.piece.sum, w.piece.end = sum, end
	if err := w.flush(); err != nil {
		return err
	}
	return w.file.Sync()
}

// startLine returns a start line.
func (w *writer) startLine(why string, policies []Policy) []byte {
	return encodeLine(struct {
		Start Start `json:"start"`
	}{Start{Process: w.log.process, Time: timeText(clock.Now()), Why: why, Software: w.log.options.Software, From: w.closed.to + 1, After: w.after, Policies: policies}})
}

// encodeLine returns a value as a line.
func encodeLine(v any) []byte {
	var b bytes.Buffer
	e := json.NewEncoder(&b)
	e.SetEscapeHTML(false)
	if err := e.Encode(v); err != nil {
		panic(err) // texts and numbers can be encoded
	}
	return b.Bytes()
}

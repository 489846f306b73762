package server

import (
	"cmp"
	"slices"
	"sync"
	"sync/atomic"

	"github.com/ckd-project/ckd/internal/auth"
)

// line is a connection of a client, over gRPC or HTTP. It has an account for each identity that calls
// over it, of which a proxy may carry many, and estimates what the connection weighs in memory. A nil
// line is the connection within the process.
//
// gRPC keeps the pieces of a message until the last one is there, and tells nobody how much that is. A
// line counts the bytes that came less the messages that calls were given. The rest is an estimate, which
// suffices to find the heaviest connections where the measured memory of the process is short; following
// the frames of HTTP/2 to the byte took 600 lines that replicate constants of one release of grpc-go.
// A client that pads unfinished messages with many tiny whole ones weighs less than it takes.
type line struct {
	budget *budget
	hangUp func(cause string) // ends the connection

	calls    atomic.Int64 // under way, health checks included
	arriving atomic.Int64 // bytes that came and that no call was given, roughly

	mu  sync.Mutex
	all map[*auth.Share]*account
}

// open returns the line of a new connection.
func (b *budget) open(hangUp func(cause string)) *line {
	l := &line{budget: b, hangUp: hangUp, all: map[*auth.Share]*account{}}
	b.mu.Lock()
	defer b.mu.Unlock()
	b.lines[l] = struct{}{}
	return l
}

// close says that the connection has ended. What its accounts hold stays until it is released.
func (l *line) close() {
	if l != nil {
		l.budget.mu.Lock()
		defer l.budget.mu.Unlock()
		delete(l.budget.lines, l)
	}
}

// account returns the account of an identity's calls over the connection.
func (l *line) account(who *auth.Identity) *account {
	share := who.ByteShare()
	l.mu.Lock()
	defer l.mu.Unlock()
	a := l.all[share]
	if a == nil {
		a = &account{holder: l.budget.holder(who), line: l}
		l.all[share] = a
	}
	return a
}

// begin counts a call, and end its end.
func (l *line) begin() {
	if l != nil {
		l.calls.Add(1)
	}
}

func (l *line) end() {
	if l != nil && l.calls.Add(-1) == 0 {
		l.arriving.Store(0) // no call is left that it could be of
	}
}

// received counts bytes that came.
func (l *line) received(bytes int) {
	if l != nil {
		l.arriving.Add(int64(bytes))
	}
}

// frameBytes is what comes beside the bytes of a message: headers of frames and of the message, and
// the acknowledgement of a reply.
const frameBytes = 64

// handed counts a message that a call was given.
func (l *line) handed(bytes int) {
	if l == nil {
		return
	}
	if left := l.arriving.Add(-int64(bytes) - int64(bytes>>10) - frameBytes); left < 0 {
		l.arriving.CompareAndSwap(left, 0)
	}
}

// weight estimates the memory that the connection takes: what it is charged with, what its calls take
// by themselves, and what has come of messages that no call was given.
func (l *line) weight() int64 {
	calls := l.calls.Load()
	weight := calls*callBytes + max(min(l.arriving.Load(), calls*l.budget.mostPerCall()), 0)
	l.mu.Lock()
	defer l.mu.Unlock()
	for _, a := range l.all {
		weight += a.own.Load()
	}
	return weight
}

// fewCalls is how many calls a connection has under way at most that takes next to nothing.
const fewCalls = 8

// isSpared reports whether new calls of the account are taken while memory is short: it takes next to
// nothing.
func (a *account) isSpared() bool {
	return a.holdsLittle() && (a.line == nil || a.line.calls.Load() < fewCalls)
}

// weighed is a connection and its weight.
type weighed struct {
	*line
	weight int64
}

// weigh returns the open connections, the heaviest first, and what they weigh together.
func (b *budget) weigh() (all []weighed, total int64) {
	b.mu.Lock()
	for l := range b.lines {
		all = append(all, weighed{l, 0})
	}
	b.mu.Unlock()
	for i := range all {
		all[i].weight = all[i].line.weight()
		total += all[i].weight
	}
	slices.SortFunc(all, func(x, y weighed) int { return cmp.Compare(y.weight, x.weight) })
	return all, total
}

// mostEnded is how many connections endHeaviest ends at most.
const mostEnded = 16

// endHeaviest ends the connections that weigh most, until so many bytes have gone, and returns how many
// it has ended. It spares those that weigh far less than the heaviest, or next to nothing: weights are
// estimates, and ending the small ones would free little.
func (b *budget) endHeaviest(excess int64) (ended int) {
	all, _ := b.weigh()
	all = all[:min(len(all), mostEnded)]
	for _, l := range all {
		if excess <= 0 || l.weight < max(all[0].weight/8, b.limit/1024/int64(len(all)), 1) {
			break
		}
		excess -= l.weight
		l.hangUp("memory is very short, and it held most of it")
		ended++
	}
	return ended
}

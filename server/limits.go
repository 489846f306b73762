package server

import (
	"fmt"
	"math"
	"time"

	"github.com/ckd-project/ckd/engine"
	ckdv1 "github.com/ckd-project/ckd/proto/ckd/v1"
)

// Limits bounds what clients can make the daemon hold. internal/config validates the settings that
// they come from.
type Limits struct {
	MessageBytes        int   // size of a received message; 0 follows from the policies in force
	Streams             int   // streams of passes open at one time, and as many watches of the health
	Calls               int   // unary calls in flight
	OpenInputsPerStream int   // open at one time on one stream
	OpenGroupsPerStream int   // open at one time on one stream
	InputsPerRequest    int   // inputs of a unary request
	PassesPerInput      int   // passes of an input
	InputIDBytes        int   // length of an id
	ReplyBytes          int   // approximate size of a reply
	OpenInputBytes      int64 // held by the open inputs of all streams and requests
	Classes             int   // classes of a policy

	CallTime       time.Duration // how long a unary call may take, from its headers to its answer
	FirstMessage   time.Duration // how long the first message of a call or stream may take to be whole
	ConnectionIdle time.Duration // how long a connection may be without calls
	SendStall      time.Duration // how long a client may leave a reply unread
	InputIdle      time.Duration // how long an open input may be without passes
	StreamAge      time.Duration // age at which a stream drains; 0 means never

	DrainGrace time.Duration // how long the open inputs of an old stream may go on
}

// maxSendBytes sets no limit on sending. ReplyBytes refuses large replies before the work is done,
// and clients have receive limits of their own.
const maxSendBytes = math.MaxInt32

// DefaultLimits returns limits for a sidecar with some hundred MiB of memory.
func DefaultLimits() Limits { return LimitsFor(128 << 20) }

// LimitsFor returns limits for a budget of open bytes. One unary call may be under way for each MiB.
func LimitsFor(openBytes int64) Limits {
	return Limits{
		Streams:             512,
		Calls:               int(min(max(openBytes>>20, 16), 1024)),
		OpenInputsPerStream: 4096,
		OpenGroupsPerStream: 4096,
		InputsPerRequest:    65536,
		PassesPerInput:      100_000,
		InputIDBytes:        256,
		ReplyBytes:          16 << 20,
		OpenInputBytes:      openBytes,
		Classes:             10_000,
		CallTime:            time.Minute,
		FirstMessage:        15 * time.Second,
		ConnectionIdle:      5 * time.Minute,
		SendStall:           30 * time.Second,
		InputIdle:           5 * time.Minute,
		DrainGrace:          10 * time.Second,
	}
}

// WorstCase estimates the memory that a daemon takes whose clients use all that the limits allow, in
// bytes, by what takes it. It does not count garbage between two collections. Clients that send parts of
// messages over many connections can make it take more: a memory limit bounds that.
type WorstCase struct {
	Itself      int64 // the daemon and its models
	Open        int64 // open inputs, requests, bodies over HTTP and replies that are not sent
	Decoded     int64 // what the bodies are decoded to; 0 without HTTP
	Arriving    int64 // messages that are not whole, or of streams and not read
	Calls       int64 // streams, watches and calls: their state, headers, and messages to be read
	Connections int64 // their buffers
}

// Total returns the sum.
func (w WorstCase) Total() int64 {
	return w.Itself + w.Open + w.Decoded + w.Arriving + w.Calls + w.Connections
}

// Measured: see docs/operate.md.
const (
	daemonBytes     = 56 << 20
	modelBytes      = 8 << 20
	callBytes       = 25 << 10
	connectionBytes = 192 << 10
)

// WorstCase returns the estimate for a daemon that serves a number of models and takes a number of
// connections, over HTTP too or not:
//
//	Itself      = 56 MiB + 8 MiB x models
//	Open        = max-open-bytes
//	Decoded     = max-open-bytes with HTTP
//	Arriving    = max-open-bytes
//	Calls       = (2 x max-streams + calls + 64) x (25 KiB + 64 KiB of headers + 256 KiB)
//	Connections = connections x 192 KiB
//
// The 256 KiB are half a window of a stream, which may wait to be read. 64 is how many calls of
// reflection are taken at one time.
func (l Limits) WorstCase(models, connections int, overHTTP bool) WorstCase {
	calls := int64(2*l.Streams + l.Calls + othersAtOnce)
	w := WorstCase{
		Itself:      daemonBytes + modelBytes*int64(models),
		Open:        l.OpenInputBytes,
		Arriving:    l.OpenInputBytes,
		Calls:       calls * (callBytes + headerBytes + uncharged),
		Connections: connectionBytes * int64(connections),
	}
	if overHTTP {
		w.Decoded = l.OpenInputBytes
	}
	return w
}

// admit refuses a model of which not a single input could be taken.
func (l Limits) admit(m *engine.Model) error {
	p := m.Policy()
	for _, c := range []struct {
		what         string
		value, limit int64
	}{
		{"classes", int64(len(p.Classes)), int64(l.Classes)},
		{"expected passes", int64(p.ExpectedPasses), int64(l.PassesPerInput)},
		{"fewest passes", int64(p.FewestPasses), int64(l.PassesPerInput)},
		{"bytes of one open input", inputCost(m.InputBytes(p.ExpectedPasses), 0), alone(l.OpenInputBytes)},
	} {
		if c.value > c.limit {
			return fmt.Errorf("%d %s, over the daemon's limit of %d", c.value, c.what, c.limit)
		}
	}
	return nil
}

// firstMessage returns how long a call may be without its first message.
func (l Limits) firstMessage() time.Duration { return min(l.FirstMessage, l.CallTime) }

// rowBytes is what an open input holds beside its accumulator and its id.
const rowBytes = 128

// inputCost returns what an open input takes of the budget, for its passes and its id.
func inputCost(passes, id int) int64 { return int64(passes + 2*id + rowBytes) }

// leastMessage is the least limit that follows from policies. Clients may rely on it.
const leastMessage = 512 << 10

// messageBytesFor returns the largest message that a daemon takes under policies: it has room for
// 64 inputs of each, with all their passes, within an eighth of the budget, or for one input that
// is larger.
func (l Limits) messageBytesFor(all models) int {
	if l.MessageBytes > 0 {
		return l.MessageBytes
	}
	most := int64(leastMessage)
	for _, m := range all {
		p := m.Policy()
		inputBytes := 4*int64(max(p.ExpectedPasses, p.FewestPasses))*int64(len(p.Classes)) + int64(2*l.InputIDBytes) + rowBytes
		most = max(most, min(64*inputBytes, l.OpenInputBytes/8), inputBytes)
	}
	const unit = 64 << 10
	return int(min((most+unit-1)/unit*unit, int64(l.mostReceived())))
}

// mostReceived returns the largest message that gRPC reads. It lies above the limit on messages, so
// that those that are not far too large are refused with a status that names the setting: gRPC's
// own names none. The most that a connection may hold bounds it.
func (l Limits) mostReceived() int {
	return min(max(l.MessageBytes, leastMessage, int(min(alone(l.OpenInputBytes), math.MaxInt32))), math.MaxInt32)
}

// message returns the limits in the form that clients receive.
func (l Limits) message(messageBytes int) *ckdv1.Limits {
	return &ckdv1.Limits{
		OpenInputsPerStream: uint32(l.OpenInputsPerStream),
		OpenGroupsPerStream: uint32(l.OpenGroupsPerStream),
		InputsPerRequest:    uint32(l.InputsPerRequest),
		PassesPerInput:      uint32(l.PassesPerInput),
		MessageBytes:        uint32(messageBytes),
		InputIdBytes:        uint32(l.InputIDBytes),
		ReplyBytes:          uint32(l.ReplyBytes),
	}
}

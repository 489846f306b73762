package server

import (
	"math"
	"time"

	ckdv1 "github.com/ckd-project/ckd/proto/ckd/v1"
)

// Limits bound what clients can make the daemon hold. Their ranges are those of
// the settings that they come from, which internal/config validates.
type Limits struct {
	MessageBytes        int   // of one message received
	Streams             int   // open at one time
	OpenInputsPerStream int   // open at one time on one stream
	OpenGroupsPerStream int   // open at one time on one stream
	InputsPerRequest    int   // in one unary request
	PassesPerInput      int   // of one input
	InputIDBytes        int   // of one id
	OpenInputBytes      int64 // held by the open inputs of all streams and requests
	Classes             int   // of a policy

	SendStall time.Duration // how long a client may leave a reply unread
	InputIdle time.Duration // how long an open input may be without passes
	StreamAge time.Duration // after which a stream drains; 0: never
}

// maxSendBytes: a reply is as large as the client's own detail and batch make
// it, and the client's receive limit is the one that applies.
const maxSendBytes = math.MaxInt32

// DefaultLimits suit a sidecar with some hundred MiB of memory.
func DefaultLimits() Limits {
	return Limits{
		MessageBytes:        16 << 20,
		Streams:             1024,
		OpenInputsPerStream: 4096,
		OpenGroupsPerStream: 4096,
		InputsPerRequest:    65536,
		PassesPerInput:      100_000,
		InputIDBytes:        256,
		OpenInputBytes:      256 << 20,
		Classes:             10_000,
		SendStall:           30 * time.Second,
		InputIdle:           5 * time.Minute,
	}
}

// message is the limits as clients are told.
func (l Limits) message() *ckdv1.Limits {
	return &ckdv1.Limits{
		OpenInputsPerStream: uint32(l.OpenInputsPerStream),
		OpenGroupsPerStream: uint32(l.OpenGroupsPerStream),
		InputsPerRequest:    uint32(l.InputsPerRequest),
		PassesPerInput:      uint32(l.PassesPerInput),
		MessageBytes:        uint32(l.MessageBytes),
		InputIdBytes:        uint32(l.InputIDBytes),
	}
}

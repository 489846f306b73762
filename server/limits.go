package server

import (
	"errors"
	"fmt"
	"math"

	ckdv1 "github.com/ckd-project/ckd/proto/ckd/v1"
)

// Limits bound what clients can make the daemon hold.
type Limits struct {
	MessageBytes        int   // of one message received
	Streams             int   // open at one time
	OpenInputsPerStream int   // open at one time on one stream
	OpenGroupsPerStream int   // open at one time on one stream
	InputsPerRequest    int   // in one unary request
	PassesPerInput      int   // of one input
	InputIDBytes        int   // of one id
	OpenInputBytes      int64 // held by the open inputs of all streams
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
	}
}

// Validate reports every limit that is out of range.
func (l Limits) Validate() error {
	var faults []error
	for _, c := range []struct {
		name            string
		value, min, max int64
	}{
		{"message bytes", int64(l.MessageBytes), 1 << 10, 1 << 30},
		{"streams", int64(l.Streams), 1, 1 << 20},
		{"open inputs per stream", int64(l.OpenInputsPerStream), 1, 1 << 24},
		{"open groups per stream", int64(l.OpenGroupsPerStream), 1, 1 << 24},
		{"inputs per request", int64(l.InputsPerRequest), 1, 1 << 24},
		{"passes per input", int64(l.PassesPerInput), 2, 1 << 30},
		{"input id bytes", int64(l.InputIDBytes), 1, 1 << 16},
		{"open input bytes", l.OpenInputBytes, 1 << 10, math.MaxInt64},
	} {
		if c.value < c.min || c.value > c.max {
			faults = append(faults, fmt.Errorf("limit on %s: %d, expected %d to %d", c.name, c.value, c.min, c.max))
		}
	}
	return errors.Join(faults...)
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

package server

import (
	"slices"

	rpcstatus "google.golang.org/genproto/googleapis/rpc/status"

	"github.com/ckd-project/ckd/server/internal/wire"
)

// replyBuilder builds the reply to the current message. Whatever it refuses is counted and logged
// too, so that no client is refused in silence.
type replyBuilder struct {
	sender *sender
	limits *Limits
	bound  *model // the stream's
	notes  *notes

	out         *wire.Outgoing // nil: no result yet
	policies    []*model       // models named in the reply, in order
	faults      []*rpcstatus.Status
	blocks      uint64 // blocks handled so far
	acknowledge bool   // reply in any case, with the number of blocks
	cost        int64  // bytes of the budget that the results take
}

// forModel returns the reply and the position of the model's policy in it.
func (b *replyBuilder) forModel(m *model) (*wire.Outgoing, uint32) {
	b.begin()
	at := slices.Index(b.policies, m)
	if at < 0 {
		at = len(b.policies)
		b.policies = append(b.policies, m)
		b.out.Policy(m.encodedRef)
	}
	return b.out, uint32(at)
}

func (b *replyBuilder) begin() {
	if b.out != nil {
		return
	}
	if b.out = b.sender.spare.Swap(nil); b.out == nil {
		b.out = wire.NewOutgoing(wire.Stream)
	} else {
		b.out.Begin(wire.Stream)
	}
}

// refuse adds a fault of the message itself, which is no input's.
func (b *replyBuilder) refuse(at location, err error) {
	b.bound.metrics.Rejected(reasonWord(reasonOf(err)), 1)
	b.notes.fault(b.bound, at, err)
	b.faults = append(b.faults, statusOf(err, at).Proto())
}

// fail adds the error of an input.
func (b *replyBuilder) fail(m *model, at location, err error) {
	m.metrics.Rejected(reasonWord(reasonOf(err)), 1)
	b.notes.fault(m, at, err)
	out, ref := b.forModel(m)
	out.Error([]byte(echo(b.limits, at.input)), at.group, uint32(at.row), ref, statusOf(err, at).Proto())
}

// results returns the number of results so far.
func (b *replyBuilder) results() int {
	if b.out == nil {
		return 0
	}
	return b.out.Results()
}

// blockHandled counts a block, and notes whether it must be acknowledged.
func (b *replyBuilder) blockHandled(acknowledge bool) {
	b.blocks++
	b.acknowledge = acknowledge
}

// flush returns the reply built for the current message and resets the builder. The caller must
// send it.
func (b *replyBuilder) flush(now int64) reply {
	if b.out == nil && len(b.faults) == 0 && !b.acknowledge {
		return reply{}
	}
	b.begin()
	for _, st := range b.faults {
		b.out.Fault(st)
	}
	if b.acknowledge {
		b.out.Blocks(b.blocks)
		b.acknowledge = false
	}
	r := reply{b.out, b.cost, now}
	b.out, b.policies, b.faults, b.cost = nil, b.policies[:0], nil, 0
	b.sender.made()
	return r
}

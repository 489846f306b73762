package server

import (
	"slices"
	"sync/atomic"

	rpcstatus "google.golang.org/genproto/googleapis/rpc/status"

	"github.com/ckd-project/ckd/server/internal/wire"
)

// replyBuilder encodes the reply to the current message.
type replyBuilder struct {
	spare *atomic.Pointer[wire.Outgoing] // a reply that was sent, if any, for the next one

	out         *wire.Outgoing // nil: no result yet
	policies    []*model       // models named in the reply, in order
	faults      []*rpcstatus.Status
	blocks      uint64 // blocks handled so far
	acknowledge bool   // reply in any case, with the number of blocks
	cost        int64  // bytes of the budget that the results take
}

// begin makes the reply ready for a result.
func (b *replyBuilder) begin() {
	if b.out != nil {
		return
	}
	if b.out = b.spare.Swap(nil); b.out == nil {
		b.out = wire.NewOutgoing(wire.Stream)
	} else {
		b.out.Begin(wire.Stream)
	}
}

// policy returns the position of a model's policy in the reply.
func (b *replyBuilder) policy(m *model) uint32 {
	b.begin()
	if len(b.policies) > 0 && b.policies[0] == m {
		return 0
	}
	position := slices.Index(b.policies, m)
	if position < 0 {
		position = len(b.policies)
		b.policies = append(b.policies, m)
		b.out.Policy(m.encodedRef)
	}
	return uint32(position)
}

// result adds the result of a row of a group.
func (b *replyBuilder) result(g *group, row uint32, id []byte, d *wire.Decomposition) {
	policy := b.policy(g.model)
	b.out.Result(id, g.number, row, policy, d)
}

// fail adds the error of an input.
func (b *replyBuilder) fail(m *model, place location, said *rpcstatus.Status) {
	policy := b.policy(m)
	b.out.Error([]byte(place.input), place.group, uint32(place.row), policy, said)
}

// fault adds a fault of the message itself.
func (b *replyBuilder) fault(said *rpcstatus.Status) { b.faults = append(b.faults, said) }

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
	for _, said := range b.faults {
		b.out.Fault(said)
	}
	if b.acknowledge {
		b.out.Blocks(b.blocks)
		b.acknowledge = false
	}
	r := reply{b.out, b.cost, now}
	b.out, b.policies, b.faults, b.cost = nil, b.policies[:0], nil, 0
	return r
}

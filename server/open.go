package server

import (
	"fmt"
	"unsafe"

	"github.com/ckd-project/ckd/engine"
	ckdv1 "github.com/ckd-project/ckd/proto/ckd/v1"
	"github.com/ckd-project/ckd/server/internal/wire"
)

// openOrFind returns the group of a block and whether the block opens it, or nil where nothing is
// left to do for the block.
func (s *stream) openOrFind(b *wire.Block) (g *group, opened bool) {
	g = s.groups.byNumber[b.Group]
	if err := checkContexts(b.Contexts.Len(), b.IDs.Len()); err != nil {
		s.refuse(location{group: b.Group, hasGroup: true}, err)
		return nil, false
	}
	switch {
	case b.IDs.Len() == 0 && g != nil:
		return g, false
	case b.IDs.Len() == 0 && s.groups.wasOpened(b.Group):
		values := max(b.Values.Floats(), b.Values.Bytes()/4)
		s.bound.metrics.Late(values / len(s.bound.Policy().Classes))
	case b.IDs.Len() == 0:
		s.refuse(location{group: b.Group, hasGroup: true}, &fault{
			reason: ckdv1.ErrorReason_ERROR_REASON_UNKNOWN_GROUP, field: "group", value: fmt.Sprint(b.Group),
			message: "the group was never opened", expected: "input_ids, which open a group",
		})
	case g != nil:
		s.refuse(location{group: b.Group, hasGroup: true}, &fault{
			reason: ckdv1.ErrorReason_ERROR_REASON_GROUP_OPEN, field: "group", value: fmt.Sprint(b.Group),
			message:  "the group is open already, and goes on as it was; the inputs of this block were not opened",
			expected: "another number, or no input_ids",
		})
	default:
		return s.open(b), true
	}
	return nil, false
}

// open opens the group of a block. An input that may not be opened fails alone; its row stays in
// the group, whose layout the client knows. A block with more inputs than a stream may ever have,
// or a reply may carry, is refused whole.
func (s *stream) open(b *wire.Block) *group {
	// Later blocks of the group are late, whether its opening succeeds or not.
	s.groups.highest, s.groups.anyOpened = max(s.groups.highest, b.Group), true
	ids, at := b.IDs.Len(), location{group: b.Group, hasGroup: true}
	if limit := s.decider.limits.OpenInputsPerStream; ids > limit {
		s.refuse(at, overLimit(ckdv1.ErrorReason_ERROR_REASON_TOO_MANY_INPUTS, "input_ids", "input ids", int64(ids), int64(limit)))
		return nil
	}
	if err := s.decider.limits.checkReply(s.bound, s.header.GetDetail(), &s.answerer.issuer, ids); err != nil {
		s.refuse(at, err)
		return nil
	}
	m, changed := s.decider.catalog.successor(s.bound)
	if changed != nil {
		s.end(changed)
	}
	if ending := s.ending.Load(); ending != nil {
		s.failAll(s.bound, b, ending)
		return nil
	}
	if n, limit := len(s.groups.byNumber), s.decider.limits.OpenGroupsPerStream; n >= limit {
		s.failAll(m, b, overLimit(ckdv1.ErrorReason_ERROR_REASON_TOO_MANY_GROUPS, "group", "open groups", int64(n+1), int64(limit)))
		return nil
	}
	g := s.groups.newGroup(&b.IDs)
	g.number, g.model, g.touched = b.Group, m, s.now
	s.admit(g, b)
	s.groups.byNumber[g.number] = g
	if !g.passing {
		m.metrics.InputsOpen(g.open())
	}
	return g
}

// failAll fails all inputs that a block would have opened.
func (s *stream) failAll(m *model, b *wire.Block, err error) {
	for i := range b.IDs.Len() {
		s.fail(m, position(b.Group, i, string(b.IDs.At(i))), err)
	}
}

// admit opens those inputs of a group for which there is room, and fails the others.
func (s *stream) admit(g *group, b *wire.Block) {
	n := len(g.rows)
	opening := s.prepare(g, b)
	each, account := opening.InputBytes(n), s.groups.account
	if b.Contexts.Len() > 0 && s.answerer.issuer.takes() {
		each += int(unsafe.Sizeof(inputContext{}))
	}
	// What all of them hold is claimed at once; one by one where not all fit.
	claimed := int64(n)*inputCost(each, 0) + int64(2*len(g.text))
	if s.groups.inputs+n > s.decider.limits.OpenInputsPerStream {
		claimed = 0
	} else if !account.reserve(claimed) {
		claimed = 0
	}
	for i := range g.rows {
		id := g.rows[i].id
		cost := inputCost(each, len(id))
		err := s.groups.checkID(i, id)
		if wrong := s.readContext(g, &b.Contexts, i); err == nil {
			err = wrong
		}
		if err == nil && claimed == 0 {
			err = s.groups.claim(cost)
		}
		if err != nil {
			s.fail(g.model, position(g.number, i, id), err)
			continue
		}
		s.groups.admit(g, i, cost)
	}
	s.groups.held += g.cost
	if claimed > g.cost {
		account.release(claimed - g.cost) // of those refused
	}
	if n := len(g.bySlot); n > 0 {
		g.inputs = opening.Open(n)
		s.decider.catalog.retain(g.model)
	}
}

// readContext reads the context of row i of a group, if the client states contexts.
func (s *stream) readContext(g *group, contexts *wire.Contexts, i int) error {
	if contexts.Len() == 0 || !s.answerer.issuer.takes() {
		return nil
	}
	x, err := s.answerer.issuer.context(g.model, contexts, i)
	g.contexts = append(g.contexts, x)
	return err
}

// prepare describes to the engine the inputs of a block that opens a group.
func (s *stream) prepare(g *group, b *wire.Block) engine.Opening {
	o := engine.Options{
		Passes: s.expected(g.model), MostPasses: s.decider.limits.PassesPerInput, StopEarly: s.header.GetAcceptSettled(), Here: blockPasses(b),
	}
	g.passing = len(b.Rows) == 0 && (b.Final || o.Passes > 0 && o.Here >= o.Passes) &&
		fits(valuesOf(b), o.Here, len(g.rows), len(g.model.Policy().Classes)) && o.Here <= o.MostPasses
	o.Complete = g.passing
	return g.model.pool(s.header.GetDetail()).Prepare(o)
}

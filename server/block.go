package server

import (
	"fmt"
	"slices"

	"github.com/ckd-project/ckd/decomp"
	"github.com/ckd-project/ckd/internal/wire"
	ckdv1 "github.com/ckd-project/ckd/proto/ckd/v1"
	"github.com/ckd-project/ckd/settle"
)

// block takes one block. What is wrong with it becomes results.
func (s *session) block(b *wire.Block) {
	before := s.groups[b.Group]
	g := s.groupOf(b)
	if g == nil {
		return
	}
	s.feed(g, b, g != before)
	s.closeIfDone(g)
}

// groupOf opens or finds the group of a block. It returns nil where there is
// nothing more to do for the block.
func (s *session) groupOf(b *wire.Block) *group {
	g := s.groups[b.Group]
	switch {
	case b.IDs.Len() == 0 && g != nil:
		return g
	case b.IDs.Len() == 0 && s.anyOpened && b.Group <= s.highest:
		// Closed before: its passes are late.
		values := max(b.Values.Floats(), b.Values.Bytes()/4)
		s.bound.metrics.Late(values / len(s.bound.Policy().Classes))
		return nil
	case b.IDs.Len() == 0:
		s.refuse(location{group: b.Group, hasGroup: true}, &fault{
			reason: ckdv1.ErrorReason_ERROR_REASON_UNKNOWN_GROUP, field: "group", value: fmt.Sprint(b.Group),
			message: "the group was never opened", expected: "input_ids, which open a group",
		})
		return nil
	case g != nil:
		s.refuse(location{group: b.Group, hasGroup: true}, &fault{
			reason: ckdv1.ErrorReason_ERROR_REASON_GROUP_OPEN, field: "group", value: fmt.Sprint(b.Group),
			message:  "the group is open already, and goes on as it was; the inputs of this block were not opened",
			expected: "another number, or no input_ids",
		})
		return nil
	}
	return s.open(b)
}

// open opens the group of a block. An input that may not be opened fails alone;
// its row stays in the group, whose layout the client knows. A block with more
// inputs than a stream may ever have, or a reply may carry, is refused whole.
func (s *session) open(b *wire.Block) *group {
	s.highest, s.anyOpened = max(s.highest, b.Group), true // what follows for it is late, however this ends
	ids, at := b.IDs.Len(), location{group: b.Group, hasGroup: true}
	if limit := s.server.limits.OpenInputsPerStream; ids > limit {
		s.refuse(at, overLimit(ckdv1.ErrorReason_ERROR_REASON_TOO_MANY_INPUTS, "input_ids", "input ids", int64(ids), int64(limit)))
		return nil
	}
	if err := s.server.checkReply(s.bound, s.header.GetDetail(), ids); err != nil {
		s.refuse(at, err)
		return nil
	}
	refuse := func(m *model, err error) *group {
		for i := range ids {
			id := string(b.IDs.At(i))
			s.fail(m, position(b.Group, i, id), id, err)
		}
		return nil
	}
	m, changed := s.server.successor(s.bound)
	if changed != nil {
		s.endFor(changed)
	}
	if s.ending != nil {
		return refuse(s.bound, s.ending)
	}
	if limit := s.server.limits.OpenGroupsPerStream; len(s.groups) >= limit {
		return refuse(m, overLimit(ckdv1.ErrorReason_ERROR_REASON_TOO_MANY_GROUPS, "group", "open groups", int64(len(s.groups)+1), int64(limit)))
	}
	if m != s.latest {
		s.latest, s.told = m, &differences{} // a stream of weeks outlives calibrations, whose mismatches are news
	}
	g := s.newGroup(&b.IDs)
	g.number, g.model, g.passes, g.told, g.touched = b.Group, m, s.expected(m), s.told, s.now
	s.admit(g, b)
	s.groups[g.number] = g
	if !g.passing {
		m.metrics.InputsOpen(g.open)
	}
	return g
}

// admit opens those inputs of a group for which there is room, and fails the
// others.
func (s *session) admit(g *group, b *wire.Block) {
	shop := g.model.workshop(s.header.GetDetail())
	n, passes := len(g.rows), blockPasses(b)
	g.passing = len(b.Rows) == 0 && (b.Final || g.passes > 0 && passes >= g.passes) &&
		fits(valuesOf(b), passes, n, len(g.model.Policy().Classes)) && passes <= s.server.limits.PassesPerInput
	// Passes that are all here are all kept, however many they are.
	kept, each := shop.Plan().KeptPasses(g.passes), shop.InputBytes(g.passes)
	if g.passing {
		kept = max(passes, 1)
		each = shop.Plan().AccumulatorBytes(kept, false)
	}
	settles := s.header.GetAcceptSettled() && !g.passing && g.model.settling.settles(g.passes)
	if settles {
		plan := g.model.settling.plan
		each += plan.Bytes() + (plan.SharedBytes()+n-1)/n
	}
	s.seen.begin(n)
	// What all of them hold is claimed at once; one by one where not all fit.
	limit, claimed := s.server.limits.OpenInputBytes, int64(n)*inputCost(each, 0)+int64(2*len(g.text))
	if s.inputs+n > s.server.limits.OpenInputsPerStream || s.server.openBytes.Load()+claimed > limit {
		claimed = 0
	} else if s.server.openBytes.Add(claimed) > limit {
		s.server.openBytes.Add(-claimed)
		claimed = 0
	}
	for i := range g.rows {
		id := g.rows[i].id
		cost := inputCost(each, len(id))
		slot, err := s.checkRow(b, i, id)
		if err == nil && claimed == 0 {
			err = s.claim(cost)
		}
		if err != nil {
			slot.forget()
			s.fail(g.model, position(g.number, i, id), id, err)
			continue
		}
		g.rows[i].open, g.rows[i].slot = true, g.open
		g.open++
		g.cost += cost
		s.inputs++
		if id != "" && !g.passing {
			s.ids[id] = struct{}{}
		}
	}
	s.held += g.cost
	if claimed > 0 {
		s.server.openBytes.Add(g.cost - claimed) // less what was refused
	}
	g.even = g.open == n
	if g.open > 0 {
		g.inputs = shop.Open(g.open, kept)
		if settles {
			s.follow(g)
		}
		s.server.retain(g.model)
	}
}

// checkRow says what forbids an id, or else where it was noted, if it was.
func (s *session) checkRow(b *wire.Block, i int, id string) (*idSlot, error) {
	inUse := false
	var slot *idSlot
	if id != "" {
		if len(s.ids) > 0 {
			_, inUse = s.ids[id]
		}
		if b.IDs.Len() > 1 && !inUse {
			if slot = s.seen.add(&b.IDs, i); slot == nil {
				inUse = true
			}
		}
	}
	if inUse || len(id) > s.server.limits.InputIDBytes {
		return slot, s.server.checkID(id, i, inUse)
	}
	return slot, nil
}

// claim takes what an open input holds out of the budget, or says why it cannot.
func (s *session) claim(bytes int64) error {
	if limit := s.server.limits.OpenInputsPerStream; s.inputs >= limit {
		return overLimit(ckdv1.ErrorReason_ERROR_REASON_TOO_MANY_INPUTS, "input_ids", "open inputs", int64(s.inputs+1), int64(limit))
	}
	limit := s.server.limits.OpenInputBytes
	if total := s.server.openBytes.Add(bytes); total > limit {
		s.server.openBytes.Add(-bytes)
		return overBudget("input_ids", "bytes of open inputs", bytes, total, limit)
	}
	return nil
}

// blockPasses is the passes of a block.
func blockPasses(b *wire.Block) int {
	if b.Passes == 0 && valuesOf(b) > 0 {
		return 1
	}
	return int(b.Passes)
}

// valuesOf is the number of values of a block; -1 where they cannot be read.
func valuesOf(b *wire.Block) int {
	if b.Values.Floats() > 0 && b.Values.Bytes() > 0 || b.Values.Bytes()%4 != 0 {
		return -1
	}
	return b.Values.Len()
}

// feed gives the values of a block to the rows that it names. Passes are late
// for rows that were closed before, or that had all theirs earlier in the block;
// of a row that this very block opened, or lost, in vain, nothing is counted.
func (s *session) feed(g *group, b *wire.Block, opened bool) {
	if len(b.Rows) > len(g.rows) {
		s.refuse(location{group: g.number, hasGroup: true}, &fault{
			reason: ckdv1.ErrorReason_ERROR_REASON_ROW_OUT_OF_RANGE, field: "rows", value: fmt.Sprint(len(b.Rows)),
			message:  fmt.Sprintf("%d rows are named, and the group has %d; the block is ignored", len(b.Rows), len(g.rows)),
			expected: fmt.Sprintf("at most %d rows, each once", len(g.rows)),
		})
		return
	}
	rows := len(b.Rows)
	if rows == 0 {
		rows = len(g.rows)
	}
	passes, width := blockPasses(b), len(g.model.Policy().Classes)
	err := checkValues(&b.Values)
	if err == nil && !fits(b.Values.Len(), passes, rows, width) {
		err = wrongLength(g.model, b.Values.Len(), passes, rows)
	}
	if err == nil && len(b.Rows) == 0 && g.even && s.fitsAll(g, passes) {
		s.feedAll(g, b, passes, opened)
		return
	}
	g.even = false
	s.feedRows(g, b, passes, err, opened)
}

// fitsAll reports whether all rows of an even group can take so many passes.
func (s *session) fitsAll(g *group, passes int) bool {
	had := g.inputs.Passes(0)
	return (g.passes == 0 || had+passes <= g.passes) && had+passes <= s.server.limits.PassesPerInput
}

// feedAll gives all rows of an even group so many passes: the usual way.
func (s *session) feedAll(g *group, b *wire.Block, passes int, opened bool) {
	n := len(g.rows)
	g.touched = s.now
	if !opened {
		g.model.metrics.Late(passes * (n - g.open))
	}
	if g.following != nil {
		s.feedFollowed(g, b, passes)
	} else {
		s.fill(g, passes, &b.Values)
	}
	if g.open > 0 && (b.Final || g.passes > 0 && g.inputs.Passes(0) >= g.passes) {
		s.finish(g, 0, n)
	}
}

// fill gives all rows of an even group so many passes, and fails those with a bad one.
func (s *session) fill(g *group, passes int, from decomp.Source[float32]) {
	n := len(g.rows)
	good, err := g.inputs.Fill(s.work(g).batch, n, passes, from)
	if err != nil {
		s.failRows(g, 0, n, err)
		return
	}
	if !good {
		for i := range g.rows {
			if err := g.inputs.Fault(i); err != nil && g.rows[i].open {
				s.failRow(g, i, err)
			}
		}
	}
}

// feedRows gives the rows that a block names their passes, one by one, or fails
// them with what is wrong with the block.
func (s *session) feedRows(g *group, b *wire.Block, passes int, err error, opened bool) {
	rows, named := s.rowsOf(g, b)
	width := len(g.model.Policy().Classes)
	var values []float32
	if err == nil && g.inputs != nil {
		w := s.work(g)
		w.read(&b.Values)
		values = w.values
	}
	late := 0
	for i, number := range rows {
		if !named[i] {
			continue
		}
		r := &g.rows[number]
		r.touched = s.now
		if err != nil {
			if f, ok := err.(*fault); ok && f.classes && r.open { //nolint:errorlint // it is made by feed
				s.failRow(g, int(number), f.ofPasses(g.inputs.Passes(r.slot), passes))
			} else if r.open {
				s.failRow(g, int(number), err)
			}
			continue
		}
		if !r.open {
			if !opened {
				late += passes
			}
			continue
		}
		for pass := range passes {
			at := (pass*len(rows) + i) * width
			if finished, err := s.add(g, int(number), values[at:at+width]); err != nil {
				s.failRow(g, int(number), err)
				break
			} else if finished {
				late += passes - pass - 1
				break
			}
		}
		if b.Final && r.open {
			s.finish(g, int(number), 1)
		}
	}
	g.model.metrics.Late(late)
}

// add gives one pass to an input, and finishes it if that was the last.
func (s *session) add(g *group, number int, values []float32) (finished bool, err error) {
	slot := g.rows[number].slot
	had := g.inputs.Passes(slot)
	if limit := s.server.limits.PassesPerInput; had >= limit {
		return false, overLimit(ckdv1.ErrorReason_ERROR_REASON_TOO_MANY_PASSES, "passes", "passes", int64(had+1), int64(limit))
	}
	if err := g.inputs.Add(s.work(g).batch, slot, values); err != nil {
		return false, err
	}
	if had+1 >= g.passes && g.passes > 0 {
		s.finish(g, number, 1)
		return true, nil
	}
	if g.following != nil && had < g.model.settling.last && g.rows[number].settled.action == settle.Open {
		_ = g.following.Add(slot, values) // as many classes
		s.ask(g, number, 1)
	}
	return !g.rows[number].open, nil
}

// rowsOf is the rows that a block names, in the order of its values, and for
// each whether it can be used: a row that is not in the group, or is named
// twice, is refused.
func (s *session) rowsOf(g *group, b *wire.Block) (rows []uint32, usable []bool) {
	rows = b.Rows
	if len(rows) == 0 {
		for len(s.all) < len(g.rows) {
			s.all = append(s.all, uint32(len(s.all)))
		}
		rows = s.all[:len(g.rows)]
	}
	usable = slices.Grow(s.usable[:0], len(rows))[:len(rows)]
	s.usable = usable
	for i := range usable {
		usable[i] = true
	}
	if len(b.Rows) == 0 {
		return rows, usable
	}
	if ascend(rows) && uint64(rows[len(rows)-1]) < uint64(len(g.rows)) {
		return rows, usable
	}
	first := make(map[uint32]int, len(rows))
	for i, number := range rows {
		if uint64(number) >= uint64(len(g.rows)) {
			usable[i] = false
			s.refuse(location{group: g.number, hasGroup: true, row: int(number), hasPosition: true}, &fault{
				reason: ckdv1.ErrorReason_ERROR_REASON_ROW_OUT_OF_RANGE, field: fmt.Sprintf("rows[%d]", i), value: fmt.Sprint(number),
				message:  fmt.Sprintf("rows[%d] is %d, and the group has %d rows", i, number, len(g.rows)),
				expected: fmt.Sprintf("a row below %d", len(g.rows)),
			})
			continue
		}
		before, twice := first[number]
		if !twice {
			first[number] = i
			continue
		}
		usable[i], usable[before] = false, false
		if g.rows[number].open {
			s.failRow(g, int(number), &fault{
				reason: ckdv1.ErrorReason_ERROR_REASON_DUPLICATE_ROW, field: fmt.Sprintf("rows[%d]", i), value: fmt.Sprint(number),
				message: fmt.Sprintf("rows[%d] and rows[%d] are both %d", before, i, number), expected: "every row once",
			})
		}
	}
	return rows, usable
}

// ascend reports whether each row is above the one before it.
func ascend(rows []uint32) bool {
	for i := 1; i < len(rows); i++ {
		if rows[i] <= rows[i-1] {
			return false
		}
	}
	return true
}

// fits reports whether n = passes*rows*width, without overflow.
func fits(n, passes, rows, width int) bool {
	if passes == 0 || rows == 0 {
		return n == 0
	}
	return n%width == 0 && n/width%rows == 0 && n/width/rows == passes
}

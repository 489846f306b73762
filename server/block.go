package server

import (
	"fmt"
	"slices"

	ckdv1 "github.com/ckd-project/ckd/proto/ckd/v1"
)

// block takes one block. What is wrong with it becomes results.
func (s *session) block(b *ckdv1.Block) {
	before := s.groups[b.GetGroup()]
	g := s.groupOf(b)
	if g == nil {
		return
	}
	s.feed(g, b, g != before)
	if g.open == 0 {
		delete(s.groups, g.number)
	}
}

// groupOf opens or finds the group of a block. It returns nil where there is
// nothing more to do for the block.
func (s *session) groupOf(b *ckdv1.Block) *group {
	g := s.groups[b.GetGroup()]
	switch {
	case len(b.GetInputIds()) == 0 && g != nil:
		return g
	case len(b.GetInputIds()) == 0 && s.anyOpened && b.GetGroup() <= s.highest:
		// Closed before: its passes are late.
		values := max(len(b.GetValues()), len(b.GetValuesLe())/4)
		s.bound.metrics.Late(values / len(s.bound.Policy().Classes))
		return nil
	case len(b.GetInputIds()) == 0:
		s.refuse(location{group: b.GetGroup(), hasGroup: true}, &fault{
			reason: ckdv1.ErrorReason_ERROR_REASON_UNKNOWN_GROUP, field: "group", value: fmt.Sprint(b.GetGroup()),
			message: "the group was never opened", expected: "input_ids, which open a group",
		})
		return nil
	case g != nil:
		s.refuse(location{group: b.GetGroup(), hasGroup: true}, &fault{
			reason: ckdv1.ErrorReason_ERROR_REASON_GROUP_OPEN, field: "group", value: fmt.Sprint(b.GetGroup()),
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
func (s *session) open(b *ckdv1.Block) *group {
	s.highest, s.anyOpened = max(s.highest, b.GetGroup()), true // what follows for it is late, however this ends
	ids, at := len(b.GetInputIds()), location{group: b.GetGroup(), hasGroup: true}
	if limit := s.server.limits.OpenInputsPerStream; ids > limit {
		s.refuse(at, overLimit(ckdv1.ErrorReason_ERROR_REASON_TOO_MANY_INPUTS, "input_ids", "input ids", int64(ids), int64(limit)))
		return nil
	}
	if err := s.server.checkReply(s.bound, s.header.GetDetail(), ids); err != nil {
		s.refuse(at, err)
		return nil
	}
	refuse := func(m *model, err error) *group {
		for i, id := range b.GetInputIds() {
			s.fail(m, position(b.GetGroup(), i, id), id, err)
		}
		return nil
	}
	m, changed := s.server.successor(s.bound)
	if changed != nil && s.ending == nil {
		s.ending = changed
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
	g := &group{number: b.GetGroup(), model: m, passes: s.expected(m), told: s.told, rows: make([]row, len(b.GetInputIds()))}
	for i, id := range b.GetInputIds() {
		g.rows[i].id = id
		if err := s.admit(m, id, i); err != nil {
			s.fail(m, position(g.number, i, id), id, err)
			continue
		}
		g.rows[i].input, g.rows[i].touched = m.Open(), s.now
		s.server.retain(m)
		g.open++
	}
	m.metrics.InputsOpen(g.open)
	s.groups[g.number] = g
	return g
}

// admit claims what an open input holds, or says what forbids it.
func (s *session) admit(m *model, id string, i int) error {
	_, inUse := s.ids[id]
	if err := s.server.checkID(id, i, inUse); err != nil {
		return err
	}
	if limit := s.server.limits.OpenInputsPerStream; s.inputs >= limit {
		return overLimit(ckdv1.ErrorReason_ERROR_REASON_TOO_MANY_INPUTS, "input_ids", "open inputs", int64(s.inputs+1), int64(limit))
	}
	bytes, limit := inputCost(m.Model, id), s.server.limits.OpenInputBytes
	if total := s.server.openBytes.Add(bytes); total > limit {
		s.server.openBytes.Add(-bytes)
		return overLimit(ckdv1.ErrorReason_ERROR_REASON_OUT_OF_MEMORY_BUDGET, "input_ids", "bytes of open inputs", total, limit)
	}
	s.held += bytes
	s.inputs++
	if id != "" {
		s.ids[id] = struct{}{}
	}
	return nil
}

// feed gives the values of a block to the rows that it names. Passes are late
// for rows that were closed before, or that had all theirs earlier in the block;
// of a row that this very block opened, or lost, in vain, nothing is counted.
func (s *session) feed(g *group, b *ckdv1.Block, opened bool) {
	if len(b.GetRows()) > len(g.rows) {
		s.refuse(location{group: g.number, hasGroup: true}, &fault{
			reason: ckdv1.ErrorReason_ERROR_REASON_ROW_OUT_OF_RANGE, field: "rows", value: fmt.Sprint(len(b.GetRows())),
			message:  fmt.Sprintf("%d rows are named, and the group has %d; the block is ignored", len(b.GetRows()), len(g.rows)),
			expected: fmt.Sprintf("at most %d rows, each once", len(g.rows)),
		})
		return
	}
	rows, named := s.rowsOf(g, b)
	values, err := readValues(b.GetValues(), b.GetValuesLe(), &s.values)
	passes := int(b.GetPasses())
	if passes == 0 && len(values) > 0 {
		passes = 1
	}
	width := len(g.model.Policy().Classes)
	if err == nil && !fits(len(values), passes, len(rows), width) {
		err = &fault{
			reason: ckdv1.ErrorReason_ERROR_REASON_WRONG_LENGTH, field: "values", value: fmt.Sprint(len(values)),
			message:  fmt.Sprintf("%d values, expected %d passes x %d rows x %d classes", len(values), passes, len(rows), width),
			expected: fmt.Sprintf("%d passes x %d rows x %d classes", passes, len(rows), width),
		}
	}
	late := 0
	for i, number := range rows {
		if !named[i] {
			continue
		}
		r := &g.rows[number]
		r.touched = s.now
		if err != nil {
			if r.input != nil {
				s.failRow(g, int(number), err)
			}
			continue
		}
		if r.input == nil {
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
		if b.GetFinal() && r.input != nil {
			s.finish(g, int(number))
		}
	}
	g.model.metrics.Late(late)
}

// rowsOf is the rows that a block names, in the order of its values, and for
// each whether it can be used: a row that is not in the group, or is named
// twice, is refused.
func (s *session) rowsOf(g *group, b *ckdv1.Block) (rows []uint32, usable []bool) {
	rows = b.GetRows()
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
	if len(b.GetRows()) == 0 {
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
		if g.rows[number].input != nil {
			s.failRow(g, int(number), &fault{
				reason: ckdv1.ErrorReason_ERROR_REASON_DUPLICATE_ROW, field: fmt.Sprintf("rows[%d]", i), value: fmt.Sprint(number),
				message: fmt.Sprintf("rows[%d] and rows[%d] are both %d", before, i, number), expected: "every row once",
			})
		}
	}
	return rows, usable
}

// fits reports whether n = passes*rows*width, without overflow.
func fits(n, passes, rows, width int) bool {
	if passes == 0 || rows == 0 {
		return n == 0
	}
	return n%width == 0 && n/width%rows == 0 && n/width/rows == passes
}

// add gives one pass to an input, and finishes it if that was the last.
func (s *session) add(g *group, number int, values []float32) (finished bool, err error) {
	in := g.rows[number].input
	if limit := s.server.limits.PassesPerInput; in.Passes() >= limit {
		return false, overLimit(ckdv1.ErrorReason_ERROR_REASON_TOO_MANY_PASSES, "passes", "passes", int64(in.Passes()+1), int64(limit))
	}
	if err := in.Add(values); err != nil {
		return false, err
	}
	if in.Passes() < g.passes || g.passes == 0 {
		return false, nil
	}
	s.finish(g, number)
	return true, nil
}

package server

import (
	"fmt"

	"github.com/ckd-project/ckd/engine"
	ckdv1 "github.com/ckd-project/ckd/proto/ckd/v1"
	"github.com/ckd-project/ckd/server/internal/wire"
)

// handle handles one block. What is wrong with it becomes results.
func (s *stream) handle(b *wire.Block) {
	g, opened := s.openOrFind(b)
	if g == nil {
		return
	}
	block, late := s.read(g, b)
	if !opened && late > 0 {
		g.model.metrics.Late(late)
	}
	if block != nil && g.inputs != nil {
		g.touch(block.Inputs, s.now)
		s.feed(g, block)
	}
	s.removeIfDone(g)
}

// blockMemory is used again by each block.
type blockMemory struct {
	block engine.Block
	slots []int32 // the input of each row of the block; negative for none
}

// read reads a block of a group: nil if it is refused whole. A row that may not be used is a fault of the
// message, or fails its input; the others go on. late are the passes of rows whose inputs were refused
// when they opened.
func (s *stream) read(g *group, b *wire.Block) (block *engine.Block, late int) {
	if len(b.Rows) > len(g.rows) {
		s.refuse(location{group: g.number, hasGroup: true}, &fault{
			reason: ckdv1.ErrorReason_ERROR_REASON_ROW_OUT_OF_RANGE, field: "rows", value: fmt.Sprint(len(b.Rows)),
			message:  fmt.Sprintf("%d rows are named, and the group has %d; the block is ignored", len(b.Rows), len(g.rows)),
			expected: fmt.Sprintf("at most %d rows, each once", len(g.rows)),
		})
		return nil, 0
	}
	rows := len(b.Rows)
	if rows == 0 {
		rows = len(g.rows)
	}
	block = &s.memory.block
	*block = engine.Block{Passes: blockPasses(b), Final: b.Final, Values: &b.Values}
	err := checkValues(&b.Values)
	if err == nil && !fits(b.Values.Len(), block.Passes, rows, len(g.model.Policy().Classes)) {
		err = wrongLength(g.model, b.Values.Len(), block.Passes, rows)
	}
	if err != nil {
		block.Fault = faultOfPasses(err, block.Passes)
	}
	if len(b.Rows) == 0 && g.whole() {
		return block, 0
	}
	refused := s.readRows(g, b)
	if err == nil {
		late = refused * block.Passes
	}
	block.Inputs = s.memory.slots
	return block, late
}

// faultOfPasses turns the fault of a block's values into the fault of an input that has had some
// passes. The message names the passes that the fault is about.
func faultOfPasses(err error, passes int) func(had int) error {
	return func(had int) error {
		f, ok := err.(*fault) //nolint:errorlint // it was made here
		if !ok || !f.classes {
			return err
		}
		named := *f
		if named.message = fmt.Sprintf("pass %d: %s", had, f.message); passes > 1 {
			named.message = fmt.Sprintf("passes %d to %d: %s", had, had+passes-1, f.message)
		}
		return &named
	}
}

// blockPasses returns the passes of a block.
func blockPasses(b *wire.Block) int {
	if b.Passes == 0 && valuesOf(b) > 0 {
		return 1
	}
	return int(b.Passes)
}

// valuesOf returns the number of values of a block; -1 where they cannot be read.
func valuesOf(b *wire.Block) int {
	if b.Values.Floats() > 0 && b.Values.Bytes() > 0 || b.Values.Bytes()%4 != 0 {
		return -1
	}
	return b.Values.Len()
}

// release drops what is not worth keeping for the next block.
func (m *blockMemory) release() {
	m.block = engine.Block{}
	if cap(m.slots) > 4*sparedRows {
		m.slots = nil
	}
}

// readRows fills slots with the input of each row that a block names, in the order of its values.
// Rows that are not in the group or are named twice have no input. It returns how many rows had been
// refused when the group opened.
func (s *stream) readRows(g *group, b *wire.Block) (refused int) {
	m := &s.memory
	m.slots = m.slots[:0]
	use := func(number int) {
		slot := g.rows[number].slot
		if slot < 0 {
			refused++
		}
		m.slots = append(m.slots, slot)
	}
	if len(b.Rows) == 0 {
		for number := range g.rows {
			use(number)
		}
		return refused
	}
	var usable []bool // nil: all rows
	if !ascend(b.Rows) || uint64(b.Rows[len(b.Rows)-1]) >= uint64(len(g.rows)) {
		usable = s.checkRows(g, b.Rows)
	}
	for i, number := range b.Rows {
		if usable == nil || usable[i] {
			use(int(number))
		} else {
			m.slots = append(m.slots, -1)
		}
	}
	return refused
}

// checkRows refuses rows that are not in the group, and fails those that are named twice. It
// returns which of the others can be used.
func (s *stream) checkRows(g *group, rows []uint32) (usable []bool) {
	usable = make([]bool, len(rows))
	first := make(map[uint32]int, len(rows))
	for i, number := range rows {
		place := location{group: g.number, hasGroup: true, row: int(number), hasPosition: true}
		if uint64(number) >= uint64(len(g.rows)) {
			s.refuse(place, &fault{
				reason: ckdv1.ErrorReason_ERROR_REASON_ROW_OUT_OF_RANGE, field: fmt.Sprintf("rows[%d]", i), value: fmt.Sprint(number),
				message:  fmt.Sprintf("rows[%d] is %d, and the group has %d rows", i, number, len(g.rows)),
				expected: fmt.Sprintf("a row below %d", len(g.rows)),
			})
			continue
		}
		before, twice := first[number]
		if !twice {
			first[number], usable[i] = i, true
			continue
		}
		if usable[before] && g.isOpen(&g.rows[number]) {
			s.failOpen(g, &g.rows[number], &fault{
				reason: ckdv1.ErrorReason_ERROR_REASON_DUPLICATE_ROW, field: fmt.Sprintf("rows[%d]", i), value: fmt.Sprint(number),
				message: fmt.Sprintf("rows[%d] and rows[%d] are both %d", before, i, number), expected: "every row once",
			})
		}
		usable[before] = false
	}
	return usable
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

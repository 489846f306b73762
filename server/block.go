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
	parsed := s.blocks.read(g, b)
	for _, wrong := range parsed.refused {
		s.refuse(wrong.place, wrong.err)
	}
	for _, wrong := range parsed.failed {
		s.failOpen(g, &g.rows[wrong.place.row], wrong.err)
	}
	if !opened && parsed.late > 0 {
		g.model.metrics.Late(parsed.late)
	}
	if parsed.block != nil && g.inputs != nil {
		g.touch(parsed.block.Inputs, s.now)
		s.feed(g, parsed.block)
	}
	s.removeIfDone(g)
}

// blockReader turns blocks as they came into blocks as the engine takes them.
type blockReader struct {
	// Memory that is used again.
	block engine.Block
	slots []int32 // the input of each row of the block; negative for none
}

// readBlock is a block that was read, valid until release. Rows that may not be used are faults of
// the message or of their inputs; the others go on.
type readBlock struct {
	block   *engine.Block // nil: there is nothing for the engine to take
	late    int           // passes of rows whose inputs were refused
	refused []wrongRow    // of the message
	failed  []wrongRow    // open inputs
}

// wrongRow is a row of a block that may not be used.
type wrongRow struct {
	place location
	err   error
}

// read reads a block of a group.
func (r *blockReader) read(g *group, b *wire.Block) (parsed readBlock) {
	if len(b.Rows) > len(g.rows) {
		parsed.refused = []wrongRow{{location{group: g.number, hasGroup: true}, &fault{
			reason: ckdv1.ErrorReason_ERROR_REASON_ROW_OUT_OF_RANGE, field: "rows", value: fmt.Sprint(len(b.Rows)),
			message:  fmt.Sprintf("%d rows are named, and the group has %d; the block is ignored", len(b.Rows), len(g.rows)),
			expected: fmt.Sprintf("at most %d rows, each once", len(g.rows)),
		}}}
		return parsed
	}
	rows := len(b.Rows)
	if rows == 0 {
		rows = len(g.rows)
	}
	r.block = engine.Block{Passes: blockPasses(b), Final: b.Final, Values: &b.Values}
	parsed.block = &r.block
	err := checkValues(&b.Values)
	if err == nil && !fits(b.Values.Len(), r.block.Passes, rows, len(g.model.Policy().Classes)) {
		err = wrongLength(g.model, b.Values.Len(), r.block.Passes, rows)
	}
	if err != nil {
		r.block.Fault = faultOfPasses(err, r.block.Passes)
	}
	if len(b.Rows) == 0 && g.whole() {
		return parsed
	}
	refused := r.rowsOf(g, b, &parsed)
	if err == nil {
		parsed.late = refused * r.block.Passes
	}
	r.block.Inputs = r.slots
	return parsed
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
func (r *blockReader) release() {
	r.block = engine.Block{}
	if cap(r.slots) > 4*sparedRows {
		r.slots = nil
	}
}

// rowsOf fills slots with the input of each row that a block names, in the order of its values.
// Rows that are not in the group or are named twice have no input. It returns how many rows had been
// refused when the group opened.
func (r *blockReader) rowsOf(g *group, b *wire.Block, parsed *readBlock) (refused int) {
	r.slots = r.slots[:0]
	use := func(number int) {
		slot := g.rows[number].slot
		if slot < 0 {
			refused++
		}
		r.slots = append(r.slots, slot)
	}
	if len(b.Rows) == 0 {
		for number := range g.rows {
			use(number)
		}
		return refused
	}
	var usable []bool // nil: all rows
	if !ascend(b.Rows) || uint64(b.Rows[len(b.Rows)-1]) >= uint64(len(g.rows)) {
		usable = checkRows(g, b.Rows, parsed)
	}
	for i, number := range b.Rows {
		if usable == nil || usable[i] {
			use(int(number))
		} else {
			r.slots = append(r.slots, -1)
		}
	}
	return refused
}

// checkRows refuses rows that are not in the group, and fails those that are named twice. It
// returns which of the others can be used.
func checkRows(g *group, rows []uint32, parsed *readBlock) (usable []bool) {
	usable = make([]bool, len(rows))
	first := make(map[uint32]int, len(rows))
	for i, number := range rows {
		place := location{group: g.number, hasGroup: true, row: int(number), hasPosition: true}
		if uint64(number) >= uint64(len(g.rows)) {
			parsed.refused = append(parsed.refused, wrongRow{place, &fault{
				reason: ckdv1.ErrorReason_ERROR_REASON_ROW_OUT_OF_RANGE, field: fmt.Sprintf("rows[%d]", i), value: fmt.Sprint(number),
				message:  fmt.Sprintf("rows[%d] is %d, and the group has %d rows", i, number, len(g.rows)),
				expected: fmt.Sprintf("a row below %d", len(g.rows)),
			}})
			continue
		}
		before, twice := first[number]
		if !twice {
			first[number], usable[i] = i, true
			continue
		}
		if usable[before] && g.isOpen(&g.rows[number]) {
			parsed.failed = append(parsed.failed, wrongRow{place, &fault{
				reason: ckdv1.ErrorReason_ERROR_REASON_DUPLICATE_ROW, field: fmt.Sprintf("rows[%d]", i), value: fmt.Sprint(number),
				message: fmt.Sprintf("rows[%d] and rows[%d] are both %d", before, i, number), expected: "every row once",
			}})
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

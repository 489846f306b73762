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
	if block, ok := s.blocks.read(g, b, opened, s.now); ok {
		s.answers.feed(g, block)
	}
	s.removeIfDone(g)
}

// blockReader turns blocks as they came into blocks as the engine takes them. A row that may not be
// used becomes a fault of the message or of its input; the others go on.
type blockReader struct {
	reply   *replyBuilder
	answers *answers

	// Memory that is used again.
	block engine.Block
	slots []int32 // the input of each row of the block; negative for none
}

// read returns a block that arrived at the given time as the engine takes it, valid until release,
// and whether there is anything for it to take. Passes of refused rows are late, but in the block
// that opens their group.
func (r *blockReader) read(g *group, b *wire.Block, opened bool, now int64) (*engine.Block, bool) {
	if len(b.Rows) > len(g.rows) {
		r.reply.refuse(location{group: g.number, hasGroup: true}, &fault{
			reason: ckdv1.ErrorReason_ERROR_REASON_ROW_OUT_OF_RANGE, field: "rows", value: fmt.Sprint(len(b.Rows)),
			message:  fmt.Sprintf("%d rows are named, and the group has %d; the block is ignored", len(b.Rows), len(g.rows)),
			expected: fmt.Sprintf("at most %d rows, each once", len(g.rows)),
		})
		return nil, false
	}
	rows := len(b.Rows)
	if rows == 0 {
		rows = len(g.rows)
	}
	block := &r.block
	*block = engine.Block{Passes: blockPasses(b), Final: b.Final, Values: &b.Values}
	err := checkValues(&b.Values)
	if err == nil && !fits(b.Values.Len(), block.Passes, rows, len(g.model.Policy().Classes)) {
		err = wrongLength(g.model, b.Values.Len(), block.Passes, rows)
	}
	if err != nil {
		block.Fault = faultOfPasses(err, block.Passes)
	}
	if len(b.Rows) == 0 && g.whole() {
		g.touched = now
		return block, true
	}
	refused := r.rowsOf(g, b, now)
	if !opened && err == nil {
		g.model.metrics.Late(refused * block.Passes)
	}
	block.Inputs = r.slots
	return block, g.inputs != nil
}

// faultOfPasses turns the fault of a block's values into the fault of an input that has had some
// passes. The message names the passes that the fault is about.
func faultOfPasses(err error, passes int) func(had int) error {
	return func(had int) error {
		if f, ok := err.(*fault); ok && f.classes { //nolint:errorlint // it was made here
			return f.ofPasses(had, passes)
		}
		return err
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
// It refuses rows that are not in the group or are named twice; these have no input. It returns how
// many rows had been refused when the group opened.
func (r *blockReader) rowsOf(g *group, b *wire.Block, now int64) (refused int) {
	r.slots = r.slots[:0]
	use := func(number int) {
		at := &g.rows[number]
		at.touched = now
		if at.slot < 0 {
			refused++
		}
		r.slots = append(r.slots, at.slot)
	}
	if len(b.Rows) == 0 {
		for number := range g.rows {
			use(number)
		}
		return refused
	}
	if ascend(b.Rows) && uint64(b.Rows[len(b.Rows)-1]) < uint64(len(g.rows)) {
		for _, number := range b.Rows {
			use(int(number))
		}
		return refused
	}
	usable := r.checkRows(g, b.Rows)
	for i, number := range b.Rows {
		if usable[i] {
			use(int(number))
		} else {
			r.slots = append(r.slots, -1)
		}
	}
	return refused
}

// checkRows refuses rows that are not in the group, and fails those that are named twice. It
// returns which of the others can be used.
func (r *blockReader) checkRows(g *group, rows []uint32) (usable []bool) {
	usable = make([]bool, len(rows))
	first := make(map[uint32]int, len(rows))
	for i, number := range rows {
		if uint64(number) >= uint64(len(g.rows)) {
			r.reply.refuse(location{group: g.number, hasGroup: true, row: int(number), hasPosition: true}, &fault{
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
		usable[before] = false
		if at := &g.rows[number]; g.isOpen(at) {
			r.answers.fail(g, at, &fault{
				reason: ckdv1.ErrorReason_ERROR_REASON_DUPLICATE_ROW, field: fmt.Sprintf("rows[%d]", i), value: fmt.Sprint(number),
				message: fmt.Sprintf("rows[%d] and rows[%d] are both %d", before, i, number), expected: "every row once",
			})
		}
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

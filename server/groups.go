package server

import (
	"fmt"
	"iter"
	"maps"
	"slices"
	"unsafe"

	"github.com/ckd-project/ckd/engine"
	ckdv1 "github.com/ckd-project/ckd/proto/ckd/v1"
	"github.com/ckd-project/ckd/server/internal/wire"
)

// openGroups holds the open groups of a stream, the ids of their inputs, and what they take of the
// budget.
type openGroups struct {
	limits    *Limits
	account   *account
	byNumber  map[uint64]*group
	ids       map[string]struct{} // ids of open inputs, except the empty id
	inputs    int                 // open
	held      int64               // bytes of the budget that the groups hold
	anyOpened bool
	highest   uint64              // number of any group opened
	spare     *group              // a closed group, for the next
	passing   map[string]struct{} // ids of the current message whose group closes with it
}

func newOpenGroups(limits *Limits, account *account) openGroups {
	return openGroups{limits: limits, account: account, byNumber: map[uint64]*group{}, ids: map[string]struct{}{}, passing: map[string]struct{}{}}
}

// group is inputs that were opened together.
type group struct {
	number  uint64
	model   *model
	inputs  *engine.Group // the inputs that were opened; nil if none was
	rows    []row
	bySlot  []uint32 // the row of each input
	passing bool     // it closes with the message that opens it: its ids need not be known
	cost    int64
	touched int64  // when all rows last had a pass
	text    []byte // bytes of the ids

	contexts []inputContext // by row; empty: the client states none
}

// context returns the context of a row.
func (g *group) context(row int) *inputContext {
	if len(g.contexts) == 0 {
		return &inputContext{}
	}
	return &g.contexts[row]
}

// row is a line of a group's blocks: an input, unless it was refused.
type row struct {
	id      string // part of the group's text
	slot    int32  // number of the input; negative: it was refused
	touched int64  // when it last had a pass by itself
}

// open returns the number of the group's open inputs.
func (g *group) open() int {
	if g.inputs == nil {
		return 0
	}
	return g.inputs.OpenInputs()
}

// isOpen reports whether a row has an open input.
func (g *group) isOpen(r *row) bool { return r.slot >= 0 && g.inputs.IsOpen(int(r.slot)) }

// openRows returns the rows with an open input, in order.
func (g *group) openRows() iter.Seq[*row] {
	return func(yield func(*row) bool) {
		for i := range g.rows {
			if r := &g.rows[i]; g.isOpen(r) && !yield(r) {
				return
			}
		}
	}
}

// touch notes when inputs had a pass; nil stands for all.
func (g *group) touch(inputs []int32, now int64) {
	if inputs == nil {
		g.touched = now
		return
	}
	for _, slot := range inputs {
		if slot >= 0 {
			g.rows[g.bySlot[slot]].touched = now
		}
	}
}

// whole reports whether no row was refused: rows and inputs then have the same numbers.
func (g *group) whole() bool { return len(g.bySlot) == len(g.rows) }

// wasOpened reports whether a group of this number was opened and is closed by now.
func (o *openGroups) wasOpened(number uint64) bool { return o.anyOpened && number <= o.highest }

// claim takes what an open input holds out of the budget. It refuses one input more than a stream may
// have open.
func (o *openGroups) claim(bytes int64) error {
	if limit := o.limits.OpenInputsPerStream; o.inputs >= limit {
		return overLimit(ckdv1.ErrorReason_ERROR_REASON_TOO_MANY_INPUTS, "input_ids", "open inputs", int64(o.inputs+1), int64(limit))
	}
	return o.account.claim("input_ids", bytes)
}

// checkID refuses the id of row i if it is too long or open already.
func (o *openGroups) checkID(i int, id string) error {
	_, inUse := o.ids[id]
	if len(o.passing) > 0 && !inUse {
		_, inUse = o.passing[id]
	}
	return checkID(o.limits, id, i, inUse)
}

// newGroup returns a group with the ids of a message, none of whose inputs is open.
func (o *openGroups) newGroup(ids *wire.IDs) *group {
	g := o.spare
	if o.spare = nil; g == nil {
		g = &group{}
	}
	*g = group{rows: g.rows[:0], bySlot: g.bySlot[:0], text: g.text[:0], contexts: g.contexts[:0]}
	for i := range ids.Len() {
		g.text = append(g.text, ids.At(i)...)
	}
	at := 0
	for i := range ids.Len() {
		n := len(ids.At(i))
		// Ids are not copied: the text stays as it is for as long as the rows do.
		g.rows = append(g.rows, row{id: unsafe.String(unsafe.SliceData(g.text[at:]), n), slot: -1})
		at += n
	}
	return g
}

// admit opens row i of a group, which takes cost of the budget.
func (o *openGroups) admit(g *group, i int, cost int64) {
	r := &g.rows[i]
	r.slot = int32(len(g.bySlot))
	g.bySlot = append(g.bySlot, uint32(i))
	g.cost += cost
	o.inputs++
	switch {
	case r.id == "", g.passing && len(g.rows) == 1:
	case g.passing:
		o.passing[r.id] = struct{}{}
	default:
		o.ids[r.id] = struct{}{}
	}
}

// ended forgets an input that has just closed.
func (o *openGroups) ended(g *group, r *row) {
	o.inputs--
	if !g.passing {
		delete(o.ids, r.id)
		g.model.metrics.InputsOpen(-1)
	}
}

// abandon closes the open inputs of a group without an answer.
func (o *openGroups) abandon(g *group) {
	for r := range g.openRows() {
		o.ended(g, r)
	}
	if g.inputs == nil {
		return
	}
	for range g.inputs.Abandon() {
		g.model.metrics.FullPassCheckLost()
	}
}

// A stream keeps the memory of one closed group, unless it is large: there may be a thousand idle
// streams.
const (
	sparedRows     = 256
	sparedRowBytes = 32
)

// remove forgets a group without open inputs.
func (o *openGroups) remove(g *group) {
	delete(o.byNumber, g.number)
	if g.inputs != nil {
		g.inputs.Release()
	}
	o.held -= g.cost
	o.account.release(g.cost)
	if cap(g.rows) <= sparedRows && cap(g.text) <= sparedRows*sparedRowBytes {
		g.inputs, g.model = nil, nil
		o.spare = g
	}
}

// endMessage forgets what is known only of the current message.
func (o *openGroups) endMessage() { o.passing = emptied(o.passing) }

// emptied returns an empty set of ids, without the memory that only large messages need.
func emptied(ids map[string]struct{}) map[string]struct{} {
	if len(ids) > 2*sparedRows || ids == nil {
		return map[string]struct{}{}
	}
	clear(ids)
	return ids
}

// sorted returns the open groups in the order of their numbers.
func (o *openGroups) sorted() []*group {
	groups := make([]*group, 0, len(o.byNumber))
	for _, number := range slices.Sorted(maps.Keys(o.byNumber)) {
		groups = append(groups, o.byNumber[number])
	}
	return groups
}

// checkID refuses an id that is too long or in use.
func checkID(limits *Limits, id string, position int, inUse bool) error {
	if len(id) > limits.InputIDBytes {
		return overLimit(ckdv1.ErrorReason_ERROR_REASON_ID_TOO_LONG, fmt.Sprintf("input_ids[%d]", position), "bytes of an id", int64(len(id)), int64(limits.InputIDBytes))
	}
	if inUse && id != "" {
		return &fault{
			reason: ckdv1.ErrorReason_ERROR_REASON_DUPLICATE_ID, field: fmt.Sprintf("input_ids[%d]", position),
			message: "the id is in use", value: id, expected: "an id that is not open",
		}
	}
	return nil
}

// echo returns an id as results repeat it: one that is too long is clipped.
func echo(limits *Limits, id string) string {
	if len(id) > limits.InputIDBytes {
		return clip(id)
	}
	return id
}

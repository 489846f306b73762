package server

import (
	"fmt"
	"maps"
	"slices"

	"github.com/ckd-project/ckd/engine"
	ckdv1 "github.com/ckd-project/ckd/proto/ckd/v1"
)

// session is the state of one stream: its open groups and their inputs. It is
// for one goroutine.
type session struct {
	server *Server
	opened *model // the model when the stream opened; its shape binds the stream
	passes int    // that finish an input; 0 takes the policy's
	detail ckdv1.Detail

	groups    map[uint64]*group
	anyOpened bool
	highest   uint64 // number of any group opened
	ids       map[string]struct{}
	inputs    int // open

	// What the block at hand gave.
	results  []*ckdv1.Result
	policies []*ckdv1.PolicyRef

	// Scratch.
	values   []float32
	all      []uint32
	targeted []bool
	outcomes map[*engine.Model]*engine.Outcome
}

// group is inputs that were opened together.
type group struct {
	number uint64
	model  *model
	passes int // that finish an input; 0: none does
	rows   []row
	open   int
}

// row is one input of a group; input is nil once it is finished or failed.
type row struct {
	id    string
	input *engine.Input
}

func newSession(s *Server, m *model, h *ckdv1.StreamHeader) *session {
	return &session{
		server: s, opened: m, passes: int(h.GetPasses()), detail: h.GetDetail(),
		groups:   map[uint64]*group{},
		ids:      map[string]struct{}{},
		outcomes: map[*engine.Model]*engine.Outcome{},
	}
}

// info is the first answer of the stream.
func (s *session) info() *ckdv1.StreamInfo {
	p := s.opened.Policy()
	return &ckdv1.StreamInfo{
		Classes:        p.Classes,
		Kind:           kindMessage(p.Kind),
		ExpectedPasses: uint32(s.expected(s.opened)),
		FewestPasses:   uint32(p.FewestPasses),
		Limits:         s.server.limits.message(),
	}
}

// expected is the number of passes that finishes an input.
func (s *session) expected(m *model) int {
	if s.passes > 0 {
		return s.passes
	}
	return m.Policy().ExpectedPasses
}

// reply is what the block at hand gave; nil for nothing.
func (s *session) reply() *ckdv1.DecomposeStreamResponse {
	if len(s.results) == 0 {
		return nil
	}
	r := &ckdv1.DecomposeStreamResponse{Results: s.results, Policies: s.policies}
	s.results, s.policies = nil, nil
	return r
}

// block takes one block. What is wrong with it becomes results; an error ends
// the stream.
func (s *session) block(b *ckdv1.Block) error {
	g, err := s.groupOf(b)
	if g == nil {
		return err
	}
	s.take(g, b)
	if g.open == 0 {
		delete(s.groups, g.number)
	}
	return nil
}

// groupOf opens or finds the group of a block. It returns nil where there is
// nothing more to do for the block.
func (s *session) groupOf(b *ckdv1.Block) (*group, error) {
	g := s.groups[b.GetGroup()]
	switch {
	case len(b.GetInputIds()) == 0 && g != nil:
		return g, nil
	case len(b.GetInputIds()) == 0 && s.anyOpened && b.GetGroup() <= s.highest:
		// Closed before: its passes are late.
		values := max(len(b.GetValues()), len(b.GetValuesLe())/4)
		s.opened.metrics.Late(values / len(s.opened.Policy().Classes))
		return nil, nil
	case len(b.GetInputIds()) == 0:
		s.fail(s.opened, location{group: b.GetGroup(), hasGroup: true}, "", &fault{
			reason: ckdv1.ErrorReason_ERROR_REASON_UNKNOWN_GROUP, field: "group", value: fmt.Sprint(b.GetGroup()),
			message: "the group was never opened", expected: "input_ids, which open a group",
		})
		return nil, nil
	case g != nil:
		for i, id := range b.GetInputIds() {
			s.fail(s.opened, position(b.GetGroup(), i, id), id, &fault{
				reason: ckdv1.ErrorReason_ERROR_REASON_GROUP_OPEN, field: "group", value: fmt.Sprint(b.GetGroup()),
				message: "the group is open already, and goes on as it was", expected: "another number, or no input_ids",
			})
		}
		return nil, nil
	}
	return s.open(b)
}

// open opens the group of a block. An input that may not be opened fails alone;
// its row stays in the group, whose layout the client knows.
func (s *session) open(b *ckdv1.Block) (*group, error) {
	m, err := s.current()
	if err != nil {
		return nil, err
	}
	if limit := s.server.limits.OpenGroupsPerStream; len(s.groups) >= limit {
		err := overLimit(ckdv1.ErrorReason_ERROR_REASON_TOO_MANY_GROUPS, "open groups", int64(len(s.groups)+1), int64(limit))
		for i, id := range b.GetInputIds() {
			s.fail(m, position(b.GetGroup(), i, id), id, err)
		}
		return nil, nil
	}
	g := &group{number: b.GetGroup(), model: m, passes: s.expected(m), rows: make([]row, len(b.GetInputIds()))}
	for i, id := range b.GetInputIds() {
		g.rows[i].id = id
		if err := s.admit(m, id, i); err != nil {
			s.fail(m, position(g.number, i, id), id, err)
			continue
		}
		g.rows[i].input = m.Open()
		g.open++
	}
	m.metrics.InputsOpen(g.open)
	s.groups[g.number] = g
	s.highest, s.anyOpened = max(s.highest, g.number), true
	return g, nil
}

// current is the model under which an input opens now. If its policy is gone,
// or its rows have another shape, the stream cannot go on.
func (s *session) current() (*model, error) {
	was := s.opened.Policy()
	m, err := s.server.model(was.Name)
	if err == nil && m != s.opened {
		if is := m.Policy(); !slices.Equal(is.Classes, was.Classes) || is.Kind != was.Kind {
			err = fmt.Errorf("classes or kind differ")
		}
	}
	if err != nil {
		return nil, &fault{
			reason: ckdv1.ErrorReason_ERROR_REASON_POLICY_CHANGED, field: "model", value: was.Name,
			message: fmt.Sprintf("the policy of model %q was removed, or changed its classes or kind", was.Name), expected: "a new stream",
		}
	}
	return m, nil
}

// admit claims what an open input holds, or says what forbids it.
func (s *session) admit(m *model, id string, i int) error {
	_, inUse := s.ids[id]
	if err := s.server.checkID(id, i, inUse); err != nil {
		return err
	}
	if limit := s.server.limits.OpenInputsPerStream; s.inputs >= limit {
		return overLimit(ckdv1.ErrorReason_ERROR_REASON_TOO_MANY_INPUTS, "open inputs", int64(s.inputs+1), int64(limit))
	}
	bytes, limit := int64(m.InputBytes()), s.server.limits.OpenInputBytes
	if total := s.server.openBytes.Add(bytes); total > limit {
		s.server.openBytes.Add(-bytes)
		return overLimit(ckdv1.ErrorReason_ERROR_REASON_OUT_OF_MEMORY_BUDGET, "bytes of open inputs", total, limit)
	}
	s.inputs++
	if id != "" {
		s.ids[id] = struct{}{}
	}
	return nil
}

// take gives the values of a block to the rows that it names.
func (s *session) take(g *group, b *ckdv1.Block) {
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
		if err != nil {
			if r.input != nil {
				s.failRow(g, int(number), err)
			}
			continue
		}
		for pass := range passes {
			if r.input == nil {
				late += passes - pass
				break
			}
			at := (pass*len(rows) + i) * width
			s.add(g, int(number), values[at:at+width])
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
	usable = slices.Grow(s.targeted[:0], len(rows))[:len(rows)]
	s.targeted = usable
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
			s.fail(g.model, location{group: g.number, hasGroup: true, row: int(number), hasPosition: true}, "", &fault{
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
func (s *session) add(g *group, number int, values []float32) {
	in := g.rows[number].input
	if limit := s.server.limits.PassesPerInput; in.Passes() >= limit {
		s.failRow(g, number, overLimit(ckdv1.ErrorReason_ERROR_REASON_TOO_MANY_PASSES, "passes", int64(in.Passes()+1), int64(limit)))
		return
	}
	if err := in.Add(values); err != nil {
		s.failRow(g, number, err)
		return
	}
	if in.Passes() == g.passes {
		s.finish(g, number)
	}
}

// finish answers an open input with what its passes say.
func (s *session) finish(g *group, number int) {
	m, r := g.model, &g.rows[number]
	outcome := s.outcomes[m.Model]
	if outcome == nil {
		clear(s.outcomes) // of policies that have passed
		outcome = m.NewOutcome()
		s.outcomes[m.Model] = outcome
	}
	if err := r.input.Finish(outcome); err != nil {
		s.failRow(g, number, err)
		return
	}
	m.metrics.Observe(outcome.Result, outcome.Decision)
	s.results = append(s.results, &ckdv1.Result{
		InputId: r.id, Group: g.number, Row: uint32(number), Policy: s.policyIndex(m),
		Outcome: &ckdv1.Result_Decomposition{Decomposition: decompositionMessage(m, outcome, s.detail)},
	})
	s.close(g, number)
}

// failRow answers an open input with an error.
func (s *session) failRow(g *group, number int, err error) {
	id := g.rows[number].id
	s.fail(g.model, position(g.number, number, id), id, err)
	s.close(g, number)
}

// fail adds an error to the results.
func (s *session) fail(m *model, at location, id string, err error) {
	m.metrics.Rejected(reasonWord(reasonOf(err)))
	s.results = append(s.results, &ckdv1.Result{
		InputId: id, Group: at.group, Row: uint32(at.row), Policy: s.policyIndex(m),
		Outcome: &ckdv1.Result_Error{Error: statusOf(err, at).Proto()},
	})
}

// position is the location of a row of a group.
func position(group uint64, number int, id string) location {
	return location{input: id, group: group, hasGroup: true, row: number, hasPosition: true}
}

// policyIndex is the place of a model's policy in the reply.
func (s *session) policyIndex(m *model) uint32 {
	for i, ref := range s.policies {
		if ref == m.ref {
			return uint32(i)
		}
	}
	s.policies = append(s.policies, m.ref)
	return uint32(len(s.policies) - 1)
}

// close gives back what an open input holds.
func (s *session) close(g *group, number int) {
	r := &g.rows[number]
	r.input.Release()
	r.input = nil
	g.open--
	s.inputs--
	delete(s.ids, r.id)
	s.server.openBytes.Add(-int64(g.model.InputBytes()))
	g.model.metrics.InputsOpen(-1)
}

// replyBytes is about how large a reply to a half-close may grow.
const replyBytes = 1 << 20

// finishAll finishes what is open, in the order of groups and rows, because the
// client has half-closed. There is no block to answer, so it may take several
// messages.
func (s *session) finishAll(send func(*ckdv1.DecomposeStreamResponse) error) error {
	perReply := max(1, replyBytes/s.resultBytes())
	for _, number := range slices.Sorted(maps.Keys(s.groups)) {
		g := s.groups[number]
		for i := range g.rows {
			if g.rows[i].input == nil {
				continue
			}
			s.finish(g, i)
			if len(s.results) >= perReply {
				if err := send(s.reply()); err != nil {
					return err
				}
			}
		}
		delete(s.groups, number)
	}
	if reply := s.reply(); reply != nil {
		return send(reply)
	}
	return nil
}

// resultBytes is about how large one result is on the wire.
func (s *session) resultBytes() int {
	bytes := 128
	if s.detail >= ckdv1.Detail_DETAIL_VECTORS {
		bytes += 8 * 3 * len(s.opened.Policy().Classes)
	}
	if s.detail >= ckdv1.Detail_DETAIL_FULL {
		bytes += 8*4*len(s.opened.Policy().Classes) + 24*len(s.opened.Plan().Pairs())
	}
	return bytes
}

// abandon gives up what is open; after finishAll, nothing is.
func (s *session) abandon() {
	for _, g := range s.groups {
		for i := range g.rows {
			if g.rows[i].input != nil {
				s.close(g, i)
				g.model.metrics.Abandoned(1)
			}
		}
	}
	clear(s.groups)
}

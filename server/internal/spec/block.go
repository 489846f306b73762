package spec

import (
	"encoding/binary"
	"math"
	"time"

	"github.com/ckd-project/ckd/engine"
	"github.com/ckd-project/ckd/policy"
	"github.com/ckd-project/ckd/policy/earlystop"
	ckdv1 "github.com/ckd-project/ckd/proto/ckd/v1"
)

// group is inputs that were opened together.
type group struct {
	number uint64
	policy *Policy
	rows   []input
	early  map[string]float64 // where the group counts what becomes of inputs that may be decided early
}

func (g *group) open() (n int) {
	for i := range g.rows {
		if g.rows[i].open {
			n++
		}
	}
	return n
}

// input is one row of a group.
type input struct {
	id       string
	context  *ckdv1.InputContext
	admitted bool
	open     bool
	passes   [][]float32
	touched  time.Time

	follower *engine.Follower // nil unless the input may be decided early
	checked  bool             // it runs on to its last pass
	asked    earlystop.Action // what the rule has said; Open: nothing yet
}

// incoming is a block with its values, or what is wrong with them.
type incoming struct {
	*ckdv1.Block
	values []float32
	wrong  string
	passes int
	now    time.Time
}

// values returns the values of a block, or what is wrong with them.
func values(b *ckdv1.Block) (v []float32, wrong string) {
	if len(b.GetValues()) > 0 && len(b.GetValuesLe()) > 0 {
		return nil, "TWO_ENCODINGS"
	}
	if len(b.GetValuesLe())%4 != 0 {
		return nil, "WRONG_LENGTH"
	}
	if len(b.GetValues()) > 0 {
		return b.GetValues(), ""
	}
	for le := b.GetValuesLe(); len(le) > 0; le = le[4:] {
		v = append(v, math.Float32frombits(binary.LittleEndian.Uint32(le)))
	}
	return v, ""
}

// block handles one block.
func (s *Stream) block(block *ckdv1.Block, now time.Time) {
	b := incoming{Block: block, passes: int(block.GetPasses()), now: now}
	if b.values, b.wrong = values(block); b.passes == 0 && (len(b.values) > 0 || b.wrong != "") {
		b.passes = 1
	}
	g, ids := s.groups[b.GetGroup()], b.GetInputIds()
	switch {
	case len(b.GetContexts()) > 0 && len(b.GetContexts()) != len(ids):
		s.fault("WRONG_CONTEXT")
		return
	case len(ids) == 0 && g == nil && s.any && b.GetGroup() <= s.top:
		s.late(max(len(b.GetValues()), len(b.GetValuesLe())/4) / len(s.bound.Classes))
		return
	case len(ids) == 0 && g == nil:
		s.fault("UNKNOWN_GROUP")
		return
	case len(ids) > 0 && g != nil:
		s.fault("GROUP_OPEN")
		return
	}
	opens := g == nil
	if opens {
		if g = s.openGroup(&b); g == nil {
			return
		}
	}
	s.feed(g, &b, opens)
	s.removeIfDone(g)
}

func (s *Stream) late(passes int) {
	s.server.count(s.bound.Name, float64(passes), "ckd_passes_late_total")
}

// openGroup opens the inputs of a block, as far as there is room. It returns nil if the block opens no
// group.
func (s *Stream) openGroup(b *incoming) *group {
	s.any, s.top = true, max(s.top, b.GetGroup())
	ids, limits := b.GetInputIds(), s.server.Limits
	if len(ids) > limits.OpenInputs {
		s.fault("TOO_MANY_INPUTS")
		return nil
	}
	if s.reply.hasFault("REPLY_TOO_LARGE") { // by an estimate of the daemon's own
		s.fault("REPLY_TOO_LARGE")
		return nil
	}
	s.PoliciesReplaced()
	p := s.server.policies[s.bound.Name]
	refused := s.ending
	switch {
	case refused != "":
		p = s.bound
	case len(s.groups) >= limits.OpenGroups:
		refused = "TOO_MANY_GROUPS"
	}
	g := &group{number: b.GetGroup(), policy: p, rows: make([]input, len(ids))}
	taken, admitted := map[string]bool{}, 0
	s.eachOpen(func(_ *group, _ int, in *input) { taken[in.id] = true })
	for i, id := range ids {
		in := &g.rows[i]
		in.id, in.touched = id, b.now
		if len(b.GetContexts()) > 0 && s.terms.receipts != 0 {
			in.context = b.GetContexts()[i]
		}
		why := refused
		if why == "" {
			why = s.refusedInput(g, i, taken[id], admitted)
		}
		if why != "" {
			s.answered(g, i, why, false)
			continue
		}
		in.admitted, in.open, taken[id] = true, true, true
		admitted++
	}
	if refused != "" {
		return nil
	}
	s.server.count(p.Name, float64(admitted), "ckd_inputs_open")
	if admitted == 0 {
		return g // the block may have other faults
	}
	s.server.retain(p)
	s.groups[g.number] = g
	if !s.brings(g, b) && s.header.GetAcceptSettled() && p.settles(s.expected()) {
		s.follow(g)
	}
	return g
}

// brings reports whether the block that opens a group brings all that its inputs will have. The
// early-stopping rule does not look at these: their passes are computed already.
func (s *Stream) brings(g *group, b *incoming) bool {
	whole := b.GetFinal() || s.expected() > 0 && b.passes >= s.expected()
	return whole && b.wrong == "" && len(b.GetRows()) == 0 && len(b.values) == b.passes*len(g.rows)*len(g.policy.Classes) &&
		b.passes <= s.server.Limits.Passes
}

// refusedInput returns why an input cannot be opened beside those of its group that were, or "".
func (s *Stream) refusedInput(g *group, i int, taken bool, admitted int) string {
	if why := s.server.refusedID(g.rows[i].id, taken, g.rows[i].context); why != "" {
		return why
	}
	if s.OpenInputs()+admitted >= s.server.Limits.OpenInputs {
		return "TOO_MANY_INPUTS"
	}
	if s.noRoom(g, i, "input_ids") {
		return "OUT_OF_MEMORY_BUDGET"
	}
	return ""
}

// refusedID returns what is wrong with what the client says of an input, or "".
func (s *Server) refusedID(id string, taken bool, x *ckdv1.InputContext) string {
	switch {
	case len(id) > s.Limits.IDBytes:
		return "ID_TOO_LONG"
	case id != "" && taken:
		return "DUPLICATE_ID"
	case len(x.GetGroup()) > s.Limits.IDBytes || len(x.GetSlices()) > policy.MaxSlices:
		return "WRONG_CONTEXT"
	}
	return ""
}

// noRoom reports whether there is no room in the budget for an input, or for its result. Where
// that cannot be known, the answer says.
func (s *Stream) noRoom(g *group, i int, field string) bool {
	return s.server.Room == None || s.server.Room == Tight && s.reply.lacksRoom(place{g.number, uint32(i)}, field)
}

// follow lets the inputs of a group be decided early, but for those that are checked.
func (s *Stream) follow(g *group) {
	g.early = s.server.early[g.policy.Name]
	for i := range g.rows {
		if in := &g.rows[i]; in.admitted {
			in.follower = g.policy.follower.Another()
			in.checked = s.server.Sampler.Checks(s.server.followed[g.policy.Hash], 0, false)
			s.server.followed[g.policy.Hash]++
		}
	}
}

// feed gives the rows of a block their passes.
func (s *Stream) feed(g *group, b *incoming, opens bool) {
	if len(b.GetRows()) > len(g.rows) {
		s.fault("ROW_OUT_OF_RANGE")
		return
	}
	named := b.GetRows()
	if len(named) == 0 {
		for i := range g.rows {
			named = append(named, uint32(i))
		}
	}
	width, reason := len(g.policy.Classes), b.wrong
	if reason == "" && len(b.values) != b.passes*len(named)*width {
		reason = "WRONG_LENGTH"
	}
	times := map[uint32]int{}
	for _, row := range named {
		if int64(row) >= int64(len(g.rows)) {
			s.fault("ROW_OUT_OF_RANGE")
			continue
		}
		if times[row]++; times[row] == 2 && g.rows[row].open {
			s.close(g, int(row), "DUPLICATE_ROW", false)
		}
	}
	for at, row := range named {
		if times[row] != 1 {
			continue // out of range, or named twice
		}
		in := &g.rows[row]
		switch {
		case reason != "" && in.open:
			s.close(g, int(row), reason, false)
		case reason != "":
		case !in.open && (in.admitted || !opens):
			s.late(b.passes)
		case in.open:
			in.touched = b.now
			for n := range b.passes {
				if !in.open {
					s.late(b.passes - n)
					break
				}
				start := (n*len(named) + at) * width
				if !s.pass(g, int(row), b.values[start:start+width]) {
					break
				}
			}
			if b.GetFinal() && in.open {
				s.finish(g, int(row))
			}
		}
	}
}

// pass gives an input one pass. It returns false if the input fails by it.
func (s *Stream) pass(g *group, i int, row []float32) bool {
	in, p := &g.rows[i], g.policy
	if len(in.passes) >= s.server.Limits.Passes || p.Kind == policy.Dirichlet && len(in.passes) > 0 {
		s.close(g, i, "TOO_MANY_PASSES", false)
		return false
	}
	if reason := p.faultOf(row); reason != "" {
		s.close(g, i, reason, false)
		return false
	}
	in.passes = append(in.passes, row)
	if expected := s.expected(); expected > 0 && len(in.passes) >= expected {
		s.finish(g, i)
	} else if in.follower != nil {
		s.ask(g, i, row)
	}
	return true
}

// ask asks the early-stopping rule about an input after a pass, and decides it if the rule stops it and
// there is room for its result.
func (s *Stream) ask(g *group, i int, row []float32) {
	in, p := &g.rows[i], g.policy
	if in.asked != earlystop.Open || len(in.passes) > p.rule.Last() {
		return
	}
	if err := in.follower.Add(row); err != nil {
		s.reply.differs("the reference follower: %w", err)
	}
	if in.asked = in.follower.Settled(p.rule); in.asked == earlystop.Open || in.checked {
		return
	}
	if a := s.reply.results[place{g.number, uint32(i)}]; s.server.Room == None ||
		s.server.Room == Tight && (a == nil || a.GetDecomposition() == nil) {
		in.asked = earlystop.Open // it goes on
		return
	}
	o, err := p.decide(in.passes)
	switch {
	case err != nil:
		s.reply.differs("%w", err)
	case (o.Decision.Action == policy.Defer) != (in.asked == earlystop.Defer):
		in.asked = earlystop.Open
	default:
		s.close(g, i, "", true)
	}
}

// finish ends an input with the passes that it has had.
func (s *Stream) finish(g *group, i int) {
	reason := g.policy.refusal(g.rows[i].passes)
	if reason != "TOO_FEW_PASSES" && s.noRoom(g, i, "detail") {
		reason = "OUT_OF_MEMORY_BUDGET"
	}
	s.close(g, i, reason, false)
}

// close expects the answer to an open input: an error with a reason or, if that is "", a decision.
func (s *Stream) close(g *group, i int, reason string, early bool) {
	s.answered(g, i, reason, early)
	if in := &g.rows[i]; in.follower != nil {
		all, n := float64(s.expected()), float64(len(in.passes))
		switch {
		case in.checked && (reason != "" || n < all):
			g.count(1, "ckd_early_stop_checks_lost_total")
		case reason == "":
			g.count(1, "ckd_passes_used")
			g.count(n, "ckd_passes_used_sum")
			if early {
				g.count(all-n, "ckd_passes_saved_total")
			}
			if in.checked {
				g.count(1, "ckd_early_stop_checked_total")
			}
		}
	}
	s.ended(g, i)
}

// answered expects the answer to an input.
func (s *Stream) answered(g *group, i int, reason string, early bool) {
	in, p := &g.rows[i], g.policy
	a := s.reply.result(place{g.number, uint32(i)}, in.id, p)
	if a == nil {
		s.server.countRefused(p, reason)
		return
	}
	d := decision{id: in.id, context: in.context, settled: early}
	if early {
		d.planned = s.expected()
	}
	if err := s.server.answered(p, s.terms, d, in.passes, reason, ReasonOf(a.GetError()), a.GetDecomposition()); err != nil {
		s.reply.differs("group %d row %d (%q): %w", g.number, i, in.id, err)
	}
}

func (g *group) count(by float64, name string) {
	if g.early != nil {
		g.early[Series(name, "model", g.policy.Name)] += by
	}
}

func (s *Stream) ended(g *group, i int) {
	g.rows[i].open = false
	s.server.count(g.policy.Name, -1, "ckd_inputs_open")
}

func (s *Stream) removeIfDone(g *group) {
	if g.open() == 0 && s.groups[g.number] == g {
		delete(s.groups, g.number)
		s.server.release(g.policy)
	}
}

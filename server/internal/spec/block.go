package spec

import (
	"encoding/binary"
	"math"
	"strings"
	"time"

	"github.com/ckd-project/ckd/engine"
	"github.com/ckd-project/ckd/internal/monitor/fullpass"
	"github.com/ckd-project/ckd/policy"
	"github.com/ckd-project/ckd/policy/earlystop"
	ckdv1 "github.com/ckd-project/ckd/proto/ckd/v1"
)

// group is inputs that were opened together.
type group struct {
	number  uint64
	policy  *Policy
	rows    []input
	follows bool               // inputs may be decided early
	early   map[string]float64 // where the group counts what becomes of that
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
	after    int              // passes when a checked input was decided by the rule
	critical bool             // and whether these predicted a critical class
}

// values are the values of a block, or what is wrong with them.
func values(b *ckdv1.Block) (v []float32, reason string) {
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
func (s *Stream) block(b *ckdv1.Block, now time.Time) {
	v, reason := values(b)
	passes := int(b.GetPasses())
	if passes == 0 && (len(v) > 0 || reason != "") {
		passes = 1
	}
	g := s.groups[b.GetGroup()]
	ids := b.GetInputIds()
	switch {
	case len(b.GetContexts()) > 0 && len(b.GetContexts()) != len(ids):
		s.fault("WRONG_CONTEXT")
		return
	case len(ids) == 0 && g == nil && s.any && b.GetGroup() <= s.top:
		n := max(len(b.GetValues()), len(b.GetValuesLe())/4)
		s.late(n / len(s.bound.Classes))
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
		if g = s.openGroup(b, v, reason, passes, now); g == nil {
			return
		}
	}
	s.feed(g, b, v, reason, passes, opens, now)
	s.removeIfDone(g)
}

func (s *Stream) late(passes int) {
	s.server.count(s.bound.Name, float64(passes), "ckd_passes_late_total")
}

// openGroup opens the inputs of a block, as far as there is room. It returns nil if the block opens no
// group.
func (s *Stream) openGroup(b *ckdv1.Block, v []float32, reason string, passes int, now time.Time) *group {
	s.any, s.top = true, max(s.top, b.GetGroup())
	ids, limits := b.GetInputIds(), s.server.Limits
	if len(ids) > limits.OpenInputs {
		s.fault("TOO_MANY_INPUTS")
		return nil
	}
	if s.server.tooLarge(s.bound, s.terms, len(ids), s.reply.hasFault("REPLY_TOO_LARGE")) {
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
	if refused != "" {
		for i, id := range ids {
			g.rows[i].id = id
			s.refuse(g, i, refused)
		}
		return nil
	}
	taken, open := map[string]bool{}, s.OpenInputs()
	for _, other := range s.groups {
		for i := range other.rows {
			if other.rows[i].open {
				taken[other.rows[i].id] = true
			}
		}
	}
	admitted := 0
	for i, id := range ids {
		in := &g.rows[i]
		in.id, in.touched = id, now
		if len(b.GetContexts()) > 0 && s.terms.receipts != 0 {
			in.context = b.GetContexts()[i]
		}
		why := s.refusedInput(g, i, taken, open)
		if why != "" {
			s.refuse(g, i, why)
			continue
		}
		in.admitted, in.open = true, true
		taken[id] = true
		admitted++
		open++
	}
	s.server.count(p.Name, float64(admitted), "ckd_inputs_open")
	if admitted == 0 {
		return g // the block may have other faults
	}
	s.server.retain(p)
	s.groups[g.number] = g
	if complete := s.brings(g, b, v, reason, passes); !complete && s.header.GetAcceptSettled() && s.server.settles(p, s.expected()) {
		s.follow(g)
	}
	return g
}

// brings reports whether the block that opens a group brings all that its inputs will have. The
// early-stopping rule does not look at these: their passes are computed already.
func (s *Stream) brings(g *group, b *ckdv1.Block, v []float32, reason string, passes int) bool {
	whole := b.GetFinal() || s.expected() > 0 && passes >= s.expected()
	return whole && reason == "" && len(b.GetRows()) == 0 && len(v) == passes*len(g.rows)*len(g.policy.Classes) && passes <= s.server.Limits.Passes
}

// refusedInput returns why an input cannot be opened, or "".
func (s *Stream) refusedInput(g *group, i int, taken map[string]bool, open int) string {
	in, limits := &g.rows[i], s.server.Limits
	switch {
	case len(in.id) > limits.IDBytes:
		return "ID_TOO_LONG"
	case in.id != "" && taken[in.id]:
		return "DUPLICATE_ID"
	case s.server.wrongContext(in.context):
		return "WRONG_CONTEXT"
	case open >= limits.OpenInputs:
		return "TOO_MANY_INPUTS"
	case s.noRoom(g, i, "input_ids"):
		return "OUT_OF_MEMORY_BUDGET"
	}
	return ""
}

func (s *Server) wrongContext(x *ckdv1.InputContext) bool {
	return len(x.GetGroup()) > s.Limits.IDBytes || len(x.GetSlices()) > policy.MaxSlices
}

// noRoom reports whether there is no room in the budget for an input, or for its result. Where
// that cannot be known, the answer says.
func (s *Stream) noRoom(g *group, i int, field string) bool {
	switch s.server.Room {
	case Ample:
		return false
	case None:
		return true
	}
	return s.reply.lacksRoom(place{g.number, uint32(i)}, field)
}

// tooLarge reports whether so many results could exceed the largest reply. The limit is on what the
// daemon expects of them, about 60 bytes for each class and 24 for each pair: where that is within a
// half and twice the limit, the daemon says.
func (s *Server) tooLarge(p *Policy, t terms, inputs int, said bool) bool {
	each := 128
	if t.receipts != 0 {
		each += 194
	}
	if t.detail >= ckdv1.Detail_DETAIL_VECTORS {
		each += 24 * len(p.Classes)
	}
	if t.detail >= ckdv1.Detail_DETAIL_FULL {
		each += 36*len(p.Classes) + 24*len(p.model.Plan().Pairs())
	}
	switch bytes, limit := inputs*each, s.Limits.ReplyBytes; {
	case bytes > 2*limit:
		return true
	case 2*bytes < limit:
		return false
	}
	return said
}

// follow lets the inputs of a group be decided early, but for those that are checked.
func (s *Stream) follow(g *group) {
	g.follows, g.early = true, s.server.early[g.policy.Name]
	st := s.server.stopper(g.policy)
	for i := range g.rows {
		if in := &g.rows[i]; in.admitted {
			in.follower = g.policy.follower.Another()
			in.checked = s.server.Sampler.Checks(st.opened, st.verdicts, st.watch.Wary())
			st.opened++
		}
	}
}

// feed gives the rows of a block their passes.
func (s *Stream) feed(g *group, b *ckdv1.Block, v []float32, reason string, passes int, opens bool, now time.Time) {
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
	width := len(g.policy.Classes)
	if reason == "" && len(v) != passes*len(named)*width {
		reason = "WRONG_LENGTH"
	}
	times := map[uint32]int{}
	for _, row := range named {
		if int64(row) >= int64(len(g.rows)) {
			s.fault("ROW_OUT_OF_RANGE")
			continue
		}
		if times[row]++; times[row] == 2 && g.rows[row].open {
			s.fail(g, int(row), "DUPLICATE_ROW")
		}
	}
	for at, row := range named {
		if times[row] != 1 {
			continue // out of range, or named twice
		}
		in := &g.rows[row]
		if reason != "" {
			if in.open {
				s.fail(g, int(row), reason)
			}
			continue
		}
		if !in.open {
			if in.admitted || !opens {
				s.late(passes)
			}
			continue
		}
		in.touched = now
		for n := range passes {
			if !in.open {
				s.late(passes - n)
				break
			}
			start := (n*len(named) + at) * width
			if !s.pass(g, int(row), v[start:start+width]) {
				break
			}
		}
		if b.GetFinal() && in.open {
			s.finish(g, int(row))
		}
	}
}

// pass gives an input one pass. It returns false if the input fails by it.
func (s *Stream) pass(g *group, i int, row []float32) bool {
	in, p := &g.rows[i], g.policy
	if len(in.passes) >= s.server.Limits.Passes || p.Kind == policy.Dirichlet && len(in.passes) > 0 {
		s.fail(g, i, "TOO_MANY_PASSES")
		return false
	}
	if reason := p.faultOf(row); reason != "" {
		s.fail(g, i, reason)
		return false
	}
	in.passes = append(in.passes, row)
	if expected := s.expected(); expected > 0 && len(in.passes) >= expected {
		s.finish(g, i)
		return true
	}
	if g.follows {
		s.ask(g, i, row)
	}
	return true
}

// ask asks the early-stopping rule about an input after a pass.
func (s *Stream) ask(g *group, i int, row []float32) {
	in, p := &g.rows[i], g.policy
	if in.asked != earlystop.Open || len(in.passes) > p.rule.Last() {
		return
	}
	if err := in.follower.Add(row); err != nil {
		s.reply.differs("the reference follower: %w", err)
	}
	if !in.checked && s.server.stopper(p).stopped() {
		return
	}
	in.asked = in.follower.Settled(p.rule)
	if in.asked == earlystop.Open {
		return
	}
	if in.checked {
		_, class := in.follower.Decide()
		in.after, in.critical = len(in.passes), p.critical[class]
		return
	}
	s.settle(g, i)
}

// settle decides an input early, if there is room for its result.
func (s *Stream) settle(g *group, i int) {
	in := &g.rows[i]
	room := s.server.Room
	if at := (place{g.number, uint32(i)}); room == None || room == Tight && s.reply.results[at].GetDecomposition() == nil {
		in.asked = earlystop.Open // it goes on
		return
	}
	o, err := s.server.decide(g.policy, in.passes)
	if err != nil {
		s.reply.differs("%w", err)
		return
	}
	if (o.Decision.Action == policy.Defer) != (in.asked == earlystop.Defer) {
		in.asked = earlystop.Open
		return
	}
	s.close(g, i, o, true)
}

// GetDecomposition returns the decision of a result that may not have come.
func (a *arrived) GetDecomposition() *ckdv1.Decomposition {
	if a == nil {
		return nil
	}
	return a.Result.GetDecomposition()
}

// finish decides an input on the passes that it has had.
func (s *Stream) finish(g *group, i int) {
	in := &g.rows[i]
	if len(in.passes) < max(g.policy.FewestPasses, 1) {
		s.fail(g, i, "TOO_FEW_PASSES")
		return
	}
	if s.noRoom(g, i, "detail") {
		s.fail(g, i, "OUT_OF_MEMORY_BUDGET")
		return
	}
	if reason := g.policy.faultOfAll(in.passes); reason != "" {
		s.fail(g, i, reason)
		return
	}
	o, err := s.server.decide(g.policy, in.passes)
	if err != nil {
		s.reply.differs("%w", err)
		return
	}
	s.close(g, i, o, false)
}

// close expects the decision of an input.
func (s *Stream) close(g *group, i int, o *engine.Outcome, early bool) {
	in, p := &g.rows[i], g.policy
	if a := s.reply.result(place{g.number, uint32(i)}, in.id, p); a != nil {
		d := decision{id: in.id, context: in.context, settled: early}
		if a.GetError() != nil {
			s.reply.differs("group %d row %d (%q): %s, expected a decision", g.number, i, in.id, ReasonOf(a.GetError()))
		} else if err := s.server.decided(p, s.terms, d, o, a.GetDecomposition()); err != nil {
			s.reply.differs("group %d row %d (%q): %w", g.number, i, in.id, err)
		}
	}
	passes := o.Passes
	if early {
		passes = s.expected()
	}
	s.server.countMismatch(p, s.terms, passes)
	if g.follows {
		s.countFollowed(g, in, o, early)
	}
	s.ended(g, i)
}

// countFollowed counts an input that might have been decided early.
func (s *Stream) countFollowed(g *group, in *input, o *engine.Outcome, early bool) {
	all := s.expected()
	if !in.checked {
		g.count(1, "ckd_passes_used")
		g.count(float64(o.Passes), "ckd_passes_used_sum")
		if early {
			g.count(float64(all-o.Passes), "ckd_passes_saved_total")
		}
		return
	}
	if o.Passes < all {
		s.loseCheck(g, in)
		return
	}
	g.count(1, "ckd_passes_used")
	g.count(float64(all), "ckd_passes_used_sum")
	g.count(1, "ckd_early_stop_checked_total")
	v := verdict(in, o.Decision.Action == policy.Defer, g.policy.critical[o.Predicted])
	if v.Disagrees() {
		g.count(1, "ckd_early_stop_disagreements_total", "verdict", v.String())
	}
	st := s.server.stopper(g.policy)
	st.watch.Add(v)
	st.verdicts++
}

// verdict compares what the rule said of an input with what all passes decide.
func verdict(in *input, defers, critical bool) fullpass.Verdict {
	said := in.asked
	switch {
	case said == earlystop.Retain && defers:
		return fullpass.WronglyRetained
	case said == earlystop.Defer && !defers:
		return fullpass.WronglyDeferred
	case said == earlystop.Retain && in.critical != critical:
		return fullpass.OtherSide
	case defers:
		return fullpass.SameDefer
	}
	return fullpass.SameRetain
}

func (g *group) count(by float64, name string, labels ...string) {
	if g.early != nil {
		g.early[Series(name, append([]string{"model", g.policy.Name}, labels...)...)] += by
	}
}

// loseCheck counts a checked input that ends without its last pass.
func (s *Stream) loseCheck(g *group, in *input) {
	if in.checked {
		g.count(1, "ckd_early_stop_checks_lost_total")
	}
}

// refuse expects the error of an input that was not opened.
func (s *Stream) refuse(g *group, i int, reason string) {
	in := &g.rows[i]
	s.server.count(g.policy.Name, 1, "ckd_inputs_rejected_total", "reason", strings.ToLower(reason))
	if a := s.reply.result(place{g.number, uint32(i)}, in.id, g.policy); a != nil {
		if got := ReasonOf(a.GetError()); got != reason {
			s.reply.differs("group %d row %d (%q): %q, expected %s", g.number, i, in.id, got, reason)
		}
	}
}

// fail expects the error of an open input.
func (s *Stream) fail(g *group, i int, reason string) {
	s.refuse(g, i, reason)
	s.loseCheck(g, &g.rows[i])
	s.ended(g, i)
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

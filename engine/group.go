package engine

import (
	"fmt"
	"slices"

	"github.com/ckd-project/ckd/decomp"
	"github.com/ckd-project/ckd/engine/internal/follow"
	"github.com/ckd-project/ckd/internal/monitor/fullpass"
	"github.com/ckd-project/ckd/policy"
	"github.com/ckd-project/ckd/policy/earlystop"
)

// Options describe the inputs of a group before they open.
type Options struct {
	// Passes complete an input. With 0 only a final block does.
	Passes int
	// MostPasses bounds the passes of an input. With 0 there is no bound.
	MostPasses int
	// Complete says that the first block brings all passes of the inputs, and Here how many.
	Complete bool
	Here     int
	// StopEarly says that the caller accepts a decision before the last pass.
	StopEarly bool
}

// Opening describes a group that is about to open, and fixes what each of its inputs will hold.
type Opening struct {
	model   *Model
	options Options
	kept    int  // passes of an input that are stored before any are accumulated
	joins   bool // whether an input may have more passes than kept
	stopper *EarlyStopper
}

// Prepare fixes how the inputs of a group are held, and whether they may stop early.
func (m *Model) Prepare(o Options) Opening {
	if o.Complete {
		return Opening{model: m, options: o, kept: max(o.Here, 1)} // however many: they are here already
	}
	kept := m.plan.KeptPasses(o.Passes)
	p := Opening{model: m, options: o, kept: kept, joins: o.Passes == 0 || o.Passes > kept}
	if o.StopEarly && m.stopper.applies(o.Passes) {
		p.stopper = m.stopper
	}
	return p
}

// InputBytes returns the memory that each of n inputs will hold, for budgets.
func (p *Opening) InputBytes(n int) int {
	bytes := p.model.plan.AccumulatorBytes(p.kept, p.joins)
	if p.stopper != nil {
		plan := p.stopper.plan
		bytes += plan.Bytes() + (plan.SharedBytes()+n-1)/n
	}
	return bytes
}

// Open opens n inputs, numbered from 0. Release gives them back.
func (p *Opening) Open(n int) *Group {
	g := p.model.group(n, p.kept)
	g.options, g.open, g.even = p.options, n, true
	g.inputs = slices.Grow(g.inputs[:0], n)[:n]
	for i := range g.inputs {
		g.inputs[i] = input{open: true}
	}
	if g.stopper = p.stopper; g.stopper != nil {
		g.following = g.stopper.follow(n)
		// Full-pass checks are chosen before the first pass, so that the choice cannot depend on passes.
		number := g.stopper.number(n)
		for i := range g.inputs {
			g.inputs[i].checked = g.stopper.checks(number + uint64(i))
		}
	}
	return g
}

// group returns an empty group with room for n inputs.
func (m *Model) group(n, kept int) *Group {
	if g, ok := m.groups.Get().(*Group); ok {
		if g.acc.Fits(n, kept) {
			g.acc.Reset(n, kept)
			return g
		}
		m.groups.Put(g) // for more inputs: few must not hold the memory of many
	}
	return &Group{model: m, acc: decomp.NewAccumulator[float32](m.plan, n, kept)}
}

// Group leads inputs that opened together from their first pass to their end.
type Group struct {
	model     *Model
	options   Options
	acc       *decomp.Accumulator[float32]
	inputs    []input
	open      int
	even      bool // all inputs have had equally many passes
	stopper   *EarlyStopper
	following *follow.Inputs // nil unless inputs may stop early
	closing   Closing
}

// input holds the state of one input of a group.
type input struct {
	open    bool
	checked bool             // it runs on to its last pass, whatever the rule says
	stopped earlystop.Action // what the rule has decided; Open: nothing yet

	// Of a checked input that the rule has decided on: whether its passes at that time predicted a
	// critical class.
	critical bool
}

// Answers receives what becomes of the inputs of a group, in the order in which they end.
type Answers interface {
	// Begin precedes the closings of up to n decided inputs. An error means that there is no room
	// for n answers. The group then tries one input at a time. An input without room fails, or
	// goes on if it has passes to come.
	Begin(n int) error
	// Close receives how an input ended. c is valid until Close returns.
	Close(input int, c *Closing)
	// End follows a Begin without error.
	End()
}

// Closing says how an input of a group ended: with an outcome or an error.
type Closing struct {
	*Outcome
	Err error // a *decomp.RowError, *decomp.PassesError or *PassLimitError, or one of the caller's

	Early   bool  // decided before its last pass, by the early-stopping rule
	Sampled bool  // when it ended did not depend on its passes
	Planned int   // passes that it would have had without the rule; 0 where no rule applies
	Check   Check // result of the full-pass check, if the input was checked
}

// Check says what came of a full-pass check.
type Check struct {
	State   CheckState
	Verdict fullpass.Verdict
	Stops   bool // this verdict ends early stopping under the policy
}

// CheckState says whether an input was checked.
type CheckState uint8

// The states of full-pass checks.
const (
	notChecked CheckState = iota
	Judged
	Lost // the input ended before its last pass
)

// PassLimitError reports more passes of an input than Options.MostPasses.
type PassLimitError struct{ Passes, Limit int }

func (e *PassLimitError) Error() string {
	return fmt.Sprintf("%d passes, over the limit of %d", e.Passes, e.Limit)
}

// Block holds passes of some inputs of a group.
type Block struct {
	// Inputs names the inputs in the order of their values. The values of a negative number are
	// skipped. Nil names all inputs in order.
	Inputs []int32
	Passes int
	Final  bool // no pass follows: the inputs are decided with those they have
	// Values has Passes * inputs * K values, one pass after the other.
	Values decomp.Source[float32]
	// Fault, unless nil, says that the values cannot be read, and fails the inputs. It returns the
	// error of an input that had this many passes before.
	Fault func(had int) error
}

// OpenInputs returns the number of inputs that have not ended.
func (g *Group) OpenInputs() int { return g.open }

// IsOpen reports whether input i has not ended.
func (g *Group) IsOpen(i int) bool { return g.inputs[i].open }

// Passes returns the number of passes that input i has had.
func (g *Group) Passes(i int) int { return g.acc.Passes(i) }

// Feed takes a block, computes with b, and closes the inputs that end by it. It returns how many
// passes were late: passes of inputs that had already ended, be it by an earlier pass of the block.
func (g *Group) Feed(b *Batch, block *Block, a Answers) (late int) {
	if block.Inputs == nil && block.Fault == nil && g.even && g.takes(block.Passes) {
		return g.feedAll(b, block, a)
	}
	g.even = false
	return g.feedEach(b, block, a)
}

// takes reports whether the inputs of an even group may have this many more passes.
func (g *Group) takes(passes int) bool {
	all := g.acc.Passes(0) + passes
	return (g.options.Passes == 0 || all <= g.options.Passes) && (g.options.MostPasses == 0 || all <= g.options.MostPasses)
}

// feedAll gives all inputs of an even group their passes together: the usual way.
func (g *Group) feedAll(b *Batch, block *Block, a Answers) (late int) {
	late = block.Passes * (len(g.inputs) - g.open)
	if g.following != nil {
		late += g.feedFollowed(b, block, a)
	} else {
		g.fill(b, block.Passes, block.Values, a)
	}
	if g.open > 0 && (block.Final || g.options.Passes > 0 && g.acc.Passes(0) >= g.options.Passes) {
		g.finish(b, 0, len(g.inputs), a)
	}
	return late
}

// feedFollowed gives all inputs of an even group a block pass by pass, so that the rule can stop
// them after each. Passes that the block still has for a stopped input are late.
func (g *Group) feedFollowed(b *Batch, block *Block, a Answers) (late int) {
	n := len(g.inputs)
	for pass := range block.Passes {
		if g.open == 0 {
			break
		}
		g.fill(b, 1, block.Values, a)
		if g.acc.Passes(0) > g.stopper.last {
			g.fill(b, block.Passes-pass-1, block.Values, a) // from here on the policy decides
			break
		}
		for i := range g.inputs {
			if in := &g.inputs[i]; in.open && in.stopped == earlystop.Open {
				_ = g.following.Add(i, g.acc.Latest(i)) // fill has checked the row
			}
		}
		before := g.open
		g.askRule(b, 0, n, a)
		late += (before - g.open) * (block.Passes - pass - 1)
	}
	return late
}

// fill gives all inputs of an even group some passes, and fails those with a bad row.
func (g *Group) fill(b *Batch, passes int, from decomp.Source[float32], a Answers) {
	good, err := g.acc.Fill(b.batch, 0, len(g.inputs), passes, from)
	if err != nil {
		g.failAll(0, len(g.inputs), err, a)
		return
	}
	if good {
		return
	}
	for i := range g.inputs {
		if err := g.acc.Fault(i); err != nil && g.inputs[i].open {
			g.Fail(i, err, a)
		}
	}
}

// feedEach gives the inputs of a block their passes one by one.
func (g *Group) feedEach(b *Batch, block *Block, a Answers) (late int) {
	count := len(block.Inputs)
	if block.Inputs == nil {
		count = len(g.inputs)
	}
	width := g.model.plan.Classes()
	var values []float32
	if block.Fault == nil {
		values = b.read(block.Values, block.Passes*count*width)
	}
	for column := range count {
		i := column
		if block.Inputs != nil {
			i = int(block.Inputs[column])
		}
		switch {
		case i < 0:
		case block.Fault != nil && g.inputs[i].open:
			g.Fail(i, block.Fault(g.acc.Passes(i)), a)
		case block.Fault != nil:
		case !g.inputs[i].open:
			late += block.Passes
		default:
			for pass := range block.Passes {
				if err := g.add(b, i, values[(pass*count+column)*width:][:width], a); err != nil {
					g.Fail(i, err, a)
					break
				}
				if !g.inputs[i].open {
					late += block.Passes - pass - 1
					break
				}
			}
			if block.Final && g.inputs[i].open {
				g.finish(b, i, 1, a)
			}
		}
	}
	return late
}

// add gives an input one pass, and decides on it if that was its last or the rule stops it.
func (g *Group) add(b *Batch, i int, row []float32, a Answers) error {
	had := g.acc.Passes(i)
	if most := g.options.MostPasses; most > 0 && had >= most {
		return &PassLimitError{had + 1, most}
	}
	if err := g.acc.Add(b.batch, i, row); err != nil {
		return err
	}
	if g.options.Passes > 0 && had+1 >= g.options.Passes {
		g.finish(b, i, 1, a)
		return nil
	}
	if g.following != nil && had < g.stopper.last && g.inputs[i].stopped == earlystop.Open {
		_ = g.following.Add(i, g.acc.Latest(i)) // checked, and clamped where that was due
		g.askRule(b, i, 1, a)
	}
	return nil
}

// askRule asks the rule about n neighbouring inputs, and decides on the inputs that it stops.
// For a checked input it only notes what the rule says. It does so even after full-pass checks have
// ended early stopping, or else the full-pass check would count as agreement.
func (g *Group) askRule(b *Batch, first, n int, a Answers) {
	ended := g.stopper.stopped.Load()
	from := -1 // first of a run of neighbours to decide together
	for i := first; i < first+n; i++ {
		state, stops := &g.inputs[i], false
		if state.open && state.stopped == earlystop.Open && (state.checked || !ended) {
			if state.stopped = g.following.Settled(i, g.stopper.rule); state.stopped != earlystop.Open {
				stops = !state.checked
				if state.checked {
					_, class := g.following.Decide(i)
					state.critical = g.model.critical[class]
				}
			}
		}
		switch {
		case stops && from < 0:
			from = i
		case !stops && from >= 0:
			g.finish(b, from, i-from, a)
			from = -1
		}
	}
	if from >= 0 {
		g.finish(b, from, first+n-from, a)
	}
}

// Finish decides on the open ones of n inputs, from input i on, with the passes that they have.
func (g *Group) Finish(b *Batch, i, n int, a Answers) {
	for ; n > 0; i, n = i+1, n-1 {
		if g.inputs[i].open {
			g.finish(b, i, 1, a)
		}
	}
}

// finish decides on the open ones of n neighbouring inputs, which have had equally many passes.
func (g *Group) finish(b *Batch, first, n int, a Answers) {
	if err := g.begin(b, first, n); err != nil {
		g.failAll(first, n, err, a)
		return
	}
	open, last := 0, first
	for i := first; i < first+n; i++ {
		if g.inputs[i].open {
			open, last = open+1, i
		}
	}
	if err := a.Begin(open); err != nil {
		switch {
		case open > 1: // takes as many inputs as there is room for
			g.Finish(b, first, n, a)
		case g.isEarly(last): // there may be room when its next pass comes
			g.inputs[last].stopped = earlystop.Open
		default:
			g.Fail(last, err, a)
		}
		return
	}
	for i := first; i < first+n; i++ {
		if g.inputs[i].open {
			g.decide(b, i-first, i, a)
		}
	}
	a.End()
}

// begin prepares b to compute n neighbouring inputs. Outcome 0 of b belongs to the first.
func (g *Group) begin(b *Batch, first, n int) error {
	if err := g.model.checkPasses(g.acc.Passes(first)); err != nil {
		return err
	}
	return g.acc.Finish(b.batch, first, n)
}

// decide closes input i with the outcome at this place of the batch.
func (g *Group) decide(b *Batch, at, i int, a Answers) {
	o, state := b.outcome, &g.inputs[i]
	if err := b.decide(at, o); err != nil {
		g.Fail(i, err, a)
		return
	}
	early := g.isEarly(i)
	if early && (o.Decision.Action == policy.Defer) != (state.stopped == earlystop.Defer) {
		state.stopped = earlystop.Open // at the threshold itself, where roundings differ: it goes on
		return
	}
	b.run.Count(o.Squashed)
	c := &g.closing
	*c = Closing{Outcome: o, Early: early, Sampled: g.following == nil || state.checked}
	if g.following != nil {
		c.Planned = g.options.Passes
	}
	switch {
	case state.checked && o.Passes >= g.options.Passes:
		c.Check = g.judge(state, o)
	case state.checked:
		c.Check.State = Lost
	case g.following != nil && state.stopped == earlystop.Open:
		c.Planned = o.Passes // the caller ended it, or it has all passes: the rule saved none
	}
	g.close(i, a)
}

// isEarly reports whether the rule has stopped an input that has passes to come.
func (g *Group) isEarly(i int) bool {
	in := &g.inputs[i]
	return in.stopped != earlystop.Open && !in.checked && g.acc.Passes(i) < g.options.Passes
}

// judge compares what the rule said of a checked input with the decision by all passes.
func (g *Group) judge(state *input, o *Outcome) Check {
	v := verdict(state, o.Decision.Action == policy.Defer, g.model.critical[o.Predicted])
	return Check{State: Judged, Verdict: v, Stops: g.stopper.judge(v)}
}

// verdict compares what the rule said with what all passes decide.
func verdict(state *input, defers, critical bool) fullpass.Verdict {
	switch {
	case state.stopped == earlystop.Retain && defers:
		return fullpass.WronglyRetained
	case state.stopped == earlystop.Defer && !defers:
		return fullpass.WronglyDeferred
	case state.stopped == earlystop.Retain && state.critical != critical:
		return fullpass.OtherSide
	case defers:
		return fullpass.SameDefer
	}
	return fullpass.SameRetain
}

// Fail closes input i, which must be open, with an error.
func (g *Group) Fail(i int, err error, a Answers) {
	g.closing = Closing{Err: err}
	if g.inputs[i].checked {
		g.closing.Check.State = Lost
	}
	g.close(i, a)
}

// failAll fails the open ones of n neighbouring inputs.
func (g *Group) failAll(first, n int, err error, a Answers) {
	for i := first; i < first+n; i++ {
		if g.inputs[i].open {
			g.Fail(i, err, a)
		}
	}
}

// close gives the closing of input i to a.
func (g *Group) close(i int, a Answers) {
	g.inputs[i].open = false
	g.open--
	a.Close(i, &g.closing)
}

// Abandon closes all open inputs without an answer, and returns how many full-pass checks that
// loses.
func (g *Group) Abandon() (lost int) {
	for i := range g.inputs {
		if in := &g.inputs[i]; in.open {
			in.open = false
			if in.checked {
				lost++
			}
		}
	}
	g.open = 0
	return lost
}

// Release gives the memory back for other groups. The group must not be used afterwards.
func (g *Group) Release() {
	if g.following != nil {
		g.stopper.release(g.following)
		g.following, g.stopper = nil, nil
	}
	g.closing = Closing{}
	g.model.groups.Put(g)
}

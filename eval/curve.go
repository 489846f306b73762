package eval

import (
	"math"
	"sort"
)

// Risks are computed at this many coverages, equally spaced from the lowest to 1 (app-ausc). Below
// the lowest coverage so few inputs are retained that a risk says nothing.
const (
	coverages      = 200
	lowestCoverage = 0.05
)

// coverage returns coverage c of the 200.
func coverage(c int) float64 {
	if c == coverages-1 {
		return 1
	}
	return lowestCoverage + float64(c)*((1-lowestCoverage)/(coverages-1))
}

// outcome holds what an input adds to the counts when it is retained. The bits above the flags
// count how often the input was drawn, so that one small array has all that a walk needs.
type outcome = uint32

const (
	isCritical outcome = 1 << iota // true class critical
	isMissed                       // critical, and predicted not critical
	isTreated                      // predicted critical
	isWrong                        // predicted as another class

	flagBits = iota
	drawn    = outcome(1) << flagBits // once
)

// outcomes returns the outcomes of inputs that are not drawn yet.
func outcomes(labels, predicted []int, critical []bool) []outcome {
	all := make([]outcome, len(labels))
	for i, label := range labels {
		p := predicted[i]
		if p != label {
			all[i] |= isWrong
		}
		if critical[p] {
			all[i] |= isTreated
		}
		if critical[label] {
			all[i] |= isCritical
			if !critical[p] {
				all[i] |= isMissed
			}
		}
	}
	return all
}

// once returns the outcomes with every input drawn once: the recording itself.
func once(of []outcome) []outcome {
	all := make([]outcome, len(of))
	for i, o := range of {
		all[i] = o + drawn
	}
	return all
}

// counts of the retained inputs. Where a coverage cuts through a tie, the tied inputs count
// fractionally: counts are expected over a random order within the tie.
type counts struct {
	retained, critical, missed, criticalWrong, wrong, called float64
}

func (c counts) criticalFNR() Figure   { return quotient(c.missed, c.critical) }
func (c counts) criticalError() Figure { return quotient(c.criticalWrong, c.critical) }
func (c counts) errorRate() Figure     { return quotient(c.wrong, c.retained) }

// The paper's AUSC takes a risk of 0 where no critical input is retained: nothing is missed then.
func (c counts) paperFNR() Figure   { return quotient(c.missed, max(c.critical, 1)) }
func (c counts) paperError() Figure { return quotient(c.criticalWrong, max(c.critical, 1)) }

// tally counts draws of inputs.
type tally struct {
	retained, critical, missed, criticalWrong, wrong, called uint32
}

// add counts an input as often as it was drawn.
func (c *tally) add(o outcome) {
	times := o >> flagBits
	critical := -(o & isCritical)
	wrong := -(o / isWrong & 1)
	c.retained += times
	c.critical += times & critical
	c.missed += times & -(o / isMissed & 1)
	c.criticalWrong += times & critical & wrong
	c.wrong += times & wrong
	c.called += times & -(o / isTreated & 1)
}

// span is a part of an order.
type span struct{ from, end int32 }

// grid holds the numbers of inputs at which a walk takes counts: one for each of the 200 coverages
// and one for the requested coverage.
type grid struct {
	cuts      [coverages + 1]uint32 // ascending
	requested int                   // index in cuts of the requested coverage
}

func newGrid(inputs int, at float64) *grid {
	g := &grid{}
	g.fit(inputs, at)
	return g
}

// fit sets the grid for so many inputs, of which a share is requested.
func (g *grid) fit(inputs int, requested float64) {
	g.requested = 0
	for g.requested < coverages && coverage(g.requested) < requested {
		g.requested++
	}
	g.cuts[g.requested] = uint32(Kept(requested, inputs))
	for c := range coverages {
		g.cuts[g.cut(c)] = uint32(Kept(coverage(c), inputs))
	}
}

// cut returns the position of coverage c among the cuts.
func (g *grid) cut(c int) int {
	if c < g.requested {
		return c
	}
	return c + 1
}

// walk goes through inputs in an order, the first retained first, and writes the counts at each cut.
// An input drawn several times counts that often. The draws must be as many as the inputs of the grid.
func (g *grid) walk(order []int32, ties []span, inputs []outcome, counted *[coverages + 1]counts) {
	var c, tied tally                // tied counts the last tie, once a cut goes through it
	from, next := int32(0), int32(0) // the last tie, or single input, that was counted
	single := int32(len(order))      // singles reach to here
	if len(ties) > 0 {
		single = ties[0].from
	}
	for i, cut := range g.cuts {
		for c.retained < cut {
			tied.retained = 0
			if next < single {
				for ; c.retained < cut && next < single; next++ {
					c.add(inputs[order[next]])
				}
				from = next - 1
				continue
			}
			from = next
			for ; next < ties[0].end; next++ {
				c.add(inputs[order[next]])
			}
			if ties, single = ties[1:], int32(len(order)); len(ties) > 0 {
				single = ties[0].from
			}
		}
		counted[i] = counts{float64(c.retained), float64(c.critical), float64(c.missed), float64(c.criticalWrong), float64(c.wrong), float64(c.called)}
		if c.retained > cut {
			if tied.retained == 0 {
				tied = tally{}
				for _, i := range order[from:next] {
					tied.add(inputs[i])
				}
			}
			counted[i].leave(&tied, c.retained-cut)
		}
	}
}

// leave takes so many of the draws of a tie, in a random order, out of the counts.
func (c *counts) leave(tied *tally, draws uint32) {
	part := func(n uint32) float64 { return float64(n) * float64(draws) / float64(tied.retained) }
	c.retained -= float64(draws)
	c.critical -= part(tied.critical)
	c.missed -= part(tied.missed)
	c.criticalWrong -= part(tied.criticalWrong)
	c.wrong -= part(tied.wrong)
	c.called -= part(tied.called)
}

// area returns the area under a risk over the coverages from number from on, by trapezoids. It is
// undefined where the risk is undefined at one of them, and over less than two coverages.
func (g *grid) area(counted *[coverages + 1]counts, from int, risk func(counts) Figure) Figure {
	if from >= coverages-1 {
		return undefined
	}
	area, before := Figure(0), risk(counted[g.cut(from)])
	for c := from + 1; c < coverages; c++ {
		now := risk(counted[g.cut(c)])
		area += Figure(coverage(c)-coverage(c-1)) * (before + now) / 2
		before = now
	}
	return area
}

// areas returns the area under each risk, those of critical inputs from coverage number from on.
func (g *grid) areas(counted *[coverages + 1]counts, from int) AUSC {
	return AUSC{
		CriticalFNR:   g.area(counted, from, counts.criticalFNR),
		CriticalError: g.area(counted, from, counts.criticalError),
		ErrorRate:     g.area(counted, 0, counts.errorRate),
	}
}

// paperAreas returns the areas as the paper has them (app-ausc): over all 200 coverages, with a
// risk of 0 where no critical input is retained. They are undefined without critical inputs.
func (g *grid) paperAreas(counted *[coverages + 1]counts) AUSC {
	if counted[g.cut(coverages-1)].critical == 0 {
		return AUSC{CriticalFNR: undefined, CriticalError: undefined, ErrorRate: g.area(counted, 0, counts.errorRate)}
	}
	return AUSC{
		CriticalFNR:   g.area(counted, 0, counts.paperFNR),
		CriticalError: g.area(counted, 0, counts.paperError),
		ErrorRate:     g.area(counted, 0, counts.errorRate),
	}
}

// definedFrom returns the number of the lowest coverage at which critical inputs are retained, and
// coverages where there is none. Above it they are retained at every coverage.
func (g *grid) definedFrom(at *[coverages + 1]counts) int {
	return sort.Search(coverages, func(c int) bool { return at[g.cut(c)].critical > 0 })
}

// wholeCurve returns two areas of the error rate that other papers report. They take every number
// of retained inputs from 1 to N, not only the 200 coverages. Both are expectations over the order
// within ties of the key, within which the expected errors grow linearly.
//
// AURC (Geifman et al.) is the mean over n of errors(n)/n. AUGRC (Traub et al. 2024) is the area
// under errors(n)/N over n/N, from (0,0).
func wholeCurve(r *ranking, inputs []outcome) (aurc, augrc float64) {
	errors, n := 0.0, float64(len(r.order))
	for from := 0; from < len(r.order); {
		end, wrong := r.tieFrom(from), 0.0
		for _, i := range r.order[from:end] {
			wrong += float64(inputs[i] / isWrong & 1)
		}
		size := float64(end - from)
		for j := from + 1; j <= end; j++ {
			aurc += (errors + wrong*float64(j-from)/size) / float64(j)
		}
		augrc += size * (errors + wrong/2)
		errors += wrong
		from = end
	}
	return ratio(aurc, n), ratio(augrc, n*n)
}

// largestTie returns the largest number of inputs that share one key. Inputs that are never
// deferred are in no tie.
func largestTie(r *ranking) int {
	most := 0
	for from := 0; from < len(r.order); {
		end := r.tieFrom(from)
		if !math.IsInf(r.Key[r.order[from]], -1) {
			most = max(most, end-from)
		}
		from = end
	}
	return most
}

package learn

import (
	"cmp"
	"context"
	"fmt"
	"math"
	"math/rand/v2"
	"slices"
	"strconv"

	"github.com/ckd-project/ckd/policy/earlystop"
)

// Orders is the usual number of orders of the passes of each input.
const Orders = 40

// patience is the patience of rules. Twice as much saves half a percent more passes on all
// recordings, but the rule then looks more often.
const patience = 8

// caution of a rule is the price of a disagreement, in passes, and a margin to the boundaries that
// follow from the price.
type caution struct{ price, margin float64 }

// cautions returns what makes rules cautious, from cautious to bold. Where no sample is wrong, no
// price is high enough to tell how far to stay away, so the first rules keep a margin.
func cautions() []caution {
	const n, most, least = 30, 6000.0, 40.0
	c := []caution{{most, 4}, {most, 2}, {most, 1}, {most, 0.5}}
	for i := range n {
		c = append(c, caution{most * math.Pow(least/most, float64(i)/(n-1)), 0})
	}
	return c
}

// Learn learns a sequence of rules, from cautious to bold, from some inputs of the recording, each in
// several orders of its passes that the seed draws. The error is a *RefusedError if too few inputs are
// deferred or retained, or that of ctx.
func Learn(ctx context.Context, d *Decisions, inputs []int, orders int, seed uint64) ([]*earlystop.Rule, error) {
	const least = 10 // with fewer inputs on a side, the rule would fit noise
	deferred := d.Deferred(inputs)
	if min(deferred, len(inputs)-deferred) < least {
		return nil, &RefusedError{Reason: fmt.Sprintf("%d inputs deferred and %d retained to learn from: expected at least %d of each",
			deferred, len(inputs)-deferred, least)}
	}
	s, err := d.followAround(ctx, inputs, orders, rand.New(rand.NewPCG(seed, 0x5e771e)))
	if err != nil {
		return nil, err
	}
	return s.learn(ctx)
}

// learn learns a sequence of rules.
func (s *samples) learn(ctx context.Context) (sequence []*earlystop.Rule, err error) {
	asks := asked(s.fewest, s.passes)
	knots := knotsOf(asks, s.fewest)
	first, last := knots[0], knots[len(knots)-1]
	form := &earlystop.Form{Retain: s.terms(asks, false, first, last), Defer: s.terms(asks, true, first, last)}
	in, err := newInduction(ctx, s, s.weighed(form, knots), asks)
	if err != nil {
		return nil, err
	}
	var forms []*earlystop.Form
	for _, c := range cautions() {
		if err := ctx.Err(); err != nil {
			return nil, err
		}
		f := &earlystop.Form{Retain: form.Retain, Defer: form.Defer}
		cuts := in.boundaries(c.price)
		for _, t := range knots {
			cut := cuts[t-s.fewest]
			f.Boundaries = append(f.Boundaries, earlystop.Boundary{Passes: t, Retain: apart(cut.retain, c.margin), Defer: apart(cut.defers, c.margin)})
		}
		forms = append(forms, f)
	}
	nest(forms)
	for _, f := range forms {
		rule := f.Rule(s.passes, patience)
		sequence = append(sequence, &rule)
	}
	return sequence, nil
}

// weighed returns the steps of a form without boundaries.
func (s *samples) weighed(form *earlystop.Form, knots []int) []earlystop.Step {
	f := *form
	f.Boundaries = []earlystop.Boundary{{Passes: knots[0]}}
	if last := knots[len(knots)-1]; last > knots[0] {
		f.Boundaries = append(f.Boundaries, earlystop.Boundary{Passes: last})
	}
	return f.Rule(s.passes, 0).Steps
}

// mostKnots is the number of boundaries of a side. With 4, rules save as much as with one after
// every pass: boundaries change slowly in log(t), and are smooth in it anyway.
const mostKnots = 4

// knotsOf returns the numbers of passes with a boundary: some of those that are asked, evenly apart
// in log(t), the first and the last among them.
func knotsOf(asks []bool, fewest int) (knots []int) {
	var at []int
	for i, asked := range asks {
		if asked {
			at = append(at, fewest+i)
		}
	}
	first, last := float64(at[0]), float64(at[len(at)-1])
	for k := range mostKnots {
		want := first * math.Pow(last/first, float64(k)/(mostKnots-1))
		apart := func(t int) float64 { return math.Abs(math.Log(float64(t) / want)) }
		closest := slices.MinFunc(at, func(a, b int) int { return cmp.Compare(apart(a), apart(b)) })
		if len(knots) == 0 || closest > knots[len(knots)-1] {
			knots = append(knots, closest)
		}
	}
	return knots
}

// nest lowers boundaries so that they never fall along the sequence, which smoothing may have
// caused. A bolder rule may still stop an input later, since it looks after other passes.
// Certification needs neither.
func nest(forms []*earlystop.Form) {
	for i := len(forms) - 2; i >= 0; i-- {
		for at := range forms[i].Boundaries {
			is, bolder := &forms[i].Boundaries[at], &forms[i+1].Boundaries[at]
			is.Retain = min(is.Retain, bolder.Retain)
			is.Defer = min(is.Defer, bolder.Defer)
		}
	}
}

// asked returns whether a rule may stop an input after t passes, at t-fewest. From one such t the
// next is t/16 later, at least 1: after every pass up to 32, every second up to 48, every third up
// to 64, and so on. This keeps rules of many passes short.
func asked(fewest, passes int) []bool {
	asks := make([]bool, passes-fewest)
	for t := fewest; t < passes; t += max(1, t/16) {
		asks[t-fewest] = true
	}
	return asks
}

// mostRows bounds the rows of a regression, drawn from all samples after all numbers of passes. More
// rows of the same inputs say little more.
const mostRows = 60_000

// terms learns the terms of one side: of inputs that the passes so far would retain, or defer. The
// weights that move are those after first and last passes.
func (s *samples) terms(asks []bool, defers bool, first, last int) []earlystop.Term {
	type place struct{ at, sample int32 }
	var rows []place
	for at := range s.statistics {
		for i := 0; asks[at] && i < len(s.final); i++ {
			if x := &s.statistics[at][i]; x.Values[earlystop.Own] > 0 == defers && !x.Held() {
				rows = append(rows, place{int32(at), int32(i)})
			}
		}
	}
	rng := rand.New(rand.NewPCG(uint64(len(rows)), 0x7e125))
	r := newRegression(columnsOf())
	for n := range min(len(rows), mostRows) {
		other := n + rng.IntN(len(rows)-n)
		rows[n], rows[other] = rows[other], rows[n]
		at, i := rows[n].at, rows[n].sample
		stopped := verdict{defers, s.critical[at][i]}
		r.add(&s.statistics[at][i], s.fewest+int(at), stopped.differs(s.final[i]))
	}
	w := r.fit()
	names := earlystop.StatisticNames
	var terms []earlystop.Term
	for j, c := range r.columns {
		if c.moves {
			if t := &terms[len(terms)-1]; w[j] != 0 {
				atFirst, atLast := t.Weight+w[j]*math.Log(float64(first)), t.Weight+w[j]*math.Log(float64(last))
				t.Weight, t.Last = atFirst, &atLast
			}
			continue
		}
		t := earlystop.Term{Of: names[c.of], Weight: w[j]}
		if c.times >= 0 {
			t.Times = names[c.times]
		}
		terms = append(terms, t)
	}
	terms = slices.DeleteFunc(terms, func(t earlystop.Term) bool { return t.Weight == 0 && t.AtLast() == 0 })
	for i := range terms {
		t := &terms[i]
		t.Weight = rounded(bounded(t.Weight))
		if t.Last != nil {
			*t.Last = rounded(bounded(*t.Last))
		}
	}
	return terms
}

// rounded rounds to four digits, because people read rules. What is certified is what is stored.
func rounded(v float64) float64 {
	short, _ := strconv.ParseFloat(strconv.FormatFloat(v, 'g', 4, 64), 64)
	return short
}

// run runs a rule on one sample, and returns the verdict with the number of passes used.
func (s *samples) run(r *earlystop.Rule, i int) (verdict, int) {
	for t := s.fewest; t < s.passes; {
		at := t - s.fewest
		a, again := r.Settled(t, &s.statistics[at][i])
		if a != earlystop.Open {
			return verdict{a == earlystop.Defer, s.critical[at][i]}, t
		}
		t = again
	}
	return s.final[i], s.passes
}

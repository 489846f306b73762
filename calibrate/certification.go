package calibrate

import "fmt"

// certification seeks a certificate on a run. One part of the inputs chooses a candidate and makes
// its threshold curve. The other part, which had no say in either, chooses the point on the curve,
// and gives every figure that is reported.
type certification struct {
	run                *run
	to                 *reporter
	limits             limits
	chooses, certifies part
}

func newCertification(r *run, to *reporter) certification {
	c := certification{run: r, to: to, limits: r.limits()}
	c.chooses, c.certifies = r.split()
	return c
}

// compareRanks returns the candidate of the best rank in each scope, the chosen scope first, from
// searches of the part that chooses at critical FNR f. It adds both scopes to the comparison, each
// candidate at the coverage that its rank stands for.
func (c *certification) compareRanks(f float64, rankOf rankFunc) ([]ranking, error) {
	c.to.ComparisonBasis = fmt.Sprintf("the %d inputs that did not choose, each rule at the largest coverage that it promised "+
		"on the others, the calibrated one where it is certified, the naive pick at the coverage of that, and a rule without its guard at "+
		"that of the rule with it; guaranteed is only what a certificate says", c.certifies.n)
	var all []ranking
	for _, scope := range bothScopes(c.run.Scope) {
		s, err := c.run.search(c.chooses, scope, f)
		if err != nil {
			return nil, err
		}
		ranks, err := rankOf(s)
		if err != nil {
			return nil, err
		}
		best := 0
		for i := range ranks {
			if ranks[i].better(ranks[best]) {
				best = i
			}
		}
		own := c.row("calibrated", s, s.candidates[best], ranks[best])
		own.Calibrated = true
		naive := ranks[best]
		c.to.compare(own, c.row(naivePick, s, s.naive(naive.coverage()), naive))
		for i, one := range s.candidates {
			if !one.plain() && !one.papers() {
				continue
			}
			c.to.compare(c.row(one.String(), s, one, ranks[i]))
			if one.guarded {
				one.guarded = false
				c.to.compare(c.row(one.String(), s, one, ranks[i]))
			}
		}
		all = append(all, ranking{s, s.candidates[best], ranks[best]})
	}
	c.to.Notes = append(c.to.Notes, all[0].notes...)
	return all, nil
}

// row returns the row of a candidate at the coverage that its rank stands for, counted on the part
// that certifies.
func (c *certification) row(name string, s *search, one candidate, at rank) Row {
	if at.last < 0 {
		nothing := c.to.row(name, s.scope, c.certifies, make([]bool, s.n))
		nothing.Nothing = true
		return nothing
	}
	return c.rowOf(name, &choice{s, one, s.curve(one)(at.coverage())})
}

// rowOf returns the row of a choice, counted on the part that certifies.
func (c *certification) rowOf(name string, of *choice) Row {
	row := c.to.row(name, of.scope, c.certifies, of.retained(c.certifies))
	if c.run.unfamiliar != nil {
		deferred := of.deferredOf(c.run.unfamiliar, of.one, of.at)
		row.UnfamiliarDeferred = &deferred
	}
	return row
}

// test tests the limits on what a choice retains of the part that certifies.
func (c *certification) test(at *choice) tested {
	retained := at.retained(c.certifies)
	all := make(tested, len(c.limits))
	for i, l := range c.limits {
		all[i] = l.test(c.run.sample, c.certifies, retained)
	}
	return all
}

// report reports a choice that certifies, and how it was made. The comparison shows the calibrated
// rule at that point too: else the report would tell two coverages of one rule.
func (c *certification) report(own *ranking, at *choice, certificate *Certificate, merit string) {
	retained := at.retained(c.certifies)
	coverage := c.run.selective(c.certifies, retained).Coverage()
	for i := range c.to.Comparison {
		switch row := &c.to.Comparison[i]; {
		case row.Scope != at.scope:
		case row.Calibrated:
			*row = c.rowOf(row.Rule, at)
			row.Calibrated = true
		case row.Rule == naivePick:
			naive := own.naive(coverage)
			*row = c.rowOf(row.Rule, &choice{own.search, naive, own.curve(naive)(coverage)})
		}
	}
	c.to.expectCoverage(c.certifies, retained)
	c.to.Certificate = certificate
	got := at.selective(c.certifies)
	c.to.noteDeferringAll(got)
	c.to.noteServed(c.certifies, got)
	c.to.choose(at)
	c.to.explainParts(own, c.certifies, merit)
}

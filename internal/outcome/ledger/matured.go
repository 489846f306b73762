package ledger

import (
	"fmt"
	"time"

	"github.com/ckd-project/ckd/internal/outcome/promise"
	"github.com/ckd-project/ckd/internal/outcome/receipt"
	"github.com/ckd-project/ckd/internal/outcome/truth"
)

// Matured says of which cohorts outcomes are all due, and what is missing of them.
type Matured struct {
	// Overdue counts the reviews that never came, by stratum, and OverdueWeight sums their 1/pi.
	Overdue       [receipt.Strata]uint64
	OverdueWeight [receipt.Strata]float64
	// LeastCalledSafe is the least propensity of retained inputs called safe under all audits in force;
	// 0 where some cohort had no audits.
	LeastCalledSafe float64
	// Cohorts counts the cohorts; From begins the first, Until ends the last. Both are zero where none is.
	Cohorts     int
	From, Until time.Time
}

// Matured calls take with what a new policy can be calibrated on: the reviewed decisions with a known truth
// of one policy and model version, each input once, in the order of their cohorts, of the mature cohorts that
// begin at a time or later. The time should be named before anyone has looked at the outcomes that follow
// it. What take is given is valid until it returns.
func (l *Ledger) Matured(hash [32]byte, version string, from time.Time, take func(*truth.Decision, *truth.Finding)) (*Matured, error) {
	t := l.policies.get(hash)
	if t == nil {
		return nil, fmt.Errorf("policy %x: %w", hash, ErrPolicyUnknown)
	}
	l.mu.Lock()
	defer l.mu.Unlock()
	if _, err := l.compute(); err != nil {
		return nil, err
	}
	var r *run
	if p, known := l.runs.get(runKey{hash, receipt.VersionHash(version)}); known && l.models[t.Policy.Name] != nil {
		r = l.models[t.Policy.Name].runs[p.Number]
	}
	if r == nil {
		return nil, ErrNoPromise
	}
	m := &Matured{}
	now := l.now()
	for _, c := range r.Cohorts {
		if c.Start < from.UnixMicro() && !from.IsZero() || now.Before(r.Maturity(c)) { // cohorts count whole
			continue
		}
		back := &cameBack{}
		w := &walk{l: l, terms: t, number: r.Number}
		err := w.cohort(c.Start, c.Start+r.Period, func(d *found) error {
			if !truth.Reviewed(&d.Receipt) || !d.Known {
				return nil
			}
			if l.told.has(d.ID) {
				back.n[d.Receipt.Stratum]++
				back.weight[d.Receipt.Stratum] += 1 / float64(d.Receipt.Propensity)
			}
			if !d.Duplicate {
				take(&d.Decision, &d.Finding)
			}
			return nil
		})
		if err != nil {
			return nil, err
		}
		m.cohort(r, c, back)
	}
	return m, nil
}

// cameBack counts the outcomes of a cohort that a daemon told of, by stratum, and sums their 1/pi.
type cameBack struct {
	n      [receipt.Strata]uint64
	weight [receipt.Strata]float64
}

// cohort adds the reviews of a cohort that were issued and did not come back.
func (m *Matured) cohort(r *run, c *promise.Cohort, back *cameBack) {
	if begins := time.UnixMicro(c.Start).UTC(); m.Cohorts == 0 || begins.Before(m.From) {
		m.From = begins
	}
	if ends := time.UnixMicro(c.Start + r.Period).UTC(); ends.After(m.Until) {
		m.Until = ends
	}
	if least := r.Settings(c).Miss; m.Cohorts == 0 || least < m.LeastCalledSafe {
		m.LeastCalledSafe = least
	}
	m.Cohorts++
	if c.Told == nil {
		return
	}
	for s := range m.Overdue {
		if due := &c.Told.Strata[s]; due.Due > back.n[s] {
			m.Overdue[s] += due.Due - back.n[s]
			m.OverdueWeight[s] += max(due.DueWeight-back.weight[s], 0)
		}
	}
}

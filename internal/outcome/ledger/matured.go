package ledger

import (
	"encoding/json"
	"fmt"
	"time"

	bolt "go.etcd.io/bbolt"

	"github.com/ckd-project/ckd/internal/outcome/receipt"
)

// Matured is what a new policy can be calibrated on: the reviewed decisions of one policy and model
// version in cohorts whose outcomes are all due.
type Matured struct {
	// Decided has the reviewed decisions with a truth, each input once, in the order of their cohorts.
	Decided []*Decided
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

// Matured returns the mature cohorts of a policy and model version that begin at a time or later. The
// time should be named before anyone has looked at the outcomes that follow it.
func (l *Ledger) Matured(hash [32]byte, version string, from time.Time) (*Matured, error) {
	t := l.policies.get(hash)
	if t == nil {
		return nil, fmt.Errorf("policy %x: %w", hash, ErrPolicyUnknown)
	}
	m := &Matured{}
	arrived := make(map[int64]*cameBack)
	p := promise{key: promiseKey{hash, receipt.VersionHash(version)}}
	err := l.main.View(func(tx *bolt.Tx) error {
		b := promiseBucket(tx, p.key)
		if b == nil {
			return ErrNoPromise
		}
		return json.Unmarshal(b.Get(keyInfo), &p.info)
	})
	if err != nil {
		return nil, err
	}
	grid := p.info.grid()
	first := int64(0) // cohorts count whole
	if !from.IsZero() {
		if first = grid.start(from.UnixMicro()); first < from.UnixMicro() {
			first += grid.period
		}
	}
	starts := make(map[int64]bool)
	err = l.Walk(Filter{Policy: hash, Version: &version, From: time.UnixMicro(first)}, func(d *Decided) error {
		if !d.Mature || !d.Reviewed || d.Truth < 0 {
			return nil
		}
		start := grid.start(d.Receipt.Time)
		if !starts[start] {
			starts[start], arrived[start] = true, &cameBack{}
		}
		if l.told.has(d.ID) {
			arrived[start].n[d.Receipt.Stratum]++
			arrived[start].weight[d.Receipt.Stratum] += 1 / float64(d.Receipt.Propensity)
		}
		if !d.Duplicate {
			m.Decided = append(m.Decided, d)
		}
		return nil
	})
	if err != nil {
		return nil, err
	}
	now := l.now()
	err = l.main.View(func(tx *bolt.Tx) error {
		b := promiseBucket(tx, p.key)
		sums := b.Bucket(bucketSums).Cursor()
		for at, _ := sums.Seek(startKey(first)); at != nil; at, _ = sums.Next() {
			starts[timeOf(at)] = true
		}
		for start := range starts {
			state := &cohortState{}
			var err error
			if state.cohort, err = readCohort(b, start); err != nil {
				return err
			}
			if state.sums, err = readSums(b, start); err != nil {
				return err
			}
			if !now.Before(p.maturity(t, state)) {
				m.cohort(state, arrived[start], t, start, time.Duration(grid.period)*time.Microsecond)
			}
		}
		return nil
	})
	return m, err
}

// cameBack counts the outcomes of a cohort that a daemon told of, by stratum, and sums their 1/pi.
type cameBack struct {
	n      [receipt.Strata]uint64
	weight [receipt.Strata]float64
}

// cohort adds the reviews of a cohort that were issued and did not come back.
func (m *Matured) cohort(c *cohortState, back *cameBack, t *terms, start int64, period time.Duration) {
	if begins := time.UnixMicro(start).UTC(); m.Cohorts == 0 || begins.Before(m.From) {
		m.From = begins
	}
	if ends := time.UnixMicro(start).UTC().Add(period); ends.After(m.Until) {
		m.Until = ends
	}
	if least := c.settings(t).Miss; m.Cohorts == 0 || least < m.LeastCalledSafe {
		m.LeastCalledSafe = least
	}
	m.Cohorts++
	if c.sums == nil {
		return
	}
	if back == nil {
		back = &cameBack{}
	}
	for s := range m.Overdue {
		if due := &c.sums.Strata[s]; due.Due > back.n[s] {
			m.Overdue[s] += due.Due - back.n[s]
			m.OverdueWeight[s] += max(due.DueWeight-back.weight[s], 0)
		}
	}
}

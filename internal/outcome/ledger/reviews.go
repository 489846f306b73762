package ledger

import (
	"errors"
	"slices"
	"time"

	"github.com/ckd-project/ckd/internal/outcome/promise"
	"github.com/ckd-project/ckd/internal/outcome/receipt"
	"github.com/ckd-project/ckd/internal/outcome/store"
	"github.com/ckd-project/ckd/internal/outcome/truth"
)

// ReviewStatus says whether an outcome is due and has come.
type ReviewStatus uint8

// The statuses.
const (
	ReviewNone          ReviewStatus = 1 + iota // nobody was to look at the input
	ReviewOpen                                  // the outcome may still come in time
	ReviewOverdue                               // it should have come
	ReviewAnswered                              // it has come
	ReviewDuplicate                             // an equal input was decided before, and counts
	ReviewUnknownKey                            // the receipt cannot be read
	ReviewForged                                // it is none
	ReviewPolicyUnknown                         // no daemon has told the policy
)

// A Review is what the ledger knows of a receipt's input.
type Review struct {
	Status ReviewStatus
	// Policy is the hash in the receipt; zero where it could not be opened.
	Policy [32]byte
	// Due is when the outcome is due; zero where none is.
	Due time.Time
	// Want says which further reading is wanted, and Sources who has read the input.
	Want    truth.Want
	Sources []string
}

// Reviews says of sealed receipts whether their outcomes are due and have come.
func (l *Ledger) Reviews(sealed [][]byte) ([]Review, error) {
	l.mu.Lock()
	defer l.mu.Unlock()
	if _, err := l.compute(); err != nil {
		return nil, err
	}
	reviews := make([]Review, len(sealed))
	keys := l.options.Keys()
	now := l.now()
	err := l.store.View(func(tx *store.Tx) error {
		for i, text := range sealed {
			if keys == nil {
				reviews[i].Status = ReviewUnknownKey
				continue
			}
			r, id, err := keys.Open(text)
			if err != nil {
				reviews[i].Status = ReviewForged
				if errors.Is(err, receipt.ErrUnknownKey) {
					reviews[i].Status = ReviewUnknownKey
				}
				continue
			}
			if reviews[i], err = l.review(tx, &r, id, now); err != nil {
				return err
			}
		}
		return nil
	})
	return reviews, err
}

// review looks one receipt up. The caller holds mu, and has computed the states.
func (l *Ledger) review(tx *store.Tx, r *receipt.Receipt, id receipt.ID, now time.Time) (Review, error) {
	v := Review{Policy: r.Policy}
	t := l.policies.get(r.Policy)
	switch {
	case t == nil || int(r.Predicted) >= len(t.Critical):
		v.Status = ReviewPolicyUnknown
		return v, nil
	case !truth.Reviewed(r):
		v.Status = ReviewNone
		return v, nil
	}
	run, known := l.runs.get(runKey{r.Policy, r.Version})
	v.Due = l.dueOf(t, run, r.Time)
	v.Status = ReviewOpen
	if !now.Before(v.Due) {
		v.Status = ReviewOverdue
	}
	if !known {
		return v, nil
	}
	key := store.KeyOf(run.Number, r, id)
	stored, err := tx.Decisions([]store.Key{key})
	if err != nil {
		return v, err
	}
	d := stored[key]
	if d == nil {
		first, err := tx.Earliest(run.Number, []uint64{r.Draw})
		if counts, some := first[r.Draw]; some && counts.Compare(&key) < 0 {
			v.Status = ReviewDuplicate
		}
		return v, err
	}
	for i := range d.Readings {
		if s := d.Readings[i].Source; !slices.Contains(v.Sources, s) {
			v.Sources = append(v.Sources, s)
		}
	}
	switch f := t.Find(d, truth.EndOfTime); {
	case d.Duplicate:
		v.Status = ReviewDuplicate
	case f.Known:
		v.Status, v.Want = ReviewAnswered, f.Want
	}
	return v, nil
}

// dueOf returns when the outcome of a decision is due: as its cohort has it, or else its policy.
func (l *Ledger) dueOf(t *truth.Terms, p store.Promise, at int64) time.Time {
	set := promise.SettingsOf(t.Policy.Audit)
	period := p.Period
	if period == 0 {
		period = promise.CohortPeriod(time.Duration(set.Due) * time.Microsecond).Microseconds()
	}
	start := promise.Grid{Period: period}.Start(at)
	if m := l.models[t.Policy.Name]; m != nil && m.runs[p.Number] != nil {
		r := m.runs[p.Number]
		if i := slices.IndexFunc(r.Cohorts, func(c *promise.Cohort) bool { return c.Start == start }); i >= 0 {
			return r.Maturity(r.Cohorts[i])
		}
	}
	return time.UnixMicro(start + period + set.Due).UTC()
}

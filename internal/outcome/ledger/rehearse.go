package ledger

import (
	"slices"
	"time"

	"github.com/ckd-project/ckd/internal/outcome/promise"
	"github.com/ckd-project/ckd/internal/outcome/store"
	"github.com/ckd-project/ckd/internal/outcome/truth"
)

// rehearsed bounds the cohorts of each other policy that a new policy is rehearsed on, the last first.
const rehearsed = 28

// rehearse says what the outcomes of a model's other policies say of a new one. It reads their decisions,
// which it does once for each policy.
func (l *Ledger) rehearse(m *model, t *truth.Terms, now time.Time) (*promise.Expected, error) {
	r := promise.NewRehearsal(t)
	for _, other := range m.Runs {
		if !r.Fits(other.Terms) {
			continue
		}
		left := rehearsed
		for _, c := range slices.Backward(other.Cohorts) {
			if left == 0 {
				break
			}
			if !c.Outcomes || now.Before(other.Maturity(c)) || c.Bets != nil && c.Bets.Final {
				continue
			}
			left--
			r.Cohort(c.Start, other.Period)
			err := l.store.View(func(tx *store.Tx) error {
				return tx.Scan(other.Number, c.Start, c.Start+other.Period, func(d *truth.Decision) error {
					r.Add(d)
					return nil
				})
			})
			if err != nil {
				return nil, err
			}
		}
	}
	return r.Expected(), nil
}

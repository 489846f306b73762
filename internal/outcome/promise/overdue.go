package promise

import "github.com/ckd-project/ckd/internal/outcome/receipt"

// Overdue returns how many outcomes of a stratum daemons told of, and how many of these have not come.
// They are overdue once the cohort is mature.
func (c *Cohort) Overdue(s receipt.Stratum) (due, missing uint64) {
	if c.Told == nil {
		return 0, 0
	}
	due = c.Told.Strata[s].Due
	counted := &c.Count.tally
	came := counted.Strata[s].Count - counted.Untold[s].Count
	return due, due - min(came, due)
}

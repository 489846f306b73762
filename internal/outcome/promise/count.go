package promise

import (
	"bytes"
	"encoding/json"
	"fmt"
	"slices"
	"time"

	"github.com/ckd-project/ckd/internal/outcome/receipt"
	"github.com/ckd-project/ckd/internal/outcome/truth"
)

// A Count is all that figures need of the decisions of a cohort.
type Count struct {
	tally tally
	steps steps
	// lowest are the propensities that receipts show: some daemon may not have told its settings.
	lowest lowest
}

// lowest holds the least propensities of critical inputs that are no miss, and of misses; 1 for none.
type lowest struct{ Hit, Miss float64 }

// A Counter counts the decisions of a cohort, each of which is to be added once, in order.
type Counter struct {
	terms  *truth.Terms
	due    time.Time
	told   func(receipt.SealerID) uint64
	count  Count
	now    stepsWriter
	before stepsWriter // by the readings reported before the outcomes were due
}

// NewCounter returns a counter of a cohort whose outcomes are due at a time. told returns up to which
// number the receipts of a sealer are among those that daemons told of.
func NewCounter(t *truth.Terms, due time.Time, told func(receipt.SealerID) uint64) *Counter {
	return &Counter{terms: t, due: due, told: told, count: Count{tally: *newTally(), lowest: lowest{1, 1}}}
}

// Add counts a decision.
func (c *Counter) Add(d *truth.Decision) {
	if !truth.Reviewed(&d.Receipt) {
		return
	}
	f := c.terms.Find(d, truth.EndOfTime)
	c.count.tally.observe(c.terms, d, &f, c.told(d.ID.Sealer()))
	early := slices.ContainsFunc(d.Readings, func(r truth.Reading) bool { return r.Reported.Before(c.due) })
	late := slices.ContainsFunc(d.Readings, func(r truth.Reading) bool { return !r.Reported.Before(c.due) })
	if early {
		switch pi := float64(d.Receipt.Propensity); d.Receipt.Stratum {
		case receipt.CalledCritical:
			c.count.lowest.Hit = min(c.count.lowest.Hit, pi)
		case receipt.CalledSafe:
			c.count.lowest.Miss = min(c.count.lowest.Miss, pi)
		}
	}
	if d.Duplicate {
		return
	}
	if f.Known {
		c.now.add(&step{c.terms.Step(d, &f), d.Receipt.Slices})
	}
	if late {
		f = c.terms.Find(d, c.due)
	}
	if early && f.Known {
		c.before.add(&step{c.terms.Step(d, &f), d.Receipt.Slices})
	}
}

// Count returns the count, and the steps by the readings reported before the outcomes were due, which
// evidence takes once.
func (c *Counter) Count() (*Count, Taken) {
	c.now.flush()
	c.before.flush()
	c.count.steps = c.now.out
	return &c.count, Taken{c.before.out}
}

// Taken is what evidence takes of a cohort.
type Taken struct{ steps steps }

// Empty returns the count of a cohort without decisions.
func Empty() *Count { return &Count{tally: *newTally(), lowest: lowest{1, 1}} }

// Stale reports whether more was told since the cohort was counted.
func (c *Count) Stale(told func(receipt.SealerID) uint64) bool {
	for sealer, u := range c.tally.Sealers {
		if told(sealer) != u.Through {
			return true
		}
	}
	return false
}

// lower returns settings lowered to the propensities that receipts show.
func (l lowest) lower(s Settings) Settings {
	s.Hit, s.Miss = min(s.Hit, l.Hit), min(s.Miss, l.Miss)
	return s
}

type storedCount struct {
	Tally  *tally `json:"tally"`
	Lowest lowest `json:"lowest"`
}

// MarshalBinary returns the count as it is stored.
func (c *Count) MarshalBinary() ([]byte, error) {
	text, err := json.Marshal(storedCount{&c.tally, c.lowest})
	return append(append(text, 0), c.steps...), err
}

// UnmarshalBinary reads what MarshalBinary wrote.
func (c *Count) UnmarshalBinary(data []byte) error {
	text, steps, _ := bytes.Cut(data, []byte{0})
	*c = *Empty()
	stored := storedCount{Tally: &c.tally}
	if err := json.Unmarshal(text, &stored); err != nil {
		return fmt.Errorf("the count of a cohort is damaged: %w", err)
	}
	c.lowest, c.steps = stored.Lowest, bytes.Clone(steps)
	return nil
}

package promise

import (
	"time"

	"github.com/ckd-project/ckd/internal/outcome/audit"
	"github.com/ckd-project/ckd/internal/outcome/receipt"
	"github.com/ckd-project/ckd/policy"
)

const day = 24 * time.Hour

// CohortPeriod returns the length of a cohort: a day, and where outcomes are due earlier, as long as
// they take, at least a second. Cohorts begin at multiples of it since 1970, in UTC.
func CohortPeriod(due time.Duration) time.Duration {
	if due >= day {
		return day
	}
	return max(due, time.Second)
}

// CountPeriod returns the length of the periods in which daemons count what they issue: an hour, and
// where outcomes are due within a day, a cohort.
func CountPeriod(due time.Duration) time.Duration {
	if due >= day {
		return time.Hour
	}
	return CohortPeriod(due)
}

// A Grid cuts time into cohorts.
type Grid struct{ Period int64 } // microseconds

// Start returns when the cohort of a time begins.
func (g Grid) Start(at int64) int64 {
	start := at - at%g.Period
	if start > at {
		start -= g.Period
	}
	return start
}

// Settings are the audits in force, as evidence needs them.
type Settings struct {
	// Due is how long after a cohort's end its outcomes are due, in microseconds.
	Due int64 `json:"due"`
	// Hit is the least propensity of a critical input that is no miss, Miss that of a miss.
	Hit  float64 `json:"hit"`
	Miss float64 `json:"miss"`
	// Free says that outcomes of retained inputs called critical count without a review.
	Free bool `json:"free,omitempty"`
}

// SettingsOf returns the settings of an audit block. Without one nothing retained is reviewed, and
// the least propensities are 0, which bets nothing.
func SettingsOf(a *policy.Audit) Settings {
	due := policy.DefaultDue
	if a != nil {
		due = a.Due
	}
	return Settings{Due: int64(due) * int64(time.Second/time.Microsecond), Hit: audit.LeastPropensity(a, receipt.CalledCritical),
		Miss: audit.LeastPropensity(a, receipt.CalledSafe), Free: a != nil && a.PredictedCritical == policy.CriticalFree}
}

// Join returns settings that hold under both.
func (s Settings) Join(o Settings) Settings {
	least := func(a, b float64) float64 {
		if a == 0 || b == 0 { // reviews nothing
			return max(a, b)
		}
		return min(a, b)
	}
	return Settings{Due: max(s.Due, o.Due), Hit: least(s.Hit, o.Hit), Miss: least(s.Miss, o.Miss), Free: s.Free || o.Free}
}

// Issued sums what daemons decided in a cohort, in one stratum.
type Issued struct {
	Decisions, Eligible, Receipts, Reviews uint64
	// Expected sums the propensities of the eligible.
	Expected float64
	// Due counts the inputs whose outcome is to come, DueWeight sums their 1/pi.
	Due       uint64
	DueWeight float64
}

func (i *Issued) add(o *Issued) {
	i.Decisions += o.Decisions
	i.Eligible += o.Eligible
	i.Receipts += o.Receipts
	i.Reviews += o.Reviews
	i.Expected += o.Expected
	i.Due += o.Due
	i.DueWeight += o.DueWeight
}

// Told is what daemons told of a cohort.
type Told struct {
	Settings Settings // in force, all of them joined
	Strata   [receipt.Strata]Issued
}

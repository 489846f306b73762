package ledger

import (
	"encoding/binary"
	"encoding/json"
	"fmt"
	"maps"
	"sync"
	"time"

	bolt "go.etcd.io/bbolt"

	"github.com/ckd-project/ckd/internal/outcome/audit"
	"github.com/ckd-project/ckd/internal/outcome/receipt"
	"github.com/ckd-project/ckd/policy"
)

const day = 24 * time.Hour

// cohortPeriod returns the length of a cohort: a day, and where outcomes are due earlier, as long as
// they take, at least a second. Cohorts begin at multiples of it since 1970, in UTC.
func cohortPeriod(due time.Duration) time.Duration {
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
	return cohortPeriod(due)
}

// A grid cuts time into cohorts.
type grid struct{ period int64 } // microseconds

// start returns when the cohort of a time begins.
func (g grid) start(at int64) int64 {
	start := at - at%g.period
	if start > at {
		start -= g.period
	}
	return start
}

// settings are the audits in force, as evidence needs them.
type settings struct {
	// Due is how long after a cohort's end its outcomes are due, in microseconds.
	Due int64 `json:"due"`
	// Hit is the least propensity of a critical input that is no miss, Miss that of a miss.
	Hit  float64 `json:"hit"`
	Miss float64 `json:"miss"`
	// Free says that outcomes of retained inputs called critical count without a review.
	Free bool `json:"free,omitempty"`
}

// settingsOf returns the settings of an audit block. Without one nothing retained is reviewed, and
// the least propensities are 0, which bets nothing.
func settingsOf(a *policy.Audit) settings {
	due := policy.DefaultDue
	if a != nil {
		due = a.Due
	}
	return settings{Due: int64(due) * int64(time.Second/time.Microsecond), Hit: audit.LeastPropensity(a, receipt.CalledCritical),
		Miss: audit.LeastPropensity(a, receipt.CalledSafe), Free: a != nil && a.PredictedCritical == policy.CriticalFree}
}

// join returns settings that hold under both.
func (s settings) join(o settings) settings {
	least := func(a, b float64) float64 {
		if a == 0 || b == 0 { // reviews nothing
			return max(a, b)
		}
		return min(a, b)
	}
	return settings{Due: max(s.Due, o.Due), Hit: least(s.Hit, o.Hit), Miss: least(s.Miss, o.Miss), Free: s.Free || o.Free}
}

// A cohort is the decisions of one period.
type cohort struct {
	Start int64 `json:"-"`
	// Changes counts the merges that changed its records.
	Changes uint64 `json:"changes"`
	// Replayed is how many of them the replay has seen.
	Replayed uint64 `json:"replayed,omitempty"`
	// Bets are the settings that were in force, fixed when the cohort matured; nil before.
	Bets *settings `json:"bets,omitempty"`
}

func startKey(start int64) []byte { return appendTime(nil, start) }

// readCohort returns a cohort, a new one if there is none.
func readCohort(promise *bolt.Bucket, start int64) (cohort, error) {
	c := cohort{Start: start}
	text := promise.Bucket(bucketCohorts).Get(startKey(start))
	if text == nil {
		return c, nil
	}
	return c, json.Unmarshal(text, &c)
}

func (c *cohort) write(promise *bolt.Bucket) error {
	return putJSON(promise.Bucket(bucketCohorts), startKey(c.Start), c)
}

func putJSON(b *bolt.Bucket, key []byte, value any) error {
	text, err := json.Marshal(value)
	if err != nil {
		return err
	}
	return b.Put(key, text)
}

// info says what a promise is.
type info struct {
	// Version is the text; empty until told.
	Version string `json:"version,omitempty"`
	// Period is the length of its cohorts in microseconds. It stays, whatever becomes of due.
	Period int64 `json:"period"`
}

func (i *info) grid() grid { return grid{period: i.Period} }

// promiseInfo returns the info of a promise, and makes it if there is none.
func (st *store) promiseInfo(b *bolt.Bucket, p promiseKey) (info, error) {
	var i info
	if text := b.Get(keyInfo); text != nil {
		return i, json.Unmarshal(text, &i)
	}
	s := settingsOf(nil)
	if t := st.policies.get(p.policy); t != nil {
		s = settingsOf(t.policy.Audit)
		if receipt.VersionHash(t.policy.Version) == p.version {
			i.Version = t.policy.Version
		}
	}
	i.Period = cohortPeriod(time.Duration(s.Due) * time.Microsecond).Microseconds()
	return i, putJSON(b, keyInfo, i)
}

// sums is what daemons told of a cohort.
type sums struct {
	Settings *settings   `json:"settings,omitempty"`
	Strata   [4]issuedOf `json:"strata"` // by receipt.Stratum
}

// issuedOf sums Issued of one stratum.
type issuedOf struct {
	Decisions uint64  `json:"decisions,omitempty"`
	Eligible  uint64  `json:"eligible,omitempty"`
	Receipts  uint64  `json:"receipts,omitempty"`
	Reviews   uint64  `json:"reviews,omitempty"`
	Expected  float64 `json:"expected,omitempty"`
	// Due counts the inputs whose outcome is to come, DueWeight sums their 1/pi.
	Due       uint64  `json:"due,omitempty"`
	DueWeight float64 `json:"due_weight,omitempty"`
}

func (i *issuedOf) add(o *issuedOf) {
	i.Decisions += o.Decisions
	i.Eligible += o.Eligible
	i.Receipts += o.Receipts
	i.Reviews += o.Reviews
	i.Expected += o.Expected
	i.Due += o.Due
	i.DueWeight += o.DueWeight
}

// toldCounts is one Issued as it is stored.
type toldCounts struct {
	Issued   issuedOf  `json:"issued"`
	Settings *settings `json:"settings,omitempty"`
}

// Issued learns what daemons decided. Telling the same again changes nothing; of two counts of one
// process, version, stratum and period the larger stays. sealed says which receipts all the counts
// of the process have, with those that were told before.
func (l *Ledger) Issued(counts []Issued, sealed ...Sealed) error {
	if len(counts) == 0 && len(sealed) == 0 {
		return nil
	}
	for i := range counts {
		if err := l.checkIssued(&counts[i]); err != nil {
			return err
		}
	}
	touched := make(map[promiseKey]map[int64]bool)
	var higher map[receipt.SealerID]uint64
	err := l.main.Update(func(tx *bolt.Tx) (err error) {
		if higher, err = l.told.put(tx, sealed); err != nil {
			return err
		}
		for i := range counts {
			p := promiseKey{counts[i].Policy, receipt.VersionHash(counts[i].Version)}
			start, changed, err := l.putIssued(tx, p, &counts[i])
			if err != nil {
				return err
			}
			if changed {
				if touched[p] == nil {
					touched[p] = make(map[int64]bool)
				}
				touched[p][start] = true
			}
		}
		for p, starts := range touched {
			for start := range starts {
				if err := sumIssued(promiseBucket(tx, p), start); err != nil {
					return err
				}
			}
		}
		return nil
	})
	if err != nil {
		return err
	}
	l.told.set(higher)
	l.changed.mark(touched)
	return nil
}

func (st *store) checkIssued(c *Issued) error {
	switch {
	case c.Process == "" || len(c.Process) > 128:
		return fmt.Errorf("issued: process %.20q, expected a name of 1 to 128 bytes", c.Process)
	case c.Stratum < receipt.Deferred || c.Stratum > receipt.CalledSafe:
		return fmt.Errorf("issued: stratum %d, expected 1 to 3", c.Stratum)
	case st.policies.get(c.Policy) == nil:
		return fmt.Errorf("issued: policy %x: %w", c.Policy, ErrPolicyUnknown)
	}
	return nil
}

// putIssued stores counts, and returns the cohort they fall into.
func (st *store) putIssued(tx *bolt.Tx, p promiseKey, c *Issued) (start int64, changed bool, err error) {
	b, err := makePromise(tx, p)
	if err != nil {
		return 0, false, err
	}
	i, err := st.promiseInfo(b, p)
	if err != nil {
		return 0, false, err
	}
	if i.Version == "" && c.Version != "" {
		i.Version = c.Version
		if err := putJSON(b, keyInfo, i); err != nil {
			return 0, false, err
		}
	}
	set := settingsOf(c.Audit)
	told := toldCounts{Settings: &set, Issued: issuedOf{Decisions: c.Decisions, Eligible: c.Eligible, Receipts: c.Receipts,
		Reviews: c.Reviews, Expected: c.Propensity, Due: c.Reviews, DueWeight: c.InversePropensity}}
	if set.Free && c.Stratum == receipt.CalledCritical {
		told.Issued.Due, told.Issued.DueWeight = c.Receipts, float64(c.Receipts)
	}
	at := c.Start.UnixMicro()
	start = i.grid().start(at)
	key := appendTime(startKey(start), at)
	key = append(append(key, byte(c.Stratum)), c.Process...)
	rows := b.Bucket(bucketIssued)
	if text := rows.Get(key); text != nil {
		var have toldCounts
		if err := json.Unmarshal(text, &have); err != nil {
			return 0, false, err
		}
		if have.Issued.Decisions >= told.Issued.Decisions {
			return start, false, nil
		}
		if have.Settings != nil { // changed within the period
			set = set.join(*have.Settings)
		}
	}
	return start, true, putJSON(rows, key, told)
}

// sumIssued sums the counts that daemons reported of a cohort, in the order of the rows.
func sumIssued(b *bolt.Bucket, start int64) error {
	var s sums
	prefix := startKey(start)
	c := b.Bucket(bucketIssued).Cursor()
	for k, text := c.Seek(prefix); k != nil && timeOf(k) == start; k, text = c.Next() {
		var told toldCounts
		if err := json.Unmarshal(text, &told); err != nil {
			return err
		}
		s.Strata[k[16]].add(&told.Issued)
		if told.Settings != nil {
			if s.Settings == nil {
				s.Settings = told.Settings
			} else {
				joined := s.Settings.join(*told.Settings)
				s.Settings = &joined
			}
		}
	}
	return putJSON(b.Bucket(bucketSums), prefix, &s)
}

func readSums(promise *bolt.Bucket, start int64) (*sums, error) {
	text := promise.Bucket(bucketSums).Get(startKey(start))
	if text == nil {
		return nil, nil
	}
	s := &sums{}
	return s, json.Unmarshal(text, s)
}

// changes are the cohorts that changed in ledger.db since they were last read. A cohort is marked after
// the commit that changed it, so that the next holder of the lock reads the change. No other lock is taken while
// holding mu.
type changes struct {
	mu      sync.Mutex
	cohorts map[promiseKey]map[int64]bool // begins
}

// mark adds cohorts, all at once.
func (c *changes) mark(changed map[promiseKey]map[int64]bool) {
	c.mu.Lock()
	defer c.mu.Unlock()
	for p, starts := range changed {
		if c.cohorts[p] == nil {
			c.cohorts[p] = make(map[int64]bool)
		}
		maps.Copy(c.cohorts[p], starts)
	}
}

// take returns the cohorts of a promise that changed since the last call, in order.
func (c *changes) take(p promiseKey) []int64 {
	c.mu.Lock()
	defer c.mu.Unlock()
	starts := sortedKeys(c.cohorts[p])
	delete(c.cohorts, p)
	return starts
}

// rangeOf returns the keys from which a cohort's records begin, and before which they end.
func (g grid) rangeOf(start int64) (from, to []byte) {
	return appendTime(nil, start), appendTime(nil, start+g.period)
}

func uint64Key(n uint64) []byte { return binary.BigEndian.AppendUint64(nil, n) }

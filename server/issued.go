package server

import (
	"cmp"
	"container/list"
	"sync"
	"time"

	"go.uber.org/zap"
	"golang.org/x/time/rate"

	"github.com/ckd-project/ckd/internal/outcome/promise"
	"github.com/ckd-project/ckd/internal/outcome/receipt"
	"github.com/ckd-project/ckd/policy"
	ckdv1 "github.com/ckd-project/ckd/proto/ckd/v1"
)

// Issued counts what was issued under one policy and model version in one period, in one stratum. A
// ledger needs it to know what outcomes it lacks.
type Issued struct {
	IssuedKey
	Stratum receipt.Stratum
	IssuedCounts
	// InForce is the policy, with the audit that was last in force in the period.
	InForce *policy.Policy
	// Position is when the counts of the key changed last: see Server.Issued.
	Position uint64
}

// IssuedKey says what an Issued is about.
type IssuedKey struct {
	Model   string
	Policy  [32]byte // its hash
	Version string   // of the model: what clients state, or else the policy's
	Start   int64    // of the period, in microseconds since 1970
}

// IssuedCounts counts inputs by what became of them.
type IssuedCounts struct {
	// Decisions counts all inputs decided, Eligible those whose client takes receipts, Receipts the
	// receipts handed out, Reviews the inputs that a person was asked to look at.
	Decisions, Eligible, Receipts, Reviews uint64
	// Propensity sums the propensities of eligible inputs, InversePropensity their inverses over
	// reviews.
	Propensity, InversePropensity float64
}

// Issued returns the counts of the keys that changed after a position, in the order of their last
// change, and of at most so many keys. Position 0 is before the first. The counts are of all the time
// since the process began, so that reporting them twice does no harm. They are kept for a month, and
// only while the daemon has keys for receipts.
func (s *Server) Issued(after uint64, keys int) []Issued { return s.receipts.issued.list(after, keys) }

// Sealed returns how many receipts were sealed under each key that was in force. Read before Issued,
// it says which receipts are counted there, but for those of messages that are being answered.
func (s *Server) Sealed() map[receipt.SealerID]uint64 {
	r := s.receipts
	r.mu.Lock()
	defer r.mu.Unlock()
	sealed := make(map[receipt.SealerID]uint64, len(r.sealers))
	for _, one := range r.sealers {
		sealed[one.ID()] = one.Sealed()
	}
	return sealed
}

// byStratum holds counts by stratum.
type byStratum [receipt.Strata]IssuedCounts

func (b *byStratum) add(other *byStratum) {
	for i := range b {
		sum, n := &b[i], &other[i]
		sum.Decisions, sum.Eligible = sum.Decisions+n.Decisions, sum.Eligible+n.Eligible
		sum.Receipts, sum.Reviews = sum.Receipts+n.Receipts, sum.Reviews+n.Reviews
		sum.Propensity, sum.InversePropensity = sum.Propensity+n.Propensity, sum.InversePropensity+n.InversePropensity
	}
}

// count counts an input.
func (b *byStratum) count(drawn *issued) {
	n := &b[drawn.Stratum]
	n.Decisions++
	if !drawn.eligible {
		return
	}
	n.Eligible++
	n.Propensity += float64(drawn.Propensity)
	if len(drawn.receipt) > 0 {
		n.Receipts++
	}
	if drawn.Review {
		n.Reviews++
		n.InversePropensity += 1 / float64(drawn.Propensity)
	}
}

// issuedCounts holds the counts of all models.
type issuedCounts struct {
	versions modelVersions

	mu       sync.Mutex
	position uint64                      // of the last change
	counts   map[IssuedKey]*list.Element // in changes
	changes  list.List                   // of *periodCounts, the last changed at the end
	listed   *list.Element               // the last in changes that a list had; nil for none
	periods  map[string]int              // keys of each model
}

// periodCounts holds the counts of one key.
type periodCounts struct {
	IssuedKey
	byStratum
	policy   *policy.Policy
	position uint64
}

// list returns the counts of at most so many keys that changed after a position.
func (c *issuedCounts) list(after uint64, keys int) (all []Issued) {
	c.mu.Lock()
	defer c.mu.Unlock()
	for e := c.after(after); e != nil && keys > 0; e, keys = e.Next(), keys-1 {
		c.listed = e
		one := e.Value.(*periodCounts)
		for stratum, counts := range one.byStratum {
			if counts.Decisions > 0 {
				all = append(all, Issued{one.IssuedKey, receipt.Stratum(stratum), counts, one.policy, one.position})
			}
		}
	}
	return all
}

// after returns the first key that changed after a position; nil for none.
func (c *issuedCounts) after(position uint64) (first *list.Element) {
	if position == 0 {
		return c.changes.Front()
	}
	if e := c.listed; e != nil && e.Value.(*periodCounts).position == position {
		return e.Next()
	}
	for e := c.changes.Back(); e != nil && e.Value.(*periodCounts).position > position; e = e.Prev() {
		first = e
	}
	return first
}

// add adds counts of inputs that were decided at a time.
func (c *issuedCounts) add(m *model, version string, now int64, counts *byStratum) {
	p := m.Policy()
	due := policy.DefaultDue
	if p.Audit != nil {
		due = p.Audit.Due
	}
	period := promise.CountPeriod(time.Duration(due) * time.Second).Microseconds()
	key := IssuedKey{m.ref.GetModel(), m.hash, cmp.Or(version, m.ref.GetVersion()), now - now%period}
	c.mu.Lock()
	defer c.mu.Unlock()
	e := c.counts[key]
	if e == nil {
		if c.counts == nil {
			c.counts, c.periods = map[IssuedKey]*list.Element{}, map[string]int{}
		}
		c.forget(key.Model, now-min(mostCountTime, mostCountPeriods*period))
		e = c.changes.PushBack(&periodCounts{IssuedKey: key})
		c.counts[key] = e
		c.periods[key.Model]++
	}
	c.changes.MoveToBack(e)
	c.position++
	sum := e.Value.(*periodCounts)
	sum.add(counts)
	sum.policy, sum.position = p, c.position
}

// forget forgets the periods of a model that began before a time, and those that changed longest ago
// where the model has too many.
func (c *issuedCounts) forget(model string, oldest int64) {
	for e := c.changes.Front(); e != nil; {
		one, next := e.Value.(*periodCounts), e.Next()
		if one.Model == model && (one.Start < oldest || c.periods[model] >= mostCountPeriods) {
			c.changes.Remove(e)
			if c.listed == e {
				c.listed = nil
			}
			delete(c.counts, one.IssuedKey)
			c.periods[model]--
		}
		e = next
	}
}

// Counts are kept for so long, in microseconds. A model has at most so many of them, whatever its
// policies and versions: a month of hours is 744, and each takes about 400 bytes.
const (
	mostCountTime    = int64(31 * 24 * time.Hour / time.Microsecond)
	mostCountPeriods = 4096
)

// modelVersions bounds the model versions that are counted, as their names come from clients.
type modelVersions struct {
	mu    sync.Mutex
	known map[string]map[string]bool // by model

	logged rate.Sometimes
}

const mostVersions = 64

// admit returns the version that receipts are to hold: what the client states, or "" for the policy's
// where it states none or too many were stated before.
func (v *modelVersions) admit(log *zap.Logger, of *ckdv1.PolicyRef, version string) string {
	if version == "" {
		return ""
	}
	v.mu.Lock()
	defer v.mu.Unlock()
	known := v.known[of.GetModel()]
	if known[version] {
		return version
	}
	if len(known) >= mostVersions {
		v.logged.Do(func() {
			log.Warn("clients have stated too many versions of a model: receipts hold the policy's version for further ones",
				zap.String("model", of.GetModel()), zap.Int("versions", len(known)), zap.Int("limit", mostVersions))
		})
		return ""
	}
	if known == nil {
		if v.known == nil {
			v.known = map[string]map[string]bool{}
		}
		known = map[string]bool{}
		v.known[of.GetModel()] = known
	}
	known[version] = true
	return version
}

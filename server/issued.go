package server

import (
	"cmp"
	"maps"
	"slices"
	"sync"
	"time"

	"go.uber.org/zap"
	"golang.org/x/time/rate"

	"github.com/ckd-project/ckd/internal/outcome/promise"
	"github.com/ckd-project/ckd/internal/outcome/receipt"
	"github.com/ckd-project/ckd/policy"
	ckdv1 "github.com/ckd-project/ckd/proto/ckd/v1"
)

// Issued counts what was issued under one policy and model version in one period. A ledger needs it
// to know what outcomes it lacks.
type Issued struct {
	IssuedKey
	Stratum receipt.Stratum
	IssuedCounts
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

// Issued returns what was issued in the periods of the last two days, sorted. The counts are of all
// the time since the process began, so that reporting them twice does no harm. They are kept only
// while the daemon has keys for receipts.
func (s *Server) Issued() []Issued { return s.receipts.issued.list() }

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

	mu     sync.Mutex
	counts map[IssuedKey]*byStratum
}

// list returns the counts, sorted.
func (c *issuedCounts) list() (all []Issued) {
	c.mu.Lock()
	defer c.mu.Unlock()
	keys := slices.SortedFunc(maps.Keys(c.counts), func(a, b IssuedKey) int {
		return cmp.Or(cmp.Compare(a.Model, b.Model), slices.Compare(a.Policy[:], b.Policy[:]), cmp.Compare(a.Version, b.Version), cmp.Compare(a.Start, b.Start))
	})
	for _, key := range keys {
		for stratum, counts := range c.counts[key] {
			if counts.Decisions > 0 {
				all = append(all, Issued{key, receipt.Stratum(stratum), counts})
			}
		}
	}
	return all
}

// add adds counts of inputs that were decided at a time.
func (c *issuedCounts) add(m *model, version string, now int64, counts *byStratum) {
	due := policy.DefaultDue
	if a := m.Policy().Audit; a != nil {
		due = a.Due
	}
	period := promise.CountPeriod(time.Duration(due) * time.Second).Microseconds()
	key := IssuedKey{m.ref.GetModel(), m.hash, cmp.Or(version, m.ref.GetVersion()), now - now%period}
	c.mu.Lock()
	defer c.mu.Unlock()
	sum := c.counts[key]
	if sum == nil {
		oldest := now - min(mostCountTime, mostCountPeriods*period)
		maps.DeleteFunc(c.counts, func(k IssuedKey, _ *byStratum) bool { return k.Model == key.Model && k.Start < oldest })
		if c.counts == nil {
			c.counts = map[IssuedKey]*byStratum{}
		}
		sum = &byStratum{}
		c.counts[key] = sum
	}
	sum.add(counts)
}

// Counts are kept for so long, in microseconds, or for so many periods if that is less.
const (
	mostCountTime    = int64(48 * time.Hour / time.Microsecond)
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

package promise

import (
	"cmp"
	"maps"
	"math"
	"slices"
	"sort"

	"github.com/ckd-project/ckd/internal/outcome/evidence"
	"github.com/ckd-project/ckd/internal/outcome/receipt"
	"github.com/ckd-project/ckd/internal/outcome/truth"
	"github.com/ckd-project/ckd/policy"
)

// SecondReads is the share of the inputs that are read twice whatever the first reading says.
const SecondReads = 0.05

// A tally counts up the decisions of one cohort, or the tallies of several.
type tally struct {
	Decided uint64                  `json:"decided,omitempty"`
	Pooled  risksTally              `json:"pooled"`
	Classes map[int]*risksTally     `json:"classes,omitempty"`
	Slices  map[uint16]*riskTally   `json:"slices,omitempty"` // critical miss rates
	Kinds   [truth.Kinds]kindTally  `json:"kinds"`
	Strata  [receipt.Strata]arrived `json:"strata"`
	// Untold has those of Strata that no daemon had told of, and Sealers who made their receipts.
	Untold  [receipt.Strata]arrived      `json:"untold"`
	Sealers map[receipt.SealerID]*untold `json:"sealers,omitempty"`
	Missing uint64                       `json:"missing,omitempty"` // sum of untold.missing in added tallies
	Reasons map[policy.Reason]*yield     `json:"reasons,omitempty"`
	Cells   map[int]map[int]*weighted    `json:"cells,omitempty"` // predicted, true
	Bins    [len(riskEdges) - 1]riskBin  `json:"bins"`
	Readers readersTally                 `json:"readers"`
	Lags    map[int]uint64               `json:"lags,omitempty"` // lagOf: count
}

// riskEdges cuts risks into bins.
var riskEdges = [...]float64{0, .001, .002, .005, .01, .02, .05, .1, .2, .5, 1}

// riskTally is one risk of some inputs, with how many of them readers disagree on.
type riskTally struct {
	evidence.Estimate
	Disputed uint64 `json:"disputed,omitempty"`
}

// observe adds an observation. Of those that are no step of the risk none is disputed.
func (t *riskTally) observe(o evidence.Observation, disputed bool) {
	t.Observe(o)
	if disputed && (o.Retained || t.Of == evidence.MissRate) {
		t.Disputed++
	}
}

func (t *riskTally) add(o *riskTally) {
	t.Add(o.Estimate)
	t.Disputed += o.Disputed
}

// risksTally has the critical miss rate of some inputs, and the critical FNR: an earlier policy of the
// model may have left a line on it.
type risksTally [2]riskTally

func newRisks() risksTally {
	return risksTally{{Estimate: evidence.Estimate{Of: evidence.MissRate}}, {Estimate: evidence.Estimate{Of: evidence.FNR}}}
}

// of returns the tally of one risk.
func (t *risksTally) risk(r evidence.Risk) *riskTally {
	if r == evidence.FNR {
		return &t[1]
	}
	return &t[0]
}

func (t *risksTally) observe(o evidence.Observation, disputed bool) {
	for i := range t {
		t[i].observe(o, disputed)
	}
}

func (t *risksTally) add(o *risksTally) {
	for i := range t {
		t[i].add(&o[i])
	}
}

type kindTally struct {
	Decided  uint64            `json:"decided,omitempty"`
	MissRate evidence.Estimate `json:"miss_rate"`
}

// arrived counts the outcomes of a stratum that came, duplicates of equal inputs included: these were
// issued too.
type arrived struct {
	Count  uint64  `json:"count,omitempty"`
	Weight float64 `json:"weight,omitempty"`
	Apart  uint64  `json:"apart,omitempty"`
}

// weighted counts events of a whole with weights.
type weighted struct {
	Total, Events         uint64
	Weight, EventWeight   float64
	Squares, EventSquares float64
}

func (w *weighted) observe(event bool, weight float64) {
	w.Total++
	w.Weight += weight
	w.Squares += weight * weight
	if event {
		w.Events++
		w.EventWeight += weight
		w.EventSquares += weight * weight
	}
}

func (w *weighted) add(o *weighted) {
	w.Total += o.Total
	w.Events += o.Events
	w.Weight += o.Weight
	w.EventWeight += o.EventWeight
	w.Squares += o.Squares
	w.EventSquares += o.EventSquares
}

func (w *weighted) share(whole string) Share {
	s := shareOf(whole, w.EventWeight, w.Weight, w.EventSquares, w.Squares, 0)
	s.Events, s.Total = w.Events, w.Total
	return s
}

type yield struct{ Worth, Critical weighted }

type riskBin struct {
	Risk   float64 // weighted sum
	Misses weighted
}

type readersTally struct {
	Agreement, Misses, Blind, Sighted    weighted
	Wanted, Arrived, Disputed, Corrected uint64
	// Missed counts the inputs that the model called safe and some reading critical, Unconfirmed those of
	// which no second source has said anything, Withdrawn those whose reading was taken back.
	Missed, Unconfirmed, Withdrawn uint64
}

func newTally() *tally {
	t := &tally{Classes: make(map[int]*risksTally), Slices: make(map[uint16]*riskTally), Reasons: make(map[policy.Reason]*yield),
		Cells: make(map[int]map[int]*weighted), Lags: make(map[int]uint64), Sealers: make(map[receipt.SealerID]*untold)}
	t.Pooled = newRisks()
	for k := range t.Kinds {
		t.Kinds[k].MissRate.Of = evidence.MissRate
	}
	return t
}

// entry returns the entry of a key, and makes it if there is none.
func entry[K comparable, V any](m map[K]*V, key K) *V {
	v := m[key]
	if v == nil {
		v = new(V)
		m[key] = v
	}
	return v
}

func (t *tally) class(k int) *risksTally {
	c := t.Classes[k]
	if c == nil {
		risks := newRisks()
		c = &risks
		t.Classes[k] = c
	}
	return c
}

func (t *tally) slice(s uint16) *riskTally {
	c := entry(t.Slices, s)
	c.Of = evidence.MissRate
	return c
}

func (t *tally) cell(predicted, truth int) *weighted {
	row := t.Cells[predicted]
	if row == nil {
		row = make(map[int]*weighted)
		t.Cells[predicted] = row
	}
	return entry(row, truth)
}

// observe counts a reviewed decision. through is up to which number the receipts of its sealer were
// told.
func (t *tally) observe(m *truth.Terms, r *truth.Decision, f *truth.Finding, through uint64) {
	c := &r.Receipt
	weight := 1 / float64(c.Propensity)
	stratum := &t.Strata[c.Stratum]
	if f.Known {
		stratum.Count++
		stratum.Weight += weight
		if number := r.ID.Number(); number > through {
			entry(t.Sealers, r.ID.Sealer()).observe(number, through)
			t.Untold[c.Stratum].Count++
			t.Untold[c.Stratum].Weight += weight
		}
	} else if f.Apart != nil {
		stratum.Apart++
	}
	if r.Duplicate {
		return
	}
	t.observeReaders(m, r, f)
	if !f.Known {
		return
	}
	t.Decided++
	t.Lags[lagOf(f.Time.UnixMicro()-c.Time)]++
	step := m.Step(r, f)
	best := step.Observation(-1, false)
	t.Pooled.observe(best, f.Disputed())
	kind := &t.Kinds[min(f.Kind, truth.Kinds-1)]
	kind.Decided++
	kind.MissRate.Observe(best)
	t.observeClasses(&step, f)
	for i, s := range c.Slices {
		if s == 0 || slices.Contains(c.Slices[:i], s) {
			continue
		}
		t.slice(s).observe(best, f.Disputed())
	}
	t.observeTables(m, r, f, best, weight)
}

func (t *tally) observeClasses(step *truth.Step, f *truth.Finding) {
	if step.Critical < 0 {
		return
	}
	add := func(k int) {
		t.class(k).observe(step.Observation(k, false), f.Disputed() || len(f.Others) > 0)
	}
	add(f.Critical)
	for _, k := range f.Others {
		add(k)
	}
}

// observeTables counts yield, confusion and the observed against the expected misses.
func (t *tally) observeTables(m *truth.Terms, r *truth.Decision, f *truth.Finding, best evidence.Observation, weight float64) {
	c, truth, predicted := &r.Receipt, f.Class(), int(r.Receipt.Predicted)
	t.cell(predicted, truth).observe(true, weight)
	if c.Stratum == receipt.Deferred {
		y := entry(t.Reasons, policy.Reason(c.Reason))
		y.Worth.observe(truth != predicted, 1)
		y.Critical.observe(m.Critical[truth] && !m.CalledCritical(c), 1)
	}
	if risk := float64(c.Risk); c.Stratum == receipt.CalledSafe && risk >= 0 && risk <= 1 {
		b := &t.Bins[min(sort.SearchFloat64s(riskEdges[1:], risk), len(t.Bins)-1)]
		b.Risk += weight * risk
		b.Misses.observe(best.Missed, weight)
	}
}

func (t *tally) observeReaders(m *truth.Terms, r *truth.Decision, f *truth.Finding) {
	t.Readers.Corrected += uint64(r.Replaced())
	called := m.CalledCritical(&r.Receipt)
	if f.Apart != nil && f.Apart.Kind == truth.ByReading {
		t.Readers.Sighted.observe(m.Critical[f.Apart.Truth] == called, 1)
	}
	settled := f.Kind != truth.ByReading && !f.Disputed()
	if f.Missed {
		t.Readers.Missed++
		if f.Second == nil && !settled {
			t.Readers.Unconfirmed++
		}
		if f.Withdrawn {
			t.Readers.Withdrawn++
		}
	}
	if f.Wanted {
		t.Readers.Wanted++
		if f.Second != nil || settled {
			t.Readers.Arrived++
		}
	}
	if f.First == nil {
		return
	}
	side := &t.Readers.Blind
	if f.First.SawModel {
		side = &t.Readers.Sighted
	}
	side.observe(m.Critical[f.First.Truth] == called, 1)
	if f.Want == truth.WantThird {
		t.Readers.Disputed++
	}
	if f.Second == nil || !f.Wanted {
		return
	}
	weight := 1.0 // second readings that were not asked for would have none
	if !f.Missed {
		weight = 1 / SecondReads
	}
	t.Readers.Agreement.observe(m.Critical[f.First.Truth] == m.Critical[f.Second.Truth], weight)
	if !m.Critical[f.First.Truth] && r.Sampled {
		t.Readers.Misses.observe(m.Critical[f.Second.Truth], 1)
	}
}

// add adds the tally of a later cohort.
func (t *tally) add(o *tally) {
	t.Decided += o.Decided
	t.Pooled.add(&o.Pooled)
	for k, c := range o.Classes {
		t.class(k).add(c)
	}
	for k, c := range o.Slices {
		t.slice(k).add(c)
	}
	for k := range t.Kinds {
		t.Kinds[k].Decided += o.Kinds[k].Decided
		t.Kinds[k].MissRate.Add(o.Kinds[k].MissRate)
	}
	for s := range t.Strata {
		t.Strata[s].Count += o.Strata[s].Count
		t.Strata[s].Weight += o.Strata[s].Weight
		t.Strata[s].Apart += o.Strata[s].Apart
		t.Untold[s].Count += o.Untold[s].Count
		t.Untold[s].Weight += o.Untold[s].Weight
	}
	for _, u := range o.Sealers {
		t.Missing += u.missing()
	}
	for reason, y := range o.Reasons {
		sum := entry(t.Reasons, reason)
		sum.Worth.add(&y.Worth)
		sum.Critical.add(&y.Critical)
	}
	for predicted, row := range o.Cells {
		for truth, w := range row {
			t.cell(predicted, truth).add(w)
		}
	}
	for i := range t.Bins {
		t.Bins[i].Risk += o.Bins[i].Risk
		t.Bins[i].Misses.add(&o.Bins[i].Misses)
	}
	t.Readers.Agreement.add(&o.Readers.Agreement)
	t.Readers.Misses.add(&o.Readers.Misses)
	t.Readers.Blind.add(&o.Readers.Blind)
	t.Readers.Sighted.add(&o.Readers.Sighted)
	t.Readers.Wanted += o.Readers.Wanted
	t.Readers.Arrived += o.Readers.Arrived
	t.Readers.Disputed += o.Readers.Disputed
	t.Readers.Corrected += o.Readers.Corrected
	t.Readers.Missed += o.Readers.Missed
	t.Readers.Unconfirmed += o.Readers.Unconfirmed
	t.Readers.Withdrawn += o.Readers.Withdrawn
	for lag, n := range o.Lags {
		t.Lags[lag] += n
	}
}

// lagStep is the ratio of neighbouring bins of lags.
const lagStep = 1.1

// lagOf returns the bin of a lag in microseconds: 0 up to a second.
func lagOf(lag int64) int {
	seconds := float64(lag) / 1e6
	if !(seconds > 1) {
		return 0
	}
	return 1 + int(math.Log(seconds)/math.Log(lagStep))
}

// lag returns the quantiles of the lags.
func (t *tally) lag() Lag {
	bins := slices.Sorted(maps.Keys(t.Lags))
	var l Lag
	for _, b := range bins {
		l.Count += t.Lags[b]
	}
	n := float64(l.Count)
	valueAt := func(rank float64) float64 {
		seen := 0.0
		for _, b := range bins {
			if seen += float64(t.Lags[b]); seen >= rank {
				if b == 0 {
					return 0
				}
				return math.Pow(lagStep, float64(b)-.5)
			}
		}
		return math.NaN()
	}
	quantile := func(q float64) Limits {
		if n == 0 {
			return unknownLimits()
		}
		around := 1.96 * math.Sqrt(n*q*(1-q)) // ranks of a 95% interval
		return Limits{valueAt(max(1, q*n)), valueAt(max(1, q*n-around)), valueAt(min(n, q*n+around))}
	}
	l.Median, l.P90 = quantile(.5), quantile(.9)
	return l
}

// untold counts the outcomes of one sealer and cohort that were not told.
type untold struct {
	// Through is up to which number they were told.
	Through uint64 `json:"through"`
	// Count counts the others; First and Last are the numbers of the first and the last of these.
	Count uint64 `json:"count"`
	First uint64 `json:"first"`
	Last  uint64 `json:"last"`
}

func (u *untold) observe(number, through uint64) {
	if u.Count == 0 {
		u.Through = through // more may be told while a tally is made: it is stale then
	}
	if u.Count == 0 || number < u.First {
		u.First = number
	}
	u.Count++
	u.Last = max(u.Last, number)
}

// missing returns a lower limit of the receipts that were issued and did not arrive: the numbers between
// them. Some may be of other policies, or need no review.
func (u *untold) missing() uint64 {
	return u.Last - min(u.First+u.Count, u.Last+1) + 1
}

func sorted[K cmp.Ordered, V any](m map[K]V) []K { return slices.Sorted(maps.Keys(m)) }

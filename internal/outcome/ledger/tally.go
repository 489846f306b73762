package ledger

import (
	"maps"
	"math"
	"slices"
	"sort"

	"github.com/ckd-project/ckd/internal/outcome/evidence"
	"github.com/ckd-project/ckd/internal/outcome/receipt"
	"github.com/ckd-project/ckd/policy"
)

// secondReads is the share of the inputs that are read twice whatever the first reading says.
const secondReads = 0.05

// A tally counts up the records of one cohort, or the tallies of several.
type tally struct {
	// Changes is cohort.Changes of the records that were counted.
	Changes uint64 `json:"changes"`

	Decided  uint64                  `json:"decided,omitempty"`
	Pooled   [2]evidence.Estimate    `json:"pooled"` // FNR, MissRate
	Disputed [2]uint64               `json:"disputed"`
	Classes  map[int]*classTally     `json:"classes,omitempty"`
	Slices   map[uint16]*sliceTally  `json:"slices,omitempty"`
	Squares  [2]squares              `json:"weights"`
	Kinds    [kinds]kindTally        `json:"kinds"`
	Strata   [receipt.Strata]arrived `json:"strata"`
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

type classTally struct {
	FNR      evidence.Estimate `json:"fnr"`
	Squares  squares           `json:"weights"`
	Disputed uint64            `json:"disputed,omitempty"`
}

type sliceTally struct {
	Risks    [2]evidence.Estimate `json:"risks"`
	Disputed [2]uint64            `json:"disputed"`
}

// squares sums the squared weights of critical inputs, and of the missed among them, for intervals
// of one look.
type squares struct {
	All    float64 `json:"all,omitempty"`
	Missed float64 `json:"missed,omitempty"`
}

// observe adds a critical input.
func (s *squares) observe(o evidence.Observation) {
	square := 1 / (o.Propensity * o.Propensity)
	s.All += square
	if o.Missed {
		s.Missed += square
	}
}

func (s *squares) add(o squares) {
	s.All += o.All
	s.Missed += o.Missed
}

type kindTally struct {
	Decided uint64            `json:"decided,omitempty"`
	FNR     evidence.Estimate `json:"fnr"`
	Squares squares           `json:"weights"`
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

func (w *weighted) share(of string) Share {
	s := shareOf(of, w.EventWeight, w.Weight, w.EventSquares, w.Squares, 0)
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
}

func newTally() *tally {
	t := &tally{Classes: make(map[int]*classTally), Slices: make(map[uint16]*sliceTally), Reasons: make(map[policy.Reason]*yield),
		Cells: make(map[int]map[int]*weighted), Lags: make(map[int]uint64), Sealers: make(map[receipt.SealerID]*untold)}
	t.Pooled = newEstimates()
	for k := range t.Kinds {
		t.Kinds[k].FNR.Of = evidence.FNR
	}
	return t
}

func newEstimates() [2]evidence.Estimate {
	return [2]evidence.Estimate{{Of: evidence.FNR}, {Of: evidence.MissRate}}
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

func (t *tally) class(k int) *classTally {
	c := entry(t.Classes, k)
	c.FNR.Of = evidence.FNR
	return c
}

func (t *tally) slice(s uint16) *sliceTally {
	c := t.Slices[s]
	if c == nil {
		c = &sliceTally{Risks: newEstimates()}
		t.Slices[s] = c
	}
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

// observe counts a record. through is up to which number the receipts of its sealer were told.
func (t *tally) observe(m *terms, r *Record, through uint64) {
	f := m.find(r, endOfTime)
	c := &r.Receipt
	if !reviewed(c) {
		return
	}
	weight := 1 / float64(c.Propensity)
	stratum := &t.Strata[c.Stratum]
	if f.known {
		stratum.Count++
		stratum.Weight += weight
		if number := r.ID.Number(); number > through {
			entry(t.Sealers, r.ID.Sealer()).observe(number, through)
			t.Untold[c.Stratum].Count++
			t.Untold[c.Stratum].Weight += weight
		}
	} else if f.sighted {
		stratum.Apart++
	}
	if r.Duplicate {
		return
	}
	t.observeReaders(m, r, &f)
	if !f.known {
		return
	}
	t.Decided++
	t.Lags[lagOf(f.time.UnixMicro()-c.Time)]++
	best := m.observe(r, &f, -1, false)
	for i := range t.Pooled {
		t.Pooled[i].Observe(best)
		if best.Critical && (best.Retained || t.Pooled[i].Of == evidence.MissRate) {
			t.Squares[i].observe(best)
		}
		if f.disputed() && (best.Retained || t.Pooled[i].Of == evidence.MissRate) {
			t.Disputed[i]++
		}
	}
	kind := &t.Kinds[min(f.kind, kinds-1)]
	kind.Decided++
	kind.FNR.Observe(best)
	if best.Critical && best.Retained {
		kind.Squares.observe(best)
	}
	t.observeClasses(m, r, &f)
	for i, s := range c.Slices {
		if s == 0 || slices.Contains(c.Slices[:i], s) {
			continue
		}
		slice := t.slice(s)
		for i := range slice.Risks {
			slice.Risks[i].Observe(best)
			if f.disputed() {
				slice.Disputed[i]++
			}
		}
	}
	t.observeTables(m, r, &f, best, weight)
}

func (t *tally) observeClasses(m *terms, r *Record, f *finding) {
	if f.critical < 0 || r.Receipt.Stratum == receipt.Deferred {
		return
	}
	add := func(k int) {
		class := t.class(k)
		o := m.observe(r, f, k, false)
		class.FNR.Observe(o)
		if o.Critical {
			class.Squares.observe(o)
		}
		if f.disputed() || len(f.others) > 0 {
			class.Disputed++
		}
	}
	add(f.critical)
	for _, k := range f.others {
		add(k)
	}
}

// observeTables counts yield, confusion and the observed against the expected misses.
func (t *tally) observeTables(m *terms, r *Record, f *finding, best evidence.Observation, weight float64) {
	c, truth, predicted := &r.Receipt, f.class(), int(r.Receipt.Predicted)
	t.cell(predicted, truth).observe(true, weight)
	if c.Stratum == receipt.Deferred {
		y := entry(t.Reasons, policy.Reason(c.Reason))
		y.Worth.observe(truth != predicted, 1)
		y.Critical.observe(m.critical[truth] && !m.calledCritical(c), 1)
	}
	if risk := float64(c.Risk); c.Stratum == receipt.CalledSafe && risk >= 0 && risk <= 1 {
		b := &t.Bins[min(sort.SearchFloat64s(riskEdges[1:], risk), len(t.Bins)-1)]
		b.Risk += weight * risk
		b.Misses.observe(best.Missed, weight)
	}
}

func (t *tally) observeReaders(m *terms, r *Record, f *finding) {
	standingOnes := 0
	standing(r.Readings, endOfTime, func(*Said) { standingOnes++ })
	t.Readers.Corrected += uint64(len(r.Readings) - standingOnes)
	called := m.calledCritical(&r.Receipt)
	if s := f.sightedFirst; s != nil {
		t.Readers.Sighted.observe(m.critical[s.Truth] == called, 1)
	}
	if f.first == nil {
		return
	}
	side := &t.Readers.Blind
	if f.first.SawModel {
		side = &t.Readers.Sighted
	}
	side.observe(m.critical[f.first.Truth] == called, 1)
	if f.want == WantThird {
		t.Readers.Disputed++
	}
	must := m.critical[f.first.Truth] && !called
	if f.wanted {
		t.Readers.Wanted++
		if f.second != nil || f.kind != Reading {
			t.Readers.Arrived++
		}
	}
	if f.second == nil || !f.wanted {
		return
	}
	weight := 1.0 // second readings that were not asked for would have none
	if !must {
		weight = 1 / secondReads
	}
	t.Readers.Agreement.observe(m.critical[f.first.Truth] == m.critical[f.second.Truth], weight)
	if !m.critical[f.first.Truth] && r.Sampled {
		t.Readers.Misses.observe(m.critical[f.second.Truth], 1)
	}
}

// add adds the tally of a later cohort.
func (t *tally) add(o *tally) {
	t.Decided += o.Decided
	for i := range t.Pooled {
		t.Pooled[i].Add(o.Pooled[i])
		t.Disputed[i] += o.Disputed[i]
		t.Squares[i].add(o.Squares[i])
	}
	for k, c := range o.Classes {
		sum := t.class(k)
		sum.FNR.Add(c.FNR)
		sum.Squares.add(c.Squares)
		sum.Disputed += c.Disputed
	}
	for k, c := range o.Slices {
		sum := t.slice(k)
		for i := range sum.Risks {
			sum.Risks[i].Add(c.Risks[i])
			sum.Disputed[i] += c.Disputed[i]
		}
	}
	for k := range t.Kinds {
		t.Kinds[k].Decided += o.Kinds[k].Decided
		t.Kinds[k].FNR.Add(o.Kinds[k].FNR)
		t.Kinds[k].Squares.add(o.Kinds[k].Squares)
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
		to := entry(t.Reasons, reason)
		to.Worth.add(&y.Worth)
		to.Critical.add(&y.Critical)
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

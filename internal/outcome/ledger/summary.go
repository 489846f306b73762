package ledger

import (
	"encoding/json"
	"fmt"
	"math"
	"slices"
	"time"

	bolt "go.etcd.io/bbolt"

	"github.com/ckd-project/ckd/internal/binomial"
	"github.com/ckd-project/ckd/internal/outcome/evidence"
	"github.com/ckd-project/ckd/internal/outcome/receipt"
	"github.com/ckd-project/ckd/policy"
)

const (
	// lately is how many of the last mature cohorts are lately.
	lately = 28
	// mostOverdue is the share of a stratum's outcomes that may be overdue while a promise holds, and
	// that may be of decisions that no daemon told of.
	mostOverdue = 0.05
)

// pooled are sums over some cohorts.
type pooled struct {
	tally  *tally
	issued [4]issuedOf
	// due and overdue are by stratum; overdueWeight sums 1/pi of the overdue.
	due, overdue  [4]uint64
	overdueWeight [4]float64
	free          bool
}

func newPooled() *pooled { return &pooled{tally: newTally()} }

func (p *pooled) add(t *terms, c *cohortState) {
	p.tally.add(c.tally)
	p.free = p.free || c.settings(t).Free
	for s := range p.issued {
		arrived, untold, due := c.tally.Strata[s], c.tally.Untold[s], issuedOf{}
		arrived.Count -= untold.Count
		arrived.Weight -= untold.Weight
		if c.sums != nil {
			due = c.sums.Strata[s]
			p.issued[s].add(&due)
		}
		p.due[s] += max(due.Due, arrived.Count) + untold.Count
		if due.Due > arrived.Count {
			overdue := due.Due - arrived.Count
			p.overdue[s] += overdue
			p.overdueWeight[s] += max(due.DueWeight-arrived.Weight, float64(overdue))
		}
	}
}

// told reports whether the counts of issued reviews are whole enough to say what is overdue of a
// stratum: those that no daemon told of do not weigh.
func (p *pooled) told(k receipt.Stratum) bool {
	untold := float64(p.tally.Untold[k].Count + p.tally.Missing)
	return untold <= mostOverdue*float64(p.due[k]+p.tally.Missing)
}

// summarise makes the state of a promise.
func (ps *promises) summarise(p *promise, t *terms, mature int, now time.Time) (*Promise, error) {
	s := &Promise{Policy: t.hash, Version: p.version(), VersionHash: p.key.version, Model: t.policy.Name,
		Classes: slices.Clone(t.policy.Classes), Critical: slices.Clone(t.policy.Critical), AsOf: now.UTC(), Audit: t.policy.Audit}
	settled, last := newPooled(), newPooled()
	for i, c := range p.cohorts[:mature] {
		settled.add(t, c)
		if i >= mature-lately {
			last.add(t, c)
		}
	}
	all := newPooled()
	for _, c := range p.cohorts {
		all.add(t, c)
	}
	early := p.replay
	if mature < len(p.cohorts) {
		early = p.replay.clone()
		for _, c := range p.cohorts[mature:] {
			if c.Changes == 0 {
				continue
			}
			early.begin(c.settings(t))
			err := ps.scan(p, c.Start, func(r *Record) {
				if r.Duplicate || !reviewed(&r.Receipt) {
					return
				}
				if f := t.find(r, endOfTime); f.known {
					early.observe(t, r, &f, c.Start)
				}
			})
			if err != nil {
				return nil, err
			}
		}
	}
	b := summariser{t: t, slices: sliceNames(t.policy.Audit), sensitivity: t.sensitivity()}
	s.Mature = b.summary(settled, p.replay)
	s.Provisional = b.summary(all, early)
	s.Provisional.Readers.Unconfirmed = s.Mature.Readers.Unconfirmed // others are not late yet
	b.watch(&s.Mature, settled, last, p)
	s.Cohorts = p.reach(t, mature)
	s.Strata = strataOf(all, settled, last, p.cohorts)
	s.Traffic = traffic(all)
	b.judge(s, settled)
	var err error
	s.History, err = p.history(ps.main)
	return s, err
}

// reach says how far outcomes are due.
func (p *promise) reach(t *terms, mature int) Cohorts {
	c := Cohorts{Period: time.Duration(p.info.Period) * time.Microsecond, Mature: mature, Open: len(p.cohorts) - mature}
	due := settingsOf(t.policy.Audit).Due
	if n := len(p.cohorts); n > 0 {
		due = p.cohorts[n-1].settings(t).Due
		c.Since = time.UnixMicro(p.cohorts[0].Start).UTC()
	}
	c.Due = time.Duration(due) * time.Microsecond
	if mature > 0 {
		c.Until = time.UnixMicro(p.cohorts[mature-1].Start + p.info.Period).UTC()
	}
	if c.Open > 0 {
		c.NextMature = p.maturity(t, p.cohorts[mature])
	}
	return c
}

func strataOf(all, settled, last *pooled, cohorts []*cohortState) []Stratum {
	told := slices.ContainsFunc(cohorts, func(c *cohortState) bool { return c.sums != nil })
	strata := make([]Stratum, 0, 3)
	for k := receipt.Deferred; k <= receipt.CalledSafe; k++ {
		i := all.issued[k]
		s := Stratum{Stratum: k, Decisions: i.Decisions, Eligible: i.Eligible, Receipts: i.Receipts, Reviews: i.Reviews,
			Expected: i.Expected, Due: settled.due[k], Overdue: settled.overdue[k], Apart: all.tally.Strata[k].Apart, Untold: settled.tally.Untold[k].Count}
		if !told {
			s.Expected = math.NaN()
		}
		s.Arrived = s.Due - s.Overdue
		s.Late, s.Lately = settled.late(k), last.late(k)
		s.Free = all.free && k == receipt.CalledCritical
		s.FreeMet = !s.Free || !(s.Late.Value > mostOverdue)
		strata = append(strata, s)
	}
	return strata
}

// late returns the share of a stratum's due outcomes that is overdue; unknown unless daemons told.
func (p *pooled) late(k receipt.Stratum) Share {
	const whole = "outcomes due"
	if !p.told(k) {
		return unknownShare(whole)
	}
	n := float64(p.due[k])
	s := shareOf(whole, float64(p.overdue[k]), n, float64(p.overdue[k]), n, 0)
	s.Events, s.Total = p.overdue[k], p.due[k]
	return s
}

func traffic(all *pooled) Share {
	var eligible, decisions uint64
	for _, i := range all.issued {
		eligible += i.Eligible
		decisions += i.Decisions
	}
	n, k := float64(decisions), float64(min(eligible, decisions))
	s := shareOf("decisions", k, n, k, n, 0)
	s.Events, s.Total = eligible, decisions
	return s
}

// A summariser makes summaries.
type summariser struct {
	t           *terms
	slices      []sliceName
	sensitivity float64
}

type sliceName struct {
	hash uint16
	name string
}

// sliceNames returns the declared slices, in their order.
func sliceNames(a *policy.Audit) []sliceName {
	var names []sliceName
	if a != nil {
		for _, s := range a.Slices {
			for _, v := range s.Values {
				names = append(names, sliceName{policy.SliceHash(s.Name, v), s.Name + "=" + v})
			}
		}
	}
	return names
}

func (b *summariser) summary(p *pooled, r *replay) Summary {
	c := p.tally
	s := Summary{Decided: c.Decided, Confusion: confusion(c), Calibration: calibration(c), Readers: readers(c), Lag: c.lag(),
		Yield: yieldOf(c)}
	for i := range c.Pooled {
		f := b.figure(watch{Risk: c.Pooled[i].Of, Class: -1}, &c.Pooled[i], c.Disputed[i], r)
		f.Overdue = p.band(i)
		if i == 0 {
			s.FNR = f
		} else {
			s.MissRate = f
		}
	}
	for _, k := range b.t.policy.Critical {
		class := classTally{FNR: evidence.Estimate{Of: evidence.FNR}}
		if seen := c.Classes[k]; seen != nil {
			class = *seen
		}
		class.FNR.Outcomes = c.Pooled[0].Outcomes
		f := b.figure(watch{Risk: evidence.FNR, Class: k}, &class.FNR, class.Disputed, r)
		f.Class = b.t.policy.Classes[k]
		s.Classes = append(s.Classes, f)
	}
	for _, name := range b.slices {
		slice := sliceTally{Risks: newEstimates()}
		if seen := c.Slices[name.hash]; seen != nil {
			slice = *seen
		}
		for i := range slice.Risks {
			f := b.figure(watch{Risk: slice.Risks[i].Of, Class: -1, Slice: name.hash}, &slice.Risks[i], slice.Disputed[i], r)
			f.Slice = name.name
			s.Slices = append(s.Slices, f)
		}
	}
	for k := range c.Kinds {
		one := &c.Kinds[k]
		share := c.latest(&one.FNR, one.Squares)
		s.Kinds = append(s.Kinds, KindShare{Kind: Kind(k), Decided: one.Decided, FNR: share})
	}
	return s
}

// figure returns a figure without what belongs to its line.
func (b *summariser) figure(w watch, e *evidence.Estimate, disputed uint64, r *replay) Figure {
	nan := math.NaN()
	f := Figure{Risk: w.Risk, Outcomes: e.Outcomes, Critical: e.Critical, Misses: e.Misses, Disputed: disputed, Value: e.Value(),
		Low: nan, High: nan, Unweighted: nan, Lately: unknownShare(wholeOf(w.Risk)), Overdue: unknownLimits(),
		AtSensitivity: unknownLimits(), Line: nan, Needed: nan}
	if e.Critical+disputed == 0 {
		return f
	}
	f.Low, f.High = r.interval(w)
	if e.Critical > 0 {
		f.Unweighted = float64(e.Misses) / float64(e.Critical)
	}
	f.AtSensitivity = Limits{atSensitivity(f.Value, b.sensitivity), atSensitivity(f.Low, b.sensitivity),
		atSensitivity(f.High, b.sensitivity)}
	return f
}

// wholeOf names what a risk is a share of.
func wholeOf(r evidence.Risk) string {
	if r == evidence.MissRate {
		return "critical inputs"
	}
	return "retained critical inputs"
}

// atSensitivity returns a risk if readers find only a share s of the misses: of M misses and H hits
// as seen, M/s were there.
func atSensitivity(risk, s float64) float64 { return risk / (risk + (1-risk)*s) }

// band returns a risk with overdue outcomes as missed and as not missed: an overdue input called safe
// as critical or not, any other as uncritical or critical.
func (p *pooled) band(risk int) Limits {
	e := &p.tally.Pooled[risk]
	hits := p.overdueWeight[receipt.CalledCritical]
	if e.Of == evidence.MissRate {
		hits += p.overdueWeight[receipt.Deferred]
	}
	misses := p.overdueWeight[receipt.CalledSafe]
	told := p.told(receipt.Deferred) && p.told(receipt.CalledCritical) && p.told(receipt.CalledSafe)
	if !told || e.WeightedCritical+hits+misses == 0 {
		return unknownLimits()
	}
	ratio := func(misses, critical float64) float64 {
		if critical == 0 {
			return 0
		}
		return misses / critical
	}
	band := Limits{e.Value(), ratio(e.WeightedMisses, e.WeightedCritical+hits),
		ratio(e.WeightedMisses+misses, e.WeightedCritical+misses)}
	if e.Critical > 0 { // the estimate is the ratio with its bias removed
		band.Low, band.High = min(band.Low, band.Value), max(band.High, band.Value)
	}
	return band
}

// watch adds to the figures of mature cohorts what belongs to their lines.
func (b *summariser) watch(s *Summary, settled, last *pooled, p *promise) {
	var outcomes, decisions uint64
	outcomes = settled.tally.Decided
	for _, i := range settled.issued {
		decisions += i.Decisions
	}
	add := func(w watch, f *Figure) {
		a := p.official.byWatch[w]
		if a == nil {
			return
		}
		f.Line = a.Line()
		f.Monitor = &Monitor{Evidence: a.Evidence(), RunLength: a.RunLength(), RunLengthInputs: math.NaN(), LogEvidence: a.LogEvidence(),
			Raised: a.Raised(), Replayed: math.NaN()}
		if a.Raised() {
			f.Monitor.RaisedBy = time.UnixMicro(a.raisedBy).UTC()
		}
		if a.cleared != 0 {
			f.Monitor.Cleared = time.UnixMicro(a.cleared).UTC()
		}
		if again := p.replay.alarms.byWatch[w]; again != nil {
			f.Monitor.Replayed = again.Evidence()
			f.Monitor.Changed = f.Monitor.Replayed != f.Monitor.Evidence
		}
		if outcomes > 0 && decisions > 0 {
			f.Monitor.RunLengthInputs = a.RunLength() * float64(decisions) / float64(max(f.Outcomes, 1))
		}
		f.judge()
	}
	add(watch{Risk: evidence.FNR, Class: -1}, &s.FNR)
	add(watch{Risk: evidence.MissRate, Class: -1}, &s.MissRate)
	s.FNR.Lately = last.tally.latest(&last.tally.Pooled[0], last.tally.Squares[0])
	s.MissRate.Lately = last.tally.latest(&last.tally.Pooled[1], last.tally.Squares[1])
	for i, k := range b.t.policy.Critical {
		add(watch{Risk: evidence.FNR, Class: k}, &s.Classes[i])
		if seen := last.tally.Classes[k]; seen != nil {
			s.Classes[i].Lately = last.tally.latest(&seen.FNR, seen.Squares)
		}
	}
	r := &settled.tally.Readers
	s.Readers.Unconfirmed = r.Wanted - r.Arrived
}

// latest returns a risk with an interval for one look. A miss weighs what audits of inputs called safe
// weigh on average, if there is none to tell.
func (t *tally) latest(e *evidence.Estimate, s squares) Share {
	typical := 0.0
	if safe := t.Strata[receipt.CalledSafe]; safe.Count > 0 {
		typical = safe.Weight / float64(safe.Count)
	}
	share := shareOf(wholeOf(e.Of), e.WeightedMisses, e.WeightedCritical, s.Missed, s.All, typical)
	share.Events, share.Total = e.Misses, e.Critical
	return share
}

// judge says whether the risk holds its line.
func (f *Figure) judge() {
	switch limit := f.AtSensitivity.High; {
	case f.Monitor.Raised:
		f.Verdict = Violated
	case limit < f.Line:
		f.Verdict, f.Needed = Holding, 0
	default:
		f.Verdict = TooFew
		// The upper limit comes closer to the value as one over the square root of the outcomes.
		if room := f.Line - f.AtSensitivity.Value; room > 0 && f.Outcomes > 0 {
			far := limit - f.AtSensitivity.Value
			f.Needed = math.Ceil(float64(f.Outcomes) * (far*far/(room*room) - 1))
		}
	}
}

// judge says whether the promise is kept, and what stands against it.
func (b *summariser) judge(s *Promise, settled *pooled) {
	main := []*Figure{&s.Mature.FNR, &s.Mature.MissRate}
	s.Verdict = NoLine
	for _, f := range main {
		switch {
		case f.Monitor == nil:
			continue
		case f.Verdict == Violated:
			s.Alarm = true
		case f.Verdict == TooFew:
			s.Why = append(s.Why, b.tooFew(f))
		}
		switch {
		case s.Verdict == NoLine, f.Verdict == Violated:
			s.Verdict = f.Verdict
		case s.Verdict == Holding:
			s.Verdict = f.Verdict
		}
		if f.Verdict == Violated {
			s.Why = append(s.Why, fmt.Sprintf("the alarm of the %s is up", f.Risk))
		}
	}
	for i := range s.Mature.Classes {
		if f := &s.Mature.Classes[i]; f.Verdict == Violated {
			s.Verdict = Violated
			s.Why = append(s.Why, fmt.Sprintf("the alarm of class %s is up", f.Class))
		}
	}
	if s.Verdict == NoLine {
		s.Why = append(s.Why, "the policy has no line: its calibration expects no figure, and none was given")
	}
	missing := false
	for i := range s.Strata {
		k := &s.Strata[i]
		if !settled.told(k.Stratum) {
			missing = true
			s.Why = append(s.Why, b.untold(k, settled.tally.Missing))
		}
		if k.Late.Value > mostOverdue || k.Lately.Value > mostOverdue {
			missing = true
			s.Why = append(s.Why, fmt.Sprintf("%d of %d outcomes of stratum %s are overdue, at most %v%% may be", k.Overdue, k.Due,
				k.Stratum, mostOverdue*100))
			if k.Free {
				s.Why = append(s.Why, "inputs called critical count without a review only where 95% of their outcomes arrive: send them "+
					"whatever they say, or audit them (predicted-critical: audited)")
			}
		}
	}
	if missing && s.Verdict == Holding {
		s.Verdict = TooFew
	}
}

// untold says that too many decisions of a stratum were not told of.
func (b *summariser) untold(k *Stratum, missing uint64) string {
	why := fmt.Sprintf("%d of %d outcomes due of stratum %s are of decisions that no daemon has told of, at most %v%% may be",
		k.Untold, k.Due, k.Stratum, mostOverdue*100)
	if missing > 0 {
		why += fmt.Sprintf("; at least %d more receipts were issued beside them", missing)
	}
	return why + ": what is missing is not known"
}

func (b *summariser) tooFew(f *Figure) string {
	if math.IsNaN(f.Value) {
		return fmt.Sprintf("the %s is not known: no critical outcome is mature", f.Risk)
	}
	if math.IsNaN(f.Needed) {
		return fmt.Sprintf("the %s is estimated at %.3g, no less than its line %.3g", f.Risk, f.AtSensitivity.Value, f.Line)
	}
	return fmt.Sprintf("the upper limit %.3g of the %s is not below its line %.3g: about %.0f further outcomes would do",
		f.AtSensitivity.High, f.Risk, f.Line, f.Needed)
}

func yieldOf(c *tally) Yield {
	const whole = "deferred inputs with an outcome"
	var worth, critical weighted
	y := Yield{}
	for reason := range policy.Reason(policy.Reasons) {
		if reasonYield := c.Reasons[reason]; reasonYield != nil {
			worth.add(&reasonYield.Worth)
			critical.add(&reasonYield.Critical)
			y.Reasons = append(y.Reasons, ReasonYield{reason, reasonYield.Worth.share(whole + ", by reason"), reasonYield.Critical.share(whole + ", by reason")})
		}
	}
	y.Worth, y.Critical = worth.share(whole), critical.share(whole)
	return y
}

func confusion(c *tally) []Cell {
	var cells []Cell
	for _, predicted := range sortedKeys(c.Cells) {
		var all weighted
		row := c.Cells[predicted]
		for _, truth := range sortedKeys(row) {
			all.add(row[truth])
		}
		for _, truth := range sortedKeys(row) {
			w := row[truth]
			share := shareOf("inputs predicted so", w.Weight, all.Weight, w.Squares, all.Squares, 0)
			share.Events, share.Total = w.Total, all.Total
			cells = append(cells, Cell{Predicted: predicted, True: truth, Count: w.Total, Weight: w.Weight, Share: share})
		}
	}
	return cells
}

func calibration(c *tally) []RiskBin {
	bins := make([]RiskBin, len(c.Bins))
	for i := range c.Bins {
		b := &c.Bins[i]
		bins[i] = RiskBin{From: riskEdges[i], To: riskEdges[i+1], Expected: math.NaN(),
			Observed: b.Misses.share("retained inputs called safe with such a risk")}
		if b.Misses.Total > 0 {
			bins[i].Expected = b.Risk / b.Misses.Weight
		}
	}
	return bins
}

func readers(c *tally) Readers {
	r := &c.Readers
	return Readers{
		Agreement:     r.Agreement.share("inputs with a reading"),
		ReaderMisses:  r.Misses.share("inputs first read as not critical"),
		SecondWanted:  r.Wanted,
		SecondArrived: r.Arrived,
		Disputed:      r.Disputed,
		Blind:         r.Blind.share("first readings by people who had not seen the model's answer"),
		Sighted:       r.Sighted.share("first readings by people who had seen the model's answer"),
		Corrected:     r.Corrected,
	}
}

// shareOf returns the share p that events are of a whole, both sums of weights w, with the exact
// interval for as many events of weight 1 as have the variance of p, which is
//
//	(sum of w^2 of events (1-p)^2 + sum of w^2 of the others p^2) / whole^2.
//
// The weights of events matter most: misses have large ones, and hits small ones. Without any event,
// one is taken to have the typical weight, which is that of the whole if 0 is given.
func shareOf(named string, events, whole, eventSquares, squares, typical float64) Share {
	if !(whole > 0 && squares > 0) {
		return unknownShare(named)
	}
	p := min(1, events/whole)
	n := whole * whole / squares
	switch {
	case p > 0 && p < 1:
		n = p * (1 - p) * whole * whole / (eventSquares*(1-p)*(1-p) + max(0, squares-eventSquares)*p*p)
	case p == 0 && typical > 0:
		n = min(n, whole/typical)
	}
	s := Share{Of: named, Value: p}
	s.Low, s.High = binomial.Interval(p*n, n, level)
	s.Low, s.High = min(s.Low, p), max(s.High, p)
	return s
}

func unknownShare(of string) Share {
	return Share{Of: of, Value: math.NaN(), Low: math.NaN(), High: math.NaN()}
}

func unknownLimits() Limits { return Limits{math.NaN(), math.NaN(), math.NaN()} }

// storedPoint is a Point in JSON, which has no NaN.
type storedPoint struct {
	FNR  [6]*float64 `json:"fnr"`
	Rate [6]*float64 `json:"miss_rate"`
}

func storedPointOf(p *Point) storedPoint {
	pack := func(r *PointRisk) (out [6]*float64) {
		for i, v := range [6]float64{r.Value, r.Low, r.High, r.Cohort, r.Line, r.LogEvidence} {
			if !math.IsNaN(v) {
				out[i] = &v
			}
		}
		return out
	}
	return storedPoint{pack(&p.FNR), pack(&p.Rate)}
}

func (s *storedPoint) point(start int64) Point {
	unpack := func(packed [6]*float64) PointRisk {
		var v [6]float64
		for i := range v {
			v[i] = math.NaN()
			if packed[i] != nil {
				v[i] = *packed[i]
			}
		}
		return PointRisk{v[0], v[1], v[2], v[3], v[4], v[5]}
	}
	return Point{Start: time.UnixMicro(start).UTC(), FNR: unpack(s.FNR), Rate: unpack(s.Rate)}
}

// point returns the figures of the cohorts up to one. Evidence that was taken before is that of the
// point before it was replayed.
func point(c *cohortState, official *alarms, again *replay, taken *Point) Point {
	risk := func(of evidence.Risk, cohort *evidence.Estimate) PointRisk {
		w := watch{Risk: of, Class: -1}
		nan := math.NaN()
		r := PointRisk{Value: nan, Low: nan, High: nan, Cohort: cohort.Value(), Line: nan, LogEvidence: nan}
		if b := again.sequences[w]; b != nil {
			e := b.best.Estimate()
			r.Value = e.Value()
			r.Low, r.High = again.interval(w)
		}
		if a := official.byWatch[w]; a != nil {
			r.Line, r.LogEvidence = a.Line(), a.LogEvidence()
		}
		return r
	}
	point := Point{Start: time.UnixMicro(c.Start).UTC(), FNR: risk(evidence.FNR, &c.tally.Pooled[0]),
		Rate: risk(evidence.MissRate, &c.tally.Pooled[1])}
	if taken != nil {
		point.FNR.Line, point.FNR.LogEvidence = taken.FNR.Line, taken.FNR.LogEvidence
		point.Rate.Line, point.Rate.LogEvidence = taken.Rate.Line, taken.Rate.LogEvidence
	}
	return point
}

// newPointRisk returns the line of a risk, with no evidence yet.
func newPointRisk(official *alarms, of evidence.Risk) PointRisk {
	if a := official.byWatch[watch{Risk: of, Class: -1}]; a != nil {
		return PointRisk{Line: a.Line()}
	}
	return PointRisk{Line: math.NaN(), LogEvidence: math.NaN()}
}

// history reads the points of a promise.
func (p *promise) history(main *bolt.DB) ([]Point, error) {
	var points []Point
	err := main.View(func(tx *bolt.Tx) error {
		return promiseBucket(tx, p.key).Bucket(bucketHistory).ForEach(func(k, text []byte) error {
			var s storedPoint
			if err := json.Unmarshal(text, &s); err != nil {
				return err
			}
			points = append(points, s.point(timeOf(k)))
			return nil
		})
	})
	return points, err
}

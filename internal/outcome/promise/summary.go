package promise

import (
	"fmt"
	"math"
	"slices"
	"strings"
	"time"

	"github.com/ckd-project/ckd/internal/binomial"
	"github.com/ckd-project/ckd/internal/outcome/evidence"
	"github.com/ckd-project/ckd/internal/outcome/receipt"
	"github.com/ckd-project/ckd/internal/outcome/truth"
	"github.com/ckd-project/ckd/policy"
)

const (
	// lately is how many of the last mature cohorts are lately.
	lately = 28
	// mostMissing is the share of a stratum's outcomes that may be overdue while a promise holds, or of
	// decisions that no daemon told of; and the share of critical readings that may be unconfirmed, or
	// withdrawn.
	mostMissing = 0.05
	// doubtful is the logarithm of the evidence, as a share of its limit's, over which a promise is in
	// doubt.
	doubtful = 0.5
)

// pooled are sums over some cohorts.
type pooled struct {
	tally  *tally
	issued [receipt.Strata]Issued
	// due and overdue are by stratum; overdueWeight sums 1/pi of the overdue.
	due, overdue  [receipt.Strata]uint64
	overdueWeight [receipt.Strata]float64
	free          bool
}

func newPooled() *pooled { return &pooled{tally: newTally()} }

func (p *pooled) add(c *Cohort, s Settings) {
	counted := &c.Count.tally
	p.tally.add(counted)
	p.free = p.free || s.Free
	for s := range p.issued {
		arrived, untold, due := counted.Strata[s], counted.Untold[s], Issued{}
		arrived.Count -= untold.Count
		arrived.Weight -= untold.Weight
		if c.Told != nil {
			due = c.Told.Strata[s]
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
	return untold <= mostMissing*float64(p.due[k]+p.tally.Missing)
}

// Promise returns what outcomes say of a run. Cohorts that are mature have to be taken.
func (m *Model) Promise(r *Run, now time.Time) (*Promise, error) {
	t, mature := r.Terms, r.Mature(now)
	s := &Promise{Policy: t.Hash, Version: r.Name(), VersionHash: r.VersionHash, Model: t.Policy.Name,
		Classes: slices.Clone(t.Policy.Classes), Critical: slices.Clone(t.Policy.Critical), AsOf: now.UTC(), Audit: t.Policy.Audit}
	settled, last, all := newPooled(), newPooled(), newPooled()
	for i, c := range r.Cohorts {
		set := r.Settings(c)
		all.add(c, set)
		if i < mature {
			settled.add(c, set)
		}
		if i < mature && i >= mature-lately {
			last.add(c, set)
		}
	}
	fnrs := m.Alarms.fnrs(t, now)
	sequences, err := r.sequences(mature, fnrs)
	if err != nil {
		return nil, err
	}
	early := sequences
	if mature < len(r.Cohorts) {
		if early, err = r.extended(sequences.clone(), r.Cohorts[mature:]); err != nil {
			return nil, err
		}
	}
	again, err := m.again()
	if err != nil {
		return nil, err
	}
	b := summariser{t: t, fnrs: fnrs, slices: sliceNames(t.Policy.Audit), sensitivity: t.Sensitivity(), now: now}
	s.Mature = b.summary(settled, sequences)
	s.Provisional = b.summary(all, early)
	s.Provisional.Readers.Unconfirmed = s.Mature.Readers.Unconfirmed // others are not late yet
	if err := b.watch(&s.Mature, settled, last, m, again); err != nil {
		return nil, err
	}
	s.Since = again.since
	if e := m.Alarms.expected[t.Policy.Hash]; e != nil && !e.From.IsZero() {
		s.Expected = e
	}
	s.Cohorts = r.reach(mature)
	s.Strata = strataOf(all, settled, last, r.Cohorts)
	s.Traffic = traffic(all)
	s.History = slices.Clone(r.history)
	b.judge(s, settled)
	return s, nil
}

// reach says how far outcomes are due.
func (r *Run) reach(mature int) Cohorts {
	c := Cohorts{Period: time.Duration(r.Period) * time.Microsecond, Mature: mature, Open: len(r.Cohorts) - mature}
	due := SettingsOf(r.Terms.Policy.Audit).Due
	if n := len(r.Cohorts); n > 0 {
		due = r.Settings(r.Cohorts[n-1]).Due
		c.Since = time.UnixMicro(r.Cohorts[0].Start).UTC()
	}
	c.Due = time.Duration(due) * time.Microsecond
	if mature > 0 {
		c.Until = time.UnixMicro(r.Cohorts[mature-1].Start + r.Period).UTC()
	}
	if c.Open > 0 {
		c.NextMature = r.Maturity(r.Cohorts[mature])
	}
	return c
}

func strataOf(all, settled, last *pooled, cohorts []*Cohort) []Stratum {
	told := slices.ContainsFunc(cohorts, func(c *Cohort) bool { return c.Told != nil })
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
		s.FreeMet = !s.Free || !(s.Late.Value > mostMissing)
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
	t           *truth.Terms
	fnrs        []Watch // the critical FNRs to show
	slices      []sliceName
	sensitivity float64
	now         time.Time
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

func (b *summariser) summary(p *pooled, r *sequences) Summary {
	c := p.tally
	s := Summary{Decided: c.Decided, Confusion: confusion(c), Calibration: calibration(c), Readers: readers(c), Lag: c.lag(),
		Yield: yieldOf(c)}
	s.MissRate = b.watched(Watch{Risk: evidence.MissRate}, p, r)
	for _, k := range b.t.Policy.Critical {
		s.Classes = append(s.Classes, b.watched(Watch{Risk: evidence.MissRate, Class: b.t.Policy.Classes[k]}, p, r))
	}
	for _, w := range b.fnrs {
		s.FNRs = append(s.FNRs, b.watched(w, p, r))
	}
	for _, name := range b.slices {
		slice := riskTally{Estimate: evidence.Estimate{Of: evidence.MissRate}}
		if seen := c.Slices[name.hash]; seen != nil {
			slice = *seen
		}
		f := b.figure(Watch{Risk: evidence.MissRate, Slice: name.hash}, &slice, r)
		f.Slice = name.name
		s.Slices = append(s.Slices, f)
	}
	for k := range c.Kinds {
		kind := &c.Kinds[k]
		s.Kinds = append(s.Kinds, KindShare{Kind: truth.Kind(k), Decided: kind.Decided, MissRate: c.latest(&kind.MissRate)})
	}
	return s
}

// watched returns the figure of a watch, without what belongs to its line.
func (b *summariser) watched(w Watch, p *pooled, r *sequences) Figure {
	pooled := p.tally.Pooled.risk(w.Risk)
	if w.Class == "" {
		f := b.figure(w, pooled, r)
		f.Overdue = p.band(&pooled.Estimate)
		return f
	}
	risks := newRisks()
	if seen := p.tally.Classes[b.t.Classes[w.Class]]; seen != nil {
		risks = *seen
	}
	class := *risks.risk(w.Risk)
	class.Outcomes = pooled.Outcomes
	f := b.figure(w, &class, r)
	f.Class = w.Class
	return f
}

// figure returns a figure without what belongs to its line.
func (b *summariser) figure(w Watch, e *riskTally, r *sequences) Figure {
	nan := math.NaN()
	f := Figure{Risk: w.Risk, Outcomes: e.Outcomes, Critical: e.Critical, Misses: e.Misses, Disputed: e.Disputed, Value: e.Value(),
		Low: nan, High: nan, Unweighted: nan, Lately: unknownShare(wholeOf(w)), Overdue: unknownLimits(),
		AtSensitivity: unknownLimits(), Model: unknownLimits(), Line: nan, Needed: nan}
	if e.Critical+e.Disputed == 0 {
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

// wholeOf names what the risk of a watch is a share of.
func wholeOf(w Watch) string {
	whole := "critical inputs"
	if w.Class != "" {
		whole = "inputs of class " + w.Class
	}
	if w.Risk == evidence.FNR {
		whole = "retained " + whole
	}
	return whole
}

// atSensitivity returns a risk if readers find only a share s of the misses: of M misses and H hits
// as seen, M/s were there.
func atSensitivity(risk, s float64) float64 { return risk / (risk + (1-risk)*s) }

// band returns a risk with overdue outcomes as missed and as not missed: an overdue input called safe
// as critical or not, any other as uncritical or critical. Its ends take the sampling error of one look
// into account. Where nothing is overdue there is no band.
func (p *pooled) band(e *evidence.Estimate) Limits {
	hits := p.overdueWeight[receipt.CalledCritical]
	if e.Of == evidence.MissRate {
		hits += p.overdueWeight[receipt.Deferred]
	}
	misses := p.overdueWeight[receipt.CalledSafe]
	told := p.told(receipt.Deferred) && p.told(receipt.CalledCritical) && p.told(receipt.CalledSafe)
	if !told || hits+misses == 0 || e.WeightedCritical+hits+misses == 0 {
		return unknownLimits()
	}
	// Overdue inputs weigh as much on average as those that came.
	heavy := 0.0
	if n := p.overdue[receipt.CalledSafe]; n > 0 {
		heavy = misses * misses / float64(n)
	}
	typical := p.tally.typical()
	least := shareOf("", e.WeightedMisses, e.WeightedCritical+hits, e.SquaredMisses, e.SquaredCritical+hits, typical)
	most := shareOf("", e.WeightedMisses+misses, e.WeightedCritical+misses, e.SquaredMisses+heavy, e.SquaredCritical+heavy, typical)
	band := Limits{e.Value(), 0, 1}
	if least.Known() {
		band.Low = least.Low
	}
	if most.Known() {
		band.High = most.High
	}
	if e.Critical > 0 {
		band.Low, band.High = min(band.Low, band.Value), max(band.High, band.Value)
	}
	return band
}

// watch adds to the figures of mature cohorts what belongs to the lines and the alarms of the model.
func (b *summariser) watch(s *Summary, settled, last *pooled, m *Model, again *replay) error {
	var decisions uint64
	for _, i := range settled.issued {
		decisions += i.Decisions
	}
	lines := m.Alarms.linesFrom(b.t.Policy.Hash, b.now)
	for _, f := range s.Watched() {
		w := f.watch()
		class := -1
		if f.Class != "" {
			class = b.t.Classes[f.Class]
		}
		f.Lately = last.tally.rate(w, class)
		line, held := lines[w]
		if a := m.Alarms.byWatch[w]; a != nil && (held || a.Raised()) {
			if !held {
				line.Above = a.Line()
			}
			f.Monitor = monitor(a, again.alarms.byWatch[w])
			if a.Raised() {
				since, err := m.since(w)
				if err != nil {
					return err
				}
				f.Monitor.Since = since
			}
			if settled.tally.Decided > 0 && decisions > 0 {
				f.Monitor.RunLengthInputs = a.RunLength() * float64(decisions) / float64(max(f.Outcomes, 1))
			}
		} else if held {
			f.Monitor = &Monitor{RunLength: values(lines).runLength(w, b.t.RunLength()), RunLengthInputs: math.NaN()}
		} else {
			continue
		}
		f.Line, f.LineOrigin = line.Above, line.Origin
		if f.Class == "" {
			f.Model = modelFigure(w, again.sequences)
		}
		f.judge()
	}
	return nil
}

// modelFigure returns a risk over all policies and versions of the model.
func modelFigure(w Watch, s *sequences) Limits {
	if s.byWatch[w] == nil {
		return unknownLimits()
	}
	e := s.estimate(w)
	low, high := s.interval(w)
	return Limits{e.Value(), low, high}
}

// monitor returns the state of an alarm, and of its replay.
func monitor(a, again *alarm) *Monitor {
	m := &Monitor{Evidence: a.Evidence(), RunLength: a.RunLength(), RunLengthInputs: math.NaN(), LogEvidence: a.LogEvidence(), Raised: a.Raised()}
	if a.Raised() {
		m.RaisedBy, m.RaisedAt = time.UnixMicro(a.raisedBy).UTC(), time.UnixMicro(a.raised).UTC()
	}
	if a.cleared != 0 {
		m.Cleared = time.UnixMicro(a.cleared).UTC()
	}
	if again != nil {
		m.Replayed = again.Evidence()
		m.Changed = m.Replayed != m.Evidence
	}
	return m
}

// typical returns the mean weight of audits of inputs called safe, 0 without any: what a miss weighs
// where there is none to tell.
func (t *tally) typical() float64 {
	if safe := t.Strata[receipt.CalledSafe]; safe.Count > 0 {
		return safe.Weight / float64(safe.Count)
	}
	return 0
}

// latest returns a risk with an interval for one look. A miss weighs what audits of inputs called safe
// weigh on average, if there is none to tell.
func (t *tally) latest(e *evidence.Estimate) Share {
	share := shareOf(wholeOf(Watch{Risk: e.Of}), e.WeightedMisses, e.WeightedCritical, e.SquaredMisses, e.SquaredCritical, t.typical())
	share.Events, share.Total = e.Misses, e.Critical
	return share
}

// judge says whether the risk holds its line. The limit is that of the policy's own outcomes, or that of
// the model's over all its policies while the policy's own are few and do not speak against it.
func (f *Figure) judge() {
	limit := f.AtSensitivity.High
	if !(f.Value > f.Line) && f.Model.High < f.Line {
		limit = min(f.Model.High, orOne(limit))
	}
	switch {
	case f.Monitor.Raised:
		f.Verdict = Violated
	case f.Monitor.LogEvidence > doubtful, f.Low > f.Line, f.Model.Low > f.Line:
		f.Verdict = InDoubt
	case limit < f.Line:
		f.Verdict, f.Needed = Holding, 0
	default:
		f.Verdict = TooFew
		// The upper limit comes closer to the value as one over the square root of the outcomes.
		if room := f.Line - f.AtSensitivity.Value; room > 0 && f.Outcomes > 0 {
			far := f.AtSensitivity.High - f.AtSensitivity.Value
			f.Needed = math.Ceil(float64(f.Outcomes) * (far*far/(room*room) - 1))
		}
	}
}

// orOne returns a limit, 1 where nothing is known.
func orOne(limit float64) float64 {
	if math.IsNaN(limit) {
		return 1
	}
	return limit
}

// judge says whether the promise is kept, and what stands against it.
func (b *summariser) judge(s *Promise, settled *pooled) {
	s.Verdict = NoLine
	for _, f := range s.Mature.Watched() {
		if f.Monitor == nil {
			continue
		}
		pooled := f.Class == ""
		s.Alarm = s.Alarm || pooled && f.Monitor.Raised
		if pooled || f.Verdict == Violated { // few outcomes of a class do not stand against the others
			s.Verdict = max(s.Verdict, f.Verdict)
			s.Why = append(s.Why, b.against(f)...)
		}
	}
	if s.Verdict == NoLine {
		s.Why = append(s.Why, "the policy has no line: its calibration expects no critical miss rate, and nobody has stated one")
	}
	missing := b.missing(s, settled)
	s.Why = append(s.Why, missing...)
	if len(missing) > 0 && s.Verdict == Holding {
		s.Verdict = TooFew
	}
}

// against says what a figure says against the promise.
func (b *summariser) against(f *Figure) []string {
	name := f.watch()
	switch f.Verdict {
	case Violated:
		return []string{fmt.Sprintf("the alarm of the %s is up", name)}
	case InDoubt:
		if f.Monitor.LogEvidence > doubtful {
			return []string{fmt.Sprintf("the evidence that the %s is above its line is at %.2f, of 1 that raises the alarm", name, f.Monitor.LogEvidence)}
		}
		return []string{fmt.Sprintf("the interval of the %s lies above its line %.3g", name, f.Line)}
	case TooFew:
		return []string{b.tooFew(f)}
	}
	return nil
}

// missing says which outcomes are missing that a promise needs to hold.
func (b *summariser) missing(s *Promise, settled *pooled) (why []string) {
	for i := range s.Strata {
		k := &s.Strata[i]
		if !settled.told(k.Stratum) {
			why = append(why, b.untold(k, settled.tally.Missing))
		}
		if k.Late.Value > mostMissing || k.Lately.Value > mostMissing {
			why = append(why, fmt.Sprintf("%d of %d outcomes of %s are overdue, at most %v%% may be", k.Overdue, k.Due,
				inputsOf(k.Stratum), mostMissing*100))
			if k.Free {
				why = append(why, "inputs called critical count without a review only where 95% of their outcomes arrive: send them "+
					"whatever they say, or audit them (predicted-critical: audited)")
			}
		}
	}
	r := &s.Mature.Readers
	for what, n := range map[string]uint64{"were not confirmed by a second source": r.Unconfirmed, "were withdrawn by their source": r.Withdrawn} {
		if float64(n) > mostMissing*float64(r.Missed) {
			why = append(why, fmt.Sprintf("%d of %d inputs called safe and read as critical %s, at most %v%% may be", n, r.Missed, what, mostMissing*100))
		}
	}
	slices.Sort(why)
	return why
}

// inputsOf names the inputs of a stratum.
func inputsOf(s receipt.Stratum) string {
	if s == receipt.Deferred {
		return "deferred inputs"
	}
	return "inputs " + strings.ReplaceAll(s.String(), "_", " ")
}

// untold says that too many decisions of a stratum were not told of.
func (b *summariser) untold(k *Stratum, missing uint64) string {
	why := fmt.Sprintf("%d of %d outcomes due of %s are of decisions that no daemon has told of, at most %v%% may be",
		k.Untold, k.Due, inputsOf(k.Stratum), mostMissing*100)
	if missing > 0 {
		why += fmt.Sprintf("; at least %d more receipts were issued beside them", missing)
	}
	return why + ": what is missing is not known"
}

func (b *summariser) tooFew(f *Figure) string {
	name := f.watch()
	if math.IsNaN(f.Value) {
		return fmt.Sprintf("the %s is not known: no critical outcome is mature", name)
	}
	if math.IsNaN(f.Needed) {
		return fmt.Sprintf("the %s is estimated at %.3g, no less than its line %.3g", name, f.AtSensitivity.Value, f.Line)
	}
	return fmt.Sprintf("the upper limit %.3g of the %s is not below its line %.3g: about %.0f further outcomes would do",
		f.AtSensitivity.High, name, f.Line, f.Needed)
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
	for _, predicted := range sorted(c.Cells) {
		var all weighted
		row := c.Cells[predicted]
		for _, truth := range sorted(row) {
			all.add(row[truth])
		}
		for _, truth := range sorted(row) {
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
		Missed:        r.Missed,
		Unconfirmed:   r.Unconfirmed,
		Withdrawn:     r.Withdrawn,
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

func unknownShare(whole string) Share {
	return Share{Of: whole, Value: math.NaN(), Low: math.NaN(), High: math.NaN()}
}

func unknownLimits() Limits { return Limits{math.NaN(), math.NaN(), math.NaN()} }

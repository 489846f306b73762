package promise

import (
	"encoding/binary"
	"encoding/hex"
	"encoding/json"
	"math"
	"slices"
	"time"

	"github.com/ckd-project/ckd/internal/outcome/evidence"
	"github.com/ckd-project/ckd/internal/outcome/receipt"
	"github.com/ckd-project/ckd/internal/outcome/truth"
)

// A Cohort is the decisions of one period of a policy and model version.
type Cohort struct {
	Start int64
	// Told is what daemons told of it; nil if none did.
	Told *Told
	// Count is what its decisions add up to. It is replaced, and never changed.
	Count *Count
	// Outcomes says that it has decisions with an outcome.
	Outcomes bool
	// Bets are those with which the evidence took it, and Noted the evidence after that; nil before.
	Bets  *Bets
	Noted *Noted
}

// Noted is the evidence of the pooled miss rate and FNR when a cohort was taken; NaN without a line.
type Noted struct{ Line, LogEvidence [2]float64 }

// MarshalJSON writes null for NaN.
func (n *Noted) MarshalJSON() ([]byte, error) {
	var out [2][2]*float64
	for i := range 2 {
		for j, v := range []float64{n.Line[i], n.LogEvidence[i]} {
			if !math.IsNaN(v) {
				out[i][j] = &v
			}
		}
	}
	return json.Marshal(out)
}

// UnmarshalJSON reads what MarshalJSON wrote.
func (n *Noted) UnmarshalJSON(text []byte) error {
	var in [2][2]*float64
	if err := json.Unmarshal(text, &in); err != nil {
		return err
	}
	value := func(v *float64) float64 {
		if v == nil {
			return math.NaN()
		}
		return *v
	}
	for i := range 2 {
		n.Line[i], n.LogEvidence[i] = value(in[i][0]), value(in[i][1])
	}
	return nil
}

// A Run is the cohorts of one policy and model version.
type Run struct {
	Terms       *truth.Terms
	Number      int64 // orders the runs of a model
	Version     string
	VersionHash uint64
	Period      int64     // of its cohorts, in microseconds: it stays, whatever becomes of due
	Cohorts     []*Cohort // by Start

	taken   taken      // that sequences and history are of
	settled *sequences // over the cohorts taken
	history []Point
}

// taken says which counts a cached figure rests on.
type taken []*Count

// extends reports whether t begins with all of o.
func (t taken) extends(o taken) bool { return len(t) >= len(o) && slices.Equal(t[:len(o)], o) }

// Name returns the version's text, or its hash while the text is unknown.
func (r *Run) Name() string {
	if r.Version == "" && r.VersionHash != receipt.VersionHash("") {
		return hex.EncodeToString(binary.BigEndian.AppendUint64(nil, r.VersionHash))
	}
	return r.Version
}

// Settings returns the audits in force in a cohort.
func (r *Run) Settings(c *Cohort) Settings {
	switch {
	case c.Bets != nil:
		return c.Bets.Settings
	case c.Told != nil:
		return c.Told.Settings
	}
	return SettingsOf(r.Terms.Policy.Audit)
}

// Maturity returns when the outcomes of a cohort are all due.
func (r *Run) Maturity(c *Cohort) time.Time {
	return time.UnixMicro(c.Start + r.Period + r.Settings(c).Due).UTC()
}

// Mature returns how many cohorts, the first ones, are mature. One that is not holds up those after
// it: evidence takes cohorts in order.
func (r *Run) Mature(now time.Time) int {
	n := 0
	for n < len(r.Cohorts) && !now.Before(r.Maturity(r.Cohorts[n])) {
		n++
	}
	return n
}

// Cohort returns the cohort that begins at a time, and makes it if there is none.
func (r *Run) Cohort(start int64) *Cohort {
	place, found := slices.BinarySearchFunc(r.Cohorts, start, func(c *Cohort, start int64) int {
		switch {
		case c.Start < start:
			return -1
		case c.Start > start:
			return 1
		}
		return 0
	})
	if !found {
		r.Cohorts = slices.Insert(r.Cohorts, place, &Cohort{Start: start, Count: Empty()})
	}
	return r.Cohorts[place]
}

// sequences returns the confidence sequences over the first cohorts, with those of some critical FNRs.
func (r *Run) sequences(n int, fnrs []Watch) (*sequences, error) {
	var counts taken
	for _, c := range r.Cohorts[:n] {
		if c.Bets == nil {
			break
		}
		counts = append(counts, c.Count)
	}
	if r.settled == nil || !counts.extends(r.taken) || !slices.Equal(r.settled.fnrs, fnrs) {
		r.settled, r.history, r.taken = newSequences(false, fnrs), nil, nil
	}
	for i := len(r.taken); i < len(counts); i++ {
		c := r.Cohorts[i]
		if err := r.settled.take(r.Terms, c.Bets.Settings, c.Count.steps); err != nil {
			return nil, err
		}
		if c.Outcomes {
			r.history = append(r.history, r.point(c))
		}
		r.taken = counts[:i+1]
	}
	if len(counts) == n {
		return r.settled, nil
	}
	return r.extended(r.settled.clone(), r.Cohorts[len(counts):n])
}

// extended adds cohorts that were not taken yet.
func (r *Run) extended(s *sequences, cohorts []*Cohort) (*sequences, error) {
	for _, c := range cohorts {
		if !c.Outcomes {
			continue
		}
		if err := s.take(r.Terms, c.Count.lowest.lower(r.Settings(c)), c.Count.steps); err != nil {
			return nil, err
		}
	}
	return s, nil
}

// point returns the figures of the cohorts up to the last taken.
func (r *Run) point(c *Cohort) Point {
	risk := func(i int, of evidence.Risk) PointRisk {
		w := Watch{Risk: of}
		nan := math.NaN()
		p := PointRisk{Value: nan, Low: nan, High: nan, Cohort: nan, Line: c.Noted.Line[i], LogEvidence: c.Noted.LogEvidence[i]}
		if r.settled.byWatch[w] != nil {
			e := r.settled.estimate(w)
			p.Value = e.Value()
			p.Low, p.High = r.settled.interval(w)
			p.Cohort = c.Count.tally.Pooled.risk(of).Value()
		}
		return p
	}
	return Point{Start: time.UnixMicro(c.Start).UTC(), Rate: risk(0, evidence.MissRate), FNR: risk(1, evidence.FNR)}
}

// A Model is all runs of one model, and its alarms.
type Model struct {
	Name   string
	Runs   []*Run // by Number
	Alarms *Alarms

	taken  taken // that the replay is of
	replay *replay
}

// replay is the evidence of a model over the outcomes as they are now, and its average since an alarm last
// ended.
type replay struct {
	alarms    *Alarms
	sequences *sequences
	since     time.Time
}

// NewModel returns a model without runs.
func NewModel(name string) *Model { return &Model{Name: name, Alarms: newAlarms()} }

// A Step is a cohort of a run.
type Step struct {
	Run    *Run
	Cohort *Cohort
}

// Place returns its place among the cohorts of its model.
func (s Step) Place() Place { return Place{s.Cohort.Start, s.Run.Number} }

// steps returns all cohorts in the order in which evidence takes them.
func (m *Model) steps() []Step {
	var all []Step
	for _, r := range m.Runs {
		for _, c := range r.Cohorts {
			all = append(all, Step{r, c})
		}
	}
	slices.SortFunc(all, func(a, b Step) int { return a.Place().Compare(b.Place()) })
	return all
}

// Pending returns the cohorts that evidence is to take now, in order: mature ones that it has not
// taken, up to the first that is not mature.
func (m *Model) Pending(now time.Time) []Step {
	var pending []Step
	for _, s := range m.steps() {
		if now.Before(s.Run.Maturity(s.Cohort)) {
			break
		}
		if s.Cohort.Bets == nil {
			pending = append(pending, s)
		}
	}
	return pending
}

// Bets returns what evidence is to bet on a cohort: its settings, lowered to the propensities that its
// receipts show, and the lines in force. It looks at no truth.
func (s Step) Bets(a *Alarms) *Bets {
	lines := values(a.linesFrom(s.Run.Terms.Policy.Hash, time.UnixMicro(s.Cohort.Start)))
	return &Bets{Settings: s.Cohort.Count.lowest.lower(s.Run.Settings(s.Cohort)), Lines: lines, RunLength: s.Run.Terms.RunLength()}
}

// Note returns the evidence of the pooled risks as it is now.
func (a *Alarms) Note() *Noted {
	n := &Noted{}
	for i, risk := range []evidence.Risk{evidence.MissRate, evidence.FNR} {
		n.Line[i], n.LogEvidence[i] = math.NaN(), math.NaN()
		if watched := a.byWatch[Watch{Risk: risk}]; watched != nil {
			n.Line[i], n.LogEvidence[i] = watched.Line(), watched.LogEvidence()
		}
	}
	return n
}

// again returns the evidence of the model over the outcomes as they are now.
func (m *Model) again() (*replay, error) {
	var counts taken
	var steps []Step
	for _, s := range m.steps() {
		if s.Cohort.Bets != nil {
			steps, counts = append(steps, s), append(counts, s.Cohort.Count)
		}
	}
	fnr := m.Alarms.modelFNR()
	if m.replay == nil || !counts.extends(m.taken) || !slices.Equal(m.replay.sequences.fnrs, fnr) {
		m.replay, m.taken = &replay{alarms: m.Alarms.replayed(), sequences: newSequences(true, fnr)}, nil
	}
	began := m.Alarms.began()
	for _, s := range steps[len(m.taken):] {
		if err := m.replay.alarms.take(s.Run.Terms, s.Place(), s.Cohort.Bets, s.Cohort.Count.steps); err != nil {
			return nil, err
		}
		if s.Place().Compare(began) <= 0 {
			continue
		}
		if m.replay.since.IsZero() {
			m.replay.since = time.UnixMicro(s.Cohort.Start).UTC()
		}
		if err := m.replay.sequences.take(s.Run.Terms, s.Cohort.Bets.Settings, s.Cohort.Count.steps); err != nil {
			return nil, err
		}
	}
	m.taken = counts
	return m.replay, nil
}

// Cleared forgets the replay: its evidence begins where that of the alarms does.
func (m *Model) Cleared() { m.replay = nil }

// Since is when the risk that an alarm is about seems to have risen, and what it has been since.
type Since struct {
	Start time.Time
	// Rate is weighted, with an interval for one look. It is chosen by looking: the start is the one
	// that makes the evidence largest.
	Rate Share
}

// since returns the onset of an alarm that is up: the begin of the cohort from which on the product of
// the bets, up to the cohort that raised it, is largest, on average over the bets. What comes after the
// alarm moves the rate since then, not the onset: what is to be looked at again stays the same.
func (m *Model) since(w Watch) (*Since, error) {
	watched := m.Alarms.byWatch[w]
	var (
		best  *Since
		most  = math.Inf(-1)
		gains evidence.Gains
		sum   = newTally()
	)
	for _, s := range slices.Backward(m.steps()) {
		line, held := 0.0, s.Cohort.Bets != nil
		if held {
			line, held = s.Cohort.Bets.Lines[w]
		}
		class, known := w.classIn(s.Run.Terms)
		if !held || !known || s.Place().Compare(watched.began) <= 0 {
			continue
		}
		sum.add(&s.Cohort.Count.tally)
		if s.Cohort.Start > watched.raisedBy {
			continue
		}
		err := s.Cohort.Count.steps.each(func(bool, uint64) {}, func(critical *step) {
			gains.Add(w.Risk, line, s.Cohort.Bets.Hit, critical.Observation(class, false))
		})
		if err != nil {
			return nil, err
		}
		if now := gains.LogMean(); now > most && s.Cohort.Outcomes {
			most = now
			best = &Since{Start: time.UnixMicro(s.Cohort.Start).UTC(), Rate: sum.rate(w, class)}
		}
	}
	return best, nil
}

// rate returns the share of a watch with an interval for one look.
func (t *tally) rate(w Watch, class int) Share {
	risks := &t.Pooled
	if class >= 0 {
		if risks = t.Classes[class]; risks == nil {
			return unknownShare(wholeOf(w))
		}
	}
	share := t.latest(&risks.risk(w.Risk).Estimate)
	share.Of = wholeOf(w)
	return share
}

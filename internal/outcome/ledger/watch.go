package ledger

import (
	"encoding/json"
	"fmt"
	"math"
	"slices"

	"github.com/ckd-project/ckd/internal/outcome/evidence"
	"github.com/ckd-project/ckd/internal/outcome/receipt"
)

// A watch names a risk that evidence is kept of.
type watch struct {
	Risk  evidence.Risk `json:"risk"`
	Class int           `json:"class"`           // -1 for all critical classes
	Slice uint16        `json:"slice,omitempty"` // 0 for all inputs
}

// name returns the name of a watch in the trail.
func (w watch) name(t *terms) string {
	if w.Class >= 0 && w.Class < len(t.policy.Classes) {
		return w.Risk.String() + " of " + t.policy.Classes[w.Class]
	}
	return w.Risk.String()
}

// lines returns the line of each watch that has one.
func (t *terms) lines() map[watch]float64 {
	lines := make(map[watch]float64)
	set := func(w watch, line float64) {
		if line > 0 && line < 1 {
			lines[w] = line
		}
	}
	given := t.policy.Lines()
	set(watch{Risk: evidence.FNR, Class: -1}, given.CriticalFNR)
	set(watch{Risk: evidence.MissRate, Class: -1}, given.CriticalMissRate)
	for _, c := range given.Classes {
		if k, known := t.classes[c.Class]; known {
			set(watch{Risk: evidence.FNR, Class: k}, c.CriticalFNR)
		}
	}
	return lines
}

// runLengths returns the run length of each watch with a line: the overall run length divided by
// its weight, which is 1/2 for the FNR, 1/4 for the miss rate, and 1/4 split over the classes.
func runLengths(lines map[watch]float64, overall float64) map[watch]float64 {
	classes := 0.0
	for w := range lines {
		if w.Class >= 0 {
			classes++
		}
	}
	lengths := make(map[watch]float64, len(lines))
	for w := range lines {
		switch {
		case w.Class >= 0:
			lengths[w] = overall * 4 * classes
		case w.Risk == evidence.MissRate:
			lengths[w] = overall * 4
		default:
			lengths[w] = overall * 2
		}
	}
	return lengths
}

// alarms are the alarms of a promise, over cohorts up to one.
type alarms struct {
	// Through begins the last cohort taken; math.MinInt64 before the first.
	Through int64
	byWatch map[watch]*alarm
}

type alarm struct {
	*evidence.Alarm
	// began is the last cohort that the alarm does not rest on: it began anew after that.
	began    int64
	raisedBy int64 // begins the cohort that raised it
	cleared  int64 // when a person took it down, in microseconds; 0 for never
}

func newAlarms() *alarms { return &alarms{Through: math.MinInt64, byWatch: make(map[watch]*alarm)} }

// set changes the lines and run lengths of the alarms. Evidence against a line that has changed
// begins anew; an alarm that is up stays up. It returns the watches that began anew.
func (a *alarms) set(lines, lengths map[watch]float64) (anew []watch) {
	for w, have := range a.byWatch {
		if _, wanted := lines[w]; !wanted && !have.Raised() {
			delete(a.byWatch, w)
		}
	}
	for w, line := range lines {
		have := a.byWatch[w]
		if have != nil && (have.Raised() || have.Line() == line && have.RunLength() == lengths[w]) {
			continue
		}
		a.byWatch[w] = &alarm{Alarm: evidence.NewAlarm(w.Risk, line, lengths[w]), began: a.Through}
		if have != nil {
			anew = append(anew, w)
		}
	}
	return anew
}

// anew returns an alarm of the same line whose evidence begins after a cohort.
func (a *alarm) anew(w watch, began int64) *alarm {
	return &alarm{Alarm: evidence.NewAlarm(w.Risk, a.Line(), a.RunLength()), began: began}
}

// begin fixes the bets of a cohort.
func (a *alarms) begin(s settings) {
	for w, watched := range a.byWatch {
		watched.BeginCohort(s.leastHit(w.Risk))
	}
}

func (s settings) leastHit(evidence.Risk) float64 { return s.Hit } // deferred inputs have 1, which is no less

// observe adds the evidence of a record.
func (a *alarms) observe(m *terms, r *Record, f *finding, start int64) {
	for w, alarm := range a.byWatch {
		if start <= alarm.began {
			continue
		}
		before := alarm.Raised()
		alarm.Observe(m.observe(r, f, w.Class, false))
		if alarm.Raised() && !before {
			alarm.raisedBy = start
		}
	}
}

func (a *alarms) clone() *alarms {
	c := &alarms{Through: a.Through, byWatch: make(map[watch]*alarm, len(a.byWatch))}
	for w, watched := range a.byWatch {
		copied := *watched
		state := *watched.Alarm
		copied.Alarm = &state
		c.byWatch[w] = &copied
	}
	return c
}

// storedAlarms is the JSON of alarms.
type storedAlarms struct {
	Through int64         `json:"through"`
	Alarms  []storedAlarm `json:"alarms"`
}

type storedAlarm struct {
	Watch    watch  `json:"watch"`
	State    []byte `json:"state"`
	Began    int64  `json:"began"`
	RaisedBy int64  `json:"raised_by"`
	Cleared  int64  `json:"cleared,omitempty"`
}

func (a *alarms) MarshalJSON() ([]byte, error) {
	s := storedAlarms{Through: a.Through}
	for w, alarm := range a.byWatch {
		state, err := alarm.AppendBinary(nil)
		if err != nil {
			return nil, err
		}
		s.Alarms = append(s.Alarms, storedAlarm{w, state, alarm.began, alarm.raisedBy, alarm.cleared})
	}
	return json.Marshal(s)
}

func (a *alarms) UnmarshalJSON(text []byte) error {
	var s storedAlarms
	if err := json.Unmarshal(text, &s); err != nil {
		return err
	}
	a.Through, a.byWatch = s.Through, make(map[watch]*alarm, len(s.Alarms))
	for _, stored := range s.Alarms {
		restored := &alarm{Alarm: new(evidence.Alarm), began: stored.Began, raisedBy: stored.RaisedBy, cleared: stored.Cleared}
		if err := restored.UnmarshalBinary(stored.State); err != nil {
			return err
		}
		a.byWatch[stored.Watch] = restored
	}
	return nil
}

// A replay is evidence over the outcomes as they are now.
type replay struct {
	alarms    *alarms
	sequences map[watch]*bounds
	bets      settings // of the cohort at hand
}

// level is the confidence of every interval.
const level = 0.95

// bounds is a confidence sequence, taken both ways where readers disagree. Both ways are one until
// they first do.
type bounds struct {
	best, worst *evidence.Sequence
}

func newReplay() *replay { return &replay{alarms: newAlarms(), sequences: make(map[watch]*bounds)} }

func (r *replay) clone() *replay {
	c := &replay{alarms: r.alarms.clone(), sequences: make(map[watch]*bounds, len(r.sequences)), bets: r.bets}
	for w, b := range r.sequences {
		copied := &bounds{best: b.best.Clone()}
		if b.worst != nil {
			copied.worst = b.worst.Clone()
		}
		c.sequences[w] = copied
	}
	return c
}

func (r *replay) begin(s settings) {
	r.bets = s
	r.alarms.begin(s)
	for w, b := range r.sequences {
		b.begin(w, s)
	}
}

func (b *bounds) begin(w watch, s settings) {
	b.best.BeginCohort(s.leastHit(w.Risk), s.Miss)
	if b.worst != nil {
		b.worst.BeginCohort(s.leastHit(w.Risk), s.Miss)
	}
}

// observe adds a record to all sequences that it is of.
func (r *replay) observe(m *terms, rec *Record, f *finding, start int64) {
	r.alarms.observe(m, rec, f, start)
	if f.critical < 0 {
		return // an uncritical input moves no limit
	}
	pooled := func(slice uint16) {
		r.add(watch{evidence.FNR, -1, slice}, m, rec, f)
		r.add(watch{evidence.MissRate, -1, slice}, m, rec, f)
	}
	pooled(0)
	for i, s := range rec.Receipt.Slices {
		if s != 0 && !slices.Contains(rec.Receipt.Slices[:i], s) {
			pooled(s)
		}
	}
	if rec.Receipt.Stratum != receipt.Deferred {
		r.add(watch{evidence.FNR, f.critical, 0}, m, rec, f)
		for _, k := range f.others {
			r.add(watch{evidence.FNR, k, 0}, m, rec, f)
		}
	}
}

func (r *replay) add(w watch, m *terms, rec *Record, f *finding) {
	b := r.sequences[w]
	if b == nil {
		b = &bounds{best: evidence.NewSequence(w.Risk, level)}
		b.begin(w, r.bets)
		r.sequences[w] = b
	}
	best, worst := m.observe(rec, f, w.Class, false), m.observe(rec, f, w.Class, true)
	if best != worst && b.worst == nil {
		b.worst = b.best.Clone()
	}
	b.best.Observe(best)
	if b.worst != nil {
		b.worst.Observe(worst)
	}
}

// interval returns the limits of a watch; 0 and 1 while nothing is known.
func (r *replay) interval(w watch) (low, high float64) {
	b := r.sequences[w]
	if b == nil {
		return 0, 1
	}
	low, high = b.best.Interval()
	if b.worst != nil {
		_, high = b.worst.Interval()
	}
	return low, high
}

// storedReplay is the JSON of a replay.
type storedReplay struct {
	Alarms    *alarms          `json:"alarms"`
	Sequences []storedSequence `json:"sequences"`
}

type storedSequence struct {
	Watch watch  `json:"watch"`
	Best  []byte `json:"best"`
	Worst []byte `json:"worst,omitempty"`
}

func (r *replay) MarshalJSON() ([]byte, error) {
	s := storedReplay{Alarms: r.alarms}
	for w, b := range r.sequences {
		stored := storedSequence{Watch: w}
		var err error
		if stored.Best, err = b.best.AppendBinary(nil); err != nil {
			return nil, err
		}
		if b.worst != nil {
			if stored.Worst, err = b.worst.AppendBinary(nil); err != nil {
				return nil, err
			}
		}
		s.Sequences = append(s.Sequences, stored)
	}
	return json.Marshal(s)
}

func (r *replay) UnmarshalJSON(text []byte) error {
	s := storedReplay{Alarms: newAlarms()}
	if err := json.Unmarshal(text, &s); err != nil {
		return err
	}
	r.alarms, r.sequences = s.Alarms, make(map[watch]*bounds, len(s.Sequences))
	for _, stored := range s.Sequences {
		b := &bounds{best: new(evidence.Sequence)}
		if err := b.best.UnmarshalBinary(stored.Best); err != nil {
			return fmt.Errorf("replay: %w", err)
		}
		if stored.Worst != nil {
			b.worst = new(evidence.Sequence)
			if err := b.worst.UnmarshalBinary(stored.Worst); err != nil {
				return fmt.Errorf("replay: %w", err)
			}
		}
		r.sequences[stored.Watch] = b
	}
	return nil
}

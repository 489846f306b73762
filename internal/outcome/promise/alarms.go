package promise

import (
	"cmp"
	"encoding/json"
	"maps"
	"math"
	"slices"
	"strings"
	"time"

	"github.com/ckd-project/ckd/internal/outcome/evidence"
	"github.com/ckd-project/ckd/internal/outcome/truth"
	"github.com/ckd-project/ckd/policy"
)

// A Watch names a risk of a model that evidence is kept of.
type Watch struct {
	Risk  evidence.Risk `json:"risk"`
	Class string        `json:"class,omitempty"` // empty for all critical classes
	Slice uint16        `json:"slice,omitempty"` // 0 for all inputs
}

// String returns the name of a watch in the trail and to people, such as "critical miss rate of
// melanoma".
func (w Watch) String() string { return figures[w.Risk].Of(w.Class) }

// figures names risks as policies do.
var figures = map[evidence.Risk]policy.Figure{evidence.MissRate: policy.CriticalMissRate, evidence.FNR: policy.CriticalFNR}

// classIn returns the position of the watched class in a policy, -1 for all classes, and whether the
// policy has it.
func (w Watch) classIn(t *truth.Terms) (class int, known bool) {
	if w.Class == "" {
		return -1, true
	}
	class, known = t.Classes[w.Class]
	return class, known
}

func (w Watch) compare(o Watch) int {
	if w.Risk != o.Risk {
		return int(w.Risk) - int(o.Risk)
	}
	return strings.Compare(w.Class, o.Class)
}

// Lines holds the line of each watch that has one.
type Lines map[Watch]float64

// runLength returns the run length of a watch: the overall run length divided by its weight, which is
// 1/2 for the miss rate, 1/4 for the FNR, and 1/4 split over the lines of classes. A weight without a
// line is not used: false alarms are then rarer than the run length says.
func (l Lines) runLength(watched Watch, overall float64) float64 {
	switch {
	case watched.Class != "":
		classes := 0.0
		for w := range l {
			if w.Class != "" {
				classes++
			}
		}
		return overall * 4 * classes
	case watched.Risk == evidence.FNR:
		return overall * 4
	default:
		return overall * 2
	}
}

// MarshalJSON writes the lines as a list.
func (l Lines) MarshalJSON() ([]byte, error) {
	list := make([]storedLine, 0, len(l))
	for w, line := range l {
		list = append(list, storedLine{w, line})
	}
	slices.SortFunc(list, func(a, b storedLine) int { return a.Watch.compare(b.Watch) })
	return json.Marshal(list)
}

// UnmarshalJSON reads what MarshalJSON wrote.
func (l *Lines) UnmarshalJSON(text []byte) error {
	var list []storedLine
	if err := json.Unmarshal(text, &list); err != nil {
		return err
	}
	*l = make(Lines, len(list))
	for _, line := range list {
		(*l)[line.Watch] = line.Line
	}
	return nil
}

type storedLine struct {
	Watch
	Line float64 `json:"line"`
}

// Bets are what evidence bets on a cohort: they are fixed before its outcomes are opened.
type Bets struct {
	Settings
	Lines     Lines   `json:"lines"`
	RunLength float64 `json:"run_length"` // of all monitors together
	// Final says that outcomes of the cohort were deleted: its count stays as it is.
	Final bool `json:"final,omitempty"`
}

// A Place is that of a cohort among all cohorts of a model: they are taken in this order.
type Place struct{ Start, Promise int64 }

// Compare orders places.
func (p Place) Compare(o Place) int {
	return cmp.Or(cmp.Compare(p.Start, o.Start), cmp.Compare(p.Promise, o.Promise))
}

// Alarms are the alarms of a model, over the cohorts that were taken.
type Alarms struct {
	byWatch map[Watch]*alarm
	last    Place // of the last cohort taken
	ended   []Ended
	lines   []Line   // in the order in which they were fixed
	heard   []string // hashes of the policies whose lines are among them
	// expected is what the outcomes of earlier policies said of each, when it was heard.
	expected map[string]*Expected
}

// Ended says how an alarm ended.
type Ended struct {
	Watch
	// Raised is when it was seen, At when it ended.
	Raised, At time.Time
	By, Reason string
	// Successor is the hash of the policy that answered it; empty where a person cleared it.
	Successor string
}

// Ended returns how alarms ended, the oldest first.
func (a *Alarms) Ended() []Ended { return a.ended }

type alarm struct {
	*evidence.Alarm
	began    Place // of the last cohort that the evidence does not rest on
	raisedBy int64 // begins the cohort that raised it
	raised   int64 // when that was seen
	cleared  int64 // when it was last taken down; 0 for never
	// recalled says that daemons remember it as up: an older copy of the ledger was put back.
	recalled bool
}

// Raised reports whether the alarm is up.
func (a *alarm) Raised() bool { return a.recalled || a.Alarm.Raised() }

// newAlarms returns the alarms of a model of which no cohort was taken.
func newAlarms() *Alarms {
	return &Alarms{byWatch: make(map[Watch]*alarm), last: Place{Start: math.MinInt64}}
}

// Clone returns a copy that can go on by itself.
func (a *Alarms) Clone() *Alarms {
	c := &Alarms{byWatch: make(map[Watch]*alarm, len(a.byWatch)), last: a.last, ended: slices.Clip(a.ended), lines: slices.Clip(a.lines), heard: slices.Clip(a.heard), expected: maps.Clone(a.expected)}
	for w, watched := range a.byWatch {
		copied := *watched
		state := *watched.Alarm
		copied.Alarm = &state
		c.byWatch[w] = &copied
	}
	return c
}

// Raised returns the watches whose alarm is up, in order.
func (a *Alarms) Raised() (up []Watch) {
	for w, watched := range a.byWatch {
		if watched.Raised() {
			up = append(up, w)
		}
	}
	slices.SortFunc(up, Watch.compare)
	return up
}

// Since returns the begin of the cohort that raised an alarm, and when that was seen.
func (a *Alarms) Since(w Watch) (cohort, seen time.Time) {
	return time.UnixMicro(a.byWatch[w].raisedBy).UTC(), time.UnixMicro(a.byWatch[w].raised).UTC()
}

// End takes an alarm down. Its evidence begins anew with the next cohort.
func (a *Alarms) End(e Ended) {
	up := a.byWatch[e.Watch]
	a.byWatch[e.Watch] = &alarm{Alarm: evidence.NewAlarm(e.Risk, up.Line(), up.RunLength()), began: a.last, cleared: e.At.UnixMicro()}
	a.ended = append(a.ended, e)
}

// Recall takes up an alarm that daemons remember, unless it is up, or has ended since it was raised. It
// returns whether it did.
func (a *Alarms) Recall(w Watch, raised time.Time) bool {
	if up := a.byWatch[w]; up != nil && up.Raised() {
		return false
	}
	if slices.ContainsFunc(a.ended, func(e Ended) bool { return e.Watch == w && !e.At.Before(raised) }) {
		return false
	}
	up := a.byWatch[w]
	if up == nil {
		line, _ := a.Standing(w)
		up = &alarm{Alarm: evidence.NewAlarm(w.Risk, line.Above, 0), began: Place{Start: math.MinInt64}}
		a.byWatch[w] = up
	}
	up.recalled, up.raised, up.raisedBy = true, raised.UnixMicro(), raised.UnixMicro()
	return true
}

// began returns the place of the last cohort before an alarm of a pooled risk ended, the latest such.
func (a *Alarms) began() Place {
	latest := Place{Start: math.MinInt64}
	for w, watched := range a.byWatch {
		if w.Class == "" && watched.began.Compare(latest) > 0 {
			latest = watched.began
		}
	}
	return latest
}

// Take adds the evidence of a cohort, and returns the alarms that it raised.
func (a *Alarms) Take(t *truth.Terms, at Place, bets *Bets, taken Taken, now time.Time) (raised []Watch, err error) {
	before := a.Raised()
	if err := a.take(t, at, bets, taken.steps); err != nil {
		return nil, err
	}
	for _, w := range a.Raised() {
		if !slices.Contains(before, w) {
			a.byWatch[w].raised = now.UnixMicro()
			raised = append(raised, w)
		}
	}
	return raised, nil
}

// watching is an alarm under the bets of a cohort.
type watching struct {
	*alarm
	class int // in the cohort's policy
}

func (a *Alarms) take(t *truth.Terms, at Place, bets *Bets, taken steps) error {
	var held []watching
	if at.Compare(a.last) > 0 {
		a.last = at
	}
	for w, line := range bets.Lines {
		watched := a.byWatch[w]
		if watched == nil {
			watched = &alarm{Alarm: evidence.NewAlarm(w.Risk, line, bets.Lines.runLength(w, bets.RunLength)), began: Place{Start: math.MinInt64}}
			a.byWatch[w] = watched
		}
		class, known := w.classIn(t)
		if !known || at.Compare(watched.began) <= 0 {
			continue
		}
		watched.Hold(line, bets.Lines.runLength(w, bets.RunLength))
		watched.BeginCohort(bets.Hit) // a deferred input has 1, which is no less
		held = append(held, watching{watched, class})
	}
	observe := func(watch watching, o evidence.Observation) {
		before := watch.Raised()
		watch.Observe(o)
		if watch.Raised() && !before {
			watch.raisedBy = at.Start
		}
	}
	return taken.each(func(retained bool, n uint64) {
		for _, watch := range held {
			for range n {
				observe(watch, evidence.Observation{Retained: retained, Propensity: 1})
			}
		}
	}, func(s *step) {
		for _, watch := range held {
			observe(watch, s.Observation(watch.class, false))
		}
	})
}

// replayed returns alarms without evidence whose beginnings are those of the official ones.
func (a *Alarms) replayed() *Alarms {
	again := newAlarms()
	for w, watched := range a.byWatch {
		again.byWatch[w] = &alarm{Alarm: evidence.NewAlarm(w.Risk, watched.Line(), watched.RunLength()), began: watched.began}
	}
	return again
}

type storedAlarm struct {
	Watch    Watch  `json:"watch"`
	State    []byte `json:"state"`
	Began    Place  `json:"began"`
	RaisedBy int64  `json:"raised_by,omitempty"`
	Raised   int64  `json:"raised,omitempty"`
	Cleared  int64  `json:"cleared,omitempty"`
	Recalled bool   `json:"recalled,omitempty"`
}

type storedAlarms struct {
	Last   Place         `json:"last"`
	Alarms []storedAlarm `json:"alarms"`
	Ended  []Ended       `json:"ended,omitempty"`
	Lines  []Line        `json:"lines,omitempty"`
	Heard  []string      `json:"heard,omitempty"`

	Expected map[string]*Expected `json:"expected,omitempty"`
}

// MarshalJSON writes the alarms as they are stored.
func (a *Alarms) MarshalJSON() ([]byte, error) {
	list := make([]storedAlarm, 0, len(a.byWatch))
	for w, watched := range a.byWatch {
		state, err := watched.AppendBinary(nil)
		if err != nil {
			return nil, err
		}
		list = append(list, storedAlarm{w, state, watched.began, watched.raisedBy, watched.raised, watched.cleared, watched.recalled})
	}
	slices.SortFunc(list, func(a, b storedAlarm) int { return a.Watch.compare(b.Watch) })
	return json.Marshal(storedAlarms{a.last, list, a.ended, a.lines, a.heard, a.expected})
}

// UnmarshalJSON reads what MarshalJSON wrote.
func (a *Alarms) UnmarshalJSON(text []byte) error {
	var stored storedAlarms
	if err := json.Unmarshal(text, &stored); err != nil {
		return err
	}
	a.last, a.ended, a.lines, a.heard, a.expected = stored.Last, stored.Ended, stored.Lines, stored.Heard, stored.Expected
	a.byWatch = make(map[Watch]*alarm, len(stored.Alarms))
	for _, entry := range stored.Alarms {
		restored := &alarm{Alarm: new(evidence.Alarm), began: entry.Began, raisedBy: entry.RaisedBy, raised: entry.Raised, cleared: entry.Cleared, recalled: entry.Recalled}
		if err := restored.UnmarshalBinary(entry.State); err != nil {
			return err
		}
		a.byWatch[entry.Watch] = restored
	}
	return nil
}

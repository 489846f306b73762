package year

import (
	"bytes"
	"cmp"
	"fmt"
	"iter"
	"math"
	"slices"
	"strings"
	"time"

	"github.com/ckd-project/ckd/internal/outcome/receipt"
)

const day = 24 * time.Hour

// The figures that the policies have a line for, in the order in which the ledger lists them: the critical
// miss rate, of all critical classes (-1) and of each, and the critical FNR, which is certified.
const watches, ofFNR = 4, 3

var watchedClass = [watches]int{-1, 2, 3, -1}

// weights are by how much the run length of each alarm is longer than that of all together.
var weights = [watches]float64{2, 8, 8, 4}

// watchNames name the figures in words.
var watchNames = [watches]string{"critical miss rate", "critical miss rate of " + classes[2], "critical miss rate of " + classes[3], "critical FNR"}

// account is what happened, as its own bookkeeper writes it down: decisions by their receipts, readings
// as they were sent. Its arithmetic is its own; of the daemon's code it uses nothing but the receipts' keys.
type account struct {
	promises map[promiseKey]*promise
	told     []*promise             // in the order in which the ledger was first told of them
	cleared  [watches]time.Time     // when the alarms last ended; zero for never
	recalled [watches]time.Time     // when those were raised that the ledger knows of from its daemons alone
	stuck    time.Time              // since when the ledger can write nothing; zero while it can
	statuses map[string]int         // answers of the ledger since it started, by status
	happened map[int]map[string]int // what happened to outcomes and audits, by month
	problems []string               // what was answered or decided otherwise than expected
}

// promiseKey names a promise.
type promiseKey struct{ policy, version string }

func (k promiseKey) String() string {
	return fmt.Sprintf("policy %.8s, version %s", k.policy, k.version)
}

// promise is the account of one policy and model version.
type promise struct {
	terms     terms
	lines     [watches]line
	decisions []*decision // in the order of time and receipt
	byInput   map[string][]*decision
}

// terms is what a policy promises, as the test wrote it.
type terms struct {
	rate                  float64
	cap                   float64 // audits an hour of a daemon; 0 for none
	free                  bool    // what is called critical is worked up anyway
	due                   time.Duration
	missRateLine, fnrLine float64
	runLength             float64
}

// leastHit returns the least probability of review that an input called critical can have.
func (t *terms) leastHit() float64 {
	if t.free {
		return 1
	}
	return t.rate
}

// pi returns the probability of review of an input of a stratum, before the cap.
func (t *terms) pi(s receipt.Stratum, surges bool) float64 {
	if s == receipt.Deferred || surges || s == receipt.CalledCritical && t.free {
		return 1
	}
	return t.rate
}

// decision is one decision with a receipt.
type decision struct {
	*promise
	id        string // of the input; the same for one that is sent again
	receipt   []byte
	number    receipt.ID
	at        time.Time
	stratum   receipt.Stratum
	pi        float64
	review    bool
	predicted int
	truth     int // what a reader who errs in nothing finds
	sampled   bool
	deleted   bool // its outcomes; what was counted of them stays
	untold    bool // the ledger does not know, or not yet, that it was issued
	readings  []reading
	found     *finding // by all readings; nil until it is asked for
}

// reading is one answer to the question what is true.
type reading struct {
	source   string
	kind     kind
	class    int
	sawModel bool
	at       time.Time // zero for when it was reported
	reported time.Time
}

// kind says how a truth was found out.
type kind int

const (
	look kind = iota
	followUp
	biopsy
)

func newAccount() *account {
	return &account{promises: map[promiseKey]*promise{}, statuses: map[string]int{}, happened: map[int]map[string]int{}}
}

// problem notes what went otherwise than expected.
func (a *account) problem(format string, args ...any) {
	a.problems = append(a.problems, fmt.Sprintf(format, args...))
}

// note counts what happened to an outcome or an audit in a month.
func (a *account) note(month int, what string) {
	if a.happened[month] == nil {
		a.happened[month] = map[string]int{}
	}
	a.happened[month][what]++
}

// end writes down that an alarm ended.
func (a *account) end(alarm int, now time.Time) {
	a.cleared[alarm], a.recalled[alarm] = now, time.Time{}
}

// add writes down a decision.
func (a *account) add(k promiseKey, t terms, d *decision) {
	p := a.promises[k]
	if p == nil {
		p = &promise{terms: t, lines: [watches]line{{above: t.missRateLine}, {above: classLine}, {above: classLine}, {above: t.fnrLine}}, byInput: map[string][]*decision{}}
		for i := range p.lines {
			p.lines[i].above = min(p.lines[i].above, a.line(i))
		}
		a.promises[k], a.told = p, append(a.told, p)
	}
	d.promise = p
	place, _ := slices.BinarySearchFunc(p.decisions, d, inOrder)
	p.decisions = slices.Insert(p.decisions, place, d)
	p.byInput[d.id] = append(p.byInput[d.id], d)
}

// all returns all decisions.
func (a *account) all() iter.Seq[*decision] {
	return func(yield func(*decision) bool) {
		for _, p := range a.told {
			for _, d := range p.decisions {
				if !yield(d) {
					return
				}
			}
		}
	}
}

// line is what a risk is held against: a policy lowers that of the model, and a person raises it for all
// policies, from the next day on.
type line struct {
	above  float64
	raised float64 // to this; 0 for never
	at     time.Time
}

// on returns the line in force at a time.
func (l *line) on(t time.Time) float64 {
	if l.raised > 0 && !l.at.After(t) {
		return l.raised
	}
	return l.above
}

// line returns the line of a figure that the model is held against.
func (a *account) line(i int) float64 {
	if len(a.told) == 0 {
		return 1
	}
	return a.told[len(a.told)-1].lines[i].on(endOfTime)
}

// inOrder orders the decisions of a promise as evidence takes them.
func inOrder(a, b *decision) int {
	return cmp.Or(a.at.Compare(b.at), bytes.Compare(a.number[:], b.number[:]))
}

// cohort returns the day of a decision.
func (d *decision) cohort() time.Time { return d.at.Truncate(day) }

// dueAt returns when the outcomes of the decision's day are all due.
func (d *decision) dueAt() time.Time { return d.cohort().Add(day + d.terms.due) }

// drawn reports whether the decision was retained and drawn for an audit.
func (d *decision) drawn() bool { return d.review && d.stratum != receipt.Deferred }

// reviewed reports whether someone finds out the truth: because the input was deferred or drawn, or because
// all inputs called critical are worked up anyway.
func (d *decision) reviewed() bool { return d.review || d.free() }

func (d *decision) free() bool { return d.terms.free && d.stratum == receipt.CalledCritical }

// counts returns the readings that count: of an audit those of each source to which no answer had gone out,
// unless it had seen the model's answer; of other decisions all. Of several by one source it is the latest.
func (d *decision) counts(before time.Time) (counting []reading) {
	last := map[string]int{}
	for i, r := range d.readings {
		if r.kind != look || !r.reported.Before(before) {
			continue
		}
		n, again := last[r.source]
		switch {
		case d.drawn() && (r.sawModel || d.wasAnswered(&d.readings[i])):
		case again && r.when().Before(counting[n].when()): // came late
		case again:
			counting[n] = r
		default:
			last[r.source] = len(counting)
			counting = append(counting, r)
		}
	}
	slices.SortStableFunc(counting, func(a, b reading) int { return cmp.Or(a.when().Compare(b.when()), cmp.Compare(a.source, b.source)) })
	return counting
}

// wasAnswered reports whether the source of a reading had been answered about the decision before.
func (d *decision) wasAnswered(r *reading) bool {
	return slices.ContainsFunc(d.readings, func(o reading) bool {
		return o.kind == r.kind && o.source == r.source && o.reported.Before(r.reported)
	})
}

// when returns when the truth was found.
func (r *reading) when() time.Time {
	if r.at.IsZero() {
		return r.reported
	}
	return r.at
}

// finding is what the readings of a decision add up to. Both critical and safe are set where readers
// disagree, none where nothing is known.
type finding struct {
	critical, safe bool
	torn           bool  // readers are even about which critical class it is
	classes        []int // the critical classes that it may be
	settled        bool  // by a biopsy or a follow-up, which no blind reading contradicts
	first          *reading
	readers        int
	apart          bool // a reading stays apart
	outweighed     bool // a biopsy or a follow-up contradicts a blind critical reading
	// missed inputs were called safe, and some reading says critical; withdrawn ones have had that taken back.
	missed, withdrawn bool
}

func (f *finding) known() bool    { return f.critical || f.safe }
func (f *finding) disputed() bool { return f.critical && f.safe }

// read writes down a reading.
func (d *decision) read(r reading) { d.readings, d.found = append(d.readings, r), nil }

// now adds up all readings.
func (d *decision) now() finding {
	if d.found == nil {
		f := d.find(endOfTime)
		d.found = &f
	}
	return *d.found
}

// find adds up the readings that were reported before a time.
func (d *decision) find(before time.Time) (f finding) {
	counting := d.counts(before)
	votes, byClass := 0, map[int]int{}
	for _, r := range counting {
		if isCritical(r.class) {
			votes++
			byClass[r.class]++
		}
	}
	f.readers = len(counting)
	if len(counting) > 0 {
		f.first = &counting[0]
		f.critical, f.safe = 2*votes >= len(counting), 2*votes <= len(counting)
		f.torn = f.critical && votes > 0 && byClass[2] == byClass[3]
	}
	var by *reading
	for i, r := range d.readings {
		switch {
		case !r.reported.Before(before):
		case r.kind == look:
			f.apart = f.apart || d.drawn() && (r.sawModel || d.wasAnswered(&d.readings[i]))
			f.missed = f.missed || isCritical(r.class) && !isCritical(d.predicted)
			f.withdrawn = f.withdrawn || f.missed && isCritical(r.class) && slices.ContainsFunc(d.readings, func(o reading) bool {
				return o.kind == look && o.source == r.source && o.reported.Before(before) && !isCritical(o.class) && r.when().Before(o.when())
			})
		case by == nil || r.kind > by.kind || r.kind == by.kind && r.when().After(by.when()):
			by = &d.readings[i]
		}
	}
	for _, k := range watchedClass[1:ofFNR] {
		if n := byClass[k]; n > 0 && n == max(byClass[2], byClass[3]) {
			f.classes = append(f.classes, k)
		}
	}
	blind := slices.ContainsFunc(counting, func(r reading) bool { return !r.sawModel && isCritical(r.class) })
	switch {
	case by == nil:
	case isCritical(by.class), !blind:
		f.settled, f.torn, f.critical, f.safe = true, false, isCritical(by.class), !isCritical(by.class)
		f.classes = []int{by.class}
	default: // what became of the case says safe where a blind reader said critical
		f.outweighed, f.torn, f.critical, f.safe = true, false, true, true
	}
	return f
}

// duplicate reports whether an equal input that was decided before counts in the decision's place, by the
// readings reported before a time.
func (d *decision) duplicate(before time.Time) bool {
	return slices.ContainsFunc(d.byInput[d.id], func(o *decision) bool {
		return inOrder(o, d) < 0 && slices.ContainsFunc(o.readings, func(r reading) bool { return r.reported.Before(before) })
	})
}

var endOfTime = time.Date(9999, 1, 1, 0, 0, 0, 0, time.UTC)

// stratum is what became of the decisions of one stratum.
type stratum struct {
	decisions, reviews    uint64
	expected              float64 // sum of pi
	due, arrived, overdue uint64  // of days whose outcomes are all due
	untold                uint64  // of those that arrived, although no daemon told of them
	apart                 uint64
}

// risk is a weighted share of misses. The sums are of 1/pi and of its square.
type risk struct {
	outcomes, critical, misses, disputed uint64
	weight, missed                       float64
	squares, missedSquares               float64
}

// value returns the ratio of the weighted sums, with its first-order bias removed (Beale 1962).
func (r *risk) value() float64 {
	if r.critical == 0 {
		return math.NaN()
	}
	return (r.missed + r.missedSquares/r.weight) / (r.weight + r.squares/r.weight)
}

// figures are sums over some days.
type figures struct {
	decided uint64
	risks   [watches]risk
	// wanted inputs were to be read a second time, confirmed ones have been.
	wanted, confirmed, disputed    uint64
	missed, unconfirmed, withdrawn uint64
}

// isMature reports whether the outcomes of the decision's day are all due.
func (d *decision) isMature(now time.Time) bool { return !now.Before(d.dueAt()) }

// strata sums what was issued and came back, by stratum.
func (p *promise) strata(now time.Time) (all [receipt.Strata]stratum) {
	for _, d := range p.decisions {
		s, f := &all[d.stratum], d.now()
		if !d.untold {
			s.decisions++
			s.expected += d.pi
			if d.review {
				s.reviews++
			}
		}
		if !d.reviewed() {
			continue
		}
		if !f.known() && f.apart {
			s.apart++
		}
		if !d.isMature(now) {
			continue
		}
		switch {
		case f.known() && d.untold:
			s.untold++
			fallthrough
		case f.known():
			s.due++
			s.arrived++
		case !d.untold:
			s.due++
			s.overdue++
		}
	}
	return all
}

// figures sums what is known of the days whose outcomes are all due, or of all days.
func (p *promise) figures(now time.Time, all bool) (sum figures) {
	for _, d := range p.decisions {
		if !d.reviewed() || !all && !d.isMature(now) || d.duplicate(endOfTime) {
			continue
		}
		f := d.now()
		sum.addReaders(d, &f)
		if !f.known() {
			continue
		}
		sum.decided++
		w := 1 / d.pi
		for i := range sum.risks {
			if i == ofFNR && d.stratum == receipt.Deferred {
				continue
			}
			r := &sum.risks[i]
			missed, critical := d.observe(&f, i)
			r.outcomes++
			if class := watchedClass[i]; f.disputed() && class < 0 || f.critical && slices.Contains(f.classes, class) && (f.disputed() || len(f.classes) > 1) {
				r.disputed++
			}
			if critical {
				r.critical++
				r.weight, r.squares = r.weight+w, r.squares+w*w
			}
			if missed {
				r.misses++
				r.missed, r.missedSquares = r.missed+w, r.missedSquares+w*w
			}
		}
	}
	return sum
}

// observe returns whether an input is critical, of the class of a figure if it has one, and whether it was
// missed. Where readers disagree, it is what makes the risk smaller.
func (d *decision) observe(f *finding, figure int) (missed, critical bool) {
	calledSafe, class := d.stratum == receipt.CalledSafe, watchedClass[figure]
	could, must := f.critical, !f.safe
	if class >= 0 {
		could, must = could && slices.Contains(f.classes, class), must && len(f.classes) == 1
	}
	critical = could && (must || !calledSafe)
	return critical && calledSafe, critical
}

// addReaders adds how the readers of a decision agree.
func (f *figures) addReaders(d *decision, found *finding) {
	confirmed := found.readers > 1 || found.settled
	if found.missed {
		f.missed++
		if !confirmed {
			f.unconfirmed++
		}
		if found.withdrawn {
			f.withdrawn++
		}
	}
	if found.missed || d.sampled && found.first != nil {
		f.wanted++
		if confirmed {
			f.confirmed++
		}
	}
	if found.first != nil && !found.settled && !found.outweighed && (found.disputed() || found.torn) {
		f.disputed++
	}
}

// evidence is an alarm's.
type evidence struct {
	value    float64
	limit    float64
	raised   bool
	raisedBy time.Time // the day
}

// mature returns the decisions whose outcomes are all due, in the order in which evidence takes them: by days,
// and of one day by promises.
func (a *account) mature(now time.Time) (due []*decision) {
	for d := range a.all() {
		if d.isMature(now) && d.reviewed() {
			due = append(due, d)
		}
	}
	slices.SortStableFunc(due, func(x, y *decision) int { return x.cohort().Compare(y.cohort()) })
	return due
}

// evidence weighs what the days whose outcomes are all due say against the line of each figure: the mean of ten Shiryaev-Roberts statistics, each of one bet, over the outcomes that had
// come in time. Each is bet against the line of its policy. What the ledger cannot store waits.
func (a *account) evidence(now time.Time) (all [watches]evidence) {
	if !a.stuck.IsZero() {
		now = a.stuck
	}
	for i, raised := range a.recalled {
		all[i].raised, all[i].raisedBy = !raised.IsZero(), raised
	}
	var sums [watches][10]float64
	for _, d := range a.mature(now) {
		due := d.dueAt()
		f := d.find(due)
		if !f.known() || d.duplicate(due) {
			continue
		}
		for i := range all {
			if !a.cleared[i].Before(due) || i == ofFNR && d.stratum == receipt.Deferred {
				continue
			}
			missed, critical := d.observe(&f, i)
			e, line, limit := &all[i], d.lines[i].on(d.cohort()), weights[i]*d.terms.runLength
			e.value, e.limit = 0, limit
			for k := range sums[i] {
				factor := 1.0
				if critical {
					stake := 0.98 * d.terms.leastHit() / d.pi / math.Pow(2, float64(k))
					factor = 1 - stake
					if missed {
						factor = 1 + stake*(1-line)/line
					}
				}
				sums[i][k] = (1 + sums[i][k]) * factor
				e.value += sums[i][k] / 10
			}
			if e.value >= limit && !e.raised {
				e.raised, e.raisedBy = true, d.cohort()
			}
		}
	}
	return all
}

// isDoubtful reports whether the evidence is over half of what raises the alarm, on the scale of logarithms.
func (e *evidence) isDoubtful() bool { return math.Log1p(e.value) > 0.5*math.Log1p(e.limit) }

// mayHold reports why a promise must not be called holding, by the rules; empty if it may.
func (p *promise) mayHold(now time.Time) (why string) {
	f, strata := p.figures(now, false), p.strata(now)
	var reasons []string
	for s := receipt.Deferred; s <= receipt.CalledSafe; s++ {
		if n := &strata[s]; float64(max(n.overdue, n.untold)) > 0.05*float64(n.due) {
			reasons = append(reasons, fmt.Sprintf("of %d reviews of stratum %v %d are overdue, and no daemon told of %d", n.due, s, n.overdue, n.untold))
		}
	}
	for what, n := range map[string]uint64{"unconfirmed": f.unconfirmed, "withdrawn": f.withdrawn} {
		if float64(n) > 0.05*float64(f.missed) {
			reasons = append(reasons, fmt.Sprintf("%d of %d readings that call a miss are %s", n, f.missed, what))
		}
	}
	for _, i := range []int{0, ofFNR} {
		if v, line := f.risks[i].value(), p.lines[i].on(now); v > line {
			reasons = append(reasons, fmt.Sprintf("the %s is %.3g, the line %.3g", watchNames[i], v, line))
		}
	}
	return strings.Join(reasons, "; ")
}

package ledger

import (
	"bytes"
	"cmp"
	"context"
	"encoding/hex"
	"encoding/json"
	"errors"
	"fmt"
	"slices"
	"sync"
	"sync/atomic"
	"time"

	bolt "go.etcd.io/bbolt"

	"github.com/ckd-project/ckd/internal/outcome/evidence"
	"github.com/ckd-project/ckd/internal/outcome/receipt"
)

// A promise holds the state of one promise in memory. promises.mu guards it.
type promise struct {
	key      promiseKey
	info     info
	loaded   bool
	cohorts  []*cohortState // by start
	official *alarms
	replay   *replay
	state    *Promise  // as last computed
	next     time.Time // when the next cohort matures; zero for none
	terms    *terms    // that state was computed with
}

// cohortState is a cohort with its tally.
type cohortState struct {
	cohort
	sums  *sums  // nil if no daemon told of it
	tally *tally // nil until it is needed
}

// settings returns the audits in force in the cohort.
func (c *cohortState) settings(t *terms) settings {
	switch {
	case c.Bets != nil:
		return *c.Bets
	case c.sums != nil && c.sums.Settings != nil:
		return *c.sums.Settings
	}
	return settingsOf(t.policy.Audit)
}

// promises are the states of all promises. Only what is read from ledger.db or follows from it is in
// memory: a promise whose write failed is read again. Promises are added and never removed.
//
// Its lock is taken before those of the inbox, and held while promises are brought up to date.
type promises struct {
	*store
	inbox *inbox

	mu    sync.Mutex // guards what follows
	byKey map[promiseKey]*promise

	last  atomic.Pointer[recent] // all states as last computed; nil for never
	reads atomic.Int64           // records read to count or replay them, for tests
}

func newPromises(st *store, box *inbox) *promises {
	return &promises{store: st, inbox: box, byKey: make(map[promiseKey]*promise)}
}

// load finds the promises. What they hold is read when it is first asked for.
func (ps *promises) load(all *bolt.Bucket) error {
	return all.ForEachBucket(func(name []byte) error {
		key := promiseKeyOf(name)
		ps.byKey[key] = &promise{key: key}
		return nil
	})
}

// find adds promises that were made since. The caller holds mu.
func (ps *promises) find() error {
	return ps.main.View(func(tx *bolt.Tx) error {
		return tx.Bucket(bucketPromises).ForEachBucket(func(name []byte) error {
			key := promiseKeyOf(name)
			if ps.byKey[key] == nil {
				ps.byKey[key] = &promise{key: key}
			}
			return nil
		})
	})
}

// State returns the state of a policy and model version, computed anew where anything changed.
func (l *Ledger) State(policy [32]byte, version string) (*Promise, error) {
	return l.promises.state(policy, version)
}

// state returns the state of one promise.
func (ps *promises) state(policy [32]byte, version string) (*Promise, error) {
	ps.mu.Lock()
	defer ps.mu.Unlock()
	if err := ps.prepare(); err != nil {
		return nil, err
	}
	p := ps.byKey[promiseKey{policy, receipt.VersionHash(version)}]
	if p == nil {
		return nil, fmt.Errorf("policy %x, version %q: %w", policy[:4], version, ErrNoPromise)
	}
	return ps.refresh(p)
}

// States returns the states of all promises, computed anew where anything changed, in the order of
// their models, policies and versions.
func (l *Ledger) States() ([]*Promise, error) { return l.promises.all() }

// all returns all states, and keeps them for recent.
func (ps *promises) all() ([]*Promise, error) {
	ps.mu.Lock()
	defer ps.mu.Unlock()
	return ps.compute()
}

// compute returns all states, and keeps them for recent. The caller holds mu.
func (ps *promises) compute() ([]*Promise, error) {
	const share = 20
	began := time.Now()
	states, err := ps.states()
	if err != nil {
		return nil, err
	}
	ps.last.Store(&recent{states: states, until: began.Add(share * time.Since(began))})
	return states, nil
}

// states returns all states. The caller holds mu.
func (ps *promises) states() ([]*Promise, error) {
	if err := ps.prepare(); err != nil {
		return nil, err
	}
	states := make([]*Promise, 0, len(ps.byKey))
	for _, p := range ps.byKey {
		s, err := ps.refresh(p)
		if err != nil {
			return nil, err
		}
		states = append(states, s)
	}
	slices.SortFunc(states, func(a, b *Promise) int {
		return cmp.Or(cmp.Compare(a.Model, b.Model), bytes.Compare(a.Policy[:], b.Policy[:]), cmp.Compare(a.Version, b.Version))
	})
	return states, nil
}

// recent remembers all states.
type recent struct {
	states []*Promise
	until  time.Time // when they may be computed again
}

// Recent returns the states that were computed last, and computes them anew only so often that this
// takes at most a twentieth of the time. It does not wait for another computation, but for the first.
// Promise.AsOf says how old they are.
func (l *Ledger) Recent() ([]*Promise, error) { return l.promises.recent() }

// recent returns the states that were computed last, or computes them. The caller does not hold mu.
func (ps *promises) recent() ([]*Promise, error) {
	last := ps.last.Load()
	switch {
	case last == nil:
		ps.mu.Lock()
	case time.Now().Before(last.until) || !ps.mu.TryLock():
		return last.states, nil
	}
	defer ps.mu.Unlock()
	return ps.compute()
}

// Run takes cohorts into the evidence as they mature, until the context ends. failed is told of errors.
func (l *Ledger) Run(ctx context.Context, failed func(error)) {
	tick := time.NewTicker(time.Second)
	defer tick.Stop()
	for {
		select {
		case <-ctx.Done():
			return
		case <-tick.C:
			if _, err := l.Recent(); err != nil {
				failed(err)
			}
		}
	}
}

// prepare merges what has gathered. The caller holds mu.
func (ps *promises) prepare() error {
	if err := ps.inbox.merge(); err != nil {
		return err
	}
	return ps.find()
}

// refresh brings a promise up to date. The caller holds mu, and has merged.
func (ps *promises) refresh(p *promise) (*Promise, error) {
	t := ps.policies.get(p.key.policy)
	if t == nil {
		return nil, fmt.Errorf("policy %x: %w", p.key.policy, ErrPolicyUnknown)
	}
	now := ps.now()
	changed, err := ps.reload(p)
	if err != nil {
		return nil, err
	}
	deleted := ps.inbox.refusedBefore()
	for _, c := range p.cohorts {
		if c.Start >= deleted && c.tally != nil && c.tally.stale(&ps.told) {
			c.tally, changed = nil, true
		}
	}
	if !changed && p.state != nil && p.terms == t && (p.next.IsZero() || now.Before(p.next)) {
		same := *p.state
		same.AsOf = now.UTC()
		p.state = &same
		return p.state, nil
	}
	p.state = nil
	for _, c := range p.cohorts {
		if c.tally == nil {
			if err := ps.tally(p, t, c); err != nil {
				return nil, err
			}
		}
	}
	mature := p.mature(t, now)
	if err := ps.take(p, t, mature); err != nil {
		return nil, err
	}
	s, err := ps.summarise(p, t, mature, now)
	if err != nil {
		return nil, err
	}
	p.state, p.terms, p.next = s, t, s.Cohorts.NextMature
	return s, nil
}

// reload reads what changed of a promise, all of it for the first time, and returns whether anything
// did.
func (ps *promises) reload(p *promise) (bool, error) {
	starts := ps.changed.take(p.key)
	if p.loaded && len(starts) == 0 {
		return false, nil
	}
	err := ps.main.View(func(tx *bolt.Tx) error {
		b := promiseBucket(tx, p.key)
		if err := json.Unmarshal(b.Get(keyInfo), &p.info); err != nil {
			return err
		}
		if !p.loaded {
			return p.load(b)
		}
		for _, start := range starts {
			if err := p.reread(b, start); err != nil {
				return err
			}
		}
		return nil
	})
	if err != nil {
		p.loaded = false // read all the next time
	}
	return true, err
}

// load reads the cohorts and the evidence of a promise.
func (p *promise) load(b *bolt.Bucket) error {
	p.official, p.replay, p.cohorts = newAlarms(), newReplay(), nil
	if text := b.Get(keyOfficial); text != nil {
		if err := json.Unmarshal(text, p.official); err != nil {
			return err
		}
	}
	if text := b.Get(keyReplay); text != nil {
		if err := json.Unmarshal(text, p.replay); errors.Is(err, evidence.ErrState) {
			p.replay = newReplay() // another version of ckd made it: it is replayed from the outcomes
		} else if err != nil {
			return err
		}
	}
	for _, name := range [][]byte{bucketCohorts, bucketSums} {
		err := b.Bucket(name).ForEach(func(k, _ []byte) error { return p.reread(b, timeOf(k)) })
		if err != nil {
			return err
		}
	}
	p.loaded = true
	return nil
}

// reread reads a cohort.
func (p *promise) reread(b *bolt.Bucket, start int64) error {
	place, found := slices.BinarySearchFunc(p.cohorts, start, func(c *cohortState, start int64) int { return cmp.Compare(c.Start, start) })
	if !found {
		p.cohorts = slices.Insert(p.cohorts, place, &cohortState{})
	}
	c := p.cohorts[place]
	var err error
	if c.cohort, err = readCohort(b, start); err != nil {
		return err
	}
	if c.sums, err = readSums(b, start); err != nil {
		return err
	}
	if c.tally != nil && c.tally.Changes == c.Changes {
		return nil
	}
	c.tally = nil
	if c.Changes == 0 {
		c.tally = newTally()
		return nil
	}
	text := b.Bucket(bucketTallies).Get(startKey(start))
	if text == nil {
		return nil
	}
	stored := newTally()
	if err := json.Unmarshal(text, stored); err != nil {
		return err
	}
	if stored.Changes == c.Changes {
		c.tally = stored
	}
	return nil
}

// tally counts the records of a cohort.
func (ps *promises) tally(p *promise, t *terms, c *cohortState) error {
	counted := newTally()
	counted.Changes = c.Changes
	err := ps.scan(p, c.Start, func(r *Record) { counted.observe(t, r, ps.told.last(r.ID.Sealer())) })
	if err != nil {
		return err
	}
	c.tally = counted
	return ps.main.Update(func(tx *bolt.Tx) error {
		return putJSON(promiseBucket(tx, p.key).Bucket(bucketTallies), startKey(c.Start), counted)
	})
}

// scan calls each with the records of a cohort, in order.
func (ps *promises) scan(p *promise, start int64, each func(*Record)) error {
	return ps.main.View(func(tx *bolt.Tx) error {
		cursor := promiseBucket(tx, p.key).Bucket(bucketRecords).Cursor()
		from, to := p.info.grid().rangeOf(start)
		for k, v := cursor.Seek(from); k != nil && bytes.Compare(k, to) < 0; k, v = cursor.Next() {
			r, err := decodeRecord(p.key, k, v)
			if err != nil {
				return err
			}
			ps.reads.Add(1)
			each(r)
		}
		return nil
	})
}

// maturity returns when the outcomes of a cohort are all due.
func (p *promise) maturity(t *terms, c *cohortState) time.Time {
	return time.UnixMicro(c.Start + p.info.Period + c.settings(t).Due).UTC()
}

// mature returns how many cohorts, the first ones, are mature. One that is not holds up those after
// it: evidence takes cohorts in order.
func (p *promise) mature(t *terms, now time.Time) int {
	n := 0
	for n < len(p.cohorts) && !now.Before(p.maturity(t, p.cohorts[n])) {
		n++
	}
	return n
}

// taking is a step of the evidence: what mature cohorts add to copies of the official evidence and
// of the replay, until it is stored.
type taking struct {
	p        *promise
	t        *terms
	official *alarms
	again    *replay
	restart  bool           // the replay begins anew
	lines    []watch        // alarms whose line is new
	raised   map[watch]bool // alarms that were raised before
	cohorts  []*cohortState
	points   []Point
}

// take takes mature cohorts into the evidence: the official one once, with the outcomes that had been
// reported when they matured, and the replay with all outcomes known now.
func (ps *promises) take(p *promise, t *terms, mature int) error {
	step, err := ps.begin(p, t, mature)
	if err != nil {
		return err
	}
	if err := ps.takeCohorts(step, p.cohorts[:mature]); err != nil {
		return err
	}
	if step.changes() {
		if err := ps.write(step); err != nil {
			p.loaded = false // cohorts in memory may say more than is stored
			return err
		}
	}
	p.official, p.replay = step.official, step.again
	return nil
}

// begin copies the evidence of a promise under its lines of now. The replay begins anew where a cohort
// that it has taken has changed since.
func (ps *promises) begin(p *promise, t *terms, mature int) (*taking, error) {
	lines := t.lines()
	step := &taking{p: p, t: t, official: p.official.clone()}
	step.lines = step.official.set(lines, runLengths(lines, t.runLength()))
	step.raised = step.official.raised()
	step.restart = slices.ContainsFunc(p.cohorts[:mature], func(c *cohortState) bool {
		return c.Start <= p.replay.alarms.Through && c.Replayed != c.Changes
	})
	if step.restart {
		var err error
		if step.again, err = p.base(ps.main); err != nil {
			return nil, err
		}
	} else {
		step.again = p.replay.clone()
	}
	step.again.alarms.follow(step.official)
	return step, nil
}

// takeCohorts adds the cohorts that the official evidence or the replay lacks, with a point of history
// for each that has outcomes.
func (ps *promises) takeCohorts(step *taking, cohorts []*cohortState) error {
	p, official, again := step.p, step.official, step.again
	history, err := p.history(ps.main)
	if err != nil {
		return err
	}
	before := &Point{FNR: newPointRisk(official, evidence.FNR), Rate: newPointRisk(official, evidence.MissRate)}
	for _, c := range cohorts {
		first := c.Start > official.Through
		if !first && c.Start <= again.alarms.Through {
			continue
		}
		bets := c.settings(step.t)
		if c.Bets == nil {
			if bets, err = ps.bets(p, c, bets, p.maturity(step.t, c)); err != nil {
				return err
			}
		}
		if err := ps.takeOne(p, step.t, c, bets, official, again); err != nil {
			return err
		}
		c.Bets, c.Replayed = &bets, c.Changes
		step.cohorts = append(step.cohorts, c)
		if c.Changes == 0 {
			continue
		}
		var was *Point // as it was taken; of a cohort that was empty then, the one before
		if !first {
			for len(history) > 0 && history[0].Start.UnixMicro() <= c.Start {
				before, history = &history[0], history[1:]
			}
			was = before
		}
		step.points = append(step.points, point(c, official, again, was))
	}
	return nil
}

// changes reports whether the step is to be stored. Cohorts without outcomes need not be: taking them
// again changes nothing.
func (step *taking) changes() bool {
	return slices.ContainsFunc(step.cohorts, func(c *cohortState) bool { return c.Changes > 0 }) || len(step.lines) > 0 || step.restart ||
		step.official.differs(step.p.official)
}

// write writes cohorts, points, the trail and the evidence in one transaction.
func (ps *promises) write(step *taking) error {
	return ps.main.Update(func(tx *bolt.Tx) error {
		b := promiseBucket(tx, step.p.key)
		for _, c := range step.cohorts {
			stored, err := readCohort(b, c.Start)
			if err != nil {
				return err
			}
			stored.Bets, stored.Replayed = c.Bets, c.Replayed
			if err := stored.write(b); err != nil {
				return err
			}
		}
		for i := range step.points {
			if err := putJSON(b.Bucket(bucketHistory), startKey(step.points[i].Start.UnixMicro()), storedPointOf(&step.points[i])); err != nil {
				return err
			}
		}
		if err := ps.noteAlarms(tx, step); err != nil {
			return err
		}
		return step.p.writeEvidence(b, step.official, step.again)
	})
}

// noteAlarms enters new lines and newly raised alarms in the trail.
func (ps *promises) noteAlarms(tx *bolt.Tx, step *taking) error {
	for _, w := range step.lines {
		if err := ps.note(tx, step.p.event(step.t, EventLine, w)); err != nil {
			return err
		}
	}
	for w, alarm := range step.official.byWatch {
		if !alarm.Raised() || step.raised[w] {
			continue
		}
		e := step.p.event(step.t, EventRaised, w)
		e.Detail = fmt.Sprintf("evidence of the decisions from %s", time.UnixMicro(alarm.raisedBy).UTC().Format(time.RFC3339))
		if err := ps.note(tx, e); err != nil {
			return err
		}
	}
	return nil
}

func (p *promise) writeEvidence(b *bolt.Bucket, official *alarms, again *replay) error {
	if err := putJSON(b, keyOfficial, official); err != nil {
		return err
	}
	return putJSON(b, keyReplay, again)
}

// event returns an event of a promise.
func (p *promise) event(t *terms, kind EventKind, w watch) Event {
	return Event{Kind: kind, Policy: t.policy.Hash, Model: t.policy.Name, Version: p.version(), Figure: w.name(t)}
}

// version returns the version's text, or its hash while the text is unknown.
func (p *promise) version() string {
	if p.info.Version == "" && p.key.version != receipt.VersionHash("") {
		return hex.EncodeToString(uint64Key(p.key.version))
	}
	return p.info.Version
}

// takeOne adds the records of a cohort.
func (ps *promises) takeOne(p *promise, t *terms, c *cohortState, bets settings, official *alarms, again *replay) error {
	first, due := c.Start > official.Through, p.maturity(t, c)
	replayed := c.Start > again.alarms.Through
	if first {
		official.begin(bets)
		official.Through = c.Start
	}
	if replayed {
		again.begin(bets)
		again.alarms.Through = c.Start
	}
	return ps.scan(p, c.Start, func(r *Record) {
		if r.Duplicate || !reviewed(&r.Receipt) {
			return
		}
		if first {
			if f := t.find(r, due); f.known {
				official.observe(t, r, &f, c.Start)
			}
		}
		if replayed {
			if f := t.find(r, endOfTime); f.known {
				again.observe(t, r, &f, c.Start)
			}
		}
	})
}

// bets returns the settings that were in force, lowered to the propensities that receipts show: some
// daemon may not have told its settings. It looks at no truth.
func (ps *promises) bets(p *promise, c *cohortState, s settings, due time.Time) (settings, error) {
	err := ps.scan(p, c.Start, func(r *Record) {
		pi := float64(r.Receipt.Propensity)
		if !reviewed(&r.Receipt) || !slices.ContainsFunc(r.Readings, func(s Said) bool { return s.Reported.Before(due) }) {
			return
		}
		switch r.Receipt.Stratum {
		case receipt.CalledCritical:
			s.Hit = min(s.Hit, pi)
		case receipt.CalledSafe:
			s.Miss = min(s.Miss, pi)
		}
	})
	return s, err
}

// raised returns the watches whose alarm is up.
func (a *alarms) raised() map[watch]bool {
	up := make(map[watch]bool)
	for w, watched := range a.byWatch {
		if watched.Raised() {
			up[w] = true
		}
	}
	return up
}

// differs reports whether alarms are of other lines.
func (a *alarms) differs(o *alarms) bool {
	if len(a.byWatch) != len(o.byWatch) {
		return true
	}
	for w := range a.byWatch {
		if o.byWatch[w] == nil || o.byWatch[w].began != a.byWatch[w].began {
			return true
		}
	}
	return false
}

// follow gives the replay the lines of the official alarms, and begins anew where they did.
func (a *alarms) follow(official *alarms) {
	for w := range a.byWatch {
		if official.byWatch[w] == nil {
			delete(a.byWatch, w)
		}
	}
	for w, watched := range official.byWatch {
		if have := a.byWatch[w]; have == nil || have.began != watched.began || have.Line() != watched.Line() || have.RunLength() != watched.RunLength() {
			a.byWatch[w] = watched.anew(w, watched.began)
		}
	}
}

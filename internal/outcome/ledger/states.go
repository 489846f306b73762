package ledger

import (
	"bytes"
	"cmp"
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"slices"
	"time"

	"github.com/ckd-project/ckd/internal/clock"
	"github.com/ckd-project/ckd/internal/outcome/promise"
	"github.com/ckd-project/ckd/internal/outcome/receipt"
	"github.com/ckd-project/ckd/internal/outcome/store"
	"github.com/ckd-project/ckd/internal/outcome/truth"
)

// A model is the runs of one model in memory: only what is read from the store or follows from it.
type model struct {
	*promise.Model
	epoch   uint64 // of the evidence, as read
	runs    map[int64]*run
	pending bool      // something changed since states was computed
	next    time.Time // when the next cohort matures; zero for none
	states  []*promise.Promise
}

// A run is the cohorts of one policy and model version.
type run struct {
	*promise.Run
	model   *model
	changes map[int64]uint64 // of each cohort, as counted in memory
	stale   map[int64]uint64 // cohorts to be counted anew, with their changes
}

// recent remembers all states.
type recent struct {
	states []*promise.Promise
	alarms []Alarm
	until  time.Time // when they may be computed again
}

// State returns the state of a policy and model version, computed anew where anything changed.
func (l *Ledger) State(policy [32]byte, version string) (*promise.Promise, error) {
	states, err := l.States()
	if err != nil {
		return nil, err
	}
	for _, p := range states {
		if p.Policy == policy && p.VersionHash == receipt.VersionHash(version) {
			return p, nil
		}
	}
	return nil, fmt.Errorf("policy %x, version %q: %w", policy[:4], version, ErrNoPromise)
}

// States returns the states of all promises, computed anew where anything changed, in the order of
// their models, policies and versions.
func (l *Ledger) States() ([]*promise.Promise, error) {
	l.mu.Lock()
	defer l.mu.Unlock()
	return l.compute()
}

// Recent returns the states that were computed last, and computes them anew only so often that this
// takes at most a twentieth of the time. It does not wait for another computation, but for the first.
// Promise.AsOf says how old they are.
func (l *Ledger) Recent() ([]*promise.Promise, error) {
	last := l.last.Load()
	switch {
	case last == nil:
		l.mu.Lock()
	case time.Now().Before(last.until) || !l.mu.TryLock():
		return last.states, nil
	}
	defer l.mu.Unlock()
	return l.compute()
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
			} else if err := l.failure(); err != nil {
				failed(fmt.Errorf("the evidence waits until it can be stored: %w", err))
			}
		}
	}
}

// failure returns what kept the last states from being stored; nil also while they are computed.
func (l *Ledger) failure() error {
	if !l.mu.TryLock() {
		return nil
	}
	defer l.mu.Unlock()
	return l.unstored
}

// compute returns all states, and keeps them for Recent. The caller holds mu.
func (l *Ledger) compute() ([]*promise.Promise, error) {
	const share = 20
	began := time.Now()
	l.unstored = nil
	states, err := l.refresh()
	if errors.Is(err, store.ErrConflict) { // another process has taken a cohort meanwhile
		states, err = l.refresh()
	}
	if err != nil {
		return nil, err
	}
	l.last.Store(&recent{states: states, alarms: l.alarms(), until: began.Add(clock.Every(share * time.Since(began)))})
	return states, nil
}

// refresh brings everything up to date. The caller holds mu.
func (l *Ledger) refresh() ([]*promise.Promise, error) {
	if err := l.store.View(l.read); err != nil {
		l.forget()
		return nil, err
	}
	now := l.now()
	var states []*promise.Promise
	for _, name := range sortedKeys(l.models) {
		m := l.models[name]
		if err := l.bring(m, now); err != nil {
			l.forget() // what is in memory may say more than is stored
			return nil, err
		}
		states = append(states, m.states...)
	}
	slices.SortFunc(states, func(a, b *promise.Promise) int {
		return cmp.Or(cmp.Compare(a.Model, b.Model), bytes.Compare(a.Policy[:], b.Policy[:]), cmp.Compare(a.Version, b.Version))
	})
	return states, nil
}

// forget drops what is in memory: it is read again.
func (l *Ledger) forget() { l.models, l.seen = make(map[string]*model), 0 }

// read reads what changed in the store since it was last read. The caller holds mu.
func (l *Ledger) read(tx *store.Tx) error {
	commit := tx.Identity().Commit
	if commit == l.seen && len(l.models) > 0 {
		return nil
	}
	if err := l.policies.load(tx); err != nil {
		return err
	}
	if err := l.told.load(tx, l.seen); err != nil {
		return err
	}
	all, err := tx.Promises()
	if err != nil {
		return err
	}
	l.runs.set(all...)
	byNumber := make(map[int64]*run, len(all))
	for i := range all {
		if err := l.readRun(tx, &all[i], byNumber); err != nil {
			return err
		}
	}
	if err := l.readCohorts(tx, byNumber); err != nil {
		return err
	}
	sums, err := tx.Sums(l.seen)
	if err != nil {
		return err
	}
	for i := range sums {
		r := byNumber[sums[i].Promise]
		r.model.pending = true
		if r.Cohort(sums[i].Start).Told, err = toldOf(&sums[i]); err != nil {
			return err
		}
	}
	for _, m := range l.models {
		if err := m.readEvidence(tx); err != nil {
			return err
		}
	}
	l.seen = commit
	return nil
}

// readEvidence reads the alarms of a model, if they are others than those in memory.
func (m *model) readEvidence(tx *store.Tx) error {
	epoch, body, err := tx.Evidence(m.Name)
	if err != nil || epoch == m.epoch {
		return err
	}
	if err := json.Unmarshal(body, m.Alarms); err != nil {
		return err
	}
	m.epoch, m.pending = epoch, true
	m.Cleared()
	return nil
}

// readRun finds a run in memory, and makes it if there is none.
func (l *Ledger) readRun(tx *store.Tx, p *store.Promise, byNumber map[int64]*run) error {
	t := l.policies.get(p.Policy)
	if t == nil {
		return fmt.Errorf("policy %x: %w", p.Policy, ErrPolicyUnknown)
	}
	m := l.models[t.Policy.Name]
	if m == nil {
		m = &model{Model: promise.NewModel(t.Policy.Name), runs: make(map[int64]*run)}
		l.models[t.Policy.Name] = m
	}
	r := m.runs[p.Number]
	if r == nil {
		r = &run{model: m, Run: &promise.Run{Number: p.Number, VersionHash: p.Version, Period: p.Period}, changes: make(map[int64]uint64), stale: make(map[int64]uint64)}
		m.runs[p.Number] = r
		m.Runs = append(m.Runs, r.Run)
	}
	if r.Terms != t || r.Version != p.Name {
		m.pending = true
	}
	r.Terms, r.Version = t, p.Name
	byNumber[p.Number] = r
	return nil
}

// readCohorts reads the cohorts that changed.
func (l *Ledger) readCohorts(tx *store.Tx, byNumber map[int64]*run) error {
	cohorts, err := tx.Cohorts(l.seen)
	if err != nil {
		return err
	}
	for i := range cohorts {
		stored := &cohorts[i]
		r := byNumber[stored.Promise]
		c := r.Cohort(stored.Start)
		if stored.Taken && c.Bets == nil {
			c.Bets, c.Noted = &promise.Bets{}, &promise.Noted{}
			if err := errors.Join(json.Unmarshal(stored.Bets, c.Bets), json.Unmarshal(stored.Point, c.Noted)); err != nil {
				return err
			}
			r.model.pending = true
		}
		if c.Bets != nil && c.Bets.Final {
			l.runs.finish(cohortKey{stored.Promise, stored.Start})
		}
		c.Outcomes = stored.Changes > 0
		if r.changes[stored.Start] == stored.Changes {
			continue
		}
		r.model.pending = true
		if stored.Counted != stored.Changes || stored.Count == nil {
			r.stale[stored.Start] = stored.Changes
			continue
		}
		count := promise.Empty()
		if err := count.UnmarshalBinary(stored.Count); err != nil {
			return err
		}
		c.Count, r.changes[stored.Start] = count, stored.Changes
		delete(r.stale, stored.Start)
	}
	return nil
}

// bring counts what changed of a model, takes what is mature, and makes its states. The caller holds mu.
func (l *Ledger) bring(m *model, now time.Time) error {
	for _, r := range m.runs {
		for _, c := range r.Cohorts {
			if !(c.Bets != nil && c.Bets.Final) && c.Count.Stale(l.told.last) {
				r.stale[c.Start], m.pending = r.changes[c.Start], true
			}
		}
	}
	if !m.pending && (m.next.IsZero() || now.Before(m.next)) {
		for i, s := range m.states {
			same := *s
			same.AsOf = now.UTC()
			m.states[i] = &same
		}
		return nil
	}
	taken, err := l.countStale(m)
	if err != nil {
		return err
	}
	untaken := l.take(m, taken, now)
	if errors.Is(untaken, store.ErrConflict) {
		return untaken
	}
	l.unstored = errors.Join(l.unstored, untaken) // figures are read also where the disk is full; evidence waits
	states := make([]*promise.Promise, 0, len(m.Runs))
	m.next = time.Time{}
	for _, r := range m.Runs {
		s, err := m.Promise(r, now)
		if err != nil {
			return err
		}
		if n := s.Cohorts.NextMature; !n.IsZero() && (m.next.IsZero() || n.Before(m.next)) {
			m.next = n
		}
		states = append(states, s)
	}
	m.states, m.pending = states, untaken != nil
	return nil
}

// countStale counts the cohorts whose decisions changed, and returns what evidence takes of them.
func (l *Ledger) countStale(m *model) (map[promise.Place]promise.Taken, error) {
	taken := make(map[promise.Place]promise.Taken)
	for number, r := range m.runs {
		for _, start := range sortedKeys(r.stale) {
			count, early, err := l.count(r, r.Cohort(start))
			if err != nil {
				return nil, err
			}
			changes := r.stale[start]
			data, err := count.MarshalBinary()
			if err != nil {
				return nil, err
			}
			if !l.options.ReadOnly { // what a full disk does not take is counted again after a restart
				l.unstored = errors.Join(l.unstored, l.store.Update(func(tx *store.Tx) error { return tx.PutCount(number, start, changes, data) }))
			}
			r.Cohort(start).Count, r.changes[start] = count, changes
			taken[promise.Place{Start: start, Promise: number}] = early
			delete(r.stale, start)
		}
	}
	return taken, nil
}

// count reads the decisions of a cohort.
func (l *Ledger) count(r *run, c *promise.Cohort) (*promise.Count, promise.Taken, error) {
	counter := promise.NewCounter(r.Terms, r.Maturity(c), l.told.last)
	err := l.store.View(func(tx *store.Tx) error {
		return tx.Scan(r.Number, c.Start, c.Start+r.Period, func(d *truth.Decision) error {
			l.reads.Add(1)
			counter.Add(d)
			return nil
		})
	})
	count, taken := counter.Count()
	return count, taken, err
}

// take takes mature cohorts into the evidence, with the outcomes that had been reported when they
// matured: all of them in one transaction, of which one process alone succeeds.
func (l *Ledger) take(m *model, counted map[promise.Place]promise.Taken, now time.Time) error {
	if l.options.ReadOnly {
		return nil
	}
	alarms := m.Alarms.Clone()
	events, err := l.hear(m, alarms, now)
	if err != nil {
		return err
	}
	pending := m.Pending(now)
	if len(pending) == 0 && len(events) == 0 {
		return nil
	}
	bets, noted := make([]*promise.Bets, len(pending)), make([]*promise.Noted, len(pending))
	for i, s := range pending {
		taken, known := counted[s.Place()]
		if !known && s.Cohort.Outcomes {
			var err error
			if _, taken, err = l.count(m.runs[s.Run.Number], s.Cohort); err != nil {
				return err
			}
		}
		bets[i] = s.Bets(alarms)
		raised, err := alarms.Take(s.Run.Terms, s.Place(), bets[i], taken, now)
		if err != nil {
			return err
		}
		noted[i] = alarms.Note()
		for _, w := range raised {
			events = append(events, Event{Kind: eventRaised, Model: m.Name, Policy: s.Run.Terms.Policy.Hash, Version: s.Run.Name(), Figure: w.String(),
				Alarm: alarmName(w, now), Detail: fmt.Sprintf("evidence of the decisions from %s", time.UnixMicro(s.Cohort.Start).UTC().Format(time.RFC3339))})
		}
	}
	err = l.store.Update(func(tx *store.Tx) error {
		for i, s := range pending {
			if err := putTaken(tx, s, bets[i], noted[i]); err != nil {
				return err
			}
		}
		return l.putEvidence(tx, m, alarms, events)
	})
	if err != nil {
		return err
	}
	for i, s := range pending {
		s.Cohort.Bets, s.Cohort.Noted = bets[i], noted[i]
	}
	m.Alarms, m.epoch = alarms, m.epoch+1
	return nil
}

// hear learns the lines of the policies of a model, and ends alarms that a policy answers.
func (l *Ledger) hear(m *model, alarms *promise.Alarms, now time.Time) (events []Event, err error) {
	for _, r := range m.Runs {
		p := r.Terms.Policy
		before := alarms.Latest()
		held, isNew := alarms.Hear(r.Terms, now)
		if isNew {
			events = append(events, Event{Kind: eventInForce, Model: m.Name, Policy: p.Hash, Version: r.Name(), Before: before})
			expected, err := l.rehearse(m, r.Terms, now)
			if err != nil {
				return nil, err
			}
			alarms.Expect(p.Hash, expected)
		}
		for w, stated := range held {
			line, _ := alarms.Standing(w)
			detail := fmt.Sprintf("the line stays %v (%s): the policy has %v", line.Above, line.Origin, stated)
			if stated == 0 {
				detail = fmt.Sprintf("the line stays %v (%s): the policy has none", line.Above, line.Origin)
			}
			events = append(events, Event{Kind: eventLineHeld, Model: m.Name, Policy: p.Hash, Figure: w.String(), Detail: detail})
		}
		if p.Answers == nil {
			continue
		}
		for _, w := range alarms.Raised() {
			_, seen := alarms.Since(w)
			if name := alarmName(w, seen); name == p.Answers.Alarm.String() {
				e := Event{Kind: eventCleared, Model: m.Name, Policy: p.Hash, Figure: w.String(), Alarm: name, By: p.Answers.By, Reason: p.Answers.Reason, Successor: p.Hash}
				events = append(events, e)
				alarms.End(promise.Ended{Watch: w, Raised: seen, At: now.UTC(), By: e.By, Reason: e.Reason, Successor: e.Successor})
				m.Cleared()
			}
		}
	}
	return events, nil
}

// putTaken stores with which bets a cohort was taken, and the evidence after it.
func putTaken(tx *store.Tx, s promise.Step, bets *promise.Bets, noted *promise.Noted) error {
	b, err := json.Marshal(bets)
	if err != nil {
		return err
	}
	n, err := json.Marshal(noted)
	if err != nil {
		return err
	}
	return tx.PutTaken(s.Run.Number, s.Cohort.Start, b, n)
}

// putEvidence stores the alarms of a model, and what happened to them.
func (l *Ledger) putEvidence(tx *store.Tx, m *model, alarms *promise.Alarms, events []Event) error {
	body, err := json.Marshal(alarms)
	if err != nil {
		return err
	}
	if err := tx.PutEvidence(m.Name, m.epoch, body); err != nil {
		return err
	}
	for _, e := range events {
		if err := l.note(tx, e); err != nil {
			return err
		}
	}
	return nil
}

package ledger

import (
	"errors"
	"fmt"
	"strconv"
	"time"

	"github.com/ckd-project/ckd/internal/outcome/promise"
	"github.com/ckd-project/ckd/internal/outcome/receipt"
	"github.com/ckd-project/ckd/internal/outcome/store"
	"github.com/ckd-project/ckd/internal/outcome/truth"
)

// ErrNoAlarm says that there is no alarm to clear.
var ErrNoAlarm = errors.New("no alarm is up")

// Clear takes down all alarms of the model of a policy. Their evidence begins anew with the next cohort. by
// and reason are recorded in the trail; both have to be given.
func (l *Ledger) Clear(who, reason string, policy [32]byte, version string) error {
	if who == "" || reason == "" {
		return errors.New("clear: expected who clears the alarm, and why")
	}
	l.mu.Lock()
	defer l.mu.Unlock()
	if _, err := l.compute(); err != nil {
		return err
	}
	t := l.policies.get(policy)
	if _, known := l.runs.get(runKey{policy, receipt.VersionHash(version)}); !known {
		return fmt.Errorf("policy %x, version %q: %w", policy[:4], version, ErrNoPromise)
	}
	return l.clear(l.models[t.Policy.Name], t, Event{Kind: eventCleared, By: who, Reason: reason, Version: version})
}

// clear takes down all alarms of a model, and notes an event for each. The caller holds mu, and has
// computed the states.
func (l *Ledger) clear(m *model, t *truth.Terms, e Event) error {
	up := m.Alarms.Raised()
	if len(up) == 0 {
		return ErrNoAlarm
	}
	alarms := m.Alarms.Clone()
	var events []Event
	for _, w := range up {
		_, seen := alarms.Since(w)
		e.Model, e.Policy, e.Figure, e.Alarm = m.Name, t.Policy.Hash, w.String(), alarmName(w, seen)
		events = append(events, e)
		alarms.End(promise.Ended{Watch: w, Raised: seen, At: l.now().UTC(), By: e.By, Reason: e.Reason, Successor: e.Successor})
	}
	err := l.store.Update(func(tx *store.Tx) error { return l.putEvidence(tx, m, alarms, events) })
	if err != nil {
		return err
	}
	m.Alarms, m.epoch, m.pending = alarms, m.epoch+1, true
	m.Cleared()
	l.last.Store(nil)
	return nil
}

// RaiseLine raises the line that a risk of a model is held against, for the cohorts that begin after it.
// class is empty for all critical classes. by and reason are recorded in the trail, and every statement
// says who raised it.
func (l *Ledger) RaiseLine(who, reason, model string, w promise.Watch, above float64) error {
	if who == "" || reason == "" {
		return errors.New("raise a line: expected who raises it, and why")
	}
	l.mu.Lock()
	defer l.mu.Unlock()
	if _, err := l.compute(); err != nil {
		return err
	}
	m := l.models[model]
	if m == nil {
		return fmt.Errorf("model %q: %w", model, ErrNoPromise)
	}
	alarms := m.Alarms.Clone()
	old, _ := alarms.Standing(w)
	if err := alarms.Raise(w, above, who, l.now()); err != nil {
		return fmt.Errorf("%w: %w", ErrLine, err)
	}
	e := Event{Kind: eventLineRaised, Model: model, Figure: w.String(), By: who, Reason: reason, Detail: fmt.Sprintf("from %v (%s) to %v", old.Above, old.Origin, above)}
	err := l.store.Update(func(tx *store.Tx) error { return l.putEvidence(tx, m, alarms, []Event{e}) })
	if err != nil {
		return err
	}
	m.Alarms, m.epoch, m.pending = alarms, m.epoch+1, true
	l.last.Store(nil)
	return nil
}

// ErrLine says that a line cannot be raised so.
var ErrLine = errors.New("the line stays as it is")

// alarmName names an alarm to people and in policies, such as "critical miss rate 2026-11-03T00:00:00Z":
// its figure, and when it was raised.
func alarmName(w promise.Watch, raised time.Time) string {
	return w.String() + " " + raised.UTC().Format(time.RFC3339)
}

// A Choice chooses the decisions whose outcomes are to be deleted: exactly one field is given.
type Choice struct {
	Before time.Time
	// Group is the name that a client gave to a group, such as a patient.
	Group string
	// Receipts are sealed receipts. Decisions of equal inputs, under the same id, are chosen with them.
	Receipts [][]byte
}

// Deleted says what became of the outcomes that were to be deleted.
type Deleted struct {
	Decisions uint64
	// Left counts the chosen decisions that remain, Until is when the last of them may be deleted:
	// evidence has not taken their cohorts.
	Left  uint64
	Until time.Time
	// Unreadable counts receipts that are none, or whose key is not known.
	Unreadable uint64
}

// Delete deletes the outcomes of the chosen decisions whose cohorts the evidence has taken, and frees
// them on disk. Sums of their cohorts, the evidence and the trail stay, which name nobody. Outcomes of
// these cohorts are refused from then on: a count whose decisions are gone must not be made anew. by and
// reason are recorded in the trail.
func (l *Ledger) Delete(who, reason string, c Choice) (Deleted, error) {
	if who == "" || reason == "" {
		return Deleted{}, errors.New("delete: expected who deletes the outcomes, and why")
	}
	d, err := l.deleteChosen(who, reason, c)
	if err != nil {
		return d, err
	}
	return d, l.store.Purge()
}

func (l *Ledger) deleteChosen(who, reason string, c Choice) (Deleted, error) {
	var d Deleted
	l.mu.Lock()
	defer l.mu.Unlock()
	if _, err := l.compute(); err != nil {
		return d, err
	}
	chosen, what, err := l.choose(c, &d)
	if err != nil {
		return d, err
	}
	keys, err := l.deletable(chosen, &d)
	if err != nil {
		return d, err
	}
	if err := l.delete(keys); err != nil {
		return d, err
	}
	d.Decisions = uint64(len(keys))
	l.last.Store(nil)
	detail := fmt.Sprintf("%d decisions with outcomes, %s", d.Decisions, what)
	if d.Left > 0 {
		detail += fmt.Sprintf("; %d remain, of cohorts that evidence takes by %s", d.Left, d.Until.Format(time.RFC3339))
	}
	err = l.store.Update(func(tx *store.Tx) error {
		return l.note(tx, Event{Kind: eventDeleted, By: who, Reason: reason, Detail: detail})
	})
	return d, err
}

// chosen is what a Choice means to the store.
type chosen struct {
	choices []store.Choice
	keys    []store.Key // of inputs without an id
}

// choose returns what a choice means, in words without names. Of a choice by time it notes that such
// outcomes are refused from now on.
func (l *Ledger) choose(c Choice, d *Deleted) (chosen, string, error) {
	keys := l.options.Keys()
	switch {
	case !c.Before.IsZero():
		limit := l.runs.refuseBefore(l.wholeBefore(c.Before.UnixMicro()))
		err := l.store.Update(func(tx *store.Tx) error { return tx.SetMeta(metaDeleted, strconv.FormatInt(limit, 10)) })
		if err == nil {
			_, err = l.compute() // what had been accepted before
		}
		return chosen{choices: []store.Choice{{Before: limit}}}, "decided before " + time.UnixMicro(limit).UTC().Format(time.RFC3339), err
	case keys == nil:
		return chosen{}, "", errors.New("delete: the ledger has no receipt keys, which find a group or an input")
	case c.Group != "":
		var found chosen
		for _, hash := range keys.GroupHashes([]byte(c.Group)) {
			found.choices = append(found.choices, store.Choice{Group: hash})
		}
		return found, "of one group", nil
	}
	var found chosen
	for _, sealed := range c.Receipts {
		r, id, err := keys.Open(sealed)
		if err != nil {
			d.Unreadable++
			continue
		}
		run, known := l.runs.get(runKey{r.Policy, r.Version})
		switch {
		case !known: // nothing is stored of it
		case r.Draw != 0:
			found.choices = append(found.choices, store.Choice{Promise: run.Number, Draw: r.Draw})
		default:
			found.keys = append(found.keys, store.KeyOf(run.Number, &r, id))
		}
	}
	return found, fmt.Sprintf("of the inputs of %d receipts", len(c.Receipts)), nil
}

// each calls f once with every decision that is chosen.
func (c *chosen) each(tx *store.Tx, f func(k store.Key)) error {
	met, several := make(map[store.Key]bool), len(c.choices)+len(c.keys) > 1
	once := func(k store.Key, _ *truth.Decision) error {
		if met[k] {
			return nil
		}
		if several {
			met[k] = true
		}
		f(k)
		return nil
	}
	for _, choice := range c.choices {
		if err := tx.Chosen(choice, once); err != nil {
			return err
		}
	}
	stored, err := tx.Decisions(c.keys)
	for _, k := range c.keys {
		if stored[k] != nil {
			_ = once(k, nil) // never fails
		}
	}
	return err
}

// wholeBefore returns the last time up to a limit before which all cohorts are whole and taken.
func (l *Ledger) wholeBefore(limit int64) int64 {
	for last := limit + 1; limit < last; {
		last = limit
		for _, m := range l.models {
			for _, r := range m.Runs {
				for _, c := range r.Cohorts {
					if c.Start < limit && (c.Bets == nil || c.Start+r.Period > limit) {
						limit = c.Start
					}
				}
			}
		}
	}
	return limit
}

// deletable returns the chosen decisions of cohorts that evidence has taken, and counts the others.
func (l *Ledger) deletable(chosen chosen, d *Deleted) (keys []store.Key, err error) {
	byNumber := make(map[int64]*run)
	for _, m := range l.models {
		for number, r := range m.runs {
			byNumber[number] = r
		}
	}
	err = l.store.View(func(tx *store.Tx) error {
		return chosen.each(tx, func(k store.Key) {
			r := byNumber[k.Promise]
			c := r.Cohort(promise.Grid{Period: r.Period}.Start(k.Time))
			if c.Bets != nil {
				keys = append(keys, k)
				return
			}
			d.Left++
			if at := r.Maturity(c); at.After(d.Until) {
				d.Until = at
			}
		})
	})
	return keys, err
}

// delete deletes decisions, in pieces, and makes the counts of their cohorts final before. The caller
// holds mu.
func (l *Ledger) delete(keys []store.Key) error {
	if err := l.finish(keys); err != nil {
		return err
	}
	const piece = 5000
	for len(keys) > 0 {
		n := min(piece, len(keys))
		if err := l.store.Update(func(tx *store.Tx) error { return tx.Delete(keys[:n]) }); err != nil {
			return err
		}
		keys = keys[n:]
	}
	return nil
}

// finish makes the counts of the cohorts of decisions final.
func (l *Ledger) finish(keys []store.Key) error {
	return l.store.Update(func(tx *store.Tx) error {
		for _, m := range l.models {
			for number, r := range m.runs {
				cohorts := make(map[*promise.Cohort]bool)
				for _, k := range keys {
					if k.Promise == number {
						cohorts[r.Cohort(promise.Grid{Period: r.Period}.Start(k.Time))] = true
					}
				}
				for c := range cohorts {
					if c.Bets.Final {
						continue
					}
					c.Bets.Final = true
					if err := putTaken(tx, promise.Step{Run: r.Run, Cohort: c}, c.Bets, c.Noted); err != nil {
						return err
					}
					l.runs.finish(cohortKey{number, c.Start})
				}
			}
		}
		return nil
	})
}

package ledger

import (
	"bytes"
	"cmp"
	"encoding/json"
	"errors"
	"fmt"
	"maps"
	"slices"
	"time"

	bolt "go.etcd.io/bbolt"

	"github.com/ckd-project/ckd/internal/outcome/evidence"
	"github.com/ckd-project/ckd/internal/outcome/receipt"
)

// Clear takes down all alarms of a promise. Their evidence begins anew with the next cohort. by and
// reason are recorded in the trail; both have to be given.
func (l *Ledger) Clear(who, reason string, policy [32]byte, version string) error {
	if who == "" || reason == "" {
		return errors.New("clear: expected who clears the alarm, and why")
	}
	return l.promises.clear(who, reason, policy, version)
}

func (ps *promises) clear(who, reason string, policy [32]byte, version string) error {
	ps.mu.Lock()
	defer ps.mu.Unlock()
	if err := ps.prepare(); err != nil {
		return err
	}
	p := ps.byKey[promiseKey{policy, receipt.VersionHash(version)}]
	if p == nil {
		return fmt.Errorf("policy %x, version %q: %w", policy[:4], version, ErrNoPromise)
	}
	if _, err := ps.refresh(p); err != nil {
		return err
	}
	t := ps.policies.get(policy)
	official, again := p.official.clone(), p.replay.clone()
	up := official.raised()
	if len(up) == 0 {
		return ErrNoAlarm
	}
	for w := range up {
		official.byWatch[w] = official.byWatch[w].anew(w, official.Through)
	}
	lines := t.lines()
	official.set(lines, runLengths(lines, t.runLength())) // an alarm may have outlived its line
	for w := range up {
		if watched := official.byWatch[w]; watched != nil {
			watched.cleared = ps.now().UnixMicro()
		}
	}
	again.alarms.follow(official)
	err := ps.main.Update(func(tx *bolt.Tx) error {
		for w := range up {
			e := p.event(t, EventCleared, w)
			e.By, e.Reason = who, reason
			if err := ps.note(tx, e); err != nil {
				return err
			}
		}
		return p.writeEvidence(promiseBucket(tx, p.key), official, again)
	})
	if err != nil {
		return err
	}
	p.official, p.replay, p.state = official, again, nil
	ps.last.Store(nil)
	return nil
}

// ErrNoAlarm says that there is no alarm to clear.
var ErrNoAlarm = errors.New("no alarm is up")

// base returns the replay of the cohorts whose outcomes were deleted.
func (p *promise) base(main *bolt.DB) (*replay, error) {
	r := newReplay()
	err := main.View(func(tx *bolt.Tx) error {
		if text := promiseBucket(tx, p.key).Get(keyBase); text != nil {
			return json.Unmarshal(text, r)
		}
		return nil
	})
	if errors.Is(err, evidence.ErrState) { // another version of ckd made it: intervals begin after them
		return newReplay(), nil
	}
	return r, err
}

// DeleteBefore deletes the outcomes of decisions before a time, and returns how many. Only whole
// mature cohorts are deleted, and overwritten on disk. Their tallies, the evidence and the trail stay;
// outcomes of such decisions are refused from then on. by and reason are recorded in the trail.
func (l *Ledger) DeleteBefore(who, reason string, before time.Time) (uint64, error) {
	if who == "" || reason == "" {
		return 0, errors.New("delete: expected who deletes the outcomes, and why")
	}
	return l.promises.deleteBefore(who, reason, before)
}

func (ps *promises) deleteBefore(who, reason string, before time.Time) (uint64, error) {
	ps.mu.Lock()
	defer ps.mu.Unlock()
	limit := before.UnixMicro()
	if _, err := ps.states(); err != nil {
		return 0, err
	}
	for last := limit + 1; limit < last; { // what is not mature yet is still needed, and cohorts stay whole
		last = limit
		for _, p := range ps.byKey {
			limit = min(limit, p.matureUntil(ps.policies.get(p.key.policy), ps.now(), limit))
		}
	}
	// From here on such outcomes are refused: a tally whose records are gone must not be counted anew.
	limit = ps.inbox.refuseBefore(limit)
	err := ps.main.Update(func(tx *bolt.Tx) error { return tx.Bucket(bucketMeta).Put(keyDeleted, appendTime(nil, limit)) })
	if err != nil {
		return 0, err
	}
	if err := ps.inbox.merge(); err != nil { // what had been accepted before
		return 0, err
	}
	var deleted uint64
	for _, p := range ps.byKey {
		if _, err := ps.refresh(p); err != nil {
			return deleted, err
		}
		n, err := ps.deletePromise(p, limit)
		deleted += n
		if err != nil {
			return deleted, err
		}
	}
	ps.last.Store(nil)
	if err := errors.Join(scrub(ps.main), scrub(ps.inbox.file)); err != nil {
		return deleted, err
	}
	return deleted, ps.main.Update(func(tx *bolt.Tx) error {
		return ps.note(tx, Event{Kind: EventDeleted, By: who, Reason: reason, Detail: fmt.Sprintf("%d decisions with outcomes, decided before %s",
			deleted, time.UnixMicro(limit).UTC().Format(time.RFC3339))})
	})
}

// matureUntil returns the end of the last cohort of those that begin with a mature one and end by a
// time, or the time where no cohort before it is open.
func (p *promise) matureUntil(t *terms, now time.Time, limit int64) int64 {
	mature := p.mature(t, now)
	for i, c := range p.cohorts {
		if c.Start+p.info.Period > limit || i >= mature {
			return min(limit, c.Start)
		}
	}
	return limit
}

// deletePromise deletes the records of a promise before a time at which a cohort begins.
func (ps *promises) deletePromise(p *promise, limit int64) (uint64, error) {
	t := ps.policies.get(p.key.policy)
	base, err := p.base(ps.main)
	if err != nil {
		return 0, err
	}
	base.alarms.follow(p.official)
	none := newAlarms()
	none.Through = limit // the official evidence has taken them
	for _, c := range p.cohorts {
		if c.Start+p.info.Period <= limit && c.Start > base.alarms.Through && c.Changes > 0 {
			if err := ps.takeOne(p, t, c, c.settings(t), none, base); err != nil {
				return 0, err
			}
		}
	}
	var deleted uint64
	const chunk = 20_000
	for {
		n := 0
		err := ps.main.Update(func(tx *bolt.Tx) error {
			b := promiseBucket(tx, p.key)
			if err := putJSON(b, keyBase, base); err != nil {
				return err
			}
			c := b.Bucket(bucketRecords).Cursor()
			to := appendTime(nil, limit)
			for k, _ := c.First(); k != nil && n < chunk && bytes.Compare(k, to) < 0; k, _ = c.First() {
				if err := c.Delete(); err != nil {
					return err
				}
				n++
			}
			return nil
		})
		if err != nil {
			return deleted, err
		}
		deleted += uint64(n)
		if n < chunk {
			return deleted, nil
		}
	}
}

func sortedKeys[K cmp.Ordered, V any](m map[K]V) []K { return slices.Sorted(maps.Keys(m)) }

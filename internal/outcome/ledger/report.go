package ledger

import (
	"encoding/binary"
	"errors"
	"fmt"
	"strings"
	"time"

	bolt "go.etcd.io/bbolt"

	"github.com/ckd-project/ckd/internal/outcome/receipt"
	"github.com/ckd-project/ckd/policy"
)

const (
	// mostText bounds the names of sources and of who reports, in bytes.
	mostText = 256
	// mostSkew is how far clocks may differ: a reading's time may lie so far in the future, or before
	// the decision.
	mostSkew = 5 * time.Minute
)

// Report stores a batch of outcomes in one commit, and answers each. What it answers as stored is
// durable before it returns; after an error nothing of the batch is stored. by names who reports,
// for the record. Sending a batch again changes nothing.
func (l *Ledger) Report(who string, batch []Outcome) ([]Answer, error) {
	if len(who) > mostText {
		who = who[:mostText]
	}
	answers := make([]Answer, len(batch))
	opened := make([]*Record, len(batch)) // with one reading each; nil where nothing is to be stored
	now := l.now().UTC().Truncate(time.Microsecond)
	keys := l.options.Keys()
	for i := range batch {
		opened[i] = l.policies.openOutcome(keys, who, now, &batch[i], &answers[i])
	}
	if err := l.inbox.report(opened, answers); err != nil {
		return nil, err
	}
	return answers, nil
}

// report stores opened outcomes and fills in their answers. It waits where too many have gathered, and
// begins a merge in the background where enough have.
func (box *inbox) report(opened []*Record, answers []Answer) error {
	box.mu.Lock()
	defer box.mu.Unlock()
	for box.merging != nil && box.open.records >= mostGathered {
		box.merged.Wait()
	}
	if err := box.enter(opened, answers); err != nil {
		return err
	}
	if box.open.records >= mergeAt && box.merging == nil && !box.mergeAsked {
		box.mergeAsked = true
		go box.mergeGathered()
	}
	return nil
}

// mergeGathered merges in the background. An error shows at the next merge that somebody waits for.
func (box *inbox) mergeGathered() {
	defer func() {
		box.mu.Lock()
		defer box.mu.Unlock()
		box.mergeAsked = false
	}()
	_ = box.merge()
}

// openOutcome opens a receipt and checks the outcome. It returns nil, with the answer filled in,
// if there is nothing to store.
func (p *policies) openOutcome(keys *receipt.Keys, who string, now time.Time, o *Outcome, a *Answer) *Record {
	if keys == nil {
		a.Status, a.Field, a.Why = UnknownKey, "receipt", "the ledger has no receipt keys"
		return nil
	}
	r, id, err := keys.Open(o.Receipt)
	switch {
	case errors.Is(err, receipt.ErrUnknownKey):
		a.Status, a.Field, a.Why = UnknownKey, "receipt", err.Error()
		return nil
	case err != nil:
		a.Status, a.Field, a.Why = Forged, "receipt", err.Error()
		return nil
	}
	a.Policy = r.Policy
	t := p.get(r.Policy)
	if t == nil {
		a.Status, a.Field = PolicyUnknown, "receipt"
		a.Why = fmt.Sprintf("no daemon has told policy %x: send the outcome again later", r.Policy[:4])
		return nil
	}
	invalid := func(field, why string, args ...any) *Record {
		a.Status, a.Field, a.Why = Invalid, field, fmt.Sprintf(why, args...)
		return nil
	}
	if r.Stratum < receipt.Deferred || r.Stratum > receipt.CalledSafe || int(r.Predicted) >= len(t.critical) {
		return invalid("receipt", "stratum %d and predicted class %d do not fit policy %x", r.Stratum, r.Predicted, r.Policy[:4])
	}
	if policy.Action(r.Action) > policy.Observe || r.Reason >= uint8(policy.Reasons) || r.Gate > uint8(policy.ByFallback) {
		return invalid("receipt", "action %d, reason %d and gate %d are not known: made by a newer version of ckd", r.Action, r.Reason, r.Gate)
	}
	truth, known := t.classes[o.Truth]
	found, decided := o.At.UTC().Truncate(time.Microsecond), time.UnixMicro(r.Time).UTC()
	if o.At.IsZero() {
		found = now
	}
	switch {
	case !known:
		return invalid("truth", "found %.64q, expected one of %s", o.Truth, listed(t.policy.Classes))
	case o.Source == "":
		return invalid("source", "missing, expected a name for who found the truth")
	case len(o.Source) > mostText:
		return invalid("source", "found %d bytes, expected at most %d", len(o.Source), mostText)
	case o.Kind >= kinds:
		return invalid("kind", "found %d, expected reading, follow-up or biopsy", o.Kind)
	case found.After(now.Add(mostSkew)):
		return invalid("at", "found %s, expected a time that has passed", found.Format(time.RFC3339))
	case !o.At.IsZero() && found.Before(decided.Add(-mostSkew)):
		return invalid("at", "found %s, but the input was decided at %s: expected no earlier time (is it the right case?)",
			found.Format(time.RFC3339), decided.Format(time.RFC3339))
	case found.Year() < 1900:
		return invalid("at", "found %s, expected a time since 1900", found.Format(time.RFC3339))
	}
	return &Record{ID: id, Receipt: r, Sampled: sampled(keys, id),
		Readings: []Said{{Source: o.Source, Kind: o.Kind, Truth: truth, SawModel: o.SawModel, At: found, By: who, Reported: now}}}
}

// listed returns class names for a message.
func listed(classes []string) string {
	const most = 8
	if len(classes) > most {
		return fmt.Sprintf("%s, ... (%d classes)", strings.Join(classes[:most], ", "), len(classes))
	}
	return strings.Join(classes, ", ")
}

// sampled draws the decisions that are read twice whatever the first reading says: by a hash that
// nobody without the key can foresee.
func sampled(keys *receipt.Keys, id receipt.ID) bool {
	h := keys.DrawKey().Group(append([]byte("second read"), id[:]...))
	return float64(h>>11)/(1<<53) < secondReads
}

// enter adds opened outcomes to the records of their decisions, and stores the changed records. The caller
// holds mu.
func (box *inbox) enter(opened []*Record, answers []Answer) error {
	var (
		batch   []byte
		changed []*Record
	)
	err := box.main.View(func(tx *bolt.Tx) error {
		find := newFinder(box, tx)
		for i, opening := range opened {
			if opening == nil {
				continue
			}
			r, known, err := find.record(opening)
			if err != nil {
				return err
			}
			if !box.enterOne(find, r, known, opening, &answers[i]) {
				continue
			}
			if find.keep(r) {
				changed = append(changed, r)
			}
		}
		return nil
	})
	if err != nil || len(changed) == 0 {
		return err
	}
	for _, r := range changed {
		batch = appendBatched(batch, r)
	}
	return box.accept(batch, changed)
}

// enterOne adds a reading to the record of its decision, and answers. It returns whether anything is
// to be stored.
func (box *inbox) enterOne(find *finder, r *Record, known bool, opening *Record, a *Answer) bool {
	t := box.policies.get(opening.Receipt.Policy)
	if opening.Receipt.Time < box.deleted {
		a.Status, a.Field = Invalid, "receipt"
		a.Why = fmt.Sprintf("decided before %s, up to when outcomes were deleted", time.UnixMicro(box.deleted).UTC().Format(time.RFC3339))
		return false
	}
	said := opening.Readings[0]
	before := t.find(r, endOfTime)
	stood := standingOf(r.Readings, &said)
	var changed bool
	switch {
	case stood != nil && said.At.Equal(said.Reported) && stood.Truth == said.Truth && stood.SawModel == said.SawModel:
		// A file without times that is sent again, every night perhaps, is no new reading.
	case len(r.Readings) >= mostReadings && !r.has(&said):
		a.Status, a.Field, a.Why = Invalid, "receipt", fmt.Sprintf("the decision has %d readings already", mostReadings)
		return false
	default:
		changed = r.add(said)
	}
	after := t.find(r, endOfTime)
	a.Predicted, a.Time = t.policy.Classes[r.Receipt.Predicted], time.UnixMicro(r.Receipt.Time).UTC()
	a.Want = after.want
	stands := standingOf(r.Readings, &said)
	switch {
	case !reviewed(&r.Receipt):
		a.Status, a.Field, a.Why, a.Want = Apart, "receipt", "nobody had picked the input for review: its outcome has no weight", WantNone
	case find.duplicate(r, known):
		a.Status, a.Field, a.Why, a.Want = Duplicate, "receipt", "an equal input was decided before, and counts", WantNone
	case stood != nil && (stands.Truth == stood.Truth && stands.SawModel == stood.SawModel):
		a.Status = Duplicate
		if said.Truth != stands.Truth {
			a.Field, a.Why = "at", "a later reading of the same source stands"
		}
	case !said.counts(&r.Receipt):
		a.Status, a.Field, a.Why = Apart, "saw_model", "the reader had seen the model's answer: a blind reading is wanted"
	case stood != nil:
		a.Status = Corrected // Want names the reading that is wanted now
	case after.want != WantNone && after.want != before.want:
		a.Status = SecondReadWanted
	default:
		a.Status = Counted
	}
	return changed
}

// standingOf returns the reading that stands of a source and kind, nil for none.
func standingOf(readings []Said, of *Said) *Said {
	for i := len(readings) - 1; i >= 0; i-- {
		if s := &readings[i]; s.Source == of.Source && s.Kind == of.Kind {
			copied := *s
			return &copied
		}
	}
	return nil
}

// A finder finds the records of decisions: in the batch at hand, among what has gathered, and in
// ledger.db. Whoever uses it holds inbox.mu.
type finder struct {
	inbox   *inbox
	tx      *bolt.Tx
	fresh   map[promiseKey]map[recordKey]*Record
	drawn   map[promiseKey]map[uint64]int64 // the time of the earliest decision of this batch
	buckets map[promiseKey][2]*bolt.Bucket  // records and draws
}

func newFinder(box *inbox, tx *bolt.Tx) *finder {
	return &finder{inbox: box, tx: tx, fresh: make(map[promiseKey]map[recordKey]*Record), drawn: make(map[promiseKey]map[uint64]int64),
		buckets: make(map[promiseKey][2]*bolt.Bucket)}
}

// keep notes a record that this batch has changed, and returns whether it is the first time.
func (f *finder) keep(r *Record) bool {
	p, key := promiseKey{r.Receipt.Policy, r.Receipt.Version}, r.key()
	if f.fresh[p] == nil {
		f.fresh[p], f.drawn[p] = make(map[recordKey]*Record), make(map[uint64]int64)
	}
	if f.fresh[p][key] != nil {
		return false
	}
	f.fresh[p][key] = r
	if d := r.Receipt.Draw; d != 0 && reviewed(&r.Receipt) {
		if first, drawn := f.drawn[p][d]; !drawn || r.Receipt.Time < first {
			f.drawn[p][d] = r.Receipt.Time
		}
	}
	return true
}

func (f *finder) bucketsOf(p promiseKey) (records, draws *bolt.Bucket) {
	have, known := f.buckets[p]
	if !known {
		if b := promiseBucket(f.tx, p); b != nil {
			have = [2]*bolt.Bucket{b.Bucket(bucketRecords), b.Bucket(bucketDraws)}
		}
		f.buckets[p] = have
	}
	return have[0], have[1]
}

// record returns a copy of a decision's record, or else a new record without readings.
func (f *finder) record(opening *Record) (r *Record, known bool, err error) {
	p := promiseKey{opening.Receipt.Policy, opening.Receipt.Version}
	key := opening.key()
	found := f.fresh[p][key]
	if found != nil {
		return found, true, nil
	}
	for _, g := range []*gathered{f.inbox.open, f.inbox.merging} {
		if found == nil && g != nil && g.promises[p] != nil {
			found = g.promises[p].records[key]
		}
	}
	if found == nil {
		if records, _ := f.bucketsOf(p); records != nil {
			if value := records.Get(key[:]); value != nil {
				found, err = decodeRecord(p, key[:], value)
				return found, true, err
			}
		}
	}
	if found == nil {
		fresh := *opening
		fresh.Readings = nil
		return &fresh, false, nil
	}
	copied := *found
	return &copied, true, nil
}

// duplicate reports whether an equal input that was decided before counts in place of a record.
func (f *finder) duplicate(r *Record, known bool) bool {
	c := &r.Receipt
	if r.Duplicate || c.Draw == 0 {
		return r.Duplicate
	}
	p := promiseKey{c.Policy, c.Version}
	earlier := func(at int64) bool { return at < c.Time || at == c.Time && !known }
	for _, g := range []*gathered{f.inbox.open, f.inbox.merging} {
		if g == nil || g.promises[p] == nil {
			continue
		}
		if at, found := g.promises[p].draws[c.Draw]; found && earlier(at) {
			return true
		}
	}
	if at, found := f.drawn[p][c.Draw]; found && earlier(at) {
		return true
	}
	if _, draws := f.bucketsOf(p); draws != nil {
		if first := draws.Get(binary.BigEndian.AppendUint64(nil, c.Draw)); first != nil {
			return earlier(timeOf(first))
		}
	}
	return false
}

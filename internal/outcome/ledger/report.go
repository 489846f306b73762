package ledger

import (
	"cmp"
	"errors"
	"fmt"
	"slices"
	"strings"
	"time"

	"github.com/ckd-project/ckd/internal/outcome/promise"
	"github.com/ckd-project/ckd/internal/outcome/receipt"
	"github.com/ckd-project/ckd/internal/outcome/store"
	"github.com/ckd-project/ckd/internal/outcome/truth"
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
	opened := make([]opened, len(batch))
	now := l.now()
	keys := l.options.Keys()
	some := false
	for i := range batch {
		opened[i] = l.policies.open(keys, who, now, i, &batch[i], &answers[i])
		some = some || opened[i].terms != nil
	}
	if !some {
		return answers, nil
	}
	var e *entry
	err := l.store.Update(func(tx *store.Tx) error {
		e = newEntry(l, tx)
		_, err := e.store(opened, answers)
		return err
	})
	if err != nil {
		return nil, fmt.Errorf("the outcomes are not stored: %w", err)
	}
	for _, p := range e.runs {
		l.runs.set(p)
	}
	return answers, nil
}

// opened is an outcome whose receipt was opened and whose fields are valid; without terms it is to be
// refused.
type opened struct {
	terms    *truth.Terms
	sealed   []byte
	undated  bool
	decision truth.Decision // without readings
	reading  truth.Reading
}

// open opens a receipt and checks the outcome. It fills in the answer if there is nothing to store. Of
// outcomes without a time the one that comes later in the batch is the later one.
func (p *policies) open(keys *receipt.Keys, who string, now time.Time, place int, o *Outcome, a *Answer) opened {
	if keys == nil {
		a.Status, a.Field, a.Why = UnknownKey, "receipt", "the ledger has no receipt keys"
		return opened{}
	}
	r, id, err := keys.Open(o.Receipt)
	switch {
	case errors.Is(err, receipt.ErrUnknownKey):
		a.Status, a.Field, a.Why = UnknownKey, "receipt", err.Error()
		return opened{}
	case err != nil:
		a.Status, a.Field, a.Why = Forged, "receipt", err.Error()
		return opened{}
	}
	a.Policy = r.Policy
	t := p.get(r.Policy)
	if t == nil {
		a.Status, a.Field = PolicyUnknown, "receipt"
		a.Why = fmt.Sprintf("no daemon has told policy %x: send the outcome again later", r.Policy[:4])
		return opened{}
	}
	invalid := func(field, why string, args ...any) opened {
		a.Status, a.Field, a.Why = Invalid, field, fmt.Sprintf(why, args...)
		return opened{}
	}
	if r.Stratum < receipt.Deferred || r.Stratum > receipt.CalledSafe || int(r.Predicted) >= len(t.Critical) {
		return invalid("receipt", "stratum %d and predicted class %d do not fit policy %x", r.Stratum, r.Predicted, r.Policy[:4])
	}
	if policy.Action(r.Action) > policy.Observe || r.Reason >= uint8(policy.Reasons) || r.Gate > uint8(policy.ByFallback) {
		return invalid("receipt", "action %d, reason %d and gate %d are not known: made by a newer version of ckd", r.Action, r.Reason, r.Gate)
	}
	class, known := t.Classes[o.Truth]
	found, decided := o.At.UTC().Truncate(time.Microsecond), time.UnixMicro(r.Time).UTC()
	if o.At.IsZero() {
		found = now.Add(time.Duration(place) * time.Microsecond)
	}
	switch {
	case !known:
		return invalid("truth", "found %.64q, expected one of %s", o.Truth, listed(t.Policy.Classes))
	case o.Source == "":
		return invalid("source", "missing, expected a name for who found the truth")
	case len(o.Source) > mostText:
		return invalid("source", "found %d bytes, expected at most %d", len(o.Source), mostText)
	case o.Kind >= truth.Kinds:
		return invalid("kind", "found %d, expected reading, follow-up or biopsy", o.Kind)
	case found.After(now.Add(mostSkew)):
		return invalid("at", "found %s, expected a time that has passed", found.Format(time.RFC3339))
	case !o.At.IsZero() && found.Before(decided.Add(-mostSkew)):
		return invalid("at", "found %s, but the input was decided at %s: expected no earlier time (is it the right case?)",
			found.Format(time.RFC3339), decided.Format(time.RFC3339))
	case found.Year() < 1900:
		return invalid("at", "found %s, expected a time since 1900", found.Format(time.RFC3339))
	}
	return opened{terms: t, sealed: o.Receipt, undated: o.At.IsZero(), decision: truth.Decision{ID: id, Receipt: r, Sampled: sampled(keys, id)},
		reading: truth.Reading{Source: o.Source, Kind: o.Kind, Truth: class, SawModel: o.SawModel, At: found, By: who, Reported: now}}
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
	return float64(h>>11)/(1<<53) < promise.SecondReads
}

// An entry adds a batch of outcomes to the decisions of the store, in one transaction.
type entry struct {
	l         *Ledger
	tx        *store.Tx
	runs      map[runKey]store.Promise
	decisions map[store.Key]*entered
	drawn     map[int64]map[uint64]store.Key // by run: of each draw the decision that counts
	touched   map[cohortKey]bool
	added     int // readings
}

// entered is a decision of which the batch says something.
type entered struct {
	*truth.Decision
	sealed  []byte // of a decision that the store does not have
	fresh   []truth.Reading
	demoted bool // an earlier one counts in its place, which it did not before
}

func newEntry(l *Ledger, tx *store.Tx) *entry {
	return &entry{l: l, tx: tx, runs: make(map[runKey]store.Promise), decisions: make(map[store.Key]*entered),
		drawn: make(map[int64]map[uint64]store.Key), touched: make(map[cohortKey]bool)}
}

// store stores the outcomes of a batch that are to be stored, answers each, and returns how many readings
// are new. What the store does not have it finds by storing it.
func (e *entry) store(batch []opened, answers []Answer) (added int, err error) {
	rest, err := e.insert(batch, answers)
	if err != nil {
		return 0, err
	}
	if err := e.find(batch, rest); err != nil {
		return 0, err
	}
	for _, i := range rest {
		e.enter(&batch[i], &answers[i])
	}
	return e.added, e.write()
}

// run returns the run of an outcome.
func (e *entry) run(o *opened) (store.Promise, error) {
	name := runKey{o.terms.Hash, o.decision.Receipt.Version}
	run, known := e.runs[name]
	if known {
		return run, nil
	}
	run, err := e.l.run(e.tx, o.terms, name.version)
	e.runs[name] = run
	return run, err
}

// insert stores the outcomes of inputs of which the batch has one and the store none, without looking
// for them before, and answers these. It returns the places of the others that are to be stored.
func (e *entry) insert(batch []opened, answers []Answer) (rest []int, err error) {
	type input struct {
		run  int64
		draw uint64
		id   receipt.ID // of an input without a draw
	}
	inputs, outcomes := make([]input, len(batch)), make(map[input]int)
	for i := range batch {
		o := &batch[i]
		if o.terms == nil {
			continue
		}
		run, err := e.run(o)
		if err != nil {
			return nil, err
		}
		inputs[i] = input{run: run.Number, draw: o.decision.Receipt.Draw}
		if inputs[i].draw == 0 {
			inputs[i].id = o.decision.ID
		}
		outcomes[inputs[i]]++
	}
	for i := range batch {
		o, a := &batch[i], &answers[i]
		if o.terms == nil || e.refuse(o, a) {
			continue
		}
		if outcomes[inputs[i]] > 1 {
			rest = append(rest, i)
			continue
		}
		before := o.terms.Find(&o.decision, truth.EndOfTime)
		d := o.decision
		d.Add(o.reading)
		inserted, err := e.tx.InsertFirst(inputs[i].run, &d, o.sealed)
		if err != nil {
			return nil, err
		}
		if !inserted {
			rest = append(rest, i)
			continue
		}
		e.added++
		e.touch(store.KeyOf(inputs[i].run, &d.Receipt, d.ID))
		e.answer(o, &d, &before, nil, a)
	}
	return rest, nil
}

// refuse answers an outcome whose cohort lost outcomes to a deletion.
func (e *entry) refuse(o *opened, a *Answer) bool {
	r := &o.decision.Receipt
	until := e.l.runs.refused(e.runs[runKey{r.Policy, r.Version}], r.Time)
	if until.IsZero() {
		return false
	}
	a.Status, a.Field = Invalid, "receipt"
	a.Why = fmt.Sprintf("decided before %s, up to when outcomes were deleted", until.Format(time.RFC3339))
	return true
}

// key returns the key of an outcome's decision.
func (e *entry) key(o *opened) store.Key {
	r := &o.decision.Receipt
	return store.KeyOf(e.runs[runKey{r.Policy, r.Version}].Number, r, o.decision.ID)
}

// find reads what the store has of the decisions and draws of some outcomes.
func (e *entry) find(batch []opened, places []int) error {
	var keys []store.Key
	draws := make(map[int64][]uint64)
	for _, i := range places {
		key, r := e.key(&batch[i]), &batch[i].decision.Receipt
		keys = append(keys, key)
		if r.Draw != 0 && truth.Reviewed(r) {
			draws[key.Promise] = append(draws[key.Promise], r.Draw)
		}
	}
	known, err := e.tx.Decisions(keys)
	if err != nil {
		return err
	}
	for key, d := range known {
		e.decisions[key] = &entered{Decision: d}
	}
	for run, of := range draws {
		if e.drawn[run], err = e.tx.Earliest(run, of); err != nil {
			return err
		}
	}
	return nil
}

// enter adds a reading to its decision, and answers.
func (e *entry) enter(o *opened, a *Answer) {
	key := e.key(o)
	d := e.decisions[key]
	if d == nil {
		added := o.decision
		d = &entered{Decision: &added, sealed: o.sealed}
	}
	before := o.terms.Find(d.Decision, truth.EndOfTime)
	stood := d.Standing(o.reading.Source, o.reading.Kind)
	var changed bool
	switch {
	case stood != nil && o.undated && saidBefore(d.Decision, &o.reading):
		// A file without times that is sent again, every night perhaps, is no new reading.
	case len(d.Readings) >= truth.MostReadings && !d.Has(&o.reading):
		a.Status, a.Field, a.Why = Invalid, "receipt", fmt.Sprintf("the decision has %d readings already", truth.MostReadings)
		return
	default:
		changed = d.Add(o.reading)
	}
	if changed {
		e.added++
		d.fresh = append(d.fresh, o.reading)
		e.keep(key, d)
	}
	e.answer(o, d.Decision, &before, stood, a)
}

// saidBefore reports whether the last reading of the source says the same.
func saidBefore(d *truth.Decision, r *truth.Reading) bool {
	var last *truth.Reading
	for i := range d.Readings {
		if have := &d.Readings[i]; have.Source == r.Source && have.Kind == r.Kind {
			last = have
		}
	}
	return last != nil && last.Truth == r.Truth && last.SawModel == r.SawModel
}

// answer says what became of a reading.
func (e *entry) answer(o *opened, d *truth.Decision, before *truth.Finding, stood *truth.Reading, a *Answer) {
	after := o.terms.Find(d, truth.EndOfTime)
	said, stands := &o.reading, d.Standing(o.reading.Source, o.reading.Kind)
	a.Predicted, a.Time = o.terms.Policy.Classes[d.Receipt.Predicted], time.UnixMicro(d.Receipt.Time).UTC()
	a.Want = after.Want
	replaced := stood != nil && (stands.Truth != stood.Truth || stands.SawModel != stood.SawModel)
	switch {
	case !truth.Reviewed(&d.Receipt):
		a.Status, a.Field, a.Why, a.Want = Apart, "receipt", "nobody had picked the input for review: its outcome has no weight", truth.WantNone
	case d.Duplicate:
		a.Status, a.Field, a.Why, a.Want = Duplicate, "receipt", "an equal input was decided before, and counts", truth.WantNone
	case after.Apart != nil && after.Apart.Source == said.Source && after.Apart.Kind == said.Kind && stood != nil && said.Truth != stood.Truth:
		a.Status, a.Field, a.Why = Apart, "source", "its first reading stands: what it says after the answer is kept apart"
	case stood != nil && !replaced:
		a.Status = Duplicate
		if said.Truth != stands.Truth {
			a.Field, a.Why = "at", "a later reading of the same source stands"
		}
	case after.Apart != nil && said.SawModel && after.Apart.Source == said.Source:
		a.Status, a.Field, a.Why = Apart, "saw_model", "the reader had seen the model's answer: a blind reading is wanted"
	case replaced:
		a.Status = Corrected // Want names the reading that is wanted now
	case after.Want != truth.WantNone && after.Want != before.Want:
		a.Status = SecondReadWanted
	default:
		a.Status = Counted
	}
}

// keep notes a decision that this batch has changed. Of equal inputs the one that was decided first
// counts.
func (e *entry) keep(key store.Key, d *entered) {
	r := &d.Receipt
	known := e.decisions[key] != nil
	e.decisions[key] = d
	e.touch(key)
	if known || r.Draw == 0 || !truth.Reviewed(r) {
		return
	}
	drawn := e.drawn[key.Promise]
	first, some := drawn[r.Draw]
	switch {
	case some && first.Compare(&key) < 0:
		d.Duplicate = true
		return
	case some:
		e.demote(first)
	}
	drawn[r.Draw] = key
}

// demote lets an earlier decision count in the place of one.
func (e *entry) demote(key store.Key) {
	d := e.decisions[key]
	if d == nil {
		d = &entered{Decision: &truth.Decision{}} // nothing else of it changes
		e.decisions[key] = d
	}
	d.Duplicate, d.demoted = true, d.sealed == nil
	e.touch(key)
}

func (e *entry) touch(key store.Key) {
	for _, run := range e.runs {
		if run.Number == key.Promise {
			e.touched[cohortKey{key.Promise, promise.Grid{Period: run.Period}.Start(key.Time)}] = true
			return
		}
	}
}

// write stores what has changed. What counts no longer is stored first: one decision counts for a draw.
func (e *entry) write() error {
	for key, d := range e.decisions {
		if d.demoted {
			if err := e.tx.SetDuplicate(key); err != nil {
				return err
			}
		}
	}
	var changed []store.Key
	for key, d := range e.decisions {
		if len(d.fresh) > 0 {
			changed = append(changed, key)
		}
	}
	slices.SortFunc(changed, func(a, b store.Key) int { return a.Compare(&b) })
	for _, key := range changed {
		if err := e.writeOne(key, e.decisions[key]); err != nil {
			return err
		}
	}
	touched := make([]cohortKey, 0, len(e.touched))
	for key := range e.touched {
		touched = append(touched, key)
	}
	slices.SortFunc(touched, func(a, b cohortKey) int {
		return cmp.Or(cmp.Compare(a.promise, b.promise), cmp.Compare(a.start, b.start))
	})
	for _, c := range touched {
		if err := e.tx.Touch(c.promise, c.start); err != nil {
			return err
		}
	}
	return nil
}

func (e *entry) writeOne(key store.Key, d *entered) error {
	if d.sealed == nil {
		return e.tx.PutReadings(key, d.fresh)
	}
	return e.tx.Insert(key.Promise, d.Decision, d.sealed)
}

package ledger

import (
	"errors"
	"fmt"
	"time"

	"github.com/ckd-project/ckd/internal/outcome/store"
)

// Import stores outcomes by whom and when they were first reported, in one commit, and answers each as Report does. who
// and reason are recorded in the trail, unless nothing was new.
func (l *Ledger) Import(who, reason string, batch []Outcome) ([]Answer, error) {
	if who == "" || reason == "" {
		return nil, errors.New("import: expected who imports the outcomes, and why")
	}
	answers, readings := make([]Answer, len(batch)), make([]opened, len(batch))
	now := l.now()
	keys := l.options.Keys()
	for i := range batch {
		in := &batch[i]
		readings[i] = l.policies.open(keys, in.By, now, i, in, &answers[i])
		o, reported := &readings[i], in.Reported.UTC().Truncate(time.Microsecond)
		switch {
		case o.terms == nil:
			continue
		case in.At.IsZero():
			answers[i].Field, answers[i].Why = "at", "none, expected when the truth was found, as the export has it"
		case in.Reported.IsZero() || reported.After(now.Add(mostSkew)):
			answers[i].Field, answers[i].Why = "reported", fmt.Sprintf("found %s, expected when the outcome was first reported", in.Reported.Format(time.RFC3339))
		case len(in.By) > mostText:
			answers[i].Field, answers[i].Why = "by", fmt.Sprintf("found %d bytes, expected at most %d", len(in.By), mostText)
		default:
			o.reading.Reported = reported
			continue
		}
		answers[i].Status, o.terms = Invalid, nil
	}
	var e *entry
	err := l.store.Update(func(tx *store.Tx) error {
		e = newEntry(l, tx)
		added, err := e.store(readings, answers)
		if added == 0 || err != nil {
			return err
		}
		return l.note(tx, Event{Kind: eventImported, By: who, Reason: reason, Detail: fmt.Sprintf("%d readings of an export", added)})
	})
	if err != nil {
		return nil, fmt.Errorf("the outcomes are not stored: %w", err)
	}
	for _, p := range e.runs {
		l.runs.set(p)
	}
	return answers, nil
}

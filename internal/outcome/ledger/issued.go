package ledger

import (
	"encoding/json"
	"fmt"
	"math"

	"github.com/ckd-project/ckd/internal/outcome/promise"
	"github.com/ckd-project/ckd/internal/outcome/receipt"
	"github.com/ckd-project/ckd/internal/outcome/store"
)

// Issued learns what daemons decided. Telling the same again changes nothing; of two counts of one
// process, version, stratum and period the larger stays. sealed says which receipts all the counts
// of the process have, with those that were told before.
func (l *Ledger) Issued(counts []Issued, sealed ...Sealed) error {
	if len(counts) == 0 && len(sealed) == 0 {
		return nil
	}
	for i := range counts {
		if err := l.checkIssued(&counts[i]); err != nil {
			return err
		}
	}
	runs := make(map[runKey]store.Promise)
	err := l.store.Update(func(tx *store.Tx) error {
		for _, s := range sealed {
			if err := tx.PutSealer(s.Sealer, s.Count, s.Key, l.now().UnixMicro()); err != nil {
				return err
			}
		}
		for i := range counts {
			if err := l.putIssued(tx, runs, &counts[i]); err != nil {
				return err
			}
		}
		return l.told.load(tx, tx.Identity().Commit) // those of this transaction
	})
	if err != nil {
		return err
	}
	for _, run := range runs {
		l.runs.set(run)
	}
	return nil
}

func (l *Ledger) checkIssued(c *Issued) error {
	switch {
	case c.Process == "" || len(c.Process) > 128:
		return fmt.Errorf("issued: process %.20q, expected a name of 1 to 128 bytes", c.Process)
	case c.Stratum < receipt.Deferred || c.Stratum > receipt.CalledSafe:
		return fmt.Errorf("issued: stratum %d, expected 1 to 3", c.Stratum)
	case l.policies.get(c.Policy) == nil:
		return fmt.Errorf("issued: policy %x: %w", c.Policy, ErrPolicyUnknown)
	}
	return nil
}

// putIssued stores one count.
func (l *Ledger) putIssued(tx *store.Tx, runs map[runKey]store.Promise, c *Issued) error {
	key := runKey{c.Policy, receipt.VersionHash(c.Version)}
	run, known := runs[key]
	if !known {
		var err error
		if run, err = l.run(tx, l.policies.get(c.Policy), key.version); err != nil {
			return err
		}
		if run.Name == "" && c.Version != "" {
			run.Name = c.Version
			if err := tx.NameVersion(run.Number, run.Name); err != nil {
				return err
			}
		}
		runs[key] = run
	}
	set := promise.SettingsOf(c.Audit)
	settings, err := json.Marshal(set)
	if err != nil {
		return err
	}
	row := store.Issued{Promise: run.Number, Start: c.Start.UnixMicro(), Stratum: c.Stratum, Process: c.Process, Settings: settings,
		Counts: store.Counts{Decisions: c.Decisions, Eligible: c.Eligible, Receipts: c.Receipts, Reviews: c.Reviews, Due: c.Reviews,
			Expected: millionths(c.Propensity), DueWeight: millionths(c.InversePropensity)}}
	row.Cohort = promise.Grid{Period: run.Period}.Start(row.Start)
	if set.Free && c.Stratum == receipt.CalledCritical {
		row.Counts.Due, row.Counts.DueWeight = c.Receipts, millionths(float64(c.Receipts))
	}
	_, err = tx.PutIssued(&row)
	return err
}

// millionths returns a sum as it is stored, so that sums of sums do not depend on their order.
func millionths(v float64) int64 { return int64(math.Round(min(v, math.MaxInt32*1e6) * 1e6)) }

// toldOf returns the sums of a cohort as figures take them.
func toldOf(s *store.Sum) (*promise.Told, error) {
	t := &promise.Told{}
	for i, text := range s.Settings {
		var set promise.Settings
		if err := json.Unmarshal(text, &set); err != nil {
			return nil, err
		}
		if i > 0 {
			set = t.Settings.Join(set)
		}
		t.Settings = set
	}
	for k := range t.Strata {
		c := &s.Strata[k]
		t.Strata[k] = promise.Issued{Decisions: c.Decisions, Eligible: c.Eligible, Receipts: c.Receipts, Reviews: c.Reviews, Due: c.Due,
			Expected: float64(c.Expected) / 1e6, DueWeight: float64(c.DueWeight) / 1e6}
	}
	return t, nil
}

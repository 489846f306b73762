package main

import (
	"cmp"
	"encoding/hex"
	"errors"
	"fmt"
	"math"
	"os"
	"path/filepath"
	"time"

	"github.com/ckd-project/ckd/calibrate"
	"github.com/ckd-project/ckd/outcome/ledger"
	"github.com/ckd-project/ckd/outcome/receipt"
	"github.com/ckd-project/ckd/policy"
)

// checkLedger refuses flags that make no sense with or without --ledger.
func (c *calibrateCmd) checkLedger() error {
	if c.Ledger == "" {
		switch {
		case c.Since != "" || c.ModelVersion != nil:
			return errors.New("--since and --model-version need --ledger")
		case c.Passes == "":
			return errors.New("expected --passes with recorded passes, or --ledger with outcomes")
		}
		return nil
	}
	if _, err := c.since(); err != nil {
		return err
	}
	limits, err := c.limits()
	switch {
	case err != nil:
		return err
	case c.Passes != "" || c.Labels != "" || c.Groups != "" || c.Settle != nil:
		return errors.New("--ledger takes the place of a recording: expected no --passes, --labels, --groups or --settle beside it")
	case c.Policy == "":
		return errors.New("--ledger needs --policy: the policy that decided")
	case len(limits) == 0:
		return errors.New("--ledger needs --max-critical-fnr or --max-critical-miss, with a confidence")
	case c.Since == "":
		return errors.New("--ledger needs --since: a date that was named before anyone looked at the outcomes that follow it")
	case c.Guard != 0 || c.Prevalence != nil || c.Reliability != nil || c.Posterior != "" || len(c.AlarmAbove) > 0:
		return errors.New("--guard, --prevalence, --reliability-threshold, --posterior and --alarm-above need passes: with --ledger the policy keeps its own")
	}
	return nil
}

// since returns the time of --since.
func (c *calibrateCmd) since() (time.Time, error) {
	if c.Since == "" {
		return time.Time{}, nil
	}
	for _, form := range []string{time.DateOnly, time.RFC3339} {
		if t, err := time.Parse(form, c.Since); err == nil {
			return t, nil
		}
	}
	return time.Time{}, fmt.Errorf("--since %q: expected a day as 2026-10-31, or a time as 2026-10-31T08:00:00Z", c.Since)
}

// fromLedger calibrates a policy anew on the outcomes of its decisions.
func (c *calibrateCmd) fromLedger(model *policy.Policy) (*calibrate.Report, error) {
	if _, err := os.Stat(filepath.Join(c.Ledger, "ledger.db")); err != nil {
		return nil, fmt.Errorf("%s holds no ledger: %w", c.Ledger, err)
	}
	l, err := ledger.Open(c.Ledger, ledger.Options{})
	if errors.Is(err, ledger.ErrInUse) {
		return nil, fmt.Errorf("%w: stop that daemon, or calibrate on a copy of the directory made while it was stopped", err)
	}
	if err != nil {
		return nil, err
	}
	defer l.Close()
	since, _ := c.since() // Validate has refused faults
	version := model.Version
	if c.ModelVersion != nil {
		version = *c.ModelVersion
	}
	hash, err := hex.DecodeString(model.Hash)
	if err != nil {
		return nil, err
	}
	found, err := l.Matured([32]byte(hash), version, since)
	if err != nil {
		return nil, fmt.Errorf("%s: model %s, version %q: %w", c.Ledger, model.Name, version, err)
	}
	if len(found.Decided) == 0 {
		return nil, fmt.Errorf("%s: no reviewed decision of model %s, version %q, since %s has an outcome and is of a day whose outcomes are all due",
			c.Ledger, model.Name, version, c.Since)
	}
	o := calibrate.Options{
		Base: model, Scope: c.Scope, Seed: c.Seed, Objective: c.objective(), Source: calibrate.Source{Software: software()},
		CriticalCalls: c.criticalCalls(),
		Attempts:      cmp.Or(c.Attempts, filepath.Join(c.Ledger, "attempts.jsonl")),
	}
	if o.Replaces, err = c.atOut(model.Name); err != nil {
		return nil, err
	}
	report, err := calibrate.FromOutcomes(reviewedOf(found, fmt.Sprintf("outcomes of %s %s since %s", model.Name, version, since.UTC().Format(time.RFC3339))), o)
	if err != nil {
		return nil, err
	}
	report.Notes = append(report.Notes, fmt.Sprintf("cohorts with outcomes: %d, from %s to %s; %d of deferred inputs and %d of retained inputs called safe are overdue",
		found.Cohorts, found.From.Format(time.RFC3339), found.Until.Format(time.RFC3339), found.Overdue[receipt.Deferred], found.Overdue[receipt.CalledSafe]))
	return report, nil
}

// reviewedOf returns what a ledger found as calibration takes it. Overdue inputs called critical
// cannot have been missed, and are left out; of the deferred it is not known how they were called.
func reviewedOf(m *ledger.Matured, name string) calibrate.Reviewed {
	r := calibrate.Reviewed{Name: name, LeastPropensity: m.LeastCalledSafe}
	for _, d := range m.Decided {
		c := &d.Receipt
		decision := policy.Reason(c.Reason)
		r.Outcomes = append(r.Outcomes, calibrate.Outcome{
			Scores: c.Scores, Risk: c.Risk, Predicted: int(c.Predicted), Truth: d.Truth, Disputed: d.Disputed,
			Deferred:   c.Stratum == receipt.Deferred,
			Fixed:      decision == policy.IsDegenerate || decision == policy.IsSaturated || decision == policy.Unfamiliar,
			Propensity: float64(c.Propensity), Group: c.Group,
		})
	}
	for _, s := range []receipt.Stratum{receipt.Deferred, receipt.CalledSafe} {
		if n := m.Overdue[s]; n > 0 {
			weight := m.OverdueWeight[s] / float64(n)
			r.Overdue = append(r.Overdue, calibrate.Overdue{Number: int(n), Weight: math.Max(1, math.Min(weight, 1/m.LeastCalledSafe))})
		}
	}
	return r
}

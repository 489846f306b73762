package calibrate

import (
	"fmt"

	"github.com/ckd-project/ckd/eval"
	"github.com/ckd-project/ckd/policy"
)

// gain says what deferring only inputs called safe does, and what must be true at the site for that
// to be right: nothing in a recording can tell what becomes of the critical calls. It returns ""
// where there is nothing to compare.
func (to *reporter) gain(chosen candidate) string {
	find := func(scope policy.Scope, is func(*Row) bool) *Row {
		for i := range to.Comparison {
			if row := &to.Comparison[i]; row.Scope == scope && !row.Nothing && is(row) {
				return row
			}
		}
		return nil
	}
	calibrated := func(row *Row) bool { return row.Calibrated }
	safe, all, by := find(policy.PredictedSafe, calibrated), find(policy.AllInputs, calibrated), ""
	if to.Scope == policy.AllInputs && chosen.primary == riskScore {
		// Risk defers no critical call either, in any scope.
		safe, all = all, find(policy.AllInputs, func(row *Row) bool { return row.Rule == naivePick })
		by = " by a score that defers critical calls too"
	}
	if all == nil || safe == nil {
		return ""
	}
	if to.run.Objective.Reviews > 0 {
		without := to.run.everything(to.run.all())
		return fmt.Sprintf("At %.0f reviews per 1,000 inputs in all, %d of %d critical inputs are missed. People review the %d critical calls "+
			"anyway, of which %d are false, and these count as reviews: by one rule both scopes miss the same.",
			per1000(safe.Reviews, safe.Inputs), safe.Missed, safe.CriticalInputs, without.Called, without.FalseCalls)
	}
	text := fmt.Sprintf("Deferring only inputs called safe misses %d of %d critical inputs instead of %d%s, at %.0f deferrals per 1,000 "+
		"inputs instead of %.0f; ", safe.Missed, safe.CriticalInputs, all.Missed, by, per1000(safe.Deferred, safe.Inputs),
		per1000(all.Deferred, all.Inputs))
	if to.run.CriticalCalls == eval.Reviewed {
		return text + fmt.Sprintf("people review the %d critical calls anyway, of which %d are false, and these count as reviews.",
			safe.CriticalKept, safe.FalseKept)
	}
	text += fmt.Sprintf("it means that nobody looks at %d critical calls before they are acted on, of which %d are false, instead of %d, of "+
		"which %d.", safe.CriticalKept, safe.FalseKept, all.CriticalKept, all.FalseKept)
	if by != "" {
		return text + " The chosen rule does so, in either scope."
	}
	if to.Scope == policy.AllInputs {
		return text + fmt.Sprintf(" If that is right at your site, calibrate for scope %s.", policy.PredictedSafe)
	}
	return text
}

// naivePick names the row of the score that a person would pick from a table.
const naivePick = "naive pick"

func per1000(n, of int) float64 { return 1000 * float64(n) / float64(max(of, 1)) }

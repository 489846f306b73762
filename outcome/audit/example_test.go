package audit_test

import (
	"fmt"
	"math"
	"strings"

	"github.com/ckd-project/ckd/outcome/audit"
	"github.com/ckd-project/ckd/outcome/receipt"
	"github.com/ckd-project/ckd/policy"
)

// One in ten of the retained inputs that are called safe is audited. A retry of an input is drawn
// like the first time.
func Example() {
	keys, err := receipt.ParseKeys("keys", []byte(strings.Repeat("5a", 32)))
	if err != nil {
		fmt.Println(err)
		return
	}
	auditor := audit.NewAuditor(&policy.Policy{
		Hash:  strings.Repeat("0a", 32),
		Audit: &policy.Audit{Rate: 0.1, M: 1, PredictedCritical: policy.CriticalFree},
	})
	const passes = 30
	const now = 1_772_323_200_000_000 // microseconds since 1970
	mean := []float64{0.9, 0.1}       // over the passes
	retained := policy.Decision{Action: policy.Retain}
	draw := func(id string, d policy.Decision, calledCritical bool) audit.Drawn {
		return auditor.Draw(keys.DrawKey(), now, d, calledCritical, math.NaN(), []byte(id), passes, mean)
	}

	reviews, repeated := 0, 0
	for i := range 1000 {
		id := fmt.Sprint("input ", i)
		first := draw(id, retained, false)
		if first.Review {
			reviews++
		}
		if draw(id, retained, false) == first {
			repeated++
		}
	}
	fmt.Println(reviews, "of 1000 called safe are audited;", repeated, "are drawn alike again")
	deferred := draw("anna", policy.Decision{Action: policy.Defer}, false)
	fmt.Println(deferred.Stratum, "review", deferred.Review, "propensity", deferred.Propensity)
	critical := draw("berta", retained, true)
	fmt.Println(critical.Stratum, "review", critical.Review, "propensity", critical.Propensity)
	// Output:
	// 111 of 1000 called safe are audited; 1000 are drawn alike again
	// deferred review true propensity 1
	// called_critical review false propensity 1
}

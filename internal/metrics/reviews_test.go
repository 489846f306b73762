package metrics

import (
	"testing"

	"github.com/ckd-project/ckd/internal/outcome/receipt"
)

// TestReviews checks that reviews are counted by stratum, and not at all where there are no receipts.
func TestReviews(t *testing.T) {
	families := []string{
		"ckd_receipts_eligible_total", "ckd_reviews_total", "ckd_audit_propensity_total", "ckd_audit_cap_exceeded_total",
	}
	record := func(receipts bool) map[string]float64 {
		d := newDaemon(t, 0)
		d.options.Receipts = receipts
		p, m := parse(t, threeClasses)
		model := d.put(p, m)
		for shard, is := range []struct {
			stratum          receipt.Stratum
			review, exceeded bool
			propensity       float64
		}{
			{receipt.Deferred, true, false, 1},
			{receipt.CalledCritical, false, false, 0},
			{receipt.CalledSafe, true, true, 0.25},
			{receipt.CalledSafe, false, false, 0.5},
		} {
			r := model.Record(uint32(shard))
			r.ObserveReview(is.stratum, is.review, is.exceeded, is.propensity)
			r.Done()
		}
		return only(d.values(t), families...)
	}
	want := map[string]float64{`ckd_audit_cap_exceeded_total{model="m"}`: 1}
	for stratum, counts := range map[string][3]float64{
		"deferred": {1, 1, 1}, "called_critical": {1, 0, 0}, "called_safe": {2, 1, 0.75},
	} {
		for i, n := range counts {
			want[families[i]+`{model="m",stratum="`+stratum+`"}`] = n
		}
	}
	compare(t, want, record(true), 0)
	if got := record(false); len(got) > 0 {
		t.Errorf("series without receipts: %v", got)
	}
}

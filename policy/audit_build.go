package policy

import (
	"fmt"

	"github.com/ckd-project/ckd/internal/strictyaml"
)

// auditRules hold the block audit to what it says itself and to the policy. They change neither.
type auditRules struct {
	*builder
	p *Policy
}

// check checks what spans several fields.
func (b auditRules) check() {
	a := b.p.Audit
	if a == nil {
		return
	}
	if a.OnBreach == DeferOnBreach && b.sound("audit.on_breach", "audit.surge") {
		if a.Surge == 0 {
			b.fault("audit.surge", "missing, expected the reviews per 1,000 inputs that on_breach %s will cause, as ckd outcomes plan "+
				"prints them", DeferOnBreach)
		}
		if b.p.Observes() {
			b.fault("audit.on_breach", "%s, but the policy has no thresholds, so that nothing is ever deferred: expected %s",
				DeferOnBreach, AlarmOnBreach)
		}
	}
	if n := len(a.Slices); n > MaxSlices {
		b.fault("audit.slices", "expected at most %d, found %d", MaxSlices, n)
	}
	b.checkSlices(a.Slices)
}

// checkSlices wants each slice once, and no two values with one hash.
func (b auditRules) checkSlices(slices []Slice) {
	first, hashes := make(map[string]string), make(map[uint16]string)
	for i, s := range slices {
		at := fmt.Sprintf("audit.slices[%d]", i)
		if before, twice := first[s.Name]; twice && s.Name != "" {
			b.fault(at, "%s is given twice, first at %s", strictyaml.Quote(s.Name), b.where(before))
			continue
		}
		first[s.Name] = at
		for j, value := range s.Values {
			if value == "" {
				continue // has a fault
			}
			at, hash := fmt.Sprintf("%s.values[%d]", at, j), SliceHash(s.Name, value)
			if before, taken := hashes[hash]; taken {
				b.fault(at, "%s has the number in receipts of the one at %s, expected another spelling of either",
					strictyaml.Quote(value), b.where(before))
				continue
			}
			hashes[hash] = at
		}
	}
}

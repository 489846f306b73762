package fullpass

import (
	"math"
	"testing"
)

// TestEvidence compares with an independent implementation in Python (numpy 1.24): the mean over
// the alternatives of the sum over all starts of the likelihood ratio since then. Check n disagrees
// if splitmix(7, n) is among the lowest 2%, which 10 of 600 are.
func TestEvidence(t *testing.T) {
	expected := map[int]float64{
		1: 0.968897139316928, 10: 12.4517131989094, 100: 89.5810840958548, 300: 229.275199004261, 600: 579.102298947762,
	}
	d, s := newDetector(0.01), Sampler{Share: 0.02, Seed: 7}
	for n := range 600 {
		d.weigh(s.Checks(uint64(n), s.First, false))
		if e, ok := expected[n+1]; ok && !(math.Abs(d.evidence()-e) <= 1e-11*e) {
			t.Errorf("after %d checks the evidence is %.15g, expected %.15g", n+1, d.evidence(), e)
		}
	}
}

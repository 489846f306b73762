package eval

import (
	"math"
	"testing"
)

// TestJudge compares with sums of exact fractions (Python's fractions and math.comb).
func TestJudge(t *testing.T) {
	for _, c := range []struct {
		misses, cases      int
		target, confidence float64
		verdict            Verdict
		pValue, pShown     float64
		power              float64
	}{
		{0, 58, 0.05, 0.95, NotContradicted, 1, 0.051046868683603405, 0.3597233721407737},
		{0, 59, 0.05, 0.95, Shown, 1, 0.048494525249423236, 0.376620044762766},
		{0, 21, 0.1, 0.9, NotContradicted, 1, 0.10941898913151236, 0.23070411885182662},
		{0, 22, 0.1, 0.9, Shown, 1, 0.09847709021836112, 0.2673616183787715},
		{4, 100, 0.1, 0.95, Shown, 0.9921635128788155, 0.023711082663476764, 0.871494485161203},
		{5, 100, 0.1, 0.95, NotContradicted, 0.9762889173365232, 0.05757688648703381, 0.871494485161203},
		{15, 100, 0.1, 0.95, NotContradicted, 0.07257296526488076, 0.9601094728891167, 0.871494485161203},
		{16, 100, 0.1, 0.95, Contradicted, 0.039890527111083346, 0.9794011898546998, 0.871494485161203},
		{12, 471, 0.05, 0.95, Shown, 0.9972900142291401, 0.005852887708626044, 0.9903605348222454},
		{3, 40, 0.15, 0.95, NotContradicted, 0.9514013343071452, 0.13016876164665875, 0.6912572746080109},
	} {
		b := BoundCheck{Target: c.target, Cases: c.cases, Misses: c.misses}
		b.judge(c.confidence)
		for _, n := range []struct {
			name      string
			got, want float64
		}{{"p_value", b.PValue, c.pValue}, {"p_shown", b.PShown, c.pShown}, {"power", float64(b.PowerAtDouble), c.power}} {
			if !(math.Abs(n.got-n.want) <= 1e-11) {
				t.Errorf("%d of %d at %v: %s %v, want %v", c.misses, c.cases, c.target, n.name, n.got, n.want)
			}
		}
		if b.Verdict != c.verdict {
			t.Errorf("%d of %d at %v with confidence %v: %s, want %s", c.misses, c.cases, c.target, c.confidence, b.Verdict, c.verdict)
		}
	}
}

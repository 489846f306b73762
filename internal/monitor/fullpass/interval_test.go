package fullpass

import (
	"fmt"
	"math"
	"math/rand/v2"
	"testing"

	"gonum.org/v1/gonum/mathext"
)

// The expected values are those of an independent implementation in Python (numpy 1.24, scipy
// 1.10). It finds the ends with brentq; up to 400 checks it multiplies 1 + lambda (x - m) over the
// checks in order, beyond it uses scipy's logsumexp.
var intervals = []struct {
	disagreements, checked uint64
	confidence, low, high  float64
}{
	{0, 1, 0.95, 0, 0.99734991817605},
	{0, 100, 0.95, 0, 0.0488809418852176},
	{0, 400, 0.95, 0, 0.012438522550932},
	{1, 400, 0.95, 1.85079811545791e-06, 0.0210824993004506},
	{4, 400, 0.95, 0.00083423345756462, 0.0365520250645175},
	{12, 400, 0.99, 0.00704451283462203, 0.0747033559960517},
	{25, 5000, 0.95, 0.00229172815560507, 0.00918608322830184},
	{50, 5000, 0.9, 0.00618766377477207, 0.0150637062708582},
	{1000, 100000, 0.95, 0.00897168226241663, 0.0111027594681083},
	{0, 1000000, 0.95, 0, 5.0049409577913e-06},
	{10000, 1000000, 0.95, 0.00966307359951312, 0.0103439992793211},
	{5, 10, 0.95, 0.0822582676839382, 0.917741732316062},
	{10, 10, 0.95, 0.602094653840871, 1},
	{1000000, 1000000, 0.95, 0.999994995059042, 1},
}

func TestInterval(t *testing.T) {
	const tolerance = 1e-9 // relative; cancellation costs 1e-11 of the capital at 10^6 checks
	for _, c := range intervals {
		t.Run(fmt.Sprintf("%d of %d at %v", c.disagreements, c.checked, c.confidence), func(t *testing.T) {
			low, high := interval(c.disagreements, c.checked, c.confidence)
			if !(math.Abs(low-c.low) <= tolerance*c.low && math.Abs(high-c.high) <= tolerance*c.high) {
				t.Errorf("[%.15g, %.15g], expected [%.15g, %.15g]", low, high, c.low, c.high)
			}
		})
	}
}

// TestIntervalWidth measures the price of holding at all times, against the interval of Clopper and
// Pearson, which is exact for a single look.
func TestIntervalWidth(t *testing.T) {
	for _, n := range []uint64{100, 400, 1000, 5000, 100_000, 1_000_000} {
		for _, share := range []float64{0, 0.002, 0.01, 0.03, 0.2} {
			k := uint64(share * float64(n))
			if k > 30_000 {
				continue // the bets are not meant for it
			}
			low, high := interval(k, n, 0.95)
			l, h := clopperPearson(k, n, 0.05)
			if low > l || high < h {
				t.Errorf("%d of %d: [%v, %v] does not contain that of one look, [%v, %v]", k, n, low, high, l, h)
			}
			if ratio := (high - low) / (h - l); ratio > 1.8 {
				t.Errorf("%d of %d: [%v, %v] is %.2f times as wide as that of one look", k, n, low, high, ratio)
			}
		}
		if _, high := interval(0, n, 0.95); high > 5.01/float64(n) {
			t.Errorf("0 of %d: at most %v, which is above 5/n", n, high)
		}
	}
}

func clopperPearson(k, n uint64, alpha float64) (low, high float64) {
	x, m := float64(k), float64(n)
	high = 1
	if k > 0 {
		low = mathext.InvRegIncBeta(x, m-x+1, alpha/2)
	}
	if k < n {
		high = mathext.InvRegIncBeta(x+1, m-x, 1-alpha/2)
	}
	return low, high
}

// TestIntervalCovers checks that the interval covers the mean of the probabilities at each of 10000
// checks, in all but 5% of 1000 simulated lives, whether the probability is constant or not. With a
// coverage of exactly 95%, 80 or more misses in 1000 have a probability of 3e-5.
func TestIntervalCovers(t *testing.T) {
	const lives, checks, confidence = 1000, 10_000, 0.95
	threshold := math.Log(2 / (1 - confidence))
	for _, c := range []struct {
		name string
		p    func(n int, last bool) float64
	}{
		{"1%", func(int, bool) float64 { return 0.01 }},
		{"0.1%", func(int, bool) float64 { return 0.001 }},
		{"a rise", func(n int, _ bool) float64 { return 0.002 + 0.028*float64(n)/checks }},
		{"a fall", func(n int, _ bool) float64 { return 0.03 - 0.028*float64(n)/checks }},
		{"in bursts", func(_ int, last bool) float64 {
			if last {
				return 0.3
			}
			return 0.005
		}},
	} {
		t.Run(c.name, func(t *testing.T) {
			missed := 0
			for life := range uint64(lives) {
				rng := rand.New(rand.NewPCG(life, 1))
				k, sum, last := 0.0, 0.0, false
				for n := range checks {
					// The lower end is nearest to the mean at a disagreement, the upper end just before
					// one.
					p := c.p(n, last)
					last = rng.Float64() < p
					if last && n > 0 && logCapital(sum/float64(n), k, float64(n), true) >= threshold {
						missed++
						break
					}
					sum += p
					if last {
						k++
					}
					at := float64(n + 1)
					if last && logCapital(sum/at, k, at, false) >= threshold ||
						n == checks-1 && logCapital(sum/at, k, at, true) >= threshold {
						missed++
						break
					}
				}
			}
			t.Logf("%d of %d lives are missed", missed, lives)
			if missed >= 80 {
				t.Errorf("%d of %d lives are missed, expected at most 50 on average", missed, lives)
			}
		})
	}
}

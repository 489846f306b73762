package fullpass

import (
	"fmt"
	"math"
	"math/rand/v2"
	"testing"

	"pgregory.net/rapid"
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

// TestEvidenceIsASum checks that the evidence is the sum over starts, and so above that of the
// e-CUSUM and the plain e-process.
func TestEvidenceIsASum(t *testing.T) {
	rapid.Check(t, func(t *rapid.T) {
		p := rapid.Float64Range(1e-6, 0.9).Draw(t, "p")
		hits := rapid.SliceOfN(rapid.Bool(), 1, 60).Draw(t, "hits")
		d := newDetector(p)
		for _, hit := range hits {
			d.weigh(hit)
		}
		sum, plain, cusum := 0.0, 0.0, 0.0
		for j := range odds {
			ratio, most := 1.0, 0.0
			for i := len(hits) - 1; i >= 0; i-- {
				if hits[i] {
					ratio *= d.up[j]
				} else {
					ratio *= d.down[j]
				}
				sum += ratio
				most = max(most, ratio)
			}
			plain += ratio
			cusum += most
		}
		k := float64(len(odds))
		if e := d.evidence(); !(math.Abs(e-sum/k) <= 1e-10*e) || plain/k > e*(1+1e-10) || cusum/k > e*(1+1e-10) {
			t.Fatalf("evidence %v, by its definition %v; plain %v, CUSUM %v", e, sum/k, plain/k, cusum/k)
		}
		for j := range odds {
			mean := p*d.up[j] + (1-p)*d.down[j]
			if !(math.Abs(mean-1) <= 1e-12) || d.up[j] <= 1 || d.down[j] >= 1 || d.down[j] <= 0 {
				t.Fatalf("odds ratio %v: factors %v and %v have mean %v", odds[j], d.up[j], d.down[j], mean)
			}
		}
	})
}

// method is a way to gather evidence that a detector is compared with.
type method struct {
	name  string
	start float64
	add   func(d *detector, hit bool)
}

var (
	shiryaevRoberts = method{"e-SR, as a detector is", 0, (*detector).weigh}
	eCUSUM          = method{"e-CUSUM", 0, func(d *detector, hit bool) {
		for j := range d.m {
			d.m[j] = max(d.m[j], 1)
		}
		plain.add(d, hit)
	}}
	plain = method{"plain e-process", 1, func(d *detector, hit bool) {
		for j := range d.m {
			if hit {
				d.m[j] *= d.up[j]
			} else {
				d.m[j] *= d.down[j]
			}
		}
	}}
)

// life returns the number of checks until a detector with threshold c stops, at most most.
func (m method) life(certified, c float64, most int, rng *rand.Rand, p func(n int) float64) int {
	d := newDetector(certified)
	for j := range d.m {
		d.m[j] = m.start
	}
	for n := range most {
		if m.add(&d, rng.Float64() < p(n)); d.evidence() >= c {
			return n + 1
		}
	}
	return most
}

// TestRunLength checks that the mean run length is at least the stated one if no probability is
// above the certified one. The standard error of the means is at most 6%, and the smallest mean is
// three of them above.
func TestRunLength(t *testing.T) {
	const lives, c = 400, 1000.0
	for _, null := range []struct {
		name      string
		certified float64
		p         func(n int) float64
	}{
		{"1%", 0.01, func(int) float64 { return 0.01 }},
		{"0.1%", 0.001, func(int) float64 { return 0.001 }},
		{"20%", 0.2, func(int) float64 { return 0.2 }},
		{"1%, by turns of 500 none", 0.01, func(n int) float64 { return 0.01 * float64(n/500%2) }},
	} {
		t.Run(null.name, func(t *testing.T) {
			rng := rand.New(rand.NewPCG(2, 1))
			sum, squares := 0.0, 0.0
			for range lives {
				n := float64(shiryaevRoberts.life(null.certified, c, 1e6, rng, null.p))
				sum += n
				squares += n * n
			}
			mean := sum / lives
			t.Logf("a run length of %.0f +- %.0f", mean, math.Sqrt((squares/lives-mean*mean)/lives))
			if mean < c {
				t.Errorf("the mean run length is %.0f, below %.0f", mean, c)
			}
		})
	}
}

// TestDelay measures after how many checks a rise to 3% is caught where 1% is certified, after 5000
// good checks of which 0.5% disagree. An e-CUSUM and a plain e-process serve as references. Stops
// before the rise are left out, and counted. The margins are four standard errors of the means.
func TestDelay(t *testing.T) {
	const lives, good = 400, 5000
	for _, c := range []struct {
		method
		runLength   float64
		least, most float64
		early       int // most stops before the rise
	}{
		{eCUSUM, 1000, 420, 550, 8},
		{plain, 100, 2700, 3200, 8}, // at most 1% of good lives ever reach a run length of 100
		{plain, 1000, 3200, 3500, 8},
		{shiryaevRoberts, 1000, 100, 190, lives / 2},
		{shiryaevRoberts, defaultRunLength, 400, 510, 0},
	} {
		t.Run(fmt.Sprintf("%s at %.0f", c.name, c.runLength), func(t *testing.T) {
			rng := rand.New(rand.NewPCG(3, 1))
			sum, squares, late, early := 0.0, 0.0, 0.0, 0
			for range lives {
				n := c.life(0.01, c.runLength, good+20_000, rng, func(n int) float64 {
					if n < good {
						return 0.005
					}
					return 0.03
				})
				if n <= good {
					early++
					continue
				}
				late++
				sum += float64(n - good)
				squares += float64(n-good) * float64(n-good)
			}
			mean := sum / late
			t.Logf("caught after %.0f +- %.0f checks; %d of %d stopped before the rise",
				mean, math.Sqrt((squares/late-mean*mean)/late), early, lives)
			if mean < c.least || mean > c.most {
				t.Errorf("caught after %.0f checks, expected %.0f to %.0f", mean, c.least, c.most)
			}
			if early > c.early {
				t.Errorf("%d of %d stopped before the rise", early, lives)
			}
		})
	}
}

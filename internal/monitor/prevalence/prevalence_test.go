package prevalence_test

import (
	"math"
	"math/rand/v2"
	"testing"

	"pgregory.net/rapid"

	"github.com/ckd-project/ckd/internal/monitor/prevalence"
)

// distance is that of the two normal distributions that simulated inputs are drawn from, in standard
// deviations: an input at x is exp(distance*(x - distance/2)) times as frequent among critical inputs.
const distance = 2.0

// input draws an input.
func input(critical bool, rng *rand.Rand) float64 {
	x := rng.NormFloat64()
	if critical {
		x += distance
	}
	return x
}

// line is a calibration: log-odds of being critical are intercept + slope*x.
type line struct{ intercept, slope float64 }

// exact returns the true line where a share is critical.
func exact(share float64) line {
	return line{math.Log(share/(1-share)) - distance*distance/2, distance}
}

func (l line) priority(x float64) float64 { return 1 / (1 + math.Exp(-l.intercept-l.slope*x)) }

// fit fits a line to labelled inputs, by Newton's method.
func fit(critical, others int, rng *rand.Rand) (l line) {
	var xs, ys []float64
	for i := range critical + others {
		isCritical := i < critical
		xs = append(xs, input(isCritical, rng))
		ys = append(ys, map[bool]float64{true: 1}[isCritical])
	}
	for range 20 {
		var g0, g1, h00, h01, h11 float64
		for i, x := range xs {
			q := l.priority(x)
			g0, g1 = g0+ys[i]-q, g1+(ys[i]-q)*x
			h00, h01, h11 = h00+q*(1-q), h01+q*(1-q)*x, h11+q*(1-q)*x*x
		}
		det := h00*h11 - h01*h01
		l.intercept += (h11*g0 - h01*g1) / det
		l.slope += (h00*g1 - h01*g0) / det
	}
	return l
}

// window holds live inputs of which a share is critical.
func window(l line, inputs int, share float64, rng *rand.Rand) *prevalence.Window {
	var priorities []float64
	for range inputs {
		priorities = append(priorities, l.priority(input(rng.Float64() < share, rng)))
	}
	return windowOf(priorities, prevalence.Most)
}

// windowOf holds priorities that came some at a time.
func windowOf(priorities []float64, each int) *prevalence.Window {
	w, c := new(prevalence.Window), new(prevalence.Counts)
	for i, q := range priorities {
		if c.Add(q) || (i+1)%each == 0 {
			w.Take(c)
		}
	}
	w.Take(c)
	return w
}

// TestCoverage checks that the estimate is without bias and its interval holds the share as often as it
// says: with priorities that are known exactly, and with ones that a few labelled inputs gave.
func TestCoverage(t *testing.T) {
	const runs = 300
	for _, c := range []struct {
		name             string
		critical, others int // labelled; priorities are exact where these are many
		inputs           int
		share            float64
	}{
		{"exact, as calibrated", 1e9, 1e9, 4000, 0.2},
		{"exact, rarer", 1e9, 1e9, 20_000, 0.02},
		{"exact, more", 1e9, 1e9, 4000, 0.7},
		{"fitted, as calibrated", 100, 400, 20_000, 0.2},
		{"fitted, rarer", 100, 400, 20_000, 0.06},
		{"fitted, more", 100, 400, 20_000, 0.6},
	} {
		held, missing, mean := 0, 0, 0.0
		for seed := range uint64(runs) {
			rng := rand.New(rand.NewPCG(seed, 5))
			basis := prevalence.Calibration{Prevalence: 0.2, Critical: c.critical, Others: c.others}
			l := exact(0.2)
			if c.critical < 1e9 {
				l = fit(c.critical, c.others, rng)
			}
			s, known := window(l, c.inputs, c.share, rng).Suggest(basis)
			if !known {
				missing++
				continue
			}
			mean += s.Estimate
			if s.Low <= c.share && c.share <= s.High {
				held++
			}
		}
		mean /= float64(runs - missing)
		t.Logf("%s: %v is estimated as %.4f, and held by %d of %d intervals; none in %d runs", c.name, c.share, mean, held, runs-missing, missing)
		if held < (runs-missing)*92/100 || missing > runs/20 || math.Abs(mean/c.share-1) > 0.08 { // 95% less 2.4 standard errors
			t.Errorf("%s: expected an estimate within 8%%, and an interval that holds the share in 95%%", c.name)
		}
	}
}

// TestOrder checks that neither the order of inputs nor how many come at a time matters.
func TestOrder(t *testing.T) {
	rapid.Check(t, func(t *rapid.T) {
		rng := rand.New(rand.NewPCG(rapid.Uint64().Draw(t, "seed"), 0))
		priorities := make([]float64, rapid.IntRange(200, 4000).Draw(t, "inputs"))
		for i := range priorities {
			priorities[i] = exact(0.3).priority(input(rng.Float64() < 0.3, rng))
		}
		basis := prevalence.Calibration{Prevalence: 0.3, Critical: 300, Others: 700}
		want, known := windowOf(priorities, prevalence.Most).Suggest(basis)
		rng.Shuffle(len(priorities), func(i, j int) { priorities[i], priorities[j] = priorities[j], priorities[i] })
		got, also := windowOf(priorities, rapid.IntRange(1, 300).Draw(t, "each")).Suggest(basis)
		if got != want || known != also {
			t.Fatalf("%+v, %v; in another order %+v, %v", want, known, got, also)
		}
		if known && !(0 < got.Low && got.Low < got.Estimate && got.Estimate < got.High && got.High < 1) {
			t.Fatalf("%+v", got)
		}
	})
}

// TestScale checks that the share depends on the priorities and their prevalence together: shifted to
// another prevalence, they say the same.
func TestScale(t *testing.T) {
	basis := prevalence.Calibration{Prevalence: 0.5, Critical: 300, Others: 700}
	want, _ := window(exact(0.5), 20_000, 0.1, rand.New(rand.NewPCG(1, 1))).Suggest(basis)
	basis.Prevalence = 0.01
	got, known := window(exact(0.01), 20_000, 0.1, rand.New(rand.NewPCG(1, 1))).Suggest(basis)
	if !known || math.Abs(got.Estimate/want.Estimate-1) > 0.01 || math.Abs(got.Low/want.Low-1) > 0.01 { // cells are 12% of the odds wide
		t.Errorf("%+v, expected %+v", got, want)
	}
}

// TestNothing checks where nothing is suggested.
func TestNothing(t *testing.T) {
	basis := prevalence.Calibration{Prevalence: 0.2, Critical: 100, Others: 400}
	rng := rand.New(rand.NewPCG(7, 7))
	ordinary := window(exact(0.2), 5000, 0.2, rng)
	if _, known := ordinary.Suggest(basis); !known {
		t.Fatal("nothing is suggested of 1000 critical inputs")
	}
	for name, c := range map[string]struct {
		w *prevalence.Window
		c prevalence.Calibration
	}{
		"no input":                     {new(prevalence.Window), basis},
		"40 critical inputs":           {window(exact(0.2), 200, 0.2, rng), basis},
		"40 other inputs":              {window(exact(0.2), 200, 0.8, rng), basis},
		"no critical input":            {window(exact(0.2), 5000, 0, rng), basis},
		"equal priorities":             {windowOf(make([]float64, 5000), 100), basis},
		"a few labelled inputs":        {window(exact(0.2), 5000, 0.2, rng), prevalence.Calibration{Prevalence: 0.2, Critical: 2, Others: 5}},
		"no labelled critical input":   {ordinary, prevalence.Calibration{Prevalence: 0.2, Others: 5}},
		"no other labelled input":      {ordinary, prevalence.Calibration{Prevalence: 0.2, Critical: 5}},
		"no prevalence":                {ordinary, prevalence.Calibration{Critical: 100, Others: 400}},
		"an unknown prevalence":        {ordinary, prevalence.Calibration{Prevalence: math.NaN(), Critical: 100, Others: 400}},
		"priorities of 0 and 1 in one": {windowOf([]float64{0, 1}, 100), basis},
	} {
		if s, known := c.w.Suggest(c.c); known {
			t.Errorf("%s: %+v", name, s)
		}
	}
}

// TestWindow checks that inputs older than the last prevalence.Inputs count no more, and at least those of
// all but one block do.
func TestWindow(t *testing.T) {
	rng := rand.New(rand.NewPCG(9, 9))
	basis := prevalence.Calibration{Prevalence: 0.2, Critical: 1e9, Others: 1e9}
	w, c := new(prevalence.Window), new(prevalence.Counts)
	add := func(inputs int, share float64) prevalence.Share {
		for range inputs {
			if c.Add(exact(0.2).priority(input(rng.Float64() < share, rng))) {
				w.Take(c)
			}
		}
		w.Take(c)
		s, _ := w.Suggest(basis)
		return s
	}
	const most = prevalence.Inputs
	if s := add(most, 0.6); math.Abs(s.Estimate-0.6) > 0.02 {
		t.Errorf("%+v, expected 0.6", s)
	}
	if s := add(most/2, 0.1); !(s.Estimate > 0.25 && s.Estimate < 0.4) {
		t.Errorf("after half as many of 0.1: %+v, expected about 0.3", s)
	}
	if s := add(most/2, 0.1); math.Abs(s.Estimate-0.1) > 0.01 {
		t.Errorf("after as many of 0.1: %+v, expected 0.1", s)
	}
}

// BenchmarkAdd counts priorities.
func BenchmarkAdd(b *testing.B) {
	var priorities [1024]float64
	rng := rand.New(rand.NewPCG(1, 1))
	for i := range priorities {
		priorities[i] = exact(0.2).priority(input(rng.Float64() < 0.2, rng))
	}
	w, c := new(prevalence.Window), new(prevalence.Counts)
	b.ReportAllocs()
	for i := 0; b.Loop(); i++ {
		if c.Add(priorities[i%len(priorities)]) {
			w.Take(c)
		}
	}
}

// BenchmarkSuggest computes what a scrape asks for.
func BenchmarkSuggest(b *testing.B) {
	w := window(exact(0.2), prevalence.Inputs, 0.2, rand.New(rand.NewPCG(1, 1)))
	for b.Loop() {
		w.Suggest(prevalence.Calibration{Prevalence: 0.2, Critical: 100, Others: 400})
	}
}

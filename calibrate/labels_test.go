package calibrate

import (
	"math"
	"math/rand/v2"
	"slices"
	"testing"

	"pgregory.net/rapid"
)

// TestLogistic compares with figures of SciPy 1.10, which maximised the same penalised likelihood
// by BFGS, polished until the gradient was under 1e-15.
func TestLogistic(t *testing.T) {
	t.Parallel()
	for _, c := range []struct {
		name  string
		label func(a, j float64) bool
		// flat makes the second column constant.
		flat bool
		want []float64
	}{
		{"mixed", func(a, j float64) bool { return a+1.5*math.Sin(11*j) > 0.2 }, false, []float64{
			0.9542958172, 0.2168489599, 0.0906517881, 0.9543623955, 0.4687424928,
			0.1292069009, 0.6759450262, 0.6308119600, 0.7097056683, 0.1694289709,
		}},
		{"separable", func(a, _ float64) bool { return a > 0.5 }, false, []float64{
			0.9257345261, 0.1037872294, 0.0286829200, 0.9496812317, 0.1498414711,
			0.1273547431, 0.6872059892, 0.0758704968, 0.6651276927, 0.2867144706,
		}},
		{"constant column", func(a, j float64) bool { return a+1.5*math.Sin(11*j) > 0.2 }, true, []float64{
			0.7174671722, 0.4589879388, 0.3099198696, 0.7428311624, 0.2341750465,
			0.4318007509, 0.7295981708, 0.2300347924, 0.6280176880, 0.5171675365,
		}},
	} {
		var rows [][]float64
		var inputs []int
		var label []bool
		for i := range 10 {
			j := float64(i)
			a, b := math.Sin(1+2.3*j), math.Cos(0.5+1.7*j)
			row := []float64{a, b, 0.6*a + 0.4*math.Sin(5.1*j), 1}
			if c.flat {
				row[1] = 0
			}
			rows, inputs, label = append(rows, row), append(inputs, i), append(label, c.label(a, j))
		}
		for i, got := range logistic(rows, inputs, label) {
			if math.Abs(got-c.want[i]) > 1e-9 {
				t.Errorf("%s: row %d: %.10f, want %.10f", c.name, i, got, c.want[i])
			}
		}
	}
}

// TestLogisticConverges checks that the gradient of the penalised likelihood is 0: the
// probabilities give the coefficients, and those give the probabilities again. A few misses that
// are far from all else are the hard case.
func TestLogisticConverges(t *testing.T) {
	t.Parallel()
	for seed := range uint64(30) {
		rng := rand.New(rand.NewPCG(seed, 3))
		m := made{n: 3000, passes: 10, critical: []int{1, 2}, share: 0.3, missed: []float64{0.004, 0.05, 0.5}[seed%3],
			signal: []float64{0, 1, 6}[seed/3%3], identical: 0.1}
		s := m.sample(rng)
		var inputs []int
		for i := range s.n {
			if !s.predictedCritical[i] {
				inputs = append(inputs, i)
			}
		}
		rows := featuresOf(s.table, inputs)
		chance := logistic(rows, inputs, s.missed)
		width := len(rows[0])
		gradient := make([]float64, width) // of the likelihood without the penalty
		for j, row := range rows {
			for f, x := range row {
				gradient[f] += x * (float64(index(s.missed[inputs[j]])) - chance[j])
			}
		}
		constant := math.NaN()
		for j, row := range rows {
			z := 0.0
			for f := range width - 1 {
				z += row[f] * gradient[f] / ridge
			}
			rest := math.Log(chance[j]/(1-chance[j])) - z
			if j == 0 {
				constant = rest
			}
			// Near 1 the odds lose digits.
			if !(math.Abs(rest-constant) < 1e-5) && chance[j] < 1-1e-9 {
				t.Fatalf("seed %d: the constant is %v by row 0 and %v by row %d, of chance %v", seed, constant, rest, j, chance[j])
			}
		}
		if sum := gradient[width-1]; math.Abs(sum) > 1e-3 {
			t.Errorf("seed %d: predicted misses are off by %v", seed, sum)
		}
	}
}

// TestSoften checks that soft labels lie between 0 and 1 and near the label of the input, that only
// inputs of the part that are predicted not critical have them, and that they do not depend on the
// labels of other inputs.
func TestSoften(t *testing.T) {
	t.Parallel()
	rapid.Check(t, func(t *rapid.T) {
		s := drawSample(t)
		p := drawPart(t, s)
		soft, hard := s.soften(p), s.hard()
		for i := range s.n {
			c, m := soft.critical[i], soft.missed[i]
			switch {
			case !p.of[i] || s.predictedCritical[i]:
				if c != hard.critical[i] || m != hard.missed[i] {
					t.Fatalf("input %d, not modelled, has the labels %v and %v", i, c, m)
				}
			case !(c >= 0 && c <= 1) || c != m || !(math.Abs(m-hard.missed[i]) <= modelled):
				t.Fatalf("input %d: critical %v, missed %v, by the recording %v", i, c, m, hard.missed[i])
			}
		}
		other := *s
		other.missed, other.critical = slices.Clone(s.missed), slices.Clone(s.critical)
		for i := range s.n {
			if !p.of[i] {
				other.missed[i], other.critical[i] = !s.missed[i], !s.critical[i]
			}
		}
		again := other.soften(p)
		for _, i := range p.inputs() {
			if again.critical[i] != soft.critical[i] || again.missed[i] != soft.missed[i] {
				t.Fatalf("input %d: the labels of other inputs change its own from %v to %v", i, soft.missed[i], again.missed[i])
			}
		}
	})
}

// TestSoftenLearns checks that inputs with scores like those of missed inputs are likelier to be
// missed, and that the expected number of misses is the observed one.
func TestSoftenLearns(t *testing.T) {
	t.Parallel()
	m := usual
	m.n, m.signal = 2000, 2
	s := m.sample(rand.New(rand.NewPCG(1, 1)))
	soft := s.soften(s.all())
	var high, low, highs, lows, sum, missed float64
	for i := range s.n {
		if s.predictedCritical[i] || s.missed[i] {
			continue
		}
		if s.table.Scores[0][i] > 5 {
			high, highs = high+soft.missed[i], highs+1
		} else if s.table.Scores[0][i] < 1 {
			low, lows = low+soft.missed[i], lows+1
		}
	}
	if !(high/highs > 3*low/lows) {
		t.Errorf("inputs with high scores count as %v of a miss, with low ones %v", high/highs, low/lows)
	}
	for i := range s.n {
		sum += soft.missed[i]
		missed += float64(index(s.missed[i]))
	}
	if math.Abs(sum-missed) > 1e-3 { // the constant has no penalty
		t.Errorf("the soft labels add up to %v misses, there are %v", sum, missed)
	}
}

// TestNothingToModel checks that labels stay hard if no input is missed, or if every input is.
func TestNothingToModel(t *testing.T) {
	t.Parallel()
	for _, missed := range []float64{0, 1} {
		m := usual
		m.missed = missed
		if missed == 1 {
			m.share = 1
		}
		s := m.sample(rand.New(rand.NewPCG(1, 1)))
		soft, hard := s.soften(s.all()), s.hard()
		if !slices.Equal(soft.missed, hard.missed) || !slices.Equal(soft.critical, hard.critical) {
			t.Errorf("share missed %v: labels are soft", missed)
		}
	}
}

package learn

import (
	"math"
	"math/rand/v2"
	"slices"
	"testing"

	"github.com/ckd-project/ckd/settle"
)

// TestPlace: the place of a product is where terms puts it.
func TestPlace(t *testing.T) {
	x := settle.Statistics{Values: [settle.Count]float64{2, 3, 5, 7, 11}}
	var to [settle.Terms]float64
	terms(&x, &to)
	for i, a := range x.Values {
		for j := i; j < settle.Count; j++ {
			if got := to[place(i, j)]; got != a*x.Values[j] {
				t.Errorf("%d, %d: %v, expected %v", i, j, got, a*x.Values[j])
			}
		}
	}
	// LogOdds uses the same order.
	var s settle.Step
	want := 0.0
	for j := range s.Coefficients {
		s.Coefficients[j] = float64(j + 1)
		want += float64(j+1) * to[j]
	}
	if got := s.LogOdds(&x); math.Abs(got-want) > 1e-9*want {
		t.Errorf("LogOdds %v, expected %v", got, want)
	}
}

// TestRegression finds the coefficients that labels were drawn from.
func TestRegression(t *testing.T) {
	rng := rand.New(rand.NewPCG(5, 6))
	const n = 40000
	var want [settle.Terms]float64
	want[0], want[1+settle.Own], want[1+settle.Peak], want[place(settle.Own, settle.Doubt)] = -1, 0.8, -0.5, 0.3
	truth := settle.Step{Coefficients: want}
	values := make([]settle.Statistics, n)
	var x []*settle.Statistics
	var y []bool
	for i := range values {
		for j := range values[i].Values {
			values[i].Values[j] = rng.NormFloat64()
		}
		values[i].Values[settle.Other] = 0 // never varies
		x, y = append(x, &values[i]), append(y, rng.Float64() < 1/(1+math.Exp(-truth.LogOdds(&values[i]))))
	}
	var fit regression
	penalty := penalties(1)
	got := fit.fit(x, y, &penalty)
	for j := range got {
		if math.Abs(got[j]-want[j]) > 0.08 { // about 4 standard errors
			t.Errorf("coefficient %d: %v, expected %v", j, got[j], want[j])
		}
	}
	if got[1+settle.Other] != 0 {
		t.Errorf("coefficient of what does not vary: %v", got[1+settle.Other])
	}
}

// TestStop: of candidates in order, stopping is worth it up to the second.
func TestStop(t *testing.T) {
	in := &induction{toGo: []float64{3, 3, 3, 3}}
	all := []candidate{{-4, 0, false}, {-3, 1, false}, {-2, 2, true}, {-1, 3, false}}
	if got := in.stop(all, 100); got != 2 || in.toGo[0] != 0 || in.toGo[2] != 3 {
		t.Errorf("stopped %d, left %v", got, in.toGo)
	}
	// Cheap disagreements: all are stopped.
	in.toGo = []float64{3, 3, 3, 3}
	if got := in.stop(all, 2); got != 4 || in.toGo[2] != 2 {
		t.Errorf("stopped %d, left %v", got, in.toGo)
	}
	// Ties are not torn: the good one at the value of a bad one goes on with it.
	in.toGo = []float64{3, 3, 3, 3}
	all[1].value = all[2].value
	if got := in.stop(all, 100); got != 1 {
		t.Errorf("stopped %d of tied candidates, expected 1", got)
	}
}

// TestSmoothed: what is linear in log t stays as it is, and gaps count as caution.
func TestSmoothed(t *testing.T) {
	line, logs := make([]float64, 20), make([]float64, 20)
	for i := range line {
		logs[i] = math.Log(float64(2 + i))
		line[i] = 1 - 2*logs[i]
	}
	got := append([]float64(nil), line...)
	smoothed(got, logs)
	for i := range got {
		if math.Abs(got[i]-line[i]) > 1e-9 {
			t.Fatalf("%d: %v, expected %v", i, got[i], line[i])
		}
	}
	got[5] = -settle.Never
	before := got[6]
	if smoothed(got, logs); !(got[6] < before && got[6] > line[19]-2) {
		t.Errorf("beside a gap %v, expected a little less than %v", got[6], before)
	}
}

// TestAsked: after 2 to 10 passes each, then after 12, 14, 16, 19, 22 and 26 of 30.
func TestAsked(t *testing.T) {
	var got []int
	for i, a := range asked(false, 2, 30) {
		if a {
			got = append(got, 2+i)
		}
	}
	if want := []int{2, 3, 4, 5, 6, 7, 8, 9, 10, 12, 14, 16, 19, 22, 26}; !slices.Equal(got, want) {
		t.Errorf("asked after %v, expected %v", got, want)
	}
	if slices.Contains(asked(true, 2, 30), false) {
		t.Error("not always asked")
	}
}

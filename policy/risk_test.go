package policy

import (
	"fmt"
	"math"
	"strings"
	"testing"

	"github.com/google/go-cmp/cmp"
	"pgregory.net/rapid"
)

// riskText has a risk model and a guard, as Marshal writes them.
var riskText = `models:
  - name: m
    classes: [normal, suspect, pathologic]
    critical: [suspect, pathologic]
    kind: probabilities
    passes: {fewest: 2, expected: 30}
    variance: sample
    reliability_threshold: 0.3
    gate: never
    scope: all
    primary: {score: risk, threshold: 0.05}
    fallback: {score: cbec}
    degenerate: defer
    saturated: defer
    guard: {score: mi, threshold: 0.41}
    calibrated:
      risk:
        called_safe: {intercept: -1.25, slope: 0.93}
        called_critical: {intercept: 0.4, slope: 0.8}
        quantiles: ` + probabilities(0) + `
        prevalence: 0.08
`

// probabilities returns 65 quantiles from x to x + 1/2, as Marshal writes them.
func probabilities(x float64) string {
	var list []string
	for i := range Levels {
		list = append(list, decimal(x+float64(i)/128))
	}
	return "[" + strings.Join(list, ", ") + "]"
}

func TestRiskIsRead(t *testing.T) {
	p := parseOne(t, riskText)
	quantiles := make([]float64, Levels)
	for i := range quantiles {
		quantiles[i] = float64(i) / 128
	}
	want := &Risk{
		CalledSafe: Logistic{-1.25, 0.93}, CalledCritical: Logistic{0.4, 0.8}, Quantiles: quantiles, Prevalence: 0.08,
	}
	if diff := cmp.Diff(want, p.Risk); diff != "" {
		t.Errorf("risk (-want +got):\n%s", diff)
	}
	if diff := cmp.Diff(&Guard{MI, 0.41}, p.Guard); diff != "" {
		t.Errorf("guard (-want +got):\n%s", diff)
	}
	if diff := cmp.Diff(riskText, string(p.Marshal())); diff != "" {
		t.Errorf("written (-want +got):\n%s", diff)
	}
	checkInvariants(t, p)
	checkWarnings(t, p, "")
	if summary := p.Summary(); !strings.Contains(summary, "defer when the risk is above 5%.") {
		t.Error(summary)
	}
	checkSentences(t, p.Explain(), [][]string{
		{"2 of 3 classes"}, {"have no risk", "unless they are unfamiliar"}, {"mutual information is above 0.41 nats", "unfamiliar", "not all"},
		{"truly critical", "8% is critical"}, {"2 or more passes"}, {"hardly differ are deferred"},
	})
}

func TestPercentile(t *testing.T) {
	r := &Risk{Quantiles: make([]float64, Levels)}
	for i := range r.Quantiles { // 0.1 up to level 1/2, then up to 0.42 in steps of 0.01
		r.Quantiles[i] = 0.1 + 0.01*float64(max(i-32, 0))
	}
	for _, test := range []struct{ p, want float64 }{
		{0, 0}, {0.0999, 0}, {0.1, 0.5}, {0.105, 0.5 + 0.5/64}, {0.41, 63.0 / 64}, {0.42, 1}, {1, 1},
	} {
		t.Run(fmt.Sprint(test.p), func(t *testing.T) {
			if got := r.Percentiles().Of(test.p); math.Abs(got-test.want) > 1e-12 { // rounding of the quantiles
				t.Errorf("%v, want %v", got, test.want)
			}
		})
	}
}

// TestPercentileProperties compares with the definition: interpolation between the last quantile that
// is not above p, and the next.
func TestPercentileProperties(t *testing.T) {
	rapid.Check(t, func(t *rapid.T) {
		step := rapid.OneOf(rapid.Float64Range(0, 1.0/Levels), rapid.Just(0.0))
		r := &Risk{Quantiles: make([]float64, Levels)}
		sum := rapid.SampledFrom([]float64{0, 0.1}).Draw(t, "least")
		for i := range r.Quantiles {
			r.Quantiles[i] = sum
			sum += step.Draw(t, "step")
		}
		p := rapid.OneOf(rapid.Float64Range(0, 1), rapid.SampledFrom(r.Quantiles)).Draw(t, "p")
		want := 0.0
		for i, q := range r.Quantiles {
			switch {
			case q > p:
			case i == Levels-1:
				want = 1
			case r.Quantiles[i+1] > p:
				want = (float64(i) + (p-q)/(r.Quantiles[i+1]-q)) / (Levels - 1)
			}
		}
		if got := r.Percentiles().Of(p); !(math.Abs(got-want) <= 4e-16) {
			t.Fatalf("%v of %v, want %v", got, p, want)
		}
	})
}

func TestCalledCritical(t *testing.T) {
	for _, test := range []struct{ intercept, slope, p, want float64 }{
		{0, 1, 0.3, 0.3}, {0, 2, 0.75, 0.9}, {math.Log(3), 1, 0.5, 0.75}, {0, 0, 0.9, 0.5}, {0, 1, 1, 1 - 1e-6}, {0, 1, 0, 1e-6},
	} {
		t.Run(fmt.Sprint(test), func(t *testing.T) {
			if got := (Logistic{test.intercept, test.slope}).Probability(test.p); math.Abs(got-test.want) > 1e-12 {
				t.Errorf("%v, want %v", got, test.want)
			}
		})
	}
}

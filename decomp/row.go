package decomp

import (
	"fmt"
	"math"
	"slices"

	"github.com/ckd-project/ckd/internal/kernel"
)

// float is a type that passes may have.
type float interface{ float32 | float64 }

// checkRow returns a *RowError if a row is not what the plan's kind demands: see Kind. rounding is
// Tensor.SumRounding.
func checkRow[T float](p *Plan, rounding float64, pass int, row []T) error {
	if len(row) != p.classes {
		return &RowError{WrongClasses, pass, -1, float64(len(row)), fmt.Sprintf("%d, one for each class", p.classes)}
	}
	switch p.kind {
	case Probabilities:
		sum, ok := 0.0, true
		for _, v := range row {
			ok = ok && v >= 0 && v <= 1
			sum += float64(v)
		}
		if !ok || math.Abs(sum-1) > p.sumTolerance+rounding {
			return explainProbabilities(p, rounding, pass, row, sum)
		}
	case Logits:
		if err := checkFinite(pass, row); err != nil {
			return err
		}
	case Dirichlet:
		sum := 0.0
		if err := checkFinite(pass, row); err != nil {
			return err
		}
		for k, v := range row {
			if !(v > 0) {
				return &RowError{NotPositive, pass, k, float64(v), "a positive concentration"}
			}
			sum += float64(v)
		}
		if math.IsInf(sum, 1) {
			return &RowError{SumNotFinite, pass, -1, sum, "a finite sum of concentrations"}
		}
	}
	return nil
}

// checkPanel records the first bad row of each input of a panel in faults, and reports whether it
// found none. number is the index of the first pass. Rows are checked one by one only if the quick
// check of all does not pass.
func checkPanel[T float](plan *Plan, rounding float64, faults []error, number int, p *panel[T]) (good bool) {
	k, tolerance := plan.classes, plan.sumTolerance+rounding
	values, quick := any(p.data).([]float32)
	quick = quick && plan.kind == Probabilities
	if quick && p.width == p.stride && kernel.Plain(values[:p.passes*p.width], k, tolerance) {
		return true
	}
	good = true
	for s := range p.passes {
		if quick && kernel.Plain(values[s*p.stride:][:p.width], k, tolerance) {
			continue
		}
		row := p.row(s)
		for i := range faults {
			if faults[i] != nil {
				continue
			}
			if err := checkRow(plan, rounding, number+s, row[i*k:(i+1)*k]); err != nil {
				faults[i], good = err, false
			}
		}
	}
	return good
}

func checkFinite[T float](pass int, row []T) *RowError {
	for k, v := range row {
		if f := float64(v); math.IsNaN(f) || math.IsInf(f, 0) {
			return &RowError{NotFinite, pass, k, f, "a finite number"}
		}
	}
	return nil
}

// explainProbabilities returns why a row failed the quick check.
func explainProbabilities[T float](p *Plan, rounding float64, pass int, row []T, sum float64) error {
	if err := checkFinite(pass, row); err != nil {
		return err
	}
	for k, v := range row {
		switch {
		case v < 0:
			return &RowError{Negative, pass, k, float64(v), "a probability in [0,1]"}
		case v > 1:
			expected := "a probability in [0,1]"
			if math.Abs(sum-100) <= 1 && slices.Min(row) >= 0 {
				expected += " (percentages? divide by 100)"
			}
			return &RowError{AboveOne, pass, k, float64(v), expected}
		}
	}
	expected := fmt.Sprintf("1 within %v", p.sumTolerance)
	if rounding > 0 {
		expected = fmt.Sprintf("1 within %.6g (%v, and %v for the rounding of the values)", p.sumTolerance+rounding, p.sumTolerance, rounding)
	}
	return &RowError{SumNotOne, pass, -1, sum, expected}
}

// softmax writes exp(z_k)/sum_j exp(z_j) to dst. It subtracts the largest z first, so that nothing
// overflows.
func softmax[T float](dst []float64, logits []T) {
	top := logits[0]
	for _, z := range logits {
		top = max(top, z)
	}
	sum := 0.0
	for k, z := range logits {
		e := math.Exp(float64(z) - float64(top))
		dst[k] = e
		sum += e
	}
	for k := range dst {
		dst[k] /= sum
	}
}

// rowEntropy returns -sum_k p_k log p_k, nats.
func rowEntropy(row []float64) float64 {
	h := 0.0
	for _, p := range row {
		if p > 0 {
			h -= p * math.Log(p)
		}
	}
	return h
}

package decomp

import (
	"fmt"
	"math"
	"slices"

	"github.com/ckd-project/ckd/internal/advice"
	"github.com/ckd-project/ckd/internal/kernel"
)

// float is a type that passes may have.
type float interface{ float32 | float64 }

// checkRow returns a *RowError if a row of K values is not what the plan's kind demands: see Kind.
// clamps reports a row of probabilities that is good once clamp has been at it. rounding is
// Tensor.SumRounding. checkRow does not write to row, and allocates only for an error.
func checkRow[T float](p *Plan, rounding float64, pass int, row []T) (clamps bool, err error) {
	if len(row) != p.classes {
		return false, &RowError{WrongClasses, pass, -1, float64(len(row)), fmt.Sprintf("%d, one for each class", p.classes), ""}
	}
	switch p.kind {
	case Probabilities:
		sum, ok := 0.0, true
		for _, v := range row {
			ok = ok && v >= 0 && v <= 1
			sum += float64(v)
		}
		tolerance := p.sumTolerance + rounding
		switch {
		case ok && math.Abs(sum-1) <= tolerance:
		case !ok && isClampable(row, tolerance):
			return true, nil
		default:
			return false, explainProbabilities(p, rounding, pass, row, sum)
		}
	case Logits:
		if err := checkFinite(pass, row); err != nil {
			return false, err
		}
	case Dirichlet:
		sum := 0.0
		if err := checkFinite(pass, row); err != nil {
			return false, err
		}
		for k, v := range row {
			if !(v > 0) {
				return false, &RowError{NotPositive, pass, k, float64(v), "a positive concentration", ""}
			}
			sum += float64(v)
		}
		if math.IsInf(sum, 1) {
			return false, &RowError{SumNotFinite, pass, -1, sum, "a finite sum of concentrations", ""}
		}
	}
	return false, nil
}

// isClampable reports whether every value v of a row is within the tolerance of [0,1], and the row
// sums to 1 within it, both as it is and clamped. Rounding takes the surest rows there: a softmax in
// half precision, an average or a calibration gives 1.0000001 or -1e-9. No row with NaN is clampable.
func isClampable[T float](row []T, tolerance float64) bool {
	sum, clamped := 0.0, 0.0
	for _, v := range row {
		if !(excess(v) <= tolerance) {
			return false
		}
		sum += float64(v)
		clamped += float64(clampValue(v))
	}
	return math.Abs(sum-1) <= tolerance && math.Abs(clamped-1) <= tolerance
}

// clampValue returns min(max(v, 0), 1): never -0, and NaN for NaN.
func clampValue[T float](v T) T { return min(max(v, 0), 1) }

// excess returns how far v is outside of [0,1], at least 0; NaN for NaN.
func excess[T float](v T) float64 { return math.Abs(float64(v) - float64(clampValue(v))) }

// clamp clamps the values of a row to [0,1], in place.
func clamp[T float](row []T) {
	for k, v := range row {
		row[k] = clampValue(v)
	}
}

// checkPanel records the first bad row of each input of a panel in faults, and reports whether it
// found none. clamps reports that the panel is to be clamped before it is computed. number is the
// index of the first pass. Rows are checked one by one only if the quick check of all does not pass.
// checkPanel does not write to the panel.
func checkPanel[T float](plan *Plan, rounding float64, faults []error, number int, p *panel[T]) (good, clamps bool) {
	k, tolerance := plan.classes, plan.sumTolerance+rounding
	values, quick := any(p.data).([]float32)
	quick = quick && plan.kind == Probabilities
	if quick && p.width == p.stride && kernel.Plain(values[:p.passes*p.width], k, tolerance) {
		return true, false
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
			clamp, err := checkRow(plan, rounding, number+s, row[i*k:(i+1)*k])
			if err != nil {
				faults[i], good = err, false
			}
			clamps = clamps || clamp
		}
	}
	return good, clamps
}

// checkComplete does what checkPanel does for a panel with all passes of its inputs. It refuses
// inputs whose logits are probabilities too.
func checkComplete[T float](plan *Plan, rounding float64, faults []error, p *panel[T]) (good, clamps bool) {
	good, clamps = checkPanel(plan, rounding, faults, 0, p)
	if plan.kind != Logits {
		return good, clamps
	}
	for i := range faults {
		if faults[i] == nil && !hasLogits(plan, rounding, p.input(i, plan.classes)) {
			faults[i], good = probabilitiesAsLogits(p.passes), false
		}
	}
	return good, clamps
}

// looseTolerance is how far rows may miss a sum of 1, or values the range [0,1], and still be taken
// for probabilities where logits were declared, unless the plan's tolerance is larger. It covers
// bfloat16 (0.008), and two decimals of three classes (0.015).
const looseTolerance = 0.02

// hasLogits reports whether a pass of an input is not a row of probabilities, and so shows that the
// rows are logits, as declared. One such row is enough, and nearly always it is the first: the others
// are not read then.
//
// The softmax of probabilities hardly differs from pass to pass: it would pass for certainty. That
// the logits of a model sum to 1 and lie in [0,1] happens to a row, not to all rows of an input.
func hasLogits[T float](plan *Plan, rounding float64, p panel[T]) bool {
	for s := range p.passes {
		if !isLikeProbabilities(p.row(s), max(plan.sumTolerance, looseTolerance)+rounding) {
			return true
		}
	}
	return false
}

func isLikeProbabilities[T float](row []T, tolerance float64) bool {
	sum := 0.0
	for _, v := range row {
		if !(float64(v) >= -tolerance && float64(v) <= 1+tolerance) {
			return false
		}
		sum += float64(v)
	}
	return math.Abs(sum-1) <= tolerance
}

// probabilitiesAsLogits returns the *RowError of an input whose passes are all probabilities, where
// logits were declared.
func probabilitiesAsLogits(passes int) error {
	return &RowError{NotLogits, -1, -1, float64(passes), "logits", "softmax outputs? declare kind: probabilities"}
}

func checkFinite[T float](pass int, row []T) *RowError {
	for k, v := range row {
		if f := float64(v); math.IsNaN(f) || math.IsInf(f, 0) {
			return &RowError{NotFinite, pass, k, f, "a finite number", ""}
		}
	}
	return nil
}

// explainProbabilities returns why a row failed the quick check.
func explainProbabilities[T float](p *Plan, rounding float64, pass int, row []T, sum float64) error {
	if err := checkFinite(pass, row); err != nil {
		return err
	}
	tolerance := p.sumTolerance + rounding
	beyond := func(v T) bool { return excess(v) > tolerance }
	// A row that is off only once it is clamped has values below 0, which made up for the others.
	madeUp := math.Abs(sum-1) <= tolerance && !slices.ContainsFunc(row, beyond)
	for k, v := range row {
		switch {
		case v < 0 && (madeUp || beyond(v)):
			return &RowError{Negative, pass, k, float64(v), "a probability in [0,1]", advise(row)}
		case v > 1 && beyond(v):
			return &RowError{AboveOne, pass, k, float64(v), "a probability in [0,1]", advise(row)}
		}
	}
	expected := fmt.Sprintf("1 within %v", p.sumTolerance)
	if rounding > 0 {
		expected = fmt.Sprintf("1 within %.6g (%v, and %v for the rounding of the values)", p.sumTolerance+rounding, p.sumTolerance, rounding)
	}
	return &RowError{SumNotOne, pass, -1, sum, expected, advise(row)}
}

// advise returns what a row of probabilities that is refused may be, and what to do.
func advise[T float](row []T) string {
	values := make([]float64, len(row))
	for k, v := range row {
		values[k] = float64(v)
	}
	return advice.Row(values)
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

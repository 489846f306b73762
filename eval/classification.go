package eval

import (
	"github.com/ckd-project/ckd/decomp"
)

// classCounts counts inputs by their true class, by their predicted class, and those predicted
// right.
type classCounts struct {
	support, predicted, right []int
	n, correct                int
}

// countClasses counts some inputs.
func countClasses(t *Table, labels []int, inputs []int32) *classCounts {
	a := &classCounts{
		support: make([]int, t.K), predicted: make([]int, t.K), right: make([]int, t.K),
		n: len(inputs),
	}
	for _, i := range inputs {
		label, predicted := labels[i], t.Predicted[i]
		a.support[label]++
		a.predicted[predicted]++
		if label == predicted {
			a.right[label]++
			a.correct++
		}
	}
	return a
}

// f1 returns 2 right/(support + predicted), the harmonic mean of precision and recall of a class. It
// is undefined for a class that no input is of and none is predicted as.
func f1(right, support, predicted float64) Figure { return per(2*right, support+predicted) }

func (a *classCounts) f1(k int) Figure {
	return f1(float64(a.right[k]), float64(a.support[k]), float64(a.predicted[k]))
}

// macroF1 returns the mean of F1 over the classes for which it is defined (app-acc).
func macroF1(classes int, f1 func(k int) Figure) Figure {
	sum, n := 0.0, 0
	for k := range classes {
		if f := f1(k); f.Defined() {
			sum += float64(f)
			n++
		}
	}
	return quotient(sum, float64(n))
}

// kappa returns Cohen's kappa with quadratic weights: 1 less the mean squared distance of true and
// predicted class over the distance expected if the two were independent. It is undefined where
// the expected distance is 0, so that all inputs are of one class and predicted so.
func kappa(t *Table, labels []int, a *classCounts) Figure {
	var observed, trueSum, trueSquares, predictedSum, predictedSquares float64
	for i, label := range labels {
		d := float64(label - t.Predicted[i])
		observed += d * d
	}
	for k := range a.support {
		grade := float64(k)
		trueSum += grade * float64(a.support[k])
		trueSquares += grade * grade * float64(a.support[k])
		predictedSum += grade * float64(a.predicted[k])
		predictedSquares += grade * grade * float64(a.predicted[k])
	}
	// Sum the expected distance over all pairs of a true and a predicted class.
	n := float64(len(labels))
	independent := trueSquares + predictedSquares - 2*trueSum*predictedSum/n
	if independent <= 0 {
		return undefined
	}
	return Figure(1 - observed/independent)
}

// chance returns the accuracy expected if true and predicted classes were independent.
func (a *classCounts) chance() float64 {
	sum := 0.0
	for k := range a.support {
		sum += float64(a.support[k]) * float64(a.predicted[k])
	}
	return sum / float64(a.n) / float64(a.n)
}

// matrix counts inputs as [true][predicted]. It is empty beyond maxMatrixClasses.
func matrix(t *Table, labels []int) [][]int {
	if t.K > maxMatrixClasses {
		return [][]int{}
	}
	m := square[int](t.K)
	for i, label := range labels {
		m[label][t.Predicted[i]]++
	}
	return m
}

// classes returns the classification report.
func classes(t *Table, labels []int, names []string, a *classCounts) []Class {
	critical, safe := setOf(t.K, t.Spec.Critical), setOf(t.K, t.Spec.Safe)
	uncertainty := make([]float64, t.K)
	for i, h := range t.Scores[decomp.Entropy] {
		uncertainty[labels[i]] += h
	}
	total := 0.0
	for k := range uncertainty {
		total += ratio(uncertainty[k], float64(a.support[k]))
	}
	all := make([]Class, t.K)
	for k := range all {
		all[k] = Class{
			Name: names[k], Critical: critical[k], Safe: safe[k],
			Support: a.support[k], Predicted: a.predicted[k],
			Precision: per(a.right[k], a.predicted[k]), Recall: per(a.right[k], a.support[k]), F1: a.f1(k),
			Uncertainty: quotient(uncertainty[k], float64(a.support[k])),
		}
		all[k].UncertaintyShare = quotient(float64(all[k].Uncertainty), total)
	}
	return all
}

// square returns k rows of k zeros.
func square[T any](k int) [][]T {
	rows, all := make([][]T, k), make([]T, k*k)
	for i := range rows {
		rows[i] = all[i*k : (i+1)*k : (i+1)*k]
	}
	return rows
}

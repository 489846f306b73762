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

// f1 returns 2 right/(support + predicted) for class k, the harmonic mean of precision and recall.
// It returns 0 where nothing is right.
func (a *classCounts) f1(k int) float64 { return share(2*a.right[k], a.support[k]+a.predicted[k]) }

// macroF1 returns the mean of F1 over all classes, including classes without inputs (app-acc).
func (a *classCounts) macroF1() float64 {
	sum := 0.0
	for k := range a.support {
		sum += a.f1(k)
	}
	return ratio(sum, float64(len(a.support)))
}

// kappa returns Cohen's kappa with quadratic weights: 1 less the mean squared distance of true and
// predicted class over the distance expected if the two were independent. It returns 0 where the
// expected distance is 0, so that all inputs are of one class and predicted so.
func kappa(t *Table, labels []int, a *classCounts) float64 {
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
		return 0
	}
	return 1 - observed/independent
}

// matrix counts inputs as [true][predicted]. It is empty beyond MaxMatrixClasses.
func matrix(t *Table, labels []int) [][]int {
	if t.K > MaxMatrixClasses {
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
		uncertainty[k] = ratio(uncertainty[k], float64(a.support[k]))
		total += uncertainty[k]
	}
	all := make([]Class, t.K)
	for k := range all {
		all[k] = Class{
			Name: names[k], Critical: critical[k], Safe: safe[k],
			Support: a.support[k], Predicted: a.predicted[k],
			Precision: share(a.right[k], a.predicted[k]), Recall: share(a.right[k], a.support[k]), F1: a.f1(k),
			Uncertainty: uncertainty[k], UncertaintyShare: ratio(uncertainty[k], total),
		}
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

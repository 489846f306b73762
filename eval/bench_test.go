package eval_test

import (
	"math"
	"math/rand/v2"
	"testing"

	"github.com/ckd-project/ckd/decomp"
	"github.com/ckd-project/ckd/eval"
)

// gradedRecording makes a synthetic recording: passes are the softmax of a logit that leans to the
// true class, plus noise of the input and of the pass. The higher a class, the rarer it is.
func gradedRecording(inputs, passes, classes int) (eval.Recording, []int) {
	random := rand.New(rand.NewPCG(7, 11))
	values := make([]float32, passes*inputs*classes)
	labels := make([]int, inputs)
	logits, row := make([]float64, classes), make([]float64, classes)
	for i := range inputs {
		labels[i] = min(int(random.ExpFloat64()*float64(classes)/3), classes-1)
		for k := range logits {
			logits[k] = 1.5*random.NormFloat64() - 0.7*math.Abs(float64(k-labels[i]))
		}
		spread := 0.3 + random.Float64()
		for s := range passes {
			sum := 0.0
			for k := range row {
				row[k] = math.Exp(logits[k] + spread*random.NormFloat64())
				sum += row[k]
			}
			for k := range row {
				values[(s*inputs+i)*classes+k] = float32(row[k] / sum)
			}
		}
	}
	return eval.Recording{
		Name: "synthetic", Classes: classes, Labels: labels,
		Passes: decomp.Tensor{Passes: passes, Inputs: inputs, Float32: values},
	}, labels
}

// BenchmarkEvaluate has the size of the paper's retinopathy experiment, with all scores, gates and
// tables and 200 resamples. Its part table times the decomposition alone.
func BenchmarkEvaluate(b *testing.B) {
	passes, labels := gradedRecording(7948, 30, 4)
	spec := decomp.Spec{Critical: []int{2, 3}, Safe: []int{0, 1}}
	t := table(b, passes, spec)
	b.Run("table", func(b *testing.B) {
		for b.Loop() {
			table(b, passes, spec)
		}
	})
	for name, resamples := range map[string]int{"resamples=0": 0, "resamples=200": 200} {
		b.Run(name, func(b *testing.B) {
			b.ReportAllocs()
			for b.Loop() {
				if _, err := eval.Evaluate(b.Context(), t, labels, eval.Options{Coverage: 0.8, Bootstrap: resamples}); err != nil {
					b.Fatal(err)
				}
			}
		})
	}
}

package recordings

import (
	"math"
	"math/rand/v2"
)

// Random returns softmaxes of normal logits, by input, pass and class, for tests that need other
// shapes than a real model has. Each input has logits about a centre of its own.
func Random(seed uint64, inputs, passes, classes int) [][][]float32 {
	random := rand.New(rand.NewPCG(seed, 0))
	all := make([][][]float32, inputs)
	for i := range all {
		center := make([]float64, classes)
		for k := range center {
			center[k] = 2 * random.NormFloat64()
		}
		for range passes {
			row, sum := make([]float64, classes), 0.0
			for k := range row {
				row[k] = math.Exp(center[k] + random.NormFloat64()/2)
				sum += row[k]
			}
			narrow := make([]float32, classes)
			for k := range row {
				narrow[k] = float32(row[k] / sum)
			}
			all[i] = append(all[i], narrow)
		}
	}
	return all
}

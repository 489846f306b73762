package drift_test

import (
	"fmt"
	"math/rand/v2"

	"github.com/ckd-project/ckd/internal/monitor/drift"
)

// A model of two classes is calibrated on 2000 inputs. Later its C_k are half as large again.
func Example() {
	random := rand.New(rand.NewPCG(1, 2))
	input := func(factor float64) (c, skewness []float64, predicted int) {
		c = []float64{factor * random.Float64() / 10, factor * random.Float64() / 10}
		return c, []float64{random.Float64(), random.Float64()}, random.IntN(2)
	}
	var sample drift.Sample
	for range 2000 {
		sample.Add(input(1))
	}
	reference := sample.Reference()
	monitor := drift.NewMonitor(reference)
	feed := func(inputs int, factor float64) {
		for range inputs / drift.BlockInputs {
			block := make([]drift.Block, len(reference.Classes))
			for range drift.BlockInputs {
				c, skewness, predicted := input(factor)
				for k, class := range reference.Classes {
					block[k].Epistemic += drift.Quantiles(class.Epistemic).Below(c[k])
					block[k].Skewness += drift.Quantiles(class.Skewness).Below(skewness[k])
				}
				block[predicted].Predicted++
			}
			monitor.Add(block)
		}
		s := monitor.Signals(1)[0].Epistemic // of class 0, over 256 inputs
		fmt.Printf("C_0 is %.1f standard errors higher, shifted by %.2f: alarm %t\n", s.Z, s.Shift, monitor.Alarms()[0].Epistemic)
	}
	feed(1024, 1)
	feed(1024, 1.5)
	// Output:
	// C_0 is -1.1 standard errors higher, shifted by -0.02: alarm false
	// C_0 is 8.5 standard errors higher, shifted by 0.16: alarm true
}

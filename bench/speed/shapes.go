package main

import (
	"fmt"
	"math"
	"math/rand/v2"
)

// shape says how many passes, classes and inputs a message or a tensor has.
type shape struct{ passes, classes, inputs int }

// shapes lists the shapes that are compared.
var shapes = []shape{{30, 4, 1}, {30, 4, 64}, {50, 10, 64}, {30, 100, 8}, {30, 1000, 1}}

func (s shape) String() string { return fmt.Sprintf("S%dK%dN%d", s.passes, s.classes, s.inputs) }

// count returns the number of values: passes x inputs x classes.
func (s shape) count() int { return s.passes * s.inputs * s.classes }

// sets returns the critical classes, half of them and at most ten, and the safe classes.
func (s shape) sets() (critical, safe []int) {
	for k := range s.classes {
		if k < min(s.classes/2, 10) {
			critical = append(critical, k)
		} else {
			safe = append(safe, k)
		}
	}
	return critical, safe
}

// values returns synthetic passes, laid out [passes][inputs][classes]: the softmax of the input's
// logits plus noise for each pass. The same seed gives the same values.
func (s shape) values(seed uint64) []float32 {
	random := rand.New(rand.NewPCG(seed, uint64(s.classes)))
	values := make([]float32, s.count())
	logits, row := make([]float64, s.classes), make([]float64, s.classes)
	for i := range s.inputs {
		for k := range logits {
			logits[k] = 2 * random.NormFloat64()
		}
		spread := 0.3 + random.Float64()
		for pass := range s.passes {
			sum := 0.0
			for k := range row {
				row[k] = math.Exp(logits[k] + spread*random.NormFloat64())
				sum += row[k]
			}
			to := values[(pass*s.inputs+i)*s.classes:]
			for k := range row {
				to[k] = float32(row[k] / sum)
			}
		}
	}
	return values
}

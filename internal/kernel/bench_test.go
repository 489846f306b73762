package kernel

import (
	"fmt"
	"math/rand/v2"
	"testing"
)

// shapes lists passes x columns.
var shapes = [][2]int{{30, 4}, {30, 256}, {50, 640}, {30, 1000}}

// benchmark runs f on each version; values is how many values one call takes.
func benchmark(b *testing.B, name string, values int, f func()) {
	for _, v := range versions() {
		b.Run(fmt.Sprintf("%s/%v", name, v), func(b *testing.B) {
			runVariant(v, func() {
				for b.Loop() {
					f()
				}
			})
			b.ReportMetric(float64(b.Elapsed().Nanoseconds())/float64(b.N)/float64(values), "ns/value")
		})
	}
}

func BenchmarkMoments(b *testing.B) {
	r := rand.New(rand.NewPCG(1, 1))
	for _, s := range shapes {
		passes, width := s[0], s[1]
		c := NewColumns(width)
		single := goodRows(r, passes*width/4, 4)
		double := widen(single)
		benchmark(b, fmt.Sprintf("float32/%dx%d", passes, width), len(single), func() {
			Moments(c, single, passes, width, width, 29)
		})
		benchmark(b, fmt.Sprintf("float64/%dx%d", passes, width), len(double), func() {
			Moments(c, double, passes, width, width, 29)
		})
	}
}

func BenchmarkPairs(b *testing.B) {
	r := rand.New(rand.NewPCG(1, 1))
	for _, classes := range []int{2, 3, 4, 7} {
		const passes = 30
		inputs := 256 / classes
		width := inputs * classes
		single, mean, sums := goodRows(r, passes*inputs, classes), make([]float64, width), make([]float64, 3*width)
		benchmark(b, fmt.Sprintf("rotated/%d", classes), len(single), func() {
			Rotated(sums, width, single, passes, inputs, classes, width, mean)
		})
	}
	for _, shape := range [][2]int{{1, 1000}, {16, 10}} {
		const passes = 30
		inputs, classes := shape[0], shape[1]
		width := inputs * classes
		for _, n := range []int{1, 3, 5, 10} {
			single, mean, sums := goodRows(r, passes*inputs, classes), make([]float64, width), make([]float64, n*width)
			stride := Padded(n)
			fixed := make([]float64, passes*inputs*stride)
			part := Part[float32]{single, mean, passes, width, inputs, classes, n}
			benchmark(b, fmt.Sprintf("deviations/%dx%d/%d", inputs, classes, n), passes*inputs*n, func() {
				Deviations(fixed, stride, part)
			})
			part.Width = classes
			benchmark(b, fmt.Sprintf("crossed/%dx%d/%d", inputs, classes, n), len(single), func() {
				Crossed(sums, classes, part, fixed, stride, n, true)
			})
		}
	}
}

func BenchmarkPlain(b *testing.B) {
	r := rand.New(rand.NewPCG(1, 1))
	for _, classes := range []int{2, 3, 4, 5, 6, 7, 8, 10, 16, 20, 100, 1000} {
		rows := goodRows(r, 8000/classes, classes)
		benchmark(b, fmt.Sprint(classes), len(rows), func() {
			if !Plain(rows, classes, tolerance) {
				b.Fatal("good rows are not plain")
			}
		})
	}
}

func widen(single []float32) []float64 {
	double := make([]float64, len(single))
	for i, p := range single {
		double[i] = float64(p)
	}
	return double
}

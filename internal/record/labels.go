package record

import (
	"math"
	"slices"
)

// ReadLabels reads one label an input from whatever ReadFile reads: one axis of integers or booleans, or of floats
// that are integers. Each is the number of a class, 0 or more.
func ReadLabels(path string) ([]int, error) {
	a, err := ReadFile(path)
	if err != nil {
		return nil, err
	}
	if len(a.Shape) != 1 {
		return nil, contentError(path, "shape %s has %d axes: expected one, with a label for each input",
			tuple(a.Shape), len(a.Shape))
	}
	switch {
	case a.Float32 != nil:
		return toLabels(path, a.Float32)
	case a.Float64 != nil:
		return toLabels(path, a.Float64)
	}
	return toLabels(path, a.Int64)
}

func toLabels[T int64 | float32 | float64](path string, values []T) ([]int, error) {
	valid := func(v T) bool { // NaN is not
		return v >= 0 && float64(v) <= math.MaxInt32 && float64(v) == math.Trunc(float64(v))
	}
	if i := slices.IndexFunc(values, func(v T) bool { return !valid(v) }); i >= 0 {
		return nil, contentError(path, "label %d is %v: expected the number of a class, a whole number from 0", i, values[i])
	}
	labels := make([]int, len(values))
	for i, v := range values {
		labels[i] = int(v)
	}
	return labels, nil
}

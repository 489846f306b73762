package record

import (
	"math"
	"slices"
)

// ReadLabels reads one label for each input from a file that ReadFile can read. A label is the
// number of a class, 0 or more, as an integer, a boolean or a float that is an integer; or one-hot,
// as in ReadClassLabels.
func ReadLabels(path string) ([]int, error) {
	return ReadClassLabels(path, 0, nil, func(int) error { return nil })
}

// ReadClassLabels reads labels as ReadLabels does, for k classes; k is 0 if unknown. A label may
// also be the name of its class: class returns the number of a name, or an error that says what was
// expected. One-hot labels have two axes, with a row for each input and a column for each class;
// one entry of a row is 1, the others are 0.
//
// number returns an error for a number that may mean two classes. It is asked once for each. The caller
// checks that numbers are below k.
func ReadClassLabels(path string, k int, class func(name string) (int, error), number func(label int) error) ([]int, error) {
	a, err := ReadFile(path)
	if err != nil {
		return nil, err
	}
	switch axes := len(a.Shape); {
	case axes == 2 && a.Text == nil:
		return a.oneHot(path, k)
	case axes != 1:
		return nil, contentError(path, "shape %s has %d axes: expected one, with a label for each input, or two, "+
			"with a one-hot row for each", tuple(a.Shape), axes)
	case a.Text != nil:
		return namedLabels(path, a.Text, class)
	case a.Float32 != nil:
		return toLabels(path, a.Float32, number)
	case a.Float64 != nil:
		return toLabels(path, a.Float64, number)
	}
	return toLabels(path, a.Int64, number)
}

func toLabels[T int64 | float32 | float64](path string, values []T, number func(label int) error) ([]int, error) {
	valid := func(v T) bool { // NaN is not
		return v >= 0 && float64(v) <= math.MaxInt32 && float64(v) == math.Trunc(float64(v))
	}
	if i := slices.IndexFunc(values, func(v T) bool { return !valid(v) }); i >= 0 {
		return nil, contentError(path, "label %d is %v: expected the number of a class, a whole number from 0", i, values[i])
	}
	labels, known := make([]int, len(values)), map[int]bool{}
	for i, v := range values {
		labels[i] = int(v)
		if known[labels[i]] {
			continue
		}
		known[labels[i]] = true
		if err := number(labels[i]); err != nil {
			return nil, contentError(path, "label %d is %d: %v", i, labels[i], err)
		}
	}
	return labels, nil
}

func namedLabels(path string, names []string, class func(name string) (int, error)) ([]int, error) {
	if class == nil {
		return nil, contentError(path, "the labels are text: expected numbers of classes")
	}
	labels := make([]int, len(names))
	for i, name := range names {
		var err error
		if labels[i], err = class(name); err != nil {
			return nil, contentError(path, "label %d is %.80q: %v", i, name, err)
		}
	}
	return labels, nil
}

func (a *Array) oneHot(path string, k int) ([]int, error) {
	inputs, columns := a.Shape[0], a.Shape[1]
	switch {
	case columns == k || k == 0 && columns > 1:
	case columns == 1:
		return nil, contentError(path, "shape %s is one column: expected one axis, with a label for each input "+
			"(numpy: a.ravel())", tuple(a.Shape))
	case inputs == k && columns > k:
		return nil, contentError(path, "shape %s has a row for each class: expected one-hot labels with a row for each "+
			"input (numpy: a.T)", tuple(a.Shape))
	default:
		return nil, contentError(path, "shape %s has %s: expected one-hot labels with a column for each of %s, or one axis",
			tuple(a.Shape), count(columns, "column", "columns"), count(k, "class", "classes"))
	}
	labels := make([]int, inputs)
	for i := range labels {
		labels[i] = -1
		for j := range columns {
			switch v := a.value(i*columns + j); {
			case v == 0:
			case v != 1:
				return nil, contentError(path, "row %d is not one-hot: column %d is %v, expected 0 or 1", i, j, v)
			case labels[i] >= 0:
				return nil, contentError(path, "row %d is not one-hot: columns %d and %d are both 1, expected one of them",
					i, labels[i], j)
			default:
				labels[i] = j
			}
		}
		if labels[i] < 0 {
			return nil, contentError(path, "row %d is not one-hot: no column is 1, expected one that is", i)
		}
	}
	return labels, nil
}

// at returns value i of an array of numbers as a float64.
func (a *Array) value(i int) float64 {
	switch {
	case a.Float32 != nil:
		return float64(a.Float32[i])
	case a.Float64 != nil:
		return a.Float64[i]
	}
	return float64(a.Int64[i])
}

package record

import (
	"math"
	"slices"
)

// ReadLabels reads one label for each input from a file that ReadFile can read. A label is the
// number of a class, 0 or more, as an integer, a boolean or a float that is an integer.
func ReadLabels(path string) ([]int, error) {
	return ReadClassLabels(path, nil, func(int) error { return nil })
}

// ReadClassLabels reads labels as ReadLabels does. A label may also be the name of its class: class
// returns the number of a name, or an error that says what was expected.
//
// number returns an error for a number that may mean two classes. It is asked once for each. The caller
// checks that numbers are those of classes.
func ReadClassLabels(path string, class func(name string) (int, error), number func(label int) error) ([]int, error) {
	a, err := ReadFile(path)
	if err != nil {
		return nil, err
	}
	switch axes := len(a.Shape); {
	case axes != 1:
		return nil, contentError(path, "shape %s has %d axes: expected one, with a label for each input (one-hot rows? numpy: "+
			"a.argmax(axis=1))", tuple(a.Shape), axes)
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

package decomp

import "fmt"

// RowFault says what is wrong with a row.
type RowFault uint8

// The faults of a row.
const (
	WrongClasses RowFault = iota // not K values
	NotFinite                    // NaN or infinite
	Negative                     // a probability below 0
	AboveOne                     // a probability above 1
	SumNotOne                    // probabilities that do not sum to 1
	NotPositive                  // a concentration at or below 0
	SumNotFinite                 // concentrations whose sum overflows
)

// RowError reports a bad row of an input.
type RowError struct {
	Fault RowFault
	// Pass is the number of the row, from 0.
	Pass int
	// Class has the wrong value; -1 if the whole row is wrong.
	Class int
	// Value was found: the class's value, the sum, or the number of values.
	Value float64
	// Expected says in words what was expected.
	Expected string
}

// Error returns a text with pass, class, value and expectation.
func (e *RowError) Error() string {
	switch e.Fault {
	case WrongClasses:
		return fmt.Sprintf("pass %d: %v values, expected %s", e.Pass, e.Value, e.Expected)
	case SumNotOne, SumNotFinite:
		return fmt.Sprintf("pass %d: values sum to %v, expected %s", e.Pass, e.Value, e.Expected)
	}
	return fmt.Sprintf("pass %d: class %d is %v, expected %s", e.Pass, e.Class, e.Value, e.Expected)
}

// PassesError reports a wrong number of passes.
type PassesError struct {
	// Got passes were found, Least to Most are accepted. Most is 0 without an upper bound.
	Got, Least, Most int
}

// Error returns what was found and what was expected.
func (e *PassesError) Error() string {
	return fmt.Sprintf("%d passes, expected %s", e.Got, e.Expected())
}

// Expected returns the accepted number of passes in words.
func (e *PassesError) Expected() string {
	if e.Got < e.Least {
		return fmt.Sprintf("at least %d", e.Least)
	}
	return fmt.Sprintf("at most %d", e.Most)
}

// ShapeError reports a tensor whose values do not fill the shape that it states.
type ShapeError struct {
	Passes, Inputs, Classes int
	// Got is the number of values.
	Got int
}

// Error returns the shape and the number of values.
func (e *ShapeError) Error() string {
	return fmt.Sprintf("%d values, expected %s", e.Got, e.Expected())
}

// Expected returns the shape in words.
func (e *ShapeError) Expected() string {
	return fmt.Sprintf("%d passes x %d inputs x %d classes", e.Passes, e.Inputs, e.Classes)
}

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

// RowError refuses one row of an input.
type RowError struct {
	Fault RowFault
	// Pass is the row's number, from 0.
	Pass int
	// Class whose value is wrong; -1 where the whole row is.
	Class int
	// Value that was found: of the class, or the sum, or the number of values.
	Value float64
	// Expected in words.
	Expected string
}

// Error names pass, class, value and expectation.
func (e *RowError) Error() string {
	switch e.Fault {
	case WrongClasses:
		return fmt.Sprintf("pass %d: %v values, expected %s", e.Pass, e.Value, e.Expected)
	case SumNotOne, SumNotFinite:
		return fmt.Sprintf("pass %d: values sum to %v, expected %s", e.Pass, e.Value, e.Expected)
	}
	return fmt.Sprintf("pass %d: class %d is %v, expected %s", e.Pass, e.Class, e.Value, e.Expected)
}

// PassesError refuses an input for the number of its passes.
type PassesError struct {
	// Got passes, where Least to Most are accepted; Most is 0 where there is no bound.
	Got, Least, Most int
}

// Error names what was found and what was expected.
func (e *PassesError) Error() string {
	return fmt.Sprintf("%d passes, expected %s", e.Got, e.Expected())
}

// Expected number of passes, in words.
func (e *PassesError) Expected() string {
	if e.Got < e.Least {
		return fmt.Sprintf("at least %d", e.Least)
	}
	return fmt.Sprintf("at most %d", e.Most)
}

// ShapeError refuses a tensor whose data are not of the shape it states.
type ShapeError struct {
	Passes, Inputs, Classes int
	// Got values.
	Got int
}

// Error names the shape and the number of values.
func (e *ShapeError) Error() string {
	return fmt.Sprintf("%d values, expected %s", e.Got, e.Expected())
}

// Expected shape, in words.
func (e *ShapeError) Expected() string {
	return fmt.Sprintf("%d passes x %d inputs x %d classes", e.Passes, e.Inputs, e.Classes)
}

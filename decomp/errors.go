package decomp

import "fmt"

// RowFault is a kind of fault of a row.
type RowFault uint8

// The faults of a row.
const (
	WrongClasses RowFault = iota // not K values
	NotFinite                    // NaN or infinite
	Negative                     // a probability below 0 by more than the tolerance
	AboveOne                     // a probability above 1 by more than the tolerance
	SumNotOne                    // probabilities that do not sum to 1
	NotPositive                  // a concentration at or below 0
	SumNotFinite                 // concentrations whose sum overflows
	NotLogits                    // all passes are probabilities, where logits were declared
)

// RowError reports a bad row of an input.
type RowError struct {
	Fault RowFault
	// Pass is the number of the row, from 0; -1 if all passes are wrong.
	Pass int
	// Class has the wrong value; -1 if the whole row is wrong.
	Class int
	// Value was found: the class's value, the sum, the number of values, or that of the passes.
	Value float64
	// Expected says in words what was expected.
	Expected string
	// Advice says what the row may be, and what to do; empty if it says too little.
	Advice string
}

// Error returns a text with pass, class, value, expectation and advice.
func (e *RowError) Error() string {
	text := e.found() + ", expected " + e.Expected
	if e.Advice != "" {
		text += " (" + e.Advice + ")"
	}
	return text
}

func (e *RowError) found() string {
	switch e.Fault {
	case WrongClasses:
		return fmt.Sprintf("pass %d: %v values", e.Pass, e.Value)
	case NotLogits:
		return fmt.Sprintf("all %v passes have values in [0,1] that sum to 1", e.Value)
	case SumNotOne, SumNotFinite:
		return fmt.Sprintf("pass %d: values sum to %v", e.Pass, e.Value)
	}
	return fmt.Sprintf("pass %d: class %d is %v", e.Pass, e.Class, e.Value)
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

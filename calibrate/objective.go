package calibrate

import (
	"errors"
	"fmt"
)

// Objective says what a calibration is for. Exactly one of the three must be given.
type Objective struct {
	// Coverage, in (0,1], is the share of inputs to be retained.
	Coverage float64
	// MaxCriticalMiss, in (0,1), bounds the expected share of critical inputs
	// that are retained and called safe.
	MaxCriticalMiss float64
	// MaxCriticalFNR, in (0,1), bounds the share of the retained critical inputs
	// that are called safe, with Confidence, in (0,1).
	MaxCriticalFNR, Confidence float64
}

// String returns the objective in words.
func (o Objective) String() string {
	switch {
	case o.Coverage > 0:
		return fmt.Sprintf("coverage %v", o.Coverage)
	case o.MaxCriticalMiss > 0:
		return fmt.Sprintf("max-critical-miss %v", o.MaxCriticalMiss)
	}
	return fmt.Sprintf("max-critical-fnr %v at confidence %v", o.MaxCriticalFNR, o.Confidence)
}

func (o Objective) check() error {
	inside := func(x float64) bool { return x > 0 && x < 1 }
	switch given := index(o.Coverage != 0) + index(o.MaxCriticalMiss != 0) + index(o.MaxCriticalFNR != 0); {
	case given != 1:
		return errors.New("expected exactly one objective: a coverage, a largest share of critical misses, or a largest critical FNR")
	case o.Coverage != 0 && !(o.Coverage > 0 && o.Coverage <= 1):
		return fmt.Errorf("coverage %v: expected a share above 0 and at most 1", o.Coverage)
	case o.MaxCriticalMiss != 0 && !inside(o.MaxCriticalMiss):
		return fmt.Errorf("max-critical-miss %v: expected a share above 0 and below 1", o.MaxCriticalMiss)
	case o.MaxCriticalFNR != 0 && !inside(o.MaxCriticalFNR):
		return fmt.Errorf("max-critical-fnr %v: expected a share above 0 and below 1", o.MaxCriticalFNR)
	case o.MaxCriticalFNR != 0 && !inside(o.Confidence):
		return fmt.Errorf("confidence %v: expected a share above 0 and below 1", o.Confidence)
	}
	return nil
}

func index(b bool) int {
	if b {
		return 1
	}
	return 0
}

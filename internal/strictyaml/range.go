package strictyaml

import (
	"fmt"
	"math"
)

// Range bounds a number. The zero Range contains 0 alone.
type Range struct {
	// Least and Most are the bounds. An infinite Most means no upper bound.
	Least, Most float64
	// Open excludes Least itself, OpenMost excludes Most.
	Open, OpenMost bool
}

// AtLeast returns the range of finite numbers >= x.
func AtLeast(x float64) Range { return Range{Least: x, Most: math.Inf(1)} }

// Above returns the range of finite numbers > x.
func Above(x float64) Range { return Range{Least: x, Most: math.Inf(1), Open: true} }

// Between returns the range from a to b, both included.
func Between(a, b float64) Range { return Range{Least: a, Most: b} }

// Contains reports whether x is finite and within the range.
func (r Range) Contains(x float64) bool {
	switch {
	case math.IsNaN(x), math.IsInf(x, 0), x < r.Least, x > r.Most:
		return false
	}
	return (!r.Open || x > r.Least) && (!r.OpenMost || x < r.Most)
}

// String returns the range in words.
func (r Range) String() string {
	switch {
	case r.Open && r.OpenMost:
		return fmt.Sprintf("a number above %v and below %v", r.Least, r.Most)
	case !math.IsInf(r.Most, 1):
		return fmt.Sprintf("a number from %v to %v", r.Least, r.Most)
	case r.Open:
		return fmt.Sprintf("a finite number > %v", r.Least)
	}
	return fmt.Sprintf("a finite number >= %v", r.Least)
}

package evaluate

import (
	"encoding/json"
	"errors"
	"fmt"
	"maps"
	"math"
	"slices"
	"strings"
)

// tolerance bounds how far numbers may differ that both compute from the same inputs, in absolute
// or relative terms.
const tolerance = 1e-9

// agreement says how closely two reports agree.
type agreement struct {
	compared  int     // numbers held to the tolerance
	largest   float64 // difference of them
	resampled int     // numbers that come from resamples, held to what chance allows
}

// compare compares ckd's report with numpy's, both as JSON. Every number of ckd's report must be in
// the other one and agree, except its source and exact intervals, which need SciPy. The two draw different resamples, whose figures
// may differ by six standard errors.
func compare(ours, theirs []byte, resamples int) (*agreement, error) {
	var a, b map[string]any
	if err := json.Unmarshal(ours, &a); err != nil {
		return nil, fmt.Errorf("report of ckd: %w", err)
	}
	if err := json.Unmarshal(theirs, &b); err != nil {
		return nil, fmt.Errorf("report of numpy: %w", err)
	}
	delete(a, "source")
	delete(a, "notes")
	delete(a, "signs")
	c := &comparison{resamples: float64(resamples)}
	c.values("", a, b)
	if len(c.faults) > 0 {
		const most = 10
		return nil, fmt.Errorf("ckd and numpy disagree in %d places:\n%w", len(c.faults),
			errors.Join(c.faults[:min(most, len(c.faults))]...))
	}
	return &c.agreement, nil
}

type comparison struct {
	agreement
	resamples float64
	faults    []error
}

func (c *comparison) values(path string, a, b any) {
	switch a := a.(type) {
	case map[string]any:
		b, _ := b.(map[string]any)
		c.objects(path, a, b)
	case []any:
		b, _ := b.([]any)
		if len(a) != len(b) {
			c.fault(path, "%d entries and %d", len(a), len(b))
			return
		}
		for i := range a {
			c.values(fmt.Sprintf("%s[%d]", path, i), a[i], b[i])
		}
	case float64:
		other, ok := b.(float64)
		difference := math.Abs(a - other)
		if !ok || !(difference <= tolerance*max(1, math.Abs(a))) {
			c.fault(path, "%v and %v, expected a difference up to %g", a, b, tolerance)
		}
		c.compared++
		c.largest = max(c.largest, difference)
	default:
		if a != b {
			c.fault(path, "%v and %v", a, b)
		}
	}
}

func (c *comparison) objects(path string, a, b map[string]any) {
	maps.DeleteFunc(a, func(key string, _ any) bool { return strings.HasSuffix(key, "_interval") })
	if keys, others := sortedKeys(a), sortedKeys(b); !slices.Equal(keys, others) {
		c.fault(path, "keys %s and %s", strings.Join(keys, ","), strings.Join(others, ","))
		return
	}
	_, isInterval := a["sd"]
	for _, key := range sortedKeys(a) {
		at := path + "." + key
		sdA, _ := a["sd"].(float64)
		sdB, _ := b["sd"].(float64)
		sd := max(sdA, sdB)
		// Standard errors of n resamples of a normal figure, in units of sd/sqrt(n): 1 for the
		// mean, 1/sqrt(2) for the standard deviation, 2.7 for the 2.5% and 97.5% quantiles. For a
		// share it is at most 1/2.
		switch {
		case key == "win_share", key == "p" && strings.HasPrefix(path, ".pairwise"):
			c.resampledBy(at, 0.5, a[key], b[key])
		case isInterval && key == "mean":
			c.resampledBy(at, sd, a[key], b[key])
		case isInterval && key == "sd":
			c.resampledBy(at, sd/math.Sqrt2, a[key], b[key])
		case isInterval:
			c.resampledBy(at, 2.7*sd, a[key], b[key])
		default:
			c.values(at, a[key], b[key])
		}
	}
}

// resampledBy compares two figures over resamples. Each has the standard error given, in units of
// 1/sqrt(resamples).
func (c *comparison) resampledBy(path string, standardError float64, a, b any) {
	if a == nil && b == nil { // undefined in every resample
		return
	}
	x, okX := a.(float64)
	y, okY := b.(float64)
	allowed := 6*math.Sqrt2*standardError/math.Sqrt(c.resamples) + tolerance
	if !okX || !okY || !(math.Abs(x-y) <= allowed) {
		c.fault(path, "%v and %v over resamples, expected a difference up to %.2g", a, b, allowed)
	}
	c.resampled++
}

func (c *comparison) fault(path, format string, args ...any) {
	c.faults = append(c.faults, fmt.Errorf("%s: %s", strings.TrimPrefix(path, "."), fmt.Sprintf(format, args...)))
}

func sortedKeys(object map[string]any) []string { return slices.Sorted(maps.Keys(object)) }

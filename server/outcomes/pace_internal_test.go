package outcomes

import (
	"testing"
	"time"
)

// TestPace checks that a fleet is asked to tell as often as takes a tenth of a core, within bounds.
func TestPace(t *testing.T) {
	for _, c := range []struct {
		took    time.Duration
		daemons int
		want    time.Duration // took * daemons / 0.1
	}{
		{time.Millisecond, 1, soonest},
		{6 * time.Millisecond, 100, 6 * time.Second},
		{time.Second, 100, latest},
	} {
		var p pace
		for range 1000 { // so that the mean is what each took, to 1e-22
			p.next(c.took, c.daemons)
		}
		if got := p.next(c.took, c.daemons); (got - c.want).Abs() > time.Microsecond {
			t.Errorf("%d daemons of %v: %v, want %v", c.daemons, c.took, got, c.want)
		}
	}
}

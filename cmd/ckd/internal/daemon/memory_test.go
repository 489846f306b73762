package daemon

import (
	"errors"
	"math"
	"runtime/debug"
	"slices"
	"testing"

	"github.com/KimMachineGun/automemlimit/memlimit"
	"go.uber.org/zap"
	"go.uber.org/zap/zaptest/observer"
)

// TestLimitMemory checks the limit: nine tenths of the cgroup's, none if the cgroup has none, and
// no change if it is unknown.
func TestLimitMemory(t *testing.T) {
	before := debug.SetMemoryLimit(-1)
	defer debug.SetMemoryLimit(before)
	for name, c := range map[string]struct {
		limit uint64
		err   error
		want  int64
		lines []string
	}{
		"limited":   {1000 << 20, nil, 900 << 20, []string{"memory limit"}},
		"unlimited": {0, memlimit.ErrNoLimit, math.MaxInt64, nil},
		"unknown":   {0, errors.New("no cgroup"), 5 << 30, []string{"no memory limit from the cgroup"}},
	} {
		t.Run(name, func(t *testing.T) {
			debug.SetMemoryLimit(5 << 30)
			core, logs := observer.New(zap.InfoLevel)
			limitMemory(zap.New(core), func() (uint64, error) { return c.limit, c.err })
			if got := debug.SetMemoryLimit(-1); got != c.want {
				t.Errorf("limit %d, want %d", got, c.want)
			}
			var lines []string
			for _, line := range logs.All() {
				lines = append(lines, line.Message)
			}
			if !slices.Equal(lines, c.lines) {
				t.Errorf("log %q, want %q", lines, c.lines)
			}
		})
	}
}

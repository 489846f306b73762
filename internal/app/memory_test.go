package app

import (
	"errors"
	"math"
	"runtime/debug"
	"testing"

	"github.com/KimMachineGun/automemlimit/memlimit"
	"go.uber.org/zap"
	"go.uber.org/zap/zaptest/observer"
)

// TestLimitMemory: nine tenths of what the cgroup allows; none where it allows
// all; and no change where it cannot be told.
func TestLimitMemory(t *testing.T) {
	before := debug.SetMemoryLimit(-1)
	defer debug.SetMemoryLimit(before)
	for name, c := range map[string]struct {
		limit uint64
		err   error
		want  int64
	}{
		"limited":   {1000 << 20, nil, 900 << 20},
		"unlimited": {0, memlimit.ErrNoLimit, math.MaxInt64},
		"unknown":   {0, errors.New("no cgroup"), 5 << 30},
	} {
		debug.SetMemoryLimit(5 << 30)
		core, logs := observer.New(zap.InfoLevel)
		limitMemory(zap.New(core), func() (uint64, error) { return c.limit, c.err })
		if got := debug.SetMemoryLimit(-1); got != c.want {
			t.Errorf("%s: limit %d, want %d", name, got, c.want)
		}
		if said := logs.FilterMessage("memory limit").Len() == 1; said != (name == "limited") {
			t.Errorf("%s: log %v", name, logs.All())
		}
		if name == "unknown" && logs.FilterMessage("no memory limit from the cgroup").Len() != 1 {
			t.Errorf("%s: log %v", name, logs.All())
		}
	}
}

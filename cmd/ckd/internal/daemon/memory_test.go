package daemon

import (
	"errors"
	"math"
	"runtime/debug"
	"slices"
	"testing"

	"github.com/KimMachineGun/automemlimit/memlimit"
	"go.uber.org/zap"
	"go.uber.org/zap/zapcore"
	"go.uber.org/zap/zaptest/observer"

	"github.com/ckd-project/ckd/server"
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

// TestWorstCaseIsLogged checks the line about the worst case, and that it warns of a smaller limit alone.
func TestWorstCaseIsLogged(t *testing.T) {
	w := server.DefaultLimits().WorstCase(1, 1000, false)
	for name, c := range map[string]struct {
		limit int64
		want  zapcore.Level
	}{
		"no limit":    {0, zap.InfoLevel},
		"the same":    {w.Total(), zap.InfoLevel},
		"less memory": {w.Total() - 1, zap.WarnLevel},
	} {
		t.Run(name, func(t *testing.T) {
			core, logs := observer.New(zap.InfoLevel)
			logWorstCase(zap.New(core), w, c.limit)
			line := logs.All()[0]
			fields, parts := line.ContextMap(), int64(0)
			for key, value := range fields {
				if key != "bytes" && key != "limit_bytes" {
					parts += value.(int64)
				}
			}
			if line.Level != c.want || fields["bytes"] != w.Total() || fields["limit_bytes"] != c.limit || parts != w.Total() {
				t.Errorf("%v: %v, the parts are %d", line.Level, fields, parts)
			}
		})
	}
}

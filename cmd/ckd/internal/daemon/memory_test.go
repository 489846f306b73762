package daemon

import (
	"cmp"
	"errors"
	"math"
	"os"
	"path/filepath"
	"runtime/debug"
	"slices"
	"strings"
	"testing"

	"github.com/KimMachineGun/automemlimit/memlimit"
	"go.uber.org/zap"
	"go.uber.org/zap/zapcore"
	"go.uber.org/zap/zaptest/observer"

	"github.com/ckd-project/ckd/server"
)

// TestLimitMemory checks the limit that is returned and in force: nine tenths of the cgroup's memory
// unless GOMEMLIMIT is set, and no change if the cgroup has none or is unknown.
func TestLimitMemory(t *testing.T) {
	before := debug.SetMemoryLimit(-1)
	defer debug.SetMemoryLimit(before)
	const none, five = math.MaxInt64, 5 << 30
	for name, c := range map[string]struct {
		environment string
		runtime     int64 // the runtime's limit by GOMEMLIMIT
		cgroup      uint64
		err         error
		want        int64
		lines       []string
	}{
		"limited":                    {"", none, 1000 << 20, nil, 900 << 20, []string{"memory limit"}},
		"unlimited":                  {"", none, 0, memlimit.ErrNoLimit, 0, nil},
		"unknown":                    {"", none, 0, errors.New("no cgroup"), 0, []string{"no memory limit from the cgroup"}},
		"GOMEMLIMIT":                 {"5GiB", five, 8 << 30, nil, five, []string{"memory limit"}},
		"GOMEMLIMIT alone":           {"5GiB", five, 0, memlimit.ErrNoLimit, five, []string{"memory limit"}},
		"GOMEMLIMIT over the cgroup": {"5GiB", five, 1000 << 20, nil, five, []string{"GOMEMLIMIT is above", "memory limit"}},
		"GOMEMLIMIT off":             {"off", none, 1000 << 20, nil, 0, []string{"GOMEMLIMIT is above"}},
	} {
		t.Run(name, func(t *testing.T) {
			t.Setenv("GOMEMLIMIT", c.environment)
			debug.SetMemoryLimit(c.runtime)
			core, logs := observer.New(zap.InfoLevel)
			got := limitMemory(zap.New(core), func() (uint64, error) { return c.cgroup, c.err })
			if inForce := debug.SetMemoryLimit(-1); got != c.want || inForce != cmp.Or(c.want, none) {
				t.Errorf("limit %d, in force %d, want %d", got, inForce, c.want)
			}
			lines := logs.All()
			same := slices.EqualFunc(lines, c.lines, func(l observer.LoggedEntry, begin string) bool { return strings.HasPrefix(l.Message, begin) })
			if !same {
				t.Errorf("log %v, want %q", lines, c.lines)
			}
		})
	}
}

// TestMemoryHigh checks that the smallest memory.high of nested cgroups counts, and no "max".
func TestMemoryHigh(t *testing.T) {
	root := filepath.Join(t.TempDir(), "cgroup")
	for dir, high := range map[string]string{"": "max", "a": "3000\n", "a/b": "max\n", "a/b/c": "5000\n", "d": "max\n"} {
		if err := os.MkdirAll(filepath.Join(root, dir), 0o700); err != nil {
			t.Fatal(err)
		}
		if dir == "" {
			continue
		}
		if err := os.WriteFile(filepath.Join(root, dir, "memory.high"), []byte(high), 0o600); err != nil {
			t.Fatal(err)
		}
	}
	for own, want := range map[string]uint64{
		"0::/a/b/c\n": 3000, "0::/a/b\n": 3000, "0::/d\n": 0, "0::/\n": 0, "0::/../other\n": 0, "0::/gone/c\n": 0, "": 0,
		"9:memory:/d\n0::/a\n": 3000, "9:memory:/a\n": 0,
	} {
		if got, ok := memoryHigh(root, own); got != want || ok != (want > 0) {
			t.Errorf("%q: %d, %v, want %d", own, got, ok, want)
		}
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

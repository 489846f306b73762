package daemon

import (
	"errors"
	"math"
	"runtime/debug"

	"github.com/KimMachineGun/automemlimit/memlimit"
	"go.uber.org/zap"
)

// memoryShare is the share of the cgroup's memory that the Go runtime should stay under. The rest
// is for memory that the runtime does not count.
const memoryShare = 0.9

// LimitMemory sets the soft memory limit of the runtime from the cgroup of the process, unless
// GOMEMLIMIT is set. Without a limit of the cgroup it sets none.
func LimitMemory(log *zap.Logger) { limitMemory(log, memlimit.FromCgroup) }

// memoryLimit returns the soft memory limit of the runtime; 0 for none.
func memoryLimit() int64 {
	if limit := debug.SetMemoryLimit(-1); limit < math.MaxInt64 {
		return limit
	}
	return 0
}

func limitMemory(log *zap.Logger, cgroup memlimit.Provider) {
	limit, err := memlimit.Set(memlimit.WithRatio(memoryShare), memlimit.WithProvider(cgroup))
	switch {
	case err != nil && !errors.Is(err, memlimit.ErrNoLimit):
		log.Warn("no memory limit from the cgroup", zap.Error(err))
	case err == nil && limit > 0 && limit < math.MaxInt64:
		log.Info("memory limit", zap.Int64("bytes", limit))
	}
}

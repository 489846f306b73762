package daemon

import (
	"errors"
	"math"
	"runtime/debug"

	"github.com/KimMachineGun/automemlimit/memlimit"
	"go.uber.org/zap"

	"github.com/ckd-project/ckd/server"
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

// logWorstCase logs how much memory clients can make the daemon take, beside the limit of the runtime,
// 0 for none, and warns if that is less.
func logWorstCase(log *zap.Logger, w server.WorstCase, limit int64) {
	write, message := log.Info, "memory that clients can make the daemon take"
	if limit > 0 && w.Total() > limit {
		write = log.Warn
		message += " is more than its limit: under such a load calls are refused and connections ended;" +
			" raise the limit, or lower max-open-bytes, max-streams, max-calls or max-connections"
	}
	write(message, zap.Int64("bytes", w.Total()), zap.Int64("limit_bytes", limit),
		zap.Int64("daemon_bytes", w.Itself), zap.Int64("open_bytes", w.Open), zap.Int64("decoded_bytes", w.Decoded),
		zap.Int64("arriving_bytes", w.Arriving), zap.Int64("calls_bytes", w.Calls), zap.Int64("connections_bytes", w.Connections))
}

package app

import (
	"errors"
	"math"

	"github.com/KimMachineGun/automemlimit/memlimit"
	"go.uber.org/zap"
)

// memoryShare of the cgroup's memory is what the Go runtime is told to stay
// under; the rest is for what it does not count.
const memoryShare = 0.9

// LimitMemory sets the runtime's soft memory limit from the cgroup that the
// process is in, unless GOMEMLIMIT is set. Without a cgroup limit there is none.
func LimitMemory(log *zap.Logger) { limitMemory(log, memlimit.FromCgroup) }

func limitMemory(log *zap.Logger, cgroup memlimit.Provider) {
	limit, err := memlimit.Set(memlimit.WithRatio(memoryShare), memlimit.WithProvider(cgroup))
	switch {
	case err != nil && !errors.Is(err, memlimit.ErrNoLimit):
		log.Warn("no memory limit from the cgroup", zap.Error(err))
	case err == nil && limit > 0 && limit < math.MaxInt64:
		log.Info("memory limit", zap.Int64("bytes", limit))
	}
}

package daemon

import (
	"errors"
	"math"
	"os"
	"path/filepath"
	"runtime/debug"
	"strconv"
	"strings"

	"github.com/KimMachineGun/automemlimit/memlimit"
	"go.uber.org/zap"

	"github.com/ckd-project/ckd/server"
)

// memoryShare sets the share of the cgroup's memory that the Go runtime should stay under. The rest
// is for memory that the runtime does not count.
const memoryShare = 0.9

// limitMemory sets the soft memory limit of the Go runtime to a share of the cgroup's memory, unless
// GOMEMLIMIT is set. It returns the limit in force, which the memory guard keeps to; 0 for none.
func limitMemory(log *zap.Logger, cgroup memlimit.Provider) int64 {
	available, err := cgroup()
	if err != nil {
		available = math.MaxUint64
		if !errors.Is(err, memlimit.ErrNoLimit) {
			log.Warn("no memory limit from the cgroup; set GOMEMLIMIT to nine tenths of the container's memory", zap.Error(err))
		}
	}
	share := uint64(memoryShare * float64(available))
	if os.Getenv("GOMEMLIMIT") == "" && share < math.MaxInt64 {
		debug.SetMemoryLimit(int64(share))
	}
	limit := debug.SetMemoryLimit(-1)
	if uint64(limit) > available {
		log.Warn("GOMEMLIMIT is above the memory of the cgroup: the kernel ends the daemon before it refuses work;"+
			" unset GOMEMLIMIT, or lower it to nine tenths of the cgroup's memory",
			zap.Int64("gomemlimit_bytes", limit), zap.Uint64("cgroup_bytes", available))
	}
	if limit == math.MaxInt64 {
		return 0
	}
	log.Info("memory limit", zap.Int64("bytes", limit))
	return limit
}

// cgroupMemory returns the memory that the process may take by its cgroup and its ancestors: the
// smallest limit or, in version 2, memory.high, above which the kernel all but stops a process.
func cgroupMemory() (uint64, error) {
	limit, err := memlimit.FromCgroup()
	if err != nil && !errors.Is(err, memlimit.ErrNoLimit) {
		return 0, err
	}
	own, _ := os.ReadFile("/proc/self/cgroup") // without it, FromCgroup fails
	if high, ok := memoryHigh("/sys/fs/cgroup", string(own)); ok && (err != nil || high < limit) {
		return high, nil
	}
	return limit, err
}

// memoryHigh returns the smallest memory.high of the version 2 cgroup that /proc/self/cgroup names,
// and of its ancestors up to root.
func memoryHigh(root, own string) (least uint64, ok bool) {
	_, path, _ := strings.Cut("\n"+own, "\n0::")
	path, _, _ = strings.Cut(path, "\n")
	for dir := filepath.Join(root, path); strings.HasPrefix(dir, root); dir = filepath.Dir(dir) {
		text, err := os.ReadFile(filepath.Join(dir, "memory.high"))
		if err != nil {
			continue // the topmost cgroup has none
		}
		if high, err := strconv.ParseUint(strings.TrimSpace(string(text)), 10, 64); err == nil && (!ok || high < least) { // not "max"
			least, ok = high, true
		}
	}
	return least, ok
}

// logWorstCase logs how much memory clients can make the daemon take, beside the limit of the runtime,
// 0 for none, and warns if that is less.
func logWorstCase(log *zap.Logger, w server.WorstCase, limit int64) {
	write, message := log.Info, "memory that clients can make the daemon take"
	if limit > 0 && w.Total() > limit {
		write = log.Warn
		message += " is more than its limit: under such a load calls are refused and connections ended;" +
			" raise the limit, or lower max-open-bytes, max-streams or max-connections"
	}
	write(message, zap.Int64("bytes", w.Total()), zap.Int64("limit_bytes", limit),
		zap.Int64("daemon_bytes", w.Itself), zap.Int64("open_bytes", w.Open), zap.Int64("decoded_bytes", w.Decoded),
		zap.Int64("arriving_bytes", w.Arriving), zap.Int64("calls_bytes", w.Calls), zap.Int64("connections_bytes", w.Connections))
}

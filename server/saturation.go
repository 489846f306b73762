package server

import "github.com/ckd-project/ckd/metrics"

// saturation is what clients make the daemon hold, beside its limits.
func (s *Server) saturation() metrics.Saturation {
	return metrics.Saturation{
		OpenBytes: s.openBytes.Load(), OpenBytesLimit: s.limits.OpenInputBytes,
		StreamsLimit: int64(s.limits.Streams),
		Calls:        s.calls.Load(), CallsLimit: int64(s.limits.Calls),
		RepliesUnread: s.unread.Load(),
		Watches:       s.watches.Load(), WatchesLimit: int64(s.limits.Watches),
	}
}

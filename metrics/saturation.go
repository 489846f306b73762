package metrics

import "github.com/prometheus/client_golang/prometheus"

// Saturation is what the daemon holds at one time, and how much it may.
type Saturation struct {
	OpenBytes, OpenBytesLimit int64 // of open inputs, requests and replies that are not sent
	StreamsLimit              int64
	Calls, CallsLimit         int64 // unary, under way
	RepliesUnread             int64 // to unary calls
	Watches, WatchesLimit     int64 // of the health
}

// ReadSaturation makes every scrape ask for it; before that all is 0.
func (m *Metrics) ReadSaturation(read func() Saturation) {
	m.series.mu.Lock()
	defer m.series.mu.Unlock()
	m.series.saturation = read
}

// collectSaturation tells a scrape.
func (s *series) collectSaturation(to chan<- prometheus.Metric) {
	var is Saturation
	if s.saturation != nil {
		is = s.saturation()
	}
	for _, one := range []struct {
		of    *gauges
		value int64
	}{
		{s.openBytes, is.OpenBytes},
		{s.openBytesLimit, is.OpenBytesLimit},
		{s.streamsLimit, is.StreamsLimit},
		{s.callsOpen, is.Calls},
		{s.callsLimit, is.CallsLimit},
		{s.repliesUnread, is.RepliesUnread},
		{s.watchesOpen, is.Watches},
		{s.watchesLimit, is.WatchesLimit},
	} {
		sample := one.of.with()
		sample.value = float64(one.value)
		to <- &sample
	}
}

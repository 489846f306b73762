package metrics

import (
	"sync/atomic"

	"github.com/prometheus/client_golang/prometheus"
)

// Saturation says how much of its limited resources the daemon holds, and the limits.
type Saturation struct {
	OpenBytes, OpenBytesLimit int64 // memory of open inputs, requests and unsent replies
	StreamsLimit              int64
	Calls, CallsLimit         int64 // unary calls under way
	RepliesUnread             int64 // replies to unary calls
	Watches, WatchesLimit     int64 // watches of the health
}

// saturation declares the gauges of a Saturation.
type saturation struct {
	gauges []saturationGauge
	read   *atomic.Pointer[func() Saturation] // holds nil until there is somebody to ask
}

// saturationGauge is the gauge of one figure of a Saturation.
type saturationGauge struct {
	*computedGauge
	value func(*Saturation) int64
}

func declareSaturation(t *table) saturation {
	s := saturation{read: new(atomic.Pointer[func() Saturation])}
	declare := func(name, help string, value func(*Saturation) int64) {
		s.gauges = append(s.gauges, saturationGauge{t.computed(name, help), value})
	}
	declare("ckd_open_bytes",
		"Bytes held by open inputs, by requests under way and by replies not yet sent.",
		func(s *Saturation) int64 { return s.OpenBytes })
	declare("ckd_open_bytes_limit",
		"Limit of ckd_open_bytes: inputs beyond it are refused.",
		func(s *Saturation) int64 { return s.OpenBytesLimit })
	declare("ckd_streams_limit",
		"Limit of open streams over all models.",
		func(s *Saturation) int64 { return s.StreamsLimit })
	declare("ckd_calls_open",
		"Unary calls under way or with an unread reply, including those over HTTP.",
		func(s *Saturation) int64 { return s.Calls })
	declare("ckd_calls_limit",
		"Limit of ckd_calls_open: calls beyond it are refused.",
		func(s *Saturation) int64 { return s.CallsLimit })
	declare("ckd_replies_unread",
		"Replies to unary calls not yet sent because their client has not read that far; each "+
			"keeps its place in ckd_calls_open.",
		func(s *Saturation) int64 { return s.RepliesUnread })
	declare("ckd_watches_open",
		"Open health watches: a client that balances load holds one on each of its "+
			"connections.",
		func(s *Saturation) int64 { return s.Watches })
	declare("ckd_watches_limit",
		"Limit of ckd_watches_open: watches beyond it are refused.",
		func(s *Saturation) int64 { return s.WatchesLimit })
	return s
}

// collect sends the gauges to a scrape.
func (s *saturation) collect(to chan<- prometheus.Metric) {
	var now Saturation
	if read := s.read.Load(); read != nil {
		now = (*read)()
	}
	for _, g := range s.gauges {
		to <- g.with().at(float64(g.value(&now)))
	}
}

// ReadSaturation makes every scrape call read. Before that all figures are 0.
func (m *Metrics) ReadSaturation(read func() Saturation) { m.collector.saturation.read.Store(&read) }

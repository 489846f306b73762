package sharded

import (
	"cmp"
	"maps"
	"slices"
	"sync"
	"time"

	"github.com/prometheus/client_golang/prometheus"
	dto "github.com/prometheus/client_model/go"
	"google.golang.org/protobuf/types/known/timestamppb"
)

// Vec holds the series of one name, like the vectors of client_golang. Each series has a part P in
// every shard: a number, or the Counts of a histogram.
type Vec[P any] struct {
	desc    *prometheus.Desc
	labels  []string
	newPart func(*Shard) *P
	sum     func(into, part *P)
	write   func(into *dto.Metric, sum *P, created *timestamppb.Timestamp)

	// mu may be locked while a shard is locked, never the other way round.
	mu     sync.Mutex
	series map[labelValues]*Series[P]
}

// labelValues holds the label values of a series, in the order of the labels.
type labelValues [4]string

// Series is one series of a Vec.
type Series[P any] struct {
	vec     *Vec[P]
	labels  []*dto.LabelPair
	created *timestamppb.Timestamp
	parts   [maxShards]*P // by shard, under its lock; nil until the shard is first counted in
}

// Part returns the part of the series in a shard, whose lock the caller holds. The part of a deleted
// series stays usable, and counts into nothing.
func (s *Series[P]) Part(shard *Shard) *P {
	if part := s.parts[shard.index]; part != nil {
		return part
	}
	return s.newPart(shard)
}

//go:noinline
func (s *Series[P]) newPart(shard *Shard) *P {
	part := s.vec.newPart(shard)
	s.parts[shard.index] = part
	return part
}

type (
	// CounterVec holds the counters of one name.
	CounterVec = Vec[float64]
	// Counter is one series of a CounterVec.
	Counter = Series[float64]
	// HistogramVec holds the histograms of one name.
	HistogramVec = Vec[Counts]
	// Histogram is one series of a HistogramVec.
	Histogram = Series[Counts]
)

// NewCounterVec returns a vector of counters without series. It takes at most four labels.
func NewCounterVec(name, help string, labels []string) *CounterVec {
	return &CounterVec{
		desc: prometheus.NewDesc(name, help, labels, nil), labels: labels,
		series:  make(map[labelValues]*Counter),
		newPart: (*Shard).counter,
		sum:     func(into, part *float64) { *into += *part },
		write: func(into *dto.Metric, sum *float64, created *timestamppb.Timestamp) {
			into.Counter = &dto.Counter{Value: sum, CreatedTimestamp: created}
		},
	}
}

// NewHistogramVec returns a vector of histograms without series. It takes at most four labels.
// Without classic a scrape sees native buckets alone.
func NewHistogramVec(name, help string, l *Layout, classic bool, labels []string) *HistogramVec {
	return &HistogramVec{
		desc: prometheus.NewDesc(name, help, labels, nil), labels: labels,
		series:  make(map[labelValues]*Histogram),
		newPart: func(*Shard) *Counts { return NewCounts(l) },
		sum:     (*Counts).add,
		write: func(into *dto.Metric, sum *Counts, created *timestamppb.Timestamp) {
			into.Histogram = sum.histogram(l, classic, created)
		},
	}
}

// With returns the series with the given label values, and creates it if need be.
func (v *Vec[P]) With(values ...string) *Series[P] {
	var key labelValues
	copy(key[:], values)
	v.mu.Lock()
	defer v.mu.Unlock()
	s, ok := v.series[key]
	if !ok {
		s = &Series[P]{vec: v, labels: prometheus.MakeLabelPairs(v.desc, values), created: timestamppb.New(time.Now())}
		v.series[key] = s
	}
	return s
}

// DeleteLabelValues deletes the series with the given label values, and reports whether there was
// one.
func (v *Vec[P]) DeleteLabelValues(values ...string) bool {
	var key labelValues
	copy(key[:], values)
	v.mu.Lock()
	defer v.mu.Unlock()
	_, ok := v.series[key]
	delete(v.series, key)
	return ok
}

// DeletePartialMatch deletes all series that have the given labels, and returns their number.
func (v *Vec[P]) DeletePartialMatch(labels prometheus.Labels) int {
	v.mu.Lock()
	defer v.mu.Unlock()
	deleted := 0
	for key := range v.series {
		matching := 0
		for i, label := range v.labels {
			if value, ok := labels[label]; ok && value == key[i] {
				matching++
			}
		}
		if matching == len(labels) {
			delete(v.series, key)
			deleted++
		}
	}
	return deleted
}

// Describe sends the description that all series share.
func (v *Vec[P]) Describe(to chan<- *prometheus.Desc) { to <- v.desc }

// Scrape is a scrape of one Vec under way.
type Scrape interface {
	// Add adds the parts of a shard, whose lock the caller holds.
	Add(shard int)
	// Collect sends the sums.
	Collect(to chan<- prometheus.Metric)
}

// Scrape begins a scrape.
func (v *Vec[P]) Scrape() Scrape { return &scrape[P]{v, make(map[*Series[P]]*P)} }

// scrape implements Scrape.
type scrape[P any] struct {
	vec  *Vec[P]
	sums map[*Series[P]]*P // of series that were counted in
}

// Add finds the series that there are now: one may be created by what is counted under the lock of a shard.
func (s *scrape[P]) Add(shard int) {
	s.vec.mu.Lock()
	defer s.vec.mu.Unlock()
	for _, one := range s.vec.series {
		part := one.parts[shard]
		if part == nil {
			continue
		}
		if s.sums[one] == nil {
			s.sums[one] = new(P)
		}
		s.vec.sum(s.sums[one], part)
	}
}

func (s *scrape[P]) Collect(to chan<- prometheus.Metric) {
	s.vec.mu.Lock()
	all := slices.Collect(maps.Values(s.vec.series))
	s.vec.mu.Unlock()
	for _, one := range all {
		to <- &sample[P]{one, cmp.Or(s.sums[one], new(P))}
	}
}

// sample is the sum of one series over all shards. It implements prometheus.Metric.
type sample[P any] struct {
	one *Series[P]
	sum *P
}

func (s *sample[P]) Desc() *prometheus.Desc { return s.one.vec.desc }

func (s *sample[P]) Write(into *dto.Metric) error {
	into.Label = s.one.labels
	s.one.vec.write(into, s.sum, s.one.created)
	return nil
}

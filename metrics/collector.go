package metrics

import (
	"sync"
	"time"

	"github.com/prometheus/client_golang/prometheus"
	dto "github.com/prometheus/client_model/go"
	"google.golang.org/protobuf/types/known/timestamppb"
)

// sharded is the series of one name that are counted in shards. A part P, of one
// series in one shard, is a number or the counts of a histogram. A scrape adds
// the parts up. Where client_golang has a vector of series, this takes its place.
type sharded[P any] struct {
	desc   *prometheus.Desc
	labels []string
	shards int
	sum    func(into, part *P)
	write  func(into *dto.Metric, sum *P, created *timestamppb.Timestamp)

	// mu may be taken by who holds the lock of a shard, never the other way round.
	mu     sync.Mutex
	series map[labelValues]*shardedSeries[P]
}

// labelValues is the values of the labels of a series, in their order.
type labelValues [4]string

// shardedSeries is one series.
type shardedSeries[P any] struct {
	labels  []*dto.LabelPair
	created *timestamppb.Timestamp
	// parts by shard, each under the lock of its shard. There is none in a shard
	// in which the model has not counted yet.
	parts []*P
}

type (
	shardedCounter   = sharded[float64]
	shardedHistogram struct {
		*sharded[counts]
		layout *layout
	}
	counterSeries   = shardedSeries[float64]
	histogramSeries = shardedSeries[counts]
)

func newShardedCounter(name, help string, labels []string, shards int) *shardedCounter {
	return &shardedCounter{
		desc: prometheus.NewDesc(name, help, labels, nil), labels: labels, shards: shards,
		series: make(map[labelValues]*counterSeries),
		sum:    func(into, part *float64) { *into += *part },
		write: func(into *dto.Metric, sum *float64, created *timestamppb.Timestamp) {
			into.Counter = &dto.Counter{Value: sum, CreatedTimestamp: created}
		},
	}
}

func newShardedHistogram(name, help string, l *layout, labels []string, shards int) *shardedHistogram {
	return &shardedHistogram{layout: l, sharded: &sharded[counts]{
		desc: prometheus.NewDesc(name, help, labels, nil), labels: labels, shards: shards,
		series: make(map[labelValues]*histogramSeries),
		sum:    (*counts).add,
		write: func(into *dto.Metric, sum *counts, created *timestamppb.Timestamp) {
			into.Histogram = sum.histogram(l, created)
		},
	}}
}

// with is the series of the values of the labels. It creates it if need be.
func (v *sharded[P]) with(values ...string) *shardedSeries[P] {
	var key labelValues
	copy(key[:], values)
	v.mu.Lock()
	defer v.mu.Unlock()
	s, ok := v.series[key]
	if !ok {
		s = &shardedSeries[P]{
			labels:  prometheus.MakeLabelPairs(v.desc, values),
			created: timestamppb.New(time.Now()),
			parts:   make([]*P, v.shards),
		}
		v.series[key] = s
	}
	return s
}

// part is the part in a shard, whose lock the caller holds. A fresh one is taken
// if there is none.
func (s *shardedSeries[P]) part(shard int, fresh func() *P) *P {
	if s.parts[shard] == nil {
		s.parts[shard] = fresh()
	}
	return s.parts[shard]
}

// DeleteLabelValues implements vec.
func (v *sharded[P]) DeleteLabelValues(values ...string) bool {
	var key labelValues
	copy(key[:], values)
	v.mu.Lock()
	defer v.mu.Unlock()
	_, ok := v.series[key]
	delete(v.series, key)
	return ok
}

// DeletePartialMatch implements vec.
func (v *sharded[P]) DeletePartialMatch(labels prometheus.Labels) int {
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

// Describe implements vec.
func (v *sharded[P]) Describe(to chan<- *prometheus.Desc) { to <- v.desc }

// summing begins a scrape: with what is there now, at zero.
func (v *sharded[P]) summing() summing {
	v.mu.Lock()
	defer v.mu.Unlock()
	s := &sums[P]{of: v, sums: make([]P, len(v.series))}
	for _, one := range v.series {
		s.series = append(s.series, one)
	}
	return s
}

// summing is a scrape of a sharded family, under way.
type summing interface {
	// add adds the parts of a shard, whose lock the caller holds.
	add(shard int)
	collect(to chan<- prometheus.Metric)
}

type sums[P any] struct {
	of     *sharded[P]
	series []*shardedSeries[P]
	sums   []P
}

func (s *sums[P]) add(shard int) {
	for i, one := range s.series {
		if part := one.parts[shard]; part != nil {
			s.of.sum(&s.sums[i], part)
		}
	}
}

func (s *sums[P]) collect(to chan<- prometheus.Metric) {
	for i, one := range s.series {
		to <- &sample[P]{s.of, one, &s.sums[i]}
	}
}

// sample is one series as a scrape found it: a prometheus.Metric.
type sample[P any] struct {
	of  *sharded[P]
	one *shardedSeries[P]
	sum *P
}

func (s *sample[P]) Desc() *prometheus.Desc { return s.of.desc }

func (s *sample[P]) Write(into *dto.Metric) error {
	into.Label = s.one.labels
	s.of.write(into, s.sum, s.one.created)
	return nil
}

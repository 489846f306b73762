package metrics

import (
	"maps"
	"math"
	"slices"
	"sort"
	"sync"
	"time"

	dto "github.com/prometheus/client_model/go"
	"google.golang.org/protobuf/types/known/timestamppb"
)

// layout says in which cell of a histogram a value is counted. The cells are
// what the classic edges, the bounds of the native buckets and the zero
// threshold cut the range into, so that buckets of both kinds are sums of cells.
//
// The cell of a value is looked up by its highest bits, without a logarithm and
// without a branch: sign, exponent and the first seven bits of the mantissa name
// a slot, 1/128 of an octave, and no slot has more than one bound in it. The table
// of all slots is large, so that nothing need be checked before it is read. But
// only the quarter of it under top is ever written, and little more than the 4 KB
// between zero threshold and top is read, which is all that it takes of the cache.
type layout struct {
	scale
	first [1 << (64 - slotShift)]uint8 // of each slot: the cell of its lowest value
	upper [numCells]uint64             // bits of the upper bound of each cell, which is in it
	cells int                          // in use

	keys    [numCells]int // of the native bucket of each cell but zeroCell
	classic [numCells]int // the classic bucket of each cell
}

const (
	slotShift = 64 - (1 + 11 + 7)
	numCells  = 256 // at most, so that a uint8 is always one

	// Values with a cell below zeroCell are not in the layout: negative, not a
	// number, or at least top. There are two such cells because cellOf may add one.
	zeroCell = 2
)

const nativeSchema = 3 // 2^3 native buckets to an octave

// eighths is 2^(i/8)/2 as client_golang has it: the bounds of schema 3 between
// 1/2 and 1.
var eighths = [1 << nativeSchema]float64{
	0.5, 0.5452538663326288, 0.5946035575013605, 0.6484197773255048,
	0.7071067811865475, 0.7711054127039704, 0.8408964152537144, 0.9170040432046711,
}

// layouts are those of the scales, made when the first is needed.
var layouts = sync.OnceValue(func() (l struct{ contribution, total, entropy, ratio *layout }) {
	l.contribution, l.total = newLayout(contribution), newLayout(total)
	l.entropy, l.ratio = newLayout(entropy), newLayout(ratio)
	return l
})

func newLayout(of scale) *layout {
	bounds := []float64{of.zeroThreshold}
	bounds = append(bounds, of.edges...)
	for key := nativeKey(of.zeroThreshold); nativeBound(key) <= of.top; key++ {
		if bound := nativeBound(key); bound > of.zeroThreshold {
			bounds = append(bounds, bound)
		}
	}
	slices.Sort(bounds)
	bounds = slices.Compact(bounds)

	l := &layout{scale: of, cells: zeroCell + len(bounds)}
	for i, bound := range bounds {
		cell := zeroCell + i
		l.upper[cell] = math.Float64bits(bound)
		l.keys[cell] = nativeKey(bound)
		l.classic[cell] = sort.SearchFloat64s(of.edges, bound)
	}
	cell := zeroCell
	for slot := range math.Float64bits(of.top) >> slotShift {
		for l.upper[cell] < slot<<slotShift {
			cell++
		}
		l.first[slot] = uint8(cell)
	}
	return l
}

// cellOf is the cell of a value, given its bits. The difference is negative, and
// its highest bit 1, where the value is above the one bound in its slot.
func (l *layout) cellOf(bits uint64) uint8 {
	cell := l.first[bits>>slotShift]
	return cell + uint8((l.upper[cell]-bits)>>63)
}

// nativeKey is the number of the native bucket of a positive value, as
// client_golang counts: bucket 0 ends at 1.
func nativeKey(v float64) int {
	if math.IsInf(v, 1) {
		return nativeKey(math.MaxFloat64) + 1
	}
	fraction, exponent := math.Frexp(v)
	return sort.SearchFloat64s(eighths[:], fraction) + (exponent-1)<<nativeSchema
}

// nativeBound is the upper bound of a native bucket, which is in it.
func nativeBound(key int) float64 {
	return math.Ldexp(eighths[key&(len(eighths)-1)], key>>nativeSchema+1)
}

// counts is what a histogram has counted, or a part of it.
type counts struct {
	// Values that are in no cell, by their native bucket: from top on, and under
	// minus the zero threshold. There should be none.
	above, below map[int]uint64

	exemplars []exemplar // by classic bucket; nil where there never was one

	sum   float64
	cells [numCells]uint64
}

// exemplar is the latest value of a bucket that came with a trace.
type exemplar struct {
	trace string // empty: none
	value float64
	at    time.Time
}

// exemplify notes the trace that a value, which was observed, is part of.
func (c *counts) exemplify(l *layout, v float64, trace string) {
	if c.exemplars == nil {
		c.exemplars = make([]exemplar, len(l.edges)+1)
	}
	c.exemplars[sort.SearchFloat64s(l.edges, v)] = exemplar{trace, v, time.Now()}
}

// message is the exemplar as it is exposed; nil for none.
func (e exemplar) message() *dto.Exemplar {
	if e.trace == "" {
		return nil
	}
	return &dto.Exemplar{
		Label: []*dto.LabelPair{{Name: new("trace_id"), Value: &e.trace}}, Value: &e.value, Timestamp: timestamppb.New(e.at),
	}
}

// observe counts a value.
func (c *counts) observe(l *layout, v float64) {
	if cell := l.cellOf(math.Float64bits(v)); cell >= zeroCell {
		c.cells[cell]++
		c.sum += v
		return
	}
	c.observeOutside(l, v)
}

// observeOutside counts a value that has no cell. What is undefined is left out:
// one NaN would make a sum NaN for good.
func (c *counts) observeOutside(l *layout, v float64) {
	if math.IsNaN(v) {
		return
	}
	v = min(v, l.largest)
	c.sum += v
	switch {
	case v > l.zeroThreshold:
		increase(&c.above, nativeKey(v), 1)
	case v < -l.zeroThreshold:
		increase(&c.below, nativeKey(-v), 1)
	default:
		c.cells[zeroCell]++
	}
}

// counted ends counting values by cell, whose sum is given: those without a cell
// are in the cells before zeroCell and spoil the sum.
func (c *counts) counted(l *layout, values []float64, sum float64) {
	if c.cells[0]|c.cells[1] == 0 {
		c.sum += sum
		return
	}
	c.cells[0], c.cells[1] = 0, 0
	for _, v := range values {
		if l.cellOf(math.Float64bits(v)) >= zeroCell {
			c.sum += v
		} else {
			c.observeOutside(l, v)
		}
	}
}

// add adds what another part has counted.
func (c *counts) add(other *counts) {
	c.sum += other.sum
	for cell, n := range other.cells {
		c.cells[cell] += n
	}
	for key, n := range other.above {
		increase(&c.above, key, n)
	}
	for key, n := range other.below {
		increase(&c.below, key, n)
	}
	if c.exemplars == nil && other.exemplars != nil {
		c.exemplars = make([]exemplar, len(other.exemplars))
	}
	for bucket, e := range other.exemplars {
		if e.at.After(c.exemplars[bucket].at) {
			c.exemplars[bucket] = e
		}
	}
}

func increase(in *map[int]uint64, key int, n uint64) {
	if *in == nil {
		*in = make(map[int]uint64)
	}
	(*in)[key] += n
}

// histogram is the counts as client_golang would expose them: the classic
// buckets and the native ones in one.
func (c *counts) histogram(l *layout, created *timestamppb.Timestamp) *dto.Histogram {
	var below, above nativeBuckets
	classic := make([]uint64, len(l.edges)+1)
	for _, key := range slices.Sorted(maps.Keys(c.below)) {
		below.add(key, c.below[key])
		classic[0] += c.below[key]
	}
	for cell := zeroCell; cell < l.cells; cell++ {
		classic[l.classic[cell]] += c.cells[cell]
		if cell > zeroCell {
			above.add(l.keys[cell], c.cells[cell])
		}
	}
	for _, key := range slices.Sorted(maps.Keys(c.above)) {
		above.add(key, c.above[key])
		classic[len(l.edges)] += c.above[key]
	}

	h := &dto.Histogram{
		SampleSum:        &c.sum,
		CreatedTimestamp: created,
		Bucket:           make([]*dto.Bucket, len(l.edges)),
		Schema:           new(int32(nativeSchema)),
		ZeroThreshold:    new(l.zeroThreshold),
		ZeroCount:        &c.cells[zeroCell],
	}
	samples := uint64(0)
	for i := range l.edges {
		samples += classic[i]
		h.Bucket[i] = &dto.Bucket{CumulativeCount: new(samples), UpperBound: new(l.edges[i])}
	}
	h.SampleCount = new(samples + classic[len(l.edges)])
	for bucket, e := range c.exemplars {
		if m := e.message(); m != nil {
			if bucket == len(l.edges) { // the bucket of all other values, which needs no mention else
				h.Bucket = append(h.Bucket, &dto.Bucket{CumulativeCount: h.SampleCount, UpperBound: new(math.Inf(1))})
			}
			h.Bucket[bucket].Exemplar = m
			h.Exemplars = append(h.Exemplars, m)
		}
	}
	h.NegativeSpan, h.NegativeDelta = below.encode()
	h.PositiveSpan, h.PositiveDelta = above.encode()
	return h
}

// nativeBuckets is native buckets in the order of their numbers, without those
// that are empty.
type nativeBuckets []struct {
	key int
	n   int64
}

// add adds to a bucket that is not before the last.
func (b *nativeBuckets) add(key int, n uint64) {
	if n == 0 {
		return
	}
	if last := len(*b) - 1; last < 0 || (*b)[last].key != key {
		*b = append(*b, struct {
			key int
			n   int64
		}{key, 0})
	}
	(*b)[len(*b)-1].n += int64(n)
}

// encode is the spans of buckets and the differences of their counts. Like
// client_golang it bridges a gap of one or two empty buckets.
func (b nativeBuckets) encode() (spans []*dto.BucketSpan, deltas []int64) {
	before, next := int64(0), 0
	push := func(n int64) {
		*spans[len(spans)-1].Length++
		deltas = append(deltas, n-before)
		before = n
	}
	for i, bucket := range b {
		gap := bucket.key - next
		if i == 0 || gap > 2 {
			spans = append(spans, &dto.BucketSpan{Offset: new(int32(gap)), Length: new(uint32(0))})
		} else {
			for range gap {
				push(0)
			}
		}
		push(bucket.n)
		next = bucket.key + 1
	}
	return spans, deltas
}

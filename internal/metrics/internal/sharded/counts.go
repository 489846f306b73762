package sharded

import (
	"math"

	dto "github.com/prometheus/client_model/go"
	"google.golang.org/protobuf/types/known/timestamppb"
)

// Counts holds what a histogram has counted, or its part in one shard.
//
// Loops over many values may count them into Cells and Sum directly, and call Counted at the end;
// all else calls Observe.
type Counts struct {
	layout *Layout

	Sum   float64
	Cells [maxCells]uint64 // by Layout.Cell
}

// NewCounts returns counts without values.
func NewCounts(l *Layout) *Counts { return &Counts{layout: l} }

// Observe counts a value. NaN is left out.
func (c *Counts) Observe(v float64) {
	if cell := c.layout.Cell(math.Float64bits(v)); cell >= FirstCell {
		c.Cells[cell]++
		c.Sum += v
		return
	}
	c.observeOutside(v)
}

// observeOutside counts a value that is outside the layout as the nearest that is within. It ignores
// NaN, which would make the sum NaN for good.
func (c *Counts) observeOutside(v float64) {
	switch {
	case math.IsNaN(v):
	case v < c.layout.Top: // below 0
		c.Cells[FirstCell]++
	default:
		c.Cells[c.layout.cells-1]++
		c.Sum += c.layout.Top
	}
}

// Counted ends a loop that has counted values into Cells itself. sum is the sum of these values.
// Values outside the layout were counted in the cells before FirstCell and may have spoilt the sum:
// if there are any, Counted observes them one by one and sums the others again.
func (c *Counts) Counted(values []float64, sum float64) {
	if c.Cells[0]|c.Cells[1] == 0 {
		c.Sum += sum
		return
	}
	c.Cells[0], c.Cells[1] = 0, 0
	for _, v := range values {
		if c.layout.Cell(math.Float64bits(v)) >= FirstCell {
			c.Sum += v
		} else {
			c.observeOutside(v)
		}
	}
}

// add adds the counts of another part.
func (c *Counts) add(other *Counts) {
	c.Sum += other.Sum
	for cell, n := range other.Cells {
		c.Cells[cell] += n
	}
}

// histogram returns the counts as client_golang would: with native buckets and, if asked for, classic
// ones beside them.
func (c *Counts) histogram(l *Layout, classicToo bool, created *timestamppb.Timestamp) *dto.Histogram {
	var native nativeBuckets
	classic := make([]uint64, len(l.Edges)+1)
	for cell := FirstCell; cell < l.cells; cell++ {
		classic[l.classic[cell]] += c.Cells[cell]
		if cell > FirstCell {
			native.add(l.keys[cell], c.Cells[cell])
		}
	}
	h := &dto.Histogram{
		SampleSum:        &c.Sum,
		CreatedTimestamp: created,
		Schema:           new(int32(nativeSchema)),
		ZeroThreshold:    new(l.ZeroThreshold),
		ZeroCount:        &c.Cells[FirstCell],
	}
	samples := uint64(0)
	for i, edge := range l.Edges { // the bucket up to infinity is implied
		samples += classic[i]
		if classicToo {
			h.Bucket = append(h.Bucket, &dto.Bucket{CumulativeCount: new(samples), UpperBound: new(edge)})
		}
	}
	h.SampleCount = new(samples + classic[len(l.Edges)])
	h.PositiveSpan, h.PositiveDelta = native.encode()
	return h
}

// nativeBuckets lists native buckets by ascending number, without empty ones.
type nativeBuckets []struct {
	key int
	n   int64
}

// add adds to the last bucket, or appends one with a higher number.
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

// encode returns the spans of buckets and the differences of their counts. Like client_golang it
// bridges a gap of one or two empty buckets.
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

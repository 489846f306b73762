package sharded

import (
	"math"

	"github.com/prometheus/client_golang/prometheus"
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

// unnamed describes histograms until they get the name and labels of their series.
var unnamed = prometheus.NewDesc("unnamed", "", nil, nil)

// histogram returns the counts with native buckets and, if asked for, classic ones beside them.
func (c *Counts) histogram(l *Layout, classicToo bool, created *timestamppb.Timestamp) *dto.Histogram {
	native, classic, samples := make(map[int]int64), make([]uint64, len(l.Edges)+1), uint64(0)
	for cell := FirstCell; cell < l.cells; cell++ {
		n := c.Cells[cell]
		samples += n
		classic[l.classic[cell]] += n
		if n > 0 && cell > FirstCell {
			native[l.keys[cell]] += int64(n)
		}
	}
	var m dto.Metric
	_ = prometheus.MustNewConstNativeHistogram(unnamed, samples, c.Sum, native, nil, c.Cells[FirstCell],
		nativeSchema, l.ZeroThreshold, created.AsTime()).Write(&m) // it never fails
	if classicToo {
		upTo := uint64(0)
		for i, edge := range l.Edges { // the bucket up to infinity is implied
			upTo += classic[i]
			m.Histogram.Bucket = append(m.Histogram.Bucket, &dto.Bucket{CumulativeCount: new(upTo), UpperBound: new(edge)})
		}
	}
	return m.Histogram
}

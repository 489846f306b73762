package triage

import (
	"math"

	dto "github.com/prometheus/client_model/go"

	"github.com/ckd-project/ckd/internal/pagestate"
)

// The buckets of C_k are as in native histograms of schema 2, four to a doubling, each 19% wide; the
// daemon's buckets are twice as fine. The first is the zero bucket. C_k does not exceed 1 by
// more than rounding.
const (
	schema     = 2
	lowestKey  = -79 // the bucket of 1e-6 nats
	highestKey = 1
	numBuckets = 1 + highestKey - lowestKey + 1
)

// middles holds a middle value of each bucket, to four digits. It is within a tenth of every value
// in the bucket.
var middles = func() (m [numBuckets]float64) {
	for i := 1; i < numBuckets; i++ {
		middle := math.Exp2((float64(lowestKey+i-1) - 0.5) / (1 << schema))
		unit := math.Pow(10, 3-math.Floor(math.Log10(middle)))
		m[i] = math.Round(middle*unit) / unit
	}
	return m
}()

// readBuckets adds the native buckets of a histogram. Values out of range count in the nearest
// bucket.
func readBuckets(into []uint64, h *dto.Histogram) {
	into[0] += h.GetZeroCount()
	finer := h.GetSchema() - schema
	if finer < 0 {
		return
	}
	key, count, next := int32(0), int64(0), 0
	for _, span := range h.GetPositiveSpan() {
		key += span.GetOffset()
		for range span.GetLength() {
			count += h.GetPositiveDelta()[next]
			next++
			wide := (key-1)>>finer + 1
			into[1+min(max(wide, lowestKey), highestKey)-lowestKey] += uint64(max(count, 0))
			key++
		}
	}
}

// levels lists the quantiles that the page shows.
var levels = [4]float64{0.1, 0.5, 0.9, 0.99}

// quantiles returns the quantiles of the buckets; nil if they are empty. The quantile of level q is
// the smallest value that at least a share q does not exceed.
func quantiles[N uint32 | uint64](buckets []N) *[4]float64 {
	total := uint64(0)
	for _, n := range buckets {
		total += uint64(n)
	}
	if total == 0 {
		return nil
	}
	var found [4]float64
	below, level := uint64(0), 0
	for i, n := range buckets {
		below += uint64(n)
		for level < len(levels) && float64(below) >= levels[level]*float64(total) {
			found[level] = middles[i]
			level++
		}
	}
	return &found
}

// wilson returns a share with its 95% interval; nil for a total of 0.
func wilson(part, total float64) *pagestate.Interval {
	if total <= 0 {
		return nil
	}
	const z = 1.959963984540054
	share, n := part/total, total
	middle := (share + z*z/(2*n)) / (1 + z*z/n)
	half := z / (1 + z*z/n) * math.Sqrt(share*(1-share)/n+z*z/(4*n*n))
	return &pagestate.Interval{Value: share, Low: max(0, min(share, middle-half)), High: min(1, max(share, middle+half))}
}

func ratio(a, b float64) float64 {
	if b == 0 {
		return 0
	}
	return a / b
}

package sharded

import (
	"math"
	"slices"
	"sort"
)

// Layout maps values to the cells of a histogram. Classic edges, native bounds and the zero
// threshold cut the range into cells, so that buckets of both kinds are sums of cells.
//
// Cell looks a value up by its highest bits, without a logarithm or a branch: sign, exponent and the
// first seven bits of the mantissa name a slot, 1/128 of an octave, and a slot has at most one bound
// in it. The table has an entry for every pattern of these bits, which saves a check. Little more
// than the 4 KB between zero threshold and Top are read, so it takes no more of the cache.
type Layout struct {
	Scale
	first [1 << (64 - slotShift)]uint8 // by slot: the cell of its lowest value
	upper [maxCells]uint64             // by cell: the bits of its upper bound, which belongs to it
	cells int                          // cells in use, FirstCell unused ones included

	keys    [maxCells]int // by cell from FirstCell+1 on: its native bucket
	classic [maxCells]int // by cell: its classic bucket
}

const (
	slotShift = 64 - (1 + 11 + 7)
	maxCells  = 256 // every uint8 is a valid index

	// FirstCell is the lowest cell of the layout. Values that are negative, NaN or not under Top get
	// a lower one: there are two, because Cell may add one.
	FirstCell = 2
)

const nativeSchema = 3 // 2^3 native buckets to an octave

// eighths holds the bounds of schema 3 from 1/2 up to 1, 2^(i/8)/2, with the digits of client_golang.
var eighths = [1 << nativeSchema]float64{
	0.5, 0.5452538663326288, 0.5946035575013605, 0.6484197773255048,
	0.7071067811865475, 0.7711054127039704, 0.8408964152537144, 0.9170040432046711,
}

// NewLayout returns the layout of a scale.
func NewLayout(of Scale) *Layout {
	bounds := []float64{of.ZeroThreshold}
	bounds = append(bounds, of.Edges...)
	for key := nativeKey(of.ZeroThreshold); nativeBound(key) <= of.Top; key++ {
		if bound := nativeBound(key); bound > of.ZeroThreshold {
			bounds = append(bounds, bound)
		}
	}
	slices.Sort(bounds)
	bounds = slices.Compact(bounds)

	l := &Layout{Scale: of, cells: FirstCell + len(bounds)}
	for i, bound := range bounds {
		cell := FirstCell + i
		l.upper[cell] = math.Float64bits(bound)
		l.keys[cell] = nativeKey(bound)
		l.classic[cell] = sort.SearchFloat64s(of.Edges, bound)
	}
	cell := FirstCell
	for slot := range math.Float64bits(of.Top) >> slotShift {
		for l.upper[cell] < slot<<slotShift {
			cell++
		}
		l.first[slot] = uint8(cell)
	}
	return l
}

// Cell returns the cell of a value, given its bits. If the value is above the one bound in its slot,
// the difference is negative and its highest bit 1.
func (l *Layout) Cell(bits uint64) uint8 {
	cell := l.first[bits>>slotShift]
	return cell + uint8((l.upper[cell]-bits)>>63)
}

// nativeKey returns the number of the native bucket of a positive value. As in client_golang,
// bucket 0 ends at 1.
func nativeKey(v float64) int {
	fraction, exponent := math.Frexp(v)
	return sort.SearchFloat64s(eighths[:], fraction) + (exponent-1)<<nativeSchema
}

// nativeBound returns the upper bound of a native bucket, which belongs to it.
func nativeBound(key int) float64 {
	return math.Ldexp(eighths[key&(len(eighths)-1)], key>>nativeSchema+1)
}

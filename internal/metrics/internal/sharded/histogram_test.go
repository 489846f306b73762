package sharded

import (
	"fmt"
	"math"
	"runtime"
	"slices"
	"testing"

	"github.com/prometheus/client_golang/prometheus"
	dto "github.com/prometheus/client_model/go"
	"google.golang.org/protobuf/encoding/prototext"
	"google.golang.org/protobuf/proto"
)

var scales = map[string]Scale{
	"contribution": Contribution, "total": Total, "entropy": Entropy, "ratio": Ratio,
}

// TestLayout checks what Cell relies on: at most one bound in a slot, and cells that fit in a uint8.
func TestLayout(t *testing.T) {
	for name, s := range scales {
		l := NewLayout(s)
		fraction, _ := math.Frexp(s.Top)
		if fraction != 0.5 || s.Top <= s.Edges[len(s.Edges)-1] || l.cells > maxCells {
			t.Errorf("%s: top %v, %d cells", name, s.Top, l.cells)
		}
		for cell := FirstCell + 1; cell < l.cells; cell++ {
			if l.upper[cell]>>slotShift <= l.upper[cell-1]>>slotShift {
				t.Errorf("%s: bounds %v and %v are in one slot", name,
					math.Float64frombits(l.upper[cell-1]), math.Float64frombits(l.upper[cell]))
			}
		}
	}
}

// TestHistogramOfOne counts single values, on bounds, beside them and outside all: each must be in
// the same buckets as in client_golang.
func TestHistogramOfOne(t *testing.T) {
	for name, s := range scales {
		l := NewLayout(s)
		for _, v := range Corners(s) {
			ours := NewCounts(l)
			ours.Observe(v)
			theirs := NewReference(s)
			ObserveReference(theirs, s, v)
			if problem := Differs(ours.histogram(l, true, nil), theirs, 0); problem != "" {
				t.Fatalf("%s: %v (%x): %s", name, v, math.Float64bits(v), problem)
			}
		}
	}
}

// Corners returns the bounds of a scale, their neighbours, and the extremes of float64, with both
// signs.
func Corners(s Scale) []float64 {
	bounds := append([]float64{s.ZeroThreshold, s.Top, 1e-300, 1e300}, s.Edges...)
	for key := -170; key <= 170; key++ {
		bounds = append(bounds, nativeBound(key))
	}
	for key := -8600; key < 8192; key += 100 {
		bounds = append(bounds, nativeBound(key))
	}
	values := []float64{0, math.SmallestNonzeroFloat64, 0x1p-1022, math.MaxFloat64, math.Inf(1), math.NaN()}
	for _, v := range bounds {
		values = append(values, v, math.Nextafter(v, 0), math.Nextafter(v, math.Inf(1)))
	}
	for _, v := range values {
		values = append(values, -v)
	}
	return values
}

// TestCountedOutside checks that Counted observes values outside the layout, leaves them out of the
// cells before FirstCell, and adds up the others if the sum was spoilt.
func TestCountedOutside(t *testing.T) {
	l := NewLayout(Ratio)
	c := NewCounts(l)
	values := []float64{0.5, math.Inf(1), -1, math.NaN(), 0.25}
	for _, v := range values {
		c.Cells[l.Cell(math.Float64bits(v))]++
	}
	c.Counted(values, math.NaN())
	if c.Cells[0] != 0 || c.Cells[1] != 0 || c.Sum != 0.5+Ratio.Top+0.25 {
		t.Errorf("sum %v, %d values without a cell", c.Sum, c.Cells[0]+c.Cells[1])
	}
}

// TestParts checks that a series takes memory only in the shards in which it was counted.
func TestParts(t *testing.T) {
	shards := make([]Shard, 4)
	shards[2].index = 2
	s := NewHistogramVec("h", "", NewLayout(Ratio), true, nil).With()
	part := s.Part(&shards[2])
	if want := [maxShards]*Counts{2: part}; s.Part(&shards[2]) != part || s.parts != want {
		t.Errorf("parts %v", s.parts)
	}
}

// TestScales checks the edges that readers rely on.
func TestScales(t *testing.T) {
	for name, s := range scales {
		if len(s.Edges) > 12 || !slices.IsSorted(s.Edges) || s.ZeroThreshold >= s.Edges[0] {
			t.Errorf("%s: edges %v, zero threshold %v", name, s.Edges, s.ZeroThreshold)
		}
	}
	if !slices.Contains(Ratio.Edges, 0.3) {
		t.Error("skewness has no edge at the default reliability threshold")
	}
}

func TestNewShards(t *testing.T) {
	before := runtime.GOMAXPROCS(0)
	t.Cleanup(func() { runtime.GOMAXPROCS(before) })
	for processors, want := range map[int]int{1: 1, 2: 2, 3: 4, 4: 4, 5: 8, 8: 8, 9: 8, 64: 8} {
		runtime.GOMAXPROCS(processors)
		if got := len(NewShards()); got != want {
			t.Errorf("%d shards for %d processors, want %d", got, processors, want)
		}
	}
}

// NewReference returns the histogram of client_golang that ours must equal.
func NewReference(of Scale) prometheus.Histogram {
	return prometheus.NewHistogram(prometheus.HistogramOpts{
		Name: "h", Buckets: of.Edges,
		NativeHistogramBucketFactor:  1.1, // 2^(1/8) = 1.09 is the largest step at or under it
		NativeHistogramZeroThreshold: of.ZeroThreshold,
	})
}

// ObserveReference observes a value as Counts should: from 0 to Top, and without NaN.
func ObserveReference(h prometheus.Histogram, of Scale, v float64) {
	if !math.IsNaN(v) {
		h.Observe(min(max(v, 0), of.Top))
	}
}

// Differs returns how a histogram differs from one of client_golang, or "". It ignores the time of
// creation, and allows for rounding of the sum, given the sum of the absolute values.
func Differs(got *dto.Histogram, reference prometheus.Histogram, largest float64) string {
	var written dto.Metric
	if err := reference.Write(&written); err != nil {
		return err.Error()
	}
	want := written.GetHistogram()
	gotSum, wantSum := got.GetSampleSum(), want.GetSampleSum()
	if gotSum != wantSum && !math.IsInf(largest, 0) && !(math.Abs(gotSum-wantSum) <= 1e-12*largest) {
		return fmt.Sprintf("sum %v, want %v", gotSum, wantSum)
	}
	got.SampleSum, want.SampleSum = nil, nil
	got.CreatedTimestamp, want.CreatedTimestamp = nil, nil
	if !proto.Equal(got, want) {
		return "got\n" + prototext.Format(got) + "want\n" + prototext.Format(want)
	}
	return ""
}

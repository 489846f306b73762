package metrics

import (
	"fmt"
	"math"
	"testing"

	"github.com/prometheus/client_golang/prometheus"
	dto "github.com/prometheus/client_model/go"
	"google.golang.org/protobuf/encoding/prototext"
	"google.golang.org/protobuf/proto"
	"google.golang.org/protobuf/types/known/timestamppb"
	"pgregory.net/rapid"

	"github.com/ckd-project/ckd/policy"
)

var scales = map[string]scale{
	"contribution": contribution, "total": total, "entropy": entropy, "ratio": ratio,
}

// TestLayout: what cellOf relies on.
func TestLayout(t *testing.T) {
	for name, s := range scales {
		l := newLayout(s)
		fraction, _ := math.Frexp(s.top)
		if fraction != 0.5 || s.top <= s.edges[len(s.edges)-1] || s.top > s.largest || l.cells > numCells {
			t.Errorf("%s: top %v, %d cells", name, s.top, l.cells)
		}
		for cell := zeroCell + 1; cell < l.cells; cell++ {
			if l.upper[cell]>>slotShift <= l.upper[cell-1]>>slotShift {
				t.Errorf("%s: bounds %v and %v are in one slot", name,
					math.Float64frombits(l.upper[cell-1]), math.Float64frombits(l.upper[cell]))
			}
		}
	}
}

// TestHistogramOfOne: every value that lies on a bound or beside one, and those
// that lie outside all, is counted in the buckets that client_golang counts it in.
func TestHistogramOfOne(t *testing.T) {
	for name, s := range scales {
		l := newLayout(s)
		for _, v := range corners(s) {
			ours := new(counts)
			ours.observe(l, v)
			theirs := histogramOfClientGolang(s)
			observeReference(theirs, s, v)
			if problem := differs(ours.histogram(l, nil), theirs, 0); problem != "" {
				t.Fatalf("%s: %v (%x): %s", name, v, math.Float64bits(v), problem)
			}
		}
	}
}

// corners is the bounds of a scale, their neighbours, and the corners of float64,
// of both signs.
func corners(s scale) []float64 {
	bounds := append([]float64{s.zeroThreshold, s.top, largestSkewness, 1e-300, 1e300}, s.edges...)
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

// TestCountedOutside: values without a cell leave no trace that would make the
// next ones be searched for them again.
func TestCountedOutside(t *testing.T) {
	l, c := newLayout(ratio), new(counts)
	values := []float64{0.5, math.Inf(1), -1, math.NaN(), 0.25}
	for _, v := range values {
		c.cells[l.cellOf(math.Float64bits(v))]++
	}
	c.counted(l, values, math.NaN())
	if c.cells[0] != 0 || c.cells[1] != 0 || c.sum != 0.5+largestSkewness-1+0.25 {
		t.Errorf("sum %v, %d values without a cell", c.sum, c.cells[0]+c.cells[1])
	}
}

// TestHistograms holds all histograms of a model, whatever shards its inputs were
// counted in, against those of client_golang with the same values.
func TestHistograms(t *testing.T) {
	p, m := manyClasses(t, 9, 2, 7)
	corner := make(map[string][]float64)
	for name, s := range scales {
		corner[name] = corners(s)
	}
	setProcessors(t, 4)
	rapid.Check(t, func(t *rapid.T) {
		value := func(name string) float64 {
			switch rapid.IntRange(0, 9).Draw(t, "kind") {
			case 0, 1:
				return 0
			case 2, 3, 4:
				return rapid.SampledFrom(corner[name]).Draw(t, name)
			case 5:
				return rapid.Float64().Draw(t, name)
			default:
				return math.Exp(rapid.Float64Range(-16, 8).Draw(t, name))
			}
		}
		metrics, err := New(prometheus.NewRegistry(), Options{ClassLabels: 4})
		if err != nil {
			t.Fatal(err)
		}
		model := metrics.Model(p, m.Plan())
		type reference struct {
			prometheus.Histogram
			of      scale
			largest float64 // sum of absolute values
		}
		references := make(map[string]*reference)
		observe := func(name, label string, of scale, v float64) {
			r := references[name+label]
			if r == nil {
				r = &reference{histogramOfClientGolang(of), of, 0}
				references[name+label] = r
			}
			observeReference(r.Histogram, of, v)
			if !math.IsNaN(v) {
				r.largest += math.Abs(min(v, of.largest))
			}
		}
		for range rapid.IntRange(1, 20).Draw(t, "messages") {
			rec := model.Record(rapid.Uint32().Draw(t, "hint"))
			for range rapid.IntRange(1, 3).Draw(t, "inputs") {
				r := zeroResult(m, 9)
				for k := range r.C {
					label := model.labels.names[model.labels.of[k]]
					r.C[k], r.Skewness[k] = value("contribution"), value("ratio")
					observe("ckd_class_epistemic_nats", label, contribution, r.C[k])
					observe("ckd_class_skewness_ratio", label, ratio, r.Skewness[k])
				}
				r.MI, r.Entropy, r.SumC = value("total"), value("entropy"), value("total")
				observe("ckd_mutual_information_nats", "", total, r.MI)
				observe("ckd_predictive_entropy_nats", "", entropy, r.Entropy)
				observe("ckd_epistemic_sum_nats", "", total, r.SumC)
				rec.Observe(r, observed)
			}
			rec.Done()
		}
		for name, got := range histogramsOf(metrics.series) {
			want := references[name]
			if want == nil {
				t.Fatalf("%s was not expected", name)
			}
			if problem := differs(got, want.Histogram, want.largest); problem != "" {
				t.Errorf("%s: %s", name, problem)
			}
			delete(references, name)
		}
		if len(references) > 0 {
			t.Errorf("%d histograms are missing", len(references))
		}
	})
}

// observed is the decision of a policy without thresholds.
var observed = policy.Decision{
	Action: policy.Observe, Score: policy.CCritMax, Reason: policy.Observing, Class: -1,
}

// histogramsOf a scrape, by name and class.
func histogramsOf(c prometheus.Collector) map[string]*dto.Histogram {
	found := make(map[string]*dto.Histogram)
	all := make(chan prometheus.Metric)
	go func() {
		defer close(all)
		c.Collect(all)
	}()
	for metric := range all {
		one, ok := metric.(*sample[counts])
		if !ok {
			continue
		}
		var written dto.Metric
		if err := one.Write(&written); err != nil {
			panic(err)
		}
		for _, f := range declared {
			if f.desc == one.Desc().String() {
				label := ""
				for _, l := range written.GetLabel() {
					if l.GetName() == "class" {
						label = l.GetValue()
					}
				}
				found[f.name+label] = written.GetHistogram()
			}
		}
	}
	return found
}

// declared names a family by the text of its description.
var declared = func() (all []struct{ name, desc string }) {
	for _, f := range declare().families {
		if v, ok := f.vec.(*shardedHistogram); ok {
			all = append(all, struct{ name, desc string }{f.name, v.desc.String()})
		}
	}
	return all
}()

// observeReference is what observing a value is to mean.
func observeReference(h prometheus.Histogram, of scale, v float64) {
	if !math.IsNaN(v) {
		h.Observe(min(v, of.largest))
	}
}

// differs says in what a histogram is not what client_golang says, if in
// anything: the time of its creation aside, and the sum but for rounding, given
// the sum of the absolute values.
func differs(got *dto.Histogram, reference prometheus.Histogram, largest float64) string {
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

// TestCreated: every series says since when it has counted.
func TestCreated(t *testing.T) {
	before := timestamppb.Now().AsTime()
	d := newDaemon(t, 0)
	d.put(parse(t, threeClasses))
	for _, f := range d.gather(t) {
		for _, m := range f.GetMetric() {
			var created *timestamppb.Timestamp
			switch {
			case m.GetCounter() != nil:
				created = m.GetCounter().GetCreatedTimestamp()
			case m.GetHistogram() != nil:
				created = m.GetHistogram().GetCreatedTimestamp()
			default:
				continue
			}
			if at := created.AsTime(); at.Before(before) || at.After(timestamppb.Now().AsTime()) {
				t.Errorf("%s was created %v, want since %v", f.GetName(), at, before)
			}
		}
	}
}

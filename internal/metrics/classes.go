package metrics

import (
	"math"
	"slices"

	"github.com/prometheus/client_golang/prometheus"

	"github.com/ckd-project/ckd/decomp"
	"github.com/ckd-project/ckd/internal/metrics/internal/sharded"
	"github.com/ckd-project/ckd/policy"
)

// classes declares what is counted by class, and by pair of classes.
type classes struct {
	epistemic, skewness                       *sharded.HistogramVec
	unreliable, predicted, dominant, deciding *sharded.CounterVec
	labelsCut                                 *prometheus.GaugeVec
	confusion                                 *sharded.CounterVec // by pair
}

func declareClasses(t *table) classes {
	layouts := sharded.Layouts()
	return classes{
		epistemic: t.histogram("ckd_class_epistemic_nats",
			"Epistemic contribution C_k of the class, one observation per input, in nats.",
			layouts.Contribution, "model", "class"),
		skewness: t.histogram("ckd_class_skewness_ratio",
			"Skewness of the class, one observation per input; above the reliability threshold its C_k cannot be trusted.",
			layouts.Ratio, "model", "class"),
		unreliable: t.sharded("ckd_class_unreliable_total",
			"Inputs in which the skewness of the class is above the reliability threshold.",
			"model", "class"),
		predicted: t.sharded("ckd_class_predicted_total",
			"Inputs that predict this class: it has the largest mean prediction.",
			"model", "class"),
		dominant: t.sharded("ckd_class_dominant_total",
			"Inputs in which this class has the largest C_k.",
			"model", "class"),
		deciding: t.sharded("ckd_class_deciding_total",
			"Deferred inputs whose score this class set, where one class does.",
			"model", "class"),
		labelsCut: t.gauge("ckd_class_labels_cut",
			"Classes without series of their own, counted together as other; pairs with them are not counted.",
			"model"),
		confusion: t.sharded("ckd_pair_confusion_nats_total",
			"Sum over inputs of sqrt(C_a C_b) max(0, -correlation), in nats; divided by inputs, the epistemic confusion matrix.",
			"model", "class_a", "class_b"),
	}
}

// modelClasses holds the series of the classes and pairs of one model.
type modelClasses struct {
	threshold float64 // reliability threshold
	layouts   sharded.LayoutSet
	labels    classLabels
	series    []classSeries // by label
	pairs     []pairSeries
}

// classSeries holds the series of one class, or of those that share a label.
type classSeries struct {
	epistemic, skewness                       *sharded.Histogram
	unreliable, predicted, dominant, deciding *sharded.Counter
}

// pairSeries holds the series of one pair of classes.
type pairSeries struct {
	term      int // index in decomp's Plan.Pairs
	a, b      string
	confusion *sharded.Counter
}

// model creates the series of a model, or finds those that exist.
func (f *classes) model(p *policy.Policy, labels classLabels, pairs []decomp.Pair) *modelClasses {
	m := &modelClasses{threshold: p.ReliabilityThreshold, layouts: sharded.Layouts(), labels: labels}
	for _, label := range labels.names {
		m.series = append(m.series, classSeries{
			epistemic:  f.epistemic.With(p.Name, label),
			skewness:   f.skewness.With(p.Name, label),
			unreliable: f.unreliable.With(p.Name, label),
			predicted:  f.predicted.With(p.Name, label),
			dominant:   f.dominant.With(p.Name, label),
			deciding:   f.deciding.With(p.Name, label),
		})
	}
	for i, pair := range pairs {
		if labels.isCut(pair.A) || labels.isCut(pair.B) {
			continue
		}
		a, b := p.Classes[pair.A], p.Classes[pair.B]
		m.pairs = append(m.pairs, pairSeries{i, a, b, f.confusion.With(p.Name, a, b)})
	}
	f.labelsCut.WithLabelValues(p.Name).Set(float64(labels.cut))
	return m
}

// dropStale deletes the series of classes and pairs that the next policy of the model lacks.
func (f *classes) dropStale(model string, before, next *modelClasses) {
	for _, label := range before.labels.names {
		if slices.Contains(next.labels.names, label) {
			continue
		}
		for _, v := range []vec{f.epistemic, f.skewness, f.unreliable, f.predicted, f.dominant, f.deciding} {
			v.DeleteLabelValues(model, label)
		}
	}
	kept := make(map[[2]string]bool, len(next.pairs))
	for _, pair := range next.pairs {
		kept[[2]string{pair.a, pair.b}] = true
	}
	for _, pair := range before.pairs {
		if !kept[[2]string{pair.a, pair.b}] {
			f.confusion.DeleteLabelValues(model, pair.a, pair.b)
		}
	}
}

// classParts holds the parts of modelClasses in one shard, side by side: they are the bulk of what an
// input counts.
type classParts struct {
	model  *modelClasses
	series []classPart // by label
	pairs  []pairPart
}

// classPart holds the parts of classSeries.
type classPart struct {
	epistemic, skewness                       *sharded.Counts
	unreliable, predicted, dominant, deciding *float64
}

// pairPart holds the part of pairSeries.
type pairPart struct {
	term      int
	confusion *float64
}

// bind finds the parts in a shard, which the caller has locked.
func (m *modelClasses) bind(s *sharded.Shard) *classParts {
	parts := &classParts{model: m}
	for _, c := range m.series {
		parts.series = append(parts.series, classPart{
			c.epistemic.Part(s), c.skewness.Part(s),
			c.unreliable.Part(s), c.predicted.Part(s), c.dominant.Part(s), c.deciding.Part(s),
		})
	}
	for _, pair := range m.pairs {
		parts.pairs = append(parts.pairs, pairPart{pair.term, pair.confusion.Part(s)})
	}
	return parts
}

// class returns the parts that class k counts in.
func (p *classParts) class(k int) *classPart { return &p.series[p.model.labels.byClass[k]] }

// observe counts the classes and pairs of a decided input.
func (p *classParts) observe(res *decomp.Result, d *policy.Decision) {
	p.observeOwn(res.C, res.Skewness)
	for _, run := range p.model.labels.runs {
		p.observeShared(res.C[run.from:run.to], res.Skewness[run.from:run.to])
	}
	*p.class(res.Predicted).predicted++
	if res.Dominant >= 0 {
		*p.class(res.Dominant).dominant++
	}
	if d.Action == policy.Defer && d.Class >= 0 {
		*p.class(d.Class).deciding++
	}
	for _, pair := range p.pairs {
		if term := res.Confusion(pair.term); term > 0 {
			*pair.confusion += term
		}
	}
}

// observeOwn counts the classes that have a label of their own.
func (p *classParts) observeOwn(c, skewness []float64) {
	cLayout, sLayout := p.model.layouts.Contribution, p.model.layouts.Ratio
	threshold := p.model.threshold
	for i, k := range p.model.labels.own {
		class := &p.series[i]
		v, s := c[k], skewness[k]
		vCell, sCell := cLayout.Cell(math.Float64bits(v)), sLayout.Cell(math.Float64bits(s))
		if vCell >= sharded.FirstCell && sCell >= sharded.FirstCell {
			class.epistemic.Cells[vCell]++
			class.epistemic.Sum += v
			class.skewness.Cells[sCell]++
			class.skewness.Sum += s
		} else {
			class.epistemic.Observe(v)
			class.skewness.Observe(s)
		}
		if s > threshold {
			*class.unreliable++
		}
	}
}

// observeShared counts classes that share the last label. With a thousand classes it takes nearly
// all the time, so one loop without branches does both histograms; Counted finds values outside
// their layouts afterwards.
func (p *classParts) observeShared(c, skewness []float64) {
	class := &p.series[len(p.series)-1]
	cLayout, sLayout := p.model.layouts.Contribution, p.model.layouts.Ratio
	cells, skewnessCells := &class.epistemic.Cells, &class.skewness.Cells
	threshold := p.model.threshold
	sum, skewnessSum, unreliable := 0.0, 0.0, uint64(0)
	skewness = skewness[:len(c)]
	for k, v := range c {
		s := skewness[k]
		sum += v
		skewnessSum += s
		cells[cLayout.Cell(math.Float64bits(v))]++
		skewnessCells[sLayout.Cell(math.Float64bits(s))]++
		if s > threshold {
			unreliable++
		}
	}
	class.epistemic.Counted(c, sum)
	class.skewness.Counted(skewness, skewnessSum)
	*class.unreliable += float64(unreliable)
}

package eval

import (
	"context"
	"math"
	"slices"
	"strconv"

	"github.com/ckd-project/ckd/decomp"
)

// sweep has the reliability thresholds for skewness, which also bound the bins of the residual.
var sweep = []float64{0.1, 0.2, 0.3, 0.5}

// approximate sets the figures on how near sum_c comes to MI, and on how reliable C_k is. largest
// has the largest skewness of each input.
func (s *Summary) approximate(t *Table, reliability float64, largest []float64) {
	sumC, mi := t.SumC, t.Scores[decomp.MI]
	residual := make([]float64, t.Inputs)
	for i := range residual {
		residual[i] = math.Abs(sumC[i] - mi[i])
	}
	s.Pearson = correlation(sumC, mi, pearson)
	s.Spearman = correlation(sumC, mi, spearman)
	s.Inflation = quotient(mean(sumC), mean(mi))
	s.Factor = 1
	if t.Spec.Kind != decomp.Dirichlet && t.Spec.Variance == decomp.Sample {
		s.Factor = float64(t.Passes) / float64(t.Passes-1)
	}
	s.ResidualSkewness = correlation(residual, largest, spearman)

	reliable, falls := 0, 0
	for i := range largest {
		reliable += index(largest[i] < reliability)
		s.Degenerate += index(t.Degenerate[i])
		s.Saturated += index(t.Saturated[i])
	}
	for _, skewness := range t.CriticalSkewness {
		falls += index(skewness > reliability)
	}
	s.AllReliable = share(reliable, t.Inputs)
	s.FallbackShare = undefined
	if t.CriticalSkewness != nil {
		s.FallbackShare = per(falls, t.Inputs)
	}
}

// correlation returns the correlation of two columns, undefined where one of them is constant.
func correlation(a, b []float64, measure func(a, b []float64) float64) Figure {
	if slices.Min(a) == slices.Max(a) || slices.Min(b) == slices.Max(b) {
		return undefined
	}
	return Figure(measure(a, b))
}

// largestSkewness returns the largest skewness of any class, for each input.
func largestSkewness(t *Table) []float64 {
	largest := make([]float64, t.Inputs)
	for i := range largest {
		largest[i] = slices.Max(t.Skewness[i*t.K : (i+1)*t.K])
	}
	return largest
}

// residuals returns sum_c - MI in bins of the largest skewness.
func residuals(t *Table, largest []float64) []ResidualBin {
	bins := make([]ResidualBin, len(sweep)+1)
	for b := range sweep {
		bins[b].UpTo = &sweep[b]
		bins[b+1].Above = sweep[b]
	}
	mi, sum := make([]float64, len(bins)), make([]float64, len(bins))
	for i, skewness := range largest {
		b := 0
		for b < len(sweep) && skewness > sweep[b] {
			b++
		}
		bins[b].N++
		sum[b] += t.SumC[i] - t.Scores[decomp.MI][i]
		mi[b] += t.Scores[decomp.MI][i]
	}
	for b := range bins {
		bins[b].Relative = quotient(sum[b], mi[b])
		bins[b].Mean = quotient(sum[b], float64(bins[b].N))
	}
	return bins
}

// skewnesses returns how the skewness of each class is distributed.
func skewnesses(ctx context.Context, t *Table, labels []int, names []string, a *classCounts) ([]Skewness, error) {
	// Group the inputs by their true class, so that a column can be cut into classes.
	from := make([]int, t.K+1)
	for k, support := range a.support {
		from[k+1] = from[k] + support
	}
	place, next := make([]int, t.Inputs), slices.Clone(from)
	for i, label := range labels {
		place[i] = next[label]
		next[label]++
	}
	all := make([]Skewness, t.K)
	err := concurrently(ctx, t.K, func(k int) {
		column := make([]float64, t.Inputs)
		for i, p := range place {
			column[p] = t.Skewness[i*t.K+k]
		}
		all[k] = Skewness{Class: names[k], ByTrue: []SkewnessByTrue{}}
		if t.K <= maxMatrixClasses {
			for j := range t.K {
				of := skewnessOf(column[from[j]:from[j+1]])
				all[k].ByTrue = append(all[k].ByTrue, SkewnessByTrue{True: names[j], N: a.support[j], SkewnessOf: of})
			}
		}
		all[k].SkewnessOf = skewnessOf(column)
	})
	return all, err
}

// skewnessOf returns how values are distributed. It sorts them.
func skewnessOf(values []float64) SkewnessOf {
	slices.Sort(values)
	s := SkewnessOf{Median: undefined, Mean: undefined, P90: undefined, Reliable: make(map[string]Figure, len(sweep))}
	if len(values) > 0 {
		s.Median, s.Mean, s.P90 = Figure(quantile(values, 0.5)), Figure(mean(values)), Figure(quantile(values, 0.9))
	}
	for _, threshold := range sweep {
		under, _ := slices.BinarySearch(values, threshold)
		s.Reliable[strconv.FormatFloat(threshold, 'g', -1, 64)] = per(under, len(values))
	}
	return s
}

// paperRule chooses between c_crit_max and cbec, and measures the cost of the choice. It returns
// nil where one of the two scores is undefined.
func paperRule(t *Table, skewness []Skewness, rows []*Row, reliability float64) *PaperRule {
	rule := &PaperRule{Score: decomp.CCritMax.String()}
	if t.Scores[decomp.CCritMax] == nil || t.Scores[decomp.CBEC] == nil {
		return nil
	}
	for _, k := range t.Spec.Critical {
		rule.MedianCriticalSkewness = max(rule.MedianCriticalSkewness, float64(skewness[k].Median))
	}
	if rule.MedianCriticalSkewness > reliability {
		rule.Score = decomp.CBEC.String()
	}
	var chosen, bestAUSC, bestFNR *Row
	for _, row := range rows {
		if !inPaper(row) {
			continue
		}
		if row.Name == rule.Score {
			chosen = row
		}
		if bestAUSC == nil || row.AUSC.CriticalFNR.less(bestAUSC.AUSC.CriticalFNR) {
			bestAUSC = row
		}
		if bestFNR == nil || row.CriticalFNR.less(bestFNR.CriticalFNR) {
			bestFNR = row
		}
	}
	rule.BestAUSC, rule.CostAUSC = cost(chosen, bestAUSC, func(r *Row) Figure { return r.AUSC.CriticalFNR })
	rule.BestCriticalFNR, rule.CostCriticalFNR = cost(chosen, bestFNR, func(r *Row) Figure { return r.CriticalFNR })
	return rule
}

// cost returns the row with the lowest figure, the chosen one where it has it too, and by how much
// the chosen one is higher. The name is empty where the figure of every row is undefined.
func cost(chosen, best *Row, figure func(*Row) Figure) (name string, cost Figure) {
	if !figure(best).Defined() {
		return "", undefined
	}
	if figure(chosen) == figure(best) {
		best = chosen
	}
	return best.Name, figure(chosen) - figure(best)
}

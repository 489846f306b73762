package passcheck

import "math"

// Labels returns the signs that the true classes of the inputs show beside their mean predictions, which
// are laid out as Inputs.Mean is. groups comes from Passes.
//
// The slope of the regression of "is class k" on the mean of class k, over all classes together, is 1
// where the means are calibrated, lower where they are too sure and 0 where labels belong to other
// inputs. Unlike accuracy it needs no class to be predicted often. Its deviation under independence is
// exact (Hoeffding 1951). Where labels vary less than the means say, as of a population with few critical
// inputs, a slope is low in any case, and is scaled up. Labels are by chance where independence is not
// rejected and a third of a calibrated slope is: with few inputs, or few of a class, neither is so.
func Labels(labels []int, mean []float64, classes int, groups []int) (signs []Sign) {
	n := len(labels)
	slope, deviation := labelSlope(labels, mean, classes)
	deviation *= math.Sqrt(float64(n) / float64(distinct(n, groups))) // copies are no further evidence
	right, expected := 0, 0.
	for i, label := range labels {
		row := mean[i*classes:][:classes]
		most := 0
		for k, mu := range row {
			if mu > row[most] {
				most = k
			}
		}
		right += index(most == label)
		expected += 1 - row[most]
	}
	const (
		significant = 2.5      // deviations: 1 in 160
		third       = 0.33     // a slope that would be seen
		sure        = 2.5      // deviations below it
		many, some  = 300, 100 // inputs: an error rate above 1%, or 3%, shows with a chance of 95%
		wrong       = 5        // errors that the passes expect: none by a chance of 1 in 150
	)
	if n >= fewInputs && slope < significant*deviation && slope+sure*deviation < third {
		signs = append(signs, ofInputs(ChanceLabels, n-right, n, "The labels have nothing to do with the passes: %d of %d predictions are right, no "+
			"better than chance (slope of the labels on the predictions %.2f ± %.2f; 1 where predictions are calibrated). Are they the labels of these "+
			"inputs, in this order, and the classes in the order of the passes?", right, n, slope, deviation))
	}
	if right == n && (n >= many || n >= some && expected >= wrong) {
		signs = append(signs, ofInputs(signPerfectLabels, n, n, "All %d labels agree with the predictions, where the passes themselves expect %.1f errors. Are "+
			"these the inputs that the model was trained on, or labels made from its predictions? Then nothing here holds for other inputs.", n, expected))
	}
	return signs
}

// labelSlope returns the slope of labels on means and its standard deviation under independence; that is
// infinite where nothing varies.
func labelSlope(labels []int, mean []float64, classes int) (slope, deviation float64) {
	n := float64(len(labels))
	average, share := make([]float64, classes), make([]float64, classes)
	for i, label := range labels {
		share[label] += 1 / n
		for k, mu := range mean[i*classes:][:classes] {
			average[k] += mu / n
		}
	}
	// Sums over inputs: covariance of means and labels, variance of means, and variance of labels as it
	// is and as the means expect it.
	var covariance, variance, found, expected float64
	for k, s := range share {
		found += n * s * (1 - s)
		expected += n * average[k] * (1 - average[k])
	}
	for i, label := range labels {
		row := mean[i*classes:][:classes]
		covariance += row[label] - average[label]
		for k, mu := range row {
			variance += (mu - average[k]) * (mu - average[k])
		}
	}
	if rounding := 1e-9 * n; variance <= rounding || found <= rounding {
		return 0, math.Inf(1)
	}
	// The variance of the sum over inputs of the mean of their label, over all orders of the labels, is
	// the sum over inputs i and labels y of the squared doubly centred value, over n-1.
	sum := 0.
	for i := range labels {
		row := mean[i*classes:][:classes]
		center := 0.
		for k, mu := range row {
			center += share[k] * (mu - average[k])
		}
		for k, mu := range row {
			v := mu - average[k] - center
			sum += n * share[k] * v * v
		}
	}
	scale := max(1, expected/found) / variance
	return scale * covariance, scale * math.Sqrt(sum/(n-1))
}

// distinct counts the groups of n inputs.
func distinct(n int, groups []int) int {
	if groups == nil {
		return n
	}
	seen := make(map[int]bool)
	for _, g := range groups {
		seen[g] = true
	}
	return len(seen)
}

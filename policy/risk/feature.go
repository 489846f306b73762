package risk

import (
	"math"
)

// Feature names a number computed from the mean mu and the contributions C_k of one input. All
// logarithms are natural. Log-odds are log(p/(1-p)) of p clipped to [Clip, 1-Clip], and so in
// [-13.8, 13.8].
type Feature string

// The features. Shares among the safe classes are of means: mu_k / sum_{j safe} mu_j, and 1/n for
// each of n safe classes where that sum is 0.
const (
	// PCritical is the log-odds of sum_{k critical} mu_k. Its weight is at least 0.
	PCritical Feature = "p_critical"
	// LargestCriticalMean is the log-odds of max_{k critical} mu_k. Its weight is at least 0.
	LargestCriticalMean Feature = "largest_critical_mean"
	// CriticalMean is the log-odds of mu_k of one critical class. Its weight is at least 0.
	CriticalMean Feature = "critical_mean"
	// SafeShare is the log-odds of the share of one safe class among the safe classes: 13.8 if it has
	// all of it.
	SafeShare Feature = "safe_share"
	// SafeEntropy is the entropy of the shares among the safe classes, nats, in [0, log n].
	SafeEntropy Feature = "safe_entropy"
	// PredictedVariation is log(Clip + C_p/mu_p) of the most probable safe class p, which is the
	// predicted class of an input called safe. C_p/mu_p is half the squared coefficient of variation
	// of its passes.
	PredictedVariation Feature = "predicted_variation"
	// SafeVariation is log(Clip + sum_{k safe} C_k / sum_{k safe} mu_k).
	SafeVariation Feature = "safe_variation"
)

// Clip keeps logarithms finite.
const Clip = 1e-6

// Set says of which classes a feature takes one.
type Set int

// The sets.
const (
	NoClass       Set = iota // the feature is of no single class
	CriticalClass            // one critical class
	SafeClass                // one safe class
)

// kinds describes the features, in the order in which they are listed.
var kinds = []struct {
	feature Feature
	of      Set
	rises   bool // rather than stays, under the move of the package documentation
}{
	{PCritical, NoClass, true},
	{LargestCriticalMean, NoClass, true},
	{CriticalMean, CriticalClass, true},
	{SafeShare, SafeClass, false},
	{SafeEntropy, NoClass, false},
	{PredictedVariation, NoClass, false},
	{SafeVariation, NoClass, false},
}

// Features lists the features.
func Features() []Feature {
	list := make([]Feature, len(kinds))
	for i, k := range kinds {
		list[i] = k.feature
	}
	return list
}

// Known reports whether f is a feature.
func (f Feature) Known() bool {
	_, known := f.Of()
	return known
}

// Of returns of which classes the feature takes one, and whether the feature is known.
func (f Feature) Of() (set Set, known bool) {
	for _, k := range kinds {
		if k.feature == f {
			return k.of, true
		}
	}
	return NoClass, false
}

// Rises reports whether the feature may rise as mass moves towards the critical classes, so that its
// weight must be at least 0.
func (f Feature) Rises() bool {
	for _, k := range kinds {
		if k.feature == f {
			return k.rises
		}
	}
	return false
}

// Input holds what a model reads of one input: all K means and C_k, nats, as decomp.Result has them,
// and the sets of classes. It is only read.
type Input struct {
	Mean, C        []float64
	Critical, Safe []int
}

// sums holds the sums over sets that several features share.
type sums struct{ critical, safe, safeC float64 }

// pCritical returns the sum of the means of the critical classes.
func (in *Input) pCritical() (sum float64) {
	for _, k := range in.Critical {
		sum += in.Mean[k]
	}
	return sum
}

func (in *Input) sums() (s sums) {
	s.critical = in.pCritical()
	for _, k := range in.Safe {
		s.safe += in.Mean[k]
		s.safeC += in.C[k]
	}
	return s
}

// value returns the feature of an input; class is read only where the feature is of one.
func (f Feature) value(in *Input, s *sums, class int) float64 {
	switch f {
	case PCritical:
		return logit(s.critical)
	case LargestCriticalMean:
		largest := 0.0
		for _, k := range in.Critical {
			largest = max(largest, in.Mean[k])
		}
		return logit(largest)
	case CriticalMean:
		return logit(in.Mean[class])
	case SafeShare:
		return logit(in.share(s, class))
	case SafeEntropy:
		entropy := 0.0
		for _, k := range in.Safe {
			if p := in.share(s, k); p > 0 {
				entropy -= p * math.Log(p)
			}
		}
		return max(entropy, 0)
	case PredictedVariation:
		largest, c := 0.0, 0.0
		for _, k := range in.Safe {
			if in.Mean[k] > largest {
				largest, c = in.Mean[k], in.C[k]
			}
		}
		return variation(c, largest)
	case SafeVariation:
		return variation(s.safeC, s.safe)
	}
	return math.NaN()
}

// share returns the share of a safe class among the safe classes.
func (in *Input) share(s *sums, class int) float64 {
	if s.safe > 0 {
		return in.Mean[class] / s.safe
	}
	return 1 / float64(len(in.Safe))
}

func variation(c, mean float64) float64 {
	if mean > 0 {
		return math.Log(Clip + c/mean)
	}
	return math.Log(Clip)
}

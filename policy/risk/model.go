package risk

import (
	"fmt"
	"math"
	"slices"
)

// Model is a logistic model of the probability that an input called safe is truly critical:
//
//	log-odds = Intercept + sum_t Weight_t * feature_t
type Model struct {
	// The log-odds of being truly critical for an input called safe are this plus the weighted features
	// of terms.
	Intercept float64 `key:"intercept,required" range:"-1e6..1e6"`
	// One entry for each feature, 1 to 12.
	Terms []Term `key:"terms,required"`
}

// Term is one feature with its weight.
type Term struct {
	// What is weighted. Log-odds, of values clipped to 1e-6 from 0 and 1: p_critical (of the mean
	// predictions of the critical classes together), largest_critical_mean, critical_mean (of one
	// class), safe_share (of one safe class among the safe ones). Others: safe_entropy (nats, of those
	// shares), predicted_variation (log of 1e-6 + C_k/mu_k of the most probable safe class),
	// safe_variation (the same of the safe classes together).
	Feature Feature `key:"feature,required"`
	// The class of critical_mean, a critical one, or of safe_share, a safe one: by name in files, by
	// position here. Other features have none, which is -1 here.
	Class int `key:"class" form:"class"`
	// What the feature is multiplied by: at least 0 for p_critical, largest_critical_mean and
	// critical_mean, so that the risk never falls as critical classes get more probable.
	Weight float64 `key:"weight,required" range:"-1e6..1e6"`
}

// Value returns the feature of an input, without the weight. The term must pass Check for the sets of
// the input.
func (t Term) Value(in Input) float64 {
	s := in.sums()
	return t.Feature.value(&in, &s, t.Class)
}

// Check returns an error unless the term can be computed with these sets of classes, and its weight
// is a finite number that keeps the risk from falling as mass moves towards the critical classes.
func (t Term) Check(critical, safe []int) error {
	of, known := t.Feature.Of()
	if !known {
		return fmt.Errorf("feature %q: expected one of %q", string(t.Feature), Features())
	}
	set, name := []int{-1}, ""
	switch of {
	case CriticalClass:
		set, name = critical, "critical"
	case SafeClass:
		set, name = safe, "safe"
	}
	if !slices.Contains(set, t.Class) {
		if of == NoClass {
			return fmt.Errorf("feature %s: class %d, expected none (-1): the feature is of no single class", t.Feature, t.Class)
		}
		return fmt.Errorf("feature %s: class %d, expected a %s class", t.Feature, t.Class, name)
	}
	if math.IsNaN(t.Weight) || math.IsInf(t.Weight, 0) {
		return fmt.Errorf("feature %s: weight %v, expected a finite number", t.Feature, t.Weight)
	}
	if t.Feature.Rises() && t.Weight < 0 {
		return fmt.Errorf("feature %s: weight %v, expected at least 0: the risk would fall as mass moves to the critical classes",
			t.Feature, t.Weight)
	}
	return nil
}

// Check returns an error unless the model can be computed with these sets of classes: a finite
// intercept, terms that pass Term.Check, and no feature twice.
func (m *Model) Check(critical, safe []int) error {
	if math.IsNaN(m.Intercept) || math.IsInf(m.Intercept, 0) {
		return fmt.Errorf("intercept %v, expected a finite number", m.Intercept)
	}
	for i, t := range m.Terms {
		if err := t.Check(critical, safe); err != nil {
			return fmt.Errorf("term %d: %w", i, err)
		}
		for j, other := range m.Terms[:i] {
			if other.Feature == t.Feature && other.Class == t.Class {
				return fmt.Errorf("term %d: feature %s is that of term %d already", i, t.Feature, j)
			}
		}
	}
	return nil
}

// LogOdds returns the log-odds of being truly critical of an input that is called safe. It allocates
// nothing. The model must pass Check for the sets of the input.
func (m *Model) LogOdds(in Input) float64 {
	z, s, safe := m.Intercept, sums{critical: in.pCritical()}, false
	for i := range m.Terms {
		t := &m.Terms[i]
		if t.Feature == PCritical { // often the only one
			z += t.Weight * logit(s.critical)
			continue
		}
		if !safe {
			safe, s = true, in.sums()
		}
		z += t.Weight * t.Feature.value(&in, &s, t.Class)
	}
	return z
}

// Probability returns the probability of being truly critical, in [0,1], of an input that is called
// safe: the logistic function of LogOdds.
func (m *Model) Probability(in Input) float64 { return Logistic(m.LogOdds(in)) }

// LogOdds returns log(p/(1-p)) of p clipped to [Clip, 1-Clip]: what the feature p_critical is of
// p_critical.
func LogOdds(p float64) float64 { return logit(p) }

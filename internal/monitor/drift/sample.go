package drift

import "github.com/ckd-project/ckd/policy"

// Sample collects what a calibration sees of a model. Its zero value compares all classes.
type Sample struct {
	// Classes lists the indices of the classes that are compared; nil means all.
	Classes []int

	inputs              int
	epistemic, skewness [][]float64 // by class, then input
	predicted           []int       // inputs, by class
}

// Add adds an input: C_k in nats and the skewness ratio of every class of the model, by class, and
// the predicted class. It copies what it needs and changes neither slice.
func (s *Sample) Add(c, skewness []float64, predicted int) {
	if s.Classes == nil {
		for k := range c {
			s.Classes = append(s.Classes, k)
		}
	}
	if s.inputs == 0 {
		s.epistemic, s.skewness = make([][]float64, len(s.Classes)), make([][]float64, len(s.Classes))
		s.predicted = make([]int, len(s.Classes))
	}
	s.inputs++
	for i, k := range s.Classes {
		s.epistemic[i], s.skewness[i] = append(s.epistemic[i], c[k]), append(s.skewness[i], skewness[k])
		if k == predicted {
			s.predicted[i]++
		}
	}
}

// Reference returns the reference of the inputs so far; nil without inputs.
func (s *Sample) Reference() *policy.Reference {
	if s.inputs == 0 {
		return nil
	}
	r := &policy.Reference{Inputs: s.inputs}
	for i, k := range s.Classes {
		r.Classes = append(r.Classes, policy.ClassReference{
			Class: k, Predicted: float64(s.predicted[i]) / float64(s.inputs),
			Epistemic: NewQuantiles(s.epistemic[i]), Skewness: NewQuantiles(s.skewness[i]),
		})
	}
	return r
}

package calibrate

import "github.com/ckd-project/ckd/eval"

// outcomes holds the true classes of a sample, and what each means beside the predicted one.
type outcomes struct {
	label []int // the true class
	// critical marks inputs whose true class is critical. missed marks those of them whose
	// predicted class is not.
	critical, missed, correct []bool
	// predictedCritical inputs are never deferred in scope predicted-safe.
	predictedCritical []bool
}

func newOutcomes(labels []int, t *eval.Table) outcomes {
	n := t.Inputs
	o := outcomes{
		label: labels, critical: make([]bool, n), missed: make([]bool, n), correct: make([]bool, n), predictedCritical: make([]bool, n),
	}
	set := make([]bool, t.K)
	for _, k := range t.Spec.Critical {
		set[k] = true
	}
	for i, label := range labels {
		o.critical[i], o.predictedCritical[i] = set[label], set[t.Predicted[i]]
		o.missed[i] = o.critical[i] && !o.predictedCritical[i]
		o.correct[i] = label == t.Predicted[i]
	}
	return o
}

// add counts an input as retained.
func (o *outcomes) add(c *eval.Selective, i int) {
	c.Retained++
	if o.correct[i] {
		c.Correct++
	}
	if o.predictedCritical[i] {
		c.Called++
		if !o.critical[i] {
			c.FalseCalls++
		}
	}
	if o.critical[i] {
		c.Critical++
	}
	if o.missed[i] {
		c.Missed++
	}
}

// everything counts all inputs of a part as retained.
func (o *outcomes) everything(p part) eval.Selective {
	c := eval.Selective{Inputs: p.n}
	for _, i := range p.inputs() {
		o.add(&c, i)
	}
	return c
}

package truth

import (
	"github.com/ckd-project/ckd/internal/outcome/receipt"
	"github.com/ckd-project/ckd/policy"
)

// Terms is a policy as its outcomes are judged by it. It is never changed.
type Terms struct {
	Policy   *policy.Policy
	Hash     [32]byte
	Classes  map[string]int
	Critical []bool // by class
}

// NewTerms returns the terms of a policy.
func NewTerms(p *policy.Policy) *Terms {
	t := &Terms{Policy: p, Hash: p.HashBytes(), Classes: make(map[string]int, len(p.Classes)), Critical: make([]bool, len(p.Classes))}
	for k, name := range p.Classes {
		t.Classes[name] = k
	}
	for _, k := range p.Critical {
		t.Critical[k] = true
	}
	return t
}

// RunLength returns the average number of outcomes before a false alarm, of all monitors of a model
// together.
func (t *Terms) RunLength() float64 {
	if a := t.Policy.Audit; a != nil {
		return a.RunLength
	}
	return policy.DefaultRunLength
}

// Sensitivity returns the share of the critical inputs called safe that a reader is assumed to find.
func (t *Terms) Sensitivity() float64 {
	if a := t.Policy.Audit; a != nil {
		return a.ReaderSensitivity
	}
	return 1
}

// CalledCritical reports whether the model called the input critical.
func (t *Terms) CalledCritical(r *receipt.Receipt) bool { return t.Critical[int(r.Predicted)] }

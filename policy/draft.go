package policy

import (
	"slices"
)

// Draft holds what a policy file may say about one model, or what a program makes instead of such a
// file. A field that has the zero value was not given: Build fills in its default, or reports that
// it is missing. docs/policy-fields.md has the meaning, the range and the default of each field.
type Draft struct {
	Name, Version string

	// Classes in the order of the model's outputs. The other lists name some of them.
	Classes  []string
	Critical []string
	// Safe is nil for all classes that are not critical. An empty list means none.
	Safe []string

	Kind                         Kind
	FewestPasses, ExpectedPasses int
	SumTolerance                 float64
	Tensor                       string
	Variance                     Variance
	TopClasses                   int

	ReliabilityThreshold float64
	Gate                 Gate
	Scope                Scope
	// Primary and Fallback have a threshold if theirs is above 0. HasThreshold is for one of 0.
	Primary, Fallback     Rule
	PairWeights           []DraftPairWeight
	Pairs                 Pairs
	Degenerate, Saturated Handling

	// These may be nil. The terms of a risk model name classes by position, -1 for none.
	Risk          *Risk
	Guard         *Guard
	Calibration   *Calibration
	Audit         *Audit
	EarlyStopping *EarlyStopping
}

// DraftPairWeight gives the weight of a safe x critical pair in cbec.
type DraftPairWeight struct {
	Safe, Critical string
	Weight         float64
}

// Draft returns a draft that Build makes an equal policy of. The two share no memory.
func (p *Policy) Draft() Draft {
	d := Draft{
		Name: p.Name, Version: p.Version,
		Classes: p.Classes, Critical: p.namesOf(p.Critical), Safe: p.namesOf(p.Safe),
		Kind: p.Kind, FewestPasses: p.FewestPasses, ExpectedPasses: p.ExpectedPasses,
		SumTolerance: p.SumTolerance, Tensor: p.Tensor, Variance: p.Variance, TopClasses: p.TopClasses,
		ReliabilityThreshold: p.ReliabilityThreshold, Gate: p.Gate, Scope: p.Scope,
		Primary: p.Primary, Fallback: p.Fallback,
		Pairs: p.Pairs, Degenerate: p.Degenerate, Saturated: p.Saturated, Risk: p.Risk, Guard: p.Guard,
		Calibration: p.Calibration, Audit: p.Audit, EarlyStopping: p.EarlyStopping,
	}
	if d.Safe == nil {
		d.Safe = []string{}
	}
	for _, w := range p.PairWeights {
		d.PairWeights = append(d.PairWeights, DraftPairWeight{p.Classes[w.Safe], p.Classes[w.Critical], w.Weight})
	}
	return d.clone()
}

// clone returns a copy that shares no memory with d.
func (d Draft) clone() Draft {
	d.Classes, d.Critical, d.Safe = slices.Clone(d.Classes), slices.Clone(d.Critical), slices.Clone(d.Safe)
	d.PairWeights = slices.Clone(d.PairWeights)
	d.Risk, d.Guard = d.Risk.clone(), copied(d.Guard)
	d.Calibration = copied(d.Calibration)
	if c := d.Calibration; c != nil {
		c.ExpectedCoverage, c.ExpectedCriticalFNR = copied(c.ExpectedCoverage), copied(c.ExpectedCriticalFNR)
		c.ExpectedCriticalMissRate = copied(c.ExpectedCriticalMissRate)
		if c.Lines = copied(c.Lines); c.Lines != nil {
			c.Lines.Classes = slices.Clone(c.Lines.Classes)
		}
		c.Certificate, c.Reference = copied(c.Certificate), copied(c.Reference)
		if c.Certificate != nil {
			c.Certificate.Further = slices.Clone(c.Certificate.Further)
		}
		if r := c.Reference; r != nil {
			r.Classes = slices.Clone(r.Classes)
			for i := range r.Classes {
				class := &r.Classes[i]
				class.Epistemic, class.Skewness = slices.Clone(class.Epistemic), slices.Clone(class.Skewness)
			}
		}
	}
	if d.Audit = copied(d.Audit); d.Audit != nil {
		d.Audit.Slices = slices.Clone(d.Audit.Slices)
		for i := range d.Audit.Slices {
			d.Audit.Slices[i].Values = slices.Clone(d.Audit.Slices[i].Values)
		}
	}
	d.EarlyStopping = copied(d.EarlyStopping)
	if s := d.EarlyStopping; s != nil {
		s.HalvesDiffer, s.Certificate.CriticalReleased = copied(s.HalvesDiffer), copied(s.Certificate.CriticalReleased)
		s.Rule.Steps = slices.Clone(s.Rule.Steps)
		if s.Rule.Form = copied(s.Rule.Form); s.Rule.Form != nil {
			f := s.Rule.Form
			f.Boundaries, f.Retain, f.Defer = slices.Clone(f.Boundaries), slices.Clone(f.Retain), slices.Clone(f.Defer)
		}
	}
	return d
}

// copied returns a pointer to a copy of *p, or nil for nil.
func copied[T any](p *T) *T {
	if p == nil {
		return nil
	}
	c := *p
	return &c
}

package decisionlog

import "github.com/ckd-project/ckd/policy"

// PolicyOf returns a policy as start lines have it. Its text leaves out what live inputs are compared with, which is
// long and decides nothing: the hash still follows from it.
func PolicyOf(p *policy.Policy) Policy {
	d := p.Draft()
	if d.Calibration != nil {
		d.Calibration.Reference = nil
	}
	return Policy{Model: p.Name, Version: p.Version, Hash: p.Hash, Text: string(d.Marshal())}
}

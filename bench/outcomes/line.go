package main

import (
	"math/rand/v2"
	"slices"

	"github.com/ckd-project/ckd/internal/outcome/evidence"
)

// monitors holds the alarms of one policy, pooled and for each critical class. The line of each is
// its true risk.
type monitors struct {
	pooled, missRate *evidence.Alarm
	classes          []*evidence.Alarm // by class; nil for none
}

// onTheLine returns the monitors of a traffic with a run length in outcomes.
func onTheLine(s *study, r *reviews, runLength float64) *monitors {
	m := &monitors{
		pooled:   r.newAlarm(evidence.FNR, s.traffic.risk(evidence.FNR), runLength/weightFNR),
		missRate: r.newAlarm(evidence.MissRate, s.traffic.risk(evidence.MissRate), runLength/weightMiss),
		classes:  make([]*evidence.Alarm, len(s.policy.Classes)),
	}
	for _, k := range s.policy.Critical {
		of := &traffic{weights: s.traffic.weights, inputs: slices.Clone(s.traffic.inputs)}
		for i := range of.inputs {
			of.inputs[i].critical = of.inputs[i].class == k
		}
		m.classes[k] = r.newAlarm(evidence.FNR, of.risk(evidence.FNR), runLength/weightClasses*float64(len(s.policy.Critical)))
	}
	return m
}

// observe adds an outcome, and reports whether any alarm is up.
func (m *monitors) observe(in *input) bool {
	o := in.observation()
	m.pooled.Observe(o)
	m.missRate.Observe(o)
	raised := m.pooled.Raised() || m.missRate.Raised()
	for k, a := range m.classes {
		if a == nil {
			continue
		}
		one := o
		one.Critical = in.class == k
		a.Observe(one)
		raised = raised || a.Raised()
	}
	return raised
}

var lineColumns = []string{"inputs between false alarms: stated", "lower limit / stated"}

// measureLine measures the inputs between false alarms with every line at the true risk, where false
// alarms are most frequent. It cuts runs at twice the stated length.
func measureLine(b *bench, s *study, t *table) {
	traffic, settings := s.with(mixed)
	between := b.between / 10 // saves time: a longer run length is no other claim
	stated := runLength(traffic, settings, between)
	r := traffic.reviewsOf(evidence.MissRate, settings)
	const cut = 2
	average, se := mean(each(b, b.runs/2, func(rng *rand.Rand) float64 {
		m := onTheLine(s, r, stated)
		for n := 1.; ; n++ {
			if m.observe(r.draw(rng)) || n >= cut*stated {
				return n
			}
		}
	}))
	t.add(s.name, number(between), number((average-1.96*se)/stated))
}

package main

import (
	"fmt"
	"math/rand/v2"

	"github.com/ckd-project/ckd/internal/outcome/evidence"
)

var delayColumns = []string{"FNR", "audits per 1,000 inputs", "doubles: mixed", "uniform", "triples: mixed", "uniform", "inputs until a doubling, mixed"}

// goodOutcomes come before a change.
const goodOutcomes = 1000

// lineFactor times the FNR of the good period gives the line.
const lineFactor = 1.5

// measureDelay counts the paid audits from the change to the alarm: medians, and what 90% of the
// runs do not exceed.
func measureDelay(b *bench, s *study, t *table) {
	line := lineFactor * s.traffic.risk(evidence.FNR)
	delay := func(a audited, times float64) (audits, inputs []float64) {
		good, settings := s.with(a)
		return b.delays(good, good.withFNR(times*line), line, s, a, runLength(good, settings, b.between)/weightFNR)
	}
	twice, inputs := delay(mixed, 2)
	twiceUniform, _ := delay(uniform, 2)
	thrice, _ := delay(mixed, 3)
	thriceUniform, _ := delay(uniform, 3)
	r := s.traffic.reviewsOf(evidence.FNR, *s.policy.Audit)
	t.add(s.name, number(s.traffic.risk(evidence.FNR)), number(1000*r.paid), spread(twice), spread(twiceUniform),
		spread(thrice), spread(thriceUniform), spread(inputs))
}

// spread prints the median and what 90% do not exceed.
func spread(values []float64) string {
	if len(values) == 0 {
		return none
	}
	return fmt.Sprintf("%s [%s]", number(quantile(values, 0.5)), number(quantile(values, 0.9)))
}

// delays returns the paid audits and the inputs of each run from the change to the alarm; nil
// without a change.
func (b *bench) delays(good, bad *traffic, line float64, s *study, a audited, limit float64) (audits, inputs []float64) {
	if bad == nil {
		return nil, nil
	}
	_, settings := s.with(a)
	before, after := good.reviewsOf(evidence.FNR, settings), bad.reviewsOf(evidence.FNR, settings)
	type delay struct{ audits, inputs float64 }
	for _, d := range each(b, b.runs/2, func(rng *rand.Rand) (d delay) {
		alarm := before.newAlarm(evidence.FNR, line, limit)
		for range goodOutcomes {
			alarm.Observe(before.draw(rng).observation())
		}
		for !alarm.Raised() {
			in := after.draw(rng)
			d.inputs += after.gap(rng)
			d.audits += float64(btoi(in.paid))
			alarm.Observe(in.observation())
		}
		return d
	}) {
		audits, inputs = append(audits, d.audits), append(inputs, d.inputs)
	}
	return audits, inputs
}

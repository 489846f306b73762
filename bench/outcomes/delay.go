package main

import (
	"fmt"
	"math/rand/v2"

	"github.com/ckd-project/ckd/monitor/drift"
	"github.com/ckd-project/ckd/outcome/evidence"
)

var delayColumns = []string{"doubles: mixed", "uniform", "mixed / uniform", "triples: mixed", "uniform", "inputs until a doubling, mixed"}

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
	t.add(s.name, spread(twice), spread(twiceUniform), number(quantile(twice, 0.5)/quantile(twiceUniform, 0.5)),
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

var driftColumns = []string{"FNR, then", "runs of 20,000 inputs with a drift alarm: unchanged", "misses three times as frequent",
	"inputs until the alarm of outcomes, line 1.2 times the good FNR"}

// measureDrift makes critical inputs that are called safe three times as frequent.
func measureDrift(b *bench, s *study, t *table) {
	const driftInputs, driftRuns = 20_000, 120
	good, settings := s.with(mixed)
	bad := good.withMisses(3)
	alarmed := func(t *traffic) string {
		a := newAlias(t.weights)
		return share(count(each(b, driftRuns, func(rng *rand.Rand) bool {
			return s.drifts(driftInputs, func() *input { return &t.inputs[a.draw(rng)] })
		})), driftRuns)
	}
	truth := good.risk(evidence.FNR)
	line := 1.2 * truth
	var inputs []float64
	if bad.risk(evidence.FNR) > line {
		_, inputs = b.delays(good, bad, line, s, mixed, runLength(good, settings, b.between)/weightFNR)
	}
	t.add(s.name, fmt.Sprintf("%s, %s", number(truth), number(bad.risk(evidence.FNR))), alarmed(good), alarmed(bad), spread(inputs))
}

// drifts reports whether a drift monitor ever alarms.
func (s *study) drifts(inputs int, draw func() *input) bool {
	monitor := drift.NewMonitor(s.reference)
	block := make([]drift.Block, len(s.reference.Classes))
	for range inputs / drift.BlockInputs {
		clear(block)
		for range drift.BlockInputs {
			i := draw().row
			for c, of := range s.reference.Classes {
				block[c].Epistemic += drift.Quantiles(of.Epistemic).Below(s.table.C[i*s.table.K+of.Class])
				skewness := 0.5 // as if nothing had moved, where it is undefined
				if v := s.table.Skewness[i*s.table.K+of.Class]; v >= 0 {
					skewness = drift.Quantiles(of.Skewness).Below(v)
				}
				block[c].Skewness += skewness
				block[c].Predicted += float64(btoi(s.table.Predicted[i] == of.Class))
			}
		}
		monitor.Add(block)
		for _, a := range monitor.Alarms() {
			if a.Epistemic || a.Skewness || a.Predicted {
				return true
			}
		}
	}
	return false
}

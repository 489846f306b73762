package main

import (
	"math/rand/v2"

	"github.com/ckd-project/ckd/outcome/evidence"
)

// mislabelled gives the share of safe inputs that one reader calls critical.
const mislabelled = 0.005

var noiseColumns = []string{"no mistake", "one reader", "second reads", "estimate: truth", "one reader", "second reads",
	"of its alarms, below the limit when replayed with corrections"}

// measureNoise has readers call some safe inputs critical, in a good period of 10,000 outcomes. A
// critical reading of an input called safe is read a second time, and where the two disagree by a
// third reader.
func measureNoise(b *bench, s *study, t *table) {
	good, settings := s.with(mixed)
	r := good.reviewsOf(evidence.FNR, settings)
	truth := good.risk(evidence.FNR)
	limit := runLength(good, settings, b.between) / weightFNR
	type run struct {
		alarms    [3]bool // by how it is read
		estimates [3]evidence.Estimate
	}
	runs := each(b, b.runs, func(rng *rand.Rand) (f run) {
		var alarms [3]*evidence.Alarm
		for i := range alarms {
			alarms[i] = r.newAlarm(evidence.FNR, lineFactor*truth, limit)
			f.estimates[i].Of = evidence.FNR
		}
		reads := func(critical bool) bool { return critical || rng.Float64() < mislabelled }
		for range outcomesOfARun {
			in := *r.draw(rng)
			read := [3]bool{in.critical, reads(in.critical)}
			read[2] = read[1]
			if read[2] && in.calledSafe && !reads(in.critical) {
				read[2] = reads(in.critical)
			}
			for i, critical := range read {
				in.critical = critical
				alarms[i].Observe(in.observation())
				f.estimates[i].Observe(in.observation())
			}
		}
		for i, a := range alarms {
			f.alarms[i] = a.Raised()
		}
		return f
	})
	cells := []string{s.name}
	var raised [3]int
	cleared := 0
	for _, f := range runs {
		for i := range raised {
			raised[i] += btoi(f.alarms[i])
		}
		// Correcting every mistake makes the outcomes those of the reader without any.
		cleared += btoi(f.alarms[1] && !f.alarms[0])
	}
	for _, n := range raised {
		cells = append(cells, share(n, len(runs)))
	}
	for i := range raised {
		if i == 0 {
			cells = append(cells, number(truth))
			continue
		}
		var values []float64
		for _, f := range runs {
			values = append(values, f.estimates[i].Value())
		}
		average, _ := mean(values)
		cells = append(cells, number(average))
	}
	t.add(append(cells, share(cleared, raised[1]))...)
}

// unreported gives the share of missed inputs whose outcome never comes.
const unreported = 0.3

var missingColumns = []string{"truth", "estimate", "with the overdue as not missed, as missed", "overdue among audits",
	"doublings caught within three times the audits that catch 90% with all outcomes"}

// measureMissing leaves out some missed inputs, where the FNR is twice the line. The others come.
func measureMissing(b *bench, s *study, t *table) {
	good, settings := s.with(mixed)
	line := lineFactor * good.risk(evidence.FNR)
	bad := good.withFNR(2 * line)
	if bad == nil {
		t.add(s.name, none, none, none, none, none)
		return
	}
	limit := runLength(good, settings, b.between) / weightFNR
	complete, _ := b.delays(good, bad, line, s, mixed, limit)
	horizon := 3 * quantile(complete, 0.9)
	before, after := good.reviewsOf(evidence.FNR, settings), bad.reviewsOf(evidence.FNR, settings)
	type run struct {
		caught          bool
		came, low, high evidence.Estimate
		overdue, audits float64
	}
	runs := each(b, b.runs, func(rng *rand.Rand) (f run) {
		f.came.Of, f.low.Of, f.high.Of = evidence.FNR, evidence.FNR, evidence.FNR
		alarm := before.newAlarm(evidence.FNR, line, limit)
		for range goodOutcomes {
			if in := before.draw(rng); !in.missed() || rng.Float64() >= unreported {
				alarm.Observe(in.observation())
			}
		}
		for n := 0; f.audits < horizon || n < outcomesOfARun; n++ {
			in := after.draw(rng)
			o := in.observation()
			f.audits += float64(btoi(in.paid))
			f.high.Observe(o)
			if in.missed() && rng.Float64() < unreported {
				f.overdue++
				o.Missed = false
				f.low.Observe(o)
				continue
			}
			f.low.Observe(o)
			f.came.Observe(o)
			if alarm.Observe(o); alarm.Raised() && f.audits <= horizon {
				f.caught = true
			}
		}
		return f
	})
	caught := 0
	var came, low, high, overdue []float64
	for _, f := range runs {
		caught += btoi(f.caught)
		came, low, high = append(came, f.came.Value()), append(low, f.low.Value()), append(high, f.high.Value())
		overdue = append(overdue, f.overdue/f.audits)
	}
	average := func(values []float64) float64 { m, _ := mean(values); return m }
	t.add(s.name, number(2*line), number(average(came)), number(average(low))+" to "+number(average(high)),
		percent(average(overdue)), share(caught, len(runs)))
}

package main

import (
	"bytes"
	"encoding/hex"
	"fmt"
	"math"
	"math/rand/v2"

	"github.com/ckd-project/ckd/outcome/audit"
	"github.com/ckd-project/ckd/outcome/evidence"
	"github.com/ckd-project/ckd/outcome/receipt"
	"github.com/ckd-project/ckd/policy"
)

// auditing draws as the daemon does.
type auditing struct {
	study   *study
	auditor *audit.Auditor
	key     *receipt.DrawKey
}

func (s *study) auditing(a policy.Audit) *auditing {
	p := *s.policy
	p.Audit = &a
	keys, err := receipt.ParseKeys("key", []byte(hex.EncodeToString(bytes.Repeat([]byte{7}, 32))))
	if err != nil {
		panic(err) // of a constant
	}
	return &auditing{study: s, auditor: audit.NewAuditor(&p), key: keys.DrawKey()}
}

// draw returns an input as it was drawn, and what was drawn.
func (a *auditing) draw(now int64, in *input, id []byte) (input, audit.Drawn) {
	t := a.study.table
	drawn := a.auditor.Draw(a.key, now, s2d(in.retained), !in.calledSafe, in.risk, id, t.Passes, t.Mean[in.row*t.K:(in.row+1)*t.K])
	as := *in
	as.propensity = float64(drawn.Propensity)
	return as, drawn
}

var repeatColumns = []string{"places of a batch ever audited, ids alone decide", "id and passes decide",
	"false alarms to those stated, each input sent three times: all count", "the first counts", "without ids"}

// measureRepeats has clients that number the inputs of each batch from 0, and clients that send each
// input three times.
func measureRepeats(b *bench, s *study, t *table) {
	traffic, settings := s.with(uniform)
	inputs := newAlias(traffic.weights)
	const batch, batches = 100, 2000
	rng := rand.New(rand.NewPCG(b.seed, 2))
	a := s.auditing(settings)
	byID, byPasses := map[int]bool{}, map[int]bool{}
	fixed := &s.traffic.inputs[0] // an id alone decides as if all inputs were the same
	for range batches {
		for i := range batch {
			in := &traffic.inputs[inputs.draw(rng)]
			id := fmt.Append(nil, i)
			if as := *in; as.retained && as.calledSafe {
				_, drawn := a.draw(0, in, id)
				byPasses[i] = byPasses[i] || drawn.Review
				as.row = fixed.row
				_, drawn = a.draw(0, &as, id)
				byID[i] = byID[i] || drawn.Review
			}
		}
	}
	seen := func(by map[int]bool) string {
		n := 0
		for _, v := range by {
			n += btoi(v)
		}
		return fmt.Sprintf("%d of %d", n, batch)
	}
	cells := []string{s.name, seen(byID), seen(byPasses)}
	for _, how := range []repeats{allCount, firstCounts, withoutIDs} {
		cells = append(cells, number(b.falseAlarms(s, traffic, settings, how)))
	}
	t.add(cells...)
}

// repeats says what becomes of inputs that are sent three times.
type repeats int

const (
	allCount repeats = iota
	firstCounts
	withoutIDs
)

// falseAlarms returns how many times as often as stated an alarm is false on the line, for a short
// run length.
func (b *bench) falseAlarms(s *study, t *traffic, settings policy.Audit, how repeats) float64 {
	const stated, cut = 2000, 4 * 2000
	line := t.risk(evidence.FNR)
	inputs := newAlias(t.weights)
	hits, _ := leastPropensities(settings)
	total, alarms := 0., 0.
	type run struct {
		length float64
		alarm  bool
	}
	for _, r := range each(b, b.runs/4, func(rng *rand.Rand) (r run) {
		a := s.auditing(settings)
		alarm := evidence.NewAlarm(evidence.FNR, line, stated)
		alarm.BeginCohort(hits)
		counted := map[uint64]bool{} // by hash of the draw
		for !alarm.Raised() && alarm.Steps() < cut {
			in := &t.inputs[inputs.draw(rng)]
			id := fmt.Append(nil, rng.Uint64())
			for range 3 {
				if how == withoutIDs {
					id = fmt.Append(nil, rng.Uint64()) // draws at random, as without one
				}
				as, drawn := a.draw(0, in, id)
				if !drawn.Review && !drawn.Free || how == firstCounts && counted[drawn.Hash] {
					continue
				}
				counted[drawn.Hash] = true
				alarm.Observe(as.observation())
			}
		}
		return run{float64(alarm.Steps()), alarm.Raised()}
	}) {
		total += r.length
		alarms += float64(btoi(r.alarm))
	}
	return alarms / total * stated // alarms of a Poisson process: censored runs count with their length
}

var capColumns = []string{"cap, audits an hour", "without: quiet and busy hours", "with", "truth", "estimate", "all-day interval holds"}

// measureCap has six busy hours a day, with four times as many inputs and twice the FNR, and a cap of
// the audits that a quiet hour needs.
func measureCap(b *bench, s *study, t *table) {
	const days, quietInputs, busy = 2, 1000, 4
	without, settings := s.with(mixed)
	bad := without.withFNR(min(2*without.risk(evidence.FNR), 0.95))
	if bad == nil {
		bad = without
	}
	rate := without.reviewsOf(evidence.FNR, settings)
	capped := mixed
	capped.cap = math.Ceil(quietInputs * rate.paid)
	_, settings = s.with(capped)
	hits, misses := leastPropensities(settings)
	quiet, rush := newAlias(without.weights), newAlias(bad.weights)
	m1, c1 := without.rates(evidence.FNR)
	m2, c2 := bad.rates(evidence.FNR)
	truth := (18*m1 + 6*busy*m2) / (18*c1 + 6*busy*c2)
	type run struct {
		estimate    evidence.Estimate
		holds       bool
		quiet, rush float64 // audits an hour
	}
	runs := each(b, b.runs/4, func(rng *rand.Rand) (f run) {
		a := s.auditing(settings)
		sequence := evidence.NewSequence(evidence.FNR, 0.95)
		sequence.BeginCohort(hits, misses)
		const hour = 3600 * 1_000_000
		for h := range days * 24 {
			from, n, audits := quiet, quietInputs, &f.quiet
			if h%24 >= 12 && h%24 < 18 {
				from, n, audits = rush, quietInputs*busy, &f.rush
			}
			for i := range n {
				in := &without.inputs[from.draw(rng)]
				as, drawn := a.draw(int64(h)*hour+int64(i)*hour/int64(n), in, fmt.Append(nil, rng.Uint64()))
				if drawn.Review || drawn.Free {
					sequence.Observe(as.observation())
				}
				*audits += float64(btoi(drawn.Review && as.retained))
			}
		}
		f.estimate = sequence.Estimate()
		f.holds = sequence.Contains(truth)
		return f
	})
	var estimates []evidence.Estimate
	var quietAudits, rushAudits float64
	holds := 0
	for _, f := range runs {
		estimates = append(estimates, f.estimate)
		quietAudits += f.quiet / float64(len(runs)) / (18 * days)
		rushAudits += f.rush / float64(len(runs)) / (6 * days)
		holds += btoi(f.holds)
	}
	t.add(s.name, number(capped.cap), fmt.Sprintf("%s, %s", number(quietInputs*rate.paid), number(busy*quietInputs*rate.paid)),
		fmt.Sprintf("%s, %s", number(quietAudits), number(rushAudits)), number(truth), biasOf(estimates, truth), share(holds, len(runs)))
}

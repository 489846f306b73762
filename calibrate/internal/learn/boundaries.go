package learn

import (
	"cmp"
	"context"
	"math"
	"slices"

	"github.com/ckd-project/ckd/policy/earlystop"
)

// bins is the number of places, in quantiles of the samples, where a boundary may lie.
const bins = 200

// bandwidth smooths boundaries over log t.
const bandwidth = 0.6

// induction finds the boundaries of samples, given the coefficients of each step.
type induction struct {
	samples *samples
	asks    []bool // by t-fewest
	// retain and defers hold the candidates of each step, at t-fewest, from low log-odds to high.
	retain, defers [][]candidate
	toGo           []float64 // per sample: passes and prices from here on
}

// candidate is a sample that a boundary at its value, or above, would stop.
type candidate struct {
	value  float64
	sample int32
	wrong  bool // if it is stopped
}

// boundary holds the two boundaries of a step.
type boundary struct{ retain, defers float64 }

// apart returns a boundary that is more cautious by a margin of the log-odds.
func apart(atMost, margin float64) float64 { return rounded(bounded(atMost - margin)) }

// bounded returns the closest number that a rule may have.
func bounded(v float64) float64 { return min(max(v, -earlystop.Never), earlystop.Never) }

func newInduction(ctx context.Context, s *samples, steps []earlystop.Step, asks []bool) (*induction, error) {
	in := &induction{samples: s, asks: asks, toGo: make([]float64, len(s.final))}
	for at := range steps {
		if err := ctx.Err(); err != nil {
			return nil, err
		}
		var retain, defers []candidate
		for i := 0; asks[at] && i < len(s.final); i++ {
			x := &s.statistics[at][i]
			if x.Held() { // never stops early
				continue
			}
			stopped := verdict{x.Values[earlystop.Own] > 0, s.critical[at][i]}
			side, to := &steps[at].Retain, &retain
			if stopped.defers {
				side, to = &steps[at].Defer, &defers
			}
			*to = append(*to, candidate{side.LogOdds(x), int32(i), stopped.differs(s.final[i])})
		}
		ascending := func(a, b candidate) int {
			return cmp.Or(cmp.Compare(a.value, b.value), cmp.Compare(a.sample, b.sample))
		}
		slices.SortFunc(retain, ascending)
		slices.SortFunc(defers, ascending)
		in.retain, in.defers = append(in.retain, retain), append(in.defers, defers)
	}
	return in, nil
}

// boundaries returns the boundaries for a price of a disagreement, in passes.
func (in *induction) boundaries(price float64) []boundary {
	cuts := make([]boundary, len(in.retain))
	clear(in.toGo)
	for at := len(cuts) - 1; at >= 0; at-- {
		for i := range in.toGo {
			in.toGo[i]++
		}
		cuts[at] = boundary{-earlystop.Never, -earlystop.Never}
		if !in.asks[at] {
			continue
		}
		if n := in.stop(in.retain[at], price); n > 0 {
			cuts[at].retain = in.retain[at][n-1].value
		}
		if n := in.stop(in.defers[at], price); n > 0 {
			cuts[at].defers = in.defers[at][n-1].value
		}
	}
	smooth(cuts, in.asks, in.samples.fewest)
	return cuts
}

// stop returns how many candidates to stop, from the first on, so that the cost is least against
// going on. It updates the cost to go of the samples that it stops.
func (in *induction) stop(all []candidate, price float64) int {
	cost := func(c candidate) float64 {
		if c.wrong {
			return price
		}
		return 0
	}
	least, sum, stopped := 0.0, 0.0, 0
	for i, c := range all {
		sum += cost(c) - in.toGo[c.sample]
		end := i+1 == len(all) || (i+1)*bins/len(all) > i*bins/len(all)
		if tied := i+1 < len(all) && all[i+1].value == c.value; sum < least && end && !tied {
			least, stopped = sum, i+1
		}
	}
	for _, c := range all[:stopped] {
		in.toGo[c.sample] = cost(c)
	}
	return stopped
}

// smooth smooths boundaries by local linear regression on log t. A step without one counts as if it
// had a boundary one unit below the most cautious.
func smooth(cuts []boundary, asks []bool, fewest int) {
	var logs, retain, defers []float64
	for i, c := range cuts {
		if asks[i] {
			logs = append(logs, math.Log(float64(fewest+i)))
			retain, defers = append(retain, c.retain), append(defers, c.defers)
		}
	}
	smoothed(retain, logs)
	smoothed(defers, logs)
	for i := range cuts {
		if asks[i] {
			cuts[i] = boundary{retain[0], defers[0]}
			retain, defers = retain[1:], defers[1:]
		}
	}
}

func smoothed(values, logs []float64) {
	lowest, known := math.Inf(1), 0
	for _, v := range values {
		if v > -earlystop.Never {
			lowest = min(lowest, v)
			known++
		}
	}
	if known < 3 {
		return
	}
	y := make([]float64, len(values))
	for i, v := range values {
		y[i] = max(v, lowest-1)
	}
	for i := range values {
		var w0, wt, wy float64
		for j, v := range y {
			w := kernel(logs[j] - logs[i])
			w0, wt, wy = w0+w, wt+w*logs[j], wy+w*v
		}
		meanT, meanY := wt/w0, wy/w0
		var tt, ty float64
		for j, v := range y {
			w, d := kernel(logs[j]-logs[i]), logs[j]-meanT
			tt, ty = tt+w*d*d, ty+w*d*(v-meanY)
		}
		values[i] = meanY + ty/max(tt, 1e-9)*(logs[i]-meanT)
	}
}

func kernel(d float64) float64 { return math.Exp(-d * d / (2 * bandwidth * bandwidth)) }

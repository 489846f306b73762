package eval

import (
	"context"
	"math"
	"math/rand/v2"
	"runtime"
	"slices"
	"sync/atomic"

	"golang.org/x/sync/errgroup"

	"github.com/ckd-project/ckd/policy"
)

// samples holds the figures of one ranking, an entry for each resample.
type samples struct {
	ausc, auscPaper                      []Figure // AUSC of the critical FNR
	criticalFNR, criticalError, accuracy []Figure // at the coverage
}

// bootstrap draws o.Bootstrap resamples of all inputs, with replacement, and walks every ranking
// over each of them. All rankings see the same resamples. Each resample has a random generator of
// its own, so that the result does not depend on how many run at once.
//
// With groups, as many groups are drawn as there are, each with all of its inputs. Resamples then
// differ in their number of inputs, and have coverages of their own.
//
// Keys are not computed again: the keys of gates, which are quantiles, and of policies stay those of
// the whole recording. A resample sorts nothing and allocates nothing.
func bootstrap(ctx context.Context, rankings []*ranking, inputs []outcome, g *grid, grouped *groups, o Options) ([]samples, error) {
	all := make([]samples, len(rankings))
	for r := range all {
		all[r] = newSamples(o.Bootstrap)
	}
	var next, done atomic.Int64
	var group errgroup.Group
	for range min(runtime.GOMAXPROCS(0), o.Bootstrap) {
		group.Go(func() error {
			resample := newResample(inputs, grouped)
			g := *g
			counted, from := make([][coverages + 1]counts, len(rankings)), make(map[policy.Scope]int)
			for {
				b := int(next.Add(1)) - 1
				if b >= o.Bootstrap {
					return nil
				}
				if err := ctx.Err(); err != nil {
					return err
				}
				resample.draw(o.Seed, uint64(b))
				g.fit(len(resample.drawn), o.Coverage)
				for r, ranking := range rankings {
					g.walk(ranking.order, ranking.ties, resample.times, &counted[r])
				}
				rangeOf(rankings, &g, counted, from)
				for r, ranking := range rankings {
					all[r].set(b, &g, &counted[r], from[ranking.Scope])
				}
				if d := done.Add(1); o.Progress != nil {
					o.Progress(int(d), o.Bootstrap)
				}
			}
		})
	}
	return all, group.Wait()
}

// rangeOf sets, for each scope, the number of the coverage from which on all of its rankings retain
// critical inputs. Rankings of scores that the paper lacks do not count.
func rangeOf(rankings []*ranking, g *grid, counted [][coverages + 1]counts, from map[policy.Scope]int) {
	clear(from)
	for r, ranking := range rankings {
		if !beyondPaper(ranking.Name) {
			from[ranking.Scope] = max(from[ranking.Scope], g.definedFrom(&counted[r]))
		}
	}
}

// resample draws inputs, and holds the memory for it.
type resample struct {
	source *rand.PCG
	random *rand.Rand
	inputs []outcome // all inputs that resamples are drawn from
	groups *groups   // that are drawn whole; nil to draw inputs
	drawn  []int32   // inputs as they were drawn
	times  []outcome // inputs with how often they were drawn
}

func newResample(inputs []outcome, grouped *groups) *resample {
	source := rand.NewPCG(0, 0)
	return &resample{
		source: source, random: rand.New(source), inputs: inputs, groups: grouped,
		drawn: make([]int32, 0, len(inputs)), times: make([]outcome, len(inputs)),
	}
}

func (r *resample) draw(seed, b uint64) {
	r.source.Seed(seed, b)
	copy(r.times, r.inputs)
	r.drawn = r.drawn[:0]
	if r.groups == nil {
		for range r.inputs {
			r.drawn = append(r.drawn, r.random.Int32N(int32(len(r.inputs))))
		}
	} else {
		members := r.groups.members
		for range members {
			r.drawn = append(r.drawn, members[r.random.Int32N(int32(len(members)))]...)
		}
	}
	for _, i := range r.drawn {
		r.times[i] += drawn
	}
}

func newSamples(n int) samples {
	column := func() []Figure { return make([]Figure, n) }
	return samples{column(), column(), column(), column(), column()}
}

// set computes the figures of resample b. AUSC is taken from coverage number from on.
func (s *samples) set(b int, g *grid, counted *[coverages + 1]counts, from int) {
	s.ausc[b] = g.area(counted, from, counts.criticalFNR)
	s.auscPaper[b] = undefined
	if counted[g.cut(coverages-1)].critical > 0 {
		s.auscPaper[b] = g.area(counted, 0, counts.paperFNR)
	}
	s.criticalFNR[b] = counted[g.requested].criticalFNR()
	s.criticalError[b] = counted[g.requested].criticalError()
	s.accuracy[b] = 1 - counted[g.requested].errorRate()
}

// interval returns the mean, the standard deviation and the 95% interval of a figure over the
// resamples in which it is defined.
func interval(figures []Figure) Interval {
	values := defined(figures)
	if len(values) == 0 {
		return Interval{undefined, undefined, undefined, undefined}
	}
	average, sd := Figure(mean(values)), Figure(sampleSD(values))
	slices.Sort(values)
	return Interval{Mean: average, SD: sd, Low: Figure(quantile(values, 0.025)), High: Figure(quantile(values, 0.975))}
}

// winShares sets Bootstrap.WinShare of the rows of one scope.
func winShares(rows []*Row, isScore func(*Row) bool, resamples int) {
	wins, contests := make([]float64, len(rows)), 0
	for b := range resamples {
		lowest, winners := Figure(math.Inf(1)), 0
		for _, row := range rows {
			if a := row.Bootstrap.Samples[b]; isScore(row) && a < lowest {
				lowest, winners = a, 1
			} else if isScore(row) && a == lowest {
				winners++
			}
		}
		if winners == 0 { // nothing is defined
			continue
		}
		contests++
		for r, row := range rows {
			switch a := row.Bootstrap.Samples[b]; {
			case isScore(row) && a == lowest:
				wins[r] += 1 / float64(winners)
			case !isScore(row) && a < lowest:
				wins[r]++
			}
		}
	}
	for r, row := range rows {
		row.Bootstrap.WinShare = quotient(wins[r], float64(contests))
	}
}

// pairwise compares every two rows of one scope by their areas.
func pairwise(rows []*Row) []Pairwise {
	all := []Pairwise{}
	for _, row := range rows {
		for _, column := range rows {
			if row == column {
				continue
			}
			lower, both := 0, 0
			for b, a := range row.Bootstrap.Samples {
				other := column.Bootstrap.Samples[b]
				both += index(a.Defined() && other.Defined())
				lower += index(a < other)
			}
			all = append(all, Pairwise{Row: row.Name, Column: column.Name, Scope: row.Scope, P: per(lower, both)})
		}
	}
	return all
}

package calibrate

import (
	"context"
	"math/rand/v2"
	"runtime"

	"golang.org/x/sync/errgroup"

	"github.com/ckd-project/ckd/policy"
)

// The cross-validation that rules are chosen by.
const (
	folds   = 5
	repeats = 5
)

// search compares the rules on a part of a sample.
type search struct {
	*sample
	part  part
	scope policy.Scope
	rules []rule
	notes []string // on the rules
	soft  *labels
	// f is the critical FNR that the path's costs are at.
	f    float64
	step func() // is told of every fold
}

// foldsOfSearch is how many folds one search holds out.
const foldsOfSearch = folds * repeats

// Random streams, so that no two draws of a run share one.
const (
	streamFolds = iota + 1
	streamSplit
	streamOuter
)

func newRand(seed, stream uint64) *rand.Rand { return rand.New(rand.NewPCG(seed, stream)) }

// estimate is what each rule retains of held-out folds, [rule][coverage], when
// its path was made on the other folds: summed over folds and repeats. The part
// is counted repeats times in all.
func (s *search) estimate(ctx context.Context, coverages []float64, seed uint64) ([][]counts, error) {
	var held []part
	rng := newRand(seed, streamFolds)
	for range repeats {
		held = append(held, s.foldsOf(s.part, folds, rng)...)
	}
	found := make([][][]counts, len(held))
	group, ctx := errgroup.WithContext(ctx)
	group.SetLimit(s.atOnce())
	for h, out := range held {
		group.Go(func() error {
			if err := ctx.Err(); err != nil {
				return err
			}
			found[h] = s.holdOut(out, coverages)
			s.step()
			return nil
		})
	}
	if err := group.Wait(); err != nil {
		return nil, err
	}
	sum := found[0]
	for _, one := range found[1:] {
		for r := range sum {
			for c := range sum[r] {
				sum[r][c].add(one[r][c])
			}
		}
	}
	return sum, nil
}

// atOnce is how many folds are held out at a time: as many as there are
// processors, as far as their columns fit into a budget.
func (s *search) atOnce() int {
	const (
		budget        = 1 << 30 // bytes
		bytesPerInput = 1 << 10 // some 25 columns of four numbers
	)
	return max(1, min(runtime.GOMAXPROCS(0), budget/(bytesPerInput*max(s.part.n, 1))))
}

// holdOut makes paths on the part without a fold and counts on the fold.
func (s *search) holdOut(out part, coverages []float64) [][]counts {
	rest := s.part.without(out)
	fitted := s.columnsOf(rest, s.scope, s.rules, s.soft, true, s.f)
	counted := s.columnsOf(out, s.scope, s.rules, s.soft, false, 0)
	inRest, inOut := s.fixedOf(rest, s.scope, s.soft), s.fixedOf(out, s.scope, s.soft)
	found := make([][]counts, len(s.rules))
	flat := make([]counts, len(s.rules)*len(coverages))
	for i, r := range s.rules {
		found[i] = flat[i*len(coverages) : (i+1)*len(coverages)]
		for c, coverage := range coverages {
			found[i][c] = counted.count(r, fitted.fit(r, inRest.decided(coverage, rest)))
			found[i][c].add(inOut.retained)
		}
	}
	return found
}

// path of a rule, made on the whole part: its thresholds at a coverage.
func (s *search) path(r rule) func(coverage float64) thresholds {
	fitted := s.columnsOf(s.part, s.scope, []rule{r}, s.soft, true, s.f)
	in := s.fixedOf(s.part, s.scope, s.soft)
	return func(coverage float64) thresholds { return fitted.fit(r, in.decided(coverage, s.part)) }
}

// foldsOf a part: random, with the missed and the other critical inputs shared
// out evenly.
func (s *sample) foldsOf(p part, k int, rng *rand.Rand) []part {
	inFolds := make([][]int, k)
	at := 0
	for _, stratum := range s.strata(p, rng) {
		for _, i := range stratum {
			inFolds[at%k] = append(inFolds[at%k], i)
			at++
		}
	}
	parts := make([]part, k)
	for f, inputs := range inFolds {
		parts[f] = s.partOf(inputs)
	}
	return parts
}

// strata of a part, shuffled: missed, critical but not missed, the others.
func (s *sample) strata(p part, rng *rand.Rand) (strata [3][]int) {
	for _, i := range p.inputs() {
		switch {
		case s.missed[i]:
			strata[0] = append(strata[0], i)
		case s.critical[i]:
			strata[1] = append(strata[1], i)
		default:
			strata[2] = append(strata[2], i)
		}
	}
	for _, stratum := range strata {
		rng.Shuffle(len(stratum), func(a, b int) { stratum[a], stratum[b] = stratum[b], stratum[a] })
	}
	return strata
}

// without is the part less another one inside it.
func (p part) without(out part) part {
	rest := part{make([]bool, len(p.of)), p.n - out.n}
	for i, in := range p.of {
		rest.of[i] = in && !out.of[i]
	}
	return rest
}

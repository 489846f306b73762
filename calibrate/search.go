package calibrate

import (
	"cmp"
	"context"
	"math"
	"math/rand/v2"
	"runtime"

	"golang.org/x/sync/errgroup"

	"github.com/ckd-project/ckd/policy"
)

// Candidates are chosen by repeated cross-validation.
const (
	folds   = 5
	repeats = 5
)

// search compares the candidates on a part of a sample.
type search struct {
	*sample
	part       part
	scope      policy.Scope
	candidates []candidate
	notes      []string // notes on the rules
	soft       *labels
	*fitted
	// counted are the labels of which held-out folds are counted; soft if nil.
	counted *labels
	// f is the critical FNR at which threshold curves weigh costs.
	f    float64
	step func() // called after every fold
}

// foldsOfSearch is the number of folds that one search holds out.
const foldsOfSearch = folds * repeats

// Random streams have numbers of their own, so that no two draws of a run share one.
const (
	streamFolds = iota + 1
	streamSplit
	streamOuter
)

func newRand(seed, stream uint64) *rand.Rand { return rand.New(rand.NewPCG(seed, stream)) }

// estimate returns what each candidate retains of held-out folds, as [candidate][coverage], with
// curves made on the other folds. Counts are summed over folds and repeats, so that they count the
// part as often as there are repeats.
func (s *search) estimate(ctx context.Context, coverages []float64, seed uint64) ([][]counts, error) {
	found := make([][][]counts, foldsOfSearch)
	err := s.eachFold(ctx, seed, func(h int, out part) {
		found[h] = s.holdOut(out, coverages)
		s.step()
	})
	if err != nil {
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

// eachFold calls a function for each fold of each repeat, several at a time.
func (s *search) eachFold(ctx context.Context, seed uint64, each func(h int, out part)) error {
	var held []part
	rng := newRand(seed, streamFolds)
	for range repeats {
		held = append(held, s.foldsOf(s.part, folds, rng)...)
	}
	group, ctx := errgroup.WithContext(ctx)
	group.SetLimit(s.atOnce())
	for h, out := range held {
		group.Go(func() error {
			if err := ctx.Err(); err != nil {
				return err
			}
			each(h, out)
			return nil
		})
	}
	return group.Wait()
}

// atOnce returns how many folds to hold out at a time: one for each processor, if their columns fit
// into a budget.
func (s *search) atOnce() int {
	const (
		budget        = 1 << 30 // bytes
		bytesPerInput = 1 << 10 // some 25 columns of four numbers
	)
	return max(1, min(runtime.GOMAXPROCS(0), budget/(bytesPerInput*max(s.part.n, 1))))
}

// holdOut makes curves on the part without a fold, and counts on the fold.
func (s *search) holdOut(out part, coverages []float64) [][]counts {
	fitted := s.columnsOf(s.part.without(out), s.scope, s.candidates, s.soft, true, s.f)
	counted := s.columnsOf(out, s.scope, s.candidates, cmp.Or(s.counted, s.soft), false, 0)
	found := make([][]counts, len(s.candidates))
	flat := make([]counts, len(s.candidates)*len(coverages))
	for i, r := range s.candidates {
		found[i] = flat[i*len(coverages) : (i+1)*len(coverages)]
		for c, coverage := range coverages {
			found[i][c] = counted.count(r, fitted.at(r, coverage))
			found[i][c].add(counted.of[r.group()].retained)
		}
	}
	return found
}

// curve returns the threshold curve of a candidate, made on the whole part: thresholds by coverage.
func (s *search) curve(r candidate) func(coverage float64) thresholds {
	fitted := s.final.columnsOf(s.part, s.scope, []candidate{r}, s.soft, true, s.f)
	return func(coverage float64) thresholds { return fitted.at(r, coverage) }
}

// foldsOf parts a part at random, with the missed and the other critical inputs shared out evenly.
// Inputs of one group stay together.
func (s *sample) foldsOf(p part, k int, rng *rand.Rand) []part {
	members := s.members(p)
	inFolds := make([][]int, k)
	at := 0
	for _, stratum := range s.strata(p, rng) {
		for _, i := range stratum {
			inFolds[at%k] = append(inFolds[at%k], i)
			if members != nil {
				inFolds[at%k] = append(inFolds[at%k], members[s.group[i]][1:]...)
			}
			at++
		}
	}
	parts := make([]part, k)
	for f, inputs := range inFolds {
		parts[f] = s.partOf(inputs)
	}
	return parts
}

// strata returns the inputs of a part in three shuffled groups: missed, critical but not missed,
// and others. Of groups of inputs it returns the first input, by the worst of the group.
func (s *sample) strata(p part, rng *rand.Rand) (strata [3][]int) {
	put := func(i, stratum int) { strata[stratum] = append(strata[stratum], i) }
	stratum := func(i int) int {
		switch {
		case s.missed[i]:
			return 0
		case s.critical[i]:
			return 1
		}
		return 2
	}
	if members := s.members(p); members != nil {
		for _, inputs := range members {
			if len(inputs) == 0 {
				continue
			}
			worst := 2
			for _, i := range inputs {
				worst = min(worst, stratum(i))
			}
			put(inputs[0], worst)
		}
	} else {
		for _, i := range p.inputs() {
			put(i, stratum(i))
		}
	}
	for _, stratum := range strata {
		rng.Shuffle(len(stratum), func(a, b int) { stratum[a], stratum[b] = stratum[b], stratum[a] })
	}
	return strata
}

// without returns the part less another one inside it.
func (p part) without(out part) part {
	rest := part{make([]bool, len(p.of)), p.n - out.n}
	for i, in := range p.of {
		rest.of[i] = in && !out.of[i]
	}
	return rest
}

// split draws about a third of the inputs to choose on, by whole groups; the rest certifies. The
// draw is plain: if the critical inputs were shared out evenly, the parts would not be independent.
func (r *run) split() (chooses, certifies part) {
	const share = 1. / 3
	rng := newRand(r.Seed, streamSplit)
	var first []int
	if members := r.members(r.all()); members != nil {
		for _, g := range rng.Perm(r.groups)[:int(math.Round(share*float64(r.groups)))] {
			first = append(first, members[g]...)
		}
	} else {
		first = rng.Perm(r.n)[:int(math.Round(share*float64(r.n)))]
	}
	chooses = r.partOf(first)
	return chooses, r.all().without(chooses)
}

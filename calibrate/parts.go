package calibrate

import (
	"math"
	"math/rand/v2"
	"slices"
)

// part is a subset of the inputs of a sample.
type part struct {
	holds []bool
	n     int
}

// partOf returns the part of some inputs.
func (s *sample) partOf(inputs []int) part {
	p := part{make([]bool, s.n), len(inputs)}
	for _, i := range inputs {
		p.holds[i] = true
	}
	return p
}

func (s *sample) all() part {
	p := part{make([]bool, s.n), s.n}
	for i := range p.holds {
		p.holds[i] = true
	}
	return p
}

// inputs returns the inputs of the part, ascending.
func (p part) inputs() []int {
	inputs := make([]int, 0, p.n)
	for i, inside := range p.holds {
		if inside {
			inputs = append(inputs, i)
		}
	}
	return inputs
}

// count returns how many inputs of the part are marked.
func (p part) count(marks []bool) (n int) {
	for i, inside := range p.holds {
		n += index(inside && marks[i])
	}
	return n
}

// Random streams have numbers of their own, so that no two draws of a run share one.
const (
	streamSplit = iota + 2
	streamOuter
	streamRisk = 17
)

func newRand(seed, stream uint64) *rand.Rand { return rand.New(rand.NewPCG(seed, stream)) }

// foldsOf parts a part at random, with the missed and the other critical inputs shared out evenly.
// Inputs of one group stay together.
func (s *sample) foldsOf(p part, k int, rng *rand.Rand) []part {
	members := make([][]int, s.groups)
	for _, i := range p.inputs() {
		members[s.group[i]] = append(members[s.group[i]], i)
	}
	inFolds := make([][]int, k)
	at := 0
	for _, stratum := range s.strata(members, rng) {
		for _, group := range stratum {
			inFolds[at%k] = append(inFolds[at%k], members[group]...)
			at++
		}
	}
	parts := make([]part, k)
	for f, inputs := range inFolds {
		parts[f] = s.partOf(inputs)
	}
	return parts
}

// strata returns the groups that have members, shuffled: those with a missed input, those with a
// critical one that is not missed, and others.
func (s *sample) strata(members [][]int, rng *rand.Rand) (strata [3][]int) {
	for group, inputs := range members {
		worst := 2
		for _, i := range inputs {
			switch {
			case s.missed[i]:
				worst = 0
			case s.critical[i]:
				worst = min(worst, 1)
			}
		}
		if len(inputs) > 0 {
			strata[worst] = append(strata[worst], group)
		}
	}
	for _, stratum := range strata {
		rng.Shuffle(len(stratum), func(a, b int) { stratum[a], stratum[b] = stratum[b], stratum[a] })
	}
	return strata
}

// without returns the part less another one inside it.
func (p part) without(out part) part {
	rest := part{make([]bool, len(p.holds)), p.n - out.n}
	for i, inside := range p.holds {
		rest.holds[i] = inside && !out.holds[i]
	}
	return rest
}

// split draws about a third of the inputs to choose on, by whole groups; the rest certifies. The
// draw is plain: if the critical inputs were shared out evenly, the parts would not be independent.
func (r *run) split() (chooses, certifies part) {
	const share = 1. / 3
	drawn, _ := r.grouping.split(int(math.Round(share*float64(r.groups))), newRand(r.Seed, streamSplit))
	chooses = r.partOf(slices.Concat(drawn...))
	return chooses, r.all().without(chooses)
}

package audit

// What NewSampler sets.
const (
	DefaultFirst = 400
	DefaultShare = 0.02
	DefaultWary  = 0.2
)

// Sampler chooses the inputs that are audited. It has no state: the same seed and the
// same number always give the same answer, and a copy is as good as the original.
type Sampler struct {
	First uint64  // every input is audited that opens before there are so many verdicts
	Share float64 // of those after them, in [0, 1]
	// Wary is the share, in [0, 1], while the Watch is wary. All inputs that Share
	// chooses are chosen by a larger Wary too.
	Wary float64
	Seed uint64
}

// NewSampler audits every input until there are 400 verdicts, then 2%, and 20% while the
// Watch is wary.
func NewSampler(seed uint64) Sampler {
	return Sampler{First: DefaultFirst, Share: DefaultShare, Wary: DefaultWary, Seed: seed}
}

// Audits reports whether input n of a policy, counted from 0, is audited, given the
// verdicts that there are when it opens. Audits that are under way, or lost, are none:
// what has not been seen vouches for nothing.
//
// Inputs are numbered as they open, only those that may settle, and before their first
// pass: then the answer cannot depend on the passes. Any numbering without repetition
// will do for the share, as that of shards which each take blocks of numbers.
func (s Sampler) Audits(n, verdicts uint64, wary bool) bool {
	if verdicts < s.First {
		return true
	}
	share := s.Share
	if wary {
		share = max(share, s.Wary)
	}
	return float64(splitmix(s.Seed, n)>>11)/(1<<53) < share
}

// splitmix is the output n, from 0, of the generator SplitMix64: Steele, Lea and Flood,
// "Fast splittable pseudorandom number generators", OOPSLA 2014, figure 17.
func splitmix(seed, n uint64) uint64 {
	z := seed + (n+1)*0x9e3779b97f4a7c15
	z = (z ^ z>>30) * 0xbf58476d1ce4e5b9
	z = (z ^ z>>27) * 0x94d049bb133111eb
	return z ^ z>>31
}

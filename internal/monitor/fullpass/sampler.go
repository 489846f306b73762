package fullpass

// These are the settings of NewSampler.
const (
	defaultFirst = 400
	defaultShare = 0.02
	defaultWary  = 0.2
)

// Sampler chooses the inputs that are checked. It has no state: the same seed and number always
// give the same answer.
type Sampler struct {
	First uint64  // inputs that open before there are this many verdicts are all checked
	Share float64 // share of later inputs that are checked, in [0, 1]
	// Wary replaces a smaller Share while the Watch is wary, in [0, 1]. The inputs that Share
	// chooses stay chosen.
	Wary float64
	Seed uint64
}

// NewSampler returns a Sampler that checks every input until there are 400 verdicts, then 2%, and
// 20% while the Watch is wary.
func NewSampler(seed uint64) Sampler {
	return Sampler{First: defaultFirst, Share: defaultShare, Wary: defaultWary, Seed: seed}
}

// Checks reports whether input n of a policy, counted from 0, is checked, given the number of
// verdicts when it opens. Checks that are under way or lost do not count as verdicts.
//
// Number inputs as they open, before their first pass, and only those that may be stopped early:
// then the answer cannot depend on the passes. Any numbering without repetition gives the right
// share, such as that of shards which each take blocks of numbers.
func (s Sampler) Checks(n, verdicts uint64, wary bool) bool {
	if verdicts < s.First {
		return true
	}
	share := s.Share
	if wary {
		share = max(share, s.Wary)
	}
	return float64(splitmix(s.Seed, n)>>11)/(1<<53) < share
}

// splitmix returns output n, from 0, of the generator SplitMix64: Steele, Lea and Flood, "Fast
// splittable pseudorandom number generators", OOPSLA 2014, figure 17.
func splitmix(seed, n uint64) uint64 {
	z := seed + (n+1)*0x9e3779b97f4a7c15
	z = (z ^ z>>30) * 0xbf58476d1ce4e5b9
	z = (z ^ z>>27) * 0x94d049bb133111eb
	return z ^ z>>31
}

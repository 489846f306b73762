package promise

import (
	"slices"

	"github.com/ckd-project/ckd/internal/outcome/evidence"
	"github.com/ckd-project/ckd/internal/outcome/truth"
)

// level is the confidence of every interval.
const level = 0.95

// A sequences holds the confidence sequence of each watch, over the outcomes as they are now.
//
// Critical miss rates have one always, critical FNRs only where they have a line.
type sequences struct {
	byWatch map[Watch]*bounds
	fnrs    []Watch  // those that have a line
	pooled  bool     // neither of classes nor of slices
	bets    Settings // of the cohort at hand
}

// bounds is a confidence sequence, taken both ways where sources disagree. Both ways are one until
// they first do.
type bounds struct {
	best, worst *evidence.Sequence
}

func newSequences(pooled bool, fnrs []Watch) *sequences {
	return &sequences{byWatch: make(map[Watch]*bounds), pooled: pooled, fnrs: fnrs}
}

func (s *sequences) clone() *sequences {
	c := &sequences{byWatch: make(map[Watch]*bounds, len(s.byWatch)), pooled: s.pooled, fnrs: s.fnrs, bets: s.bets}
	for w, b := range s.byWatch {
		copied := &bounds{best: b.best.Clone()}
		if b.worst != nil {
			copied.worst = b.worst.Clone()
		}
		c.byWatch[w] = copied
	}
	return c
}

// take adds the outcomes of a cohort.
func (s *sequences) take(t *truth.Terms, bets Settings, taken steps) error {
	s.bets = bets
	for _, b := range s.byWatch {
		b.begin(bets)
	}
	return taken.each(func(bool, uint64) {}, func(critical *step) { s.observe(t, critical) }) // an uncritical input moves no limit
}

func (b *bounds) begin(s Settings) {
	b.best.BeginCohort(s.Hit, s.Miss) // a deferred input has 1, which is no less
	if b.worst != nil {
		b.worst.BeginCohort(s.Hit, s.Miss)
	}
}

// observe adds a critical step to all sequences that it is of.
func (s *sequences) observe(t *truth.Terms, critical *step) {
	missRate := func(w Watch, class int) {
		w.Risk = evidence.MissRate
		s.add(w, class, critical)
	}
	missRate(Watch{}, -1)
	for _, w := range s.fnrs {
		class, _ := w.classIn(t)
		s.add(w, class, critical)
	}
	if s.pooled {
		return
	}
	for i, slice := range critical.slices {
		if slice != 0 && !slices.Contains(critical.slices[:i], slice) {
			missRate(Watch{Slice: slice}, -1)
		}
	}
	missRate(Watch{Class: t.Policy.Classes[critical.Critical]}, critical.Critical)
	for _, k := range critical.Others {
		missRate(Watch{Class: t.Policy.Classes[k]}, k)
	}
}

func (s *sequences) add(w Watch, class int, critical *step) {
	b := s.byWatch[w]
	if b == nil {
		b = &bounds{best: evidence.NewSequence(w.Risk, level)}
		b.begin(s.bets)
		s.byWatch[w] = b
	}
	best, worst := critical.Observation(class, false), critical.Observation(class, true)
	if best != worst && b.worst == nil {
		b.worst = b.best.Clone()
	}
	b.best.Observe(best)
	if b.worst != nil {
		b.worst.Observe(worst)
	}
}

// interval returns the limits of a watch; 0 and 1 while nothing is known.
func (s *sequences) interval(w Watch) (low, high float64) {
	b := s.byWatch[w]
	if b == nil {
		return 0, 1
	}
	low, high = b.best.Interval()
	if b.worst != nil {
		_, high = b.worst.Interval()
	}
	return low, high
}

// estimate returns the estimate of a watch, NaN while nothing is known.
func (s *sequences) estimate(w Watch) evidence.Estimate {
	if b := s.byWatch[w]; b != nil {
		return b.best.Estimate()
	}
	return evidence.Estimate{Of: w.Risk}
}

package ledger

import (
	"math"
	"slices"
	"time"

	"github.com/ckd-project/ckd/internal/outcome/evidence"
	"github.com/ckd-project/ckd/internal/outcome/receipt"
)

// endOfTime is after every report.
var endOfTime = time.UnixMicro(math.MaxInt64)

// A finding is what the readings of a decision add up to.
type finding struct {
	// known says that there is a truth. It rests on readings that count, or on a biopsy or follow-up.
	known bool
	kind  Kind // how it was found
	// critical and safe are the classes by which the truth may be either; a class is -1 where the
	// truth is not of that side. Both are given where readers disagree.
	critical, safe int
	// others holds further critical classes that as many readers named.
	others []int
	want   Want
	// wanted says that a second reading was to be had, whether or not it has come.
	wanted bool
	// first and second are the first two readings that count, of different sources; nil for none.
	first, second *Said
	sighted       bool // some reading stays apart, since the reader had seen the model's answer
	sightedFirst  *Said
	time          time.Time // when the truth was first found
}

// disputed reports whether readers disagree whether the input is critical.
func (f *finding) disputed() bool { return f.known && f.critical >= 0 && f.safe >= 0 }

// class returns the true class for tables: of disputed ones that of the first reading.
func (f *finding) class() int {
	switch {
	case f.critical < 0:
		return f.safe
	case f.safe >= 0 && f.first.Truth != f.critical && !slices.Contains(f.others, f.first.Truth):
		return f.safe
	}
	return f.critical
}

// calledCritical reports whether the model called the input critical.
func (t *terms) calledCritical(r *receipt.Receipt) bool { return t.critical[int(r.Predicted)] }

// reviewed reports whether the outcome has a weight: a person was to look at the input with a known
// probability.
func reviewed(r *receipt.Receipt) bool {
	return r.Propensity > 0 && r.Propensity <= 1 && (r.Review || r.Stratum == receipt.CalledCritical && r.Propensity == 1)
}

// counts reports whether a reading takes part in the truth. Of drawn audits only blind ones do.
func (s *Said) counts(r *receipt.Receipt) bool {
	drawn := r.Review && r.Stratum != receipt.Deferred
	return s.Kind != Reading || !s.SawModel || !drawn
}

// find returns what the readings add up to that had been reported before a time.
func (t *terms) find(r *Record, before time.Time) finding {
	f := finding{critical: -1, safe: -1}
	var (
		readings [8]*Said
		counting = readings[:0]
		settled  *Said
	)
	standing(r.Readings, before, func(s *Said) {
		switch {
		case s.Kind != Reading:
			if settled == nil || s.Kind > settled.Kind || s.Kind == settled.Kind && s.after(settled) {
				settled = s
			}
		case s.counts(&r.Receipt):
			counting = append(counting, s)
		default:
			f.sighted = true
			if f.sightedFirst == nil || f.sightedFirst.after(s) {
				f.sightedFirst = s
			}
		}
	})
	slices.SortFunc(counting, func(a, b *Said) int {
		if a.after(b) {
			return 1
		}
		return -1
	})
	if len(counting) > 0 {
		f.first, f.known, f.time = counting[0], true, counting[0].At
	}
	if len(counting) > 1 {
		f.second = counting[1]
	}
	t.vote(&f, counting)
	if f.first != nil {
		f.wanted = r.Sampled || t.critical[f.first.Truth] && !t.calledCritical(&r.Receipt)
	}
	if settled != nil {
		f.known, f.kind = true, settled.Kind
		f.critical, f.safe, f.others, f.want = -1, -1, nil, WantNone
		if t.critical[settled.Truth] {
			f.critical = settled.Truth
		} else {
			f.safe = settled.Truth
		}
		if f.first == nil || settled.At.Before(f.time) {
			f.time = settled.At
		}
		return f
	}
	if f.want == WantNone && f.wanted && f.second == nil {
		f.want = WantSecond
	}
	return f
}

// standing calls each with the reading of each source and kind that stands, of those reported
// before a time. Readings are ordered by source, kind and time.
func standing(readings []Said, before time.Time, each func(*Said)) {
	var last *Said
	for i := range readings {
		s := &readings[i]
		if !s.Reported.Before(before) {
			continue
		}
		if last != nil && (last.Source != s.Source || last.Kind != s.Kind) {
			each(last)
		}
		last = s
	}
	if last != nil {
		each(last)
	}
}

// after orders readings by time, then by source.
func (s *Said) after(o *Said) bool {
	if c := s.At.Compare(o.At); c != 0 {
		return c > 0
	}
	return s.Source > o.Source
}

// vote finds the truth by majority: first whether the input is critical, then the class. Where
// readers are even about a critical class, a further reading is wanted.
func (t *terms) vote(f *finding, readings []*Said) {
	if len(readings) == 0 {
		return
	}
	critical := 0
	for _, s := range readings {
		if t.critical[s.Truth] {
			critical++
		}
	}
	if 2*critical >= len(readings) {
		f.critical, f.others = mostNamed(readings, func(s *Said) bool { return t.critical[s.Truth] })
	}
	if 2*critical <= len(readings) {
		f.safe, _ = mostNamed(readings, func(s *Said) bool { return !t.critical[s.Truth] })
	}
	if f.disputed() || len(f.others) > 0 {
		f.want = WantThird
	}
}

// mostNamed returns the class that most of some readings name, of several the one named first, and
// the others.
func mostNamed(readings []*Said, counts func(*Said) bool) (class int, others []int) {
	class, most := -1, 0
	for i, s := range readings {
		if !counts(s) {
			continue
		}
		named, before := 0, false
		for j, o := range readings {
			if o.Truth == s.Truth {
				named++
				before = before || j < i
			}
		}
		switch {
		case before:
		case named > most:
			class, most, others = s.Truth, named, nil
		case named == most:
			others = append(others, s.Truth)
		}
	}
	return class, others
}

// observe returns the observation of a decision for the pooled risks (class -1) or for one critical
// class. Where readers disagree it takes the way that makes the risk as large as possible, or as
// small.
func (t *terms) observe(r *Record, f *finding, class int, worst bool) evidence.Observation {
	c := &r.Receipt
	o := evidence.Observation{
		Retained:   c.Stratum != receipt.Deferred,
		Propensity: float64(c.Propensity),
	}
	could, must := f.critical >= 0, f.safe < 0
	if class >= 0 {
		must = must && f.critical == class && len(f.others) == 0
		could = f.critical == class || slices.Contains(f.others, class)
	}
	o.Missed = o.Retained && !t.calledCritical(c)
	o.Critical = could && (must || o.Missed == worst) // a hit makes the risk smaller
	o.Missed = o.Missed && o.Critical
	return o
}

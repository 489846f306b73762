package truth

import (
	"math"
	"slices"
	"time"
)

// Want says which further reading is wanted.
type Want uint8

// The wishes.
const (
	WantNone   Want = iota
	WantSecond      // by another source, which is not told the first reading
	WantThird       // two sources disagree: a third decides
)

// String returns the wish's name in JSON, or "" for none.
func (w Want) String() string { return [...]string{"", "second_read", "third_read"}[w] }

// EndOfTime is after every report.
var EndOfTime = time.UnixMicro(math.MaxInt64)

// A Finding is what the readings of a decision add up to.
type Finding struct {
	// Known says that there is a truth, and Kind how it was found.
	Known bool
	Kind  Kind
	// Critical and Safe are the classes by which the truth may be either; a class is -1 where the truth
	// is not of that side. Both are given where sources disagree.
	Critical, Safe int
	// Others holds further critical classes that as many readings named.
	Others []int
	Want   Want
	// Wanted says that a second reading was to be had, whether or not it has come.
	Wanted bool
	// First and Second are the first two readings that count, of different sources; nil for none.
	First, Second *Reading
	// Apart is the first reading that stays apart, since its reader had seen the model's answer; nil
	// for none.
	Apart *Reading
	// Missed says that some reading called the input critical, and the model did not; Withdrawn that
	// its source has then said otherwise.
	Missed, Withdrawn bool
	Time              time.Time // when the truth was first found
}

// Disputed reports whether sources disagree whether the input is critical.
func (f *Finding) Disputed() bool { return f.Known && f.Critical >= 0 && f.Safe >= 0 }

// Class returns the true class for tables: of disputed ones that of the first reading.
func (f *Finding) Class() int {
	switch {
	case f.Critical < 0:
		return f.Safe
	case f.Safe >= 0 && f.First.Truth != f.Critical && !slices.Contains(f.Others, f.First.Truth):
		return f.Safe
	}
	return f.Critical
}

// Find returns what the readings add up to that had been reported before a time.
//
// Of the readings of one source and kind the one with the latest At stands. Of an audit it is the
// latest of those that were reported first: what a source says after it was answered is sighted,
// whatever it states, and stays apart, as does all that is said to be. A majority of the standing
// readings decides. A biopsy or a follow-up outweighs readings, unless it speaks against a blind
// critical one: then the truth is disputed. Towards critical it also counts where its source has read
// the input before.
func (t *Terms) Find(d *Decision, before time.Time) Finding {
	f := Finding{Critical: -1, Safe: -1}
	var (
		readings [8]*Reading
		counting = readings[:0]
		settled  *Reading
	)
	audit := isAudit(&d.Receipt)
	var read *Reading // the first of the kind by its source, which was answered
	for said := range bySource(d.Readings, before) {
		stands := said.standing(audit)
		switch {
		case said[0].Kind == ByReading:
			read = said.first()
		case audit && read != nil && read.Source == said[0].Source && stands != nil && !t.Critical[stands.Truth] && stands.Reported.After(read.Reported):
			stands = nil // sighted, and towards the safe side
		}
		if !t.CalledCritical(&d.Receipt) {
			said.misses(t, &f)
		}
		if audit {
			said.apart(stands, &f)
		}
		switch {
		case stands == nil:
		case stands.Kind == ByReading:
			counting = append(counting, stands)
		case settled == nil || stands.Kind > settled.Kind || stands.Kind == settled.Kind && stands.after(settled):
			settled = stands
		}
	}
	slices.SortFunc(counting, func(a, b *Reading) int {
		if a.after(b) {
			return 1
		}
		return -1
	})
	if len(counting) > 0 {
		f.First, f.Known, f.Time = counting[0], true, counting[0].At
	}
	if len(counting) > 1 {
		f.Second = counting[1]
	}
	t.vote(&f, counting)
	f.Wanted = f.Missed || d.Sampled && f.First != nil
	if settled != nil {
		t.settle(&f, settled, counting)
	}
	if f.Want == WantNone && f.Wanted && f.Second == nil && (settled == nil || f.Disputed()) {
		f.Want = WantSecond
	}
	return f
}

// settle takes a biopsy or a follow-up for the truth.
func (t *Terms) settle(f *Finding, settled *Reading, readings []*Reading) {
	blind := slices.ContainsFunc(readings, func(r *Reading) bool { return !r.SawModel && t.Critical[r.Truth] })
	if f.First == nil || settled.At.Before(f.Time) {
		f.Time = settled.At
	}
	f.Known, f.Kind, f.Want = true, settled.Kind, WantNone
	switch {
	case t.Critical[settled.Truth]:
		f.Critical, f.Safe, f.Others = settled.Truth, -1, nil
	case blind:
		f.Critical, f.Others = mostNamed(readings, func(r *Reading) bool { return t.Critical[r.Truth] })
		f.Safe = settled.Truth
	default:
		f.Critical, f.Safe, f.Others = -1, settled.Truth, nil
	}
}

// statements are the readings of one source and kind, in the order of their times.
type statements []*Reading

// bySource returns the statements of each source and kind, of readings that had been reported before a
// time.
func bySource(readings []Reading, before time.Time) func(yield func(statements) bool) {
	return func(yield func(statements) bool) {
		var all [4]*Reading
		said := statements(all[:0])
		for i := range readings {
			r := &readings[i]
			if !r.Reported.Before(before) {
				continue
			}
			if len(said) > 0 && (said[0].Source != r.Source || said[0].Kind != r.Kind) {
				if !yield(said) {
					return
				}
				said = said[:0]
			}
			said = append(said, r)
		}
		if len(said) > 0 {
			yield(said)
		}
	}
}

// standing returns the statement that takes part in the truth, nil for none. Of an audit it is blind.
func (s statements) standing(audit bool) *Reading {
	if !audit {
		return s[len(s)-1]
	}
	first := s.first()
	if first.SawModel {
		return nil
	}
	return first
}

// first returns the latest of the statements that were reported first: no answer had gone out before.
func (s statements) first() *Reading {
	first := s[0]
	for _, r := range s[1:] {
		if !r.Reported.After(first.Reported) {
			first = r
		}
	}
	return first
}

// misses notes whether some statement calls an input critical that the model called safe, and whether
// it was withdrawn.
func (s statements) misses(t *Terms, f *Finding) {
	if s[0].Kind != ByReading {
		return
	}
	critical := slices.ContainsFunc(s, func(r *Reading) bool { return t.Critical[r.Truth] })
	safe := func(r *Reading) bool { return !t.Critical[r.Truth] }
	f.Missed = f.Missed || critical
	for i, r := range s {
		f.Withdrawn = f.Withdrawn || t.Critical[r.Truth] && slices.ContainsFunc(s[i+1:], safe)
	}
}

// apart notes the first statement that stays apart.
func (s statements) apart(stands *Reading, f *Finding) {
	for _, r := range s {
		if r != stands && (r.SawModel || r.Reported.After(s.first().Reported)) && (f.Apart == nil || f.Apart.after(r)) {
			f.Apart = r
		}
	}
}

// after orders readings by time, then by source.
func (r *Reading) after(o *Reading) bool {
	if c := r.At.Compare(o.At); c != 0 {
		return c > 0
	}
	return r.Source > o.Source
}

// Standing returns the reading of a source and kind that stands, for answers; nil for none.
func (d *Decision) Standing(source string, kind Kind) *Reading {
	for said := range bySource(d.Readings, EndOfTime) {
		if said[0].Source == source && said[0].Kind == kind {
			if isAudit(&d.Receipt) {
				return said.first()
			}
			return said[len(said)-1]
		}
	}
	return nil
}

// Replaced counts the readings that others of their source stand for.
func (d *Decision) Replaced() int {
	n := len(d.Readings)
	for range bySource(d.Readings, EndOfTime) {
		n--
	}
	return n
}

// vote finds the truth by majority: first whether the input is critical, then the class. Where
// readings are even about a critical class, a further reading is wanted.
func (t *Terms) vote(f *Finding, readings []*Reading) {
	if len(readings) == 0 {
		return
	}
	critical := 0
	for _, r := range readings {
		if t.Critical[r.Truth] {
			critical++
		}
	}
	if 2*critical >= len(readings) {
		f.Critical, f.Others = mostNamed(readings, func(r *Reading) bool { return t.Critical[r.Truth] })
	}
	if 2*critical <= len(readings) {
		f.Safe, _ = mostNamed(readings, func(r *Reading) bool { return !t.Critical[r.Truth] })
	}
	if f.Disputed() || len(f.Others) > 0 {
		f.Want = WantThird
	}
}

// mostNamed returns the class that most of some readings name, of several the one named first, and
// the others.
func mostNamed(readings []*Reading, counts func(*Reading) bool) (class int, others []int) {
	class, most := -1, 0
	for i, r := range readings {
		if !counts(r) {
			continue
		}
		named, before := 0, false
		for j, o := range readings {
			if o.Truth == r.Truth {
				named++
				before = before || j < i
			}
		}
		switch {
		case before:
		case named > most:
			class, most, others = r.Truth, named, nil
		case named == most:
			others = append(others, r.Truth)
		}
	}
	return class, others
}

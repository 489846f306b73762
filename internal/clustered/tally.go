package clustered

import "github.com/ckd-project/ckd/internal/binomial"

// Tally counts cases and the misses among them, by group where cases come in groups. Its tests are
// those of this package, and exact binomial ones where cases are independent.
type Tally struct {
	Cases, Misses int
	Groups        []Group // with cases; nil where cases are independent
	// Most is the largest number of cases of a group, at least 1: of those seen, unless the owner
	// of the tally sets it to a larger one.
	Most  int
	place map[int]int // of a group among Groups; nil where cases are independent
}

// NewTally returns a tally without cases.
func NewTally(grouped bool) Tally {
	t := Tally{Most: 1}
	if grouped {
		t.place = map[int]int{}
	}
	return t
}

// Grouped reports whether cases come in groups.
func (t *Tally) Grouped() bool { return t.place != nil }

// Add counts a case of a group.
func (t *Tally) Add(group int, miss bool) {
	n := 0
	if miss {
		n = 1
	}
	t.Cases++
	t.Misses += n
	if !t.Grouped() {
		return
	}
	at, seen := t.place[group]
	if !seen {
		at = len(t.Groups)
		t.place[group] = at
		t.Groups = append(t.Groups, Group{})
	}
	t.Groups[at].Cases++
	t.Groups[at].Misses += float64(n)
	t.Most = max(t.Most, t.Groups[at].Cases)
}

// PValue returns the p-value of "the share of misses is above a".
func (t *Tally) PValue(a float64) float64 {
	if t.Grouped() {
		return Tail(t.Groups, a, t.Most)
	}
	return binomial.Tail(t.Misses, t.Cases, a)
}

// Upper returns the upper end of a one-sided interval of the share of misses: the least share at which the
// p-value is at most 1 - confidence.
func (t *Tally) Upper(confidence float64) float64 {
	if t.Grouped() {
		return upper(t.Groups, t.Most, 1-confidence)
	}
	return binomial.Upper(t.Misses, t.Cases, confidence)
}

// Interval returns the 95% interval of the share of misses.
func (t *Tally) Interval() (interval [2]float64) {
	const confidence = 0.95
	if t.Grouped() {
		interval[0], interval[1] = Interval(t.Groups, t.Most, confidence)
	} else {
		interval[0], interval[1] = binomial.Interval(t.Misses, t.Cases, confidence)
	}
	return interval
}

package truth

import (
	"cmp"
	"slices"
	"time"

	"github.com/ckd-project/ckd/internal/outcome/receipt"
)

// A Decision is a decision with all that was reported of it.
type Decision struct {
	ID      receipt.ID
	Receipt receipt.Receipt
	// Duplicate says that an equal input was decided before, which counts in its place.
	Duplicate bool
	// Sampled says that a second reading is wanted whatever the first says.
	Sampled bool
	// Readings holds every reading ever reported, replaced ones included, ordered by source, kind and
	// time.
	Readings []Reading
}

// A Reading says what one source found to be the truth of a decision.
type Reading struct {
	Source   string
	Kind     Kind
	Truth    int // position of the class
	SawModel bool
	At       time.Time // when it was found
	By       string    // who reported it
	Reported time.Time // when it was first reported
}

// Kind says how a truth was found.
type Kind uint8

// The kinds, from the weakest to the strongest.
const (
	ByReading  Kind = iota // a person looked at the input
	ByFollowUp             // what became of the case
	ByBiopsy               // a test that settles the question
	Kinds
)

// String returns the kind's name in files and JSON, or "" for none.
func (k Kind) String() string {
	if k < Kinds {
		return [Kinds]string{"reading", "follow-up", "biopsy"}[k]
	}
	return ""
}

// Compare orders readings by source and kind, then by time, class and whether the reader had seen the
// model's answer. Of equal readings one is kept.
func (r *Reading) Compare(o *Reading) int {
	return cmp.Or(cmp.Compare(r.Source, o.Source), cmp.Compare(r.Kind, o.Kind), r.At.Compare(o.At), cmp.Compare(r.Truth, o.Truth),
		compareBool(r.SawModel, o.SawModel))
}

func compareBool(a, b bool) int {
	switch {
	case a == b:
		return 0
	case b:
		return -1
	}
	return 1
}

// MostReadings bounds the readings of one decision, replaced ones included.
const MostReadings = 64

// Add adds a reading, and returns whether that changed the decision. Of equal readings the one that was
// reported first stays. Adding is commutative: the readings are a set.
func (d *Decision) Add(r Reading) bool {
	place, found := slices.BinarySearchFunc(d.Readings, r, func(a, b Reading) int { return a.Compare(&b) })
	if !found {
		d.Readings = slices.Insert(slices.Clip(d.Readings), place, r)
		return true
	}
	have := d.Readings[place]
	if c := r.Reported.Compare(have.Reported); c > 0 || c == 0 && r.By >= have.By {
		return false
	}
	d.Readings = slices.Clone(d.Readings)
	d.Readings[place] = r
	return true
}

// Has reports whether the decision holds a reading, whenever it was reported.
func (d *Decision) Has(r *Reading) bool {
	return slices.ContainsFunc(d.Readings, func(have Reading) bool { return have.Compare(r) == 0 })
}

// Reviewed reports whether the outcome has a weight: a person was to look at the input with a known
// probability.
func Reviewed(r *receipt.Receipt) bool {
	return r.Propensity > 0 && r.Propensity <= 1 && (r.Review || r.Stratum == receipt.CalledCritical && r.Propensity == 1)
}

// isAudit reports whether the input was retained, and drawn for review.
func isAudit(r *receipt.Receipt) bool { return r.Review && r.Stratum != receipt.Deferred }

package learn

import (
	"math"

	"github.com/ckd-project/ckd/internal/clustered"
)

// Outcome is what became of an input by a rule, beside the full decision.
type Outcome struct {
	early, full verdict
	used        int // passes
	group       int
	critical    bool // the true class is; false without labels
}

// Share says whether an outcome counts for a share, and whether it then is a miss.
type Share func(o *Outcome) (counts, miss bool)

// The shares.
var (
	Disagreements    Share = func(o *Outcome) (bool, bool) { return true, o.early.differs(o.full) }
	Released         Share = func(o *Outcome) (bool, bool) { return o.full.defers, !o.early.defers }
	CriticalReleased Share = func(o *Outcome) (bool, bool) { return o.critical && o.full.defers, !o.early.defers }
	// Missed is the critical FNR with the rule in force, FullMissed that of the full decision, and
	// MissedOfAll the critical miss rate.
	Missed      Share = func(o *Outcome) (bool, bool) { return o.critical && !o.early.defers, !o.early.critical }
	FullMissed  Share = func(o *Outcome) (bool, bool) { return o.critical && !o.full.defers, !o.full.critical }
	MissedOfAll Share = func(o *Outcome) (bool, bool) { return o.critical, !o.early.defers && !o.early.critical }
)

// Evidence has what became, by a rule, of inputs that certify it.
type Evidence struct {
	outcomes []Outcome
	passes   int // S
	grouped  bool
	// all has every input of the recording, as if the rule retained it: so the groups that a share
	// can have are the largest. They are taken as known beforehand: a certificate is of groups no
	// larger.
	all []Outcome
}

// Tally counts a share.
func (e *Evidence) Tally(of Share) clustered.Tally {
	t := clustered.NewTally(e.grouped)
	for i := range e.outcomes {
		if counts, miss := of(&e.outcomes[i]); counts {
			t.Add(e.outcomes[i].group, miss)
		}
	}
	if e.grouped && e.all != nil {
		largest := (&Evidence{outcomes: e.all, grouped: true}).Tally(of)
		t.Most = max(t.Most, largest.Most)
	}
	return t
}

// MeanPasses returns the mean number of passes used.
func (e *Evidence) MeanPasses() float64 {
	used := 0
	for i := range e.outcomes {
		used += e.outcomes[i].used
	}
	return float64(used) / max(float64(len(e.outcomes)), 1)
}

// Settled returns the number of inputs that used fewer than all passes.
func (e *Evidence) Settled() (n int) {
	for i := range e.outcomes {
		if e.outcomes[i].used < e.passes {
			n++
		}
	}
	return n
}

// evidence returns what becomes of inputs. decide returns the decision on an input, by its place
// among them, and the number of passes used.
func (d *Decisions) evidence(inputs []int, decide func(at int) (verdict, int)) Evidence {
	r := &d.recording
	e := Evidence{outcomes: make([]Outcome, len(inputs)), passes: r.Passes, grouped: r.Groups != nil, all: d.all}
	for at, i := range inputs {
		o := &e.outcomes[at]
		o.full, o.critical = d.final[i], r.Labels != nil && d.isCritical(r.Labels[i])
		o.early, o.used = decide(at)
		if e.grouped {
			o.group = r.Groups[i]
		}
	}
	return e
}

// fewestWith returns about how many cases of groups like those of some inputs are needed to show, with
// a confidence, that at most a share a of them are misses, if none is; math.MaxInt32 for none.
func (e *Evidence) fewestWith(of Share, a, confidence float64) int {
	least, t := FewestInputs(a, confidence), e.Tally(of)
	if !e.grouped {
		return least
	}
	if t.Cases == 0 {
		return least * t.Most
	}
	for i := range t.Groups {
		t.Groups[i].Misses = 0
	}
	n := math.Ceil(clustered.Enough(t.Groups, a, t.Most, 1-confidence) * float64(t.Cases))
	return int(min(max(n, float64(least)), math.MaxInt32))
}

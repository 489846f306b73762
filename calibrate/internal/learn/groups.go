package learn

import (
	"math"

	"github.com/ckd-project/ckd/internal/binomial"
	"github.com/ckd-project/ckd/internal/clustered"
)

// Share names two counts: cases, and the misses among them.
type Share func(c *Counts) (misses, cases int)

// The shares.
var (
	Disagreements    Share = func(c *Counts) (int, int) { return c.Disagreements, c.Inputs }
	Released         Share = func(c *Counts) (int, int) { return c.Released, c.Deferred }
	criticalReleased Share = func(c *Counts) (int, int) { return c.CriticalReleased, c.CriticalDeferred }
	// Missed is the critical FNR with the rule in force, FullMissed that of the full decision, and
	// MissedOfAll the critical miss rate.
	Missed      Share = func(c *Counts) (int, int) { return c.CriticalMissed, c.CriticalRetained }
	FullMissed  Share = func(c *Counts) (int, int) { return c.FullCriticalMissed, c.FullCriticalRetained }
	MissedOfAll Share = func(c *Counts) (int, int) { return c.CriticalMissed, c.Critical }
)

// Evidence has what a rule did on the inputs that certify it, in all and by group.
type Evidence struct {
	Counts
	// Groups is nil where every input is independent.
	Groups []Counts
	// largest has, for each count, the largest of any group of the recording. It is taken as known
	// beforehand: a certificate is of groups no larger.
	largest *Counts
}

// evidence sums up the counts of groups; of one for all inputs where these are independent.
func (d *Decisions) evidence(byGroup []Counts) Evidence {
	e := Evidence{Counts: Counts{Passes: d.recording.Passes}}
	for i := range byGroup {
		e.sum(&byGroup[i])
	}
	if d.recording.Groups != nil {
		e.Groups, e.largest = byGroup, &d.largest
	}
	return e
}

// evidenceOf counts what becomes of inputs, by group. decide returns the decision on an input, by
// its place among them, and the number of passes used.
func (d *Decisions) evidenceOf(inputs []int, decide func(at int) (verdict, int)) Evidence {
	byGroup := make([]Counts, d.countGroups())
	for i := range byGroup {
		byGroup[i].Passes = d.recording.Passes
	}
	for at, i := range inputs {
		v, used := decide(at)
		d.count(&byGroup[d.groupOf(i)], i, v, used)
	}
	return d.evidence(byGroup)
}

// full returns what all passes show of inputs.
func (d *Decisions) full(inputs []int) Evidence {
	return d.evidenceOf(inputs, func(at int) (verdict, int) { return d.final[inputs[at]], d.recording.Passes })
}

// count counts what became of an input.
func (d *Decisions) count(c *Counts, input int, v verdict, used int) {
	c.Inputs++
	c.add(v, d.final[input], used)
	if d.recording.Labels != nil && d.isCritical(d.recording.Labels[input]) {
		c.label(v, d.final[input])
	}
}

// groupOf returns the group of an input, 0 where all are independent.
func (d *Decisions) groupOf(input int) int {
	if d.recording.Groups == nil {
		return 0
	}
	return d.recording.Groups[input]
}

// countGroups returns the number of groups, 1 where all inputs are independent.
func (d *Decisions) countGroups() int {
	n := 1
	for _, g := range d.recording.Groups {
		n = max(n, g+1)
	}
	return n
}

// measureGroups finds the largest counts of any group of the recording under the full decision.
func (d *Decisions) measureGroups() {
	if d.recording.Groups == nil {
		return
	}
	members := make([][]int, d.countGroups())
	for i, g := range d.recording.Groups {
		members[g] = append(members[g], i)
	}
	for _, inputs := range members {
		c, most := Counts{Passes: d.recording.Passes}, &d.largest
		for _, i := range inputs {
			d.count(&c, i, d.final[i], c.Passes)
		}
		most.Inputs, most.Deferred = max(most.Inputs, c.Inputs), max(most.Deferred, c.Deferred)
		most.Critical, most.CriticalDeferred = max(most.Critical, c.Critical), max(most.CriticalDeferred, c.CriticalDeferred)
		// A rule may retain what all passes defer.
		most.CriticalRetained = most.Critical
	}
}

// GroupsOf returns how many groups have cases of a share, and how many cases the group of the
// recording has that has the most; 0 and 1 where inputs are independent.
func (e *Evidence) GroupsOf(of Share) (groups, largest int) {
	if e.Groups == nil {
		return 0, 1
	}
	counted, most := e.counted(of)
	return len(counted), most
}

// counted returns a share by group, and the most cases that a group can have.
func (e *Evidence) counted(of Share) (groups []clustered.Group, most int) {
	for i := range e.Groups {
		if misses, cases := of(&e.Groups[i]); cases > 0 {
			groups = append(groups, clustered.Group{Cases: cases, Misses: float64(misses)})
		}
	}
	_, most = of(e.largest)
	return groups, max(most, 1)
}

// upper returns the upper bound on a share, with a confidence.
func (e *Evidence) upper(of Share, confidence float64) float64 {
	if e.Groups == nil {
		misses, cases := of(&e.Counts)
		return binomial.Upper(misses, cases, confidence)
	}
	groups, most := e.counted(of)
	return clustered.Upper(groups, most, confidence)
}

// tail returns the p-value of "the share is above a".
func (e *Evidence) tail(of Share, a float64) float64 {
	if e.Groups == nil {
		misses, cases := of(&e.Counts)
		return binomial.Tail(misses, cases, a)
	}
	groups, most := e.counted(of)
	return clustered.Tail(groups, a, most)
}

// Interval returns the 95% interval of a share.
func (e *Evidence) Interval(of Share) (low, high float64) {
	const confidence = 0.95
	misses, cases := of(&e.Counts)
	if e.Groups == nil {
		return binomial.Interval(misses, cases, confidence)
	}
	groups, most := e.counted(of)
	for _, g := range groups { // under another decision a group can have more cases
		most = max(most, g.Cases)
	}
	return clustered.Interval(groups, most, confidence)
}

// fewestWith returns about how many cases of groups like those of some inputs are needed to show, with
// a confidence, that at most a share a of them are misses, if none is; math.MaxInt32 for none.
func (e *Evidence) fewestWith(of Share, a, confidence float64) int {
	least := FewestInputs(a, confidence)
	if e.Groups == nil {
		return least
	}
	groups, most := e.counted(of)
	cases := 0
	for i := range groups {
		cases += groups[i].Cases
		groups[i].Misses = 0
	}
	if cases == 0 {
		return least * most
	}
	n := math.Ceil(clustered.Enough(groups, a, most, 1-confidence) * float64(cases))
	return int(min(max(n, float64(least)), math.MaxInt32))
}

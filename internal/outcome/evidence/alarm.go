package evidence

import "math"

const (
	// boldest is the largest bet as a share of the one that could lose all.
	boldest = 0.98
	// alarmBets counts the bets of an alarm: boldest * 2^-k of what could be lost, k = 0, 1, ...
	alarmBets = 10
	// mostEvidence keeps evidence finite. Less evidence than there is raises no false alarm.
	mostEvidence = 1e300
	// mostOdds keeps bets against tiny lines finite.
	mostOdds = 0x1p149
)

// An Alarm weighs the evidence that a risk is above its line a from some moment on. It is a
// Shiryaev-Roberts e-detector (Shin, Ramdas & Rinaldo 2022): for each bet lambda,
//
//	R_0 = 0,  R_n = (1 + R_(n-1)) (1 + lambda Z_n(a)),
//
// and the evidence is the mean of R over lambda = 0.98 p/a 2^-k, k = 0..9, where p is the least
// propensity of a critical input that is no miss, which alone makes Z negative.
//
// While the risk is at or below the line, R_n - n is not expected to grow. Raised as soon as the
// evidence reaches the run length, an alarm is therefore false on average no sooner than after that
// many outcomes, by optional stopping: E[N] >= E[R_N] >= run length. A sum over all moments at which
// the risk may have begun to be too high, it is not slowed down by a long good past.
//
// An Alarm is a value: assign it to fork it.
type Alarm struct {
	risk            Risk
	line, runLength float64
	propensity      float64 // the least of a hit in this cohort; 0 bets nothing
	steps           uint64
	raised          bool
	evidence        [alarmBets]float64
}

// NewAlarm returns an alarm for a risk above line, in (0, 1), that is false on average once in
// runLength outcomes or more seldom. Of several alarms each has a weight, of sum 1, and the run
// length divided by it: all together are then false no more often than the run length says.
//
// A line outside (0, 1) or a run length under 1, NaN included, raises no alarm ever.
func NewAlarm(r Risk, line, runLength float64) *Alarm {
	return &Alarm{risk: r, line: line, runLength: runLength}
}

// BeginCohort fixes the bets for the outcomes that follow, and keeps the evidence. leastPropensity,
// in (0, 1], is the least that a critical input which is no miss may have: of retained inputs called
// critical, for MissRate also of deferred ones. It must not depend on the cohort's outcomes. A value
// outside (0, 1] bets nothing.
func (a *Alarm) BeginCohort(leastPropensity float64) {
	a.propensity = checkedPropensity(leastPropensity)
}

// Hold changes the line and the run length for the outcomes that follow, and keeps the evidence: each
// outcome is bet against the line that was in force at its decision, so that R_n - n is not expected to
// grow while the risk of each is at or below its own line. It must not depend on those outcomes.
func (a *Alarm) Hold(line, runLength float64) { a.line, a.runLength = line, runLength }

// checkedPropensity returns p if it is a propensity, else 0.
func checkedPropensity(p float64) float64 {
	if p >= smallestPropensity && p <= 1 {
		return p
	}
	return 0
}

// Observe adds the evidence of one outcome. An outcome that is no step of the risk changes nothing;
// an uncritical one adds 1 to each R. A hit with a smaller propensity than BeginCohort was told
// would bet more than all: the bets that it ruins begin anew, and the run length is no longer
// promised.
func (a *Alarm) Observe(o Observation) {
	k := a.risk.kindOf(o)
	if k == ignored || !(a.line > 0 && a.line < 1) {
		return
	}
	a.steps++
	if k == uncritical {
		for i, r := range a.evidence {
			a.evidence[i] = min(1+r, mostEvidence)
		}
	} else {
		a.bet(k, o.Propensity)
	}
	a.raised = a.raised || a.runLength >= 1 && a.Evidence() >= a.runLength
}

// bet adds a critical outcome.
func (a *Alarm) bet(k kind, propensity float64) {
	won := winnings(k, a.line, a.propensity, propensity)
	for i, r := range a.evidence {
		a.evidence[i] = min((1+r)*max(0, 1+won), mostEvidence)
		won /= 2
	}
}

// winnings returns lambda Z of the boldest bet on a critical outcome. The line cancels out of a hit, and
// leaves a miss with its odds (1-a)/a.
func winnings(k kind, line, leastPropensity, propensity float64) float64 {
	stake := boldest * leastPropensity / propensity
	if k == miss {
		return stake * min((1-line)/line, mostOdds)
	}
	return -stake
}

// Evidence returns the mean of R over the bets, from 0 to 1e300, to be compared with RunLength. With
// nothing wrong it hovers about the number of outcomes at most, and mostly far below.
func (a *Alarm) Evidence() float64 {
	sum := 0.0
	for _, r := range a.evidence {
		sum += r
	}
	return sum / alarmBets
}

// Raised reports whether the evidence has ever reached the run length.
func (a *Alarm) Raised() bool { return a.raised }

// Line returns the line that the risk is tested against.
func (a *Alarm) Line() float64 { return a.line }

// RunLength returns the limit of the evidence: the average number of outcomes, at least, before a
// false alarm.
func (a *Alarm) RunLength() float64 { return a.runLength }

// Steps returns how many outcomes were steps of the risk.
func (a *Alarm) Steps() uint64 { return a.steps }

// LogEvidence returns the evidence as a share of its limit, on the scale of logarithms: log(1+R) /
// log(1+run length), 0 with no evidence and 1 when the alarm is raised. It is 0 for an alarm that
// can never be raised.
func (a *Alarm) LogEvidence() float64 {
	if !(a.runLength >= 1) {
		return 0
	}
	return math.Log1p(a.Evidence()) / math.Log1p(a.runLength)
}

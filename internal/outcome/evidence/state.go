package evidence

import (
	"encoding/binary"
	"errors"
	"fmt"
	"math"
)

// ErrState reports bytes that no AppendBinary of this package wrote.
var ErrState = errors.New("evidence: no such state")

// The first byte of a state says what it is of, and in which form.
const (
	alarmForm    = 0x21
	sequenceForm = 0x32
)

// alarmState and sequenceState are states as they are written: little-endian, field by field.
type (
	alarmState struct {
		Form                        byte
		Risk                        Risk
		Raised                      uint8
		Line, RunLength, Propensity float64
		Steps                       uint64
		Evidence                    [alarmBets]float64
	}
	sequenceState struct {
		Form         byte
		Estimate     Estimate
		Level        float64
		Above, Below wealthState
	}
	wealthState struct {
		Propensity float64
		Lost       [sequenceBets]float64
		Points     [points]point
	}
)

// AppendBinary appends the state of a to b. The error is always nil.
func (a *Alarm) AppendBinary(b []byte) ([]byte, error) {
	s := alarmState{alarmForm, a.risk, 0, a.line, a.runLength, a.propensity, a.steps, a.evidence}
	if a.raised {
		s.Raised = 1
	}
	return binary.Append(b, binary.LittleEndian, &s)
}

// UnmarshalBinary replaces a by the state that AppendBinary wrote. It returns ErrState, and leaves a
// as it is, for anything else.
func (a *Alarm) UnmarshalBinary(data []byte) error {
	var s alarmState
	valid := decode(data, &s) && s.Form == alarmForm && s.Raised <= 1 && isPropensity(s.Propensity)
	for _, e := range s.Evidence {
		valid = valid && e >= 0 && e <= mostEvidence
	}
	if !valid {
		return fmt.Errorf("%w of an alarm", ErrState)
	}
	*a = Alarm{s.Risk, s.Line, s.RunLength, s.Propensity, s.Steps, s.Raised == 1, s.Evidence}
	return nil
}

// AppendBinary appends the state of s to b. The error is always nil.
func (s *Sequence) AppendBinary(b []byte) ([]byte, error) {
	return binary.Append(b, binary.LittleEndian, &sequenceState{sequenceForm, s.estimate, s.level, s.above.state(), s.below.state()})
}

func (w *wealth) state() wealthState {
	return wealthState{w.propensity, w.lost, [points]point(w.points)}
}

// UnmarshalBinary replaces s by the state that AppendBinary wrote. It returns ErrState, and leaves s
// as it is, for anything else.
func (s *Sequence) UnmarshalBinary(data []byte) error {
	var stored sequenceState
	if !decode(data, &stored) || stored.Form != sequenceForm || !stored.Estimate.isValid() || !stored.Above.isValid() || !stored.Below.isValid() {
		return fmt.Errorf("%w of a sequence", ErrState)
	}
	*s = *NewSequence(stored.Estimate.Of, stored.Level)
	s.estimate = stored.Estimate
	s.above.restore(&stored.Above)
	s.below.restore(&stored.Below)
	return nil
}

func (w *wealth) restore(s *wealthState) {
	w.propensity, w.lost = s.Propensity, s.Lost
	copy(w.points, s.Points[:])
}

// decode reads a state, and reports whether data has its length.
func decode(data []byte, state any) bool {
	n, err := binary.Decode(data, binary.LittleEndian, state)
	return err == nil && n == len(data)
}

func isPropensity(p float64) bool { return p == checkedPropensity(p) }

func (e *Estimate) isValid() bool {
	return e.WeightedCritical >= 0 && e.WeightedCritical <= math.MaxFloat64 && e.WeightedMisses >= 0 && e.WeightedMisses <= e.WeightedCritical &&
		e.SquaredCritical >= 0 && e.SquaredCritical <= math.MaxFloat64 && e.SquaredMisses >= 0 && e.SquaredMisses <= e.SquaredCritical &&
		e.Misses <= e.Critical && e.Critical <= e.Outcomes && (e.Critical == 0) == (e.WeightedCritical == 0)
}

func (s *wealthState) isValid() bool {
	valid := isPropensity(s.Propensity)
	for _, lost := range s.Lost {
		valid = valid && lost <= 0
	}
	for j := range s.Points {
		for _, gained := range s.Points[j].Gained {
			valid = valid && gained >= 1 && gained < 0x1p512
		}
	}
	return valid
}

package evidence

import (
	"encoding/binary"
	"errors"
)

// alarmForm is the first byte of a state.
const alarmForm = 0x21

// alarmState is a state as it is written: little-endian, field by field.
type alarmState struct {
	Form                        byte
	Risk                        Risk
	Raised                      uint8
	Line, RunLength, Propensity float64
	Steps                       uint64
	Evidence                    [alarmBets]float64
}

// AppendBinary appends the state of a to b. The error is always nil.
func (a *Alarm) AppendBinary(b []byte) ([]byte, error) {
	s := alarmState{alarmForm, a.risk, 0, a.line, a.runLength, a.propensity, a.steps, a.evidence}
	if a.raised {
		s.Raised = 1
	}
	return binary.Append(b, binary.LittleEndian, &s)
}

// UnmarshalBinary replaces a by the state that AppendBinary wrote. It returns an error, and leaves a as it
// is, for anything else.
func (a *Alarm) UnmarshalBinary(data []byte) error {
	var s alarmState
	n, err := binary.Decode(data, binary.LittleEndian, &s)
	valid := err == nil && n == len(data) && s.Form == alarmForm && s.Raised <= 1 && s.Propensity == checkedPropensity(s.Propensity)
	for _, e := range s.Evidence {
		valid = valid && e >= 0 && e <= mostEvidence
	}
	if !valid {
		return errors.New("evidence: no state of an alarm")
	}
	*a = Alarm{s.Risk, s.Line, s.RunLength, s.Propensity, s.Steps, s.Raised == 1, s.Evidence}
	return nil
}

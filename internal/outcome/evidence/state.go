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
	estimateState = 0x12
	alarmState    = 0x21
	sequenceState = 0x32
)

// AppendBinary appends the state of e to b. The error is always nil.
func (e *Estimate) AppendBinary(b []byte) ([]byte, error) {
	b = append(b, estimateState)
	return e.append(b), nil
}

func (e *Estimate) append(b []byte) []byte {
	b = append(b, byte(e.Of))
	for _, n := range [...]uint64{e.Outcomes, e.Critical, e.Misses} {
		b = binary.LittleEndian.AppendUint64(b, n)
	}
	return appendFloats(b, e.WeightedCritical, e.WeightedMisses, e.SquaredCritical, e.SquaredMisses)
}

// UnmarshalBinary replaces e by the state that AppendBinary wrote. It returns ErrState, and leaves e
// as it is, for anything else.
func (e *Estimate) UnmarshalBinary(data []byte) error {
	d := decoder{data: data}
	d.begin(estimateState)
	restored := d.estimate()
	if err := d.finish("estimate"); err != nil {
		return err
	}
	*e = restored
	return nil
}

// AppendBinary appends the state of a to b. The error is always nil.
func (a *Alarm) AppendBinary(b []byte) ([]byte, error) {
	b = append(b, alarmState, byte(a.risk), boolByte(a.raised))
	b = appendFloats(b, a.line, a.runLength, a.propensity)
	b = binary.LittleEndian.AppendUint64(b, a.steps)
	return appendFloats(b, a.evidence[:]...), nil
}

// UnmarshalBinary replaces a by the state that AppendBinary wrote. It returns ErrState, and leaves a
// as it is, for anything else.
func (a *Alarm) UnmarshalBinary(data []byte) error {
	d := decoder{data: data}
	d.begin(alarmState)
	restored := Alarm{risk: d.risk(), raised: d.bool()}
	restored.line, restored.runLength, restored.propensity = d.float(), d.float(), d.propensity()
	restored.steps = d.uint64()
	for k := range restored.evidence {
		restored.evidence[k] = d.within(0, mostEvidence)
	}
	if err := d.finish("alarm"); err != nil {
		return err
	}
	*a = restored
	return nil
}

// AppendBinary appends the state of s to b. The error is always nil.
func (s *Sequence) AppendBinary(b []byte) ([]byte, error) {
	b = append(b, sequenceState)
	b = appendFloats(s.estimate.append(b), s.level)
	return s.below.append(s.above.append(b)), nil
}

func (w *wealth) append(b []byte) []byte {
	b = appendFloats(appendFloats(b, w.propensity), w.lost[:]...)
	for j := range w.gained {
		b = appendFloats(b, w.gained[j][:]...)
		for _, e := range w.exponent[j] {
			b = binary.LittleEndian.AppendUint32(b, e)
		}
	}
	return b
}

// UnmarshalBinary replaces s by the state that AppendBinary wrote. It returns ErrState, and leaves s
// as it is, for anything else.
func (s *Sequence) UnmarshalBinary(data []byte) error {
	d := decoder{data: data}
	d.begin(sequenceState)
	estimate := d.estimate()
	restored := NewSequence(estimate.Of, d.float())
	restored.estimate = estimate
	d.wealth(&restored.above)
	d.wealth(&restored.below)
	if err := d.finish("sequence"); err != nil {
		return err
	}
	*s = *restored
	return nil
}

func boolByte(b bool) byte {
	if b {
		return 1
	}
	return 0
}

func appendFloats(b []byte, values ...float64) []byte {
	for _, v := range values {
		b = binary.LittleEndian.AppendUint64(b, math.Float64bits(v))
	}
	return b
}

// A decoder reads a state. After a fault it reads zeros; finish tells.
type decoder struct {
	data  []byte
	fault bool
}

// next returns the next n bytes, zeros if there are not as many.
func (d *decoder) next(n int) []byte {
	if len(d.data) < n {
		d.fault, d.data = true, nil
		return make([]byte, n)
	}
	next := d.data[:n]
	d.data = d.data[n:]
	return next
}

// check notes a fault unless ok.
func (d *decoder) check(ok bool) { d.fault = d.fault || !ok }

func (d *decoder) begin(state byte) { d.check(d.next(1)[0] == state) }

func (d *decoder) risk() Risk { return Risk(d.next(1)[0]) }

func (d *decoder) bool() bool {
	b := d.next(1)[0]
	d.check(b <= 1)
	return b == 1
}

func (d *decoder) uint64() uint64 { return binary.LittleEndian.Uint64(d.next(8)) }

func (d *decoder) float() float64 { return math.Float64frombits(d.uint64()) }

// within reads a number from least to most.
func (d *decoder) within(least, most float64) float64 {
	v := d.float()
	d.check(v >= least && v <= most)
	return v
}

func (d *decoder) propensity() float64 {
	p := d.float()
	d.check(p == checkedPropensity(p))
	return p
}

func (d *decoder) estimate() Estimate {
	e := Estimate{Of: d.risk(), Outcomes: d.uint64(), Critical: d.uint64(), Misses: d.uint64()}
	e.WeightedCritical = d.within(0, math.MaxFloat64)
	e.WeightedMisses = d.within(0, e.WeightedCritical)
	e.SquaredCritical = d.within(0, math.MaxFloat64)
	e.SquaredMisses = d.within(0, e.SquaredCritical)
	d.check(e.Misses <= e.Critical && e.Critical <= e.Outcomes && (e.Critical == 0) == (e.WeightedCritical == 0))
	return e
}

func (d *decoder) wealth(w *wealth) {
	w.propensity = d.propensity()
	for k := range w.lost {
		w.lost[k] = d.within(math.Inf(-1), 0)
	}
	for j := range w.gained {
		for k := range w.gained[j] {
			w.gained[j][k] = d.within(1, 0x1p512)
			d.check(w.gained[j][k] < 0x1p512)
		}
		for k := range w.exponent[j] {
			w.exponent[j][k] = binary.LittleEndian.Uint32(d.next(4))
		}
	}
}

// finish returns an error if anything was wrong, or is left.
func (d *decoder) finish(what string) error {
	if d.fault || len(d.data) > 0 {
		return fmt.Errorf("%w of an %s", ErrState, what)
	}
	return nil
}

package promise

import (
	"encoding/binary"
	"errors"
	"math"

	"github.com/ckd-project/ckd/internal/outcome/truth"
	"github.com/ckd-project/ckd/policy"
)

// steps are the decisions of a cohort with a known truth, as evidence takes them, in their order: all
// that a replay needs. An uncritical decision takes less than a byte on average, a critical one some
// seven.
type steps []byte

// A step is one of them.
type step struct {
	truth.Step
	slices [policy.MaxSlices]uint16
}

// The code of a step: a run of uncritical ones, or the bits of a critical one.
const (
	runDeferred = 0x00
	runRetained = 0x01

	criticalBit = 0x80
	retainedBit = 0x01
	calledBit   = 0x02
	disputedBit = 0x04
	othersBit   = 0x08
	slicesBit   = 0x10
)

var errSteps = errors.New("the steps of a cohort are damaged")

// stepsWriter appends steps.
type stepsWriter struct {
	out  steps
	run  uint64 // uncritical ones that are not written yet
	code byte   // of these
}

// add appends a step.
func (w *stepsWriter) add(s *step) {
	if s.Critical < 0 {
		code := byte(runDeferred)
		if s.Retained {
			code = runRetained
		}
		if code != w.code {
			w.flush()
		}
		w.code = code
		w.run++
		return
	}
	w.flush()
	code := byte(criticalBit)
	for bit, set := range map[byte]bool{retainedBit: s.Retained, calledBit: s.CalledCritical, disputedBit: s.Disputed, othersBit: len(s.Others) > 0,
		slicesBit: s.slices != [policy.MaxSlices]uint16{}} {
		if set {
			code |= bit
		}
	}
	b := binary.AppendUvarint(append(w.out, code), uint64(s.Critical))
	b = binary.BigEndian.AppendUint32(b, math.Float32bits(float32(s.Propensity)))
	if code&othersBit != 0 {
		b = append(b, byte(len(s.Others)))
		for _, k := range s.Others {
			b = binary.AppendUvarint(b, uint64(k))
		}
	}
	if code&slicesBit != 0 {
		for _, slice := range s.slices {
			b = binary.BigEndian.AppendUint16(b, slice)
		}
	}
	w.out = b
}

// flush writes the run of uncritical ones.
func (w *stepsWriter) flush() {
	if w.run > 0 {
		w.out = binary.AppendUvarint(append(w.out, w.code), w.run)
	}
	w.run = 0
}

// each calls uncritical with the length of each run, and critical with each critical step. The step is
// valid until the call returns.
func (s steps) each(uncritical func(retained bool, n uint64), critical func(*step)) error {
	d := reader{b: s}
	var next step
	for len(d.b) > 0 && !d.fault {
		code := d.byte()
		if code < criticalBit {
			uncritical(code == runRetained, d.uvarint())
			continue
		}
		next = step{Step: truth.Step{Retained: code&retainedBit != 0, CalledCritical: code&calledBit != 0, Disputed: code&disputedBit != 0, Others: next.Others[:0]}}
		next.Critical = int(d.uvarint())
		next.Propensity = float64(math.Float32frombits(d.uint32()))
		if code&othersBit != 0 {
			for range d.byte() {
				next.Others = append(next.Others, int(d.uvarint()))
			}
		}
		if code&slicesBit != 0 {
			for i := range next.slices {
				next.slices[i] = d.uint16()
			}
		}
		if !d.fault {
			critical(&next)
		}
	}
	if d.fault {
		return errSteps
	}
	return nil
}

// A reader reads fields one after the other. After a fault it reads zeros.
type reader struct {
	b     []byte
	fault bool
}

func (d *reader) next(n int) []byte {
	if len(d.b) < n {
		d.fault, d.b = true, nil
		return make([]byte, n)
	}
	next := d.b[:n]
	d.b = d.b[n:]
	return next
}

func (d *reader) byte() byte     { return d.next(1)[0] }
func (d *reader) uint16() uint16 { return binary.BigEndian.Uint16(d.next(2)) }
func (d *reader) uint32() uint32 { return binary.BigEndian.Uint32(d.next(4)) }

func (d *reader) uvarint() uint64 {
	v, n := binary.Uvarint(d.b)
	if n <= 0 {
		d.fault, d.b = true, nil
		return 0
	}
	d.b = d.b[n:]
	return v
}

package promise

import (
	"encoding/binary"
	"errors"
	"math"

	"github.com/ckd-project/ckd/internal/outcome/evidence"
	"github.com/ckd-project/ckd/internal/outcome/receipt"
	"github.com/ckd-project/ckd/internal/outcome/truth"
	"github.com/ckd-project/ckd/policy"
)

// steps are the decisions of a cohort with a known truth, as evidence takes them, in their order: all
// that a replay needs. An uncritical decision takes less than a byte on average, a critical one some
// seven.
type steps []byte

// A step is one of them.
type step struct {
	retained, calledCritical bool
	propensity               float64
	// critical is the class, -1 for none; safe says that sources disagree, others holds further classes
	// that as many named.
	critical int
	safe     bool
	others   []int
	slices   [policy.MaxSlices]uint16
}

// The code of a step: a run of uncritical ones, or the bits of a critical one.
const (
	runDeferred = 0x00
	runRetained = 0x01

	criticalBit = 0x80
	retainedBit = 0x01
	calledBit   = 0x02
	safeBit     = 0x04
	othersBit   = 0x08
	slicesBit   = 0x10
)

var errSteps = errors.New("the steps of a cohort are damaged")

// stepsWriter appends steps.
type stepsWriter struct {
	out steps
	run uint64 // uncritical ones that are not written yet
	of  byte   // their code
}

// add appends a decision with a known truth.
func (w *stepsWriter) add(t *truth.Terms, d *truth.Decision, f *truth.Finding) {
	c := &d.Receipt
	retained := c.Stratum != receipt.Deferred
	if f.Critical < 0 {
		code := byte(runDeferred)
		if retained {
			code = runRetained
		}
		if code != w.of {
			w.flush()
		}
		w.of = code
		w.run++
		return
	}
	w.flush()
	code := byte(criticalBit)
	for bit, set := range map[byte]bool{retainedBit: retained, calledBit: t.CalledCritical(c), safeBit: f.Safe >= 0, othersBit: len(f.Others) > 0,
		slicesBit: c.Slices != [policy.MaxSlices]uint16{}} {
		if set {
			code |= bit
		}
	}
	b := binary.AppendUvarint(append(w.out, code), uint64(f.Critical))
	b = binary.BigEndian.AppendUint32(b, math.Float32bits(c.Propensity))
	if code&othersBit != 0 {
		b = append(b, byte(len(f.Others)))
		for _, k := range f.Others {
			b = binary.AppendUvarint(b, uint64(k))
		}
	}
	if code&slicesBit != 0 {
		for _, s := range c.Slices {
			b = binary.BigEndian.AppendUint16(b, s)
		}
	}
	w.out = b
}

// flush writes the run of uncritical ones.
func (w *stepsWriter) flush() {
	if w.run > 0 {
		w.out = binary.AppendUvarint(append(w.out, w.of), w.run)
	}
	w.run = 0
}

// each calls uncritical with the length of each run, and critical with each critical step. The step is
// valid until the call returns.
func (s steps) each(uncritical func(retained bool, n uint64), critical func(*step)) error {
	d := reader{b: s}
	var one step
	for len(d.b) > 0 && !d.fault {
		code := d.byte()
		if code < criticalBit {
			uncritical(code == runRetained, d.uvarint())
			continue
		}
		one = step{retained: code&retainedBit != 0, calledCritical: code&calledBit != 0, safe: code&safeBit != 0, others: one.others[:0]}
		one.critical = int(d.uvarint())
		one.propensity = float64(math.Float32frombits(d.uint32()))
		if code&othersBit != 0 {
			for range d.byte() {
				one.others = append(one.others, int(d.uvarint()))
			}
		}
		if code&slicesBit != 0 {
			for i := range one.slices {
				one.slices[i] = d.uint16()
			}
		}
		if !d.fault {
			critical(&one)
		}
	}
	if d.fault {
		return errSteps
	}
	return nil
}

// observation returns the observation of a critical step for the pooled risks (class -1) or for one
// critical class, as truth.Terms.Observe does.
func (s *step) observation(class int, worst bool) evidence.Observation {
	o := evidence.Observation{Retained: s.retained, Propensity: s.propensity}
	could, must := true, !s.safe
	if class >= 0 {
		must = must && s.critical == class && len(s.others) == 0
		could = s.critical == class
		for _, k := range s.others {
			could = could || k == class
		}
	}
	o.Missed = o.Retained && !s.calledCritical
	o.Critical = could && (must || o.Missed == worst)
	o.Missed = o.Missed && o.Critical
	return o
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

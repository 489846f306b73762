package receipt

import (
	"encoding/binary"
	"math"

	"github.com/ckd-project/ckd/decomp"
	"github.com/ckd-project/ckd/policy"
)

// Receipt is the record of one decision.
type Receipt struct {
	// Policy is the hash of the policy, Version the VersionHash of the model's version.
	Policy  [32]byte
	Version uint64
	// Time of the decision, in microseconds since 1970.
	Time    int64
	Stratum Stratum
	// Action, Reason and Gate are numbered as in the wire's enums.
	Action, Reason, Gate uint8
	// Predicted is the class of the largest mean prediction, and Passes the number of passes, each
	// below 1<<24.
	Predicted, Passes uint32
	// Settled says that the input was decided before its last pass, and Degenerate that its passes
	// are identical.
	Settled, Degenerate bool
	// Review says that a person is to look at the input: it was deferred, or audited.
	Review bool
	// Scores by their number in package decomp, and Risk, in [0,1]; NaN where undefined.
	Scores [decomp.NumScores]float32
	Risk   float32
	// Propensity is the probability, in [0,1], with which the input was to be reviewed: exactly the
	// number that the draw was compared with. It is 0 for a retained input of a policy that audits
	// nothing.
	Propensity float32
	// Draw is DrawKey.Hash of the input, or 0 for an input without an id.
	Draw uint64
	// Group is DrawKey.Group of the client's group; 0 for none.
	Group uint64
	// Slices has the policy.SliceHash of what the client said of the input, by the position of the
	// slice in the policy; 0 for nothing.
	Slices [policy.MaxSlices]uint16
}

// Stratum groups inputs by why a person looks at them. The zero value is no stratum.
type Stratum uint8

// The strata.
const (
	Deferred       Stratum = 1 + iota
	CalledCritical         // retained
	CalledSafe             // retained
)

// Strata counts the strata, and none.
const Strata = 1 + CalledSafe

// String returns the stratum's name in metrics and exports, or "" for none.
func (s Stratum) String() string {
	if s >= Strata {
		return ""
	}
	return [Strata]string{"", "deferred", "called_critical", "called_safe"}[s]
}

// The sealed parts of a receipt, in bytes.
const (
	version    = 1 // of the layout
	keyIDSize  = 3
	saltSize   = 16
	headerSize = 1 + keyIDSize + saltSize + 8 // layout, key, salt, counter: readable, but authenticated
	bodySize   = 32 + 4*8 + 2*policy.MaxSlices + 4*decomp.NumScores + 4 + 4 + 3 + 3 + 4
	tagSize    = 16
)

// Size is the length of every sealed receipt, in bytes.
const Size = headerSize + bodySize + tagSize

// Bits of the byte that holds the stratum.
const (
	stratumBits = 0b11
	settledBit  = 1 << (1 + iota)
	degenerateBit
	reviewBit
)

// encode writes the receipt to bodySize bytes.
func (r *Receipt) encode(b []byte) {
	b = b[:bodySize]
	n := copy(b, r.Policy[:])
	for _, x := range [...]uint64{r.Version, uint64(r.Time), r.Draw, r.Group} {
		binary.BigEndian.PutUint64(b[n:], x)
		n += 8
	}
	for _, x := range r.Slices {
		binary.BigEndian.PutUint16(b[n:], x)
		n += 2
	}
	for _, x := range r.Scores {
		binary.BigEndian.PutUint32(b[n:], math.Float32bits(x))
		n += 4
	}
	for _, x := range [...]float32{r.Risk, r.Propensity} {
		binary.BigEndian.PutUint32(b[n:], math.Float32bits(x))
		n += 4
	}
	for _, x := range [...]uint32{r.Predicted, r.Passes} {
		b[n], b[n+1], b[n+2] = byte(x>>16), byte(x>>8), byte(x)
		n += 3
	}
	flags := byte(r.Stratum) & stratumBits
	if r.Settled {
		flags |= settledBit
	}
	if r.Degenerate {
		flags |= degenerateBit
	}
	if r.Review {
		flags |= reviewBit
	}
	b[n], b[n+1], b[n+2], b[n+3] = flags, r.Action, r.Reason, r.Gate
}

// decode reads what encode wrote.
func (r *Receipt) decode(b []byte) {
	n := copy(r.Policy[:], b)
	var time uint64
	for _, x := range [...]*uint64{&r.Version, &time, &r.Draw, &r.Group} {
		*x = binary.BigEndian.Uint64(b[n:])
		n += 8
	}
	r.Time = int64(time)
	for i := range r.Slices {
		r.Slices[i] = binary.BigEndian.Uint16(b[n:])
		n += 2
	}
	for i := range r.Scores {
		r.Scores[i] = math.Float32frombits(binary.BigEndian.Uint32(b[n:]))
		n += 4
	}
	for _, x := range [...]*float32{&r.Risk, &r.Propensity} {
		*x = math.Float32frombits(binary.BigEndian.Uint32(b[n:]))
		n += 4
	}
	for _, x := range [...]*uint32{&r.Predicted, &r.Passes} {
		*x = uint32(b[n])<<16 | uint32(b[n+1])<<8 | uint32(b[n+2])
		n += 3
	}
	flags := b[n]
	r.Stratum = Stratum(flags & stratumBits)
	r.Settled, r.Degenerate, r.Review = flags&settledBit != 0, flags&degenerateBit != 0, flags&reviewBit != 0
	r.Action, r.Reason, r.Gate = b[n+1], b[n+2], b[n+3]
}

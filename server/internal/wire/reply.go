package wire

import (
	"encoding/binary"
	"math"
	"math/bits"
	"strings"
	"unsafe"

	rpcstatus "google.golang.org/genproto/googleapis/rpc/status"
	"google.golang.org/protobuf/encoding/protowire"
	"google.golang.org/protobuf/proto"

	"github.com/ckd-project/ckd/decomp"
	ckdv1 "github.com/ckd-project/ckd/proto/ckd/v1"
)

// Form says which message an Outgoing is.
type Form uint8

// The forms of a reply.
const (
	Stream Form = iota // DecomposeStreamResponse
	Unary              // DecomposeResponse
)

// Outgoing builds a reply: each method appends a field. Pass it to SendMsg, or return it from a
// unary handler, on a server that has Codec. After SendMsg, Begin starts another reply, apart from
// what the transport still holds. An Outgoing is not safe for concurrent use.
type Outgoing struct {
	form    Form
	sent    bool
	results int
	memory  *memory // nil before anything is appended
	sending Sending // nil for the codec's
	counted int64   // bytes that sending has counted already
}

// Decomposition holds what a Result says; ckd.v1.Decomposition explains the fields. Methods only
// read it. Every answer has the fields up to Receipt. The others are left out where they are zero,
// empty, nil or declared absent.
type Decomposition struct {
	Action        ckdv1.Action
	Score         ckdv1.Score
	Value         float64
	Threshold     float64
	HasThreshold  bool
	Gate          ckdv1.GateOutcome
	DecidingClass int // -1: absent
	Reason        ckdv1.DecisionReason

	Unreliable            []uint32
	Predicted, Passes     uint32
	Degenerate, Saturated bool
	Settled               bool

	// Assessed says that the policy has a risk model. Risk that is NaN is left out.
	Assessed                           bool
	Risk, Priority, PriorityPercentile float64

	// Receipt is left out where it is empty.
	Review  bool
	Receipt []byte

	// Vectors says that the answer has more than the decision. Without it the fields from here on
	// are ignored.
	Vectors            bool
	C, Skewness, Mean  []float64
	MI, Entropy, SumC  float64
	Dominant           int // -1: absent
	Variance           []float64
	ThirdMoment, M, C3 []float64
	ExpectedEntropy    float64
	SumCTop            float64
	SumCWeighted       float64
	Scores             *[decomp.NumScores]float64 // in the order of ckd.v1.Score from SCORE_ENTROPY; NaN: absent; nil: no scores
	PairA, PairB       []uint32                   // the pairs' classes; as long as Confusion and Correlation
	Confusion          []float64
	Correlation        []float64
}

// NewOutgoing returns an empty reply.
func NewOutgoing(f Form) *Outgoing { return &Outgoing{form: f} }

// Begin empties the reply, whether or not the last one was sent.
func (o *Outgoing) Begin(f Form) {
	if o.memory != nil {
		o.memory.release()
	}
	*o = Outgoing{form: f}
}

// ChargeTo has s follow the reply, for which it has counted some bytes already.
func (o *Outgoing) ChargeTo(s Sending, counted int64) { o.sending, o.counted = s, counted }

// Sent reports whether the transport has got the reply. What it counted of it is its own then.
func (o *Outgoing) Sent() bool { return o.sent }

// Len returns the size of the reply in bytes.
func (o *Outgoing) Len() int {
	if o.memory == nil {
		return 0
	}
	return len(o.memory.bytes)
}

// Results returns how many results were appended, errors included.
func (o *Outgoing) Results() int { return o.results }

// String hides the contents: gRPC's tracing formats messages at a later time.
func (o *Outgoing) String() string { return "outgoing message" }

// EncodePolicy encodes a policy for Outgoing.Policy.
func EncodePolicy(p *ckdv1.PolicyRef) []byte { return encode(p) }

// Policy appends a policy from EncodePolicy. A unary reply has one.
func (o *Outgoing) Policy(encoded []byte) {
	field := protowire.Number(2)
	if o.form == Unary {
		field = 1
	}
	o.message(field, encoded)
}

// Fault appends what was wrong with the message itself. It panics for unary replies, which have no
// such field.
func (o *Outgoing) Fault(st *rpcstatus.Status) {
	if o.form == Unary {
		panic("wire: a fault in a unary reply")
	}
	o.message(4, encodeStatus(st))
}

// Blocks appends how many blocks of the stream were handled.
func (o *Outgoing) Blocks(n uint64) {
	b := o.reserve(1 + binary.MaxVarintLen64)
	o.memory.bytes = protowire.AppendVarint(append(b, 5<<3|wireVarint), n)
}

// Error appends the result of an input that failed. The id must be valid UTF-8, as the ids of
// requests are.
func (o *Outgoing) Error(id []byte, group uint64, row, policy uint32, st *rpcstatus.Status) {
	encoded := encodeStatus(st)
	b := o.reserve(mostResult + len(id) + len(encoded))
	start := len(b)
	b = appendPosition(o.openResult(b, len(encoded), id), group, row, policy)
	b = append(b, 6<<3|wireBytes)
	b = protowire.AppendBytes(b, encoded)
	o.memory.bytes = closeMessage(b, start, len(encoded))
}

// Class appends the name of the next class to a unary reply, after its results.
func (o *Outgoing) Class(name string) { o.message(3, []byte(name)) }

// Result appends the result of an input. The id must be valid UTF-8, as the ids of requests are.
func (o *Outgoing) Result(id []byte, group uint64, row, policy uint32, d *Decomposition) {
	least, most := len(d.Receipt), mostResult+len(id)+mostVarint*len(d.Unreliable)
	if d.Vectors {
		least += d.sizeVectors()
		most += mostVectors + mostPair*len(d.PairA)
	}
	b := o.reserve(most + least)
	start := len(b)
	b = appendPosition(o.openResult(b, least, id), group, row, policy)
	outcome := len(b)
	b = appendDecision(openMessage(b, 5<<3|wireBytes, least), d)
	if len(d.Unreliable) > 0 {
		unreliable := len(b)
		b = append(b, 2<<3|wireBytes, 0)
		for _, k := range d.Unreliable {
			b = appendVarint(b, uint64(k))
		}
		b = closeMessage(b, unreliable, 0)
	}
	b = appendUint(b, 3, uint64(d.Predicted))
	b = appendUint(b, 4, uint64(d.Passes))
	b = appendBool(b, 5, d.Degenerate)
	b = appendBool(b, 6, d.Saturated)
	if d.Vectors {
		b = d.appendVectors(b)
	}
	b = appendBool(b, 23, d.Settled)
	if d.Assessed {
		if !math.IsNaN(d.Risk) {
			b = appendPresent(b, 24, d.Risk)
		}
		b = appendPresent(b, 25, d.Priority)
		b = appendPresent(b, 26, d.PriorityPercentile)
	}
	b = appendBool(b, 27, d.Review)
	if len(d.Receipt) > 0 {
		b = protowire.AppendBytes(protowire.AppendTag(b, 28, protowire.BytesType), d.Receipt)
	}
	b = closeMessage(b, outcome, least)
	o.memory.bytes = closeMessage(b, start, least)
}

// The most bytes that the parts of a result take, besides the contents of its id
// and vectors.
const (
	mostVarint  = 5 // bytes of the longest varint of 32 bits
	mostLength  = 1 + mostVarint
	mostResult  = 3*mostLength + mostDecision + mostSettled + mostAssessed + mostReview
	mostVectors = 7*(1+mostLength) + 3*9 + 6 + 3*10 + mostScores

	mostDecision = 128 // with the position before it
	mostSettled  = 3
	mostAssessed = 3 * (2 + 8)
	mostReview   = 3 + 1 + mostLength // the receipt's contents are added
	mostScores   = 3 + decomp.NumScores*9
	mostPair     = 3 + 2*6 + 2*9
)

// Wire types as bytes, to make tags of.
const (
	wireVarint = byte(protowire.VarintType)
	wireDouble = byte(protowire.Fixed64Type)
	wireBytes  = byte(protowire.BytesType)
)

// openResult begins a result, up to its id.
func (o *Outgoing) openResult(b []byte, least int, id []byte) []byte {
	o.results++
	tag := 3<<3 | wireBytes
	if o.form == Unary {
		tag = 2<<3 | wireBytes
	}
	b = openMessage(b, tag, least)
	if len(id) > 0 {
		b = append(b, 1<<3|wireBytes)
		b = appendVarint(b, uint64(len(id)))
		b = append(b, id...)
	}
	return b
}

func appendPosition(b []byte, group uint64, row, policy uint32) []byte {
	return appendUint(appendUint(appendUint(b, 2, group), 3, uint64(row)), 4, uint64(policy))
}

func appendDecision(b []byte, d *Decomposition) []byte {
	b = append(b, 1<<3|wireBytes, 0)
	start := len(b)
	b = appendUint(b, 1, enum(d.Action))
	b = appendUint(b, 2, enum(d.Score))
	b = appendDouble(b, 3, d.Value)
	if d.HasThreshold {
		b = appendPresent(b, 4, d.Threshold)
	}
	b = appendUint(b, 5, enum(d.Gate))
	if d.DecidingClass >= 0 {
		b = appendVarint(append(b, 6<<3|wireVarint), uint64(uint32(d.DecidingClass)))
	}
	b = appendUint(b, 7, enum(d.Reason))
	b[start-1] = byte(len(b) - start) // it takes less than 128 bytes
	return b
}

// message appends a field that is an encoded message.
func (o *Outgoing) message(field protowire.Number, encoded []byte) {
	b := o.reserve(mostLength + len(encoded))
	b = append(b, byte(field)<<3|wireBytes)
	o.memory.bytes = protowire.AppendBytes(b, encoded)
}

// sizeVectors returns the size of all vectors, without tags and lengths.
func (d *Decomposition) sizeVectors() int {
	return 8 * (len(d.C) + len(d.Skewness) + len(d.Mean) + len(d.Variance) + len(d.ThirdMoment) + len(d.M) + len(d.C3))
}

func (d *Decomposition) appendVectors(b []byte) []byte {
	b = appendDoubles(b, 7, d.C)
	b = appendDoubles(b, 8, d.Skewness)
	b = appendDoubles(b, 9, d.Mean)
	b = appendDouble(b, 10, d.MI)
	b = appendDouble(b, 11, d.Entropy)
	b = appendDouble(b, 12, d.SumC)
	if d.Dominant >= 0 {
		b = append(b, 13<<3|wireVarint)
		b = appendVarint(b, uint64(uint32(d.Dominant)))
	}
	b = appendDoubles(b, 14, d.Variance)
	b = appendDoubles(b, 15, d.ThirdMoment)
	b = appendDoubles(b, 16, d.M)
	b = appendDoubles(b, 17, d.C3)
	b = appendDouble(b, 18, d.ExpectedEntropy)
	b = appendDouble(b, 19, d.SumCTop)
	b = appendDouble(b, 20, d.SumCWeighted)
	if d.Scores != nil {
		b = protowire.AppendTag(b, 21, protowire.BytesType)
		b = append(b, 0)
		scores := len(b)
		for i, v := range d.Scores {
			if !math.IsNaN(v) {
				b = append(b, byte(i+1)<<3|wireDouble)
				b = binary.LittleEndian.AppendUint64(b, math.Float64bits(v))
			}
		}
		b[scores-1] = byte(len(b) - scores) // they take 9 bytes each, less than 128
	}
	for i := range d.PairA {
		b = protowire.AppendTag(b, 22, protowire.BytesType)
		b = append(b, 0)
		pair := len(b)
		b = appendUint(b, 1, uint64(d.PairA[i]))
		b = appendUint(b, 2, uint64(d.PairB[i]))
		b = appendDouble(b, 3, d.Confusion[i])
		b = appendDouble(b, 4, d.Correlation[i])
		b[pair-1] = byte(len(b) - pair) // it takes at most 30 bytes
	}
	return b
}

// openMessage begins a message of at least the given number of bytes. It leaves room before the
// message for such a length, which closeMessage fills in.
func openMessage(b []byte, tag byte, least int) []byte {
	b = append(b, tag, 0)
	for ; least >= 0x80; least >>= 7 {
		b = append(b, 0)
	}
	return b
}

// closeMessage ends a message whose tag is at start; least must be what openMessage got.
func closeMessage(b []byte, start, least int) []byte {
	n := len(b) - start - 2
	if n < 0x80 {
		b[start+1] = byte(n)
		return b
	}
	return closeLong(b, start, least)
}

// closeLong moves the message when its length takes more room than was left.
func closeLong(b []byte, start, least int) []byte {
	body := start + 1 + sizeVarint(least)
	n := len(b) - body
	if moved := start + 1 + sizeVarint(n); moved > body {
		b = b[:moved+n]
		copy(b[moved:], b[body:])
	}
	appendVarint(b[:start+1], uint64(n))
	return b
}

// What follows is protobuf's own: fields that are zero are left out, and of
// doubles only +0 is zero.

func enum[E ~int32](e E) uint64 { return uint64(int64(e)) }

func sizeVarint(n int) int { return (bits.Len64(uint64(n)|1) + 6) / 7 }

func appendVarint(b []byte, v uint64) []byte {
	for v >= 0x80 {
		b = append(b, byte(v)|0x80)
		v >>= 7
	}
	return append(b, byte(v))
}

func appendUint(b []byte, field byte, v uint64) []byte {
	if v == 0 {
		return b
	}
	if v < 0x80 {
		return append(b, field<<3|wireVarint, byte(v))
	}
	return appendVarint(append(b, field<<3|wireVarint), v)
}

func appendBool(b []byte, field protowire.Number, v bool) []byte {
	if !v {
		return b
	}
	return append(protowire.AppendTag(b, field, protowire.VarintType), 1)
}

func appendDouble(b []byte, field protowire.Number, v float64) []byte {
	if math.Float64bits(v) == 0 {
		return b
	}
	return appendPresent(b, field, v)
}

// appendPresent appends a double even if it is zero, as an optional field is.
func appendPresent(b []byte, field protowire.Number, v float64) []byte {
	b = appendVarint(b, protowire.EncodeTag(field, protowire.Fixed64Type))
	return binary.LittleEndian.AppendUint64(b, math.Float64bits(v))
}

func appendDoubles(b []byte, field protowire.Number, v []float64) []byte {
	if len(v) == 0 {
		return b
	}
	b = appendVarint(b, protowire.EncodeTag(field, protowire.BytesType))
	b = appendVarint(b, uint64(8*len(v)))
	if bigEndian {
		for _, x := range v {
			b = binary.LittleEndian.AppendUint64(b, math.Float64bits(x))
		}
		return b
	}
	return append(b, unsafe.Slice((*byte)(unsafe.Pointer(unsafe.SliceData(v))), 8*len(v))...)
}

// encode uses the generated encoder, for messages whose strings are valid.
func encode(m proto.Message) []byte {
	b, err := proto.MarshalOptions{Deterministic: true}.Marshal(m)
	if err != nil {
		panic("wire: " + err.Error())
	}
	return b
}

// encodeStatus encodes any status. An error is answered even if part of its text cannot be encoded.
func encodeStatus(st *rpcstatus.Status) []byte {
	b, err := proto.MarshalOptions{Deterministic: true}.Marshal(st)
	if err != nil {
		return encode(&rpcstatus.Status{Code: st.GetCode(), Message: strings.ToValidUTF8(st.GetMessage(), "\uFFFD")})
	}
	return b
}

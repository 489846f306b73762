package wire

import (
	"fmt"
	"unicode/utf8"

	"google.golang.org/protobuf/encoding/protowire"
	"google.golang.org/protobuf/proto"

	ckdv1 "github.com/ckd-project/ckd/proto/ckd/v1"
)

// StreamRequest is a decoded DecomposeStreamRequest: a header, a block or neither. Decoding again
// reuses its memory.
type StreamRequest struct {
	Header *ckdv1.StreamHeader // nil unless the message is a header
	Block  *Block              // nil unless the message is a block; it is part of the StreamRequest
	block  Block
}

// Block is a decoded ckd.v1.Block.
type Block struct {
	Group  uint64
	Passes uint32
	Rows   []uint32
	Final  bool
	IDs    IDs
	Values Values
	// Contexts are those of the ids, if there are any.
	Contexts Contexts
}

// UnaryRequest is a decoded DecomposeRequest. Decoding again reuses its memory, except that of
// strings.
type UnaryRequest struct {
	Model     string
	Classes   []string
	Detail    ckdv1.Detail
	Kind      ckdv1.Kind
	Layout    ckdv1.Layout
	Passes    uint32
	Inputs    uint32
	IDs       IDs
	Values    Values
	Posterior string
	// ClassNames asks for the names of the classes in the reply.
	ClassNames bool
	// Receipts, ModelVersion and Contexts are for the receipts of the results.
	Receipts     ckdv1.Receipts
	ModelVersion string
	Contexts     Contexts
}

// IDs holds the input ids of a message, or other texts.
type IDs struct {
	bytes []byte   // one after the other
	ends  []uint32 // where each ends; a message has less than 4 GiB
}

// Len returns the number of ids.
func (ids *IDs) Len() int { return len(ids.ends) }

// At returns an id, valid until the next Decode. The caller must not change it.
func (ids *IDs) At(i int) []byte {
	start, end := uint32(0), ids.ends[i]
	if i > 0 {
		start = ids.ends[i-1]
	}
	return ids.bytes[start:end:end]
}

// Decode reads a message. It fails for bytes that the generated decoder refuses.
func (r *StreamRequest) Decode(in *Incoming) error {
	r.Header, r.Block = nil, nil
	if r.block.read(in) {
		r.Block = &r.block
		return nil
	}
	var m ckdv1.DecomposeStreamRequest
	if err := unmarshal(in, &m); err != nil {
		return err
	}
	r.Header = m.GetHeader()
	if b := m.GetBlock(); b != nil {
		r.Block = &r.block
		r.block = Block{
			Group: b.Group, Passes: b.Passes, Rows: b.Rows, Final: b.Final,
			IDs: idsOf(b.InputIds), Values: valuesOf(b.Values, b.ValuesLe), Contexts: contextsOf(b.Contexts),
		}
	}
	return nil
}

// keptBytes bounds the room for ids and rows that is kept for the next message.
const keptBytes = 16 << 10

// Free drops what was decoded, before or after Incoming.Free, and keeps little memory.
func (r *StreamRequest) Free() {
	r.Header, r.Block = nil, nil
	b := &r.block
	if b.IDs.room()+b.Contexts.texts.room()+4*cap(b.Contexts.ends)+4*cap(b.Rows) > keptBytes {
		*b = Block{}
		return
	}
	b.Values.free()
}

// Decode reads a message. It fails for bytes that the generated decoder refuses.
func (r *UnaryRequest) Decode(in *Incoming) error {
	if r.read(in) {
		return nil
	}
	var m ckdv1.DecomposeRequest
	if err := unmarshal(in, &m); err != nil {
		return err
	}
	*r = UnaryRequest{
		Model: m.Model, Classes: m.Classes, Detail: m.Detail, Kind: m.Kind, Layout: m.Layout, Passes: m.Passes,
		Inputs: m.Inputs, IDs: idsOf(m.InputIds), Values: valuesOf(m.Values, m.ValuesLe), Posterior: m.Posterior,
		ClassNames: m.GetClassNames(), Receipts: m.Receipts, ModelVersion: m.ModelVersion, Contexts: contextsOf(m.Contexts),
	}
	return nil
}

// unmarshal decodes a message with the generated decoder. It fails for more messages in it than
// could be meant: see Incoming.Message.
func unmarshal(in *Incoming, m proto.Message) error {
	data := in.joined()
	count := partCount{left: mostParts, messagesAlone: true}
	err := count.add(data, m.ProtoReflect().Descriptor(), 0)
	if err == nil {
		err = proto.Unmarshal(data, m)
	}
	if err != nil {
		return fmt.Errorf("expected the bytes of a %s: %w", m.ProtoReflect().Descriptor().FullName(), err)
	}
	return nil
}

func idsOf(in []string) (ids IDs) {
	for _, id := range in {
		ids.add(id)
	}
	return ids
}

func (ids *IDs) add(id string) {
	ids.bytes = append(ids.bytes, id...)
	ids.ends = append(ids.ends, uint32(len(ids.bytes)))
}

// Tags of the fields, in the one form that encoders write: a single byte. All
// other forms and fields are left to the generated decoder.
const (
	tagBlock = 2<<3 | byte(protowire.BytesType)

	tagBlockGroup    = 1<<3 | byte(protowire.VarintType)
	tagBlockPasses   = 2<<3 | byte(protowire.VarintType)
	tagBlockID       = 3<<3 | byte(protowire.BytesType)
	tagBlockRows     = 4<<3 | byte(protowire.BytesType)
	tagBlockFinal    = 5<<3 | byte(protowire.VarintType)
	tagBlockValues   = 6<<3 | byte(protowire.BytesType)
	tagBlockValuesLE = 7<<3 | byte(protowire.BytesType)
	tagBlockContext  = 8<<3 | byte(protowire.BytesType)

	tagUnaryModel     = 1<<3 | byte(protowire.BytesType)
	tagUnaryClass     = 2<<3 | byte(protowire.BytesType)
	tagUnaryDetail    = 3<<3 | byte(protowire.VarintType)
	tagUnaryKind      = 4<<3 | byte(protowire.VarintType)
	tagUnaryLayout    = 5<<3 | byte(protowire.VarintType)
	tagUnaryPasses    = 6<<3 | byte(protowire.VarintType)
	tagUnaryInputs    = 7<<3 | byte(protowire.VarintType)
	tagUnaryID        = 8<<3 | byte(protowire.BytesType)
	tagUnaryValues    = 9<<3 | byte(protowire.BytesType)
	tagUnaryValuesLE  = 10<<3 | byte(protowire.BytesType)
	tagUnaryPosterior = 11<<3 | byte(protowire.BytesType)
	tagUnaryNames     = 12<<3 | byte(protowire.VarintType)
	tagUnaryReceipts  = 13<<3 | byte(protowire.VarintType)
	tagUnaryVersion   = 14<<3 | byte(protowire.BytesType)
	tagUnaryContext   = 15<<3 | byte(protowire.BytesType)
)

// read reads a message that is one block in its usual form, and reports whether it is. The
// generated decoder has to judge the others.
func (b *Block) read(in *Incoming) bool {
	b.Group, b.Passes, b.Final = 0, 0, false
	b.Rows, b.Values = reuse(b.Rows), Values{}
	b.IDs.reset()
	b.Contexts.reset()
	c := newCursor(in)
	if c.left == 0 || c.byte() != tagBlock {
		return false
	}
	if n := c.length(); n != c.left {
		return false
	}
	for c.left > 0 && !c.unusual {
		switch c.byte() {
		case tagBlockGroup:
			b.Group = c.varint()
		case tagBlockPasses:
			b.Passes = uint32(c.varint())
		case tagBlockID:
			b.IDs.read(&c)
		case tagBlockRows:
			n := c.length()
			for end := c.left - n; c.left > end && !c.unusual; {
				b.Rows = append(b.Rows, uint32(c.varint()))
				c.unusual = c.unusual || c.left < end
			}
		case tagBlockFinal:
			b.Final = protowire.DecodeBool(c.varint())
		case tagBlockValues:
			b.Values.readFloats(&c)
		case tagBlockValuesLE:
			b.Values.readBytes(&c)
		case tagBlockContext:
			b.Contexts.read(&c)
		default:
			return false
		}
	}
	return !c.unusual
}

// read does for unary requests what Block.read does for blocks. A string that equals the last one
// is not allocated again.
func (r *UnaryRequest) read(in *Incoming) bool {
	last := *r
	*r = UnaryRequest{Classes: reuse(r.Classes), IDs: r.IDs, Contexts: r.Contexts}
	r.IDs.reset()
	r.Contexts.reset()
	c := newCursor(in)
	for c.left > 0 && !c.unusual {
		switch c.byte() {
		case tagUnaryModel:
			r.Model = c.string(last.Model)
		case tagUnaryClass:
			class := ""
			if i := len(r.Classes); i < len(last.Classes) {
				class = last.Classes[i]
			}
			r.Classes = append(r.Classes, c.string(class))
		case tagUnaryDetail:
			r.Detail = ckdv1.Detail(c.varint())
		case tagUnaryKind:
			r.Kind = ckdv1.Kind(c.varint())
		case tagUnaryLayout:
			r.Layout = ckdv1.Layout(c.varint())
		case tagUnaryPasses:
			r.Passes = uint32(c.varint())
		case tagUnaryInputs:
			r.Inputs = uint32(c.varint())
		case tagUnaryID:
			r.IDs.read(&c)
		case tagUnaryValues:
			r.Values.readFloats(&c)
		case tagUnaryValuesLE:
			r.Values.readBytes(&c)
		case tagUnaryPosterior:
			r.Posterior = c.string(last.Posterior)
		case tagUnaryNames:
			r.ClassNames = protowire.DecodeBool(c.varint())
		case tagUnaryReceipts:
			r.Receipts = ckdv1.Receipts(c.varint())
		case tagUnaryVersion:
			r.ModelVersion = c.string(last.ModelVersion)
		case tagUnaryContext:
			r.Contexts.read(&c)
		default:
			return false
		}
	}
	return !c.unusual
}

func (ids *IDs) reset() { ids.bytes, ids.ends = reuse(ids.bytes), reuse(ids.ends) }

// room returns the bytes that the ids have room for.
func (ids *IDs) room() int { return cap(ids.bytes) + 4*cap(ids.ends) }

// read copies an id out of the message.
func (ids *IDs) read(c *cursor) {
	start := len(ids.bytes)
	ids.bytes = c.appendTo(ids.bytes, c.length())
	ids.ends = append(ids.ends, uint32(len(ids.bytes)))
	c.unusual = c.unusual || !utf8.Valid(ids.bytes[start:])
}

// readFloats notes where the field values is. Several pieces of it, or both encodings, are unusual.
func (v *Values) readFloats(c *cursor) {
	n := c.length()
	c.unusual = c.unusual || n%4 != 0 || v.left > 0
	v.floats = n / 4
	v.locate(c, n)
}

// readBytes notes where the field values_le is. The last of several counts.
func (v *Values) readBytes(c *cursor) {
	n := c.length()
	c.unusual = c.unusual || v.floats > 0
	v.bytes = n
	v.locate(c, n)
}

func (v *Values) locate(c *cursor, n int) {
	v.segments, v.left = c.in.segments, n
	v.segment, v.offset = c.position()
	c.skip(n)
}

// cursor reads the bytes of a message across its segments. Asking for more than there is makes it
// unusual; what it returns from then on is meaningless.
type cursor struct {
	in      *Incoming
	b       []byte   // rest of this segment, not empty before the message ends
	rest    [][]byte // the segments after it
	left    int      // bytes to the end of the message
	unusual bool
}

func newCursor(in *Incoming) cursor {
	c := cursor{in: in, left: in.size}
	if len(in.segments) > 0 {
		c.b, c.rest = in.segments[0], in.segments[1:]
	}
	return c
}

// position returns the segment of the next byte, and the byte's offset in it.
func (c *cursor) position() (segment, offset int) {
	segment = len(c.in.segments) - len(c.rest) - 1
	if segment < 0 {
		return 0, 0
	}
	return segment, len(c.in.segments[segment]) - len(c.b)
}

// byte reads the next byte. There must be one.
func (c *cursor) byte() byte {
	b := c.b[0]
	c.skip(1)
	return b
}

// skip passes over n bytes. There must be n.
func (c *cursor) skip(n int) {
	c.left -= n
	for n >= len(c.b) && len(c.rest) > 0 {
		n -= len(c.b)
		c.b, c.rest = c.rest[0], c.rest[1:]
	}
	c.b = c.b[n:]
}

func (c *cursor) varint() uint64 {
	if len(c.b) > 1 && c.b[0] < 0x80 {
		v := c.b[0]
		c.b = c.b[1:]
		c.left--
		return uint64(v)
	}
	v, n := protowire.ConsumeVarint(c.b)
	if n < 0 && len(c.rest) > 0 { // it may straddle a boundary
		var joined [10]byte
		ahead := *c
		v, n = protowire.ConsumeVarint(ahead.appendTo(joined[:0], min(len(joined), c.left)))
	}
	if n < 0 {
		c.unusual = true
		return 0
	}
	c.skip(n)
	return v
}

// length reads a length, and checks that at least that many bytes follow.
func (c *cursor) length() int {
	n := c.varint()
	if n > uint64(c.left) {
		c.unusual = true
		return 0
	}
	return int(n)
}

// appendTo copies the next n bytes to dst. There must be n.
func (c *cursor) appendTo(dst []byte, n int) []byte {
	for n > len(c.b) {
		n -= len(c.b)
		dst = append(dst, c.b...)
		c.skip(len(c.b))
	}
	dst = append(dst, c.b[:n]...)
	c.skip(n)
	return dst
}

// string reads a string of n bytes, and returns last itself if it is equal.
func (c *cursor) string(last string) string {
	n := c.length()
	b := c.b
	if n > len(b) {
		b = c.appendTo(make([]byte, 0, n), n)
	} else {
		b = b[:n]
		c.skip(n)
	}
	c.unusual = c.unusual || !utf8.Valid(b)
	if string(b) == last {
		return last
	}
	return string(b)
}

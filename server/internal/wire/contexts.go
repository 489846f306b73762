package wire

import (
	"unicode/utf8"

	"google.golang.org/protobuf/encoding/protowire"

	ckdv1 "github.com/ckd-project/ckd/proto/ckd/v1"
)

// Contexts holds the encoded ckd.v1.InputContext messages of a request.
type Contexts struct{ encoded IDs }

// Len returns the number of contexts.
func (c *Contexts) Len() int { return c.encoded.Len() }

// At returns a context, valid until the next Decode.
func (c *Contexts) At(i int) Context {
	x := Context{slices: c.encoded.At(i)}
	if len(x.slices) > 0 && x.slices[0] == tagContextGroup {
		x.Group, x.slices = consume(x.slices[1:])
	}
	return x
}

// Context is what a client states about one input.
type Context struct {
	Group  []byte
	slices []byte // entries that NextSlice has not returned
}

// NextSlice returns the next slice. Each name occurs once.
func (x *Context) NextSlice() (name, value []byte, ok bool) {
	if len(x.slices) == 0 {
		return nil, nil, false
	}
	var entry []byte
	entry, x.slices = consume(x.slices[1:])
	name, entry = consume(entry[1:])
	value, _ = consume(entry[1:])
	return name, value, true
}

// mostUsualSlices bounds the slices of a context that is read by hand. No server takes more.
const mostUsualSlices = 8

// Tags of the fields of ckd.v1.InputContext and of the entries of its map.
const (
	tagContextGroup = 1<<3 | wireBytes
	tagContextSlice = 2<<3 | wireBytes
	tagSliceName    = 1<<3 | wireBytes
	tagSliceValue   = 2<<3 | wireBytes
)

// read copies a context out of the message. Its usual form is the one that At and NextSlice read:
// the group if there is one, then slices of different names, each a name and a value.
func (c *Contexts) read(from *cursor) {
	ids := &c.encoded
	start := len(ids.bytes)
	ids.bytes = from.appendTo(ids.bytes, from.length())
	ids.ends = append(ids.ends, uint32(len(ids.bytes)))
	from.unusual = from.unusual || !isUsualContext(ids.bytes[start:])
}

func isUsualContext(b []byte) bool {
	if len(b) > 0 && b[0] == tagContextGroup {
		var group []byte
		var ok bool
		if group, b, ok = consumeText(b, tagContextGroup); !ok || len(group) == 0 {
			return false
		}
	}
	var names [mostUsualSlices][]byte
	for n := 0; len(b) > 0; n++ {
		entry, rest, ok := consumeField(b, tagContextSlice)
		if !ok || n == len(names) {
			return false
		}
		name, entry, ok := consumeText(entry, tagSliceName)
		if !ok {
			return false
		}
		if _, entry, ok = consumeText(entry, tagSliceValue); !ok || len(entry) > 0 {
			return false
		}
		for _, before := range names[:n] {
			if string(before) == string(name) {
				return false
			}
		}
		names[n], b = name, rest
	}
	return true
}

// consumeField returns the contents of a field, and what follows it. It reports whether b begins
// with such a field.
func consumeField(b []byte, tag byte) (field, rest []byte, ok bool) {
	if len(b) == 0 || b[0] != tag {
		return nil, nil, false
	}
	field, n := protowire.ConsumeBytes(b[1:])
	if n < 0 {
		return nil, nil, false
	}
	return field, b[1+n:], true
}

func consumeText(b []byte, tag byte) (text, rest []byte, ok bool) {
	text, rest, ok = consumeField(b, tag)
	return text, rest, ok && utf8.Valid(text)
}

// consume returns the bytes whose length stands before them, and what follows them.
func consume(b []byte) (field, rest []byte) {
	field, n := protowire.ConsumeBytes(b)
	return field, b[n:]
}

// contextsOf returns the contexts of a message that the generated decoder read, in the usual form
// but for the number of their slices.
func contextsOf(in []*ckdv1.InputContext) Contexts {
	var c Contexts
	ids := &c.encoded
	field := func(to []byte, tag byte, text string) []byte {
		return protowire.AppendString(append(to, tag), text)
	}
	var entry []byte
	for _, x := range in {
		if x.GetGroup() != "" {
			ids.bytes = field(ids.bytes, tagContextGroup, x.GetGroup())
		}
		for name, value := range x.GetSlices() {
			entry = field(field(entry[:0], tagSliceName, name), tagSliceValue, value)
			ids.bytes = protowire.AppendBytes(append(ids.bytes, tagContextSlice), entry)
		}
		ids.ends = append(ids.ends, uint32(len(ids.bytes)))
	}
	return c
}

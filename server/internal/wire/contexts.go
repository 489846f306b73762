package wire

import ckdv1 "github.com/ckd-project/ckd/proto/ckd/v1"

// Contexts holds the ckd.v1.InputContext messages of a request.
type Contexts struct {
	texts IDs      // of each context the group, then name and value of each slice
	ends  []uint32 // of each context: the texts up to its end
}

// Len returns the number of contexts.
func (c *Contexts) Len() int { return len(c.ends) }

// At returns a context, valid until the next Decode.
func (c *Contexts) At(i int) Context {
	start := uint32(0)
	if i > 0 {
		start = c.ends[i-1]
	}
	return Context{Group: c.texts.At(int(start)), texts: &c.texts, next: int(start) + 1, end: int(c.ends[i])}
}

// Context is what a client states about one input.
type Context struct {
	Group     []byte
	texts     *IDs
	next, end int // texts of the slices that NextSlice has not returned
}

// NextSlice returns the next slice. Each name occurs once.
func (x *Context) NextSlice() (name, value []byte, ok bool) {
	if x.next == x.end {
		return nil, nil, false
	}
	name, value = x.texts.At(x.next), x.texts.At(x.next+1)
	x.next += 2
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

// read copies a context out of the message. Its usual form is the group if there is one, then slices of
// different names, each a name and a value.
func (c *Contexts) read(from *cursor) {
	n := from.length()
	end, first := from.left-n, c.texts.Len()
	if !c.readText(from, tagContextGroup, end) {
		c.texts.add("")
	}
	for from.left > end && !from.unusual {
		if from.byte() != tagContextSlice || c.texts.Len()-first > 2*mostUsualSlices {
			from.unusual = true
			return
		}
		n, name := from.length(), c.texts.Len()
		entry := from.left - n
		usual := c.readText(from, tagSliceName, entry) && c.readText(from, tagSliceValue, entry) && from.left == entry
		for before := first + 1; usual && before < name; before += 2 {
			usual = string(c.texts.At(before)) != string(c.texts.At(name))
		}
		from.unusual = from.unusual || !usual
	}
	from.unusual = from.unusual || from.left != end
	c.ends = append(c.ends, uint32(c.texts.Len()))
}

// readText reads a text, if there is one with this tag before the end.
func (c *Contexts) readText(from *cursor, tag byte, end int) bool {
	if from.left <= end || from.b[0] != tag {
		return false
	}
	from.byte()
	c.texts.read(from)
	return true
}

func (c *Contexts) reset() {
	c.texts.reset()
	c.ends = reuse(c.ends)
}

// contextsOf returns the contexts of a message that the generated decoder read.
func contextsOf(in []*ckdv1.InputContext) (c Contexts) {
	for _, x := range in {
		c.texts.add(x.GetGroup())
		for name, value := range x.GetSlices() {
			c.texts.add(name)
			c.texts.add(value)
		}
		c.ends = append(c.ends, uint32(c.texts.Len()))
	}
	return c
}

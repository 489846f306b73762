package rest

import (
	"encoding/binary"
	"encoding/json"
	"fmt"
	"math"
	"net/http"
	"slices"
	"strconv"

	"google.golang.org/grpc/codes"

	"github.com/ckd-project/ckd/internal/httperror"
	"github.com/ckd-project/ckd/oip/internal/contents"
	inferencepb "github.com/ckd-project/ckd/proto/inference"
)

// datatype converts elements of tensors between little-endian bytes and JSON.
type datatype struct {
	bytes int // bytes in an element; 0 if the number varies
	// read appends the next element.
	read func(s *scanner, to []byte) ([]byte, error)
	// write appends the first element as JSON, and returns how many bytes it has, or -1 if it
	// breaks off.
	write func(to, raw []byte) ([]byte, int)
}

// datatypes holds the datatypes of the protocol that have a form in JSON.
var datatypes = map[string]datatype{
	"BOOL":   {1, readBool, writeBool},
	"INT8":   signed(8),
	"INT16":  signed(16),
	"INT32":  signed(32),
	"INT64":  signed(64),
	"UINT8":  unsigned(8),
	"UINT16": unsigned(16),
	"UINT32": unsigned(32),
	"UINT64": unsigned(64),
	"FP32":   float(32),
	"FP64":   float(64),
	"BYTES":  {0, readText, writeText},
}

// maxRank bounds the dimensions of a tensor.
const maxRank = 8

// elements reads the data of a tensor, flat or nested as its shape is. It returns the bytes of the
// elements, which may be at most most bytes.
func (s *scanner) elements(t *inferencepb.ModelInferRequest_InferInputTensor, most int) ([]byte, error) {
	s.peek()
	start, name := s.at, httperror.Clip(t.GetName())
	kind, ok := datatypes[t.GetDatatype()]
	if !ok {
		return nil, s.fail("input %q: data of datatype %q has no form in JSON; expected one of BOOL, INT8 to INT64, UINT8 to UINT64, FP32, FP64, BYTES, or binary data",
			name, httperror.Clip(t.GetDatatype()))
	}
	want, isVolume := volume(t.GetShape())
	elements := min(want, int64(len(s.data)-s.at)/2, int64(most)/8) // each has two bytes of text or more
	n := &nested{scanner: s, kind: kind, name: name, most: most, raw: make([]byte, 0, elements*int64(kind.bytes))}
	if err := n.array(1); err != nil {
		return nil, err
	}
	switch {
	case !isVolume:
		return nil, s.failAt(start, "input %q: the shape %v has no number of elements", name, t.GetShape())
	case want != n.count:
		return nil, s.failAt(start, "input %q: data has %d elements, the shape %v has %d", name, n.count, t.GetShape(), want)
	case len(n.dims) > 1 && !slices.EqualFunc(n.dims, t.GetShape(), func(a int, b int64) bool { return int64(a) == b }):
		return nil, s.failAt(start, "input %q: data is nested as %v, the shape is %v", name, n.dims, t.GetShape())
	}
	return n.raw, nil
}

// nested reads the arrays of a tensor's data, and finds how they are nested.
type nested struct {
	*scanner
	kind datatype
	name string // name of the input, for messages
	most int    // bytes

	raw    []byte // the elements so far
	count  int64  // number of elements so far
	dims   []int  // lengths of the arrays, by depth from 1; -1 until one of that depth has ended
	leaves int    // depth of the elements; 0 until one is read
}

// array reads an array at a depth, with those in it.
func (n *nested) array(depth int) error {
	if depth > maxRank {
		return n.fail("data is nested more than %d deep", maxRank)
	}
	length, opened := 0, n.at
	err := n.scanner.array("data", func() error {
		length++
		if n.peek() == '[' {
			return n.array(depth + 1)
		}
		return n.element(depth)
	})
	if err != nil {
		return err
	}
	for len(n.dims) < depth {
		n.dims = append(n.dims, -1)
	}
	if n.dims[depth-1] < 0 {
		n.dims[depth-1] = length
	}
	if before := n.dims[depth-1]; before != length {
		return n.failAt(opened, "an array of data has %d elements, those before have %d", length, before)
	}
	return nil
}

// element reads an element at a depth.
func (n *nested) element(depth int) (err error) {
	if n.leaves == 0 {
		n.leaves = depth
	}
	if depth != n.leaves {
		return n.fail("data is an element here and an array elsewhere")
	}
	if len(n.raw) >= n.most {
		return httperror.New(http.StatusRequestEntityTooLarge, codes.ResourceExhausted,
			fmt.Sprintf("input %q: data is over the limit of %d bytes: send fewer inputs at once", n.name, n.most))
	}
	n.count++
	n.raw, err = n.kind.read(n.scanner, n.raw)
	return err
}

// volume returns the number of elements of a shape. It returns false if the shape has none, or if
// the number is too large.
func volume(shape []int64) (int64, bool) {
	n := int64(1)
	for _, d := range shape {
		if d < 0 || d > 0 && n > math.MaxInt64/d {
			return 0, false
		}
		n *= d
	}
	return n, true
}

// appendElements appends the elements of a tensor as a flat array.
func appendElements(to []byte, name string, raw []byte) ([]byte, error) {
	kind, ok := datatypes[name]
	if !ok {
		return nil, fmt.Errorf("datatype %q has no form in JSON", name)
	}
	to = append(to, '[')
	for first := true; len(raw) > 0; first = false {
		if !first {
			to = append(to, ',')
		}
		if kind.bytes > len(raw) {
			return nil, fmt.Errorf("%d bytes are left over after the elements of datatype %s", len(raw), name)
		}
		var n int
		if to, n = kind.write(to, raw); n < 0 {
			return nil, fmt.Errorf("an element of datatype %s breaks off", name)
		}
		raw = raw[n:]
	}
	return append(to, ']'), nil
}

// rawOf returns the bytes of a tensor whose elements come typed.
func rawOf(c *inferencepb.InferTensorContents, name string) []byte {
	raw, _ := contents.Raw(c, name)
	return raw
}

func readBool(s *scanner, to []byte) ([]byte, error) {
	s.peek()
	start := s.at
	switch s.word() {
	case "true":
		return append(to, 1), nil
	case "false":
		return append(to, 0), nil
	}
	s.at = start
	return nil, s.fail("got %s, expected true or false", s.found())
}

func writeBool(to, raw []byte) ([]byte, int) { return strconv.AppendBool(to, raw[0] != 0), 1 }

// numeric returns the datatype of numbers. parse returns the bits of the number in a text, and
// format appends the number that has these bits.
func numeric(
	bits int, what string, parse func(text string) (uint64, error), format func(to []byte, v uint64) []byte,
) datatype {
	return datatype{
		bytes: bits / 8,
		read: func(s *scanner, to []byte) ([]byte, error) {
			v, err := parseNumber(s, what, parse)
			return contents.AppendInteger(to, bits/8, v), err
		},
		write: func(to, raw []byte) ([]byte, int) { return format(to, contents.Integer(raw[:bits/8])), bits / 8 },
	}
}

func signed(bits int) datatype {
	return numeric(bits, fmt.Sprintf("an integer of %d bits", bits), func(text string) (uint64, error) {
		n, err := strconv.ParseInt(text, 10, bits)
		return uint64(n), err
	}, func(to []byte, v uint64) []byte {
		return strconv.AppendInt(to, int64(v)<<(64-bits)>>(64-bits), 10)
	})
}

func unsigned(bits int) datatype {
	return numeric(bits, fmt.Sprintf("an integer from 0 of %d bits", bits), func(text string) (uint64, error) {
		return strconv.ParseUint(text, 10, bits)
	}, func(to []byte, v uint64) []byte {
		return strconv.AppendUint(to, v, 10)
	})
}

func float(bits int) datatype {
	return numeric(bits, fmt.Sprintf("a number of FP%d", bits), func(text string) (uint64, error) {
		v, err := strconv.ParseFloat(text, bits)
		if bits == 32 {
			return uint64(math.Float32bits(float32(v))), err
		}
		return math.Float64bits(v), err
	}, func(to []byte, v uint64) []byte {
		if bits == 32 {
			return appendFloat(to, float64(math.Float32frombits(uint32(v))), bits)
		}
		return appendFloat(to, math.Float64frombits(v), bits)
	})
}

// appendFloat appends a number, or null for NaN and infinities, which JSON lacks.
func appendFloat(to []byte, v float64, bits int) []byte {
	if math.IsNaN(v) || math.IsInf(v, 0) {
		return append(to, "null"...)
	}
	format := byte('f')
	if a := math.Abs(v); a != 0 && (a < 1e-6 || a >= 1e21) {
		format = 'e'
	}
	return strconv.AppendFloat(to, v, format, -1, bits)
}

func readText(s *scanner, to []byte) ([]byte, error) {
	text, err := s.string("an element of BYTES")
	if err != nil {
		return nil, err
	}
	return append(binary.LittleEndian.AppendUint32(to, uint32(len(text))), text...), nil
}

func writeText(to, raw []byte) ([]byte, int) {
	if len(raw) < 4 {
		return nil, -1
	}
	n := int(binary.LittleEndian.Uint32(raw))
	if n > len(raw)-4 {
		return nil, -1
	}
	return appendString(to, string(raw[4:4+n])), 4 + n
}

// appendString appends a string of JSON. It replaces bytes that are not UTF-8.
func appendString(to []byte, text string) []byte {
	quoted, err := json.Marshal(text)
	if err != nil { // never: every string has a form in JSON
		return append(to, `""`...)
	}
	return append(to, quoted...)
}

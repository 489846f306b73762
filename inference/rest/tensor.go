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

	"github.com/ckd-project/ckd/inference/contents"
	"github.com/ckd-project/ckd/internal/httperror"
	inferencepb "github.com/ckd-project/ckd/proto/inference"
)

// datatype is how the elements of a tensor look, as little-endian bytes and in JSON.
type datatype struct {
	bytes int // of an element; 0 for any number
	// read appends an element that comes next.
	read func(s *scanner, to []byte) ([]byte, error)
	// write appends the element at the front as JSON, and says how many bytes it has; -1 if there is none.
	write func(to, raw []byte) ([]byte, int)
}

// datatypes are those of the protocol that have a form in JSON.
var datatypes = map[string]datatype{
	"BOOL":   {1, readBool, writeBool},
	"INT8":   {1, readSigned(8), writeSigned(8)},
	"INT16":  {2, readSigned(16), writeSigned(16)},
	"INT32":  {4, readSigned(32), writeSigned(32)},
	"INT64":  {8, readSigned(64), writeSigned(64)},
	"UINT8":  {1, readUnsigned(8), writeUnsigned(8)},
	"UINT16": {2, readUnsigned(16), writeUnsigned(16)},
	"UINT32": {4, readUnsigned(32), writeUnsigned(32)},
	"UINT64": {8, readUnsigned(64), writeUnsigned(64)},
	"FP32":   {4, readFloat(32), writeFloat(32)},
	"FP64":   {8, readFloat(64), writeFloat(64)},
	"BYTES":  {0, readText, writeText},
}

// maxRank of a tensor.
const maxRank = 8

// elements reads the data of a tensor, flat or nested as its shape is, and is its bytes, of which there may be at most
// so many.
func (s *scanner) elements(t *inferencepb.ModelInferRequest_InferInputTensor, most int) ([]byte, error) {
	s.peek()
	start := s.at
	kind, ok := datatypes[t.GetDatatype()]
	if !ok {
		return nil, s.fail("input %q: data of datatype %q has no form in JSON; expected one of BOOL, INT8 to INT64, UINT8 to UINT64, FP32, FP64, BYTES, or binary data",
			httperror.Clip(t.GetName()), httperror.Clip(t.GetDatatype()))
	}
	want, isVolume := volume(t.GetShape())
	raw := make([]byte, 0, min(want, int64(len(s.data)-s.at)/2, int64(most)/8)*int64(kind.bytes)) // an element has two bytes of text or more
	var dims []int                                                                                // of the data as it is nested
	count, leaves := int64(0), 0
	var array func(depth int) error
	array = func(depth int) error {
		if depth > maxRank {
			return s.fail("data is nested more than %d deep", maxRank)
		}
		n, opened := 0, s.at
		err := s.array("data", func() (err error) {
			n++
			if s.peek() == '[' {
				return array(depth + 1)
			}
			if leaves == 0 {
				leaves = depth
			}
			if depth != leaves {
				return s.fail("data is an element here and an array elsewhere")
			}
			if len(raw) >= most {
				return httperror.New(http.StatusRequestEntityTooLarge, codes.ResourceExhausted,
					fmt.Sprintf("input %q: data is over the limit of %d bytes: send fewer inputs at once", httperror.Clip(t.GetName()), most))
			}
			count++
			raw, err = kind.read(s, raw)
			return err
		})
		if err != nil {
			return err
		}
		for len(dims) < depth {
			dims = append(dims, -1)
		}
		if dims[depth-1] < 0 {
			dims[depth-1] = n
		} else if dims[depth-1] != n {
			return s.failAt(opened, "an array of data has %d elements, those before have %d", n, dims[depth-1])
		}
		return nil
	}
	if err := array(1); err != nil {
		return nil, err
	}
	if !isVolume {
		return nil, s.failAt(start, "input %q: the shape %v has no number of elements", httperror.Clip(t.GetName()), t.GetShape())
	}
	if want != count {
		return nil, s.failAt(start, "input %q: data has %d elements, the shape %v has %d", httperror.Clip(t.GetName()), count, t.GetShape(), want)
	}
	if len(dims) > 1 && !slices.EqualFunc(dims, t.GetShape(), func(a int, b int64) bool { return int64(a) == b }) {
		return nil, s.failAt(start, "input %q: data is nested as %v, the shape is %v", httperror.Clip(t.GetName()), dims, t.GetShape())
	}
	return raw, nil
}

// volume is the number of elements of a shape, unless there is none, or it is too large to say.
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

// appendInteger appends the lowest bytes of a number.
func appendInteger(to []byte, size int, v uint64) []byte {
	var all [8]byte
	binary.LittleEndian.PutUint64(all[:], v)
	return append(to, all[:size]...)
}

// integerOf is the number of the first bytes.
func integerOf(raw []byte, size int) uint64 {
	var all [8]byte
	copy(all[:], raw[:size])
	return binary.LittleEndian.Uint64(all[:])
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

func readSigned(bits int) func(*scanner, []byte) ([]byte, error) {
	what := fmt.Sprintf("an integer of %d bits", bits)
	return func(s *scanner, to []byte) ([]byte, error) {
		s.peek()
		start := s.at
		n, err := s.integer(what)
		if err != nil {
			return nil, err
		}
		if n<<(64-bits)>>(64-bits) != n {
			return nil, s.failAt(start, "got %d, expected %s", n, what)
		}
		return appendInteger(to, bits/8, uint64(n)), nil
	}
}

func writeSigned(bits int) func(to, raw []byte) ([]byte, int) {
	return func(to, raw []byte) ([]byte, int) {
		n := int64(integerOf(raw, bits/8)) << (64 - bits) >> (64 - bits)
		return strconv.AppendInt(to, n, 10), bits / 8
	}
}

func readUnsigned(bits int) func(*scanner, []byte) ([]byte, error) {
	what := fmt.Sprintf("an integer from 0 of %d bits", bits)
	return func(s *scanner, to []byte) ([]byte, error) {
		s.peek()
		start := s.at
		text, err := s.number(what)
		if err != nil {
			return nil, err
		}
		n, err := strconv.ParseUint(text, 10, bits)
		if err != nil {
			return nil, s.failAt(start, "got %q, expected %s", httperror.Clip(text), what)
		}
		return appendInteger(to, bits/8, n), nil
	}
}

func writeUnsigned(bits int) func(to, raw []byte) ([]byte, int) {
	return func(to, raw []byte) ([]byte, int) {
		return strconv.AppendUint(to, integerOf(raw, bits/8), 10), bits / 8
	}
}

func readFloat(bits int) func(*scanner, []byte) ([]byte, error) {
	what := fmt.Sprintf("a number of FP%d", bits)
	return func(s *scanner, to []byte) ([]byte, error) {
		s.peek()
		start := s.at
		text, err := s.number(what)
		if err != nil {
			return nil, err
		}
		v, err := strconv.ParseFloat(text, bits)
		if err != nil {
			return nil, s.failAt(start, "got %q, expected %s", httperror.Clip(text), what)
		}
		if bits == 32 {
			return binary.LittleEndian.AppendUint32(to, math.Float32bits(float32(v))), nil
		}
		return binary.LittleEndian.AppendUint64(to, math.Float64bits(v)), nil
	}
}

// writeFloat writes null for what is no number: JSON has no NaN, and an undefined score is none.
func writeFloat(bits int) func(to, raw []byte) ([]byte, int) {
	return func(to, raw []byte) ([]byte, int) {
		v := math.Float64frombits(integerOf(raw, bits/8))
		if bits == 32 {
			v = float64(math.Float32frombits(uint32(integerOf(raw, 4))))
		}
		if math.IsNaN(v) || math.IsInf(v, 0) {
			return append(to, "null"...), bits / 8
		}
		format := byte('f')
		if a := math.Abs(v); a != 0 && (a < 1e-6 || a >= 1e21) {
			format = 'e'
		}
		return strconv.AppendFloat(to, v, format, -1, bits), bits / 8
	}
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

// appendString appends a string of JSON. What is no UTF-8 is replaced.
func appendString(to []byte, text string) []byte {
	quoted, err := json.Marshal(text)
	if err != nil { // never: a string always has a form
		return append(to, `""`...)
	}
	return append(to, quoted...)
}

package rest

import (
	"bytes"
	"encoding/binary"
	"encoding/json"
	"fmt"
	"math"
	"net/http"
	"slices"
	"strconv"
	"unsafe"

	"google.golang.org/grpc/codes"

	"github.com/ckd-project/ckd/internal/httperror"
	"github.com/ckd-project/ckd/oip/internal/contents"
)

// datatype converts elements of tensors between little-endian bytes and JSON.
type datatype struct {
	bytes int // bytes in an element; 0 if the number varies
	what  string
	// read appends the element that a JSON text stands for.
	read func(to, text []byte) ([]byte, error)
	// write appends the first element as JSON, and returns how many bytes it has, or -1 if it
	// breaks off.
	write func(to, raw []byte) ([]byte, int)
}

// datatypes holds the datatypes of the protocol that have a form in JSON.
var datatypes = map[string]datatype{
	"BOOL":   {1, "true or false", readBool, writeBool},
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
	"BYTES":  {0, "a string", readText, writeText},
}

// maxRank bounds the dimensions of a tensor.
const maxRank = 8

// elements returns the bytes of the elements in a tensor's data, which is flat or nested as its shape
// is. There may be at most most bytes.
func elements(t *tensorText, most int) ([]byte, error) {
	name := httperror.Clip(t.Name)
	kind, ok := datatypes[t.Datatype]
	if !ok {
		return nil, invalidInput(name, "data of datatype %q, which has no form in JSON; expected one of BOOL, INT8 to INT64, UINT8 to UINT64, FP32, FP64, BYTES, or binary data",
			httperror.Clip(t.Datatype))
	}
	want, isVolume := volume(t.Shape)
	if !isVolume {
		return nil, invalidInput(name, "the shape %v, which has no number of elements", t.Shape)
	}
	room := min(want, int64(len(t.Data))/2, int64(most)/8) // an element has two bytes of text or more
	raw := make([]byte, 0, room*int64(kind.bytes))
	count := int64(0)
	var nesting []byte // the brackets and commas
	for data := t.Data; len(data) > 0; {
		length := 1
		switch data[0] {
		case ' ', '\t', '\r', '\n':
		case '[', ']', ',':
			nesting = append(nesting, data[0])
		default:
			if len(raw) >= most {
				return nil, httperror.New(http.StatusRequestEntityTooLarge, codes.ResourceExhausted,
					fmt.Sprintf("the input %q has data over the limit of %d bytes: send fewer inputs at once", name, most))
			}
			length = scalarLength(data)
			var err error
			if raw, err = kind.read(raw, data[:length]); err != nil {
				return nil, invalidInput(name, "the element %s, expected %s", httperror.Clip(string(data[:length])), kind.what)
			}
			count++
		}
		data = data[length:]
	}
	if want != count {
		return nil, invalidInput(name, "data with %d elements, the shape %v has %d", count, t.Shape, want)
	}
	if !isNested(nesting, []int64{want}) && !isNested(nesting, t.Shape) {
		return nil, invalidInput(name, "data that is nested otherwise than the shape %v", t.Shape)
	}
	return raw, nil
}

// isNested reports whether brackets and commas are those of arrays of a shape.
func isNested(nesting []byte, shape []int64) bool {
	var want []byte
	for _, n := range slices.Backward(shape) {
		if n > int64(len(nesting)) || n*int64(len(want)+1) > int64(len(nesting)) {
			return false // too short, however large the shape
		}
		if want = slices.Repeat(append(want, ','), int(n)); n > 0 {
			want = want[:len(want)-1]
		}
		want = slices.Concat([]byte("["), want, []byte("]"))
	}
	return bytes.Equal(nesting, want)
}

// scalarLength returns the length of the string, number or word at the start of valid JSON.
func scalarLength(data []byte) int {
	if data[0] != '"' {
		if end := bytes.IndexAny(data, ",] \t\r\n"); end >= 0 {
			return end
		}
		return len(data)
	}
	for i := 1; ; i++ {
		switch data[i] {
		case '\\':
			i++
		case '"':
			return i + 1
		}
	}
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

func readBool(to, text []byte) ([]byte, error) {
	switch string(text) {
	case "true":
		return append(to, 1), nil
	case "false":
		return append(to, 0), nil
	}
	return nil, strconv.ErrSyntax
}

func writeBool(to, raw []byte) ([]byte, int) { return strconv.AppendBool(to, raw[0] != 0), 1 }

// numeric returns the datatype of numbers. parse returns the bits of the number in a text, and
// format appends the number that has these bits.
func numeric(
	bits int, what string, parse func(text string) (uint64, error), format func(to []byte, v uint64) []byte,
) datatype {
	return datatype{
		bytes: bits / 8,
		what:  what,
		read: func(to, text []byte) ([]byte, error) {
			v, err := parse(unsafe.String(&text[0], len(text))) // saves a copy: nobody keeps it or writes to it
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

func readText(to, text []byte) ([]byte, error) {
	var value string
	err := json.Unmarshal(text, &value)
	if text[0] != '"' {
		err = strconv.ErrSyntax // null
	}
	return append(binary.LittleEndian.AppendUint32(to, uint32(len(value))), value...), err
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

package record

import (
	"bytes"
	"encoding/binary"
	"encoding/json"
	"fmt"
	"io"
	"maps"
	"slices"
	"strconv"
	"strings"
)

// maxTensorHeader is the limit of the format's own library.
const maxTensorHeader = 100_000_000

// tensorTypes holds the types that are read, as dtype has them, by their names in safetensors files.
var tensorTypes = map[string]string{
	"F16": "f2", "BF16": "bf2", "F32": "f4", "F64": "f8", "BOOL": "b1",
	"I8": "i1", "I16": "i2", "I32": "i4", "I64": "i8", "U8": "u1", "U16": "u2", "U32": "u4", "U64": "u8",
}

// tensor is an entry of the header of a safetensors file.
type tensor struct {
	Type  string   `json:"dtype"`
	Shape []int    `json:"shape"`
	Bytes [2]int64 `json:"data_offsets"` // from the first to after the last, counted from the header's end

	at int64 // where the entry stands in the file
}

// isTensors recognises a safetensors file by its first bytes: the length of a header that begins
// with a brace. No .npy file is that long.
func isTensors(r io.ReaderAt, size int64) bool {
	var first [9]byte
	if _, err := r.ReadAt(first[:], 0); err != nil {
		return false
	}
	length := binary.LittleEndian.Uint64(first[:])
	return first[8] == '{' && length <= uint64(size)
}

// readTensor reads one tensor of a safetensors file of size bytes. An empty name takes the only
// tensor.
func readTensor(path string, r io.ReaderAt, size int64, name string) (*Array, error) {
	tensors, data, err := tensorHeader(path, r, size)
	if err != nil {
		return nil, err
	}
	t, err := chooseTensor(path, tensors, &name)
	if err != nil {
		return nil, err
	}
	fail := func(format string, args ...any) error {
		return &FormatError{File: path + "(" + name + ")", Offset: t.at, Msg: fmt.Sprintf(format, args...)}
	}
	code, ok := tensorTypes[t.Type]
	if !ok {
		return nil, fail("type %.40q is not read: expected one of %s", t.Type,
			strings.Join(slices.Sorted(maps.Keys(tensorTypes)), ", "))
	}
	width := int(code[len(code)-1] - '0')
	h := header{dtype: dtype{code: code, width: width, unit: width}, shape: t.Shape}
	if len(t.Shape) > maxDims {
		return nil, fail("the shape has %d axes: expected at most %d", len(t.Shape), maxDims)
	}
	n, ok := elements(t.Shape)
	if !ok {
		return nil, fail("shape %s is negative or has too many elements to count", tuple(t.Shape))
	}
	begin, end := t.Bytes[0], t.Bytes[1]
	switch {
	case begin < 0 || end < begin || end > size-data:
		return nil, fail("the tensor has bytes %d to %d of the data: expected up to %d, where the file ends", begin, end, size-data)
	case end-begin != int64(n*width):
		return nil, fail("%s, found %d", h.needs(n), end-begin)
	}
	src := &source{
		name: path + "(" + name + ")", r: io.NewSectionReader(r, data+begin, end-begin), offset: data + begin, ahead: end - begin,
	}
	return src.array(h, n)
}

// tensorHeader reads the header of a safetensors file, and returns where the data begins.
func tensorHeader(path string, r io.ReaderAt, size int64) (tensors map[string]tensor, data int64, err error) {
	src := &source{name: path, r: io.NewSectionReader(r, 0, size)}
	var first [8]byte
	if err := src.fill(first[:], "the header's length"); err != nil {
		return nil, 0, err
	}
	length := binary.LittleEndian.Uint64(first[:])
	if length > uint64(min(size-8, maxTensorHeader)) {
		return nil, 0, src.fail(0, "a header of %d bytes: expected at most %d in this file", length, min(size-8, maxTensorHeader))
	}
	text := make([]byte, length)
	if err := src.fill(text, "the header"); err != nil {
		return nil, 0, err
	}
	d := json.NewDecoder(bytes.NewReader(text))
	d.DisallowUnknownFields()
	wrong := func(err error) (map[string]tensor, int64, error) {
		return nil, 0, src.fail(8+d.InputOffset(), "the header cannot be read: %v: expected JSON with the type, shape and "+
			"data_offsets of each tensor", err)
	}
	if open, err := d.Token(); err != nil || open != json.Delim('{') {
		return wrong(fmt.Errorf("it is no object"))
	}
	tensors = map[string]tensor{}
	for d.More() {
		key, err := d.Token()
		if err != nil {
			return wrong(err)
		}
		name := key.(string) // a key of an object is a text
		if _, twice := tensors[name]; twice {
			return wrong(fmt.Errorf("tensor %.40q stands twice", name))
		}
		if name == "__metadata__" {
			if err := d.Decode(&map[string]string{}); err != nil {
				return wrong(err)
			}
			continue
		}
		t := tensor{at: 8 + d.InputOffset()}
		if err := d.Decode(&t); err != nil {
			return wrong(err)
		}
		tensors[name] = t
	}
	if _, err := d.Token(); err != nil {
		return wrong(err)
	}
	if rest := bytes.TrimLeft(text[d.InputOffset():], " "); len(rest) > 0 {
		return wrong(fmt.Errorf("%.12q follows it", rest))
	}
	return tensors, src.offset, nil
}

// chooseTensor returns the tensor of the name, or the only one for an empty name, which it sets.
func chooseTensor(path string, tensors map[string]tensor, name *string) (tensor, error) {
	names := slices.Sorted(maps.Keys(tensors))
	if *name == "" && len(names) == 1 {
		*name = names[0]
	}
	if t, ok := tensors[*name]; ok {
		return t, nil
	}
	quoted := make([]string, len(names))
	for i, n := range names {
		quoted[i] = strconv.Quote(n)
	}
	list := firstOf(quoted)
	switch {
	case len(names) == 0:
		return tensor{}, contentError(path, "the file holds no tensor: expected one with passes or labels")
	case *name == "":
		return tensor{}, contentError(path, "the file holds %d tensors: say which, as in %s:NAME, of %s", len(names), path, list)
	}
	return tensor{}, contentError(path, "the file holds no tensor %q: expected one of %s", *name, list)
}

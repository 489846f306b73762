package record

import (
	"bytes"
	"encoding/binary"
	"errors"
	"fmt"
	"io"
	"math"
	"os"
	"slices"
	"strconv"
	"strings"
	"unicode/utf8"
)

const (
	magic      = "\x93NUMPY"
	maxHeader  = math.MaxUint16 // what version 1.0 can hold; a plain array needs about a hundred bytes
	chunkBytes = 256 << 10      // read at a time; a multiple of every width

	// convert is the advice for files that the Python package turns into .npy.
	convert = " (python -m ckd convert turns Parquet, CSV, JSON and files of PyTorch into .npy)"
)

// Array holds values in C order, whatever the order in the file. Exactly one of the data slices is
// not nil, even if the array is empty.
type Array struct {
	Shape   []int
	Float32 []float32 // f2, widened exactly, and f4
	Float64 []float64 // f8
	Int64   []int64   // every integer type, and b1 as 0 and 1
	Text    []string  // U and S, without the zeros that NumPy pads them with
}

// ReadFile reads an .npy file, or the only array of an .npz archive. "file.npz:name" chooses one of
// several arrays. The kind of file follows from its first bytes, not from its name.
func ReadFile(path string) (*Array, error) {
	return readMember(SplitPath(path))
}

// SplitPath splits "file.npz:name" into the path of the file and the name of one of its arrays. The
// name is empty in a path without one.
func SplitPath(path string) (file, member string) {
	const ext = ".npz"
	if i := strings.LastIndex(path, ext+":"); i >= 0 {
		return path[:i+len(ext)], path[i+len(ext)+1:]
	}
	return path, ""
}

// readMember reads the array of that name from an .npz archive, with or without ".npy". An empty name
// takes the only array.
func readMember(path, member string) (*Array, error) {
	f, err := os.Open(path)
	if err != nil {
		return nil, err
	}
	defer f.Close()
	info, err := f.Stat()
	if err != nil {
		return nil, err
	}
	if !info.Mode().IsRegular() { // a pipe has no size and no end to look for an archive's directory at
		return read(path, f, -1, 0)
	}
	if isArchive(f) {
		return readArchive(path, f, info.Size(), member)
	}
	if member != "" {
		return nil, contentError(path, "one array without a name: expected an .npz archive that holds %q", member)
	}
	return read(path, f, info.Size(), info.Size())
}

// Read reads an array in .npy format from r, which must end after it. size is the number of bytes
// in r and bounds the memory used; if it is -1, memory grows as bytes arrive. Errors quote name.
func Read(name string, r io.Reader, size int64) (*Array, error) {
	return read(name, r, size, size)
}

// Write writes an array of numbers in .npy format, version 1.0, little-endian, as f4, f8 or i8. The
// array must have as many values as its shape says.
func Write(w io.Writer, a *Array) error {
	descr, values := "<i8", any(a.Int64)
	switch {
	case a.Float32 != nil:
		descr, values = "<f4", a.Float32
	case a.Float64 != nil:
		descr, values = "<f8", a.Float64
	}
	dict := fmt.Sprintf("{'descr': '%s', 'fortran_order': False, 'shape': %s, }", descr, tuple(a.Shape))
	// Spaces and a newline bring the data to a multiple of 64 bytes, so that it can be mapped.
	const prefix = len(magic) + 4
	dict += strings.Repeat(" ", 63-(prefix+len(dict))%64) + "\n"
	head := binary.LittleEndian.AppendUint16([]byte(magic+"\x01\x00"), uint16(len(dict)))
	if _, err := w.Write(append(head, dict...)); err != nil {
		return err
	}
	return binary.Write(w, binary.LittleEndian, values)
}

// source counts the bytes read from a reader.
type source struct {
	name   string
	r      io.Reader
	offset int64
	ahead  int64 // bytes known to be there: memory may be taken for so many before they are read
}

// read reads an array. size is the number of bytes that r claims to hold, or -1; ahead is the
// number that it holds for certain.
func read(name string, r io.Reader, size, ahead int64) (*Array, error) {
	src := &source{name: name, r: r, ahead: max(ahead, 0)}
	h, err := src.header()
	if err != nil {
		return nil, err
	}
	n, ok := elements(h.shape)
	if !ok || n > math.MaxInt/2/h.width {
		return nil, src.fail(h.at, "shape %s has too many elements to count", tuple(h.shape))
	}
	start := src.offset
	needs, end := h.needs(n), start+int64(n*h.width)
	if size == start && n > 0 {
		return nil, src.fail(size, "the file ends before the data: %s, found 0 (a masked array? numpy.save takes none: save a.filled(...))", needs)
	}
	if size >= 0 && size < end {
		return nil, src.fail(size, "the file ends inside the data: %s, found %d", needs, max(size-start, 0))
	}
	if size > end {
		return nil, src.fail(end, "%d bytes after the data: %s, expected none after them", size-end, needs)
	}
	a, err := src.array(h, n)
	if err != nil {
		return nil, err
	}
	if err := src.atEnd(needs); err != nil {
		return nil, err
	}
	return a, nil
}

// array reads the n values that follow the header.
func (src *source) array(h header, n int) (a *Array, err error) {
	start, needs := src.offset, h.needs(n)
	a = &Array{Shape: h.shape}
	switch h.code {
	case "f2":
		a.Float32, err = readValues(src, n, h.dtype, needs, halves)
	case "f4":
		a.Float32, err = readValues(src, n, h.dtype, needs, numbers[float32])
	case "f8":
		a.Float64, err = readValues(src, n, h.dtype, needs, numbers[float64])
	default:
		if h.isText() {
			a.Text, err = readValues(src, n, h.dtype, needs, texts(h.dtype))
		} else {
			a.Int64, err = readValues(src, n, h.dtype, needs, integers[h.code])
		}
	}
	if err != nil {
		return nil, err
	}
	if i := slices.IndexFunc(a.Text, func(v string) bool { return !utf8.ValidString(v) }); i >= 0 {
		return nil, src.fail(start+int64(i*h.width), "%q is no text: expected Unicode characters", a.Text[i])
	}
	switch h.code {
	case "u8":
		if i := slices.IndexFunc(a.Int64, func(v int64) bool { return v < 0 }); i >= 0 {
			return nil, src.fail(start+int64(8*i), "value %d does not fit: expected at most %d",
				uint64(a.Int64[i]), int64(math.MaxInt64))
		}
	case "b1":
		if i := slices.IndexFunc(a.Int64, func(v int64) bool { return v > 1 }); i >= 0 {
			return nil, src.fail(start+int64(i), "boolean is %d: expected 0 or 1", a.Int64[i])
		}
	}
	if h.fortran {
		toCOrder(a.Float32, h.shape)
		toCOrder(a.Float64, h.shape)
		toCOrder(a.Int64, h.shape)
		toCOrder(a.Text, h.shape)
	}
	return a, nil
}

// toCOrder permutes the values of an array from Fortran order, where the first axis varies fastest,
// to C order. It works in place, since a recording may fill half of the memory: it follows each
// cycle of the permutation once, and keeps one bit for each value.
func toCOrder[T any](values []T, shape []int) {
	strides := make([]int, len(shape)) // in C order
	stride := 1
	for d := len(shape) - 1; d >= 0; d-- {
		strides[d] = stride
		stride *= shape[d]
	}
	moved := make([]uint64, (len(values)+63)/64)
	for start, v := range values {
		for index := start; moved[index/64]&(1<<(index%64)) == 0; {
			moved[index/64] |= 1 << (index % 64)
			target, rest := 0, index
			for d, size := range shape {
				target += rest % size * strides[d]
				rest /= size
			}
			values[target], v = v, values[target]
			index = target
		}
	}
}

// header reads everything before the data.
func (src *source) header() (header, error) {
	var prefix [8]byte
	if err := src.fill(prefix[:], "the .npy prefix of 8 bytes"); err != nil {
		return header{}, err
	}
	if string(prefix[:6]) != magic {
		return header{}, src.fail(0, "no .npy file: it starts with %q, expected %q%s", prefix[:6], magic, convert)
	}
	b := make([]byte, 4) // the length of the header, little-endian
	switch major, minor := prefix[6], prefix[7]; {
	case major == 1 && minor == 0:
		b = b[:2]
	case major != 2 && major != 3 || minor != 0:
		return header{}, src.fail(6, "format version %d.%d: expected 1.0, 2.0 or 3.0", major, minor)
	}
	if err := src.fill(b, "the header's length"); err != nil {
		return header{}, err
	}
	length := binary.LittleEndian.Uint32(append(b, 0, 0)[:4])
	if length > maxHeader {
		return header{}, src.fail(8, "a header of %d bytes: expected at most %d", length, maxHeader)
	}
	text := make([]byte, length)
	base := src.offset
	if err := src.fill(text, fmt.Sprintf("the header of %d bytes", length)); err != nil {
		return header{}, err
	}
	return parseHeader(src.name, base, string(text))
}

// readValues reads n values in chunks. decode turns the bytes of a chunk into values.
func readValues[T any](src *source, n int, d dtype, needs string, decode func(dst []T, raw []byte, order binary.ByteOrder)) ([]T, error) {
	var order binary.ByteOrder = binary.LittleEndian
	if d.big {
		order = binary.BigEndian
	}
	values := make([]T, 0, min(int64(n), src.ahead/int64(d.width)))
	buf := make([]byte, min(n*d.width, chunkBytes))
	for len(values) < n {
		have := len(values)
		more := min(n-have, len(buf)/d.width)
		raw := buf[:more*d.width]
		if err := src.fill(raw, "the data: "+needs); err != nil {
			return nil, err
		}
		values = slices.Grow(values, more)[:have+more]
		decode(values[have:], raw, order)
	}
	return values, nil
}

func halves(dst []float32, raw []byte, order binary.ByteOrder) {
	for i := range dst {
		dst[i] = Widen(order.Uint16(raw[2*i:]))
	}
}

// numbers decodes values of the type that they are kept in.
func numbers[T float32 | float64](dst []T, raw []byte, order binary.ByteOrder) {
	_, _ = binary.Decode(raw, order, dst) // raw has as many bytes as dst needs
}

// integers has the decoder of each integer type. A u8 above the largest int64 becomes negative.
var integers = map[string]func(dst []int64, raw []byte, order binary.ByteOrder){
	"i1": whole[int8], "i2": whole[int16], "i4": whole[int32], "i8": whole[int64],
	"u1": whole[uint8], "u2": whole[uint16], "u4": whole[uint32], "u8": whole[uint64], "b1": whole[uint8],
}

func whole[T int8 | int16 | int32 | int64 | uint8 | uint16 | uint32 | uint64](dst []int64, raw []byte, order binary.ByteOrder) {
	values := make([]T, len(dst))
	_, _ = binary.Decode(raw, order, values) // raw has as many bytes as values need
	for i, v := range values {
		dst[i] = int64(v)
	}
}

// texts returns the decoder of a type of text. Bytes that are no Unicode character become invalid
// UTF-8.
func texts(d dtype) func(dst []string, raw []byte, order binary.ByteOrder) {
	characters := make([]byte, 0, d.width) // at most 4 bytes each
	return func(dst []string, raw []byte, order binary.ByteOrder) {
		for i := range dst {
			text := raw[i*d.width:][:d.width]
			if d.unit > 1 {
				characters = characters[:0]
				for ; len(text) > 0; text = text[d.unit:] {
					if r := rune(order.Uint32(text)); utf8.ValidRune(r) {
						characters = utf8.AppendRune(characters, r)
					} else {
						characters = append(characters, 0xff)
					}
				}
				text = characters
			}
			dst[i] = string(bytes.TrimRight(text, "\x00"))
		}
	}
}

// fill reads exactly len(p) bytes. what names the part being read, for the error if the file ends
// too soon.
func (src *source) fill(p []byte, what string) error {
	n, err := io.ReadFull(src.r, p)
	src.offset += int64(n)
	switch {
	case err == nil:
		return nil
	case errors.Is(err, io.EOF), errors.Is(err, io.ErrUnexpectedEOF):
		return src.fail(src.offset, "the file ends inside %s", what)
	}
	return src.fail(src.offset, "cannot be read: %w", err)
}

// atEnd returns an error if anything follows. Reading to the end also lets a zip member verify its
// checksum.
func (src *source) atEnd(needs string) error {
	var one [1]byte
	switch n, err := io.ReadFull(src.r, one[:]); {
	case n > 0:
		return src.fail(src.offset, "bytes after the data: %s, expected none after them", needs)
	case err == io.EOF:
		return nil
	default:
		return src.fail(src.offset, "cannot be read: %w", err)
	}
}

// fail returns an error about a byte.
func (src *source) fail(offset int64, format string, args ...any) error {
	return contentError(src.name, "byte %d: %w", offset, fmt.Errorf(format, args...))
}

// contentError returns an error about a file, or about path(member) of an .npz archive.
func contentError(file, format string, args ...any) error {
	return fmt.Errorf("%s: %w", file, fmt.Errorf(format, args...))
}

// elements returns the product of the sizes, and false if one is negative or their bytes would
// overflow.
func elements(shape []int) (int, bool) {
	n, ok := 1, true
	for _, size := range shape {
		switch {
		case size < 0:
			return 0, false
		case size == 0: // an empty array, however large its other sizes
			n, ok = 0, true
		case n > math.MaxInt/16/size:
			ok = false
		default:
			n *= size
		}
	}
	return n, ok
}

// tuple writes a shape as Python does: (), (5,), (30, 2126, 3).
func tuple(shape []int) string {
	if len(shape) == 1 {
		return "(" + strconv.Itoa(shape[0]) + ",)"
	}
	var b strings.Builder
	for i, size := range shape {
		if i > 0 {
			b.WriteString(", ")
		}
		b.WriteString(strconv.Itoa(size))
	}
	return "(" + b.String() + ")"
}

package record

import (
	"bytes"
	"encoding/binary"
	"errors"
	"fmt"
	"io"
	"math"
	"os"
	"path/filepath"
	"reflect"
	"runtime"
	"slices"
	"strings"
	"testing"
	"testing/iotest"
	"unicode/utf8"

	"pgregory.net/rapid"
)

// npyFile builds a file of format version 1.0 from any header and data.
func npyFile(dict string, data ...byte) []byte {
	file := append([]byte("\x93NUMPY\x01\x00"), byte(len(dict)), byte(len(dict)>>8))
	return append(append(file, dict...), data...)
}

// dict returns the header of a plain array. shape is a Python tuple.
func dict(descr, shape string) string {
	return fmt.Sprintf("{'descr': '%s', 'fortran_order': False, 'shape': %s, }", descr, shape)
}

// readBytes reads a file from memory.
func readBytes(file []byte) (*Array, error) {
	return Read("x.npy", bytes.NewReader(file), int64(len(file)))
}

// written returns an array as Write writes it, and text as NumPy does.
func written(t rapid.TB, a *Array) []byte {
	t.Helper()
	if a.Text != nil {
		length, data := 1, []byte{}
		for _, v := range a.Text {
			length = max(length, utf8.RuneCountInString(v))
		}
		for _, v := range a.Text {
			characters := make([]rune, length)
			copy(characters, []rune(v))
			data, _ = binary.Append(data, binary.LittleEndian, characters)
		}
		return npyFile(dict(fmt.Sprintf("<U%d", length), tuple(a.Shape)), data...)
	}
	var file bytes.Buffer
	if err := Write(&file, a); err != nil {
		t.Fatal(err)
	}
	return file.Bytes()
}

// sameBits compares arrays bit by bit, so that NaN equals itself and 0 does not equal -0.
func sameBits(a, b *Array) bool {
	bits32 := func(x, y float32) bool { return math.Float32bits(x) == math.Float32bits(y) }
	bits64 := func(x, y float64) bool { return math.Float64bits(x) == math.Float64bits(y) }
	return slices.Equal(a.Shape, b.Shape) && (a.Text == nil) == (b.Text == nil) && slices.Equal(a.Text, b.Text) &&
		(a.Float32 == nil) == (b.Float32 == nil) && slices.EqualFunc(a.Float32, b.Float32, bits32) &&
		(a.Float64 == nil) == (b.Float64 == nil) && slices.EqualFunc(a.Float64, b.Float64, bits64) &&
		(a.Int64 == nil) == (b.Int64 == nil) && slices.Equal(a.Int64, b.Int64)
}

func TestReadTypes(t *testing.T) {
	tests := []struct {
		descr string
		data  []byte
		want  any // of two values
	}{
		{"<f2", []byte{0x00, 0x3c, 0x00, 0xc0}, []float32{1, -2}},
		{">f2", []byte{0x3c, 0x00, 0xc0, 0x00}, []float32{1, -2}},
		{"<f4", []byte{0, 0, 0x80, 0x3f, 0, 0, 0, 0xc0}, []float32{1, -2}},
		{">f4", []byte{0x3f, 0x80, 0, 0, 0xc0, 0, 0, 0}, []float32{1, -2}},
		{"<f8", []byte{0, 0, 0, 0, 0, 0, 0xf0, 0x3f, 0, 0, 0, 0, 0, 0, 0, 0xc0}, []float64{1, -2}},
		{">f8", []byte{0x3f, 0xf0, 0, 0, 0, 0, 0, 0, 0xc0, 0, 0, 0, 0, 0, 0, 0}, []float64{1, -2}},
		{"<i1", []byte{0x7f, 0xff}, []int64{127, -1}},
		{"|u1", []byte{0x7f, 0xff}, []int64{127, 255}},
		{"|b1", []byte{0, 1}, []int64{0, 1}},
		{">i2", []byte{1, 2, 0xff, 0xff}, []int64{0x102, -1}},
		{"<i4", []byte{1, 2, 3, 4, 0xff, 0xff, 0xff, 0xff}, []int64{0x04030201, -1}},
		{"<i8", []byte("\x01\x02\x03\x04\x05\x06\x07\x08\xff\xff\xff\xff\xff\xff\xff\xff"), []int64{0x0807060504030201, -1}},
		{">i8", []byte("\x01\x02\x03\x04\x05\x06\x07\x08\xff\xff\xff\xff\xff\xff\xff\xff"), []int64{0x0102030405060708, -1}},
		{"<U2", []byte("n\x00\x00\x00\xfc\x00\x00\x00o\x00\x00\x00\x00\x00\x00\x00"), []string{"nü", "o"}},
		{">U1", []byte("\x00\x00\x00n\x00\x01\xf6\x00"), []string{"n", "😀"}},
		{"<u8", []byte("\x01\x02\x03\x04\x05\x06\x07\x08\xff\xff\xff\xff\xff\xff\xff\x7f"),
			[]int64{0x0807060504030201, math.MaxInt64}},
	}
	for _, tt := range tests {
		t.Run(tt.descr, func(t *testing.T) {
			a, err := readBytes(npyFile(dict(tt.descr, "(2, 1)"), tt.data...))
			if err != nil {
				t.Fatal(err)
			}
			var got any
			switch {
			case a.Float32 != nil:
				got = a.Float32
			case a.Float64 != nil:
				got = a.Float64
			case a.Text != nil:
				got = a.Text
			default:
				got = a.Int64
			}
			if !slices.Equal(a.Shape, []int{2, 1}) || !reflect.DeepEqual(got, tt.want) {
				t.Errorf("shape %v, values %v, want [2 1] and %v", a.Shape, got, tt.want)
			}
		})
	}
}

func TestReadHeaders(t *testing.T) {
	tests := []struct {
		name, dict string
		shape      []int
	}{
		{"other order of keys", "{'shape': (3,), 'fortran_order': False, 'descr': '|i1'}", []int{3}},
		{"double quotes", `{"descr": "|i1", "fortran_order": False, "shape": (3,)}`, []int{3}},
		{"no spaces", "{'descr':'|i1','fortran_order':False,'shape':(3,)}", []int{3}},
		{"more spaces", " {\t'descr' : '|i1' ,\n'fortran_order' :False , 'shape' : ( 3 , ) , } \r\n", []int{3}},
		{"trailing comma in shape", "{'descr': '|i1', 'fortran_order': False, 'shape': (1, 3,), }", []int{1, 3}},
		{"no trailing comma in shape", "{'descr': '|i1', 'fortran_order': False, 'shape': (1, 3)}", []int{1, 3}},
	}
	for _, tt := range tests {
		t.Run(tt.name, func(t *testing.T) {
			a, err := readBytes(npyFile(tt.dict, 7, 8, 9))
			if err != nil {
				t.Fatal(err)
			}
			if !slices.Equal(a.Shape, tt.shape) || !slices.Equal(a.Int64, []int64{7, 8, 9}) {
				t.Errorf("shape %v, values %v, want %v and [7 8 9]", a.Shape, a.Int64, tt.shape)
			}
		})
	}
	t.Run("scalar", func(t *testing.T) {
		a, err := readBytes(npyFile(dict("|u1", "()"), 5))
		if err != nil || len(a.Shape) != 0 || !slices.Equal(a.Int64, []int64{5}) {
			t.Errorf("got %+v, %v, want one value 5 without axes", a, err)
		}
	})
	t.Run("empty", func(t *testing.T) {
		a, err := readBytes(npyFile(dict("<f4", "(1000000000000, 0, 1000000000000)")))
		if err != nil || a.Float32 == nil || len(a.Float32) != 0 {
			t.Errorf("got %+v, %v, want an empty array of float32", a, err)
		}
	})
	for _, version := range []byte{2, 3} {
		t.Run(fmt.Sprintf("version %d", version), func(t *testing.T) {
			text := dict("|i1", "(2,)")
			file := append([]byte("\x93NUMPY"), version, 0, byte(len(text)), 0, 0, 0)
			a, err := readBytes(append(append(file, text...), 1, 2))
			if err != nil || !slices.Equal(a.Int64, []int64{1, 2}) {
				t.Errorf("got %+v, %v, want [1 2]", a, err)
			}
		})
	}
}

func TestReadErrors(t *testing.T) {
	const rest = "'fortran_order': False, 'shape': (1,), }"
	key := func(value string) []byte { return npyFile("{'descr': " + value + ", " + rest) }
	shape := func(value string) []byte { return npyFile(dict("<f4", value)) }
	tests := []struct {
		name   string
		file   []byte
		offset int64
		want   string
	}{
		{"empty file", nil, 0, "the file ends inside the .npy prefix of 8 bytes"},
		{"bad magic", []byte("\x00\x01\x02\x03\x04\x05\x06\x07"), 0, `no .npy file: it starts with "\x00\x01\x02\x03\x04\x05", expected "\x93NUMPY"`},
		{"CSV", []byte("label\n0\n1\n"), 0, `(python -m ckd convert turns Parquet, CSV,`},
		{"version 1.1", []byte("\x93NUMPY\x01\x01\x00\x00"), 6, "format version 1.1: expected 1.0, 2.0 or 3.0"},
		{"cut in the header", npyFile(dict("<f4", "(1,)"))[:30], 30, "the file ends inside the header of 57 bytes"},
		{"huge header", []byte("\x93NUMPY\x02\x00\xff\xff\xff\xff{"), 8,
			"a header of 4294967295 bytes: expected at most 65535"},

		{"list", npyFile("['descr']"), 10, `the header is "['descr']": expected {'descr'`},
		{"dict not closed", npyFile("{'descr': '<f4', 'fortran_order': False, 'shape': (1,)"), 10, "expected {'descr'"},
		{"unknown key", npyFile("{'descr': '<f4', 'order': 'C', " + rest), 10, "expected {'descr'"},
		{"key twice", npyFile("{'descr': '<f4', 'descr': '<f4', " + rest), 10, "expected {'descr'"},
		{"no shape", npyFile("{'descr': '<f4', 'fortran_order': False}"), 10, "expected {'descr'"},
		{"value of another key", npyFile("{'descr': True, " + rest), 10, "expected {'descr'"},

		{"objects", key("'|O'"), 10, "holds pickled objects"},
		{"complex", key("'<c8'"), 10, "is complex: expected real numbers"},
		{"structured", key("[('a', '<f4'), ('b', '<i8')]"), 10, "structured dtype: expected a plain one"},
		{"text too long", key("'|S4097'"), 10, `dtype "|S4097": expected text of 1 to 4096 characters`},
		{"text of no byte order", key("'|U7'"), 10, `dtype "|U7" has byte order '|': expected '<' or '>'`},
		{"text whose bytes overflow", npyFile(dict("<U4096", "(4611686018427387,)")), 10, "too many elements"},
		{"surrogate", npyFile(dict("<U1", "(2,)"), 'a', 0, 0, 0, 0, 0xd8, 0, 0), 71, `"\xff" is no text`},
		{"bytes that are no UTF-8", npyFile(dict("|S2", "(2,)"), 'a', 0, 'b', 0xe9), 69, `"b\xe9" is no text`},
		{"long double", key("'<f16'"), 10, `dtype "<f16" is not read`},
		{"bfloat16 as raw bytes", key("'|V2'"), 10, `as of bfloat16: expected numbers that NumPy has (numpy: a.astype("float32")`},
		{"dates", key("'<M8[ns]'"), 10, `dtype "<M8[ns]" is not read`},
		{"no byte order", key("'|f4'"), 10, `has byte order '|': expected '<' or '>'`},

		{"shape a list", shape("[1]"), 10, "expected {'descr'"},
		{"shape a number", shape("(5)"), 10, "shape is a number: expected a tuple such as (5,)"},
		{"negative", shape("(5, -2)"), 10, "expected {'descr'"},
		{"too large a size", shape("(99999999999999999999,)"), 10, "is too large"},
		{"product overflows", shape("(4294967296, 4294967296)"), 10, "too many elements to count"},
		{"too many axes", shape("(" + strings.Repeat("1,", 65) + ")"), 10, "shape has 65 axes: expected at most 64"},

		{"no data", shape("(1000000000000,)"), 79, "shape (1000000000000,) of '<f4' needs 4000000000000 bytes, found 0"},
		{"data cut", npyFile(dict("<f4", "(2,)"), 1, 2, 3, 4, 5), 72,
			"the file ends inside the data: shape (2,) of '<f4' needs 8 bytes, found 5"},
		{"trailing", npyFile(dict("<f4", "(1,)"), 1, 2, 3, 4, 5), 71,
			"1 bytes after the data: shape (1,) of '<f4' needs 4 bytes"},
		{"unsigned above int64", npyFile(dict("<u8", "(2,)"), append(make([]byte, 15), 0x80)...), 75,
			"value 9223372036854775808 does not fit"},
		{"boolean 2", npyFile(dict("|b1", "(3,)"), 0, 1, 2), 69, "boolean is 2: expected 0 or 1"},
	}
	for _, tt := range tests {
		t.Run(tt.name, func(t *testing.T) {
			_, err := readBytes(tt.file)
			if err == nil {
				t.Fatal("want an error")
			}
			prefix := fmt.Sprintf("x.npy: byte %d: ", tt.offset)
			if !strings.HasPrefix(err.Error(), prefix) || !strings.Contains(err.Error(), tt.want) {
				t.Errorf("got  %v\nwant %s...%s", err, prefix, tt.want)
			}
			// Without a known size the same files are refused, only later.
			if _, err := Read("x.npy", bytes.NewReader(tt.file), -1); err == nil {
				t.Error("of unknown size: want an error")
			}
		})
	}
}

// TestReadCutAnywhere cuts a file short at every byte. It must be refused, with no more memory than
// a chunk.
func TestReadCutAnywhere(t *testing.T) {
	whole := npyFile(dict("<f4", "(3,)"), make([]byte, 12)...)
	for cut := range whole {
		for _, size := range []int64{int64(cut), -1, int64(len(whole))} { // the last is a caller who is wrong
			_, err := Read("x.npy", bytes.NewReader(whole[:cut]), size)
			if err == nil || !strings.HasPrefix(err.Error(), fmt.Sprintf("x.npy: byte %d: ", cut)) {
				t.Fatalf("cut at %d, size %d: got %v, want an error there", cut, size, err)
			}
		}
	}
	if _, err := Read("x.npy", bytes.NewReader(whole), -1); err != nil {
		t.Error(err)
	}
	_, err := Read("x.npy", bytes.NewReader(append(whole, 0)), -1)
	if err == nil || !strings.Contains(err.Error(), "byte 79: bytes after the data") {
		t.Errorf("got %v, want bytes after the data", err)
	}
}

func TestReaderFailure(t *testing.T) {
	broken := errors.New("the disk is gone")
	whole := npyFile(dict("<f4", "(3,)"), make([]byte, 12)...)
	_, err := Read("x.npy", io.MultiReader(bytes.NewReader(whole[:70]), iotest.ErrReader(broken)), int64(len(whole)))
	if !errors.Is(err, broken) || !strings.Contains(err.Error(), "x.npy: byte 70: ") {
		t.Errorf("got %v, want the reader's own error at byte 70", err)
	}
	if _, err := ReadFile(t.TempDir()); err == nil {
		t.Error("a directory: want an error of the file system")
	}
	if _, err := ReadFile(filepath.Join(t.TempDir(), "none.npy")); !errors.Is(err, os.ErrNotExist) {
		t.Errorf("got %v, want os.ErrNotExist", err)
	}
}

// allocated returns how many bytes f allocates.
func allocated(f func()) uint64 {
	var before, after runtime.MemStats
	runtime.ReadMemStats(&before)
	f()
	runtime.ReadMemStats(&after)
	return after.TotalAlloc - before.TotalAlloc
}

func TestReadAllocatesWhatIsThere(t *testing.T) {
	for _, descr := range []string{"<f2", "<f4", ">f8", "|u1", "<i8", "<U4096", "|S1"} {
		file := npyFile(dict(descr, "(1000, 1000, 1000000)"), 1, 2, 3)
		for _, size := range []int64{int64(len(file)), -1} {
			var err error
			got := allocated(func() { _, err = Read("x.npy", bytes.NewReader(file), size) })
			if err == nil || got > 1<<20 {
				t.Errorf("%s, size %d: %d bytes allocated, error %v; want less than 1 MiB and an error", descr, size, got, err)
			}
		}
	}
	// A correct file takes its own size and a chunk.
	data := make([]byte, 8<<20)
	file := npyFile(dict("<f4", "(2097152,)"), data...)
	if got := allocated(func() { _, _ = readBytes(file) }); got > 9<<20 {
		t.Errorf("%d bytes allocated for an array of 8 MiB, want at most 9 MiB", got)
	}
}

// TestReadFortran expects an array in Fortran order to have the same bits as in C order.
func TestReadFortran(t *testing.T) {
	rapid.Check(t, func(t *rapid.T) {
		shape := rapid.SliceOfN(rapid.IntRange(1, 7), 1, 4).Draw(t, "shape")
		descr := rapid.SampledFrom([]string{"<f2", "<f4", ">f4", "<f8", "|b1", "<i2", "|S3", "<U3"}).Draw(t, "dtype")
		n, _ := elements(shape)
		width := int(descr[2] - '0')
		if descr[1] == 'U' {
			width *= 4
		}
		c := make([]byte, n*width) // nothing but 0 and 1 is a boolean; 0x0001 is a number and a character of any kind
		for i := range n {
			c[i*width+rapid.IntRange(0, width-1).Draw(t, "byte")/4*4] = byte(rapid.IntRange(0, 1).Draw(t, "bit"))
		}
		fortran := make([]byte, 0, len(c))
		for at := range n { // the position in the file; the first axis varies fastest
			index, rest := make([]int, len(shape)), at
			for d, size := range shape {
				index[d], rest = rest%size, rest/size
			}
			from := 0
			for d, size := range shape {
				from = from*size + index[d]
			}
			fortran = append(fortran, c[from*width:][:width]...)
		}
		header := dict(descr, tuple(shape))
		want, err := readBytes(npyFile(header, c...))
		if err != nil {
			t.Fatal(err)
		}
		file := npyFile(strings.Replace(header, "False", "True", 1), fortran...)
		for _, size := range []int64{int64(len(file)), -1} {
			got, err := Read("x.npy", bytes.NewReader(file), size)
			if err != nil || !sameBits(got, want) {
				t.Fatalf("%s %v, size %d: got %v, %v, want %v", descr, shape, size, got, err, want)
			}
		}
	})
	// It takes hardly more memory than in C order.
	const dims = "(128, 256, 64)"
	file := npyFile("{'descr': '<f4', 'fortran_order': True, 'shape': "+dims+", }", make([]byte, 8<<20)...)
	if got := allocated(func() { _, _ = readBytes(file) }); got > 9<<20 {
		t.Errorf("%d bytes allocated for an array of 8 MiB, want at most 9 MiB", got)
	}
	a, err := readBytes(file)
	if err != nil {
		t.Fatal(err)
	}
	passes, err := NewPasses("x.npy", a, Options{})
	if err != nil || passes.S != 128 || passes.N != 256 || passes.K != 64 {
		t.Errorf("passes %v, error %v", passes, err)
	}
}

// arrays draws arrays of every shape up to four axes, with any bits: NaN payloads, infinities,
// negative zeros.
var arrays = rapid.Custom(func(t *rapid.T) *Array {
	a := &Array{Shape: rapid.SliceOfN(rapid.IntRange(0, 6), 0, 4).Draw(t, "shape")}
	n, _ := elements(a.Shape)
	switch bits := rapid.SliceOfN(rapid.Uint64(), n, n).Draw(t, "bits"); rapid.IntRange(0, 2).Draw(t, "type") {
	case 0:
		a.Float32 = make([]float32, n)
		for i, b := range bits {
			a.Float32[i] = math.Float32frombits(uint32(b))
		}
	case 1:
		a.Float64 = make([]float64, n)
		for i, b := range bits {
			a.Float64[i] = math.Float64frombits(b)
		}
	default:
		a.Int64 = make([]int64, n)
		for i, b := range bits {
			a.Int64[i] = int64(b)
		}
	}
	return a
})

func TestWriteThenRead(t *testing.T) {
	rapid.Check(t, func(t *rapid.T) {
		a := arrays.Draw(t, "array")
		file := written(t, a)
		size := rapid.SampledFrom([]int64{-1, int64(len(file))}).Draw(t, "size")
		got, err := Read("x.npy", iotest.OneByteReader(bytes.NewReader(file)), size)
		if err != nil {
			t.Fatal(err)
		}
		if !sameBits(got, a) {
			t.Fatalf("got %+v, want %+v", got, a)
		}
	})
}

// TestChunks expects a signalling NaN to keep its payload, among more values than fit one chunk, in
// either byte order.
func TestChunks(t *testing.T) {
	const n = chunkBytes + 3
	for _, descr := range []string{"<f4", ">f4"} {
		var order binary.AppendByteOrder = binary.LittleEndian
		if descr[0] == '>' {
			order = binary.BigEndian
		}
		var data []byte
		for i := range uint32(n) {
			data = order.AppendUint32(data, 0x7f800001+i)
		}
		a, err := readBytes(npyFile(dict(descr, fmt.Sprintf("(%d,)", n)), data...))
		if err != nil {
			t.Fatal(err)
		}
		for i, v := range a.Float32 {
			if got, want := math.Float32bits(v), 0x7f800001+uint32(i); got != want {
				t.Fatalf("%s: value %d is %#08x, want %#08x", descr, i, got, want)
			}
		}
		if again, err := readBytes(written(t, a)); err != nil || !sameBits(again, a) {
			t.Errorf("%s: written and read again it differs (error %v)", descr, err)
		}
	}
}

func FuzzReadNpy(f *testing.F) {
	for _, descr := range []string{"<f2", ">f4", "<f8", "|i1", "|b1", "<u8", "|S3"} {
		f.Add(npyFile(dict(descr, "(1,)"), make([]byte, descr[2]-'0')...))
	}
	f.Add(npyFile(dict("<U2", "(1,)"), make([]byte, 8)...))
	f.Add(npyFile("{'descr': '|i1', 'fortran_order': True, 'shape': (2, 3), }", 1, 2, 3, 4, 5, 6))
	f.Add(npyFile(dict("|O", "(1,)"), 0x80))
	f.Add(npyFile(dict("<f4", "(1000000, 1000000)"), 1))
	f.Add(npyFile(`{"shape": (2, 1), "descr": "|u1", "fortran_order": False}`, 1, 2))
	text := dict(">i2", "()")
	f.Add(append(append([]byte("\x93NUMPY\x02\x00"), byte(len(text)), 0, 0, 0), text+"ab"...))
	f.Fuzz(func(t *testing.T, file []byte) {
		var a *Array
		var err error
		bound := uint64(1<<20 + 16*len(file))
		if exceeds(bound, func() { a, err = readBytes(file) }) {
			t.Fatalf("more than %d bytes allocated for a file of %d", bound, len(file))
		}
		checkRead(t, a, err)
		streamed, errStreamed := Read("x.npy", bytes.NewReader(file), -1)
		if (err == nil) != (errStreamed == nil) || err == nil && !sameBits(a, streamed) {
			t.Fatalf("of unknown size the file reads otherwise: %v, %v", err, errStreamed)
		}
	})
}

// checkRead checks what a reader returned: an error, or an array that survives Write.
func checkRead(t *testing.T, a *Array, err error) {
	if err != nil {
		if a != nil {
			t.Fatalf("got %v and %v, want an error alone", a, err)
		}
		return
	}
	again, err := readBytes(written(t, a)) // what was read can be written
	if err != nil || !sameBits(again, a) {
		t.Fatalf("written and read again it differs: %v", err)
	}
}

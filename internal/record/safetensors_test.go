package record

import (
	"encoding/binary"
	"encoding/json"
	"errors"
	"math"
	"os"
	"path/filepath"
	"strings"
	"testing"

	"github.com/google/go-cmp/cmp"
)

// tensorsFile builds a safetensors file.
func tensorsFile(head string, data ...byte) []byte {
	file := binary.LittleEndian.AppendUint64(nil, uint64(len(head)))
	return append(append(file, head...), data...)
}

// writeTensors writes a file, and returns its path.
func writeTensors(t testing.TB, content []byte) string {
	t.Helper()
	path := filepath.Join(t.TempDir(), "run.safetensors")
	if err := os.WriteFile(path, content, 0o600); err != nil {
		t.Fatal(err)
	}
	return path
}

func TestReadTensors(t *testing.T) {
	floats := func(values ...float32) (raw []byte) {
		for _, v := range values {
			raw = binary.LittleEndian.AppendUint32(raw, math.Float32bits(v))
		}
		return raw
	}
	two := tensorsFile(`{"__metadata__":{"format":"pt"},"labels":{"dtype":"I64","shape":[1],"data_offsets":[16,24]},`+
		`"passes":{"dtype":"F32","shape":[2,1,2],"data_offsets":[0,16]}}  `, append(floats(0.25, 0.75, 1, 0), 7, 0, 0, 0, 0, 0, 0, 0)...)
	one := func(kind, shape string, data ...byte) []byte {
		end, err := json.Marshal(len(data))
		if err != nil {
			t.Fatal(err)
		}
		return tensorsFile(`{"a":{"shape":`+shape+`,"data_offsets":[0,`+string(end)+`],"dtype":"`+kind+`"}}`, data...)
	}
	for name, c := range map[string]struct {
		file   []byte
		member string
		want   *Array
	}{
		"one of two":   {two, ":passes", &Array{Shape: []int{2, 1, 2}, Float32: []float32{0.25, 0.75, 1, 0}}},
		"the other":    {two, ":labels", &Array{Shape: []int{1}, Int64: []int64{7}}},
		"only":         {one("F32", "[1]", floats(3)...), "", &Array{Shape: []int{1}, Float32: []float32{3}}},
		"float16":      {one("F16", "[2]", 0, 0x3c, 0, 0xc0), "", &Array{Shape: []int{2}, Float32: []float32{1, -2}}},
		"bfloat16":     {one("BF16", "[2]", 0x80, 0x3f, 0, 0xc0), "", &Array{Shape: []int{2}, Float32: []float32{1, -2}}},
		"float64":      {one("F64", "[1]", 0, 0, 0, 0, 0, 0, 0xf0, 0x3f), "", &Array{Shape: []int{1}, Float64: []float64{1}}},
		"bytes":        {one("U8", "[2,1]", 3, 255), "", &Array{Shape: []int{2, 1}, Int64: []int64{3, 255}}},
		"signed bytes": {one("I8", "[1]", 255), "", &Array{Shape: []int{1}, Int64: []int64{-1}}},
		"truth":        {one("BOOL", "[2]", 0, 1), "", &Array{Shape: []int{2}, Int64: []int64{0, 1}}},
		"empty":        {one("F32", "[0,3]"), "", &Array{Shape: []int{0, 3}, Float32: []float32{}}},
		"a scalar":     {one("U8", "[]", 9), "", &Array{Shape: []int{}, Int64: []int64{9}}},
	} {
		t.Run(name, func(t *testing.T) {
			got, err := ReadFile(writeTensors(t, c.file) + c.member)
			if err != nil {
				t.Fatal(err)
			}
			if diff := cmp.Diff(c.want, got); diff != "" {
				t.Errorf("want - and got +:\n%s", diff)
			}
		})
	}
}

func TestReadTensorsErrors(t *testing.T) {
	const bytes4 = `"dtype":"F32","shape":[1],"data_offsets":[0,4]`
	for name, c := range map[string]struct {
		file   []byte
		member string
		want   string
	}{
		"none":             {tensorsFile(`{}  `), "", "holds no tensor"},
		"which":            {tensorsFile(`{"b":{` + bytes4 + `},"a":{` + bytes4 + `}}`), "", `holds 2 tensors: say which, as in `},
		"another":          {tensorsFile(`{"a":{` + bytes4 + `}}`), ":b", `no tensor "b": expected one of "a"`},
		"type":             {tensorsFile(`{"a":{"dtype":"F8_E4M3","shape":[1],"data_offsets":[0,1]}}`, 1), "", `(a): byte 12: type "F8_E4M3" is not read: expected one of BF16, BOOL`},
		"short":            {tensorsFile(`{"a":{`+bytes4+`}}`, 1, 2), "", "bytes 0 to 4 of the data: expected up to 2"},
		"size":             {tensorsFile(`{"a":{"dtype":"F64","shape":[2],"data_offsets":[0,4]}}`, 1, 2, 3, 4), "", "needs 16 bytes, found 4"},
		"backwards":        {tensorsFile(`{"a":{"dtype":"F32","shape":[1],"data_offsets":[4,0]}}`, 1, 2, 3, 4), "", "bytes 4 to 0"},
		"before the data":  {tensorsFile(`{"a":{"dtype":"F32","shape":[1],"data_offsets":[-4,0]}}`, 1, 2, 3, 4), "", "bytes -4 to 0"},
		"negative":         {tensorsFile(`{"a":{"dtype":"F32","shape":[-1],"data_offsets":[0,4]}}`, 1, 2, 3, 4), "", "negative"},
		"huge":             {tensorsFile(`{"a":{"dtype":"F32","shape":[9223372036854775807,9],"data_offsets":[0,4]}}`, 1, 2, 3, 4), "", "too many elements"},
		"axes":             {tensorsFile(`{"a":{"dtype":"U8","shape":[1` + strings.Repeat(",1", maxDims) + `],"data_offsets":[0,1]}}`), "", "65 axes"},
		"twice":            {tensorsFile(`{"a":{`+bytes4+`},"a":{`+bytes4+`}}`, 1, 2, 3, 4), "", `tensor "a" stands twice`},
		"unknown field":    {tensorsFile(`{"a":{"kind":"F32"}}`), "", `unknown field "kind"`},
		"metadata":         {tensorsFile(`{"__metadata__":{"a":1}}`), "", "the header cannot be read"},
		"cut off":          {tensorsFile(`{"a":{`), "", "the header cannot be read"},
		"after the header": {tensorsFile(`{} {}`), "", "follows it"},
		"truth":            {tensorsFile(`{"a":{"dtype":"BOOL","shape":[1],"data_offsets":[0,1]}}`, 2), "", "boolean is 2"},
	} {
		t.Run(name, func(t *testing.T) {
			path := writeTensors(t, c.file)
			_, err := ReadFile(path + c.member)
			var format *FormatError
			if !errors.As(err, &format) || !strings.HasPrefix(err.Error(), path) || !strings.Contains(err.Error(), c.want) {
				t.Errorf("error %v, expected one with %q", err, c.want)
			}
		})
	}
}

func FuzzReadTensors(f *testing.F) {
	f.Add(tensorsFile(`{"passes":{"dtype":"F32","shape":[1,1,1],"data_offsets":[0,4]}}`, 0, 0, 0x80, 0x3f), "passes")
	f.Add(tensorsFile(`{"__metadata__":{"a":"b"},"l":{"dtype":"BF16","shape":[2],"data_offsets":[0,4]}} `, 1, 2, 3, 4), "")
	f.Add(tensorsFile(`{"a":{"dtype":"I64","shape":[9,1e9],"data_offsets":[0,72]}}`), "a")
	f.Fuzz(func(t *testing.T, file []byte, name string) {
		a, err := readTensor("fuzz", strings.NewReader(string(file)), int64(len(file)), name)
		var format *FormatError
		switch {
		case err == nil && a.check() != nil:
			t.Error(a.check())
		case err == nil && len(a.Float32)+len(a.Float64)+len(a.Int64) > len(file):
			t.Errorf("%d bytes give %v", len(file), a.Shape)
		case err != nil && !errors.As(err, &format):
			t.Errorf("%T: %v", err, err)
		}
	})
}

package record

import (
	"bytes"
	"errors"
	"os"
	"path/filepath"
	"strings"
	"testing"

	"github.com/google/go-cmp/cmp"
	"github.com/parquet-go/parquet-go"
)

// parquetRow is a row as pyarrow writes nested lists: each list, and each value, may be null.
type parquetRow struct {
	Passes [][]float32 `parquet:"passes,list"`
	Double []float64   `parquet:"double,list,zstd"`
	Label  int64       `parquet:"label"`
	Group  string      `parquet:"group,dict,snappy"`
	Small  *int32      `parquet:"small,optional"`
	Whole  []struct{ A, B int32 }
	Yes    bool `parquet:"yes"`
}

func parquetFile(tb testing.TB, rows ...parquetRow) []byte {
	tb.Helper()
	var b bytes.Buffer
	w := parquet.NewGenericWriter[parquetRow](&b)
	for i := range rows { // in several groups of rows
		if _, err := w.Write(rows[i : i+1]); err != nil {
			tb.Fatal(err)
		}
		if err := w.Flush(); err != nil {
			tb.Fatal(err)
		}
	}
	if err := w.Close(); err != nil {
		tb.Fatal(err)
	}
	return b.Bytes()
}

func writeParquet(t *testing.T, file []byte) string {
	t.Helper()
	path := filepath.Join(t.TempDir(), "run.parquet")
	if err := os.WriteFile(path, file, 0o600); err != nil {
		t.Fatal(err)
	}
	return path
}

func twoRows() []parquetRow {
	small := int32(7)
	return []parquetRow{
		{Passes: [][]float32{{0.25, 0.75}, {0.5, 0.5}, {1, 0}}, Double: []float64{1, 2}, Label: 1, Group: "north", Small: &small},
		{Passes: [][]float32{{0, 1}, {0.125, 0.875}, {0.75, 0.25}}, Double: []float64{3, 4}, Label: -2, Group: "south", Small: &small},
	}
}

// TestReadParquet reads columns of every type. Rows are inputs.
func TestReadParquet(t *testing.T) {
	path := writeParquet(t, parquetFile(t, twoRows()...))
	for column, want := range map[string]Array{
		"passes": {Shape: []int{2, 3, 2}, Float32: []float32{0.25, 0.75, 0.5, 0.5, 1, 0, 0, 1, 0.125, 0.875, 0.75, 0.25}},
		"double": {Shape: []int{2, 2}, Float64: []float64{1, 2, 3, 4}},
		"label":  {Shape: []int{2}, Int64: []int64{1, -2}},
		"group":  {Shape: []int{2}, Text: []string{"north", "south"}},
		"small":  {Shape: []int{2}, Int64: []int64{7, 7}},
	} {
		t.Run(column, func(t *testing.T) {
			want.InputsFirst = true
			got, err := ReadFile(path + ":" + column)
			if err != nil {
				t.Fatal(err)
			}
			if diff := cmp.Diff(&want, got); diff != "" {
				t.Errorf("(-want +got):\n%s", diff)
			}
		})
	}
	p, err := ReadPasses(path+":passes", Options{Layout: SNK})
	if err != nil {
		t.Fatal(err)
	}
	if got := p.Row(nil, 1, 1); p.S != 3 || p.N != 2 || p.K != 2 || !cmp.Equal(got, []float64{0.125, 0.875}) {
		t.Errorf("%d passes of %d inputs over %d classes, row %v", p.S, p.N, p.K, got)
	}
}

// TestParquetFaults expects each fault to be told with the file, and the column and row at fault.
func TestParquetFaults(t *testing.T) {
	rows := func(change func(r []parquetRow)) []byte {
		r := twoRows()
		change(r)
		return parquetFile(t, r...)
	}
	good := rows(func([]parquetRow) {})
	for name, c := range map[string]struct {
		file         []byte
		member, want string
	}{
		"no name":         {good, "", `the file holds 7 columns: say which`},
		"unknown name":    {good, ":pass", `no column "pass": expected one of "passes"`},
		"fewer passes":    {rows(func(r []parquetRow) { r[1].Passes = r[1].Passes[:2] }), ":passes", "(passes): row 2: a list of 2, expected 3"},
		"a class more":    {rows(func(r []parquetRow) { r[0].Passes[1] = []float32{1, 0, 0} }), ":passes", "row 1: a list of 3, expected 2"},
		"an empty list":   {rows(func(r []parquetRow) { r[1].Passes = nil }), ":passes", "row 2: there is no value"},
		"an empty pass":   {rows(func(r []parquetRow) { r[0].Passes[2] = nil }), ":passes", "row 1: there is no value"},
		"null":            {rows(func(r []parquetRow) { r[0].Small = nil }), ":small", "row 1: there is no value"},
		"no rows":         {parquetFile(t), ":passes", "no rows"},
		"groups":          {good, ":Whole", "groups of 2 fields"},
		"truths":          {good, ":yes", "a column of BOOLEAN"},
		"cut off":         {good[:len(good)-9], ":passes", "the Parquet file cannot be read"},
		"nothing but PAR": {[]byte("PAR1"), "", "the Parquet file cannot be read"},
	} {
		t.Run(name, func(t *testing.T) {
			path := writeParquet(t, c.file)
			_, err := ReadFile(path + c.member)
			var format *FormatError
			if !errors.As(err, &format) || !strings.HasPrefix(err.Error(), path) || !strings.Contains(err.Error(), c.want) {
				t.Errorf("error %v, expected one with %q", err, c.want)
			}
		})
	}
}

// TestParquetRuns expects a small file not to fill the memory.
func TestParquetRuns(t *testing.T) {
	rows := make([]parquetRow, 3)
	for i := range rows {
		rows[i] = twoRows()[0]
	}
	file := parquetFile(t, rows...)
	f, err := parquet.OpenFile(bytes.NewReader(file), int64(len(file)))
	if err != nil {
		t.Fatal(err)
	}
	leaf, err := leafOf("file", f.Root().Column("passes"))
	if err != nil {
		t.Fatal(err)
	}
	read := newTable("file", leaf, 8)
	if err = read.readChunk(f.RowGroups()[0].ColumnChunks()[leaf.Index()]); err == nil {
		err = read.readChunk(f.RowGroups()[1].ColumnChunks()[leaf.Index()])
	}
	if err == nil || !strings.Contains(err.Error(), "more than 8 values") {
		t.Error(err)
	}
}

func FuzzReadParquet(f *testing.F) {
	f.Add(parquetFile(f, twoRows()...), "passes")
	f.Add(parquetFile(f, twoRows()[:1]...), "group")
	f.Fuzz(func(t *testing.T, file []byte, name string) {
		a, err := readParquet("fuzz", bytes.NewReader(file), int64(len(file)), name)
		var format *FormatError
		switch {
		case err == nil && a.check() != nil:
			t.Error(a.check())
		case err != nil && !errors.As(err, &format):
			t.Errorf("%T: %v", err, err)
		}
	})
}

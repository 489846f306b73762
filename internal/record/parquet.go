package record

import (
	"errors"
	"fmt"
	"io"
	"strconv"
	"strings"

	"github.com/parquet-go/parquet-go"
)

// mostValues bounds the values that a Parquet column may unpack to, beside 64 for each byte of the
// file: runs of equal values cost hardly any bytes, so that a small file could fill the memory.
const mostValues = 1 << 24

// isParquet recognises a Parquet file by its first bytes.
func isParquet(r io.ReaderAt) bool {
	var first [4]byte
	_, err := r.ReadAt(first[:], 0)
	return err == nil && string(first[:]) == "PAR1"
}

// readParquet reads one column of a Parquet file of size bytes as an array. Its rows are the first
// axis, which is the inputs, and each level of lists in it is a further axis. An empty name takes the
// only column.
func readParquet(path string, r io.ReaderAt, size int64, name string) (a *Array, err error) {
	defer func() {
		// The library panics over some damaged files.
		if fault := recover(); fault != nil {
			a, err = nil, contentError(path, "the Parquet file is damaged: %v", fault)
		}
	}()
	f, err := parquet.OpenFile(io.NewSectionReader(r, 0, size), size, parquet.SkipPageIndex(true), parquet.SkipBloomFilters(true))
	if err != nil {
		return nil, contentError(path, "the Parquet file cannot be read: %v", err)
	}
	column, err := chooseColumn(path, f.Root().Columns(), name)
	if err != nil {
		return nil, err
	}
	name = path + "(" + column.Name() + ")"
	leaf, err := leafOf(name, column)
	if err != nil {
		return nil, err
	}
	t := newTable(name, leaf, int(max(mostValues, 64*min(size, 1<<40))))
	for _, group := range f.RowGroups() {
		if err := t.readChunk(group.ColumnChunks()[leaf.Index()]); err != nil {
			return nil, err
		}
	}
	return t.array()
}

// chooseColumn returns the column of the name, or the only one for an empty name.
func chooseColumn(path string, columns []*parquet.Column, name string) (*parquet.Column, error) {
	var names []string
	for _, c := range columns {
		if c.Name() == name || name == "" && len(columns) == 1 {
			return c, nil
		}
		names = append(names, strconv.Quote(c.Name()))
	}
	switch {
	case len(names) == 0:
		return nil, contentError(path, "the file holds no column: expected one with passes or labels")
	case name == "":
		return nil, contentError(path, "the file holds %d columns: say which, as in %s:NAME, of %s", len(names), path, firstOf(names))
	}
	return nil, contentError(path, "the file holds no column %q: expected one of %s", name, firstOf(names))
}

// leafOf returns the values of a column of numbers or text, or of lists of them, however deep.
func leafOf(name string, c *parquet.Column) (*parquet.Column, error) {
	for !c.Leaf() {
		inner := c.Columns()
		if len(inner) != 1 {
			return nil, contentError(name, "a column of groups of %d fields: expected numbers or text, or lists of them", len(inner))
		}
		c = inner[0]
	}
	if axes := c.MaxRepetitionLevel() + 1; axes > maxDims {
		return nil, contentError(name, "lists %d deep: expected at most %d axes", axes-1, maxDims)
	}
	return c, nil
}

// table builds an array of the values of a column, which come with the level of lists at which each
// begins anew.
type table struct {
	name    string
	kind    parquet.Kind
	defined int // the level at which a value is there
	most    int // values
	result  Array
	// shape has the length of each axis, -1 until its first list ends. at counts in the lists that
	// are being read.
	shape, at []int
	values    int
}

func newTable(name string, leaf *parquet.Column, most int) *table {
	axes := leaf.MaxRepetitionLevel() + 1
	t := &table{name: name, kind: leaf.Type().Kind(), defined: leaf.MaxDefinitionLevel(), most: most, shape: make([]int, axes), at: make([]int, axes)}
	for i := range t.shape {
		t.shape[i] = -1
	}
	return t
}

func (t *table) readChunk(chunk parquet.ColumnChunk) error {
	pages := chunk.Pages()
	defer pages.Close()
	var buffer [1024]parquet.Value
	for {
		page, err := pages.ReadPage()
		if errors.Is(err, io.EOF) {
			return nil
		}
		if err != nil {
			return contentError(t.name, "the column cannot be read: %v", err)
		}
		values := page.Values()
		for err == nil {
			var n int
			n, err = values.ReadValues(buffer[:])
			for i := range buffer[:n] {
				if err := t.add(&buffer[i]); err != nil {
					return err
				}
			}
		}
		parquet.Release(page)
		if !errors.Is(err, io.EOF) {
			return contentError(t.name, "the column cannot be read: %v", err)
		}
	}
}

// add appends a value.
func (t *table) add(v *parquet.Value) error {
	if t.values++; t.values > t.most {
		return contentError(t.name, "the column has more than %d values, far more than the file has bytes", t.most)
	}
	level := v.RepetitionLevel()
	if t.values > 1 {
		if err := t.end(level); err != nil {
			return err
		}
	}
	t.at[level]++
	for axis := level + 1; axis < len(t.at); axis++ {
		t.at[axis] = 1
	}
	if v.DefinitionLevel() < t.defined {
		return t.fail("there is no value: expected one in every place, and no empty list")
	}
	a := &t.result
	switch t.kind {
	case parquet.Float:
		a.Float32 = append(a.Float32, v.Float())
	case parquet.Double:
		a.Float64 = append(a.Float64, v.Double())
	case parquet.Int32:
		a.Int64 = append(a.Int64, int64(v.Int32()))
	case parquet.Int64:
		a.Int64 = append(a.Int64, v.Int64())
	case parquet.ByteArray:
		a.Text = append(a.Text, strings.Clone(string(v.ByteArray())))
	default:
		return contentError(t.name, "a column of %v: expected FLOAT, DOUBLE, INT32, INT64 or strings", t.kind)
	}
	return nil
}

// end ends the lists below a level, which must be as long as those before.
func (t *table) end(level int) error {
	for axis := len(t.at) - 1; axis > level; axis-- {
		if t.shape[axis] < 0 {
			t.shape[axis] = t.at[axis]
		}
		if t.at[axis] != t.shape[axis] {
			return t.fail("a list of %d, expected %d as in the first", t.at[axis], t.shape[axis])
		}
	}
	return nil
}

// fail says what is wrong with the row that is being read.
func (t *table) fail(format string, args ...any) error {
	return contentError(t.name, "row %d: %s", t.at[0], fmt.Sprintf(format, args...))
}

func (t *table) array() (*Array, error) {
	if t.values == 0 {
		return nil, contentError(t.name, "the column has no rows")
	}
	if err := t.end(0); err != nil {
		return nil, err
	}
	t.shape[0] = t.at[0]
	a := t.result
	a.Shape, a.InputsFirst = t.shape, true
	return &a, a.check()
}

package outcomefile

import (
	"bytes"
	"encoding/csv"
	"errors"
	"io"
	"strings"

	"github.com/ckd-project/ckd/internal/strictyaml"
)

// readCSV reads a CSV file with a header.
func readCSV(r *reader, data []byte) {
	records := csv.NewReader(bytes.NewReader(bytes.TrimPrefix(data, []byte("\ufeff")))) // as spreadsheets write it
	header, err := records.Read()
	if err != nil {
		r.fault(1, 1, "", "no header, expected a line with the names of the columns: %s", strings.Join(Fields(), ", "))
		return
	}
	column := map[string]int{} // by field
	for i, name := range header {
		field, known := r.field[name]
		if !known {
			r.noteUnused(name)
			continue
		}
		if _, twice := column[field]; twice {
			line, col := records.FieldPos(i)
			r.fault(line, col, name, "the column stands twice, expected it once")
		}
		column[field] = i
	}
	for _, field := range needed {
		if _, ok := column[field]; !ok {
			r.fault(1, 1, r.nameOf(field), "no such column%s (--columns %s=NAME names another)", strictyaml.Suggest(r.nameOf(field), header), field)
		}
	}
	for field, name := range r.options.Columns {
		if _, ok := column[field]; !ok && field != "receipt" && field != "truth" {
			r.fault(1, 1, name, "no such column%s, expected that of --columns", strictyaml.Suggest(name, header))
		}
	}
	if len(r.faults) > 0 {
		return
	}
	for {
		record, err := records.Read()
		switch parse := (*csv.ParseError)(nil); {
		case errors.Is(err, io.EOF):
			return
		case errors.As(err, &parse) && errors.Is(err, csv.ErrFieldCount):
			r.fault(parse.StartLine, 1, "", "%d columns, expected %d, as the header has", len(record), len(header))
			continue
		case errors.As(err, &parse):
			r.fault(parse.Line, parse.Column, "", "not CSV: %v", parse.Err)
			return // the rest may be read wrongly
		case err != nil:
			r.fault(0, 0, "", "%v", err)
			return
		}
		values := map[string]value{}
		for field, i := range column {
			line, col := records.FieldPos(i)
			values[field] = value{record[i], line, col}
		}
		line, col := records.FieldPos(0)
		r.add(line, col, values)
	}
}

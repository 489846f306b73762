package outcomefile

import (
	"bytes"
	"encoding/csv"
	"errors"
	"io"
	"slices"
	"strings"

	"github.com/ckd-project/ckd/internal/strictyaml"
)

// readCSV reads a CSV file with a header. Its separator is the character that separates most of the
// known names in the header, or is named by a line such as sep=; before it.
func readCSV(r *reader, text []byte) {
	records := csv.NewReader(bytes.NewReader(text))
	records.FieldsPerRecord = -1
	first, _, _ := bytes.Cut(text, []byte("\n"))
	if said, ok := strings.CutPrefix(strings.ToLower(strings.Trim(string(first), `"`)), "sep="); ok && len(said) == 1 {
		records.Comma = rune(said[0])
		_, _ = records.Read() // what is wrong with the line is told by the header
	} else {
		records.Comma = r.separator(string(first))
	}
	header, err := records.Read()
	if err != nil {
		r.fault(1, 1, "", "no header, expected a line with the names of the columns: %s", strings.Join(r.names, ", "))
		return
	}
	column := map[string]int{} // by field
	for i, name := range header {
		field, known := r.field[plain(name)]
		if !known {
			r.file.Unused = append(r.file.Unused, name)
			continue
		}
		if _, twice := column[field]; twice {
			line, col := records.FieldPos(i)
			r.fault(line, col, name, "the column stands twice, expected it once")
		}
		column[field] = i
	}
	line, _ := records.FieldPos(0)
	for _, field := range r.needed {
		if _, ok := column[field]; !ok {
			r.fault(line, 1, r.nameOf(field), "no such column%s (--columns %s=NAME names another)", strictyaml.Suggest(r.nameOf(field), header), field)
		}
	}
	for field, name := range r.options.Columns {
		if _, ok := column[field]; !ok && !slices.Contains(r.needed, field) {
			r.fault(line, 1, name, "no such column%s, expected that of --columns", strictyaml.Suggest(name, header))
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
		case errors.As(err, &parse):
			r.fault(parse.Line, parse.Column, "", "not CSV: %v", parse.Err)
			return // the rest may be read wrongly
		case err != nil:
			r.fault(0, 0, "", "%v", err)
			return
		}
		line, col := records.FieldPos(0)
		switch {
		case !slices.ContainsFunc(record, func(text string) bool { return strings.TrimSpace(text) != "" }):
			continue // as spreadsheets write below the last row
		case len(record) != len(header):
			r.fault(line, 1, "", "%d columns, expected %d, as the header has", len(record), len(header))
			continue
		}
		values := map[string]value{}
		for field, i := range column {
			line, col := records.FieldPos(i)
			values[field] = value{record[i], line, col}
		}
		r.add(line, col, values)
	}
}

// separator returns the character that separates the most known names in a header.
func (r *reader) separator(header string) rune {
	best, most := ',', 0
	for _, c := range ",;\t|" {
		known := 0
		for name := range strings.SplitSeq(header, string(c)) {
			if _, ok := r.field[plain(strings.Trim(name, `"`))]; ok {
				known++
			}
		}
		if known > most {
			best, most = c, known
		}
	}
	return best
}

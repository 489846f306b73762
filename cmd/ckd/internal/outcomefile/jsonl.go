package outcomefile

import (
	"bytes"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"unicode/utf8"

	"github.com/ckd-project/ckd/internal/strictyaml"
)

// readJSONL reads a file with one JSON object on each line.
func readJSONL(r *reader, data []byte) {
	number := 0
	for line := range bytes.Lines(data) {
		number++
		switch at, why := lost(string(line)); {
		case len(bytes.TrimSpace(line)) == 0:
		case at >= 0:
			r.fault(number, column(line, int64(at)), "", "%s", why)
		default:
			r.readObject(number, line)
		}
	}
}

// readObject reads the object on a line.
func (r *reader) readObject(number int, line []byte) {
	d := json.NewDecoder(bytes.NewReader(line))
	d.UseNumber()
	begin, t, err := next(d, line)
	if err == nil && t != json.Delim('{') {
		r.fault(number, begin, "", "expected an object such as {\"receipt\": \"...\", \"truth\": \"normal\", \"source\": \"reader-1\"}")
		return
	}
	values := map[string]value{}
	var keys []string
	for err == nil && d.More() {
		var key, text json.Token
		var col int
		if col, key, err = next(d, line); err != nil {
			break
		}
		name := key.(string) // of an object, every other token is a string
		field, known := r.field[plain(name)]
		keys = append(keys, name)
		if !known {
			r.noteUnused(name)
			var skipped json.RawMessage
			err = d.Decode(&skipped)
			continue
		}
		if _, twice := values[field]; twice {
			r.fault(number, col, name, "the key stands twice, expected it once")
		}
		if col, text, err = next(d, line); err != nil {
			break
		}
		switch text := text.(type) {
		case nil:
			values[field] = value{"", number, col}
		case json.Delim:
			r.fault(number, col, name, "expected a text, found an array or object")
			return
		default:
			values[field] = value{fmt.Sprint(text), number, col}
		}
	}
	if err == nil {
		_, _, err = next(d, line) // the closing brace
	}
	if err != nil {
		r.fault(number, column(line, d.InputOffset()), "", "not JSON: %v", cause(err))
		return
	}
	if at, _, err := next(d, line); !errors.Is(err, io.EOF) {
		r.fault(number, at, "", "more than one object on the line")
		return
	}
	for _, field := range needed {
		if _, given := values[field]; !given {
			r.fault(number, begin, r.nameOf(field), "no such key%s (--columns %s=NAME names another)", strictyaml.Suggest(r.nameOf(field), keys), field)
			return
		}
	}
	r.add(number, begin, values)
}

// next returns the next token and the column where it begins.
func next(d *json.Decoder, line []byte) (col int, t json.Token, err error) {
	from := d.InputOffset()
	t, err = d.Token()
	for from < int64(len(line)) && bytes.IndexByte([]byte(" \t\r\n,:"), line[from]) >= 0 {
		from++
	}
	return column(line, from), t, err
}

// column returns the column, from 1, of a byte of a line.
func column(line []byte, at int64) int { return 1 + utf8.RuneCount(line[:min(at, int64(len(line)))]) }

// cause names the fault of a line that ends early.
func cause(err error) error {
	if errors.Is(err, io.EOF) || errors.Is(err, io.ErrUnexpectedEOF) {
		return errors.New("the object does not end on its line")
	}
	return err
}

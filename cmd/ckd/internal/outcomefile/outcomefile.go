package outcomefile

import (
	"encoding/base64"
	"fmt"
	"maps"
	"os"
	"path/filepath"
	"slices"
	"strconv"
	"strings"
	"time"

	"google.golang.org/protobuf/types/known/timestamppb"

	"github.com/ckd-project/ckd/internal/strictyaml"
	ckdv1 "github.com/ckd-project/ckd/proto/ckd/v1"
)

// Options says how to read a file.
type Options struct {
	// Columns gives the names of columns that the file has in place of a field's own.
	Columns map[string]string
	// Source is the source of outcomes that name none.
	Source string
}

// Fields returns the names of the fields of an outcome.
func Fields() []string { return slices.Sorted(maps.Keys(fields)) }

// fields maps each field to how its text is read.
var fields = map[string]func(o *ckdv1.Outcome, text string) error{
	"receipt":   readReceipt,
	"truth":     func(o *ckdv1.Outcome, text string) error { o.Truth = text; return nil },
	"source":    func(o *ckdv1.Outcome, text string) error { o.Source = text; return nil },
	"time":      readTime,
	"saw_model": readSawModel,
	"kind":      readKind,
}

// needed lists the fields that every row must have.
var needed = []string{"receipt", "truth"}

// ReceiptFields lists the fields of a file of receipts: the receipt, and the case that it belongs to.
var ReceiptFields = []string{"receipt", "case"}

// File holds the outcomes of a file.
type File struct {
	// Outcomes has the outcomes in the order of the file, and Lines the line of each.
	Outcomes []*ckdv1.Outcome
	Lines    []int
	// Open counts rows that have no truth yet. They are left out.
	Open int
	// WithoutReceipt counts rows with a truth but no receipt. They are left out.
	WithoutReceipt int
	// Unused has the names of columns that are no field, in the order of the file.
	Unused []string
}

// Read reads a file that ends in .csv or .tsv. Its error is of type strictyaml.Faults if the file could be
// read. A file without any outcome is a fault.
func Read(path string, o Options) (*File, error) {
	if !separated(path) {
		return nil, fmt.Errorf("%s: expected a file that ends in .csv or .tsv (save a spreadsheet as CSV UTF-8)", path)
	}
	r := newReader(path, o)
	text, err := r.text()
	if err != nil {
		return nil, err
	}
	readCSV(r, text)
	if found := &r.file; len(r.faults) == 0 && len(found.Outcomes) == 0 {
		r.fault(0, 0, "", "nothing to send: %d rows without a truth and %d without a receipt, expected at least one with both",
			found.Open, found.WithoutReceipt)
	}
	if len(r.faults) > 0 {
		r.faults.Sort()
		return nil, r.faults
	}
	return &r.file, nil
}

// separated reports whether a file has columns, by its name.
func separated(path string) bool {
	ending := strings.ToLower(filepath.Ext(path))
	return ending == ".csv" || ending == ".tsv"
}

// text returns the text of the file.
func (r *reader) text() ([]byte, error) {
	data, err := os.ReadFile(r.path)
	if err != nil {
		return nil, err
	}
	text, err := toText(data)
	if err != nil {
		r.fault(0, 0, "", "%v", err)
		return nil, r.faults
	}
	return text, nil
}

// reader collects the outcomes of a file while it is read.
type reader struct {
	path    string
	options Options
	names   []string          // of the fields
	needed  []string          // fields that there must be
	field   map[string]string // by the name that the file has for it
	accept  func(line, col int, values map[string]value)
	file    File
	faults  strictyaml.Faults
}

func newReader(path string, o Options) *reader {
	r := &reader{path: path, options: o, names: Fields(), needed: needed, field: map[string]string{}}
	r.accept = r.outcome
	for _, name := range r.names {
		r.field[plain(r.nameOf(name))] = name
	}
	return r
}

// plain returns the name of a column as it is compared: without spaces around it, in lower case.
func plain(name string) string { return strings.ToLower(strings.TrimSpace(name)) }

// nameOf returns the name that the file has for a field.
func (r *reader) nameOf(field string) string {
	if name, ok := r.options.Columns[field]; ok {
		return name
	}
	return field
}

// fault reports a fault with its place.
func (r *reader) fault(line, col int, field, format string, args ...any) {
	r.faults = append(r.faults, strictyaml.Fault{File: r.path, Line: line, Col: col, Field: field, Reason: fmt.Sprintf(format, args...)})
}

// value is the text of one field, at its place.
type value struct {
	text      string
	line, col int
}

// add takes one row, which begins at line and col, unless a text of it was damaged. Values are by field.
func (r *reader) add(line, col int, values map[string]value) {
	before := len(r.faults)
	for name, v := range values {
		v.text = strings.TrimSpace(v.text)
		values[name] = v
		if at, why := lost(v.text); at >= 0 {
			r.fault(v.line, v.col, r.nameOf(name), "%s has %s", strictyaml.Quote(v.text), why)
		}
	}
	if len(r.faults) == before {
		r.accept(line, col, values)
	}
}

// outcome adds the outcome of one row.
func (r *reader) outcome(line, col int, values map[string]value) {
	before := len(r.faults)
	switch {
	case values["truth"].text == "":
		r.file.Open++
		return
	case values["receipt"].text == "":
		r.file.WithoutReceipt++
		return
	}
	o := &ckdv1.Outcome{Source: r.options.Source}
	for _, name := range Fields() {
		v, given := values[name]
		if !given || v.text == "" {
			continue
		}
		if err := fields[name](o, v.text); err != nil {
			r.fault(v.line, v.col, r.nameOf(name), "%v", err)
		}
	}
	if o.Source == "" {
		r.fault(line, col, r.nameOf("source"), "none, expected an opaque name of who found out the truth (or --source for the whole file)")
	}
	if len(r.faults) == before {
		r.file.Outcomes, r.file.Lines = append(r.file.Outcomes, o), append(r.file.Lines, line)
	}
}

// readReceipt decodes base64 of either alphabet, with padding or without: JSON of gRPC has one form, and
// the Open Inference Protocol the other.
func readReceipt(o *ckdv1.Outcome, text string) (err error) {
	plain := strings.TrimRight(strings.NewReplacer("-", "+", "_", "/").Replace(text), "=")
	if o.Receipt, err = base64.RawStdEncoding.DecodeString(plain); err != nil {
		return fmt.Errorf("%s is not base64, expected the receipt as it came", strictyaml.Quote(text))
	}
	return nil
}

func readTime(o *ckdv1.Outcome, text string) error {
	for _, layout := range []string{time.RFC3339, "2006-01-02 15:04:05Z07:00", "2006-01-02 15:04:05-0700"} { // the others are of pandas
		moment, err := time.Parse(layout, text)
		switch {
		case err != nil:
			continue
		case moment.UTC().Year() <= 1: // in whatever zone
			return fmt.Errorf("%s is what Go and .NET write for no time, expected when the truth was found, or nothing for now", strictyaml.Quote(text))
		}
		o.Time = timestamppb.New(moment)
		return nil
	}
	return fmt.Errorf("%s, expected a time with its zone, such as 2026-03-01T14:30:00Z or 2026-03-01 15:30:00+01:00", strictyaml.Quote(text))
}

func readSawModel(o *ckdv1.Outcome, text string) (err error) {
	if o.SawModel, err = strconv.ParseBool(strings.ToLower(text)); err != nil {
		return fmt.Errorf("%s, expected true or false: whether that person had seen the model's answer", strictyaml.Quote(text))
	}
	return nil
}

// kinds maps the names of kinds in files.
var kinds = map[string]ckdv1.OutcomeKind{
	"reading": ckdv1.OutcomeKind_OUTCOME_KIND_READING, "biopsy": ckdv1.OutcomeKind_OUTCOME_KIND_BIOPSY,
	"follow-up": ckdv1.OutcomeKind_OUTCOME_KIND_FOLLOW_UP,
}

func readKind(o *ckdv1.Outcome, text string) error {
	kind, ok := kinds[text]
	if !ok {
		return fmt.Errorf("%s, expected reading, biopsy or follow-up%s", strictyaml.Quote(text), strictyaml.Suggest(text, slices.Sorted(maps.Keys(kinds))))
	}
	o.Kind = kind
	return nil
}

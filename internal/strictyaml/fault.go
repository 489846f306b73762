package strictyaml

import (
	"cmp"
	"fmt"
	"slices"
	"strings"
)

// Fault describes one thing wrong with a file, at its place.
type Fault struct {
	// File is the name under which the reader of the document knows it.
	File string
	// Line and Col count from 1. They are 0 if the file as a whole is at fault.
	Line, Col int
	// Entry names the entry of the file that the field belongs to, as in model "x".
	// It is empty if the entry has no valid name, or the fault lies outside all entries.
	Entry string
	// Field holds the path of the field from the entry, as in primary.threshold, or from
	// the root if there is no entry. It is empty for the entry or the document as a whole.
	Field string
	// Reason names the found and the expected value.
	Reason string
}

// Error returns the fault as file:line:col: entry: field: reason, without the parts that
// are empty.
func (f Fault) Error() string {
	var parts []string
	switch {
	case f.Line > 0:
		parts = append(parts, fmt.Sprintf("%s:%d:%d", f.File, f.Line, f.Col))
	case f.File != "":
		parts = append(parts, f.File)
	}
	for _, part := range []string{f.Entry, f.Field} {
		if part != "" {
			parts = append(parts, part)
		}
	}
	return strings.Join(append(parts, f.Reason), ": ")
}

// Faults lists everything wrong with a set of files.
type Faults []Fault

// Error returns the faults, one on each line.
func (fs Faults) Error() string {
	lines := make([]string, len(fs))
	for i, f := range fs {
		lines[i] = f.Error()
	}
	return strings.Join(lines, "\n")
}

// Sort orders the faults of one file by position. Faults at one place keep their order.
func (fs Faults) Sort() {
	slices.SortStableFunc(fs, func(a, b Fault) int {
		return cmp.Or(cmp.Compare(a.Line, b.Line), cmp.Compare(a.Col, b.Col))
	})
}

// Err returns the faults as an error, or nil if there are none.
func (fs Faults) Err() error {
	if len(fs) == 0 {
		return nil
	}
	return fs
}

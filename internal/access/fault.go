package access

import (
	"fmt"
	"strings"
)

// Fault is one thing wrong with an access file.
type Fault struct {
	File string
	// Line and Col from 1; 0 where the fault is of the file and of no place in it.
	Line, Col int
	// Identity is empty where its name is not known.
	Identity string
	// Field by its path in the identity, as in tokens[0].file; empty for the
	// identity or the file as a whole.
	Field  string
	Reason string
}

// Error is file:line:col: identity "x": field: reason.
func (f Fault) Error() string {
	var parts []string
	switch {
	case f.Line > 0:
		parts = append(parts, fmt.Sprintf("%s:%d:%d", f.File, f.Line, f.Col))
	case f.File != "":
		parts = append(parts, f.File)
	}
	if f.Identity != "" {
		parts = append(parts, fmt.Sprintf("identity %q", f.Identity))
	}
	if f.Field != "" {
		parts = append(parts, f.Field)
	}
	return strings.Join(append(parts, f.Reason), ": ")
}

// Faults is everything wrong with an access file, by position.
type Faults []Fault

// Error is the faults, one a line.
func (fs Faults) Error() string {
	lines := make([]string, len(fs))
	for i, f := range fs {
		lines[i] = f.Error()
	}
	return strings.Join(lines, "\n")
}

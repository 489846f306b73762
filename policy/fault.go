package policy

import (
	"fmt"
	"strings"
)

// Fault is one thing wrong with a policy file.
type Fault struct {
	File string
	// Line and Col from 1; 0 where the fault is of the file and of no place in it.
	Line, Col int
	// Model is empty where the name of the model is not known.
	Model string
	// Field by its path in the model, as in primary.threshold; empty for the
	// model or the file as a whole.
	Field  string
	Reason string
}

// Error is file:line:col: model "x": field: reason.
func (f Fault) Error() string {
	var parts []string
	switch {
	case f.Line > 0:
		parts = append(parts, fmt.Sprintf("%s:%d:%d", f.File, f.Line, f.Col))
	case f.File != "":
		parts = append(parts, f.File)
	}
	if f.Model != "" {
		parts = append(parts, fmt.Sprintf("model %q", f.Model))
	}
	if f.Field != "" {
		parts = append(parts, f.Field)
	}
	return strings.Join(append(parts, f.Reason), ": ")
}

// Faults is everything wrong with a set of policy files: the files in the order
// given, the faults of each by position.
type Faults []Fault

// Error is the faults, one a line.
func (fs Faults) Error() string {
	lines := make([]string, len(fs))
	for i, f := range fs {
		lines[i] = f.Error()
	}
	return strings.Join(lines, "\n")
}

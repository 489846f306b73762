package policy

import (
	"fmt"
	"strings"
)

// origin knows where a draft comes from, a file or a program, and takes its faults.
type origin struct {
	// file knows the places of the fields, and takes the faults; nil for the draft of a program.
	file   *fileEntry
	model  string // the name that a program gave, for its faults
	found  Faults // those of a program
	faults int    // of either
	// faulty has the paths of fields with faults. Rules across fields leave those out, since their
	// faults would only repeat what was reported.
	faulty map[string]bool
}

// fault reports a fault at the field's value, or at the mapping that the field would stand in.
func (o *origin) fault(path, format string, args ...any) {
	if o.file != nil {
		o.file.place(path).FaultIn(path, format, args...)
	} else {
		f := Fault{Field: path, Reason: fmt.Sprintf(format, args...)}
		if IsName(o.model) {
			f.Entry = entryOf(o.model)
		}
		o.found = append(o.found, f)
		o.faults++
	}
	o.faulty[path] = true
}

// where returns the place of a list entry, for messages.
func (o *origin) where(path string) string {
	if o.file == nil {
		return path
	}
	at := o.file.place(path)
	return fmt.Sprintf("%d:%d", at.Line(), at.Col())
}

// given reports whether a field was given, although its value may be zero. For the draft of a
// program, zero means that it was not.
func (o *origin) given(path string, zero bool) bool {
	return !zero || o.file != nil && o.file.has(path)
}

// sound reports whether no field among paths has a fault, nor any mapping around it.
func (o *origin) sound(paths ...string) bool {
	for _, path := range paths {
		for dot := len(path); dot >= 0; dot = strings.LastIndexByte(path, '.') {
			path = path[:dot]
			if o.faulty[path] {
				return false
			}
		}
	}
	return true
}

// faultyWithin reports whether a mapping, or anything in it, has a fault.
func (o *origin) faultyWithin(mapping string) bool {
	for path := range o.faulty {
		if strings.HasPrefix(path, mapping) {
			return true
		}
	}
	return false
}

package policy

import (
	"fmt"
	"strings"
)

// origin knows where the fields of a draft are, and takes their faults.
type origin struct {
	file   *fileEntry
	faults int
	// faulty has the paths of fields with faults. Rules across fields leave those out, since their
	// faults would only repeat what was reported.
	faulty map[string]bool
}

// fault reports a fault at the field's value, or at the mapping that the field would stand in.
func (o *origin) fault(path, format string, args ...any) {
	o.file.place(path).FaultIn(path, format, args...)
	o.faulty[path] = true
}

// where returns the place of a list entry, for messages: in the draft of a program its path.
func (o *origin) where(path string) string {
	if o.file.isDraft {
		return path
	}
	at := o.file.place(path)
	return fmt.Sprintf("%d:%d", at.Line(), at.Col())
}

// given reports whether a field was given, although its value may be zero.
func (o *origin) given(path string) bool {
	_, given := o.file.values[path]
	return given
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

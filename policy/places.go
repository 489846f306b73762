package policy

import (
	"strings"

	"github.com/ckd-project/ckd/internal/strictyaml"
)

// fault reports a fault at the field's value, or at the mapping that the field would stand in.
func (b *builder) fault(path, format string, args ...any) {
	b.place(path).FaultIn(path, format, args...)
	b.faulty[path] = true
}

// where returns the place of a list entry, for messages: of a program its path.
func (b *builder) where(path string) string {
	if b.isDraft {
		return path
	}
	return b.place(path).Where()
}

// given reports whether a field was given, although its value may be zero.
func (b *builder) given(path string) bool {
	_, given := b.values[path]
	return given
}

// sound reports whether no field among paths has a fault, nor any mapping around it.
func (b *builder) sound(paths ...string) bool {
	for _, path := range paths {
		for dot := len(path); dot >= 0; dot = strings.LastIndexByte(path, '.') {
			path = path[:dot]
			if b.faulty[path] {
				return false
			}
		}
	}
	return true
}

// faultyWithin reports whether a mapping, or anything in it, has a fault. The whole model is "".
func (b *builder) faultyWithin(mapping string) bool {
	for path, faulty := range b.faulty {
		if faulty && strings.HasPrefix(path, mapping) {
			return true
		}
	}
	return false
}

// place returns the value at a path, or the closest value that it would stand in.
func (b *builder) place(path string) strictyaml.Value {
	for ; path != ""; path = path[:max(strings.LastIndexAny(path, ".["), 0)] {
		if v, ok := b.values[path]; ok {
			return v
		}
	}
	return b.root
}

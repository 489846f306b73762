package strictyaml

import (
	"bytes"
	"errors"
	"fmt"
	"io"
	"regexp"
	"strconv"
	"strings"

	"go.yaml.in/yaml/v3"
)

// MaxBytes bounds the size of a document.
const MaxBytes = 4 << 20

// Parse reads a document of exactly one value. Its faults, and later those of the value's getters, are
// appended to faults, with the name of the file. Parse returns false if the document cannot be read at
// all.
func Parse(file string, data []byte, faults *Faults) (Value, bool) {
	fail := func(line, col int, format string, args ...any) (Value, bool) {
		*faults = append(*faults, Fault{File: file, Line: line, Col: col, Reason: fmt.Sprintf(format, args...)})
		return Value{}, false
	}
	if len(data) > MaxBytes {
		return fail(1, 1, "too large, expected at most %d bytes", MaxBytes)
	}
	documents := yaml.NewDecoder(bytes.NewReader(data))
	var first, second yaml.Node
	err := decode(documents, &first)
	if errors.Is(err, io.EOF) || err == nil && isNull(first.Content[0]) {
		return fail(1, 1, "empty, expected a mapping")
	}
	if err == nil {
		err = decode(documents, &second)
	}
	switch {
	case err == nil:
		return fail(second.Line, second.Column, "a second document, expected only one")
	case !errors.Is(err, io.EOF):
		line, reason := explainSyntax(err, data)
		return fail(line, 1, "not YAML near here: %s", reason)
	}
	return Value{node: first.Content[0], scope: &scope{file: file, faults: faults}}, true
}

// decode decodes the next document. The YAML library panics when its own assertions fail; decode
// returns these panics as errors.
func decode(from *yaml.Decoder, node *yaml.Node) (err error) {
	defer func() {
		if r := recover(); r != nil {
			err = fmt.Errorf("%v", r)
		}
	}()
	return from.Decode(node)
}

var syntaxError = regexp.MustCompile(`^yaml: (?:line (\d+): )?(.*)$`)

// explainSyntax returns the line and the reason of an error of the YAML library. The library often
// names the line before the one at fault, or none, but it is right about a quote that is never
// closed.
func explainSyntax(err error, data []byte) (line int, reason string) {
	parts := syntaxError.FindStringSubmatch(err.Error())
	if parts == nil {
		return lineReached(data), err.Error()
	}
	line, err = strconv.Atoi(parts[1])
	if err != nil || !strings.Contains(parts[2], "end of stream") {
		line = lineReached(data)
	}
	return line, parts[2]
}

// lineReached returns the line that the library has reached when it fails. It reads the data byte
// by byte, so that the library has seen only a few bytes beyond the fault, perhaps on the next line
// already.
func lineReached(data []byte) int {
	source := &byteByByte{data: data}
	documents := yaml.NewDecoder(source)
	for decode(documents, new(yaml.Node)) == nil {
	}
	return 1 + bytes.Count(bytes.TrimRight(data[:source.read], " \r\n"), []byte("\n"))
}

// byteByByte is a reader that returns one byte at a time and counts them.
type byteByByte struct {
	data []byte
	read int
}

func (b *byteByByte) Read(p []byte) (int, error) {
	if b.read == len(b.data) {
		return 0, io.EOF
	}
	n := copy(p[:1], b.data[b.read:])
	b.read += n
	return n, nil
}

package strictyaml

import (
	"bytes"
	"errors"
	"fmt"
	"io"
	"regexp"
	"strconv"
	"strings"
	"unicode/utf8"

	"go.yaml.in/yaml/v3"
)

// MaxBytes bounds the size of a document.
const MaxBytes = 4 << 20

// Fault is something wrong at a place in a document.
type Fault struct {
	Line, Col int
	// Path of the field from the root, as in models[2].primary.threshold. It is
	// empty for the document as a whole.
	Path   string
	Reason string
}

// Parse reads a document of exactly one value. Whatever is wrong with it goes
// to report, which stays with the value and gets the faults of its getters too.
func Parse(data []byte, report func(Fault)) (Value, bool) {
	fail := func(line, col int, format string, args ...any) (Value, bool) {
		report(Fault{Line: line, Col: col, Reason: fmt.Sprintf(format, args...)})
		return Value{}, false
	}
	if len(data) > MaxBytes {
		return fail(1, 1, "too large, expected at most %d bytes", MaxBytes)
	}
	if line, col, reason := checkCharacters(data); reason != "" {
		return fail(line, col, "%s", reason)
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
	return Value{node: first.Content[0], report: report}, true
}

// decode calls the YAML library, whose own broken assertions are panics.
func decode(from *yaml.Decoder, to *yaml.Node) (err error) {
	defer func() {
		if r := recover(); r != nil {
			err = fmt.Errorf("%v", r)
		}
	}()
	return from.Decode(to)
}

// checkCharacters finds the first thing that is no character of a YAML stream.
func checkCharacters(data []byte) (line, col int, reason string) {
	line, col = 1, 1
	for i := 0; i < len(data); {
		r, width := utf8.DecodeRune(data[i:])
		switch {
		case r == utf8.RuneError && width == 1:
			return line, col, fmt.Sprintf("byte 0x%02x is not UTF-8, expected UTF-8 text", data[i])
		case r < ' ' && r != '\t' && r != '\n' && r != '\r', r >= 0x7f && r <= 0x9f && r != 0x85, r == 0xfffe, r == 0xffff:
			return line, col, fmt.Sprintf("control character U+%04X, expected printable text", r)
		}
		i += width
		col++
		if r == '\n' {
			line, col = line+1, 1
		}
	}
	return 0, 0, ""
}

var syntaxError = regexp.MustCompile(`^yaml: (?:line (\d+): )?(.*)$`)

// explainSyntax takes line and reason from an error of the YAML library. The
// line that it names is often that before the one at fault, or missing, but
// right for a quote that is never closed.
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

// lineReached says how far the library reads before it fails: fed byte by
// byte, it has seen no more than a few bytes beyond the fault, which may be
// on the next line already.
func lineReached(data []byte) int {
	source := &byteByByte{data: data}
	documents := yaml.NewDecoder(source)
	for decode(documents, new(yaml.Node)) == nil {
	}
	return 1 + bytes.Count(bytes.TrimRight(data[:source.read], " \r\n"), []byte("\n"))
}

// byteByByte is a reader that gives one byte at a time and counts them.
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

package rest

import (
	"bytes"
	"encoding/json"
	"fmt"
	"strconv"
	"strings"
	"unicode/utf8"
	"unsafe"

	"github.com/ckd-project/ckd/internal/httperror"
)

// maxDepth bounds how deep arrays and objects may be nested.
const maxDepth = 16

// scanner reads a JSON text from front to back. Its methods skip white space before what they read.
type scanner struct {
	data []byte
	at   int
}

// fail returns an error with the current place in the text.
func (s *scanner) fail(format string, args ...any) error { return s.failAt(s.at, format, args...) }

// failAt returns an error with the place of the given byte.
func (s *scanner) failAt(at int, format string, args ...any) error {
	before := s.data[:min(at, len(s.data))]
	line := bytes.Count(before, []byte("\n")) + 1
	column := len(before) - bytes.LastIndexByte(before, '\n')
	return httperror.Invalid(fmt.Sprintf("line %d, column %d: ", line, column) + fmt.Sprintf(format, args...))
}

// peek returns the next byte, or 0 at the end.
func (s *scanner) peek() byte {
	for ; s.at < len(s.data); s.at++ {
		switch c := s.data[s.at]; c {
		case ' ', '\t', '\n', '\r':
		default:
			return c
		}
	}
	return 0
}

// found returns what comes next, for messages.
func (s *scanner) found() string {
	if s.peek() == 0 && s.at >= len(s.data) {
		return "the end"
	}
	rest := s.data[s.at:]
	if end := bytes.IndexAny(rest, ",]}: \t\r\n"); end > 0 {
		rest = rest[:end]
	} else if end == 0 {
		rest = rest[:1]
	}
	return strconv.Quote(httperror.Clip(string(rest)))
}

// expect reads one byte, which must be c.
func (s *scanner) expect(c byte) error {
	if s.peek() != c {
		return s.fail("got %s, expected %q", s.found(), string(c))
	}
	s.at++
	return nil
}

// object reads an object. It calls value to read the value of each key, and refuses a key that
// occurs twice.
func (s *scanner) object(what string, value func(key string) error) error {
	if s.peek() != '{' {
		return s.fail("got %s, expected %s, an object", s.found(), what)
	}
	s.at++
	if s.peek() == '}' {
		s.at++
		return nil
	}
	seen := map[string]bool{}
	for {
		s.peek()
		start := s.at
		key, err := s.string("a key")
		if err != nil {
			return err
		}
		if seen[key] {
			return s.failAt(start, "the key %q occurs twice in %s", httperror.Clip(key), what)
		}
		seen[key] = true
		if err := s.expect(':'); err != nil {
			return err
		}
		if err := value(key); err != nil {
			return err
		}
		if more, err := s.more('}'); err != nil || !more {
			return err
		}
	}
}

// array reads an array. It calls value to read each element.
func (s *scanner) array(what string, value func() error) error {
	if s.peek() != '[' {
		return s.fail("got %s, expected %s, an array", s.found(), what)
	}
	s.at++
	if s.peek() == ']' {
		s.at++
		return nil
	}
	for {
		if err := value(); err != nil {
			return err
		}
		if more, err := s.more(']'); err != nil || !more {
			return err
		}
	}
}

// more reads the comma before another element, or the end of the elements.
func (s *scanner) more(end byte) (bool, error) {
	switch s.peek() {
	case ',':
		s.at++
		return true, nil
	case end:
		s.at++
		return false, nil
	}
	return false, s.fail("got %s, expected \",\" or %q", s.found(), string(end))
}

// string reads a string.
func (s *scanner) string(what string) (string, error) {
	if s.peek() != '"' {
		return "", s.fail("got %s, expected %s, a string", s.found(), what)
	}
	end := s.endOfString()
	if end < 0 {
		return "", s.fail("the string of %s does not end", what)
	}
	var text string
	if err := json.Unmarshal(s.data[s.at:end], &text); err != nil {
		return "", s.fail("%s: %s is no string of JSON", what, s.found())
	}
	if raw := s.data[s.at:end]; !utf8.Valid(raw) || strings.ContainsRune(text, utf8.RuneError) &&
		!bytes.Contains(raw, []byte("\uFFFD")) && !bytes.Contains(bytes.ToLower(raw), []byte(`\ufffd`)) {
		return "", s.fail("%s: a string that is not Unicode, which would be changed", what)
	}
	s.at = end
	return text, nil
}

// null reads null if it comes next. Some clients write it for what they leave out.
func (s *scanner) null() bool {
	if s.peek() != 'n' || !bytes.HasPrefix(s.data[s.at:], []byte("null")) {
		return false
	}
	s.at += len("null")
	return true
}

// endOfString returns where the string that begins here ends, or -1.
func (s *scanner) endOfString() int {
	for i := s.at + 1; i < len(s.data); i++ {
		switch s.data[i] {
		case '\\':
			i++
		case '"':
			return i + 1
		}
	}
	return -1
}

// number reads a number. The result is valid as long as the text.
func (s *scanner) number(what string) (string, error) {
	s.peek()
	end := s.at
	for end < len(s.data) && isNumberByte[s.data[end]] {
		end++
	}
	text := s.data[s.at:end]
	if !isNumber(text) {
		return "", s.fail("got %s, expected %s", s.found(), what)
	}
	s.at = end
	return unsafe.String(&text[0], len(text)), nil // saves a copy of every element: text is not empty and nobody writes to it
}

var isNumberByte = func() (is [256]bool) {
	for _, c := range "+-.0123456789eE" {
		is[c] = true
	}
	return is
}()

// isNumber reports whether a text is a number of JSON.
func isNumber(text []byte) bool {
	i := 0
	digits := func() bool {
		start := i
		for i < len(text) && text[i] >= '0' && text[i] <= '9' {
			i++
		}
		return i > start
	}
	if i < len(text) && text[i] == '-' {
		i++
	}
	if i < len(text) && text[i] == '0' {
		i++
	} else if !digits() {
		return false
	}
	if i < len(text) && text[i] == '.' {
		i++
		if !digits() {
			return false
		}
	}
	if i < len(text) && (text[i] == 'e' || text[i] == 'E') {
		i++
		if i < len(text) && (text[i] == '+' || text[i] == '-') {
			i++
		}
		if !digits() {
			return false
		}
	}
	return i == len(text)
}

// parseNumber reads a number and returns what parse makes of its text.
func parseNumber[T any](s *scanner, what string, parse func(text string) (T, error)) (T, error) {
	s.peek()
	start := s.at
	text, err := s.number(what)
	if err != nil {
		var none T
		return none, err
	}
	v, err := parse(text)
	if err != nil {
		err = s.failAt(start, "got %q, expected %s", httperror.Clip(text), what)
	}
	return v, err
}

// word reads true, false or null if one of them comes next.
func (s *scanner) word() string {
	s.peek()
	for _, word := range []string{"true", "false", "null"} {
		if bytes.HasPrefix(s.data[s.at:], []byte(word)) {
			s.at += len(word)
			return word
		}
	}
	return ""
}

// skip skips a value, which is read later, and returns where it begins.
func (s *scanner) skip() (start int, err error) {
	s.peek()
	start = s.at
	depth := 0
	for ; s.at < len(s.data); s.at++ {
		switch s.data[s.at] {
		case '"':
			end := s.endOfString()
			if end < 0 {
				return 0, s.fail("a string does not end")
			}
			s.at = end - 1
		case '[', '{':
			if depth++; depth > maxDepth {
				return 0, s.fail("more than %d arrays and objects in each other", maxDepth)
			}
			continue
		case ']', '}':
			if depth--; depth < 0 {
				return start, nil // the end of the array or object around the value
			}
		case ',':
			if depth == 0 {
				return start, nil
			}
			continue
		default:
			continue
		}
		if depth == 0 {
			s.at++
			return start, nil
		}
	}
	return start, nil // reading the value finds what is missing
}

// end returns an error if anything is left of the text.
func (s *scanner) end() error {
	if s.peek(); s.at < len(s.data) {
		return s.fail("got %s after the end of the object", s.found())
	}
	return nil
}

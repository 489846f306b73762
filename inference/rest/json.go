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

// maxDepth of arrays and objects in each other.
const maxDepth = 16

// scanner reads a JSON text from front to back. Its methods skip the space before what they read.
type scanner struct {
	data []byte
	at   int
}

// fail says what is wrong with the text, and where.
func (s *scanner) fail(format string, args ...any) error { return s.failAt(s.at, format, args...) }

func (s *scanner) failAt(at int, format string, args ...any) error {
	before := s.data[:min(at, len(s.data))]
	line := bytes.Count(before, []byte("\n")) + 1
	column := len(before) - bytes.LastIndexByte(before, '\n')
	return httperror.Invalid(fmt.Sprintf("line %d, column %d: ", line, column) + fmt.Sprintf(format, args...))
}

// peek is the first byte of what comes; 0 at the end.
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

// found is what comes, for messages.
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

// expect reads one byte.
func (s *scanner) expect(c byte) error {
	if s.peek() != c {
		return s.fail("got %s, expected %q", s.found(), string(c))
	}
	s.at++
	return nil
}

// object reads an object; value reads the value of each key, of which none may occur twice.
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

// array reads an array; value reads each element.
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

// more reads the comma before another element, or the end of them.
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

// null takes null, which some clients write for what they leave out.
func (s *scanner) null() bool {
	if s.peek() != 'n' || !bytes.HasPrefix(s.data[s.at:], []byte("null")) {
		return false
	}
	s.at += len("null")
	return true
}

// endOfString is where the string that begins here ends; -1 for nowhere.
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

// number reads a number; it is good as long as the text.
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
	return unsafe.String(&text[0], len(text)), nil // not empty, and the text is not written to: this saves a copy for every element
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

// integer reads a number without a fraction.
func (s *scanner) integer(what string) (int64, error) {
	s.peek()
	start := s.at
	text, err := s.number(what)
	if err != nil {
		return 0, err
	}
	n, err := strconv.ParseInt(text, 10, 64)
	if err != nil {
		return 0, s.failAt(start, "got %q, expected %s", httperror.Clip(text), what)
	}
	return n, nil
}

// word reads true, false or null, if one comes.
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

// skip passes over a value, which is read later, and is where it begins.
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
				return start, nil // the end of what the value is in
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
	return start, nil // what is missing is found when the value is read
}

// end says what is wrong if anything comes.
func (s *scanner) end() error {
	if s.peek(); s.at < len(s.data) {
		return s.fail("got %s after the end of the object", s.found())
	}
	return nil
}

package record

import (
	"fmt"
	"slices"
	"strconv"
	"strings"
)

const (
	maxDims = 64   // NumPy's own limit
	maxText = 4096 // characters of an element, so that a chunk holds several
)

// header holds the dict of a .npy file.
type header struct {
	dtype
	shape   []int
	shapeAt int64 // where the shape stands in the file
	fortran bool  // the first axis varies fastest
}

// needs says how many bytes n values need, for errors.
func (h header) needs(n int) string {
	return fmt.Sprintf("shape %s of %s needs %d bytes", tuple(h.shape), h.dtype, n*h.width)
}

// dtype holds a plain element type: kind and width, as in "f4", and the byte order. For text, as in
// "U7" or "S7", the digits count characters, each of unit bytes.
type dtype struct {
	code  string
	width int // bytes of an element
	unit  int // bytes that the byte order applies to
	big   bool
}

func (d dtype) isText() bool { return d.code[0] == 'U' || d.code[0] == 'S' }

func (d dtype) String() string {
	switch {
	case d.unit == 1:
		return "'|" + d.code + "'"
	case d.big:
		return "'>" + d.code + "'"
	}
	return "'<" + d.code + "'"
}

// parseHeader parses the Python literal {'descr': '<f4', 'fortran_order': False, 'shape': (30,
// 2126, 3), }. The keys may come in any order. base is the position of text in the file.
func parseHeader(file string, base int64, text string) (header, error) {
	p := &literal{file: file, base: base, source: text}
	if !p.take('{') {
		return header{}, p.fail("the header is no dict: found %s: "+
			"expected {'descr': ..., 'fortran_order': ..., 'shape': ...}", p.found())
	}
	var h header
	var seen []string
	for !p.take('}') {
		p.skip()
		start := p.pos
		key, err := p.str("a key in quotes")
		if err != nil {
			return header{}, err
		}
		if slices.Contains(seen, key) {
			return header{}, p.failAt(start, "key %.40q stands twice in the header: expected it once", key)
		}
		seen = append(seen, key)
		if !p.take(':') {
			return header{}, p.fail("found %s after key %.40q: expected ':'", p.found(), key)
		}
		p.skip()
		switch key {
		case "descr":
			h.dtype, err = p.dtype()
		case "fortran_order":
			h.fortran, err = p.fortran()
		case "shape":
			h.shapeAt = base + int64(p.pos)
			h.shape, err = p.shape()
		default:
			err = p.failAt(start, "unknown key %.40q in the header: expected 'descr', 'fortran_order' and 'shape'", key)
		}
		if err != nil {
			return header{}, err
		}
		if !p.take(',') && p.peek() != '}' {
			return header{}, p.fail("found %s in the header: expected ',' or '}'", p.found())
		}
	}
	if p.skip(); p.pos < len(text) {
		return header{}, p.fail("found %s after the header's dict: expected spaces only", p.found())
	}
	for _, key := range []string{"descr", "fortran_order", "shape"} {
		if !slices.Contains(seen, key) {
			return header{}, p.failAt(0, "the header has no key %q: expected 'descr', 'fortran_order' and 'shape'", key)
		}
	}
	return h, nil
}

// literal walks over the header's text.
type literal struct {
	file   string
	base   int64
	source string
	pos    int
}

// dtype reads the value of 'descr'.
func (p *literal) dtype() (dtype, error) {
	start := p.pos
	if c := p.peek(); c == '[' || c == '(' {
		return dtype{}, p.fail("structured dtype: expected a plain one such as '<f4'")
	}
	descr, err := p.str("a dtype such as '<f4'")
	if err != nil {
		return dtype{}, err
	}
	if len(descr) < 2 {
		return dtype{}, p.failAt(start, "dtype %q: expected one such as '<f4'", descr)
	}
	order, code := descr[0], descr[1:]
	if code[0] == 'U' || code[0] == 'S' {
		return p.text(start, descr)
	}
	switch code {
	case "f2", "f4", "f8", "i1", "i2", "i4", "i8", "u1", "u2", "u4", "u8", "b1":
	default:
		switch code[0] {
		case 'O':
			return dtype{}, p.failAt(start, "dtype %.40q holds pickled objects: expected plain numbers such as '<f4', "+
				"or text (numpy: a.astype(str))", descr)
		case 'V':
			return dtype{}, p.failAt(start, "dtype %.40q holds raw bytes, as of bfloat16: expected numbers that NumPy has "+
				"(numpy: a.astype(\"float32\") before numpy.save)", descr)
		case 'c':
			return dtype{}, p.failAt(start, "dtype %.40q is complex: expected real numbers such as '<f4'", descr)
		}
		return dtype{}, p.failAt(start, "dtype %.40q is not read: expected f2, f4, f8, an integer type, b1 or text", descr)
	}
	width := int(code[1] - '0')
	if order != '<' && order != '>' && (order != '|' || width > 1) {
		return dtype{}, p.failAt(start, "dtype %.40q has byte order %q: expected '<' or '>'", descr, order)
	}
	return dtype{code: code, width: width, unit: width, big: order == '>'}, nil
}

// text reads a dtype of text, such as <U7 or |S7.
func (p *literal) text(start int, descr string) (dtype, error) {
	order, code := descr[0], descr[1:]
	d := dtype{code: code, unit: 1, big: order == '>'}
	if code[0] == 'U' {
		d.unit = 4
	}
	length, err := strconv.Atoi(code[1:])
	switch {
	case err != nil || length < 1 || length > maxText:
		return dtype{}, p.failAt(start, "dtype %.40q: expected text of 1 to %d characters, such as '<U7'", descr, maxText)
	case order != '<' && order != '>' && (order != '|' || d.unit > 1):
		return dtype{}, p.failAt(start, "dtype %.40q has byte order %q: expected '<' or '>'", descr, order)
	}
	d.width = length * d.unit
	return d, nil
}

// fortran reads the value of 'fortran_order'.
func (p *literal) fortran() (bool, error) {
	rest := p.source[p.pos:]
	switch {
	case strings.HasPrefix(rest, "False"):
		p.pos += len("False")
		return false, nil
	case strings.HasPrefix(rest, "True"):
		p.pos += len("True")
		return true, nil
	}
	return false, p.fail("fortran_order is %s: expected True or False", p.found())
}

// shape reads the value of 'shape', a tuple of sizes.
func (p *literal) shape() ([]int, error) {
	start := p.pos
	if !p.take('(') {
		return nil, p.fail("shape is %s: expected a tuple such as (30, 2126, 3)", p.found())
	}
	shape, comma := []int{}, false
	for !p.take(')') {
		size, err := p.size()
		if err != nil {
			return nil, err
		}
		shape = append(shape, size)
		if comma = p.take(','); !comma && p.peek() != ')' {
			return nil, p.fail("found %s in the shape: expected ',' or ')'", p.found())
		}
	}
	if len(shape) == 1 && !comma { // (5) is a number, not a tuple
		return nil, p.failAt(start, "shape is a number: expected a tuple such as (%d,)", shape[0])
	}
	if len(shape) > maxDims {
		return nil, p.failAt(start, "shape has %d axes: expected at most %d", len(shape), maxDims)
	}
	return shape, nil
}

// size reads one size of the shape: 5, or 5L as Python 2 wrote it.
func (p *literal) size() (int, error) {
	p.skip()
	start := p.pos
	for p.pos < len(p.source) && '0' <= p.source[p.pos] && p.source[p.pos] <= '9' {
		p.pos++
	}
	digits := p.source[start:p.pos]
	if digits == "" {
		if p.peek() == '-' {
			return 0, p.fail("negative size in the shape: expected 0 or more")
		}
		return 0, p.fail("found %s in the shape: expected a size", p.found())
	}
	if len(digits) > 1 && digits[0] == '0' { // octal in Python 2, an error in Python 3
		return 0, p.failAt(start, "size %.40s in the shape has a leading zero: expected a plain decimal", digits)
	}
	size, err := strconv.Atoi(digits)
	if err != nil {
		return 0, p.failAt(start, "size %.40s in the shape is too large", digits)
	}
	if p.pos < len(p.source) && p.source[p.pos] == 'L' {
		p.pos++
	}
	return size, nil
}

// str reads a string in single or double quotes. It knows no escapes, since valid headers need
// none.
func (p *literal) str(expected string) (string, error) {
	p.skip()
	quote := p.peek()
	if quote != '\'' && quote != '"' {
		return "", p.fail("found %s in the header: expected %s", p.found(), expected)
	}
	s, _, closed := strings.Cut(p.source[p.pos+1:], string(quote))
	if !closed || strings.ContainsAny(s, "\\\n") {
		return "", p.fail("the string is not closed or holds a backslash: expected %s", expected)
	}
	p.pos += len(s) + 2
	return s, nil
}

// take steps over c if c comes next, and reports whether it did.
func (p *literal) take(c byte) bool {
	if p.peek() != c {
		return false
	}
	p.pos++
	return true
}

// peek skips space and returns the next byte, or 0 at the end.
func (p *literal) peek() byte {
	p.skip()
	if p.pos == len(p.source) {
		return 0
	}
	return p.source[p.pos]
}

func (p *literal) skip() {
	for p.pos < len(p.source) && strings.IndexByte(" \t\r\n\f", p.source[p.pos]) >= 0 {
		p.pos++
	}
}

// found names what comes next, for an error.
func (p *literal) found() string {
	if p.skip(); p.pos == len(p.source) {
		return "the end of the header"
	}
	return fmt.Sprintf("%.12q", p.source[p.pos:])
}

func (p *literal) fail(format string, args ...any) error {
	p.skip()
	return p.failAt(p.pos, format, args...)
}

func (p *literal) failAt(pos int, format string, args ...any) error {
	return &formatError{File: p.file, Offset: p.base + int64(pos), Msg: fmt.Sprintf(format, args...)}
}

package record

import (
	"errors"
	"fmt"
	"regexp"
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
	at      int64 // where the dict stands in the file
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

// entry is one entry of a header's dict: its key and its value as Python writes it.
var entry = regexp.MustCompile(`^\s*['"](descr|fortran_order|shape)['"]\s*:\s*` +
	`(?:['"]([^'"\\]{2,})['"]|(True|False)|\(\s*((?:\d+\s*,\s*)*\d*)\s*\)|([\[(]))\s*,?`)

// parseHeader parses the Python literal {'descr': '<f4', 'fortran_order': False, 'shape': (30,
// 2126, 3), }. The keys may come in any order. at is the position of text in the file.
func parseHeader(file string, at int64, text string) (header, error) {
	fail := func(err error) (header, error) {
		return header{}, contentError(file, "byte %d: %w", at, err)
	}
	h := header{at: at}
	rest, isDict := strings.CutPrefix(strings.TrimSpace(text), "{")
	rest, closed := strings.CutSuffix(rest, "}")
	seen := map[string]bool{}
	for part := entry.FindStringSubmatch(rest); part != nil && !seen[part[1]]; part = entry.FindStringSubmatch(rest) {
		rest = rest[len(part[0]):]
		key, descr, order, sizes := part[1], part[2], part[3], part[4]
		var err error
		switch {
		case key == "descr" && part[5] != "":
			err = errors.New("structured dtype: expected a plain one such as '<f4'")
		case key == "descr" && descr != "":
			h.dtype, err = parseDtype(descr)
		case key == "shape" && descr+order+part[5] == "":
			h.shape, err = parseShape(sizes)
		case key == "fortran_order" && order != "":
			h.fortran = order == "True"
		default:
			continue // it stays unseen
		}
		if err != nil {
			return fail(err)
		}
		seen[key] = true
	}
	if !isDict || !closed || strings.TrimSpace(rest) != "" || len(seen) != 3 {
		return fail(fmt.Errorf("the header is %.80q: expected {'descr': ..., 'fortran_order': ..., 'shape': ...}", text))
	}
	return h, nil
}

// parseDtype reads the value of 'descr', such as <f4, |u1 or <U7.
func parseDtype(descr string) (dtype, error) {
	order, code := descr[0], descr[1:]
	d := dtype{code: code, big: order == '>'}
	switch code {
	case "f2", "f4", "f8", "i1", "i2", "i4", "i8", "u1", "u2", "u4", "u8", "b1":
		d.width = int(code[1] - '0')
		d.unit = d.width
	default:
		switch code[0] {
		case 'U', 'S':
			d.unit = map[byte]int{'U': 4, 'S': 1}[code[0]]
			length, err := strconv.Atoi(code[1:])
			if err != nil || length < 1 || length > maxText {
				return dtype{}, fmt.Errorf("dtype %q: expected text of 1 to %d characters, such as '<U7'", descr, maxText)
			}
			d.width = length * d.unit
		case 'O':
			return dtype{}, fmt.Errorf("dtype %.40q holds pickled objects: expected plain numbers such as '<f4', "+
				"or text (numpy: a.astype(str))", descr)
		case 'V':
			return dtype{}, fmt.Errorf("dtype %.40q holds raw bytes, as of bfloat16: expected numbers that NumPy has "+
				"(numpy: a.astype(\"float32\") before numpy.save)", descr)
		case 'c':
			return dtype{}, fmt.Errorf("dtype %.40q is complex: expected real numbers such as '<f4'", descr)
		default:
			return dtype{}, fmt.Errorf("dtype %.40q is not read: expected f2, f4, f8, an integer type, b1 or text", descr)
		}
	}
	if order != '<' && order != '>' && (order != '|' || d.unit > 1) {
		return dtype{}, fmt.Errorf("dtype %.40q has byte order %q: expected '<' or '>'", descr, order)
	}
	return d, nil
}

// parseShape reads the sizes of a shape, separated by commas.
func parseShape(sizes string) ([]int, error) {
	shape := []int{}
	for text := range strings.SplitSeq(sizes, ",") {
		if text = strings.TrimSpace(text); text == "" { // behind the last comma
			continue
		}
		size, err := strconv.Atoi(text)
		if err != nil {
			return nil, fmt.Errorf("size %.40s in the shape is too large", text)
		}
		shape = append(shape, size)
	}
	if len(shape) == 1 && !strings.Contains(sizes, ",") { // (5) is a number, not a tuple
		return nil, fmt.Errorf("shape is a number: expected a tuple such as (%d,)", shape[0])
	}
	if len(shape) > maxDims {
		return nil, fmt.Errorf("shape has %d axes: expected at most %d", len(shape), maxDims)
	}
	return shape, nil
}

package record

import (
	"bufio"
	"bytes"
	"cmp"
	"encoding/base64"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"slices"
	"strconv"
	"strings"
)

// The types of the events that KServe's logger sends: the body of a request, and of the answer to it.
const (
	requestEvent  = "org.kubeflow.serving.inference.request"
	responseEvent = "org.kubeflow.serving.inference.response"
)

// defaultTensor is the tensor that is read if a path names none.
const defaultTensor = "passes"

// event is a CloudEvent in JSON, as far as it is read.
type event struct {
	Type    string          `json:"type"`
	Source  string          `json:"source"`
	ID      string          `json:"id"`
	Service string          `json:"inferenceservicename"`
	Data    json.RawMessage `json:"data"`
	Base64  json.RawMessage `json:"data_base64"`
}

// payload is a request or an answer of the Open Inference Protocol.
type payload struct {
	Parameters tensorParameters  `json:"parameters"`
	Inputs     []json.RawMessage `json:"inputs"`
	Outputs    []json.RawMessage `json:"outputs"`
}

// loggedTensor is a tensor of a payload.
type loggedTensor struct {
	Name       string           `json:"name"`
	Datatype   string           `json:"datatype"`
	Shape      []int            `json:"shape"`
	Parameters tensorParameters `json:"parameters"`
	Data       json.RawMessage  `json:"data"`
}

type tensorParameters struct {
	Layout json.RawMessage `json:"layout"`
	Binary json.RawMessage `json:"binary_data_size"`
}

// isEvents recognises lines of JSON by their first byte.
func isEvents(r io.ReaderAt) bool {
	var first [1]byte
	n, _ := r.ReadAt(first[:], 0)
	return n == 1 && first[0] == '{'
}

// readEvents reads a tensor of logged answers: see ReadFile. Each line of r is an event. The tensor
// is in the answer or in the request that it answers, and the arrays of all answers are joined in
// their order, along their first axis.
func readEvents(path string, r io.Reader, tensor string) (*Array, error) {
	tensor = cmp.Or(tensor, defaultTensor)
	l := eventLog{path: path, tensor: tensor, requests: map[string]*logged{}, responses: map[string]*logged{}}
	lines := bufio.NewReaderSize(r, chunkBytes)
	for line := 1; ; line++ {
		text, err := lines.ReadBytes('\n')
		if err != nil && !errors.Is(err, io.EOF) {
			return nil, fmt.Errorf("%s:%d: %w", path, line, err)
		}
		if len(bytes.TrimSpace(text)) > 0 {
			if err := l.read(line, text); err != nil {
				return nil, err
			}
		}
		if err != nil {
			break
		}
	}
	return l.join()
}

// eventLog collects the events of a file.
type eventLog struct {
	path, tensor        string
	requests, responses map[string]*logged // by source and id
	order               []*logged          // the responses; the requests are kept in asked
	asked               []*logged
}

// logged is what a request or a response has of the tensor.
type logged struct {
	line  int
	event event
	names []string // of all its tensors
	array *Array   // nil if it has no such tensor
}

// read reads one event. Events of other types are left out.
func (l *eventLog) read(line int, text []byte) error {
	fail := func(at int, format string, args ...any) error {
		return &FormatError{File: l.path, Line: line, Column: at + 1, Msg: fmt.Sprintf(format, args...)}
	}
	found := &logged{line: line}
	e := &found.event
	if err := json.Unmarshal(text, e); err != nil {
		return fail(jsonOffset(err), "%v: expected a CloudEvent in JSON on each line", err)
	}
	if e.Type == "" {
		return fail(0, "no type: expected a CloudEvent such as %s", responseEvent)
	}
	seen, order := l.responses, &l.order
	switch e.Type {
	case responseEvent:
	case requestEvent:
		seen, order = l.requests, &l.asked
	default:
		return nil
	}
	if e.ID == "" {
		return fail(0, "no id: expected the one that a request shares with its response")
	}
	key := e.Source + "\x00" + e.ID
	if first := seen[key]; first != nil {
		return fail(0, "event %.80q was in line %d: expected each %s once", e.ID, first.line, e.Type)
	}
	seen[key], *order = found, append(*order, found)

	body, at, err := e.body(text)
	if err != nil {
		return fail(at, "%v", err)
	}
	var p payload
	if err := json.Unmarshal(body, &p); err != nil {
		return fail(at+within(text, body, jsonOffset(err)), "the data: %v: expected JSON of the Open Inference Protocol, version 2", err)
	}
	tensors := p.Outputs
	if e.Type == requestEvent {
		tensors = p.Inputs
	}
	for i, raw := range tensors {
		at := at + within(text, body, bytes.Index(body, raw))
		var t loggedTensor
		if err := json.Unmarshal(raw, &t); err != nil {
			return fail(at+within(text, body, jsonOffset(err)), "tensor %d: %v", i, err)
		}
		found.names = append(found.names, t.Name)
		if t.Name != l.tensor {
			continue
		}
		if found.array != nil {
			return fail(at, "tensor %.80q stands twice: expected it once", t.Name)
		}
		if found.array, err = t.array(p.Parameters); err != nil {
			return fail(at, "tensor %.80q: %v", t.Name, err)
		}
	}
	return nil
}

// body returns the data of an event, and where it begins in the text of the event.
func (e *event) body(text []byte) (body []byte, at int, err error) {
	data := bytes.TrimSpace(e.Data)
	switch {
	case len(e.Base64) > 0:
		at := bytes.Index(text, e.Base64)
		var encoded string
		if err := json.Unmarshal(e.Base64, &encoded); err != nil {
			return nil, at, fmt.Errorf("data_base64: %w", err)
		}
		if body, err = base64.StdEncoding.DecodeString(encoded); err != nil {
			return nil, at, fmt.Errorf("data_base64: %w", err)
		}
		return body, at, nil
	case len(data) == 0:
		return nil, 0, errors.New("no data: expected the body of a request or response")
	case data[0] == '"': // of a content type that is not JSON
		at, quoted := bytes.Index(text, data), ""
		if err := json.Unmarshal(data, &quoted); err != nil {
			return nil, at, err
		}
		return []byte(quoted), at, nil
	}
	return data, bytes.Index(text, data), nil
}

// within returns an offset in the body of an event as one in its text. A body in base64 or in quotes
// has no offsets there.
func within(text, body []byte, offset int) int {
	if !bytes.Contains(text, body) {
		return 0
	}
	return max(offset, 0)
}

// jsonOffset returns where an error of encoding/json is, from 0.
func jsonOffset(err error) int {
	var syntax *json.SyntaxError
	if errors.As(err, &syntax) {
		return int(max(syntax.Offset-1, 0))
	}
	var kind *json.UnmarshalTypeError
	if errors.As(err, &kind) {
		return int(max(kind.Offset-1, 0))
	}
	return 0
}

// join joins the arrays of all responses. In a log of requests alone it joins theirs.
func (l *eventLog) join() (*Array, error) {
	all := l.order
	if len(all) == 0 {
		all = l.asked
	}
	if len(all) == 0 {
		return nil, contentError(l.path, "no event of type %s: expected what KServe's logger sends, in JSON, one on a line", responseEvent)
	}
	var joined *Array
	for _, e := range all {
		a, request := e.array, l.requests[e.event.Source+"\x00"+e.event.ID]
		if a == nil && request != nil {
			a = request.array
		}
		fail := func(format string, args ...any) error {
			return &FormatError{File: l.path, Line: e.line, Column: 1, Msg: fmt.Sprintf("event %.80q of service %.80q: ", e.event.ID, e.event.Service) +
				fmt.Sprintf(format, args...)}
		}
		if a == nil {
			names := slices.Clone(e.names)
			if request != nil && request != e {
				names = append(names, request.names...)
			}
			return nil, fail("no tensor %q: found %s; name another as in FILE.jsonl:NAME, and keep the events of one service",
				l.tensor, cmp.Or(firstOf(names), "none"))
		}
		if joined == nil {
			joined = &Array{Shape: slices.Clone(a.Shape), Float32: a.Float32, Float64: a.Float64, Int64: a.Int64, Text: a.Text, InputsFirst: true}
			continue
		}
		kinds := func(a *Array) [4]bool {
			return [4]bool{a.Float32 != nil, a.Float64 != nil, a.Int64 != nil, a.Text != nil}
		}
		if !slices.Equal(a.Shape[1:], joined.Shape[1:]) || kinds(a) != kinds(joined) {
			return nil, fail("tensor %q has shape %s, after the first axis, or another type than before: expected %s of one type",
				l.tensor, tuple(a.Shape[1:]), tuple(joined.Shape[1:]))
		}
		joined.Shape[0] += a.Shape[0]
		joined.Float32 = append(joined.Float32, a.Float32...)
		joined.Float64 = append(joined.Float64, a.Float64...)
		joined.Int64 = append(joined.Int64, a.Int64...)
		joined.Text = append(joined.Text, a.Text...)
	}
	return joined, nil
}

// array returns the values of a tensor, with the inputs as the first axis.
func (t *loggedTensor) array(of tensorParameters) (*Array, error) {
	if len(t.Shape) == 0 || len(t.Shape) > maxDims {
		return nil, fmt.Errorf("the shape has %d axes: expected 1 to %d, the inputs first", len(t.Shape), maxDims)
	}
	n, ok := elements(t.Shape)
	if !ok {
		return nil, fmt.Errorf("shape %s is negative or has too many elements to count", tuple(t.Shape))
	}
	if len(t.Parameters.Binary) > 0 {
		return nil, errors.New("the values are binary, after the JSON: expected them in JSON (ask with binary_data false)")
	}
	if n > len(t.Data) { // before memory is taken for so many
		return nil, fmt.Errorf("shape %s needs %d values: found fewer", tuple(t.Shape), n)
	}
	a := &Array{Shape: t.Shape}
	v := values{data: t.Data}
	var err error
	switch t.Datatype {
	case "FP32", "FP16", "BF16":
		a.Float32, err = parseValues(&v, t.Shape, n, func(text string) (float32, error) {
			f, err := strconv.ParseFloat(text, 32)
			return float32(f), err
		})
	case "FP64":
		a.Float64, err = parseValues(&v, t.Shape, n, func(text string) (float64, error) { return strconv.ParseFloat(text, 64) })
	case "BOOL":
		a.Int64, err = parseValues(&v, t.Shape, n, func(text string) (int64, error) {
			switch text {
			case "true", "1":
				return 1, nil
			case "false", "0":
				return 0, nil
			}
			return 0, errors.New("expected true or false")
		})
	case "INT8", "INT16", "INT32", "INT64", "UINT8", "UINT16", "UINT32", "UINT64":
		a.Int64, err = parseValues(&v, t.Shape, n, func(text string) (int64, error) { return strconv.ParseInt(text, 10, 64) })
	case "BYTES":
		a.Text, err = parseValues(&v, t.Shape, n, func(text string) (s string, err error) {
			err = json.Unmarshal([]byte(text), &s)
			return s, err
		})
	default:
		return nil, fmt.Errorf("datatype %.40q: expected FP32 or another of the protocol", t.Datatype)
	}
	if err != nil {
		return nil, err
	}
	layout, err := readLayout(t.Parameters.Layout, of.Layout)
	if err == nil && layout == SNK && len(t.Shape) == 3 {
		a.Float32, a.Float64 = swapAxes(a.Float32, t.Shape), swapAxes(a.Float64, t.Shape)
		a.Int64, a.Text = swapAxes(a.Int64, t.Shape), swapAxes(a.Text, t.Shape)
		a.Shape = []int{t.Shape[1], t.Shape[0], t.Shape[2]}
	}
	return a, err
}

// readLayout reads the parameter layout of a tensor, or else that of the whole message.
func readLayout(parameters ...json.RawMessage) (Layout, error) {
	for _, p := range parameters {
		if len(p) == 0 || string(p) == "null" {
			continue
		}
		var s string
		if err := json.Unmarshal(p, &s); err != nil {
			return 0, fmt.Errorf("parameter layout: %w", err)
		}
		return ParseLayout(s)
	}
	return NSK, nil
}

// swapAxes returns values whose first two axes of three have changed places.
func swapAxes[T any](values []T, shape []int) []T {
	if values == nil {
		return nil
	}
	swapped := make([]T, 0, len(values))
	for j := range shape[1] {
		for i := range shape[0] {
			at := (i*shape[1] + j) * shape[2]
			swapped = append(swapped, values[at:at+shape[2]]...)
		}
	}
	return swapped
}

// values walks over an array in valid JSON.
type values struct {
	data []byte
	pos  int
}

// parseValues reads n values, in one list or in lists nested as the shape says.
func parseValues[T any](v *values, shape []int, n int, parse func(text string) (T, error)) ([]T, error) {
	got := make([]T, 0, n)
	if v.peek() != '[' {
		return nil, errors.New("the data are no list: expected the values in JSON")
	}
	nested := values{data: v.data, pos: v.pos + 1}
	if c := nested.peek(); len(shape) == 1 || c != '[' {
		shape = []int{n}
	}
	var list func(axis int) error
	list = func(axis int) error {
		if !v.take('[') {
			return fmt.Errorf("value %d is no list: expected lists nested as shape %s", len(got), tuple(shape))
		}
		for i := range shape[axis] {
			if i > 0 && !v.take(',') || v.peek() == ']' {
				return fmt.Errorf("a list of %d after value %d: expected %d of shape %s", i, len(got), shape[axis], tuple(shape))
			}
			if axis < len(shape)-1 {
				if err := list(axis + 1); err != nil {
					return err
				}
				continue
			}
			text := v.scalar()
			value, err := parse(text)
			if err != nil {
				return fmt.Errorf("value %d is %.40s: expected one of the tensor's datatype", len(got), text)
			}
			got = append(got, value)
		}
		if !v.take(']') {
			return fmt.Errorf("a list goes on after value %d: expected %d of shape %s", len(got)-1, shape[axis], tuple(shape))
		}
		return nil
	}
	return got, list(0)
}

// peek skips space and returns the next byte, 0 at the end.
func (v *values) peek() byte {
	for v.pos < len(v.data) && strings.IndexByte(" \t\r\n", v.data[v.pos]) >= 0 {
		v.pos++
	}
	if v.pos == len(v.data) {
		return 0
	}
	return v.data[v.pos]
}

// take steps over c if it comes next.
func (v *values) take(c byte) bool {
	if v.peek() != c {
		return false
	}
	v.pos++
	return true
}

// scalar returns the text of the next value, which is empty before a bracket.
func (v *values) scalar() string {
	if v.peek() == '"' {
		start := v.pos
		for v.pos++; v.pos < len(v.data) && v.data[v.pos] != '"'; v.pos++ {
			if v.data[v.pos] == '\\' {
				v.pos++
			}
		}
		v.pos = min(v.pos+1, len(v.data))
		return string(v.data[start:v.pos])
	}
	start := v.pos
	for v.pos < len(v.data) && strings.IndexByte(",[]{} \t\r\n", v.data[v.pos]) < 0 {
		v.pos++
	}
	return string(v.data[start:v.pos])
}

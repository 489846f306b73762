package gateway

import (
	"bytes"
	"encoding/json"
	"fmt"
	"io"
	"net/http"
	"regexp"
	"strings"

	"github.com/grpc-ecosystem/grpc-gateway/v2/runtime"
	"google.golang.org/grpc/codes"
	"google.golang.org/protobuf/encoding/protojson"
	"google.golang.org/protobuf/proto"

	"github.com/ckd-project/ckd/internal/httperror"
	ckdv1 "github.com/ckd-project/ckd/proto/ckd/v1"
)

// lineMedia is the media type of bodies with one JSON text on each line.
const lineMedia = "application/x-ndjson"

// codec converts messages to and from the JSON of /v1: field names as in the .proto file and names
// of enum values. It omits fields that are neither set nor computed.
type codec struct{}

// ContentType implements runtime.Marshaler.
func (codec) ContentType(any) string { return "application/json" }

// StreamContentType implements runtime.StreamContentType.
func (codec) StreamContentType(any) string { return lineMedia }

// Delimiter implements runtime.Delimited.
func (codec) Delimiter() []byte { return []byte("\n") }

// Marshal implements runtime.Marshaler, for messages and for the lines of streams.
func (codec) Marshal(v any) ([]byte, error) {
	switch v := v.(type) {
	case proto.Message:
		data, err := marshalAny(nil, v)
		return append(data, '\n'), err
	case map[string]any:
		if export, ok := v["result"].(*ckdv1.ExportOutcomesResponse); ok {
			return []byte(strings.Join(export.GetLines(), "\n")), nil // the delimiter ends the last one
		}
		for key, value := range v {
			if m, ok := value.(proto.Message); ok {
				return marshalLine(key, m)
			}
		}
	case map[string]proto.Message:
		for key, m := range v {
			return marshalLine(key, m)
		}
	}
	return nil, fmt.Errorf("%T is neither a message nor a line of a stream", v)
}

// Unmarshal implements runtime.Marshaler.
func (codec) Unmarshal(data []byte, v any) error { return protojson.Unmarshal(data, v.(proto.Message)) }

// NewEncoder implements runtime.Marshaler.
func (c codec) NewEncoder(w io.Writer) runtime.Encoder {
	return runtime.EncoderFunc(func(v any) error {
		data, err := c.Marshal(v)
		if err != nil {
			return err
		}
		_, err = w.Write(data)
		return err
	})
}

// NewDecoder implements runtime.Marshaler. The reader is the body of a call.
func (codec) NewDecoder(r io.Reader) runtime.Decoder {
	b, ok := r.(*body)
	if !ok {
		return runtime.DecoderFunc(func(any) error { return io.EOF })
	}
	if s := b.call.stream; s != nil {
		return runtime.DecoderFunc(func(v any) error { return s.decode(v.(proto.Message)) })
	}
	return runtime.DecoderFunc(func(v any) error {
		data, err := io.ReadAll(b)
		if err != nil {
			return err
		}
		if refusal := decode(data, v.(proto.Message), 0, b.call.gateway.options.MessageBytes()); refusal != nil {
			return b.fail(refusal)
		}
		if request, ok := v.(*ckdv1.DecomposeRequest); ok {
			b.call.model = request.GetModel()
		}
		return nil
	})
}

// decode decodes one JSON text. A line other than 0 is named in the error.
func decode(data []byte, m proto.Message, line, messageBytes int) *httperror.Error {
	where := "the body"
	if line > 0 {
		where = fmt.Sprintf("line %d", line)
	}
	if len(bytes.TrimSpace(data)) == 0 {
		return httperror.Invalid(httperror.Clip(where + " is empty, expected a JSON object"))
	}
	// Even the shortest element, 0 and a comma, becomes four bytes of a message.
	if most := messageBytes / 4; bytes.Count(data, []byte(",")) > most {
		return httperror.New(http.StatusRequestEntityTooLarge, codes.ResourceExhausted,
			fmt.Sprintf("%s has over %d elements, more than a message of %d bytes can have", where, most, messageBytes))
	}
	err := protojson.Unmarshal(data, m)
	if err == nil {
		return nil
	}
	text := strings.TrimSpace(strings.TrimPrefix(err.Error(), "proto:"))
	if at := position.FindStringSubmatch(text); at != nil {
		if line == 0 {
			where = "line " + at[1]
		}
		where += ", column " + at[2]
		text = text[len(at[0]):]
	}
	return httperror.Invalid(httperror.Clip(where + ": " + text))
}

// position matches how protojson states the place of an error.
var position = regexp.MustCompile(`^(?:syntax error )?\(line (\d+):(\d+)\): `)

// marshalAny appends a message as JSON.
func marshalAny(to []byte, m proto.Message) ([]byte, error) {
	switch m.(type) {
	case *ckdv1.DecomposeResponse:
		return appendAnswer(to, m.ProtoReflect(), false)
	case *ckdv1.DecomposeStreamResponse:
		return appendAnswer(to, m.ProtoReflect(), true)
	case *ckdv1.ReportOutcomesResponse, *ckdv1.ListPromisesResponse, *ckdv1.ClearAlarmResponse:
		return marshalWith(protojson.MarshalOptions{UseProtoNames: true, EmitDefaultValues: true}, to, m) // a count of 0 is a figure
	}
	return marshal(to, m)
}

// marshal appends a message as protojson has it.
func marshal(to []byte, m proto.Message) ([]byte, error) {
	return marshalWith(protojson.MarshalOptions{UseProtoNames: true}, to, m)
}

// marshalWith appends a message without the spaces that protojson adds at random.
func marshalWith(o protojson.MarshalOptions, to []byte, m proto.Message) ([]byte, error) {
	data, err := o.Marshal(m)
	if err != nil {
		return nil, err
	}
	out := bytes.NewBuffer(to)
	if err := json.Compact(out, data); err != nil {
		return nil, err
	}
	return out.Bytes(), nil
}

// marshalLine returns a message under a key, result or error.
func marshalLine(key string, m proto.Message) ([]byte, error) {
	line, err := marshalAny(append(append([]byte(`{"`), key...), `":`...), m)
	if err != nil {
		return nil, err
	}
	return append(line, '}'), nil
}

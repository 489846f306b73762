package gateway

import (
	"bytes"
	"encoding/json"
	"fmt"
	"io"
	"strconv"
	"strings"

	"github.com/grpc-ecosystem/grpc-gateway/v2/runtime"
	"google.golang.org/protobuf/encoding/protojson"
	"google.golang.org/protobuf/proto"

	"github.com/ckd-project/ckd/internal/httperror"
	ckdv1 "github.com/ckd-project/ckd/proto/ckd/v1"
)

// codec converts messages to and from the JSON of /v1: field names as in the .proto file and names
// of enum values. It omits fields that are neither set nor computed.
type codec struct{ runtime.JSONPb }

// Marshal implements runtime.Marshaler.
func (codec) Marshal(v any) ([]byte, error) {
	data, err := marshal(v.(proto.Message))
	return append(data, '\n'), err
}

// NewDecoder implements runtime.Marshaler. It takes one JSON text, where the decoder of
// runtime.JSONPb leaves what follows unread.
func (codec) NewDecoder(r io.Reader) runtime.Decoder {
	return runtime.DecoderFunc(func(v any) error {
		data, err := io.ReadAll(r)
		if err != nil {
			return err
		}
		if err := protojson.Unmarshal(data, v.(proto.Message)); err != nil {
			return fmt.Errorf("the body: %s", httperror.Clip(strings.TrimSpace(strings.TrimPrefix(err.Error(), "proto:"))))
		}
		if request, ok := v.(*ckdv1.DecomposeRequest); ok {
			return complete(request, r.(*body).path)
		}
		return nil
	})
}

// complete checks that the body names the model of the path, or none: grpc-gateway replaces it. It
// asks for the names of classes, since people read JSON.
func complete(request *ckdv1.DecomposeRequest, path string) error {
	model := strings.TrimSuffix(strings.TrimPrefix(path, "/v1/models/"), ":decompose")
	if named := request.GetModel(); named != "" && named != model {
		return fmt.Errorf("model: the body says %s, the path %s; expected the same, or none in the body",
			strconv.Quote(httperror.Clip(named)), strconv.Quote(httperror.Clip(model)))
	}
	if request.ClassNames == nil {
		request.ClassNames = proto.Bool(true)
	}
	return nil
}

// marshal returns a message as JSON, without the spaces that protojson adds at random.
func marshal(m proto.Message) ([]byte, error) {
	options := protojson.MarshalOptions{UseProtoNames: true}
	switch m.(type) {
	case *ckdv1.DecomposeResponse:
		answer, err := object(m.ProtoReflect())
		if err != nil {
			return nil, err
		}
		return json.Marshal(answer)
	case *ckdv1.ReportOutcomesResponse, *ckdv1.ListPromisesResponse, *ckdv1.ClearAlarmResponse:
		options.EmitDefaultValues = true // a count of 0 is a figure
	}
	data, err := options.Marshal(m)
	if err != nil {
		return nil, err
	}
	var out bytes.Buffer
	err = json.Compact(&out, data)
	return out.Bytes(), err
}

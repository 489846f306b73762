package oip_test

import (
	"testing"

	"google.golang.org/protobuf/encoding/protowire"
	"google.golang.org/protobuf/proto"

	pb "github.com/ckd-project/ckd/proto/inference"
	"github.com/ckd-project/ckd/server"
)

// message encodes a message of the protocol by the field numbers of the public definition alone,
// without generated code.
type message []byte

func (m message) text(number protowire.Number, value string) message {
	return protowire.AppendString(protowire.AppendTag(m, number, protowire.BytesType), value)
}

func (m message) with(number protowire.Number, value []byte) message {
	return protowire.AppendBytes(protowire.AppendTag(m, number, protowire.BytesType), value)
}

// field returns the last value of a field of bytes.
func (m message) field(t *testing.T, number protowire.Number) (value message) {
	t.Helper()
	for b := []byte(m); len(b) > 0; {
		n, kind, width := protowire.ConsumeTag(b)
		if width < 0 {
			t.Fatal("no tag")
		}
		b = b[width:]
		if n == number && kind == protowire.BytesType {
			value, _ = protowire.ConsumeBytes(b)
		}
		b = b[protowire.ConsumeFieldValue(n, kind, b):]
	}
	return value
}

// TestNumbers checks that a request encoded by the field numbers of the public definition is
// understood, and that its answer has them.
func TestNumbers(t *testing.T) {
	h := newHarness(t, server.DefaultLimits())
	values := ctg(t, 2)
	shape := protowire.AppendVarint(protowire.AppendVarint(protowire.AppendVarint(nil, 30), 2), 3)
	snk := message{}.text(3, "SNK") // InferParameter.string_param
	raw := message{}.
		text(1, "ctg").text(2, "v1").text(3, "an id").                         // model_name, model_version, id
		with(4, message{}.text(1, "layout").with(2, snk)).                     // parameters
		with(5, message{}.text(1, "passes").text(2, "FP32").with(3, shape)).   // inputs: name, datatype, shape
		with(6, message{}.text(1, "c")).                                       // outputs: name
		with(7, values.request("ctg", "SNK", "FP32").GetRawInputContents()[0]) // raw_input_contents
	r := &pb.ModelInferRequest{}
	if err := proto.Unmarshal(raw, r); err != nil {
		t.Fatal(err)
	}
	if len(r.ProtoReflect().GetUnknown()) > 0 {
		t.Fatal("fields are not known")
	}
	response := h.infer(t, r)
	encoded, err := proto.Marshal(response)
	if err != nil {
		t.Fatal(err)
	}
	m := message(encoded)
	if name, version, id := m.field(t, 1), m.field(t, 2), m.field(t, 3); string(name) != "ctg" || string(version) != "v1" || string(id) != "an id" {
		t.Errorf("%s %s %s", name, version, id)
	}
	output := m.field(t, 5)
	if name, datatype, shape := output.field(t, 1), output.field(t, 2), output.field(t, 3); string(name) != "c" || string(datatype) != "FP64" || string(shape) != "\x02\x03" {
		t.Errorf("%s %s %v", name, datatype, shape)
	}
	var want []byte
	for _, r := range values.native(t, h, "ctg") {
		for _, c := range r.GetDecomposition().GetC() {
			want = le64(want, c)
		}
	}
	if string(m.field(t, 6)) != string(want) { // raw_output_contents
		t.Error("other values than the native service's")
	}
}

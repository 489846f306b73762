package rest

import (
	"bytes"
	"context"
	"encoding/binary"
	"encoding/json"
	"fmt"
	"math"
	"net/http"
	"net/http/httptest"
	"strings"
	"testing"

	"google.golang.org/grpc"
	"google.golang.org/grpc/codes"
	"google.golang.org/grpc/status"
	"google.golang.org/protobuf/proto"

	"github.com/ckd-project/ckd/oip/internal/contents"
	inferencepb "github.com/ckd-project/ckd/proto/inference"
)

// fake implements a server that keeps the request and returns a given answer.
type fake struct {
	inferencepb.GRPCInferenceServiceClient
	asked  *inferencepb.ModelInferRequest
	answer *inferencepb.ModelInferResponse
	ready  bool
	err    error
}

func (f *fake) ServerLive(context.Context, *inferencepb.ServerLiveRequest, ...grpc.CallOption) (*inferencepb.ServerLiveResponse, error) {
	return &inferencepb.ServerLiveResponse{Live: true}, f.err
}

func (f *fake) ServerReady(context.Context, *inferencepb.ServerReadyRequest, ...grpc.CallOption) (*inferencepb.ServerReadyResponse, error) {
	return &inferencepb.ServerReadyResponse{Ready: f.ready}, f.err
}

func (f *fake) ModelReady(_ context.Context, r *inferencepb.ModelReadyRequest, _ ...grpc.CallOption) (*inferencepb.ModelReadyResponse, error) {
	return &inferencepb.ModelReadyResponse{Ready: f.ready && r.GetName() == "m" && (r.GetVersion() == "" || r.GetVersion() == "v1")}, f.err
}

func (f *fake) ServerMetadata(context.Context, *inferencepb.ServerMetadataRequest, ...grpc.CallOption) (*inferencepb.ServerMetadataResponse, error) {
	return &inferencepb.ServerMetadataResponse{Name: "ckd", Version: "1.2.3", Extensions: []string{"model_configuration"}}, f.err
}

func (f *fake) ModelMetadata(_ context.Context, r *inferencepb.ModelMetadataRequest, _ ...grpc.CallOption) (*inferencepb.ModelMetadataResponse, error) {
	return &inferencepb.ModelMetadataResponse{Name: r.GetName(), Versions: []string{"v1"}, Platform: "ckd", Inputs: []*inferencepb.ModelMetadataResponse_TensorMetadata{
		{Name: "passes", Datatype: "FP32", Shape: []int64{-1, -1, 3}},
	}}, f.err
}

func (f *fake) ModelConfig(_ context.Context, r *inferencepb.ModelConfigRequest, _ ...grpc.CallOption) (*inferencepb.ModelConfigResponse, error) {
	return &inferencepb.ModelConfigResponse{Config: &inferencepb.ModelConfig{Name: r.GetName(), Input: []*inferencepb.ModelInput{
		{Name: "passes", DataType: inferencepb.DataType_TYPE_FP32, Dims: []int64{-1, -1, 3}},
	}}}, f.err
}

func (f *fake) ModelInfer(_ context.Context, r *inferencepb.ModelInferRequest, _ ...grpc.CallOption) (*inferencepb.ModelInferResponse, error) {
	f.asked = proto.CloneOf(r)
	if f.answer == nil {
		return &inferencepb.ModelInferResponse{}, f.err
	}
	return f.answer, f.err
}

// do sends a request and returns the answer.
func (f *fake) do(method, path, body string, headers ...string) *httptest.ResponseRecorder {
	r := httptest.NewRequest(method, path, strings.NewReader(body))
	if method == http.MethodPost {
		r.Header.Set("Content-Type", "application/json")
	}
	for i := 0; i < len(headers); i += 2 {
		r.Header.Set(headers[i], headers[i+1])
	}
	w := httptest.NewRecorder()
	New(f, Options{MessageBytes: func() int { return 4096 }}).ServeHTTP(w, r)
	return w
}

// TestGets checks the answers to GET, word for word.
func TestGets(t *testing.T) {
	f := &fake{ready: true}
	metadata := `{"name":"ckd","version":"1.2.3","extensions":["model_configuration","binary_tensor_data"]}`
	model := `{"name":"m","versions":["v1"],"platform":"ckd","inputs":[{"name":"passes","datatype":"FP32","shape":[-1,-1,3]}],"outputs":[]}`
	for path, want := range map[string]string{
		"/v2":                             metadata,
		"/v2/":                            metadata,
		"/v2/health/live":                 `{"live":true}`,
		"/v2/health/ready":                `{"ready":true}`,
		"/v2/models/m":                    model,
		"/v2/models/m/versions/v1":        model,
		"/v2/models/m/ready":              `{"name":"m","ready":true}`,
		"/v2/models/m/versions/v1/ready":  `{"name":"m","ready":true}`,
		"/v2/models/%6D/ready":            `{"name":"m","ready":true}`,
		"/v2/models/m/versions/v1/config": `{"name":"m","platform":"","backend":"","max_batch_size":0,"input":[{"name":"passes","data_type":"TYPE_FP32","dims":["-1","-1","3"]}],"output":[],"model_transaction_policy":null}`,
	} {
		t.Run(path, func(t *testing.T) {
			w := f.do(http.MethodGet, path, "")
			var compact bytes.Buffer
			if err := json.Compact(&compact, w.Body.Bytes()); err != nil {
				t.Fatal(err)
			}
			if w.Code != http.StatusOK || compact.String() != want || w.Header().Get("Content-Type") != "application/json" {
				t.Errorf("%d %s, want %s", w.Code, compact.String(), want)
			}
			if w := f.do(http.MethodHead, path, ""); w.Code != http.StatusOK {
				t.Errorf("HEAD: %d", w.Code)
			}
		})
	}
	for path, want := range map[string]string{
		"/v2/models/m/versions/v2/ready": `{"name":"m","ready":false}`,
		"/v2/models/n/ready":             `{"name":"n","ready":false}`,
	} {
		if w := f.do(http.MethodGet, path, ""); w.Code != http.StatusServiceUnavailable || strings.TrimSpace(w.Body.String()) != want {
			t.Errorf("%s: %d %s", path, w.Code, w.Body)
		}
	}
	f.ready = false
	if w := f.do(http.MethodGet, "/v2/health/ready", ""); w.Code != http.StatusServiceUnavailable {
		t.Errorf("not ready: %d %s", w.Code, w.Body)
	}
}

// TestRequest checks the message that a request becomes.
func TestRequest(t *testing.T) {
	f := &fake{}
	floats := func(values ...float32) (raw []byte) {
		for _, v := range values {
			raw = binary.LittleEndian.AppendUint32(raw, math.Float32bits(v))
		}
		return raw
	}
	want := &inferencepb.ModelInferRequest{
		ModelName: "m", ModelVersion: "v1", Id: "7 \u00e9",
		Parameters: map[string]*inferencepb.InferParameter{
			"layout": {ParameterChoice: &inferencepb.InferParameter_StringParam{StringParam: "SNK"}},
			"n":      {ParameterChoice: &inferencepb.InferParameter_Int64Param{Int64Param: -3}},
			"x":      {ParameterChoice: &inferencepb.InferParameter_DoubleParam{DoubleParam: 2.5}},
			"yes":    {ParameterChoice: &inferencepb.InferParameter_BoolParam{BoolParam: true}},
			"no":     {ParameterChoice: &inferencepb.InferParameter_BoolParam{}},
		},
		Inputs: []*inferencepb.ModelInferRequest_InferInputTensor{{Name: "passes", Datatype: "FP32", Shape: []int64{2, 1, 3}}},
		Outputs: []*inferencepb.ModelInferRequest_InferRequestedOutputTensor{
			{Name: "c"}, {Name: "defer"},
		},
		RawInputContents: [][]byte{floats(0.1, 1, 0, 1e-9, 3, 0.5)},
	}
	head := `{"id":"7 \u00e9","parameters":{"layout":"SNK","n":-3,"x":2.5,"yes":true,"no":false},`
	tail := `"outputs":[{"name":"c"},{"name":"defer","parameters":{}}]}`
	for name, body := range map[string]string{
		"flat":               head + `"inputs":[{"name":"passes","shape":[2,1,3],"datatype":"FP32","data":[0.1,1,0,1e-9,3.0,5E-1]}],` + tail,
		"nested":             head + `"inputs":[{"name":"passes","shape":[2,1,3],"datatype":"FP32","data":[[[0.1,1,0]],[[1e-9,3.0,0.5]]]}],` + tail,
		"data first, spaced": head + "\n\t\"inputs\" : [ { \"data\" : [ 0.1 , 1 , 0 ,\r\n 1e-9,3,0.5 ] , \"shape\":[2,1,3],\"datatype\":\"FP32\",\"name\":\"passes\"} ] ," + tail + "\n",
		"nulls":              `{"model_version":null,"model_name":null,` + head[1:] + `"inputs":[{"name":"passes","shape":[2,1,3],"datatype":"FP32","data":[0.1,1,0,1e-9,3,0.5]}],` + tail,
		"model named again":  `{"model_name":"other","model_version":3,` + head[1:] + `"inputs":[{"name":"passes","shape":[2,1,3],"datatype":"FP32","parameters":{},"data":[0.1,1,0,1e-9,3,0.5]}],` + tail,
	} {
		t.Run(name, func(t *testing.T) {
			if w := f.do(http.MethodPost, "/v2/models/m/versions/v1/infer", body); w.Code != http.StatusOK || !proto.Equal(f.asked, want) {
				t.Errorf("%d %s, the server was asked %v, want %v", w.Code, w.Body, f.asked, want)
			}
		})
	}
	// The answer of another model.
	want = &inferencepb.ModelInferRequest{
		ModelName: "m", Id: "7", Inputs: want.GetInputs(), RawInputContents: want.GetRawInputContents(),
	}
	if w := f.do(http.MethodPost, "/v2/models/m/infer", `{"model_name":"classifier","model_version":"1","id":"7","outputs":[
		{"name":"passes","datatype":"FP32","shape":[2,1,3],"data":[0.1,1,0,1e-9,3.0,5E-1]}]}`); w.Code != http.StatusOK || !proto.Equal(f.asked, want) {
		t.Errorf("an answer: %d %s, the server was asked %v, want %v", w.Code, w.Body, f.asked, want)
	}
	if w := f.do(http.MethodPost, "/v2/models/m/infer", `{"inputs":[{"name":"p","shape":[0,3],"datatype":"FP32","data":[]}]}`); w.Code != http.StatusOK ||
		len(f.asked.GetRawInputContents()) != 1 || len(f.asked.GetRawInputContents()[0]) != 0 || f.asked.GetModelName() != "m" {
		t.Errorf("nothing: %d %s, %v", w.Code, w.Body, f.asked)
	}
}

// TestDatatypes checks that elements survive the way from JSON to bytes and back.
func TestDatatypes(t *testing.T) {
	for _, c := range []struct{ datatype, data, raw, back string }{
		{"BOOL", `[true,false]`, "\x01\x00", ``},
		{"INT8", `[-128,127]`, "\x80\x7f", ``},
		{"INT16", `[-2,258]`, "\xfe\xff\x02\x01", ``},
		{"INT32", `[-1,1]`, "\xff\xff\xff\xff\x01\x00\x00\x00", ``},
		{"INT64", `[-9223372036854775808]`, "\x00\x00\x00\x00\x00\x00\x00\x80", ``},
		{"UINT8", `[255]`, "\xff", ``},
		{"UINT16", `[65535]`, "\xff\xff", ``},
		{"UINT32", `[4294967295]`, "\xff\xff\xff\xff", ``},
		{"UINT64", `[18446744073709551615]`, "\xff\xff\xff\xff\xff\xff\xff\xff", ``},
		{"FP32", `[0.1,-0,1e-8]`, "\xcd\xcc\xcc\x3d\x00\x00\x00\x80\x77\xcc\x2b\x32", `[0.1,-0,1e-08]`},
		{"FP64", `[0.1,1e300]`, "\x9a\x99\x99\x99\x99\x99\xb9\x3f\x9c\x75\x00\x88\x3c\xe4\x37\x7e", `[0.1,1e+300]`},
		{"BYTES", `["","a\u00e9\n"]`, "\x00\x00\x00\x00\x04\x00\x00\x00a\u00e9\n", "[\"\",\"a\u00e9\\n\"]"},
	} {
		t.Run(c.datatype, func(t *testing.T) {
			f := &fake{}
			n := strings.Count(c.data, ",") + 1
			body := fmt.Sprintf(`{"inputs":[{"name":"x","shape":[%d],"datatype":"%s","data":%s}]}`, n, c.datatype, c.data)
			if w := f.do(http.MethodPost, "/v2/models/m/infer", body); w.Code != http.StatusOK || string(f.asked.GetRawInputContents()[0]) != c.raw {
				t.Fatalf("%d %s: %x, want %x", w.Code, w.Body, f.asked.GetRawInputContents(), c.raw)
			}
			f.answer = &inferencepb.ModelInferResponse{
				ModelName: "m", Outputs: []*inferencepb.ModelInferResponse_InferOutputTensor{{Name: "x", Datatype: c.datatype, Shape: []int64{int64(n)}}},
				RawOutputContents: [][]byte{[]byte(c.raw)},
			}
			want := c.back
			if want == "" {
				want = c.data
			}
			want = fmt.Sprintf(`{"model_name":"m","outputs":[{"name":"x","datatype":"%s","shape":[%d],"data":%s}]}`, c.datatype, n, want) + "\n"
			if w := f.do(http.MethodPost, "/v2/models/m/infer", body); w.Body.String() != want {
				t.Errorf("got %s, want %s", w.Body, want)
			}
		})
	}
}

// TestAnswer checks an answer in both forms, with values that JSON cannot express.
func TestAnswer(t *testing.T) {
	outputs := func() []*inferencepb.ModelInferResponse_InferOutputTensor {
		return []*inferencepb.ModelInferResponse_InferOutputTensor{
			{Name: "score", Datatype: "FP64", Shape: []int64{3}},
			{Name: "defer", Datatype: "BOOL", Shape: []int64{3}},
			{Name: "deciding_class", Datatype: "INT64", Shape: []int64{3}, Parameters: map[string]*inferencepb.InferParameter{
				"b": {ParameterChoice: &inferencepb.InferParameter_Uint64Param{Uint64Param: 7}},
				"a": {ParameterChoice: &inferencepb.InferParameter_DoubleParam{DoubleParam: 0.5}},
			}},
			{Name: "decision", Datatype: "BYTES", Shape: []int64{3}},
			{Name: "receipt", Datatype: "BYTES", Shape: []int64{3}},
		}
	}
	typed := &inferencepb.ModelInferResponse{ModelName: "m", ModelVersion: "v1", Id: "\"7\"", Outputs: outputs(), Parameters: map[string]*inferencepb.InferParameter{
		"policy_hash": {ParameterChoice: &inferencepb.InferParameter_StringParam{StringParam: "abc"}},
		"final":       {ParameterChoice: &inferencepb.InferParameter_BoolParam{BoolParam: true}},
		"n":           {ParameterChoice: &inferencepb.InferParameter_Int64Param{Int64Param: 2}},
	}}
	typed.Outputs[0].Contents = &inferencepb.InferTensorContents{Fp64Contents: []float64{0.25, math.NaN(), math.Inf(1)}}
	typed.Outputs[1].Contents = &inferencepb.InferTensorContents{BoolContents: []bool{true, false, true}}
	typed.Outputs[2].Contents = &inferencepb.InferTensorContents{Int64Contents: []int64{-1, 0, 2}}
	typed.Outputs[3].Contents = &inferencepb.InferTensorContents{BytesContents: [][]byte{[]byte("defer"), []byte("\xff"), nil}}
	typed.Outputs[4].Contents = &inferencepb.InferTensorContents{BytesContents: [][]byte{{0xff, 0xfe}, nil, []byte("abc")}}
	raw := proto.CloneOf(typed)
	for _, o := range raw.GetOutputs() {
		bytes, _ := contents.Raw(o.GetContents(), o.GetDatatype())
		raw.RawOutputContents = append(raw.RawOutputContents, bytes)
		o.Contents = nil
	}
	want := `{"model_name":"m","model_version":"v1","id":"\"7\"","parameters":{"final":true,"n":2,"policy_hash":"abc"},"outputs":[` +
		`{"name":"score","datatype":"FP64","shape":[3],"data":[0.25,null,null]},` +
		`{"name":"defer","datatype":"BOOL","shape":[3],"data":[true,false,true]},` +
		`{"name":"deciding_class","datatype":"INT64","shape":[3],"parameters":{"a":0.5,"b":7},"data":[-1,0,2]},` +
		`{"name":"decision","datatype":"BYTES","shape":[3],"data":["defer","` + `\ufffd` + `",""]},` +
		`{"name":"receipt","datatype":"BYTES","shape":[3],"data":["__4","","YWJj"]}]}` + "\n"
	for name, answer := range map[string]*inferencepb.ModelInferResponse{"typed": typed, "raw": raw} {
		t.Run(name, func(t *testing.T) {
			f := &fake{answer: answer}
			w := f.do(http.MethodPost, "/v2/models/m/infer", `{"inputs":[]}`)
			if w.Body.String() != want || w.Header().Get("Content-Length") != fmt.Sprint(len(want)) {
				t.Errorf("got %s, want %s", w.Body, want)
			}
		})
	}
	short := proto.CloneOf(raw)
	short.RawOutputContents[0] = short.RawOutputContents[0][:7]
	if w := (&fake{answer: short}).do(http.MethodPost, "/v2/models/m/infer", `{"inputs":[]}`); w.Code != http.StatusInternalServerError {
		t.Errorf("an answer that breaks off: %d %s", w.Code, w.Body)
	}
}

// TestBinary checks Triton's extension in both directions.
func TestBinary(t *testing.T) {
	f := &fake{answer: &inferencepb.ModelInferResponse{
		ModelName: "m", Outputs: []*inferencepb.ModelInferResponse_InferOutputTensor{
			{Name: "defer", Datatype: "BOOL", Shape: []int64{2}}, {Name: "decision", Datatype: "BYTES", Shape: []int64{1}},
		},
		RawOutputContents: [][]byte{{1, 0}, []byte("\x02\x00\x00\x00ok")},
	}}
	text := `{"inputs":[{"name":"passes","shape":[1,1,2],"datatype":"FP16","parameters":{"binary_data_size":4,"k":1}},` +
		`{"name":"y","shape":[1],"datatype":"UINT8","data":[9]},{"name":"z","shape":[0],"datatype":"FP32","parameters":{"binary_data_size":0}}],` +
		`"parameters":{"binary_data_output":true},"outputs":[{"name":"defer"},{"name":"decision","parameters":{"binary_data":false}}]}`
	w := f.do(http.MethodPost, "/v2/models/m/infer", text+"abcd", "Inference-Header-Content-Length", fmt.Sprint(len(text)), "Content-Type", "application/octet-stream")
	want := `{"model_name":"m","outputs":[{"name":"defer","datatype":"BOOL","shape":[2],"parameters":{"binary_data_size":2}},` +
		`{"name":"decision","datatype":"BYTES","shape":[1],"data":["ok"]}]}`
	if w.Code != http.StatusOK || w.Body.String() != want+"\x01\x00" || w.Header().Get("Inference-Header-Content-Length") != fmt.Sprint(len(want)) ||
		w.Header().Get("Content-Type") != "application/octet-stream" || w.Header().Get("Content-Length") != fmt.Sprint(len(want)+2) {
		t.Fatalf("%d %q, %v", w.Code, w.Body, w.Header())
	}
	if raw := f.asked.GetRawInputContents(); len(raw) != 3 || string(raw[0]) != "abcd" || string(raw[1]) != "\x09" || len(raw[2]) != 0 {
		t.Errorf("the server got %q", raw)
	}
	if p := f.asked.GetInputs()[0].GetParameters(); len(p) != 1 || p["k"].GetInt64Param() != 1 || len(f.asked.GetParameters()) != 0 || len(f.asked.GetOutputs()[1].GetParameters()) != 0 {
		t.Errorf("parameters of HTTP are passed on: %v", f.asked)
	}
}

// TestRefusals checks what this package refuses, and the messages.
func TestRefusals(t *testing.T) {
	input := func(rest string) string { return `{"inputs":[{"name":"x",` + rest + `}]}` }
	for name, c := range map[string]struct {
		body     string
		code     int
		fragment string
		headers  []string
	}{
		"no UTF-8":         {"{\"id\":\"\xff\",\"inputs\":[]}", 400, "not UTF-8", nil},
		"outputs alone":    {`{"outputs": [{"name": "c"}]}`, 400, "no inputs", nil},
		"outputs as both":  {`{"inputs": [], "outputs": [{"name": "c", "data": [1]}]}`, 400, "an output needs a name", nil},
		"an empty answer":  {`{"outputs": [{"name": "passes", "datatype": "FP32", "shape": [1]}]}`, 400, "has no data", nil},
		"unknown key":      {`{"inputs":[],` + "\n" + `"parametres":{}}`, 400, `line 2, column`, nil},
		"no JSON":          {`{"inputs":[] "id":"a"}`, 400, "line 1, column 15: invalid character", nil},
		"list parameter":   {`{"parameters":{"a":[1]}}`, 400, `the parameter "a" is neither`, nil},
		"no name":          {`{"inputs":[{"shape":[1],"datatype":"FP32","data":[1]}]}`, 400, "an input has no name", nil},
		"no shape":         {input(`"datatype":"FP32","data":[1]`), 400, `"x" has 0 dimensions`, nil},
		"too few":          {input(`"datatype":"FP32","shape":[2,3],"data":[1,2,3,4,5]`), 400, "data with 5 elements, the shape [2 3] has 6", nil},
		"negative":         {input(`"datatype":"FP32","shape":[-1,3],"data":[1,2,3]`), 400, "the shape [-1 3], which has no number of elements", nil},
		"huge shape":       {input(`"datatype":"FP32","shape":[1000000000,1000],"data":[1]`), 400, "has 1000000000000", nil},
		"nested otherwise": {input(`"datatype":"FP32","shape":[2,3],"data":[[1,2],[3,4],[5,6]]`), 400, "data that is nested otherwise than the shape [2 3]", nil},
		"mixed":            {input(`"datatype":"FP32","shape":[2],"data":[1,[2]]`), 400, "nested otherwise", nil},
		"deep, of nothing": {input(`"datatype":"FP32","shape":[1000,1000,1000,1000,0],"data":[` + strings.Repeat("[],", 999) + `[]]`), 400, "nested otherwise", nil},
		"deep":             {input(`"datatype":"FP32","shape":[1],"data":` + strings.Repeat("[", 9) + `1` + strings.Repeat("]", 9)), 400, "nested otherwise", nil},
		"null":             {input(`"datatype":"FP64","shape":[1],"data":[null]`), 400, `the element null, expected a number of FP64`, nil},
		"too large":        {input(`"datatype":"FP32","shape":[1],"data":[1e39]`), 400, `the element 1e39`, nil},
		"INT32":            {input(`"datatype":"INT32","shape":[1],"data":[1.0]`), 400, "expected an integer of 32 bits", nil},
		"BOOL":             {input(`"datatype":"BOOL","shape":[1],"data":[1]`), 400, "expected true or false", nil},
		"BYTES":            {input(`"datatype":"BYTES","shape":[1],"data":[null]`), 400, "expected a string", nil},
		"FP16":             {input(`"datatype":"FP16","shape":[1],"data":[1]`), 400, `datatype "FP16", which has no form in JSON`, nil},
		"many":             {input(`"datatype":"FP32","shape":[1100],"data":[` + strings.Repeat("0,", 1099) + `0]`), 413, "over the limit of 4096 bytes", nil},
		"many outputs":     {`{"inputs":[],"outputs":[` + strings.Repeat(`{"name":"c"},`, 256) + `{"name":"c"}]}`, 400, "257 outputs, expected at most 256", nil},
		"media":            {`{}`, 415, `Content-Type is "text/plain", expected application/json`, []string{"Content-Type", "text/plain"}},
		"bytes alone":      {`{}`, 415, `with the header Inference-Header-Content-Length`, []string{"Content-Type", "application/octet-stream"}},
		"compressed":       {`{}`, 415, `Content-Encoding is "gzip"`, []string{"Content-Encoding", "gzip"}},
		"long header":      {`{}`, 400, `Inference-Header-Content-Length is "3", expected 0 to 2`, []string{headerLength, "3"}},
		"bytes left":       {`{"inputs":[]}ab`, 400, "2 bytes of binary data are left over", []string{headerLength, "13"}},
		"bytes missing":    {input(`"datatype":"FP32","shape":[1],"parameters":{"binary_data_size":4}`), 400, `binary_data_size of 4 bytes, and 0 are left`, nil},
		"both":             {input(`"datatype":"FP32","shape":[1],"parameters":{"binary_data_size":0},"data":[1]`), 400, `both data and binary data`, nil},
		"no boolean":       {`{"inputs":[],"parameters":{"binary_data_output":1}}`, 400, `binary_data_output is no boolean`, nil},
	} {
		t.Run(name, func(t *testing.T) {
			f := &fake{}
			w := f.do(http.MethodPost, "/v2/models/m/infer", c.body, c.headers...)
			var answer map[string]string
			if err := json.Unmarshal(w.Body.Bytes(), &answer); err != nil || len(answer) != 1 {
				t.Fatalf("%v: %s", err, w.Body)
			}
			if w.Code != c.code || !strings.Contains(answer["error"], c.fragment) || f.asked != nil {
				t.Errorf("%d %q, want %d with %q; the server was asked %v", w.Code, answer["error"], c.code, c.fragment, f.asked)
			}
		})
	}
}

// TestErrors checks the errors of calls, of paths and of bodies. The gateway's tests have the statuses.
func TestErrors(t *testing.T) {
	f := &fake{err: status.Error(codes.NotFound, `it is "so"`)}
	for _, path := range []string{"/v2", "/v2/health/live", "/v2/health/ready", "/v2/models/m", "/v2/models/m/ready", "/v2/models/m/config"} {
		if w := f.do(http.MethodGet, path, ""); w.Code != 404 || strings.TrimSpace(w.Body.String()) != `{"error":"it is \"so\""}` {
			t.Errorf("%s: %d %s", path, w.Code, w.Body)
		}
	}
	if w := f.do(http.MethodPost, "/v2/models/m/infer", `{"inputs":[]}`); w.Code != 404 {
		t.Errorf("infer: %d %s", w.Code, w.Body)
	}
	f = &fake{}
	for _, path := range []string{"/v2/models", "/v2/models/m/explain"} {
		if w := f.do(http.MethodPost, path, ""); w.Code != 404 {
			t.Errorf("%s: %d %s", path, w.Code, w.Body)
		}
	}
	if w := f.do(http.MethodGet, "/v2/models/m/infer", ""); w.Code != 405 || w.Header().Get("Allow") != "POST" {
		t.Errorf("GET infer: %d %s, %v", w.Code, w.Body, w.Header())
	}
}

// FuzzInfer checks that no body breaks the handler, and that accepted bodies are JSON and mean what
// encoding/json reads.
func FuzzInfer(f *testing.F) {
	for _, body := range []string{
		`{"id":"1","inputs":[{"name":"passes","shape":[1,2,2],"datatype":"FP32","data":[[[0.1,0.9],[0.25,7.5e-1]]]}],"outputs":[{"name":"c"}]}`,
		`{"parameters":{"layout":"SNK","a":1,"b":-2.5,"c":true},"inputs":[{"data":["a","\u00e9"],"name":"x","datatype":"BYTES","shape":[2]}]}`,
		`{"inputs":[{"name":"x","shape":[0],"datatype":"BOOL","data":[]},{"name":"y","shape":[1],"datatype":"INT8","data":[-128]}]}`,
		`{"inputs":[{"name":"x","shape":[1],"datatype":"UINT64","data":[18446744073709551615],"parameters":{}}]} `,
		`{"inputs":[{"name":"x","shape":[2],"datatype":"FP64","data":[1e308,-0.0]}]}`,
	} {
		f.Add([]byte(body))
	}
	f.Fuzz(func(t *testing.T, body []byte) {
		server := &fake{}
		r := httptest.NewRequest(http.MethodPost, "/v2/models/m/infer", bytes.NewReader(body))
		w := httptest.NewRecorder()
		New(server, Options{MessageBytes: func() int { return 64 << 10 }}).ServeHTTP(w, r)
		if w.Code >= http.StatusInternalServerError || !json.Valid(w.Body.Bytes()) {
			t.Fatalf("%q: %d %s", body, w.Code, w.Body)
		}
		if w.Code != http.StatusOK {
			return
		}
		var want struct {
			ID     string
			Inputs []struct {
				Name, Datatype string
				Shape          []int64
				Data           any
			}
			Outputs []struct{ Name string }
		}
		decoder := json.NewDecoder(bytes.NewReader(body))
		decoder.UseNumber()
		if err := decoder.Decode(&want); err != nil {
			t.Fatalf("taken: %q: %v", body, err)
		}
		got := server.asked
		if got.GetId() != want.ID || len(got.GetInputs()) != len(want.Inputs) || len(got.GetOutputs()) != len(want.Outputs) {
			t.Fatalf("%q is taken for %v", body, got)
		}
		for i, in := range want.Inputs {
			var flat []any
			flatten(in.Data, &flat)
			data, err := appendElements(nil, in.Datatype, got.GetRawInputContents()[i])
			if err != nil {
				t.Fatal(err)
			}
			var back []any
			decoder := json.NewDecoder(bytes.NewReader(data))
			decoder.UseNumber()
			if err := decoder.Decode(&back); err != nil {
				t.Fatalf("%s: %v", data, err)
			}
			if len(back) != len(flat) {
				t.Fatalf("%q: %d elements are taken for %s", body, len(flat), data)
			}
			for k := range flat {
				if !same(flat[k], back[k], in.Datatype) {
					t.Fatalf("%q: %v is taken for %v", body, flat[k], back[k])
				}
			}
		}
	})
}

func flatten(v any, to *[]any) {
	if list, ok := v.([]any); ok {
		for _, e := range list {
			flatten(e, to)
		}
		return
	}
	*to = append(*to, v)
}

// same reports whether an element equals its text.
func same(text, got any, datatype string) bool {
	a, ok := text.(json.Number)
	if !ok {
		return text == got
	}
	b, _ := got.(json.Number)
	x, errX := a.Float64()
	y, errY := b.Float64()
	if errX != nil || errY != nil {
		return false
	}
	if datatype == "FP32" {
		return float32(x) == float32(y) || math.Abs(x-y) <= 1e-7*math.Abs(x) // twice rounded here, once there
	}
	return x == y
}

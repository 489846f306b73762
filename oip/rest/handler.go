package rest

import (
	"encoding/json"
	"fmt"
	"io"
	"mime"
	"net/http"
	"slices"
	"strconv"

	"google.golang.org/grpc/codes"
	"google.golang.org/protobuf/encoding/protojson"

	"github.com/ckd-project/ckd/internal/httperror"
	inferencepb "github.com/ckd-project/ckd/proto/inference"
)

// Options bounds what a request may hold.
type Options struct {
	// MessageBytes bounds one message to the server. It is asked for every request.
	MessageBytes func() int
	// Tensor returns the name of a model's tensor that holds the passes. All other tensors go to
	// the server, and come back, unread. If it is nil, every tensor is read.
	Tensor func(model string) string
}

// headerLength names the header of Triton's extension that says how many bytes of a body are JSON.
const headerLength = "Inference-Header-Content-Length"

// New returns the handler of /v2 and all paths below it. Its caller limits how long bodies are, and
// how slow.
func New(client inferencepb.GRPCInferenceServiceClient, o Options) http.Handler {
	h := &handler{client, o, http.NewServeMux()}
	for _, route := range []struct {
		method, path string
		answer       func(w http.ResponseWriter, r *http.Request) error
	}{
		{http.MethodGet, "/v2", h.metadata},
		{http.MethodGet, "/v2/{$}", h.metadata},
		{http.MethodGet, "/v2/health/live", h.live},
		{http.MethodGet, "/v2/health/ready", h.ready},
		{http.MethodGet, "/v2/models/{model}", h.modelMetadata},
		{http.MethodGet, "/v2/models/{model}/ready", h.modelReady},
		{http.MethodGet, "/v2/models/{model}/config", h.modelConfig},
		{http.MethodPost, "/v2/models/{model}/infer", h.infer},
		{http.MethodGet, "/v2/models/{model}/versions/{version}", h.modelMetadata},
		{http.MethodGet, "/v2/models/{model}/versions/{version}/ready", h.modelReady},
		{http.MethodGet, "/v2/models/{model}/versions/{version}/config", h.modelConfig},
		{http.MethodPost, "/v2/models/{model}/versions/{version}/infer", h.infer},
	} {
		h.mux.HandleFunc(route.path, func(w http.ResponseWriter, r *http.Request) {
			if r.Method != route.method && (r.Method != http.MethodHead || route.method != http.MethodGet) {
				w.Header().Set("Allow", route.method)
				WriteError(w, httperror.New(http.StatusMethodNotAllowed, codes.Unimplemented,
					fmt.Sprintf("the method is %q, expected %s", httperror.Clip(r.Method), route.method)))
				return
			}
			if err := route.answer(w, r); err != nil {
				WriteError(w, err)
			}
		})
	}
	h.mux.HandleFunc("/", func(w http.ResponseWriter, r *http.Request) {
		WriteError(w, httperror.New(http.StatusNotFound, codes.NotFound,
			fmt.Sprintf("nothing is at %q, expected /v2, /v2/health/live, /v2/health/ready, or /v2/models/{model} with /ready, /config or /infer", httperror.Clip(r.URL.Path))))
	})
	return h.mux
}

// WriteError answers with an error in the protocol's form.
func WriteError(w http.ResponseWriter, err error) {
	st, code := httperror.Of(err)
	httperror.SetHeaders(w.Header(), st)
	writeJSON(w, code, map[string]string{"error": st.Message()})
}

type handler struct {
	client  inferencepb.GRPCInferenceServiceClient
	options Options
	mux     *http.ServeMux
}

func (h *handler) live(w http.ResponseWriter, r *http.Request) error {
	m, err := h.client.ServerLive(r.Context(), &inferencepb.ServerLiveRequest{})
	return writeReadiness(w, err, m.GetLive(), map[string]bool{"live": m.GetLive()})
}

func (h *handler) ready(w http.ResponseWriter, r *http.Request) error {
	m, err := h.client.ServerReady(r.Context(), &inferencepb.ServerReadyRequest{})
	return writeReadiness(w, err, m.GetReady(), map[string]bool{"ready": m.GetReady()})
}

func (h *handler) modelReady(w http.ResponseWriter, r *http.Request) error {
	name := r.PathValue("model")
	m, err := h.client.ModelReady(r.Context(), &inferencepb.ModelReadyRequest{Name: name, Version: r.PathValue("version")})
	return writeReadiness(w, err, m.GetReady(), struct {
		Name  string `json:"name"`
		Ready bool   `json:"ready"`
	}{name, m.GetReady()})
}

// writeReadiness answers with v, and with a code that says whether something is ready. It returns
// the error of the call that asked for it.
func writeReadiness(w http.ResponseWriter, err error, ready bool, v any) error {
	switch {
	case err != nil:
	case ready:
		writeJSON(w, http.StatusOK, v)
	default:
		writeJSON(w, http.StatusServiceUnavailable, v)
	}
	return err
}

// binaryExtension announces in the metadata that a server takes binary tensor data over HTTP.
const binaryExtension = "binary_tensor_data"

func (h *handler) metadata(w http.ResponseWriter, r *http.Request) error {
	m, err := h.client.ServerMetadata(r.Context(), &inferencepb.ServerMetadataRequest{})
	if err != nil {
		return err
	}
	extensions := slices.Clone(m.GetExtensions())
	if !slices.Contains(extensions, binaryExtension) {
		extensions = append(extensions, binaryExtension)
	}
	writeJSON(w, http.StatusOK, struct {
		Name       string   `json:"name"`
		Version    string   `json:"version"`
		Extensions []string `json:"extensions"`
	}{m.GetName(), m.GetVersion(), extensions})
	return nil
}

// tensor holds the protocol's metadata of a tensor.
type tensor struct {
	Name     string  `json:"name"`
	Datatype string  `json:"datatype"`
	Shape    []int64 `json:"shape"`
}

func (h *handler) modelMetadata(w http.ResponseWriter, r *http.Request) error {
	m, err := h.client.ModelMetadata(r.Context(), &inferencepb.ModelMetadataRequest{Name: r.PathValue("model"), Version: r.PathValue("version")})
	if err != nil {
		return err
	}
	tensors := func(from []*inferencepb.ModelMetadataResponse_TensorMetadata) []tensor {
		all := []tensor{}
		for _, t := range from {
			all = append(all, tensor{t.GetName(), t.GetDatatype(), t.GetShape()})
		}
		return all
	}
	writeJSON(w, http.StatusOK, struct {
		Name     string   `json:"name"`
		Versions []string `json:"versions,omitempty"`
		Platform string   `json:"platform"`
		Inputs   []tensor `json:"inputs"`
		Outputs  []tensor `json:"outputs"`
	}{m.GetName(), m.GetVersions(), m.GetPlatform(), tensors(m.GetInputs()), tensors(m.GetOutputs())})
	return nil
}

// modelConfig answers with the message in the JSON of protobuf, as Triton does.
func (h *handler) modelConfig(w http.ResponseWriter, r *http.Request) error {
	m, err := h.client.ModelConfig(r.Context(), &inferencepb.ModelConfigRequest{Name: r.PathValue("model"), Version: r.PathValue("version")})
	if err != nil {
		return err
	}
	data, err := protojson.MarshalOptions{UseProtoNames: true, EmitUnpopulated: true}.Marshal(m.GetConfig())
	if err != nil {
		return err
	}
	writeJSON(w, http.StatusOK, json.RawMessage(data))
	return nil
}

func (h *handler) infer(w http.ResponseWriter, r *http.Request) error {
	request, err := h.readInfer(r)
	if err != nil {
		return err
	}
	request.message.ModelName, request.message.ModelVersion = r.PathValue("model"), r.PathValue("version")
	m, err := h.client.ModelInfer(r.Context(), request.message)
	if err != nil {
		return err
	}
	text, after, err := formatInfer(m, request)
	if err != nil {
		return httperror.New(http.StatusInternalServerError, codes.Internal, err.Error())
	}
	size := len(text)
	w.Header().Set("Content-Type", "application/json")
	if len(after) > 0 {
		w.Header().Set("Content-Type", "application/octet-stream")
		w.Header().Set(headerLength, strconv.Itoa(size))
		for _, raw := range after {
			size += len(raw)
		}
	}
	w.Header().Set("Content-Length", strconv.Itoa(size))
	for _, part := range append([][]byte{text}, after...) {
		if _, err := w.Write(part); err != nil {
			return nil // a client that went away needs no answer
		}
	}
	return nil
}

// readInfer reads the body of a request.
func (h *handler) readInfer(r *http.Request) (*inferRequest, error) {
	if encoding := r.Header.Get("Content-Encoding"); encoding != "" && encoding != "identity" {
		return nil, httperror.New(http.StatusUnsupportedMediaType, codes.InvalidArgument,
			fmt.Sprintf("Content-Encoding is %q, expected none", httperror.Clip(encoding)))
	}
	length := r.Header.Get(headerLength)
	sent := r.Header.Get("Content-Type")
	media, _, err := mime.ParseMediaType(sent)
	if sent != "" && (err != nil || media != "application/json" && (media != "application/octet-stream" || length == "")) {
		return nil, httperror.New(http.StatusUnsupportedMediaType, codes.InvalidArgument,
			fmt.Sprintf("Content-Type is %q, expected application/json, as curl --json sends it, or application/octet-stream with the header %s", httperror.Clip(sent), headerLength))
	}
	body, err := io.ReadAll(r.Body)
	if err != nil {
		return nil, httperror.Invalid("the body breaks off: " + httperror.Clip(err.Error()))
	}
	text := body
	if length != "" {
		n, err := strconv.Atoi(length)
		if err != nil || n < 0 || n > len(body) {
			return nil, httperror.Invalid(fmt.Sprintf("%s is %q, expected 0 to %d, the length of the body", headerLength, httperror.Clip(length), len(body)))
		}
		text = body[:n]
	}
	passes := ""
	if h.options.Tensor != nil {
		passes = h.options.Tensor(r.PathValue("model"))
	}
	return parseInfer(text, body[len(text):], h.options.MessageBytes(), passes)
}

func writeJSON(w http.ResponseWriter, code int, v any) {
	data, err := json.Marshal(v)
	if err != nil { // never: everything written here can be JSON
		code, data = http.StatusInternalServerError, []byte(`{"error":"the answer cannot be written as JSON"}`)
	}
	w.Header().Set("Content-Type", "application/json")
	w.WriteHeader(code)
	_, _ = w.Write(append(data, '\n')) // a client that went away needs no answer
}

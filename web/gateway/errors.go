package gateway

import (
	"context"
	"fmt"
	"net/http"

	"github.com/grpc-ecosystem/grpc-gateway/v2/runtime"
	"google.golang.org/grpc/codes"
	"google.golang.org/grpc/status"

	"github.com/ckd-project/ckd/internal/httperror"
)

// handleError answers with a google.rpc.Status. A fault of the body takes precedence over what the
// generated handler made of it.
func handleError(ctx context.Context, _ *runtime.ServeMux, _ runtime.Marshaler, w http.ResponseWriter, _ *http.Request, err error) {
	if refusal := callOf(ctx).body.refusal; refusal != nil {
		err = refusal
	}
	writeError(w, err)
}

// handleStreamError returns the status for the last line of a stream's answer.
func handleStreamError(ctx context.Context, err error) *status.Status {
	st := resolvable(status.Convert(err))
	httperror.SetHeaders(callOf(ctx).writer.Header(), st)
	return st
}

// handleRoutingError answers requests for unknown paths and methods.
func handleRoutingError(_ context.Context, _ *runtime.ServeMux, _ runtime.Marshaler, w http.ResponseWriter, r *http.Request, code int) {
	if code == http.StatusMethodNotAllowed {
		writeError(w, wrongMethod(w, r))
		return
	}
	writeError(w, httperror.New(http.StatusNotFound, codes.NotFound,
		fmt.Sprintf("nothing is at %q, expected one of %s", httperror.Clip(r.URL.Path), paths)))
}

// wrongMethod returns the error of a method that the path does not have, and says which one it has.
func wrongMethod(w http.ResponseWriter, r *http.Request) *httperror.Error {
	allowed := http.MethodGet
	if isPost(r.URL.Path) {
		allowed = http.MethodPost
	}
	w.Header().Set("Allow", allowed)
	return httperror.New(http.StatusMethodNotAllowed, codes.Unimplemented,
		fmt.Sprintf("the method is %q, expected %s", httperror.Clip(r.Method), allowed))
}

// paths lists what is served here, for messages.
const paths = "/v1/models, /v1/models/{model}, /v1/models/{model}:decompose, " + streamPath + ", " + outcomesPath +
	", /v1/outcomes:export, /v1/promises, " + clearPath + ", /v2"

// writeError answers with an error as JSON.
func writeError(w http.ResponseWriter, err error) {
	st, code := httperror.Of(err)
	st = resolvable(st)
	httperror.SetHeaders(w.Header(), st)
	w.Header().Set("Content-Type", "application/json")
	data, err := marshal(nil, st.Proto())
	if err != nil { // only if a text is not UTF-8
		data = []byte(`{"code":13,"message":"the error cannot be written as JSON"}`)
	}
	w.WriteHeader(code)
	_, _ = w.Write(append(data, '\n')) // a client that went away needs no answer
}

// resolvable returns a status without details of unknown types, which JSON cannot express.
func resolvable(st *status.Status) *status.Status {
	p := st.Proto()
	kept := p.Details[:0]
	for i, detail := range st.Details() {
		if _, unknown := detail.(error); !unknown {
			kept = append(kept, p.Details[i])
		}
	}
	p.Details = kept
	return status.FromProto(p)
}

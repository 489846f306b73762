package gateway

import (
	"context"
	"fmt"
	"net/http"
	"strings"

	"github.com/grpc-ecosystem/grpc-gateway/v2/runtime"
	"google.golang.org/grpc/codes"
	"google.golang.org/grpc/status"

	"github.com/ckd-project/ckd/internal/httperror"
)

// fault is what is wrong with a request before any call.
type fault = httperror.Fault

// handleError answers with a google.rpc.Status. What is wrong with the body goes before what the generated handler made
// of it.
func handleError(ctx context.Context, _ *runtime.ServeMux, _ runtime.Marshaler, w http.ResponseWriter, _ *http.Request, err error) {
	if fault := callOf(ctx).body.fault; fault != nil {
		err = fault
	}
	writeError(w, err)
}

// handleStreamError is what the last line of a stream's answer says.
func handleStreamError(ctx context.Context, err error) *status.Status {
	st := resolvable(status.Convert(err))
	httperror.SetHeaders(callOf(ctx).writer.Header(), st)
	return st
}

// handleRoutingError answers where nothing is.
func handleRoutingError(_ context.Context, _ *runtime.ServeMux, _ runtime.Marshaler, w http.ResponseWriter, r *http.Request, code int) {
	if code == http.StatusMethodNotAllowed {
		writeError(w, wrongMethod(w, r))
		return
	}
	writeError(w, httperror.New(http.StatusNotFound, codes.NotFound,
		fmt.Sprintf("nothing is at %q, expected one of %s", httperror.Clip(r.URL.Path), paths)))
}

func wrongMethod(w http.ResponseWriter, r *http.Request) *fault {
	allowed := http.MethodGet
	if r.URL.Path == streamPath || strings.HasSuffix(r.URL.Path, decomposeVerb) {
		allowed = http.MethodPost
	}
	w.Header().Set("Allow", allowed)
	return httperror.New(http.StatusMethodNotAllowed, codes.Unimplemented,
		fmt.Sprintf("the method is %q, expected %s", httperror.Clip(r.Method), allowed))
}

// paths is all that is here, for those who look for something else.
const paths = "/v1/models, /v1/models/{model}, /v1/models/{model}:decompose, " + streamPath + ", /v2"

// writeError answers with an error.
func writeError(w http.ResponseWriter, err error) {
	st, code := httperror.Of(err)
	st = resolvable(st)
	httperror.SetHeaders(w.Header(), st)
	w.Header().Set("Content-Type", "application/json")
	data, err := marshal(nil, st.Proto())
	if err != nil { // only for a text that is no UTF-8
		data = []byte(`{"code":13,"message":"the error cannot be told in JSON"}`)
	}
	w.WriteHeader(code)
	_, _ = w.Write(append(data, '\n')) // a client that went away needs no answer
}

// resolvable is a status without the details that are of types unknown here, which JSON could not tell.
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

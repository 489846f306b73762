package httperror

import (
	"errors"
	"net/http"
	"strconv"
	"strings"
	"time"

	"github.com/grpc-ecosystem/grpc-gateway/v2/runtime"
	"google.golang.org/genproto/googleapis/rpc/errdetails"
	"google.golang.org/grpc/codes"
	"google.golang.org/grpc/status"
	"google.golang.org/protobuf/types/known/durationpb"
)

// Fault is what is wrong with a request before any call: a status, and the HTTP status that says it best.
type Fault struct {
	HTTP   int
	Status *status.Status
}

// New is a fault.
func New(httpStatus int, code codes.Code, message string) *Fault {
	return &Fault{httpStatus, status.New(code, message)}
}

// Invalid is the fault of a request that does not say what it should.
func Invalid(message string) *Fault {
	return New(http.StatusBadRequest, codes.InvalidArgument, message)
}

// WithRetry says that the same request may well be answered a second later.
func (f *Fault) WithRetry() *Fault {
	if st, err := f.Status.WithDetails(&errdetails.RetryInfo{RetryDelay: durationpb.New(time.Second)}); err == nil {
		f.Status = st
	}
	return f
}

// Error implements error.
func (f *Fault) Error() string { return f.Status.Message() }

// GRPCStatus is the status, for package status.
func (f *Fault) GRPCStatus() *status.Status { return f.Status }

// Of is the status of any error, and the HTTP status that it is answered with.
func Of(err error) (*status.Status, int) {
	var f *Fault
	if errors.As(err, &f) {
		return f.Status, f.HTTP
	}
	st := status.Convert(err)
	return st, runtime.HTTPStatusFromCode(st.Code())
}

// SetHeaders says what HTTP says of errors in headers.
func SetHeaders(h http.Header, st *status.Status) {
	if st.Code() == codes.Unauthenticated {
		h.Set("WWW-Authenticate", "Bearer")
	}
	for _, detail := range st.Details() {
		if retry, ok := detail.(*errdetails.RetryInfo); ok {
			seconds := (retry.GetRetryDelay().AsDuration() + time.Second - 1) / time.Second
			h.Set("Retry-After", strconv.Itoa(int(max(seconds, 1))))
		}
	}
}

// clipBytes is how much of a text of a client's is said again.
const clipBytes = 200

// Clip cuts a text of a client's to what may be said again.
func Clip(text string) string {
	if len(text) > clipBytes {
		text = text[:clipBytes] + "..."
	}
	return strings.ToValidUTF8(text, "\ufffd")
}

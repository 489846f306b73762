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
)

// Error describes what is wrong with a request before it becomes a call: a gRPC status, and the
// HTTP status that says it best.
type Error struct {
	HTTP   int
	Status *status.Status
}

// New returns an error with a message for the client.
func New(httpStatus int, code codes.Code, message string) *Error {
	return &Error{httpStatus, status.New(code, message)}
}

// Invalid returns the error of a malformed request.
func Invalid(message string) *Error {
	return New(http.StatusBadRequest, codes.InvalidArgument, message)
}

// Error returns the message.
func (f *Error) Error() string { return f.Status.Message() }

// GRPCStatus returns the status. Package status asks for it.
func (f *Error) GRPCStatus() *status.Status { return f.Status }

// Of returns the gRPC status of any error, and the HTTP status to answer it with.
func Of(err error) (*status.Status, int) {
	var f *Error
	if errors.As(err, &f) {
		return f.Status, f.HTTP
	}
	st := status.Convert(err)
	return st, runtime.HTTPStatusFromCode(st.Code())
}

// SetHeaders sets the headers that belong to an error: WWW-Authenticate and Retry-After.
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

// clipBytes bounds how much of a client's text a message repeats.
const clipBytes = 200

// Clip cuts a client's text to the length that a message may repeat, and makes it UTF-8.
func Clip(text string) string {
	if len(text) > clipBytes {
		text = text[:clipBytes] + "..."
	}
	return strings.ToValidUTF8(text, "\ufffd")
}

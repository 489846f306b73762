package server

import (
	"errors"
	"fmt"
	"slices"
	"strconv"
	"strings"

	"google.golang.org/genproto/googleapis/rpc/errdetails"
	"google.golang.org/grpc/codes"
	"google.golang.org/grpc/status"
	"google.golang.org/protobuf/protoadapt"

	"github.com/ckd-project/ckd/decomp"
	ckdv1 "github.com/ckd-project/ckd/proto/ckd/v1"
)

// errorDomain is the domain of every google.rpc.ErrorInfo from here.
const errorDomain = "ckd.v1"

// fault is what a client did wrong, in the words of the wire.
type fault struct {
	reason ckdv1.ErrorReason
	// field of the message, in the notation of google.rpc.BadRequest.
	field           string
	message         string
	value, expected string
}

func (f *fault) Error() string { return f.message }

// location says which input a fault is about; its zero value, none.
type location struct {
	input       string // the client's id
	group       uint64
	row         int
	hasGroup    bool
	hasPosition bool     // row is meant
	classes     []string // of the model, to name the class of a value
}

// reasonWord is a reason as labels and logs write it: not_finite.
func reasonWord(r ckdv1.ErrorReason) string { return strings.ToLower(reasonName(r)) }

// reasonName is a reason as google.rpc.ErrorInfo has it: NOT_FINITE.
func reasonName(r ckdv1.ErrorReason) string { return strings.TrimPrefix(r.String(), "ERROR_REASON_") }

// RejectReasons is every word that the label reason of rejected inputs can have.
func RejectReasons() []string {
	var words []string
	for number := range ckdv1.ErrorReason_name {
		if number != 0 {
			words = append(words, reasonWord(ckdv1.ErrorReason(number)))
		}
	}
	slices.Sort(words)
	return words
}

// MessageReasons is every word that the label reason of refused messages can have.
func MessageReasons() []string {
	var words []string
	for _, r := range []ckdv1.ErrorReason{
		ckdv1.ErrorReason_ERROR_REASON_EMPTY_MESSAGE, ckdv1.ErrorReason_ERROR_REASON_HEADER_CHANGED,
		ckdv1.ErrorReason_ERROR_REASON_UNKNOWN_GROUP, ckdv1.ErrorReason_ERROR_REASON_GROUP_OPEN,
		ckdv1.ErrorReason_ERROR_REASON_ROW_OUT_OF_RANGE, ckdv1.ErrorReason_ERROR_REASON_TOO_MANY_INPUTS,
		ckdv1.ErrorReason_ERROR_REASON_REPLY_TOO_LARGE,
	} {
		words = append(words, reasonWord(r))
	}
	return words
}

// reasonOf is the reason of any error that handling an input can give.
func reasonOf(err error) ckdv1.ErrorReason {
	var f *fault
	if errors.As(err, &f) {
		return f.reason
	}
	var row *decomp.RowError
	if errors.As(err, &row) {
		switch row.Fault {
		case decomp.NotFinite, decomp.SumNotFinite:
			return ckdv1.ErrorReason_ERROR_REASON_NOT_FINITE
		case decomp.Negative:
			return ckdv1.ErrorReason_ERROR_REASON_NEGATIVE
		case decomp.AboveOne:
			return ckdv1.ErrorReason_ERROR_REASON_ABOVE_ONE
		case decomp.SumNotOne:
			return ckdv1.ErrorReason_ERROR_REASON_SUM_NOT_ONE
		case decomp.NotPositive:
			return ckdv1.ErrorReason_ERROR_REASON_NOT_POSITIVE
		case decomp.WrongClasses:
			return ckdv1.ErrorReason_ERROR_REASON_WRONG_LENGTH
		}
	}
	var passes *decomp.PassesError
	if errors.As(err, &passes) {
		if passes.Got < passes.Least {
			return ckdv1.ErrorReason_ERROR_REASON_TOO_FEW_PASSES
		}
		return ckdv1.ErrorReason_ERROR_REASON_TOO_MANY_PASSES
	}
	var shape *decomp.ShapeError
	if errors.As(err, &shape) {
		return ckdv1.ErrorReason_ERROR_REASON_WRONG_LENGTH
	}
	return ckdv1.ErrorReason_ERROR_REASON_INTERNAL
}

// codeOf is the gRPC code of a reason.
func codeOf(r ckdv1.ErrorReason) codes.Code {
	switch r {
	case ckdv1.ErrorReason_ERROR_REASON_INTERNAL, ckdv1.ErrorReason_ERROR_REASON_UNSPECIFIED:
		return codes.Internal
	case ckdv1.ErrorReason_ERROR_REASON_UNKNOWN_MODEL, ckdv1.ErrorReason_ERROR_REASON_UNKNOWN_GROUP:
		return codes.NotFound
	case ckdv1.ErrorReason_ERROR_REASON_DUPLICATE_ID, ckdv1.ErrorReason_ERROR_REASON_GROUP_OPEN:
		return codes.AlreadyExists
	case ckdv1.ErrorReason_ERROR_REASON_ROW_OUT_OF_RANGE:
		return codes.OutOfRange
	case ckdv1.ErrorReason_ERROR_REASON_POLICY_CHANGED:
		return codes.FailedPrecondition
	case ckdv1.ErrorReason_ERROR_REASON_DRAINING:
		return codes.Unavailable
	case ckdv1.ErrorReason_ERROR_REASON_INPUT_IDLE:
		return codes.DeadlineExceeded
	case ckdv1.ErrorReason_ERROR_REASON_TOO_MANY_STREAMS, ckdv1.ErrorReason_ERROR_REASON_TOO_MANY_INPUTS,
		ckdv1.ErrorReason_ERROR_REASON_TOO_MANY_GROUPS, ckdv1.ErrorReason_ERROR_REASON_OUT_OF_MEMORY_BUDGET,
		ckdv1.ErrorReason_ERROR_REASON_SEND_STALLED, ckdv1.ErrorReason_ERROR_REASON_REPLY_TOO_LARGE:
		return codes.ResourceExhausted
	}
	return codes.InvalidArgument
}

// statusOf maps any error to the status that a client sees. It is the only
// place where that happens. What is not the client's doing becomes Internal
// with a fixed text; its cause belongs in the log.
func statusOf(err error, at location) *status.Status {
	reason := reasonOf(err)
	code := codeOf(reason)
	if code == codes.Internal {
		return withDetails(status.New(code, "internal error; the daemon's log has its cause"),
			&errdetails.ErrorInfo{Reason: reasonName(reason), Domain: errorDomain})
	}
	info := &errdetails.ErrorInfo{Reason: reasonName(reason), Domain: errorDomain, Metadata: map[string]string{}}
	violation := &errdetails.BadRequest_FieldViolation{Description: err.Error(), Reason: reasonName(reason)}

	set := func(key, value string) {
		if value != "" {
			info.Metadata[key] = clip(value)
		}
	}
	var path []string
	set("input", at.input)
	if at.hasGroup {
		set("group", strconv.FormatUint(at.group, 10))
		path = append(path, fmt.Sprintf("groups[%d]", at.group))
	}
	if at.hasPosition {
		set("row", strconv.Itoa(at.row))
		path = append(path, fmt.Sprintf("inputs[%d]", at.row))
	}
	var f *fault
	var row *decomp.RowError
	var passes *decomp.PassesError
	var shape *decomp.ShapeError
	switch {
	case errors.As(err, &f):
		set("value", f.value)
		set("expected", f.expected)
		if f.field != "" {
			path = append(path, f.field)
		}
	case errors.As(err, &row):
		set("pass", strconv.Itoa(row.Pass))
		set("value", strconv.FormatFloat(row.Value, 'g', -1, 64))
		set("expected", row.Expected)
		path = append(path, fmt.Sprintf("passes[%d]", row.Pass))
		if row.Class >= 0 {
			set("class", strconv.Itoa(row.Class))
			if row.Class < len(at.classes) {
				set("class_name", at.classes[row.Class])
			}
			path = append(path, fmt.Sprintf("classes[%d]", row.Class))
		}
	case errors.As(err, &passes):
		set("value", strconv.Itoa(passes.Got))
		set("expected", passes.Expected())
		path = append(path, "passes")
	case errors.As(err, &shape):
		set("value", strconv.Itoa(shape.Got))
		set("expected", shape.Expected())
		path = append(path, "values")
	}
	violation.Field = strings.Join(path, ".")

	message := err.Error()
	switch {
	case at.input != "":
		message = fmt.Sprintf("input %q: %s", clip(at.input), message)
	case at.hasGroup && at.hasPosition:
		message = fmt.Sprintf("group %d, row %d: %s", at.group, at.row, message)
	case at.hasPosition:
		message = fmt.Sprintf("input %d: %s", at.row, message)
	case at.hasGroup:
		message = fmt.Sprintf("group %d: %s", at.group, message)
	}
	return withDetails(status.New(code, message), info,
		&errdetails.BadRequest{FieldViolations: []*errdetails.BadRequest_FieldViolation{violation}})
}

// clipBytes is how much of a text of a client's is said again: statuses travel
// in headers, and lines of the log are read by people.
const clipBytes = 120

// clip cuts a text to clipBytes.
func clip(text string) string {
	if len(text) <= clipBytes {
		return text
	}
	return strings.ToValidUTF8(text[:clipBytes], "") + "..."
}

func withDetails(st *status.Status, details ...protoadapt.MessageV1) *status.Status {
	full, err := st.WithDetails(details...)
	if err != nil { // only for code OK, or messages that cannot be marshalled
		return st
	}
	return full
}

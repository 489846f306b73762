package server

import (
	"errors"
	"fmt"
	"slices"
	"strconv"
	"strings"
	"time"

	"google.golang.org/genproto/googleapis/rpc/errdetails"
	"google.golang.org/grpc/codes"
	"google.golang.org/grpc/status"
	"google.golang.org/protobuf/protoadapt"
	"google.golang.org/protobuf/types/known/durationpb"

	"github.com/ckd-project/ckd/decomp"
	ckdv1 "github.com/ckd-project/ckd/proto/ckd/v1"
)

// errorDomain is the domain of every google.rpc.ErrorInfo of the API.
const errorDomain = "ckd.v1"

// fault describes what a client did wrong, in terms of the API.
type fault struct {
	reason          ckdv1.ErrorReason
	field           string // field of the message, in the notation of google.rpc.BadRequest
	message         string
	value, expected string
	row             *decomp.RowError // set if a row is at fault
	numbers         bool             // the message has no word of the client, so the log may repeat it
	classes         bool             // each row has the wrong classes; faultOfPasses adds the passes
	retry           time.Duration    // when to try again; 0 means that trying again will not help
}

func (f *fault) Error() string { return f.message }

// Delays after which a client may try again what there is no room for now. They are about as long
// as calls, results and streams take to make room.
const (
	retryCall   = 100 * time.Millisecond
	retryBudget = 250 * time.Millisecond
	retryStream = time.Second
	retryMemory = time.Second
)

// overLimit returns the fault of a number that exceeds a limit.
func overLimit(reason ckdv1.ErrorReason, field, what string, got, limit int64) *fault {
	return &fault{
		reason: reason, field: field, value: fmt.Sprint(got), expected: fmt.Sprintf("at most %d", limit),
		message: fmt.Sprintf("%d %s, over the limit of %d", got, what, limit),
	}
}

// mismatch returns the fault of a field that does not have what was expected.
func mismatch(reason ckdv1.ErrorReason, field, got, expected string) *fault {
	return &fault{
		reason: reason, field: field, value: got, expected: expected,
		message: fmt.Sprintf("%s: got %s, expected %s", field, clip(got), expected),
	}
}

// wrongLength returns the fault of values that are not the given passes and rows of a model's
// classes. If they fit another number of classes, it says which.
func wrongLength(m *model, got, passes, rows int) *fault {
	name, width := m.Policy().Name, len(m.Policy().Classes)
	f := &fault{
		reason: ckdv1.ErrorReason_ERROR_REASON_WRONG_LENGTH, field: "values", value: fmt.Sprint(got), numbers: true,
		message:  fmt.Sprintf("%d values, expected %d passes x %d rows x %d classes", got, passes, rows, width),
		expected: fmt.Sprintf("%d passes x %d rows x %d classes", passes, rows, width),
	}
	if each := passes * rows; each > 0 && got > 0 && got%each == 0 {
		f.classes = true
		f.value, f.expected = fmt.Sprintf("%d classes", got/each), fmt.Sprintf("%d classes", width)
		f.message = fmt.Sprintf("found %d classes, expected %d, as the policy of model %q has (%d values for %d passes x %d rows)",
			got/each, width, name, got, passes, rows)
	}
	return f
}

// location says which input a fault is about. Its zero value names none.
type location struct {
	input       string // the client's id
	group       uint64
	row         int
	hasGroup    bool
	hasPosition bool     // row is set
	classes     []string // names of the classes of the model
}

// reasonWord returns a reason as labels and logs write it: not_finite.
func reasonWord(r ckdv1.ErrorReason) string { return strings.ToLower(reasonName(r)) }

// reasonName returns a reason as google.rpc.ErrorInfo has it: NOT_FINITE.
func reasonName(r ckdv1.ErrorReason) string { return strings.TrimPrefix(r.String(), "ERROR_REASON_") }

// RejectReasons returns every value that the label reason of rejected inputs can have.
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

// reasonOf returns the reason of any error that handling an input can give.
func reasonOf(err error) ckdv1.ErrorReason { return faultOf(err).reason }

// rowReasons maps the faults of rows to reasons of the API.
var rowReasons = map[decomp.RowFault]ckdv1.ErrorReason{
	decomp.NotFinite:    ckdv1.ErrorReason_ERROR_REASON_NOT_FINITE,
	decomp.SumNotFinite: ckdv1.ErrorReason_ERROR_REASON_NOT_FINITE,
	decomp.Negative:     ckdv1.ErrorReason_ERROR_REASON_NEGATIVE,
	decomp.AboveOne:     ckdv1.ErrorReason_ERROR_REASON_ABOVE_ONE,
	decomp.SumNotOne:    ckdv1.ErrorReason_ERROR_REASON_SUM_NOT_ONE,
	decomp.NotPositive:  ckdv1.ErrorReason_ERROR_REASON_NOT_POSITIVE,
	decomp.NotLogits:    ckdv1.ErrorReason_ERROR_REASON_NOT_LOGITS,
	decomp.WrongClasses: ckdv1.ErrorReason_ERROR_REASON_WRONG_LENGTH,
}

// faultOf turns any error that handling an input can give into a fault. Errors that no client
// caused become INTERNAL.
func faultOf(err error) *fault {
	var (
		f      *fault
		row    *decomp.RowError
		passes *decomp.PassesError
		shape  *decomp.ShapeError
	)
	switch {
	case errors.As(err, &f):
		return f
	case errors.As(err, &row):
		field := "passes"
		if row.Pass >= 0 {
			field = fmt.Sprintf("passes[%d]", row.Pass)
		}
		if row.Class >= 0 {
			field += fmt.Sprintf(".classes[%d]", row.Class)
		}
		return &fault{
			reason: rowReasons[row.Fault], field: field, message: row.Error(),
			value: strconv.FormatFloat(row.Value, 'g', -1, 64), expected: row.Expected, row: row,
		}
	case errors.As(err, &passes):
		reason := ckdv1.ErrorReason_ERROR_REASON_TOO_MANY_PASSES
		if passes.Got < passes.Least {
			reason = ckdv1.ErrorReason_ERROR_REASON_TOO_FEW_PASSES
		}
		return &fault{
			reason: reason, field: "passes", message: passes.Error(),
			value: strconv.Itoa(passes.Got), expected: passes.Expected(),
		}
	case errors.As(err, &shape):
		return &fault{
			reason: ckdv1.ErrorReason_ERROR_REASON_WRONG_LENGTH, field: "values", message: shape.Error(),
			value: strconv.Itoa(shape.Got), expected: shape.Expected(),
		}
	}
	return &fault{reason: ckdv1.ErrorReason_ERROR_REASON_INTERNAL}
}

// codeOf returns the gRPC code of a reason.
func codeOf(r ckdv1.ErrorReason) codes.Code {
	switch r {
	case ckdv1.ErrorReason_ERROR_REASON_INTERNAL, ckdv1.ErrorReason_ERROR_REASON_UNSPECIFIED:
		return codes.Internal
	case ckdv1.ErrorReason_ERROR_REASON_UNKNOWN_MODEL, ckdv1.ErrorReason_ERROR_REASON_UNKNOWN_GROUP,
		ckdv1.ErrorReason_ERROR_REASON_UNKNOWN_PROMISE:
		return codes.NotFound
	case ckdv1.ErrorReason_ERROR_REASON_DUPLICATE_ID, ckdv1.ErrorReason_ERROR_REASON_GROUP_OPEN:
		return codes.AlreadyExists
	case ckdv1.ErrorReason_ERROR_REASON_ROW_OUT_OF_RANGE:
		return codes.OutOfRange
	case ckdv1.ErrorReason_ERROR_REASON_POLICY_CHANGED, ckdv1.ErrorReason_ERROR_REASON_RECEIPTS_UNAVAILABLE:
		return codes.FailedPrecondition
	case ckdv1.ErrorReason_ERROR_REASON_DRAINING, ckdv1.ErrorReason_ERROR_REASON_LEDGER_UNAVAILABLE,
		ckdv1.ErrorReason_ERROR_REASON_KEYS_UNAVAILABLE:
		return codes.Unavailable
	case ckdv1.ErrorReason_ERROR_REASON_INPUT_IDLE:
		return codes.DeadlineExceeded
	case ckdv1.ErrorReason_ERROR_REASON_TOO_MANY_STREAMS, ckdv1.ErrorReason_ERROR_REASON_TOO_MANY_INPUTS,
		ckdv1.ErrorReason_ERROR_REASON_TOO_MANY_GROUPS, ckdv1.ErrorReason_ERROR_REASON_OUT_OF_MEMORY_BUDGET,
		ckdv1.ErrorReason_ERROR_REASON_SEND_STALLED, ckdv1.ErrorReason_ERROR_REASON_REPLY_TOO_LARGE,
		ckdv1.ErrorReason_ERROR_REASON_OVERLOADED:
		return codes.ResourceExhausted
	case ckdv1.ErrorReason_ERROR_REASON_UNAUTHENTICATED:
		return codes.Unauthenticated
	case ckdv1.ErrorReason_ERROR_REASON_NOT_ALLOWED:
		return codes.PermissionDenied
	}
	return codes.InvalidArgument
}

// statusOf maps any error to the status that a client sees. It is the only place where that
// happens. Errors that no client caused become Internal with a fixed text; their cause belongs in
// the log.
func statusOf(err error, at location) *status.Status {
	f := faultOf(err)
	code := codeOf(f.reason)
	info := &errdetails.ErrorInfo{Reason: reasonName(f.reason), Domain: errorDomain}
	if code == codes.Internal {
		return withDetails(status.New(code, "internal error; the daemon's log has its cause"), info)
	}
	info.Metadata = map[string]string{}
	set := func(key, value string) {
		if value != "" {
			info.Metadata[key] = clip(value)
		}
	}
	var path, names []string // the location, for programs and for people
	if at.hasGroup {
		set("group", strconv.FormatUint(at.group, 10))
		path = append(path, fmt.Sprintf("groups[%d]", at.group))
		names = append(names, fmt.Sprintf("group %d", at.group))
	}
	if at.hasPosition {
		set("row", strconv.Itoa(at.row))
		path = append(path, fmt.Sprintf("inputs[%d]", at.row))
		names = append(names, fmt.Sprintf("input %d", at.row))
	}
	if at.input != "" {
		set("input", at.input)
		names = []string{fmt.Sprintf("input %q", clip(at.input))}
	}
	message := f.message
	if len(names) > 0 {
		message = strings.Join(names, ", ") + ": " + message
	}
	set("value", f.value)
	set("expected", f.expected)
	if row := f.row; row != nil {
		if row.Pass >= 0 {
			set("pass", strconv.Itoa(row.Pass))
		}
		if row.Class >= 0 {
			set("class", strconv.Itoa(row.Class))
			if row.Class < len(at.classes) {
				set("class_name", at.classes[row.Class])
			}
		}
	}
	if f.field != "" {
		path = append(path, f.field)
	}
	details := []protoadapt.MessageV1{info, &errdetails.BadRequest{
		FieldViolations: []*errdetails.BadRequest_FieldViolation{{
			Field: strings.Join(path, "."), Description: f.message, Reason: reasonName(f.reason),
		}},
	}}
	if f.retry > 0 {
		details = append(details, &errdetails.RetryInfo{RetryDelay: durationpb.New(f.retry)})
	}
	return withDetails(status.New(code, message), details...)
}

// clipBytes bounds how much of a client's text is repeated: statuses travel in headers, and people
// read the log.
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
	if err != nil { // code OK, or details that cannot be marshalled
		return st
	}
	return full
}

package server

import (
	"context"
	"strconv"
	"sync"
	"time"

	"github.com/grpc-ecosystem/go-grpc-middleware/v2/interceptors/logging"
	"go.uber.org/zap"
	"google.golang.org/grpc"
	"google.golang.org/grpc/codes"
	"google.golang.org/grpc/status"

	"github.com/ckd-project/ckd/internal/access"
	ckdv1 "github.com/ckd-project/ckd/proto/ckd/v1"
)

// Refusals logs what is refused outside streams: the first time at once, and after that
// once a minute with how many there were, for each model, identity and reason.
type Refusals struct {
	log   *zap.Logger
	after func(time.Duration, func()) // calls back later

	mu   sync.Mutex
	more map[refusal]int // since the last line; a refusal without a line in the last minute is not there
}

// NewRefusals returns Refusals without any.
func NewRefusals(log *zap.Logger) *Refusals {
	return &Refusals{
		log: log, more: map[refusal]int{},
		after: func(d time.Duration, f func()) { time.AfterFunc(d, f) },
	}
}

// refusal is what has a line of its own. All of it comes from policies, the access file and
// enums, never from clients.
type refusal struct{ what, model, identity, reason string }

const (
	refusedCall, refusedInputs, refusedHTTP = "calls were refused", "inputs were refused", "HTTP requests were refused"

	refusalInterval = time.Minute
	mostRefusals    = 4096 // told apart at one time; further ones share a line for each reason
)

// Call counts a call that was refused. The fields are of the first line alone.
func (r *Refusals) Call(identity, reason string, fields ...zap.Field) {
	r.add(refusal{refusedCall, "", identity, reason}, 1, fields...)
}

// HTTP counts an HTTP request that was refused with a status before it became a call. The
// fields are of the first line alone.
func (r *Refusals) HTTP(code int, fields ...zap.Field) {
	r.add(refusal{refusedHTTP, "", "", strconv.Itoa(code)}, 1, fields...)
}

func (r *Refusals) add(what refusal, n int, fields ...zap.Field) {
	r.mu.Lock()
	if _, known := r.more[what]; !known && len(r.more) >= mostRefusals {
		what.model, what.identity, fields = "", "", nil
	}
	_, known := r.more[what]
	if known {
		r.more[what] += n
	} else {
		r.more[what] = 0
	}
	r.mu.Unlock()
	if !known {
		r.tell(what, n, fields...)
		r.after(refusalInterval, func() { r.flush(what) })
	}
}

// flush writes the line of what was refused since the last one.
func (r *Refusals) flush(what refusal) {
	r.mu.Lock()
	n := r.more[what]
	if n == 0 {
		delete(r.more, what)
	} else {
		r.more[what] = 0
	}
	r.mu.Unlock()
	if n > 0 {
		r.tell(what, n)
		r.after(refusalInterval, func() { r.flush(what) })
	}
}

func (r *Refusals) tell(what refusal, n int, fields ...zap.Field) {
	all := []zap.Field{zap.String("reason", what.reason), zap.Int("count", n)}
	if what.model != "" {
		all = append(all, zap.String("model", what.model))
	}
	if what.identity != "" {
		all = append(all, zap.String("identity", what.identity))
	}
	r.log.Warn(what.what+"; further ones for this reason are told once a minute", append(all, fields...)...)
}

// refusedInputs counts the inputs of a call that were refused, each reason by itself.
type refusedOfCall map[ckdv1.ErrorReason]*refusedFirst

// refusedFirst is the first input that was refused for a reason, and how many were.
type refusedFirst struct {
	row, count int
	err        error
}

func (c *refusedOfCall) add(row int, err error) {
	if *c == nil {
		*c = refusedOfCall{}
	}
	reason := reasonOf(err)
	if (*c)[reason] == nil {
		(*c)[reason] = &refusedFirst{row: row, err: err}
	}
	(*c)[reason].count++
}

// tellRefused logs the inputs of a call that were refused.
func (s *Server) tellRefused(ctx context.Context, m *model, inputs refusedOfCall) {
	for reason, first := range inputs {
		what := refusal{refusedInputs, m.ref.GetModel(), access.FromContext(ctx).Name(), reasonWord(reason)}
		s.refusals.add(what, first.count, faultDetails(ctx, location{row: first.row, hasPosition: true}, first.err)...)
	}
}

// callKey is the context's key of a unary call's refusedAs.
type callKey struct{}

// refusedAs is what the handler of a unary call knows of its refusal.
type refusedAs struct {
	model  string      // empty: none that is served
	fields []zap.Field // beside the request's own
}

// noteModel notes the model of a unary call for its line in the log.
func noteModel(ctx context.Context, m *model) {
	if as, ok := ctx.Value(callKey{}).(*refusedAs); ok {
		as.model = m.ref.GetModel()
	}
}

// refuseCall notes why a unary call, or a message that is a call of its own, is refused.
func (s *Server) refuseCall(ctx context.Context, m *model, err error) {
	as, unary := ctx.Value(callKey{}).(*refusedAs)
	switch {
	case unary: // its interceptor logs it
		as.fields = faultDetails(ctx, location{}, err)
	case codeOf(reasonOf(err)) != codes.Internal:
		name := ""
		if m != nil {
			name = m.ref.GetModel()
		}
		s.refusals.add(refusal{refusedCall, name, access.FromContext(ctx).Name(), reasonWord(reasonOf(err))}, 1,
			faultDetails(ctx, location{}, err)...)
	}
}

// tellUnary is the interceptor that counts unary calls that are refused.
func (s *Server) tellUnary(ctx context.Context, req any, info *grpc.UnaryServerInfo, handler grpc.UnaryHandler) (any, error) {
	as := &refusedAs{}
	response, err := handler(context.WithValue(ctx, callKey{}, as), req)
	if st := status.Convert(err); levelOf(st.Code()) == logging.LevelWarn {
		fields := as.fields
		if fields == nil {
			fields = zapFields(logging.ExtractFields(ctx))
		}
		s.refusals.add(refusal{refusedCall, as.model, access.FromContext(ctx).Name(), reasonOfStatus(st)}, 1,
			append(fields, zap.String("method", info.FullMethod))...)
	}
	return response, err
}

// reasonOfStatus returns the reason that a status has in its details, or else its code.
func reasonOfStatus(st *status.Status) string {
	if fields := faultFields(st.Err()); len(fields) > 1 {
		return fields[1].(string)
	}
	return st.Code().String()
}

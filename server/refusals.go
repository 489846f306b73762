package server

import (
	"context"
	"strconv"
	"sync"
	"time"

	"go.uber.org/zap"
	"google.golang.org/grpc/codes"
	"google.golang.org/grpc/status"

	"github.com/ckd-project/ckd/internal/auth"
)

// Refusals logs what is refused. For each model, identity and reason it logs the first refusal at once,
// and then once a minute how many there were.
type Refusals struct {
	log   *zap.Logger
	after func(time.Duration, func()) // calls a function later

	mu   sync.Mutex
	more map[refusal]int // refusals since the last line, for those with a line in the last minute
}

// NewRefusals returns Refusals that write to a log.
func NewRefusals(log *zap.Logger) *Refusals {
	return &Refusals{
		log: log, more: map[refusal]int{},
		after: func(d time.Duration, f func()) { time.AfterFunc(d, f) },
	}
}

// refusal identifies what has a line of its own. Its fields come from policies, the access file and
// enums, never from clients.
type refusal struct{ what, model, identity, reason string }

const (
	refusedCall, refusedInputs, refusedHTTP = "calls were refused", "inputs were refused", "HTTP requests were refused"

	refusalInterval = time.Minute
	mostRefusals    = 4096 // bounds more; further refusals share a line for each reason
)

// Call counts a refused call. Only the first line has the fields.
func (r *Refusals) Call(identity, reason string, fields ...zap.Field) {
	r.add(refusal{refusedCall, "", identity, reason}, func() []zap.Field { return fields })
}

// HTTP counts an HTTP request that was refused with a status before it became a call. Only the
// first line has the fields.
func (r *Refusals) HTTP(code int, fields ...zap.Field) {
	r.add(refusal{refusedHTTP, "", "", strconv.Itoa(code)}, func() []zap.Field { return fields })
}

// input counts a refused input, or a refused message of a stream.
func (r *Refusals) input(ctx context.Context, m *model, at location, err error) {
	r.add(refusal{refusedInputs, m.ref.GetModel(), auth.FromContext(ctx).Name(), reasonWord(reasonOf(err))},
		func() []zap.Field { return faultDetails(ctx, at, err) })
}

// add counts a refusal, and logs it with its fields if it is the first of its kind in a minute.
func (r *Refusals) add(what refusal, fields func() []zap.Field) {
	r.mu.Lock()
	more, known := r.more[what]
	full := !known && len(r.more) >= mostRefusals
	if full {
		what.model, what.identity = "", ""
		more, known = r.more[what]
	}
	if known {
		more++
	}
	r.more[what] = more
	r.mu.Unlock()
	switch {
	case known:
		return
	case full:
		r.write(what, 1)
	default:
		r.write(what, 1, fields()...)
	}
	r.after(refusalInterval, func() { r.flush(what) })
}

// flush logs what was refused since the last line.
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
		r.write(what, n)
		r.after(refusalInterval, func() { r.flush(what) })
	}
}

// write logs refusals of one kind.
func (r *Refusals) write(what refusal, n int, fields ...zap.Field) {
	all := []zap.Field{zap.String("reason", what.reason), zap.Int("count", n)}
	if what.model != "" {
		all = append(all, zap.String("model", what.model))
	}
	if what.identity != "" {
		all = append(all, zap.String("identity", what.identity))
	}
	r.log.Warn(what.what+"; further ones for this reason are logged once a minute", append(all, fields...)...)
}

// noteModel notes the model of a unary call for its line in the log.
func noteModel(ctx context.Context, m *model) {
	if c := callOf(ctx); c != nil && !c.streams {
		c.model = m.ref.GetModel()
	}
}

// call notes why a call is refused: a unary call in its callInfo, to be logged when it ends, and
// a message of a stream that is a call of its own at once.
func (r *Refusals) call(ctx context.Context, m *model, err error) {
	c := callOf(ctx)
	switch {
	case c != nil && !c.streams:
		c.refusal = faultDetails(ctx, location{}, err)
	case codeOf(reasonOf(err)) != codes.Internal:
		name := ""
		if m != nil {
			name = m.ref.GetModel()
		}
		r.add(refusal{refusedCall, name, auth.FromContext(ctx).Name(), reasonWord(reasonOf(err))},
			func() []zap.Field { return faultDetails(ctx, location{}, err) })
	}
}

// finished counts a call that was refused and has no line of its own.
func (r *Refusals) finished(ctx context.Context, c *callInfo, err error) {
	if c.refusal == nil {
		c.refusal = requestFields(ctx)
	}
	r.add(refusal{refusedCall, c.model, auth.FromContext(ctx).Name(), reasonOrCode(err)},
		func() []zap.Field { return append(c.refusal, zap.String("method", c.method)) })
}

// reasonOrCode returns the reason in the details of an error, or else its code.
func reasonOrCode(err error) string {
	if reason := errorReason(err); reason != "" {
		return reason
	}
	return status.Code(err).String()
}

package server

import (
	"context"
	"strconv"
	"sync"
	"time"

	"go.uber.org/zap"
	"golang.org/x/time/rate"
	"google.golang.org/grpc/codes"
	"google.golang.org/grpc/status"

	"github.com/ckd-project/ckd/internal/auth"
)

// Refusals logs what is refused: one line a minute for each model, identity and reason.
type Refusals struct {
	log *zap.Logger

	mu    sync.Mutex
	lines map[refusal]*rate.Sometimes
}

// NewRefusals returns Refusals that write to a log.
func NewRefusals(log *zap.Logger) *Refusals {
	return &Refusals{log: log, lines: map[refusal]*rate.Sometimes{}}
}

// refusal identifies what has a line of its own. Its fields come from policies, the access file and
// enums, never from clients.
type refusal struct{ what, model, identity, reason string }

const (
	refusedCall, refusedInputs, refusedHTTP = "calls were refused", "inputs were refused", "HTTP requests were refused"

	mostRefusals = 4096 // bounds lines
)

// Call logs a refused call, with fields.
func (r *Refusals) Call(identity, reason string, fields ...zap.Field) {
	r.add(refusal{refusedCall, "", identity, reason}, func() []zap.Field { return fields })
}

// HTTP logs an HTTP request that was refused with a status before it became a call, with fields.
func (r *Refusals) HTTP(code int, fields ...zap.Field) {
	r.add(refusal{refusedHTTP, "", "", strconv.Itoa(code)}, func() []zap.Field { return fields })
}

// input logs a refused input, or a refused message of a stream.
func (r *Refusals) input(ctx context.Context, m *model, at location, err error) {
	r.add(refusal{refusedInputs, m.ref.GetModel(), auth.FromContext(ctx).Name(), reasonWord(reasonOf(err))},
		func() []zap.Field { return faultDetails(ctx, at, err) })
}

// add logs a refusal with its fields, unless one of its kind was logged in the last minute.
func (r *Refusals) add(what refusal, fields func() []zap.Field) {
	r.mu.Lock()
	line := r.lines[what]
	if line == nil {
		if len(r.lines) == mostRefusals {
			clear(r.lines)
		}
		line = &rate.Sometimes{Interval: time.Minute}
		r.lines[what] = line
	}
	r.mu.Unlock()
	line.Do(func() {
		all := []zap.Field{zap.String("reason", what.reason)}
		if what.model != "" {
			all = append(all, zap.String("model", what.model))
		}
		if what.identity != "" {
			all = append(all, zap.String("identity", what.identity))
		}
		r.log.Warn(what.what+"; further ones for this reason within a minute are only counted", append(all, fields()...)...)
	})
}

// call logs why a call, or a message of a stream that is a call of its own, is refused.
func (r *Refusals) call(ctx context.Context, model string, err error) {
	if codeOf(reasonOf(err)) == codes.Internal {
		return // which has a line of its own
	}
	c := callOf(ctx)
	if c != nil && !c.streams {
		c.refusalLogged = true
	}
	r.add(refusal{refusedCall, model, auth.FromContext(ctx).Name(), reasonWord(reasonOf(err))}, func() []zap.Field {
		fields := faultDetails(ctx, location{}, err)
		if c != nil {
			fields = append(fields, zap.String("method", c.method))
		}
		return fields
	})
}

// finished logs a call that was refused and has no line of its own.
func (r *Refusals) finished(ctx context.Context, c *callInfo, err error) {
	if !c.refusalLogged {
		r.add(refusal{refusedCall, "", auth.FromContext(ctx).Name(), reasonOrCode(err)},
			func() []zap.Field { return append(requestFields(ctx), zap.String("method", c.method)) })
	}
}

// reasonOrCode returns the reason in the details of an error, or else its code.
func reasonOrCode(err error) string {
	if reason := errorReason(err); reason != "" {
		return reason
	}
	return status.Code(err).String()
}

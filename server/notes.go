package server

import (
	"context"

	"go.uber.org/zap"

	ckdv1 "github.com/ckd-project/ckd/proto/ckd/v1"
)

// notes logs what is worth a line only once on a stream, or for a call.
type notes struct {
	log       *zap.Logger
	ctx       context.Context // context of the stream or call, with its log fields
	posterior string          // posterior stated by the client

	// Of a stream.
	reasons map[ckdv1.ErrorReason]bool // with a line
	latest  *model                     // model of the group opened last
	logged  *differences               // mismatches already logged for the latest model

	refused refusedOfCall
}

// streamNotes returns the notes of a stream.
func streamNotes(log *zap.Logger, ctx context.Context, posterior string) notes { //nolint:revive // the context is data here
	n := callNotes(log, ctx, posterior)
	n.reasons = map[ckdv1.ErrorReason]bool{}
	return n
}

// callNotes returns the notes of a unary call.
func callNotes(log *zap.Logger, ctx context.Context, posterior string) notes { //nolint:revive // the context is data here
	return notes{log: log, ctx: ctx, posterior: posterior}
}

// fault logs the first fault of each reason on a stream. Those of a call are logged when it ends.
func (n *notes) fault(m *model, place location, err error) {
	if n.reasons == nil {
		n.refused.add(place.row, err)
		return
	}
	if reason := reasonOf(err); !n.reasons[reason] {
		n.reasons[reason] = true
		logFault(n.ctx, n.log, m.ref.GetModel(), reason, place, err)
	}
}

// opened returns the mismatches already logged for a model. A stream may outlive many calibrations:
// a mismatch with the next is logged again.
func (n *notes) opened(m *model) *differences {
	if m != n.latest {
		n.latest, n.logged = m, &differences{}
	}
	return n.logged
}

// compare counts an input that is unlike those that the policy was calibrated on, and logs the first:
// on a stream by what was logged for its group, of calls once a minute.
func (n *notes) compare(m *model, passes int, logged *differences) {
	d := m.calibration.differences(passes, n.posterior)
	if d == (differences{}) {
		return
	}
	m.countDifferent(d)
	if logged == nil {
		m.logCall(n.ctx, n.log, d, passes, n.posterior)
		return
	}
	if d.passes && !logged.passes {
		logged.passes = true
		m.logOtherPasses(n.ctx, n.log, passes)
	}
	if d.posterior && !logged.posterior {
		logged.posterior = true
		m.logOtherPosterior(n.ctx, n.log, n.posterior)
	}
}

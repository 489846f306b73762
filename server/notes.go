package server

import (
	"context"

	"go.uber.org/zap"

	ckdv1 "github.com/ckd-project/ckd/proto/ckd/v1"
)

// notes logs what is worth a line only once on a stream.
type notes struct {
	log       *zap.Logger
	ctx       context.Context // context of the stream, with its log fields
	posterior string          // posterior stated by the client
	reasons   map[ckdv1.ErrorReason]bool
	latest    *model       // model of the group opened last
	logged    *differences // mismatches already logged for the latest model
}

func newNotes(log *zap.Logger, ctx context.Context, posterior string) notes { //nolint:revive // the context is data here
	return notes{log: log, ctx: ctx, posterior: posterior, reasons: map[ckdv1.ErrorReason]bool{}}
}

// fault logs the first fault of each reason.
func (n *notes) fault(m *model, at location, err error) {
	if reason := reasonOf(err); !n.reasons[reason] {
		n.reasons[reason] = true
		logFault(n.ctx, n.log, m.ref.GetModel(), reason, at, err)
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

// compare counts an input that is unlike those that the policy of its group was calibrated on, and
// logs the first.
func (n *notes) compare(g *group, passes int) {
	m := g.model
	d := m.calibration.differences(passes, n.posterior)
	if d == (differences{}) {
		return
	}
	m.countDifferent(d)
	if d.passes && !g.logged.passes {
		g.logged.passes = true
		m.logOtherPasses(n.ctx, n.log, passes)
	}
	if d.posterior && !g.logged.posterior {
		g.logged.posterior = true
		m.logOtherPosterior(n.ctx, n.log, n.posterior)
	}
}

package server

import (
	"context"

	"go.uber.org/zap"
	"google.golang.org/grpc/status"

	"github.com/ckd-project/ckd/engine"
	"github.com/ckd-project/ckd/policy"
)

// answerer settles what became of the inputs of one stream or call, of any protocol: it draws who
// reviews an input, counts the input, and logs what is worth a line. What it returns is only encoded.
type answerer struct {
	issuer   issuer
	counted  counter
	notes    notes
	referred Referred
}

// newAnswerer returns the answerer of a stream or call.
func (d *decider) newAnswerer(ctx context.Context, i issuer, n notes) answerer {
	return answerer{issuer: i, counted: d.newCounter(ctx, i.version), notes: n, referred: d.referred}
}

// decided settles an input that was decided; x is what its client says of it. logged holds the mismatches with the calibration that
// have had a line; nil stands for those of the model. The result is valid until the next.
func (a *answerer) decided(m *model, id []byte, x *inputContext, c *engine.Closing, logged *differences) *issued {
	o := c.Outcome
	drawn := a.issuer.issue(m, a.counted.time(), id, o, c.Early, x)
	a.counted.count(m, o, c.Sampled, drawn)
	a.report(m, id, o, drawn)
	passes := o.Passes
	if c.Early {
		passes = c.Planned // fewer are no difference from what the policy was calibrated on
	}
	a.notes.compare(m, passes, logged)
	a.checked(m, c)
	return drawn
}

// refused settles an input, or a message, that was refused, and returns what the client is told.
func (a *answerer) refused(m *model, place location, err error) *status.Status {
	a.counted.done() // nobody waits for a shard of the metrics while the log is written
	m.metrics.Rejected(reasonWord(reasonOf(err)), 1)
	a.notes.fault(m, place, err)
	return statusOf(err, place)
}

// report calls the hook, if there is one, with an input that goes to a person. It releases the shard
// of the metrics first, so that no other call waits for it meanwhile.
func (a *answerer) report(m *model, id []byte, o *engine.Outcome, drawn *issued) {
	if a.referred == nil || !drawn.Review && o.Decision.Action != policy.Defer {
		return
	}
	a.counted.done()
	receipt := drawn.receipt
	if !drawn.Review {
		receipt = nil
	}
	a.referred(m.Policy(), id, o, receipt)
}

// checked counts the passes that early stopping saved, and the result of a full-pass check.
func (a *answerer) checked(m *model, c *engine.Closing) {
	switch {
	case c.Check.State == engine.Judged:
		a.counted.done() // nobody waits for a shard of the metrics while the log is written
		m.metrics.FullPassChecked(c.Check.Verdict, c.Planned)
		if c.Check.Stops {
			m.logStopped(a.notes.log)
		}
	case c.Check.State == engine.Lost:
		m.metrics.FullPassCheckLost()
	case c.Planned > 0:
		m.metrics.PassesUsed(c.Outcome.Passes, c.Planned)
	}
}

// logStopped logs why inputs of a policy no longer stop early.
func (m *model) logStopped(log *zap.Logger) {
	checks := m.lean.Stopper().Checks()
	what, rate := "disagreement", checks.All
	if checks.Stop.Retained {
		what, rate = "released", checks.Deferred
	}
	log.Warn("early stopping has ended: full-pass checks show that more inputs are decided otherwise than was certified; all passes decide "+
		"until there is another policy",
		zap.String("model", m.ref.GetModel()), zap.String("policy_hash", m.ref.GetHash()), zap.String("what", what),
		zap.Float64("certified", rate.Certified), zap.Uint64("checked", rate.Checked), zap.Uint64("disagreements", rate.Disagreements),
		zap.Float64("low", rate.Low), zap.Float64("high", rate.High),
		zap.Uint64("recently_checked", checks.Stop.Recent.Checked), zap.Uint64("recent_disagreements", checks.Stop.Recent.Disagreements))
}

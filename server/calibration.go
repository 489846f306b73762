package server

import (
	"context"
	"time"

	"go.uber.org/zap"
	"golang.org/x/time/rate"

	"github.com/ckd-project/ckd/policy"
)

// calibration says which inputs the policy of a model was calibrated on. Zero values mean that the
// policy does not say.
type calibration struct {
	passes    int
	posterior string
	// These limit log lines: calls that differ come by the thousand, each the first of its client.
	passesLogged, posteriorLogged rate.Sometimes
}

func newCalibration(p *policy.Policy) *calibration {
	c := &calibration{
		passesLogged: rate.Sometimes{Interval: time.Minute}, posteriorLogged: rate.Sometimes{Interval: time.Minute},
	}
	if p.Calibration != nil {
		c.passes, c.posterior = p.Calibration.Recording.Passes, p.Calibration.Posterior
	}
	return c
}

// differences says how an input differs from those that its policy was calibrated on, so that the
// thresholds do not carry over.
type differences struct{ passes, posterior bool }

// differences compares an input with the calibration. Posterior is what the client states; saying
// nothing is no difference.
func (c *calibration) differences(passes int, posterior string) differences {
	return differences{
		passes:    passes != c.passes && c.passes != 0,
		posterior: posterior != c.posterior && c.posterior != "" && posterior != "",
	}
}

// countDifferent counts how an input that was decided differs.
func (m *model) countDifferent(d differences) {
	if d.passes {
		m.metrics.Mismatched("passes")
	}
	if d.posterior {
		m.metrics.Mismatched("posterior")
	}
}

// logCall logs how the inputs of a call differ, once a minute.
func (m *model) logCall(ctx context.Context, log *zap.Logger, d differences, passes int, posterior string) {
	if d.passes {
		m.calibration.passesLogged.Do(func() { m.logOtherPasses(ctx, log, passes) })
	}
	if d.posterior {
		m.calibration.posteriorLogged.Do(func() { m.logOtherPosterior(ctx, log, posterior) })
	}
}

func (m *model) logOtherPasses(ctx context.Context, log *zap.Logger, passes int) {
	m.logDifferent(ctx, log, "passes", zap.Int("expected", m.calibration.passes), zap.Int("got", passes))
}

// logOtherPosterior repeats a word of the client: it was checked, and names no person.
func (m *model) logOtherPosterior(ctx context.Context, log *zap.Logger, posterior string) {
	m.logDifferent(ctx, log, "posterior", zap.String("expected", m.calibration.posterior), zap.String("got", posterior))
}

func (m *model) logDifferent(ctx context.Context, log *zap.Logger, what string, expectedAndGot ...zap.Field) {
	fields := append(callFields(ctx), zap.String("model", m.ref.GetModel()), zap.String("what", what))
	log.Warn("inputs are not like those that the policy was calibrated on; further ones on this stream under this policy, "+
		"or of calls within a minute, are only counted", append(fields, expectedAndGot...)...)
}

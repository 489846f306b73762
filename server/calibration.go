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

// compare counts an input unlike those that the policy was calibrated on, so that the thresholds do
// not carry over, and logs one a minute. The posterior is what the client states; saying nothing is no
// difference. The log repeats that word of the client: it was checked, and names no person.
func (m *model) compare(ctx context.Context, log *zap.Logger, passes int, posterior string) {
	c := m.calibration
	if passes != c.passes && c.passes != 0 {
		m.metrics.Mismatched("passes")
		c.passesLogged.Do(func() {
			m.logMismatch(ctx, log, "passes", zap.Int("expected", c.passes), zap.Int("got", passes))
		})
	}
	if posterior != c.posterior && c.posterior != "" && posterior != "" {
		m.metrics.Mismatched("posterior")
		c.posteriorLogged.Do(func() {
			m.logMismatch(ctx, log, "posterior", zap.String("expected", c.posterior), zap.String("got", posterior))
		})
	}
}

func (m *model) logMismatch(ctx context.Context, log *zap.Logger, what string, expectedAndGot ...zap.Field) {
	fields := append(callFields(ctx), zap.String("model", m.ref.GetModel()), zap.String("what", what))
	log.Warn("inputs are not like those that the policy was calibrated on; further ones within a minute are only counted",
		append(fields, expectedAndGot...)...)
}

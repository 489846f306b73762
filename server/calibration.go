package server

import (
	"context"

	"go.uber.org/zap"
	"golang.org/x/time/rate"
)

// mismatches limits the log of inputs unlike those that the policy of a model was calibrated on.
type mismatches struct{ passes, posterior rate.Sometimes }

// compare counts an input unlike those that the policy was calibrated on, so that the thresholds do
// not carry over, and logs one a minute. The posterior is what the client states; saying nothing is no
// difference. The log repeats that word of the client: it was checked, and names no person.
func (m *model) compare(ctx context.Context, log *zap.Logger, passes int, posterior string) {
	c := m.Policy().Calibration
	if c == nil {
		return
	}
	if want := c.Recording.Passes; passes != want && want != 0 {
		m.metrics.Mismatched("passes")
		m.mismatches.passes.Do(func() {
			m.logMismatch(ctx, log, "passes", zap.Int("expected", want), zap.Int("got", passes))
		})
	}
	if posterior != c.Posterior && c.Posterior != "" && posterior != "" {
		m.metrics.Mismatched("posterior")
		m.mismatches.posterior.Do(func() {
			m.logMismatch(ctx, log, "posterior", zap.String("expected", c.Posterior), zap.String("got", posterior))
		})
	}
}

func (m *model) logMismatch(ctx context.Context, log *zap.Logger, what string, expectedAndGot ...zap.Field) {
	fields := append(callFields(ctx), zap.String("model", m.ref.GetModel()), zap.String("what", what))
	log.Warn("inputs are not like those that the policy was calibrated on; further ones within a minute are only counted",
		append(fields, expectedAndGot...)...)
}

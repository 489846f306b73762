package server

import (
	"context"
	"time"

	"github.com/grpc-ecosystem/go-grpc-middleware/v2/interceptors/logging"
	"go.uber.org/zap"
	"golang.org/x/time/rate"

	"github.com/ckd-project/ckd/policy"
)

// calibration is which inputs the policy of a model was calibrated on; zero
// values are what it does not tell.
type calibration struct {
	passes    int
	posterior string
	// Calls that differ come by the thousand, each a client's first: these are
	// when they were logged.
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

// differences is in what an input is not like those that its policy was
// calibrated on, so that its thresholds do not carry over.
type differences struct{ passes, posterior bool }

// differences of an input with so many passes. Posterior is what the client
// states, empty for nothing, which is no difference.
func (c *calibration) differences(passes int, posterior string) differences {
	return differences{
		passes:    passes != c.passes && c.passes != 0,
		posterior: posterior != c.posterior && c.posterior != "" && posterior != "",
	}
}

// countDifferent counts an input that was decided.
func (m *model) countDifferent(d differences) {
	if d.passes {
		m.metrics.OtherPasses()
	}
	if d.posterior {
		m.metrics.OtherPosterior()
	}
}

// compare counts and logs in what inputs that were decided differ, the first
// time on this stream under the policy of their group.
func (s *session) compare(g *group, passes, inputs int) {
	m := g.model
	d := m.calibration.differences(passes, s.header.GetPosterior())
	if d == (differences{}) {
		return
	}
	for range inputs {
		m.countDifferent(d)
	}
	if d.passes && !g.told.passes {
		g.told.passes = true
		s.server.logOtherPasses(s.stream.Context(), m, passes)
	}
	if d.posterior && !g.told.posterior {
		g.told.posterior = true
		s.server.logOtherPosterior(s.stream.Context(), m, s.header.GetPosterior())
	}
}

// logCall logs in what the inputs of a call differ, once a minute.
func (s *Server) logCall(ctx context.Context, m *model, d differences, passes int, posterior string) {
	if d.passes {
		m.calibration.passesLogged.Do(func() { s.logOtherPasses(ctx, m, passes) })
	}
	if d.posterior {
		m.calibration.posteriorLogged.Do(func() { s.logOtherPosterior(ctx, m, posterior) })
	}
}

func (s *Server) logOtherPasses(ctx context.Context, m *model, passes int) {
	logDifferent(ctx, s.log, m, "passes", zap.Int("expected", m.calibration.passes), zap.Int("got", passes))
}

// logOtherPosterior repeats a word of the client's: one that was checked, and
// names no person.
func (s *Server) logOtherPosterior(ctx context.Context, m *model, posterior string) {
	logDifferent(ctx, s.log, m, "posterior", zap.String("expected", m.calibration.posterior), zap.String("got", posterior))
}

func logDifferent(ctx context.Context, log *zap.Logger, m *model, what string, expectedAndGot ...zap.Field) {
	fields := append(zapFields(logging.ExtractFields(ctx)), zap.String("model", m.ref.GetModel()), zap.String("what", what))
	log.Warn("inputs are not like those that the policy was calibrated on; further ones on this stream under this policy, "+
		"or of calls within a minute, are only counted", append(fields, expectedAndGot...)...)
}

package daemon

import (
	"fmt"
	"time"

	"go.uber.org/zap"

	"github.com/ckd-project/ckd/internal/config"
	"github.com/ckd-project/ckd/internal/decisionlog"
	"github.com/ckd-project/ckd/internal/metrics"
)

// decisions keeps the decision log, and tells the daemon's own log and /healthz how it fares. It is nil where none is kept.
type decisions struct {
	log    *zap.Logger
	kept   *decisionlog.Log
	failed *failedReloads
}

// openDecisions opens the decision log that the settings name; nil for none.
func openDecisions(c *config.Config, version string, m *metrics.Metrics, failed *failedReloads, log *zap.Logger) (*decisions, error) {
	if c.DecisionLog == config.Off || c.DecisionLog == "" {
		return nil, nil
	}
	d := &decisions{log: log, failed: failed}
	var err error
	if d.kept, err = decisionlog.Open(decisionlog.Options{Path: c.DecisionLog, Software: version, Report: d.report}); err != nil {
		return nil, fmt.Errorf("decision-log: %w", err)
	}
	m.ReadDecisionLog(func() metrics.DecisionLog {
		n := d.kept.Counts()
		return metrics.DecisionLog{Written: n.Written, LeftOut: n.LeftOut, Lost: n.Lost, Waiting: n.Waiting}
	})
	return d, nil
}

// options returns the log for the server.
func (d *decisions) options() *decisionlog.Log {
	if d == nil {
		return nil
	}
	return d.kept
}

// memory returns what the log holds.
func (d *decisions) memory() int64 {
	if d == nil {
		return 0
	}
	return decisionlog.MemoryBytes
}

// report says how the log fares.
func (d *decisions) report(t decisionlog.Trouble) {
	fields := []zap.Field{zap.Uint64("lost", t.Lost), zap.Uint64("waiting", t.Waiting)}
	switch {
	case t.Why == "":
		d.failed.set("decision-log", "")
		d.log.Info("the decision log is written again", fields...)
	case t.Lost > 0:
		d.failed.set("decision-log", "decision log: records are lost: see the log") // /healthz needs no credentials
		d.log.Warn("the decision log loses records: "+t.Why, fields...)
	default:
		d.failed.set("decision-log", "decision log: not written: see the log")
		d.log.Warn("the decision log is not written, and its records wait: "+t.Why, fields...)
	}
}

// reopen has the log look whether its file was moved.
func (d *decisions) reopen() {
	if d != nil {
		d.kept.Reopen()
	}
}

// close writes what is left, if that does not take long.
func (d *decisions) close(s *shutdown) {
	if d == nil {
		return
	}
	ctx, cancel := s.within(time.Second, 1700*time.Millisecond)
	defer cancel()
	if err := d.kept.Close(ctx); err != nil {
		d.log.Warn("the decision log is not complete", zap.Error(err))
	}
}

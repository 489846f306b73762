package metrics

import "github.com/prometheus/client_golang/prometheus"

// decisionLog declares what became of records of decisions. Only a daemon with a decision log has these series.
type decisionLog struct{ records, waiting *computed }

func declareDecisionLog(t *table) decisionLog {
	return decisionLog{
		records: t.computedCounter("ckd_decision_log_records_total",
			"Decisions, by what became of their record in the decision log: written, left_out as the policy says, or lost. "+
				"With those that wait they are all decisions. Absent without a decision log.",
			"result"),
		waiting: t.computed("ckd_decision_log_waiting",
			"Records of decisions that wait in memory for the decision log. Absent without one."),
	}
}

// DecisionLog counts decisions by what became of their records.
type DecisionLog struct{ Written, LeftOut, Lost, Waiting uint64 }

// ReadDecisionLog makes every scrape call read, which must count all at one moment.
func (m *Metrics) ReadDecisionLog(read func() DecisionLog) {
	f := m.collector.decisionLog
	m.collector.atScrapes(func() func(chan<- prometheus.Metric) {
		n := read()
		return func(to chan<- prometheus.Metric) {
			f.records.send(to, float64(n.Written), "written")
			f.records.send(to, float64(n.LeftOut), "left_out")
			f.records.send(to, float64(n.Lost), "lost")
			f.waiting.send(to, float64(n.Waiting))
		}
	})
}

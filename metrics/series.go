package metrics

import (
	"cmp"
	"slices"
	"sync"

	"github.com/prometheus/client_golang/prometheus"

	"github.com/ckd-project/ckd/policy"
	"github.com/ckd-project/ckd/settle/audit"
)

// series is every family of series of the daemon. As one collector it is
// registered as a whole, and a change under its lock reaches scrapes as a whole.
type series struct {
	mu       sync.RWMutex
	families []family
	shards   []shard

	// Updated by every input, and so counted in shards.
	decisions                                 *shardedCounter
	epistemic, skewness                       *shardedHistogram
	unreliable, predicted, dominant, deciding *shardedCounter
	confusion                                 *shardedCounter
	mutualInformation, entropy, epistemicSum  *shardedHistogram
	fallback, passes, degenerate, saturated   *shardedCounter

	late, rejected, abandoned *prometheus.CounterVec
	messages, mismatches      *prometheus.CounterVec
	httpRefused               *prometheus.CounterVec
	accessRefused             *prometheus.CounterVec
	securityReloadsFailed     *prometheus.CounterVec
	certificateNotAfter       prometheus.Gauge
	inputsOpen, streamsOpen   *prometheus.GaugeVec
	labelsCut                 *prometheus.GaugeVec

	watches                        map[string]*driftWatch // by model
	driftZ, driftShift, driftAlarm *gauges
	driftVisible, driftFilled      *gauges
	driftAlarms, driftInputs       *prometheus.CounterVec

	settled                                        map[string]bool                // the models with a rule in force
	readSettling                                   func() map[string]audit.Status // nil: nobody can be asked
	ofSettling                                     []family                       // that are counted
	passesUsed                                     *prometheus.HistogramVec
	passesSaved, passesAudited                     *prometheus.CounterVec
	settleAudited, settleDisagreements, settleLost *prometheus.CounterVec
	settleLow, settleHigh, settleCertified         *gauges
	settleEvidence, settleEvidenceLimit            *gauges
	settleStopped                                  *gauges

	saturation                          func() Saturation // nil: nobody can be asked
	openBytes, openBytesLimit           *gauges
	streamsLimit, callsOpen, callsLimit *gauges
	watchesOpen, watchesLimit           *gauges
	watchesRefused, connectionsStalled  prometheus.Counter
	repliesUnread                       *gauges

	policyInfo, buildInfo               *prometheus.GaugeVec
	expectedCoverage, expectedFNR       *prometheus.GaugeVec
	coverageLow, coverageHigh           *prometheus.GaugeVec
	reloadSuccessful, reloadSuccessTime prometheus.Gauge
	panics                              prometheus.Counter
}

// family is the declaration of the series of one name.
type family struct {
	name, kind, help string
	labels           []string
	vec              vec
}

// vec is what sharded series and the vectors of client_golang have in common.
// It is a prometheus.Collector, too, or scraped shard by shard.
type vec interface {
	Describe(to chan<- *prometheus.Desc)
	DeleteLabelValues(values ...string) bool
	DeletePartialMatch(labels prometheus.Labels) int
}

// declare is the table of all series.
func declare() *series {
	s := &series{shards: newShards(), watches: make(map[string]*driftWatch), settled: make(map[string]bool)}

	s.decisions = s.sharded("ckd_decisions_total",
		"Inputs decided, by action, the score that decided and the reason.",
		"model", "action", "score", "reason")

	s.epistemic = s.histogram("ckd_class_epistemic_nats",
		"Epistemic contribution C_k of the class, one observation per input, in nats.",
		layouts().contribution, "model", "class")
	s.skewness = s.histogram("ckd_class_skewness_ratio",
		"Skewness ratio of the class, one observation per input; above the reliability threshold "+
			"its C_k is not to be trusted.",
		layouts().ratio, "model", "class")
	s.unreliable = s.sharded("ckd_class_unreliable_total",
		"Inputs in which the skewness ratio of the class is above the reliability threshold of the policy.",
		"model", "class")
	s.predicted = s.sharded("ckd_class_predicted_total",
		"Inputs whose predicted class this is: the class of the largest mean prediction.",
		"model", "class")
	s.dominant = s.sharded("ckd_class_dominant_total",
		"Inputs whose largest C_k this class has; an input whose C_k are all 0 has none.",
		"model", "class")
	s.deciding = s.sharded("ckd_class_deciding_total",
		"Deferred inputs whose score was set by this class: of c_crit_max its largest, "+
			"of cbec the critical class with the largest share.",
		"model", "class")
	s.labelsCut = s.gauge("ckd_class_labels_cut",
		"Classes without series of their own: they are counted together, and pairs with them not at all.",
		"model")

	s.confusion = s.sharded("ckd_pair_confusion_nats_total",
		"Sum over inputs of the pair term sqrt(C_a C_b) max(0, -correlation), without weights, in nats; "+
			"divided by inputs, the epistemic confusion matrix.",
		"model", "class_a", "class_b")

	s.mutualInformation = s.histogram("ckd_mutual_information_nats",
		"Mutual information of an input, its epistemic uncertainty as a whole, in nats.",
		layouts().total, "model")
	s.entropy = s.histogram("ckd_predictive_entropy_nats",
		"Entropy of the mean prediction of an input, its whole uncertainty, in nats.",
		layouts().entropy, "model")
	s.epistemicSum = s.histogram("ckd_epistemic_sum_nats",
		"Sum over classes of C_k of an input, near the mutual information where skewness is small, in nats.",
		layouts().total, "model")

	s.fallback = s.sharded("ckd_inputs_fallback_total",
		"Inputs decided by the fallback score of the policy, as its gate said.",
		"model")
	s.passes = s.sharded("ckd_passes_total",
		"Passes of the inputs that were decided.",
		"model")
	s.late = s.counter("ckd_passes_late_total",
		"Passes ignored because their input was finished or had failed before.",
		"model")
	s.degenerate = s.sharded("ckd_inputs_degenerate_total",
		"Inputs decided whose passes were all identical, the saturated ones included: uncertainty is absent, not zero.",
		"model")
	s.saturated = s.sharded("ckd_inputs_saturated_total",
		"Inputs decided whose passes were all identical and one-hot.",
		"model")
	s.rejected = s.counter("ckd_inputs_rejected_total",
		"Inputs refused with an error. A refused call counts the inputs that it states, a refused stream one; "+
			"model is empty where none that is served was named.",
		"model", "reason")
	s.messages = s.counter("ckd_messages_refused_total",
		"Messages of streams that were refused without being the fault of one input: a group that is open, a row that "+
			"its group does not have.",
		"model", "reason")
	s.httpRefused = s.counter("ckd_http_requests_refused_total",
		"HTTP requests that were answered with an error before they became a call, by HTTP status code; those that became one "+
			"are counted as calls.",
		"code")
	for _, code := range []string{"400", "403", "404", "405", "408", "413", "415", "429"} {
		s.httpRefused.WithLabelValues(code)
	}
	s.accessRefused = s.counter("ckd_access_refused_total",
		"Calls and HTTP requests that were refused for who made them, by reason.",
		"reason")
	s.securityReloadsFailed = s.counter("ckd_security_reloads_failed_total",
		"Attempts to read the certificates or the access file again that failed; what was in force stays.",
		"files")
	for _, files := range []string{"access", "certificates"} {
		s.securityReloadsFailed.WithLabelValues(files)
	}
	s.certificateNotAfter = s.gauge("ckd_certificate_not_after_timestamp_seconds",
		"When the certificate that the daemon serves with ends, in seconds since 1970; 0 without TLS.",
	).WithLabelValues()
	s.abandoned = s.counter("ckd_inputs_abandoned_total",
		"Inputs given up undecided because their call was cancelled or broke.",
		"model")
	s.mismatches = s.counter("ckd_calibration_mismatches_total",
		"Inputs decided that are not like those that the policy was calibrated on: with another number of passes, or "+
			"of a client that states another posterior. The thresholds do not carry over.",
		"model", "what")
	s.inputsOpen = s.gauge("ckd_inputs_open",
		"Inputs open on streams, whose passes are coming in.",
		"model")
	s.streamsOpen = s.gauge("ckd_streams_open",
		"Streams open.",
		"model")

	s.openBytes = s.asked("ckd_open_bytes",
		"Bytes held by open inputs, by requests under way and by replies that are not sent.")
	s.openBytesLimit = s.asked("ckd_open_bytes_limit",
		"The most that ckd_open_bytes may be: inputs beyond it are refused.")
	s.streamsLimit = s.asked("ckd_streams_limit",
		"The most streams that may be open at one time, of all models.")
	s.callsOpen = s.asked("ckd_calls_open",
		"Unary calls under way or with an unread reply, those over HTTP included.")
	s.callsLimit = s.asked("ckd_calls_limit",
		"The most that ckd_calls_open may be: calls beyond it are refused.")
	s.repliesUnread = s.asked("ckd_replies_unread",
		"Replies to unary calls that are not sent, since their client has not read so far: each keeps its place in ckd_calls_open.")
	s.connectionsStalled = s.counter("ckd_connections_stalled_total",
		"Connections that were closed as their client read none of the replies to its unary calls for send-stall-timeout.",
	).WithLabelValues()
	s.watchesOpen = s.asked("ckd_watches_open",
		"Watches of the health that are open: a client that balances holds one for each of its connections.")
	s.watchesLimit = s.asked("ckd_watches_limit",
		"The most that ckd_watches_open may be: watches beyond it are refused.")
	s.watchesRefused = s.counter("ckd_watches_refused_total",
		"Watches of the health that were refused for lack of room: clients that balance take the daemon for not healthy.",
	).WithLabelValues()

	s.driftZ = s.asked("ckd_drift_z",
		"How far the last inputs of a model have moved from what its calibration saw of the class, in standard errors: their "+
			"C_k, their skewness ratio, or how often the class is predicted. 0 until there are as many inputs as the window has.",
		"model", "class", "signal", "window")
	s.driftShift = s.asked("ckd_drift_shift",
		"The same as a share: the probability that a live value is above one of the calibration's, less 1/2; for predicted, the "+
			"live share less the calibration's.",
		"model", "class", "signal", "window")
	s.driftVisible = s.asked("ckd_drift_smallest_visible_shift",
		"The least ckd_drift_shift of epistemic and skewness that is an alarm over the window.",
		"model", "window")
	s.driftAlarm = s.asked("ckd_drift_alarm",
		"1 while ckd_drift_z of the class is above 5.5 or below -5.5 over any window, else 0.",
		"model", "class", "signal")
	s.driftAlarms = s.counter("ckd_drift_alarms_total",
		"How often ckd_drift_alarm rose to 1.",
		"model", "class", "signal")
	s.driftInputs = s.counter("ckd_drift_inputs_total",
		"Inputs that were compared with what the calibration saw; the last few wait for others, at most 7 after a scrape.",
		"model")
	s.driftFilled = s.asked("ckd_drift_window_filled",
		"1 once the window has had all its inputs since the reference came into force, else 0: its ckd_drift_z say nothing then.",
		"model", "window")

	s.declareSettling()

	s.policyInfo = s.gauge("ckd_policy_info",
		"Always 1: version and content hash of the policy in force.",
		"model", "version", "hash")
	s.expectedCoverage = s.gauge("ckd_policy_expected_coverage",
		"Share of the inputs that the calibration of the policy expects to be retained; only where it tells.",
		"model")
	s.coverageLow = s.gauge("ckd_policy_expected_coverage_low",
		"Lower end of the 95% interval of ckd_policy_expected_coverage; only where the calibration tells.",
		"model")
	s.coverageHigh = s.gauge("ckd_policy_expected_coverage_high",
		"Upper end of the 95% interval of ckd_policy_expected_coverage; only where the calibration tells.",
		"model")
	s.expectedFNR = s.gauge("ckd_policy_expected_critical_fnr",
		"Share of the critical inputs that are retained which the calibration of the policy expects to be called safe; "+
			"only where it tells.",
		"model")
	s.buildInfo = s.gauge("ckd_build_info",
		"Always 1: version and revision of the daemon, and the Go version that built it.",
		"version", "revision", "goversion")
	s.reloadSuccessful = s.gauge("ckd_policy_last_reload_successful",
		"1 if the last attempt to load the policies succeeded, 0 if it failed and the policies before it stay in force.",
	).WithLabelValues()
	s.reloadSuccessTime = s.gauge("ckd_policy_last_reload_success_timestamp_seconds",
		"When the policies were last loaded with success, in seconds since 1970.",
	).WithLabelValues()
	s.panics = s.counter("ckd_panics_total",
		"Panics that were turned into an error of the one call that they happened in: faults of the daemon, to be reported.",
	).WithLabelValues()
	return s
}

func (s *series) counter(name, help string, labels ...string) *prometheus.CounterVec {
	v := prometheus.NewCounterVec(prometheus.CounterOpts{Name: name, Help: help}, labels)
	s.families = append(s.families, family{name, "counter", help, labels, v})
	return v
}

// sharded is a counter that every input may update.
func (s *series) sharded(name, help string, labels ...string) *shardedCounter {
	v := newShardedCounter(name, help, labels, len(s.shards))
	s.families = append(s.families, family{name, "counter", help, labels, v})
	return v
}

func (s *series) gauge(name, help string, labels ...string) *prometheus.GaugeVec {
	v := prometheus.NewGaugeVec(prometheus.GaugeOpts{Name: name, Help: help}, labels)
	s.families = append(s.families, family{name, "gauge", help, labels, v})
	return v
}

// asked is a gauge that is asked for its value at each scrape.
func (s *series) asked(name, help string, labels ...string) *gauges {
	v := &gauges{prometheus.NewDesc(name, help, labels, nil)}
	s.families = append(s.families, family{name, "gauge", help, labels, v})
	return v
}

func (s *series) histogram(name, help string, l *layout, labels ...string) *shardedHistogram {
	v := newShardedHistogram(name, help, l, labels, len(s.shards))
	s.families = append(s.families, family{name, "histogram", help, labels, v})
	return v
}

// expect tells what the calibration of the policy expects, as far as it does.
func (s *series) expect(p *policy.Policy) {
	set := func(v *prometheus.GaugeVec, told bool, value float64) {
		if !told {
			v.DeleteLabelValues(p.Name)
			return
		}
		v.WithLabelValues(p.Name).Set(value)
	}
	calibration := p.Calibration
	if calibration == nil {
		calibration = &policy.Calibration{}
	}
	none := policy.Interval{High: 1}
	coverage, fnr := cmp.Or(calibration.ExpectedCoverage, &none), cmp.Or(calibration.ExpectedCriticalFNR, &none)
	set(s.expectedCoverage, coverage != &none, coverage.Value)
	set(s.coverageLow, coverage.Told(), coverage.Low)
	set(s.coverageHigh, coverage.Told(), coverage.High)
	set(s.expectedFNR, fnr != &none, fnr.Value)
}

// perClass is the families with one series for each class.
func (s *series) perClass() []family {
	var found []family
	for _, f := range s.families {
		if slices.Contains(f.labels, "class") {
			found = append(found, f)
		}
	}
	return found
}

// Describe implements prometheus.Collector.
func (s *series) Describe(to chan<- *prometheus.Desc) {
	for _, f := range s.families {
		f.vec.Describe(to)
	}
}

// Collect implements prometheus.Collector. It adds up one shard after another,
// all its series under one lock, so that it sees messages whole.
func (s *series) Collect(to chan<- prometheus.Metric) {
	settled := s.readSettled()
	s.mu.RLock()
	defer s.mu.RUnlock()
	var scraped []summing
	for _, f := range s.families {
		if v, ok := f.vec.(interface{ summing() summing }); ok {
			scraped = append(scraped, v.summing())
		}
	}
	for i := range s.shards {
		s.shards[i].Lock()
		for _, v := range scraped {
			v.add(i)
		}
		for _, w := range s.watches {
			w.collectShard(i)
		}
		s.shards[i].Unlock()
	}
	for _, v := range scraped {
		v.collect(to)
	}
	for _, w := range s.watches {
		w.collect(to)
	}
	s.collectSettled(settled, to)
	s.collectSaturation(to)
	for _, f := range s.families { // at last, as what was collected counts here, too
		if v, ok := f.vec.(prometheus.Collector); ok {
			v.Collect(to)
		}
	}
}

package spec

import (
	"fmt"
	"maps"
	"math"
	"slices"
	"strings"
	"time"

	"github.com/ckd-project/ckd/engine"
	"github.com/ckd-project/ckd/internal/monitor/fullpass"
	"github.com/ckd-project/ckd/internal/outcome/receipt"
)

// Limits are those of the daemon that clients can run into.
type Limits struct {
	OpenInputs, OpenGroups int // of a stream
	InputsPerRequest       int
	Passes                 int // of an input
	IDBytes                int
	ReplyBytes             int
	InputIdle              time.Duration
}

// Room says how much of the daemon's budget is free.
type Room uint8

// There is room for all that a client can ask for; perhaps, perhaps not; or for nothing.
const (
	Ample Room = iota
	Tight
	None
)

// Server predicts the answers and the metrics of one daemon. It is for one goroutine at a time.
type Server struct {
	Limits Limits
	Room   Room
	Keys   *receipt.Keys // nil: the daemon has none
	Alarm  string        // hash of the policy whose alarm is up, or ""
	// Referred collects the inputs that go to a person, until the caller takes them.
	Referred []string
	// Sampler is that of every early-stopping rule.
	Sampler fullpass.Sampler

	policies map[string]*Policy
	batches  map[*Policy]*engine.Batch
	stoppers map[string]*stopper // by the hash of the policy
	counters map[string]map[string]float64
	early    map[string]map[string]float64 // those that exist only with a rule
	issued   map[string]float64
	users    map[string]int // streams and groups, by the name of the model
}

// stopper is the state of an early-stopping rule. It outlives reloads.
type stopper struct {
	opened   uint64
	verdicts uint64
	watch    *fullpass.Watch
}

func (s *stopper) stopped() bool { return s.watch.Stopped() }

// NewServer returns a Server without policies.
func NewServer(l Limits) *Server {
	return &Server{
		Limits: l, policies: map[string]*Policy{}, batches: map[*Policy]*engine.Batch{}, stoppers: map[string]*stopper{},
		counters: map[string]map[string]float64{}, early: map[string]map[string]float64{}, users: map[string]int{}, issued: map[string]float64{},
	}
}

// SetPolicies puts policies in force, in place of those before.
func (s *Server) SetPolicies(all ...*Policy) {
	next := map[string]*Policy{}
	for _, p := range all {
		next[p.Name] = p
		if s.counters[p.Name] == nil {
			s.counters[p.Name] = map[string]float64{}
		}
		switch {
		case p.rule == nil:
			delete(s.early, p.Name) // these series exist only with a rule
		case s.early[p.Name] == nil:
			s.early[p.Name] = map[string]float64{}
		}
	}
	before := s.policies
	s.policies = next
	for name := range before {
		s.forget(name)
	}
}

// forget drops the counters of a model without a policy that nobody uses any more.
func (s *Server) forget(name string) {
	if s.policies[name] == nil && s.users[name] == 0 {
		delete(s.counters, name)
		delete(s.early, name)
	}
}

func (s *Server) retain(p *Policy) { s.users[p.Name]++ }

func (s *Server) release(p *Policy) {
	s.users[p.Name]--
	s.forget(p.Name)
}

// Models returns the names of the models in force, in order.
func (s *Server) Models() []string { return slices.Sorted(maps.Keys(s.policies)) }

// stopper returns the state of the rule of a policy.
func (s *Server) stopper(p *Policy) *stopper {
	if s.stoppers[p.Hash] == nil {
		certificate := p.EarlyStopping.Certificate
		o := fullpass.Options{Disagreement: certificate.Disagreement}
		if certificate.Released.AtMost < 1 {
			o.Retained = certificate.Released.AtMost
		}
		w, err := fullpass.NewWatch(o)
		if err != nil {
			panic(err) // a policy whose certificate is not one does not parse
		}
		s.stoppers[p.Hash] = &stopper{watch: w}
	}
	return s.stoppers[p.Hash]
}

// count adds to a counter of a model. Labels are pairs of name and value.
func (s *Server) count(model string, by float64, name string, labels ...string) {
	if s.counters[model] == nil {
		if model != "" {
			return // the series of the model are gone, and a policy may be in force again since
		}
		s.counters[model] = map[string]float64{}
	}
	s.counters[model][Series(name, append([]string{"model", model}, labels...)...)] += by
}

// Series returns the name of a series with its labels in order.
func Series(name string, labels ...string) string {
	var room [4]string
	pairs := room[:0]
	for i := 0; i < len(labels); i += 2 {
		pairs = append(pairs, labels[i]+`="`+labels[i+1]+`"`)
	}
	slices.Sort(pairs)
	return name + "{" + strings.Join(pairs, ",") + "}"
}

// Issued names what the daemon tells ledgers, as a series.
const Issued = "issued"

// counted are the metrics that a Server predicts. Histograms appear as their counts, and
// ckd_passes_used also as its sum.
var counted = []string{
	"ckd_decisions_total", "ckd_passes_total", "ckd_passes_late_total", "ckd_inputs_degenerate_total", "ckd_inputs_saturated_total",
	"ckd_inputs_fallback_total", "ckd_class_predicted_total", "ckd_class_dominant_total", "ckd_class_deciding_total", "ckd_class_unreliable_total",
	"ckd_class_epistemic_nats", "ckd_class_skewness_ratio", "ckd_mutual_information_nats", "ckd_predictive_entropy_nats",
	"ckd_inputs_rejected_total", "ckd_inputs_abandoned_total", "ckd_calibration_mismatches_total",
	"ckd_inputs_open",
	"ckd_passes_used", "ckd_passes_used_sum", "ckd_passes_saved_total", "ckd_early_stop_checked_total",
	"ckd_early_stop_disagreements_total", "ckd_early_stop_checks_lost_total",
	"ckd_receipts_eligible_total", "ckd_reviews_total", "ckd_panics_total",
	"ckd_audit_propensity_total", Issued,
}

// CheckCounters compares what the daemon has counted, by Series, with what it should have. Series
// at 0 may be absent.
func (s *Server) CheckCounters(got map[string]float64) error {
	want := maps.Clone(s.issued)
	for _, of := range []map[string]map[string]float64{s.counters, s.early} {
		for _, series := range of {
			maps.Copy(want, series)
		}
	}
	var wrong []string
	for series, n := range want {
		if math.Abs(got[series]-n) > 1e-9*n { // sums of fractions are rounded
			wrong = append(wrong, fmt.Sprintf("%s is %v, expected %v", series, got[series], n))
		}
	}
	for series, n := range got {
		name, _, _ := strings.Cut(series, "{")
		if _, known := want[series]; !known && n != 0 && slices.Contains(counted, name) {
			wrong = append(wrong, fmt.Sprintf("%s is %v, expected 0", series, n))
		}
	}
	if wrong == nil {
		return nil
	}
	slices.Sort(wrong)
	return fmt.Errorf("counters: %s", strings.Join(wrong, "; "))
}

// OpenInputs returns how many inputs are open on all streams.
func (s *Server) OpenInputs() (n int) {
	for model := range s.counters {
		n += int(s.counters[model][Series("ckd_inputs_open", "model", model)])
	}
	return n
}

package spec

import (
	"fmt"
	"maps"
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
	// Sampler is that of every early-stopping rule.
	Sampler fullpass.Sampler

	policies map[string]*Policy
	batches  map[*Policy]*engine.Batch
	stoppers map[string]*stopper // by the hash of the policy
	counters map[string]map[string]float64
	early    map[string]map[string]float64 // those that exist only with a rule
	users    map[string]int                // streams and groups, by the name of the model
	draining bool
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
		counters: map[string]map[string]float64{}, early: map[string]map[string]float64{}, users: map[string]int{},
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

// Drain says that the daemon begins to stop.
func (s *Server) Drain() { s.draining = true }

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
	var room [3]string
	pairs := room[:0]
	for i := 0; i < len(labels); i += 2 {
		pairs = append(pairs, labels[i]+`="`+labels[i+1]+`"`)
	}
	slices.Sort(pairs)
	return name + "{" + strings.Join(pairs, ",") + "}"
}

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
}

// CheckCounters compares what the daemon has counted, by Series, with what it should have. Series
// at 0 may be absent.
func (s *Server) CheckCounters(got map[string]float64) error {
	want := map[string]float64{}
	for _, of := range []map[string]map[string]float64{s.counters, s.early} {
		for _, series := range of {
			maps.Copy(want, series)
		}
	}
	var wrong []string
	for series, n := range want {
		if got[series] != n {
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

// reasons are those that inputs and messages of streams, headers and calls are refused for.
var reasons = []string{
	"not_finite", "negative", "above_one", "sum_not_one", "not_positive", "not_logits", "too_few_passes", "too_many_passes", "wrong_length", "two_encodings",
	"duplicate_id", "id_too_long", "duplicate_row", "wrong_id_count", "wrong_layout", "wrong_enum", "wrong_context", "header_missing", "unknown_model",
	"wrong_classes", "wrong_kind", "policy_changed", "draining", "wrong_posterior", "receipts_unavailable", "too_many_inputs", "too_many_groups",
	"out_of_memory_budget", "input_idle", "reply_too_large",
	"row_out_of_range", "group_open", "unknown_group", "empty_message", "header_changed",
}

// Meets returns what simulations together must come to: every counter and every reason.
func Meets() []string {
	all := slices.DeleteFunc(slices.Clone(counted), func(name string) bool {
		return name == "ckd_panics_total" || strings.HasSuffix(name, "_open") // which go back to 0
	})
	for _, reason := range reasons {
		all = append(all, "reason "+reason)
	}
	return append(all, "verdict wrongly_retained", "verdict wrongly_deferred", "verdict other_side")
}

// Met calls met with everything of Meets that the daemon has come to.
func (s *Server) Met(met func(string)) {
	for _, of := range []map[string]map[string]float64{s.counters, s.early} {
		for _, all := range of {
			for series, n := range all {
				if n == 0 {
					continue
				}
				name, labels, _ := strings.Cut(series, "{")
				met(name)
				for _, label := range []string{"reason", "verdict"} {
					if _, value, ok := strings.Cut(labels, label+"=\""); ok {
						value, _, _ = strings.Cut(value, "\"")
						met(label + " " + value)
					}
				}
			}
		}
	}
}

// OpenInputs returns how many inputs are open on all streams.
func (s *Server) OpenInputs() (n int) {
	for model := range s.counters {
		n += int(s.counters[model][Series("ckd_inputs_open", "model", model)])
	}
	return n
}

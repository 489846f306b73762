package spec

import (
	"fmt"
	"maps"
	"math"
	"slices"
	"strings"
	"time"

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
	Alarm  string        // model whose alarm is up, or ""
	// Referred collects the inputs that go to a person, until the caller takes them.
	Referred []string
	// Sampler is that of every early-stopping rule. Its choice must not depend on verdicts.
	Sampler fullpass.Sampler

	policies map[string]*Policy
	followed map[string]uint64 // inputs that might be decided early, by the hash of the policy
	counters map[string]map[string]float64
	early    map[string]map[string]float64 // those that exist only with a rule
	issued   map[string]float64
	users    map[string]int // streams and groups, by the name of the model
}

// NewServer returns a Server without policies.
func NewServer(l Limits) *Server {
	return &Server{
		Limits: l, policies: map[string]*Policy{}, followed: map[string]uint64{},
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
	"ckd_decisions_total", "ckd_passes_total", "ckd_passes_late_total", "ckd_inputs_open",
	"ckd_inputs_rejected_total", "ckd_inputs_abandoned_total", "ckd_calibration_mismatches_total",
	"ckd_passes_used", "ckd_passes_used_sum", "ckd_passes_saved_total", "ckd_early_stop_checked_total",
	"ckd_early_stop_checks_lost_total",
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

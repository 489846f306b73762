package server

import (
	"fmt"
	"slices"
	"strings"
	"time"

	"github.com/ckd-project/ckd/policy"
	ckdv1 "github.com/ckd-project/ckd/proto/ckd/v1"
)

// LedgerState is what a daemon knows of its ledger.
type LedgerState struct {
	// Heard says that the ledger has answered, or that its last answer was kept through a restart.
	Heard bool
	// Promises is what outcomes say about policies.
	Promises []*ckdv1.Promise
	// Alarms holds the alarms that are up.
	Alarms []*ckdv1.Alarm
}

// ledgerState is a LedgerState by what asks for it. It is never changed.
type ledgerState struct {
	heard    bool
	promises map[string][]*ckdv1.Promise // by policy hash
	alarms   map[string]*ckdv1.Alarm     // by model: the first pooled one
}

// SetLedgerState replaces what is known of the ledger, which GetModel repeats. While a pooled alarm of a
// model is up, or the ledger was not heard yet, a policy with on_breach: defer defers what it retains
// without calling it critical: under every policy and version of the model, open inputs included. A
// server on which it was never called has no ledger, and defers nothing for that.
func (s *Server) SetLedgerState(state LedgerState) {
	l := &ledgerState{heard: state.Heard, promises: map[string][]*ckdv1.Promise{}, alarms: map[string]*ckdv1.Alarm{}}
	for _, p := range state.Promises {
		hash := p.GetPolicy().GetHash()
		l.promises[hash] = append(l.promises[hash], p)
	}
	for _, a := range state.Alarms {
		if a.GetCriticalClass() == "" && l.alarms[a.GetModel()] == nil {
			l.alarms[a.GetModel()] = a
		}
	}
	s.catalog.ledger.Store(l)
}

// breached reports whether the inputs of a model that are called safe are to be deferred, where its
// policy asks for that.
func (l *ledgerState) breached(model string) bool { return !l.heard || l.alarms[model] != nil }

// isViolated reports whether the policy defers what it calls safe at present. Then all of that is
// reviewed.
func (m *model) isViolated() bool {
	if !DefersOnBreach(m.Policy()) {
		return false
	}
	violated := m.ledger.Load().breached(m.ref.GetModel())
	m.auditor.Surge(violated)
	return violated
}

// DefersOnBreach reports whether a policy depends on its ledger: it defers what it calls safe while an
// alarm of its model is up.
func DefersOnBreach(p *policy.Policy) bool {
	return p.Audit != nil && p.Audit.OnBreach == policy.DeferOnBreach
}

// deferring says in one sentence why a policy defers what it calls safe; empty where it does not.
func (l *ledgerState) deferring(p *policy.Policy) string {
	switch alarm := l.alarms[p.Name]; {
	case !DefersOnBreach(p) || !l.breached(p.Name):
		return ""
	case alarm != nil:
		return fmt.Sprintf("An alarm on the %s is up since %s: everything called safe is deferred until somebody ends it.",
			FigureName(alarm.GetFigure()), alarm.GetRaised().AsTime().Format(time.RFC3339))
	}
	return "The ledger has not answered since this daemon started, and nothing is kept of what it said before: everything called safe is deferred until it answers."
}

// FigureName returns the name of a figure in words.
func FigureName(f ckdv1.CertifiedFigure) string {
	words := strings.Split(strings.ToLower(strings.TrimPrefix(f.String(), "CERTIFIED_FIGURE_")), "_")
	if at := slices.Index(words, "fnr"); at >= 0 {
		words[at] = "FNR"
	}
	return strings.Join(words, " ")
}

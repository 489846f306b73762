package daemon

import (
	"maps"
	"sync"

	"go.uber.org/zap"
)

// incident names what can be wrong between a daemon and its ledger, as a label of ckd_ledger_fault.
type incident string

// The incidents.
const (
	incidentAway     incident = "away"         // the ledger has not answered for a minute
	incidentUnheard  incident = "unheard"      // it never has, and policies defer until it does
	incidentOther    incident = "other_ledger" // it is another ledger than before
	incidentClock    incident = "clock"        // the clocks differ by more than a minute
	incidentKey      incident = "receipt_key"  // it lacks a receipt key of this daemon
	incidentPolicy   incident = "policy"       // it does not take a policy
	incidentState    incident = "state"        // what it said cannot be kept
	incidentReplicas incident = "replicas"     // some daemon has one of these with the ledger of this one
	incidentDisk     incident = "disk"         // the ledger of this daemon cannot be written, or soon cannot
)

var allIncidents = []incident{
	incidentAway, incidentUnheard, incidentOther, incidentClock, incidentKey, incidentPolicy, incidentState, incidentReplicas, incidentDisk,
}

// incidents holds what is wrong between this daemon and its ledger, for the log, /healthz and metrics.
type incidents struct {
	log    *zap.Logger
	failed *failedReloads

	mu    sync.Mutex
	texts map[incident]string
}

// set says what an incident is; an empty text ends it. The log has each text once.
func (i *incidents) set(kind incident, text string) {
	i.mu.Lock()
	before := i.texts[kind]
	if i.texts == nil {
		i.texts = map[incident]string{}
	}
	i.texts[kind] = text
	i.mu.Unlock()
	if text == before {
		return
	}
	i.failed.set("ledger "+string(kind), text)
	if text == "" {
		i.log.Info("an incident with the ledger is over", zap.String("incident", string(kind)))
	} else {
		i.log.Warn(text, zap.String("incident", string(kind)))
	}
}

// now returns the incidents by name, with whether they are present.
func (i *incidents) now() map[string]bool {
	i.mu.Lock()
	texts := maps.Clone(i.texts)
	i.mu.Unlock()
	present := map[string]bool{}
	for _, kind := range allIncidents {
		present[string(kind)] = texts[kind] != ""
	}
	return present
}

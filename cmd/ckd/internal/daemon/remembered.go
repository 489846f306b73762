package daemon

import (
	"cmp"
	"errors"
	"fmt"
	"io/fs"
	"maps"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"time"

	"google.golang.org/protobuf/encoding/protojson"
	"google.golang.org/protobuf/proto"

	"github.com/ckd-project/ckd/internal/files"
	ckdv1 "github.com/ckd-project/ckd/proto/ckd/v1"
	"github.com/ckd-project/ckd/server"
)

// ledgerMemory holds what a daemon was told by its ledger, through restarts if there is a file for it. An
// alarm ends only when the ledger that told of it names the end: a ledger that is empty, another one or an
// older copy does not end an alarm that it lacks.
type ledgerMemory struct {
	ledger   *ckdv1.LedgerIdentity // the first that answered, in its latest state; nil while none has
	promises map[string][]*ckdv1.Promise
	alarms   map[alarmKey]*ckdv1.Alarm // the last of each figure, up or ended
}

// alarmKey names a figure of a model.
type alarmKey struct {
	model  string
	figure ckdv1.CertifiedFigure
	class  string
}

func keyOf(a *ckdv1.Alarm) alarmKey {
	return alarmKey{a.GetModel(), a.GetFigure(), a.GetCriticalClass()}
}

func newLedgerMemory() ledgerMemory {
	return ledgerMemory{promises: map[string][]*ckdv1.Promise{}, alarms: map[alarmKey]*ckdv1.Alarm{}}
}

// hear updates the memory by an answer about some policies. Of another ledger it takes alarms alone, until
// the remembered ledger answers again: promises of the other one lack the outcomes of the remembered one.
func (m *ledgerMemory) hear(asked []string, answer *ckdv1.ReportIssuedResponse) {
	now := answer.GetLedger()
	if m.ledger == nil || sameLedger(m.ledger, now) && !older(now, m.ledger) {
		m.ledger = now
	}
	if sameLedger(m.ledger, now) {
		maps.DeleteFunc(m.alarms, func(_ alarmKey, a *ckdv1.Alarm) bool { return a.GetLedger() != now.GetId() })
		for _, hash := range asked {
			delete(m.promises, hash)
		}
		for _, p := range answer.GetPromises() {
			hash := p.GetPolicy().GetHash()
			m.promises[hash] = append(m.promises[hash], p)
		}
	}
	for _, told := range answer.GetAlarms() {
		a := proto.CloneOf(told)
		a.Ledger, a.Generation = now.GetId(), now.GetGeneration()
		if known := m.alarms[keyOf(a)]; replaces(a, known) {
			m.alarms[keyOf(a)] = a
		}
	}
}

// replaces reports whether an alarm that a ledger told replaces the one that is known of its figure.
func replaces(told, known *ckdv1.Alarm) bool {
	switch {
	case known == nil:
		return true
	case !isUp(known):
		return isUp(told) || told.GetEnded().AsTime().After(known.GetEnded().AsTime())
	case told.GetLedger() != known.GetLedger() || told.GetGeneration() < known.GetGeneration():
		return false
	case isUp(told):
		return true
	}
	named := told.GetBy() != "" || told.GetReason() != "" || told.GetSuccessor() != ""
	return named && !told.GetEnded().AsTime().Before(known.GetRaised().AsTime())
}

func isUp(a *ckdv1.Alarm) bool { return a.GetEnded() == nil }

// up returns the alarms that are up, in a fixed order.
func (m *ledgerMemory) up() []*ckdv1.Alarm {
	return slices.DeleteFunc(m.allAlarms(), func(a *ckdv1.Alarm) bool { return !isUp(a) })
}

// allAlarms returns the last alarm of each figure, in a fixed order.
func (m *ledgerMemory) allAlarms() []*ckdv1.Alarm {
	return slices.SortedFunc(maps.Values(m.alarms), func(a, b *ckdv1.Alarm) int {
		return cmp.Or(cmp.Compare(a.GetModel(), b.GetModel()), cmp.Compare(b.GetFigure(), a.GetFigure()), cmp.Compare(a.GetCriticalClass(), b.GetCriticalClass()))
	})
}

// states returns the promises in a fixed order. A promise that does not know of its model's alarm is
// violated all the same.
func (m *ledgerMemory) states() (all []*ckdv1.Promise) {
	for _, promises := range m.promises {
		all = append(all, promises...)
	}
	for i, p := range all {
		for _, a := range m.up() {
			if a.GetModel() == p.GetPolicy().GetModel() && (!p.GetAlarm() || p.GetVerdict() != ckdv1.Verdict_VERDICT_VIOLATED) {
				all[i] = underAlarm(p, a)
			}
		}
	}
	slices.SortFunc(all, func(a, b *ckdv1.Promise) int {
		return cmp.Or(cmp.Compare(a.GetPolicy().GetModel(), b.GetPolicy().GetModel()), cmp.Compare(nameOf(a), nameOf(b)))
	})
	return all
}

// underAlarm returns a promise that an alarm of its model violates.
func underAlarm(p *ckdv1.Promise, a *ckdv1.Alarm) *ckdv1.Promise {
	p = proto.CloneOf(p)
	p.Alarm = p.Alarm || a.GetCriticalClass() == ""
	if p.Verdict != ckdv1.Verdict_VERDICT_VIOLATED {
		p.Verdict = ckdv1.Verdict_VERDICT_VIOLATED
		p.Statement = fmt.Sprintf("Alarm since %s, of model %s. Of this policy alone the ledger says: %s",
			a.GetRaised().AsTime().Format(time.RFC3339), a.GetModel(), p.Statement)
	}
	return p
}

// keepOnly drops the promises of other policies.
func (m *ledgerMemory) keepOnly(inForce []string) {
	maps.DeleteFunc(m.promises, func(hash string, _ []*ckdv1.Promise) bool { return !slices.Contains(inForce, hash) })
}

// sameLedger reports whether two identities are of one ledger.
func sameLedger(a, b *ckdv1.LedgerIdentity) bool { return a.GetId() == b.GetId() }

// sameCopy reports whether two identities are of one copy of a ledger: what one was told, the other has.
func sameCopy(a, b *ckdv1.LedgerIdentity) bool {
	return sameLedger(a, b) && a.GetGeneration() == b.GetGeneration() && a.GetBranch() == b.GetBranch()
}

// older reports whether one identity of a ledger comes before another.
func older(a, b *ckdv1.LedgerIdentity) bool {
	return cmp.Or(cmp.Compare(a.GetGeneration(), b.GetGeneration()), cmp.Compare(a.GetCommit(), b.GetCommit())) < 0
}

// readState reads the memory from its file. The ledger was heard when the file was written.
func (k *keeper) readState() error {
	if k.file == "" {
		return nil
	}
	if err := writable(filepath.Dir(k.file)); err != nil {
		return fmt.Errorf("ledger-state: %s: cannot be kept, expected a folder that this daemon may write: %w", k.file, err)
	}
	data, err := os.ReadFile(k.file)
	if errors.Is(err, fs.ErrNotExist) {
		return nil
	}
	if err != nil {
		return err
	}
	info, err := os.Stat(k.file)
	if err != nil {
		return err
	}
	said := &ckdv1.ReportIssuedResponse{}
	err = protojson.Unmarshal(data, said)
	if err == nil && said.GetLedger().GetId() == "" {
		err = errors.New("it names no ledger")
	}
	if err != nil {
		return fmt.Errorf("%s: not the state of a ledger, expected a file that a daemon wrote, or none: %w", k.file, err)
	}
	k.memory.ledger = said.GetLedger()
	for _, p := range said.GetPromises() {
		k.memory.promises[p.GetPolicy().GetHash()] = append(k.memory.promises[p.GetPolicy().GetHash()], p)
	}
	for _, a := range said.GetAlarms() {
		k.memory.alarms[keyOf(a)] = a
	}
	written := info.ModTime()
	k.answered.Store(&written)
	return nil
}

// writable reports whether a folder takes files.
func writable(dir string) error {
	f, err := os.CreateTemp(dir, ".ckd-ledger-state-*")
	if err != nil {
		return err
	}
	return errors.Join(f.Close(), os.Remove(f.Name()))
}

// writeState keeps the memory for a restart. It is called after each round: the file is as old as the
// last answer, also after a start.
func (k *keeper) writeState() {
	if k.file == "" {
		return
	}
	promises := slices.Concat(slices.Collect(maps.Values(k.memory.promises))...)
	data, err := protojson.Marshal(&ckdv1.ReportIssuedResponse{Ledger: k.memory.ledger, Promises: promises, Alarms: k.memory.allAlarms()})
	if err == nil {
		err = files.Replace(k.file, data, 0o600)
	}
	text := ""
	if err != nil {
		text = fmt.Sprintf("ledger-state: %s: what the ledger said cannot be kept: after a restart this daemon would not know of alarms: %v", k.file, err)
	}
	k.incidents.set(incidentState, text)
}

// violations says which alarms are up and which promises are violated, a line each.
func (m *ledgerMemory) violations() string {
	var lines strings.Builder
	for _, a := range m.up() {
		class := ""
		if a.GetCriticalClass() != "" {
			class = " of " + a.GetCriticalClass()
		}
		fmt.Fprintf(&lines, "model %s: alarm on the %s%s since %s; it stays until somebody ends it\n", a.GetModel(),
			server.FigureName(a.GetFigure()), class, a.GetRaised().AsTime().Format(time.RFC3339))
	}
	for _, p := range m.states() {
		if p.GetVerdict() == ckdv1.Verdict_VERDICT_VIOLATED {
			fmt.Fprintf(&lines, "model %s: policy %.12s, model version %q: %s\n", p.GetPolicy().GetModel(), p.GetPolicy().GetHash(), p.GetModelVersion(), p.GetStatement())
		}
	}
	return lines.String()
}

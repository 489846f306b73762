package daemon

import (
	"context"
	"errors"
	"fmt"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"testing"
	"time"

	"github.com/google/go-cmp/cmp"
	"go.uber.org/zap"
	"go.uber.org/zap/zapcore"
	"go.uber.org/zap/zaptest/observer"
	"google.golang.org/grpc/codes"
	"google.golang.org/grpc/status"
	"google.golang.org/protobuf/proto"
	"google.golang.org/protobuf/testing/protocmp"
	"google.golang.org/protobuf/types/known/timestamppb"

	"github.com/ckd-project/ckd/internal/outcome/outcometest"
	"github.com/ckd-project/ckd/internal/outcome/receipt"
	"github.com/ckd-project/ckd/internal/outcome/store"
	"github.com/ckd-project/ckd/policy"
	ckdv1 "github.com/ckd-project/ckd/proto/ckd/v1"
	"github.com/ckd-project/ckd/server"
)

// scripted is a server and a ledger that tests script.
type scripted struct {
	policies []*policy.Policy
	issued   []server.Issued // in the order of their positions
	sealed   map[receipt.SealerID]uint64
	state    server.LedgerState // as told to the server

	asked  []*ckdv1.ReportIssuedRequest
	answer func(*ckdv1.ReportIssuedRequest) (*ckdv1.ReportIssuedResponse, error)
}

func (s *scripted) Policies() []*policy.Policy              { return s.policies }
func (s *scripted) Sealed() map[receipt.SealerID]uint64     { return s.sealed }
func (s *scripted) SetLedgerState(state server.LedgerState) { s.state = state }
func (s *scripted) last() *ckdv1.ReportIssuedRequest        { return s.asked[len(s.asked)-1] }

func (s *scripted) Issued(after uint64, keys int) (all []server.Issued) {
	for _, i := range s.issued {
		if i.Position <= after {
			continue
		}
		if len(all) == 0 || all[len(all)-1].Position != i.Position {
			keys--
		}
		if keys < 0 {
			break
		}
		all = append(all, i)
	}
	return all
}

// decide counts a decision of the key of an issued.
func (s *scripted) decide(key int) {
	i := s.issued[key]
	i.Decisions++
	i.Position = s.issued[len(s.issued)-1].Position + 1
	s.issued = append(slices.Delete(s.issued, key, key+1), i)
}

func (s *scripted) tell(_ context.Context, r *ckdv1.ReportIssuedRequest) (*ckdv1.ReportIssuedResponse, error) {
	s.asked = append(s.asked, proto.CloneOf(r))
	return s.answer(r)
}

// theLedger returns the identity of the ledger that tests begin with.
func theLedger(commit uint64) *ckdv1.LedgerIdentity {
	return &ckdv1.LedgerIdentity{Id: "A", Generation: 1, Branch: "a", Commit: commit}
}

// says has the ledger always answer so.
func (s *scripted) says(answer *ckdv1.ReportIssuedResponse) {
	if answer.Ledger == nil {
		answer.Ledger = theLedger(1)
	}
	s.answer = func(*ckdv1.ReportIssuedRequest) (*ckdv1.ReportIssuedResponse, error) { return answer, nil }
}

// fails has the ledger not answer.
func (s *scripted) fails(err error) {
	s.answer = func(*ckdv1.ReportIssuedRequest) (*ckdv1.ReportIssuedResponse, error) { return nil, err }
}

const scriptedPolicy = "models: [{name: m%s, classes: [a, b], critical: [b], primary: {threshold: 1}, fallback: {threshold: 1}, audit: {rate: 0.5, on_breach: defer, surge: 10}}]"

// newScripted returns a keeper that tells a ledger which always answers.
func newScripted(t testing.TB, file string) (*scripted, *keeper, *observer.ObservedLogs) {
	t.Helper()
	p := outcometest.Policy(t, fmt.Sprintf(scriptedPolicy, ""))
	s := &scripted{policies: []*policy.Policy{p}}
	for n, stratum := range []receipt.Stratum{receipt.Deferred, receipt.CalledSafe} {
		issued := server.Issued{Stratum: stratum, IssuedKey: server.IssuedKey{Model: "m", Version: "v", Start: int64(n+1) * 3_600_000_000, Policy: p.HashBytes()}, InForce: p}
		issued.Decisions, issued.Position = 5, uint64(n+1)
		s.issued = append(s.issued, issued)
	}
	s.says(&ckdv1.ReportIssuedResponse{})
	core, logs := observer.New(zapcore.InfoLevel)
	k := makeKeeper(s, func() *receipt.Keys { return nil }, zap.New(core), &failedReloads{})
	k.tell, k.place, k.file, k.process, k.close = s.tell, "there", file, "p", func() error { return nil }
	return s, k, logs
}

func (k *keeper) rounds(t testing.TB) { t.Helper(); k.round(t.Context(), 10*time.Minute) }

// TestKeeperTells checks that the ledger is told what is new alone, again what it did not answer, and
// everything once more where it lacks a policy.
func TestKeeperTells(t *testing.T) {
	s, k, _ := newScripted(t, "")
	expect := func(what string, policies, counts int) {
		t.Helper()
		k.rounds(t)
		if r := s.last(); len(r.GetPolicies()) != policies || len(r.GetCounts()) != counts || len(r.GetPolicyHashes()) != 1 {
			t.Errorf("%s: %d policies, %d counts; want %d and %d", what, len(r.GetPolicies()), len(r.GetCounts()), policies, counts)
		}
	}
	works := s.answer
	s.fails(errors.New("away"))
	expect("the first, without an answer", 1, 2)
	s.answer = works
	expect("again", 1, 2)
	expect("nothing new", 0, 0)
	if got := s.last().GetRemembered(); got.GetId() != "A" || s.last().GetTime() == nil {
		t.Errorf("remembers %v", got)
	}
	sealer := receipt.SealerID{1}
	s.sealed = map[receipt.SealerID]uint64{sealer: 7}
	s.decide(1)
	expect("one count is new", 0, 1)
	if sealed := s.last().GetSealed(); len(sealed) != 1 || sealed[0].GetCount() != 7 || string(sealed[0].GetSealer()) != string(sealer[:]) {
		t.Errorf("sealed: %v", sealed)
	}
	expect("nothing sealed since", 0, 0)
	if sealed := s.last().GetSealed(); len(sealed) != 0 {
		t.Errorf("sealed, as told before: %v", sealed)
	}
	s.decide(1)
	expect("one count is new again", 0, 1)
	if c := s.last().GetCounts()[0]; c.GetDecisions() != 7 || c.GetAudit().GetRate() != 0.5 || !c.GetAudit().GetDefersOnBreach() || c.GetStart().GetSeconds() != 7200 {
		t.Errorf("count %v", c)
	}
	lost := true
	s.answer = func(r *ckdv1.ReportIssuedRequest) (*ckdv1.ReportIssuedResponse, error) {
		answer := &ckdv1.ReportIssuedResponse{Ledger: theLedger(1)}
		if lost = lost && len(r.GetPolicies()) == 0; lost {
			answer.UnknownPolicies = []string{s.policies[0].Hash}
		}
		return answer, nil
	}
	k.rounds(t)
	if r := s.last(); len(r.GetPolicies()) != 1 || len(r.GetCounts()) != 2 || len(r.GetSealed()) != 1 {
		t.Errorf("the ledger lacks the policy: %d policies, %d counts, %d sealers", len(r.GetPolicies()), len(r.GetCounts()), len(r.GetSealed()))
	}
}

// TestKeeperTellsEarlier checks that a ledger is told what processes issued that have ended, where it was away
// then or is an older copy, and not where it has it.
func TestKeeperTellsEarlier(t *testing.T) {
	file := filepath.Join(t.TempDir(), "issued")
	commit := uint64(1)
	// process has another process tell, and returns of which earlier processes it told how many counts.
	process := func(name string, away bool) map[string]int {
		t.Helper()
		s, k, _ := newScripted(t, "")
		k.process, k.issued.file = name, file
		k.now = func() time.Time { return time.Unix(10_000, 0) }
		k.began.Store(true)
		if err := k.issued.read(); err != nil {
			t.Fatal(err)
		}
		s.answer = func(*ckdv1.ReportIssuedRequest) (*ckdv1.ReportIssuedResponse, error) {
			if away {
				return nil, status.Error(codes.Unavailable, "away")
			}
			return &ckdv1.ReportIssuedResponse{Ledger: theLedger(commit)}, nil
		}
		k.rounds(t)
		k.rounds(t)
		k.end()
		told := map[string]int{}
		for _, r := range s.asked {
			if r.GetProcess() != name {
				told[r.GetProcess()] += len(r.GetCounts())
				if len(r.GetPolicies()) != 1 || r.GetTime() != nil {
					t.Errorf("%v", r)
				}
			}
		}
		return told
	}
	for _, step := range []struct {
		name   string
		away   bool
		commit uint64
		want   map[string]int
	}{
		{"p", true, 7, map[string]int{}},
		{"q", true, 7, map[string]int{"p": 0}},
		{"r", false, 7, map[string]int{"p": 2, "q": 2}},
		{"s", false, 8, map[string]int{}},
		{"t", false, 5, map[string]int{"p": 2, "q": 2, "r": 2, "s": 2}}, // an older copy
	} {
		commit = step.commit
		told := process(step.name, step.away)
		if step.away {
			continue
		}
		if diff := cmp.Diff(step.want, told); diff != "" {
			t.Errorf("%s: %s", step.name, diff)
		}
	}
	data, err := os.ReadFile(file)
	if err != nil {
		t.Fatal(err)
	}
	kept := keptIssued{file: file}
	if err := os.WriteFile(file, data[:len(data)-9], 0o600); err != nil {
		t.Fatal(err)
	}
	if err := kept.read(); err == nil || len(kept.earlier) != 4 || !strings.Contains(err.Error(), file) {
		t.Errorf("cut: %d, %v", len(kept.earlier), err)
	}
}

// TestEarlierUnderTraffic checks that what earlier processes issued is told while this one issues without a
// pause, is told again later where the ledger did not take it, and is kept once the disk lets it.
func TestEarlierUnderTraffic(t *testing.T) {
	file := filepath.Join(t.TempDir(), "missing", "issued")
	_, before, _ := newScripted(t, "")
	now := time.Unix(10_000, 0)
	before.issued.file, before.now = file, func() time.Time { return now }
	before.rounds(t)
	if err := os.Mkdir(filepath.Dir(file), 0o700); err != nil {
		t.Fatal(err)
	}
	now = now.Add(2 * keepEvery)
	before.rounds(t)
	s, k, _ := newScripted(t, "")
	k.process, k.issued.file, k.now = "q", file, func() time.Time { return now }
	if err := k.issued.read(); err != nil || len(k.issued.earlier) == 0 {
		t.Fatalf("the disk failed for a while: %d parts, %v", len(k.issued.earlier), err)
	}
	for _, p := range k.issued.earlier {
		p.Remembered = nil // it was told to nobody
	}
	takes := false
	s.answer = func(r *ckdv1.ReportIssuedRequest) (*ckdv1.ReportIssuedResponse, error) {
		s.decide(0)
		if r.GetProcess() == "p" && !takes {
			return nil, status.Error(codes.ResourceExhausted, "no memory")
		}
		return &ckdv1.ReportIssuedResponse{Ledger: theLedger(7)}, nil
	}
	told := func() (n int) {
		s.asked = nil
		k.rounds(t)
		for _, r := range s.asked {
			if r.GetProcess() == "p" {
				n += len(r.GetCounts())
			}
		}
		return n
	}
	if n := told(); n != 2 || k.has != nil || len(s.asked) > 9 {
		t.Errorf("not taken: %d told in %d messages, and %v is thought to have all", n, len(s.asked), k.has)
	}
	takes = true
	if n := told(); n != 0 {
		t.Errorf("%d told again at once", n)
	}
	now = now.Add(refusedFor + time.Second)
	if n := told(); n != 2 || k.has == nil {
		t.Errorf("later %d told, %v has all", n, k.has)
	}
	if n := told(); n != 0 {
		t.Errorf("%d told again", n)
	}
}

// TestKeeperTellsReloads checks that the ledger is told which policy a reload put in the place of which,
// until it has answered.
func TestKeeperTellsReloads(t *testing.T) {
	s, k, _ := newScripted(t, "")
	k.rounds(t)
	before := s.policies[0]
	after := outcometest.Policy(t, strings.Replace(fmt.Sprintf(scriptedPolicy, ""), "primary: {threshold: 1}", "primary: {threshold: 2}", 1))
	s.policies = []*policy.Policy{after}
	answer := s.answer
	s.fails(errors.New("away"))
	k.rounds(t)
	s.answer = answer
	k.rounds(t)
	told := 0
	for _, r := range s.asked {
		for _, c := range r.GetChanges() {
			told++
			if c.GetModel() != "m" || c.GetBefore() != before.Hash || c.GetAfter() != after.Hash {
				t.Errorf("%v", c)
			}
		}
	}
	if k.rounds(t); told != 2 || len(s.last().GetChanges()) > 0 { // once in vain
		t.Errorf("told %d times, and then %d more", told, len(s.last().GetChanges()))
	}
}

// TestKeeperRefused checks that a policy which the ledger never knows or never takes holds up nothing.
func TestKeeperRefused(t *testing.T) {
	for name, answer := range map[string]func(*ckdv1.ReportIssuedRequest, string) (*ckdv1.ReportIssuedResponse, error){
		"never known": func(r *ckdv1.ReportIssuedRequest, hash string) (*ckdv1.ReportIssuedResponse, error) {
			return &ckdv1.ReportIssuedResponse{Ledger: theLedger(1), UnknownPolicies: []string{hash}}, nil
		},
		"too large": func(r *ckdv1.ReportIssuedRequest, hash string) (*ckdv1.ReportIssuedResponse, error) {
			if slices.ContainsFunc(r.GetPolicies(), func(text []byte) bool { return strings.Contains(string(text), "name: mx") }) {
				return nil, status.Error(codes.ResourceExhausted, "larger than max")
			}
			return &ckdv1.ReportIssuedResponse{Ledger: theLedger(1)}, nil
		},
	} {
		t.Run(name, func(t *testing.T) {
			s, k, _ := newScripted(t, "")
			refused := outcometest.Policy(t, fmt.Sprintf(scriptedPolicy, "x"))
			if name == "too large" {
				k.room = leastPartBytes
				refused.Classes = append(slices.Clone(refused.Classes), strings.Repeat("x", partBytes))
			}
			s.policies = []*policy.Policy{s.policies[0], refused}
			s.answer = func(r *ckdv1.ReportIssuedRequest) (*ckdv1.ReportIssuedResponse, error) {
				return answer(r, refused.Hash)
			}
			k.rounds(t)
			k.rounds(t)
			if n := len(s.asked); n > 12 {
				t.Errorf("%d messages in two rounds", n)
			}
			if k.progress.position != 2 || !strings.Contains(k.failed.lines(), "ledger: policy "+refused.Hash[:12]+" of model mx: there does") {
				t.Errorf("told up to %d of 2; /healthz: %s", k.progress.position, k.failed.lines())
			}
			later := time.Now().Add(2 * refusedFor)
			k.now = func() time.Time { return later }
			s.says(&ckdv1.ReportIssuedResponse{})
			k.rounds(t)
			if strings.Contains(k.failed.lines(), "ledger: policy") || k.progress.policies[refused.Hash] != refused {
				t.Errorf("it is not tried again: %s", k.failed.lines())
			}
		})
	}
}

// TestKeeperTellsAgain checks that a ledger which came back from an older copy is told everything again, and
// that another one is an incident.
func TestKeeperTellsAgain(t *testing.T) {
	s, k, logs := newScripted(t, "")
	s.sealed = map[receipt.SealerID]uint64{{1}: 7}
	k.rounds(t)
	for name, now := range map[string]*ckdv1.LedgerIdentity{
		"generation": {Id: "A", Generation: 2, Branch: "a"}, "branch": {Id: "A", Generation: 2, Branch: "b"}, "another ledger": {Id: "B", Branch: "b"},
	} {
		before := len(s.asked)
		s.says(&ckdv1.ReportIssuedResponse{Ledger: now})
		k.rounds(t)
		if again := s.asked[before:]; len(again) != 2 || len(again[1].GetPolicies()) != 1 || len(again[1].GetCounts()) != 2 || len(again[1].GetSealed()) != 1 {
			t.Errorf("%s: told %v", name, again)
		}
		k.rounds(t)
		if n := len(s.last().GetCounts()); n != 0 {
			t.Errorf("%s: %d counts told once more", name, n)
		}
		other := k.incidents.now()[string(incidentOther)]
		if other != (name == "another ledger") || other != strings.Contains(k.failed.lines(), "another ledger (B)") {
			t.Errorf("%s: /healthz says %q", name, k.failed.lines())
		}
		s.says(&ckdv1.ReportIssuedResponse{}) // the first again
		k.rounds(t)
	}
	if k.incidents.now()[string(incidentOther)] {
		t.Error("the ledger of before is taken for another one")
	}
	if logs.FilterMessageSnippet("was restored from an older copy").Len() == 0 {
		t.Error("the log does not name the restore")
	}
}

// TestKeeperKeeps checks that what the ledger said stands while it is away, also after a restart.
func TestKeeperKeeps(t *testing.T) {
	file := filepath.Join(t.TempDir(), "state.json")
	s, k, _ := newScripted(t, file)
	violated := []*ckdv1.Promise{{
		Policy: &ckdv1.PolicyRef{Model: "m", Hash: s.policies[0].Hash}, ModelVersion: "v", Verdict: ckdv1.Verdict_VERDICT_VIOLATED, Alarm: true, Statement: "It is violated.",
	}}
	s.says(&ckdv1.ReportIssuedResponse{Promises: violated})
	k.rounds(t)
	old := time.Now().Add(-time.Hour)
	if err := os.Chtimes(file, old, old); err != nil {
		t.Fatal(err)
	}
	k.rounds(t)
	if info, err := os.Stat(file); err != nil || !info.ModTime().After(old.Add(time.Minute)) {
		t.Errorf("the file is as old as before another answer: %v", err)
	}
	s.fails(errors.New("away"))
	k.rounds(t)
	if diff := cmp.Diff(violated, s.state.Promises, protocmp.Transform()); diff != "" {
		t.Errorf("while it is away (-want +got):\n%s", diff)
	}
	if !strings.Contains(k.failed.lines(), "model m: ") || !strings.Contains(k.failed.lines(), "It is violated.") {
		t.Errorf("/healthz says %s", k.failed.lines())
	}

	again, next, _ := newScripted(t, file)
	if err := next.readState(); err != nil {
		t.Fatal(err)
	}
	next.inForce()
	if diff := cmp.Diff(violated, again.state.Promises, protocmp.Transform()); diff != "" || !again.state.Heard {
		t.Errorf("after a restart, heard %v (-want +got):\n%s", again.state.Heard, diff)
	}
	if !strings.Contains(next.failed.lines(), "It is violated.") {
		t.Errorf("/healthz says %q after a restart while the ledger is away", next.failed.lines())
	}
	if next.answered.Load() == nil {
		t.Error("the age of the state is not known after a restart")
	}
	for _, text := range []string{"{", "{}"} {
		if err := os.WriteFile(file, []byte(text), 0o600); err != nil {
			t.Fatal(err)
		}
		if err := next.readState(); err == nil || !strings.Contains(err.Error(), file) {
			t.Errorf("a file that is no state: %v", err)
		}
	}
	next.file = filepath.Join(t.TempDir(), "missing", "state.json")
	if err := next.readState(); err == nil || !strings.Contains(err.Error(), "expected a folder that this daemon may write") {
		t.Errorf("a folder that cannot be written: %v", err)
	}
}

// TestAlarmSticks checks what ends an alarm that a daemon was told of, and what does not.
func TestAlarmSticks(t *testing.T) {
	hour := func(h int) *timestamppb.Timestamp {
		return timestamppb.New(time.Unix(1e9, 0).Add(time.Duration(h) * time.Hour))
	}
	alarm := func(raised int, ended ...int) *ckdv1.Alarm {
		a := &ckdv1.Alarm{Model: "m", Figure: ckdv1.CertifiedFigure_CERTIFIED_FIGURE_CRITICAL_MISS_RATE, Raised: hour(raised)}
		if len(ended) > 0 {
			a.Ended, a.By, a.Reason = hour(ended[0]), "ann", "the reader was retrained"
		}
		return a
	}
	unnamed := alarm(1, 5)
	unnamed.By, unnamed.Reason = "", ""
	succeeded := alarm(1, 5)
	succeeded.By, succeeded.Reason, succeeded.Successor = "", "", "abc"
	older := &ckdv1.LedgerIdentity{Id: "A"}
	restored := &ckdv1.LedgerIdentity{Id: "A", Generation: 2, Branch: "b"}
	another := &ckdv1.LedgerIdentity{Id: "B", Branch: "b"}
	for _, c := range []struct {
		name   string
		ledger *ckdv1.LedgerIdentity
		alarms []*ckdv1.Alarm
		up     bool
	}{
		{"it knows none", theLedger(9), nil, true},
		{"a named end", theLedger(9), []*ckdv1.Alarm{alarm(1, 5)}, false},
		{"an end by a successor", theLedger(9), []*ckdv1.Alarm{succeeded}, false},
		{"an end without a name", theLedger(9), []*ckdv1.Alarm{unnamed}, true},
		{"ended, and raised again", theLedger(9), []*ckdv1.Alarm{alarm(1, 5), alarm(6)}, true},
		{"an older copy that lacks it", restored, nil, true},
		{"an older copy, of which an earlier alarm has ended", restored, []*ckdv1.Alarm{alarm(-9, 0)}, true},
		{"an older copy, where somebody ended it", restored, []*ckdv1.Alarm{alarm(3, 5)}, false},
		{"an earlier generation", older, []*ckdv1.Alarm{alarm(1, 5)}, true},
		{"an empty ledger in its place", another, nil, true},
		{"another ledger, where somebody ended one", another, []*ckdv1.Alarm{alarm(1, 5)}, true},
	} {
		t.Run(c.name, func(t *testing.T) {
			file := filepath.Join(t.TempDir(), "state.json")
			_, k, _ := newScripted(t, file)
			s, _, _ := newScripted(t, "")
			restart := func() {
				s, k, _ = newScripted(t, file)
				if err := k.readState(); err != nil {
					t.Fatal(err)
				}
				k.inForce()
			}
			restart()
			s.says(&ckdv1.ReportIssuedResponse{Alarms: []*ckdv1.Alarm{alarm(1)}})
			k.rounds(t)
			s.says(&ckdv1.ReportIssuedResponse{Ledger: c.ledger, Alarms: c.alarms})
			for range 2 {
				k.rounds(t)
				if told := s.last().GetAlarms(); c.up && (len(told) != 1 || told[0].GetLedger() != "A") {
					t.Errorf("the ledger is told of alarms %v", told)
				}
				if up := len(s.state.Alarms) > 0; up != c.up || up != strings.Contains(k.failed.lines(), "model m: alarm on the critical miss rate since ") {
					t.Errorf("up: %v; /healthz says %q", up, k.failed.lines())
				}
				restart()
				if up := len(s.state.Alarms) > 0; up != c.up || !s.state.Heard {
					t.Errorf("up after a restart: %v", up)
				}
				s.says(&ckdv1.ReportIssuedResponse{Ledger: c.ledger, Alarms: c.alarms})
			}
		})
	}

	t.Run("of another ledger, until that of before answers", func(t *testing.T) {
		s, k, _ := newScripted(t, "")
		k.rounds(t)
		for _, c := range []struct {
			ledger *ckdv1.LedgerIdentity
			alarms []*ckdv1.Alarm
			up     bool
		}{{another, []*ckdv1.Alarm{alarm(1)}, true}, {theLedger(9), nil, false}} {
			s.says(&ckdv1.ReportIssuedResponse{Ledger: c.ledger, Alarms: c.alarms})
			k.rounds(t)
			if up := len(s.state.Alarms) > 0; up != c.up {
				t.Errorf("ledger %s: up %v", c.ledger.GetId(), up)
			}
		}
	})

	t.Run("violates all promises of the model", func(t *testing.T) {
		s, k, _ := newScripted(t, "")
		holding := &ckdv1.Promise{Policy: &ckdv1.PolicyRef{Model: "m", Hash: s.policies[0].Hash}, Verdict: ckdv1.Verdict_VERDICT_HOLDING, Statement: "The promise holds."}
		s.says(&ckdv1.ReportIssuedResponse{Promises: []*ckdv1.Promise{holding}, Alarms: []*ckdv1.Alarm{alarm(1)}})
		k.rounds(t)
		if p := s.state.Promises[0]; !p.GetAlarm() || p.GetVerdict() != ckdv1.Verdict_VERDICT_VIOLATED || !strings.HasPrefix(p.GetStatement(), "Alarm since ") {
			t.Errorf("promise %v", p)
		}
	})
}

// TestNeverHeard checks that a daemon waits for its ledger before it retains what policies with on_breach:
// defer call safe, and says so.
func TestNeverHeard(t *testing.T) {
	s, k, _ := newScripted(t, "")
	k.inForce()
	s.fails(errors.New("away"))
	k.rounds(t)
	if s.state.Heard || !strings.Contains(k.failed.lines(), "there has not answered since this daemon started: until it does, everything called safe is deferred for m") {
		t.Errorf("heard %v; /healthz says %q", s.state.Heard, k.failed.lines())
	}
	s.says(&ckdv1.ReportIssuedResponse{})
	k.rounds(t)
	if !s.state.Heard || strings.Contains(k.failed.lines(), "has not answered") {
		t.Errorf("heard %v; /healthz says %q", s.state.Heard, k.failed.lines())
	}
}

// TestCauses checks that the log names the present cause once.
func TestCauses(t *testing.T) {
	s, k, logs := newScripted(t, "")
	for _, err := range []string{"read tcp 127.0.0.1:4711: reset", "read tcp 127.0.0.1:4712: reset", "wrong token", "wrong token", "read tcp 127.0.0.1:4713: reset"} {
		s.fails(errors.New(err))
		k.rounds(t)
	}
	var causes []any
	for _, l := range logs.FilterMessageSnippet("the ledger does not answer").All() {
		causes = append(causes, l.ContextMap()["error"])
	}
	if diff := cmp.Diff([]any{"read tcp 127.0.0.1:4711: reset", "wrong token", "read tcp 127.0.0.1:4713: reset"}, causes); diff != "" {
		t.Errorf("(-want +got):\n%s", diff)
	}
}

// TestFaults checks that a foreign receipt key and a clock that is off are named at the first answer.
func TestFaults(t *testing.T) {
	s, k, _ := newScripted(t, "")
	now := time.Now()
	k.now = func() time.Time { return now }
	for ahead, want := range map[time.Duration]string{2 * time.Minute: "is more than a minute ahead of that", -2 * time.Minute: "is more than a minute behind that", 30 * time.Second: ""} {
		s.says(&ckdv1.ReportIssuedResponse{Time: timestamppb.New(now.Add(-ahead)), UnknownReceiptKeys: []string{"abcdef"}})
		k.rounds(t)
		if lines := k.failed.lines(); strings.Contains(lines, "the clock of this daemon") != (want != "") || !strings.Contains(lines, want) || !strings.Contains(lines, "lacks the receipt keys abcdef") {
			t.Errorf("%v ahead: /healthz says %q", ahead, lines)
		}
		if faults := k.incidents.now(); faults["clock"] != (want != "") || !faults["receipt_key"] || faults["policy"] {
			t.Errorf("%v ahead: %v", ahead, faults)
		}
	}
}

// crowd scripts a server with many models and a week of hours.
func crowd(t testing.TB, s *scripted, models, hours int) {
	t.Helper()
	filler := strings.Repeat("x", 13_000)
	s.policies, s.issued = nil, nil
	for m := range models {
		p := outcometest.Policy(t, fmt.Sprintf(scriptedPolicy, fmt.Sprint(m)))
		p.Classes = []string{"a", "b" + filler}
		s.policies = append(s.policies, p)
	}
	for h := range hours {
		for m, p := range s.policies {
			for _, stratum := range []receipt.Stratum{receipt.Deferred, receipt.CalledCritical, receipt.CalledSafe} {
				i := server.Issued{Stratum: stratum, IssuedKey: server.IssuedKey{Model: p.Name, Version: "v", Start: int64(h+1) * 3_600_000_000, Policy: p.HashBytes()}, InForce: p}
				i.Decisions, i.Position = uint64(h+1), uint64(h*models+m+1)
				s.issued = append(s.issued, i)
			}
		}
	}
}

// TestKeeperCatchesUp checks that a week without the ledger is told in bounded parts, each but once, also
// where every third message fails.
func TestKeeperCatchesUp(t *testing.T) {
	s, k, _ := newScripted(t, "")
	crowd(t, s, 100, 7*24)
	type count struct {
		policy, stratum string
		start           int64
	}
	got, policies, calls, most := map[count]uint64{}, map[string]bool{}, 0, 0
	s.tellInParts(func(r *ckdv1.ReportIssuedRequest) error {
		calls++
		most = max(most, proto.Size(r))
		if calls%3 == 0 {
			return errors.New("away")
		}
		for _, text := range r.GetPolicies() {
			policies[string(text[:40])] = true
		}
		for _, c := range r.GetCounts() {
			got[count{c.GetPolicyHash(), c.GetStratum().String(), c.GetStart().GetSeconds()}] += c.GetDecisions()
		}
		return nil
	})
	rounds := 0
	for rounds < 100 && k.progress.position < s.issued[len(s.issued)-1].Position {
		k.rounds(t)
		rounds++
	}
	if len(got) != len(s.issued) || len(policies) != 100 {
		t.Fatalf("%d counts of %d, %d policies after %d rounds", len(got), len(s.issued), len(policies), rounds)
	}
	for c, n := range got {
		if n != uint64(c.start/3600) {
			t.Fatalf("%v: %d decisions", c, n)
		}
	}
	if most > partBytes+32<<10 {
		t.Errorf("a message has %d bytes", most)
	}
	s.tellInParts(func(*ckdv1.ReportIssuedRequest) error { return nil })
	k.progress = newProgress(nil)
	calls = len(s.asked)
	k.rounds(t)
	if k.progress.position != s.issued[len(s.issued)-1].Position {
		t.Errorf("one round without failures told %d of %d", k.progress.position, s.issued[len(s.issued)-1].Position)
	}
	t.Logf("%d counts in %d messages", len(s.issued), len(s.asked)-calls)
	k.rounds(t)
	if n := len(s.last().GetCounts()); n != 0 || len(s.last().GetPolicyHashes()) == 0 {
		t.Errorf("nothing new, but %d counts", n)
	}
}

// tellInParts has a ledger answer for at most 30 policies at a time.
func (s *scripted) tellInParts(take func(*ckdv1.ReportIssuedRequest) error) {
	s.answer = func(r *ckdv1.ReportIssuedRequest) (*ckdv1.ReportIssuedResponse, error) {
		if err := take(r); err != nil {
			return nil, err
		}
		answer := &ckdv1.ReportIssuedResponse{Ledger: theLedger(1)}
		for _, hash := range r.GetPolicyHashes()[:min(30, len(r.GetPolicyHashes()))] {
			answer.AnsweredPolicies++
			answer.Promises = append(answer.Promises, &ckdv1.Promise{Policy: &ckdv1.PolicyRef{Hash: hash}})
		}
		return answer, nil
	}
}

// TestFiguresStand checks that the figures that were told last stand, under the present verdict, while the
// ledger does not tell others, but not once they may not be read.
func TestFiguresStand(t *testing.T) {
	s, k, _ := newScripted(t, "")
	promise := &ckdv1.Promise{Policy: &ckdv1.PolicyRef{Model: "m", Hash: s.policies[0].Hash}, ModelVersion: "v", Statement: "before"}
	all := []*ckdv1.PromiseFigures{{Promise: promise, MatureCohorts: 7}}
	var failed error
	k.figures = func(context.Context, string) ([]*ckdv1.PromiseFigures, error) { return all, failed }
	for _, c := range []struct {
		failed    error
		statement string
		cohorts   uint32
	}{
		{nil, "before", 7},
		{status.Error(codes.Unavailable, "the ledger stops"), "after", 7},
		{status.Error(codes.PermissionDenied, "no right"), "after", 0},
	} {
		failed = c.failed
		now := proto.CloneOf(promise)
		now.Statement = c.statement
		s.says(&ckdv1.ReportIssuedResponse{Promises: []*ckdv1.Promise{now}})
		looked := k.now()
		k.looked.Store(&looked)
		k.asked = time.Time{}
		k.rounds(t)
		shown := *k.told.Load()
		if len(shown) != 1 || shown[0].GetPromise().GetStatement() != c.statement || shown[0].GetMatureCohorts() != c.cohorts {
			t.Errorf("%v: %v, expected the statement %q and %d cohorts", c.failed, shown, c.statement, c.cohorts)
		}
	}
}

// TestDisk checks that a ledger that cannot be written, or soon cannot, is an incident until it can.
func TestDisk(t *testing.T) {
	k := makeKeeper(&scripted{}, func() *receipt.Keys { return nil }, zap.NewNop(), &failedReloads{})
	k.place = "/ledger"
	for _, c := range []struct {
		status store.Status
		want   string
	}{
		{store.Status{FreeBytes: 1 << 40}, ""},
		{store.Status{FreeBytes: 1 << 20}, "ledger: the file system of /ledger has less than 128 MiB left"},
		{store.Status{FreeBytes: 1 << 40, FailedWrites: 3, LastError: "disk I/O error"}, "ledger: /ledger cannot be written: outcomes are refused and evidence stands still until it can: disk I/O error"},
		{store.Status{FreeBytes: 1 << 40, FailedWrites: 3}, ""},
	} {
		k.disk = func() store.Status { return c.status }
		k.watchDisk()
		if lines := k.failed.lines(); !strings.HasPrefix(lines, c.want) || (lines == "") != (c.want == "") || k.incidents.now()[string(incidentDisk)] != (c.want != "") {
			t.Errorf("%+v: /healthz says %q, expected %q", c.status, lines, c.want)
		}
	}
}

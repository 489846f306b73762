package daemon

import (
	"context"
	"encoding/hex"
	"errors"
	"os"
	"path/filepath"
	"strings"
	"testing"
	"time"

	"github.com/google/go-cmp/cmp"
	"go.uber.org/zap"
	"google.golang.org/protobuf/testing/protocmp"

	"github.com/ckd-project/ckd/internal/outcome/receipt"
	"github.com/ckd-project/ckd/policy"
	ckdv1 "github.com/ckd-project/ckd/proto/ckd/v1"
	"github.com/ckd-project/ckd/server"
)

// scripted is a server and a ledger that tests script.
type scripted struct {
	policies []*policy.Policy
	issued   []server.Issued
	sealed   map[receipt.SealerID]uint64
	promises []*ckdv1.Promise // as told to the server

	asked  []*ckdv1.ReportIssuedRequest
	answer func(*ckdv1.ReportIssuedRequest) (*ckdv1.ReportIssuedResponse, error)
}

func (s *scripted) Policies() []*policy.Policy          { return s.policies }
func (s *scripted) Issued() []server.Issued             { return s.issued }
func (s *scripted) Sealed() map[receipt.SealerID]uint64 { return s.sealed }
func (s *scripted) SetPromises(all []*ckdv1.Promise)    { s.promises = all }
func (s *scripted) last() *ckdv1.ReportIssuedRequest    { return s.asked[len(s.asked)-1] }
func (s *scripted) count(stratum int) *server.Issued    { return &s.issued[stratum] }

func (s *scripted) tell(_ context.Context, r *ckdv1.ReportIssuedRequest) (*ckdv1.ReportIssuedResponse, error) {
	s.asked = append(s.asked, r)
	return s.answer(r)
}

// newScripted returns a keeper that tells a ledger which always answers.
func newScripted(t *testing.T, file string) (*scripted, *keeper) {
	t.Helper()
	set, err := policy.Parse(policy.File{Name: "p", Data: []byte(
		"models: [{name: m, classes: [a, b], critical: [b], primary: {threshold: 1}, fallback: {threshold: 1}, audit: {rate: 0.5, on_breach: defer, surge: 10}}]")})
	if err != nil {
		t.Fatal(err)
	}
	s := &scripted{policies: set.All()}
	for _, stratum := range []receipt.Stratum{receipt.Deferred, receipt.CalledSafe} {
		issued := server.Issued{Stratum: stratum, IssuedKey: server.IssuedKey{Model: "m", Version: "v", Start: 3_600_000_000}}
		issued.Decisions = 5
		if _, err := hex.Decode(issued.Policy[:], []byte(set.All()[0].Hash)); err != nil {
			t.Fatal(err)
		}
		s.issued = append(s.issued, issued)
	}
	s.answer = func(*ckdv1.ReportIssuedRequest) (*ckdv1.ReportIssuedResponse, error) {
		return &ckdv1.ReportIssuedResponse{}, nil
	}
	k := &keeper{server: s, log: zap.NewNop(), failed: &failedReloads{}, tell: s.tell, place: "there", file: file, process: "p"}
	k.forgetAll()
	return s, k
}

// TestKeeperTells checks that the ledger is told what is new alone, again what it did not answer, and
// everything of a policy that it has lost.
func TestKeeperTells(t *testing.T) {
	s, k := newScripted(t, "")
	round := func() { k.round(t.Context(), time.Second) }
	expect := func(what string, policies, counts int) {
		t.Helper()
		round()
		if r := s.last(); len(r.GetPolicies()) != policies || len(r.GetCounts()) != counts || len(r.GetPolicyHashes()) != 1 {
			t.Errorf("%s: %d policies, %d counts; want %d and %d", what, len(r.GetPolicies()), len(r.GetCounts()), policies, counts)
		}
	}
	works := s.answer
	s.answer = func(*ckdv1.ReportIssuedRequest) (*ckdv1.ReportIssuedResponse, error) { return nil, errors.New("away") }
	expect("the first, without an answer", 1, 2)
	s.answer = works
	expect("again", 1, 2)
	expect("nothing new", 0, 0)
	sealer := receipt.SealerID{1}
	s.sealed = map[receipt.SealerID]uint64{sealer: 7}
	s.count(1).Decisions++
	expect("one count is new", 0, 1)
	if sealed := s.last().GetSealed(); len(sealed) != 1 || sealed[0].GetCount() != 7 || string(sealed[0].GetSealer()) != string(sealer[:]) {
		t.Errorf("sealed: %v", sealed)
	}
	expect("nothing sealed since", 0, 0)
	if sealed := s.last().GetSealed(); len(sealed) != 0 {
		t.Errorf("sealed, as told before: %v", sealed)
	}
	s.count(1).Decisions++
	expect("one count is new again", 0, 1)
	if c := s.last().GetCounts()[0]; c.GetDecisions() != 7 || c.GetAudit().GetRate() != 0.5 || !c.GetAudit().GetDefersOnBreach() || c.GetStart().GetSeconds() != 3600 {
		t.Errorf("count %v", c)
	}
	lost := true
	s.answer = func(r *ckdv1.ReportIssuedRequest) (*ckdv1.ReportIssuedResponse, error) {
		answer := &ckdv1.ReportIssuedResponse{}
		if lost = lost && len(r.GetPolicies()) == 0; lost {
			answer.UnknownPolicies = r.GetPolicyHashes()
		}
		return answer, nil
	}
	expect("the ledger has lost the policy", 1, 2)
	if sealed := s.last().GetSealed(); len(sealed) != 1 {
		t.Errorf("sealed, told again with the counts: %v", sealed)
	}
}

// TestKeeperKeeps checks that what the ledger said stands while it is away, also after a restart.
func TestKeeperKeeps(t *testing.T) {
	file := filepath.Join(t.TempDir(), "state.json")
	s, k := newScripted(t, file)
	violated := []*ckdv1.Promise{{
		Policy: &ckdv1.PolicyRef{Model: "m", Hash: s.policies[0].Hash}, ModelVersion: "v", Verdict: ckdv1.Verdict_VERDICT_VIOLATED, Alarm: true, Statement: "It is violated.",
	}}
	s.answer = func(*ckdv1.ReportIssuedRequest) (*ckdv1.ReportIssuedResponse, error) {
		return &ckdv1.ReportIssuedResponse{Promises: violated}, nil
	}
	k.round(t.Context(), time.Second)
	old := time.Now().Add(-time.Hour)
	if err := os.Chtimes(file, old, old); err != nil {
		t.Fatal(err)
	}
	k.round(t.Context(), time.Second)
	if info, err := os.Stat(file); err != nil || !info.ModTime().After(old.Add(time.Minute)) {
		t.Errorf("the file is as old as before another answer: %v", err)
	}
	s.answer = func(*ckdv1.ReportIssuedRequest) (*ckdv1.ReportIssuedResponse, error) { return nil, errors.New("away") }
	k.round(t.Context(), time.Second)
	if diff := cmp.Diff(violated, s.promises, protocmp.Transform()); diff != "" {
		t.Errorf("while it is away (-want +got):\n%s", diff)
	}
	if !strings.Contains(k.failed.lines(), "model m: ") || !strings.Contains(k.failed.lines(), "It is violated.") {
		t.Errorf("/healthz says %s", k.failed.lines())
	}

	again, next := newScripted(t, file)
	if err := next.readState(); err != nil {
		t.Fatal(err)
	}
	if diff := cmp.Diff(violated, again.promises, protocmp.Transform()); diff != "" {
		t.Errorf("after a restart (-want +got):\n%s", diff)
	}
	if !strings.Contains(next.failed.lines(), "It is violated.") {
		t.Errorf("/healthz says %q after a restart while the ledger is away", next.failed.lines())
	}
	if next.answered.Load() == nil {
		t.Error("the age of the state is not known after a restart")
	}
	if err := os.WriteFile(file, []byte("{"), 0o600); err != nil {
		t.Fatal(err)
	}
	if err := next.readState(); err == nil || !strings.Contains(err.Error(), file) {
		t.Errorf("a file that is no state: %v", err)
	}
}

package outcomes

import (
	"cmp"
	"context"
	"encoding/hex"
	"fmt"
	"math"
	"slices"
	"strings"
	"sync"
	"time"

	"go.uber.org/zap"
	"google.golang.org/protobuf/proto"
	"google.golang.org/protobuf/types/known/durationpb"
	"google.golang.org/protobuf/types/known/timestamppb"

	"github.com/ckd-project/ckd/internal/auth"
	"github.com/ckd-project/ckd/internal/clock"
	"github.com/ckd-project/ckd/internal/outcome/ledger"
	"github.com/ckd-project/ckd/internal/outcome/promise"
	"github.com/ckd-project/ckd/internal/outcome/receipt"
	"github.com/ckd-project/ckd/policy"
	ckdv1 "github.com/ckd-project/ckd/proto/ckd/v1"
)

// Bounds of an answer: of all its states, but for the first policy's, and of the states of one policy.
const (
	answerBytes    = 256 << 10
	answerVersions = 256
)

// ReportIssued implements the RPC.
func (s *Service) ReportIssued(ctx context.Context, r *ckdv1.ReportIssuedRequest) (*ckdv1.ReportIssuedResponse, error) {
	began := time.Now()
	if err := auth.Require(ctx, (*auth.Identity).MayIssue, "tell what was issued"); err != nil {
		return nil, err
	}
	if err := checkIssued(r); err != nil {
		return nil, err
	}
	if err := s.recall(ctx, r); err != nil {
		return nil, err
	}
	response := &ckdv1.ReportIssuedResponse{}
	if err := s.learn(ctx, r, response); err != nil {
		return nil, err
	}
	if err := s.noteReloads(ctx, r); err != nil {
		return nil, err
	}
	if err := s.answer(ctx, r, response); err != nil {
		return nil, err
	}
	now := clock.Now()
	response.Ledger, response.Time = identityMessage(s.Ledger.Identity()), timestamppb.New(now)
	known := s.Keys().IDs()
	for _, id := range r.GetReceiptKeys() {
		if !slices.Contains(known, id) {
			response.UnknownReceiptKeys = append(response.UnknownReceiptKeys, id)
		}
	}
	if r.GetTime() != nil { // else the process has ended
		s.Ledger.Heard(ledger.Replica{Process: r.GetProcess(), Identity: auth.FromContext(ctx).Name(), Keys: r.GetReceiptKeys(),
			Remembers: identityOf(r.GetRemembered()), ClockAhead: r.GetTime().AsTime().Sub(now), At: now})
	}
	response.Next = durationpb.New(s.pace.next(time.Since(began), len(s.Ledger.Replicas())))
	return response, nil
}

// recall has the ledger hear what the daemon remembers of it, alarms included.
func (s *Service) recall(ctx context.Context, r *ckdv1.ReportIssuedRequest) error {
	remembered := identityOf(r.GetRemembered())
	if remembered.ID != s.Ledger.Identity().ID {
		return nil
	}
	restored, err := s.Ledger.Remembered(remembered)
	if err != nil {
		return s.failed("begin another generation", err)
	}
	if restored {
		s.Log.Warn("an older copy of the ledger was put back: daemons tell again what they issued; outcomes that came after the copy must be sent again",
			zap.String("process", r.GetProcess()), zap.Uint64("remembered", remembered.Commit), zap.Stringer("ledger", s.Ledger.Identity()))
	}
	who := auth.FromContext(ctx)
	var alarms []ledger.Alarm
	for _, a := range r.GetAlarms() {
		if a.GetLedger() == remembered.ID && a.GetEnded() == nil && who.MayUse(a.GetModel()) {
			alarms = append(alarms, AlarmOf(a))
		}
	}
	if err := s.Ledger.Recall(alarms); err != nil {
		return s.failed("take up alarms", err)
	}
	return nil
}

// learn takes policies, counts and sealed numbers. What belongs to an unknown policy is left out, and
// the answer says so.
func (s *Service) learn(ctx context.Context, r *ckdv1.ReportIssuedRequest, response *ckdv1.ReportIssuedResponse) error {
	for i, text := range r.GetPolicies() {
		set, err := policy.Parse(policy.File{Name: "policy", Data: text})
		if err != nil {
			return wrong(fmt.Sprintf("policies[%d]", i), "%v", err).Err()
		}
		for _, p := range set.All() {
			if err := auth.Allow(ctx, p.Name); err != nil {
				return err
			}
		}
	}
	if err := s.Ledger.AddPolicy(r.GetPolicies()...); err != nil {
		return s.failed("learn policies", err)
	}
	who := auth.FromContext(ctx)
	var counts []ledger.Issued
	for i, c := range r.GetCounts() {
		issued, err := issuedOf(r.GetProcess(), c)
		if err != nil {
			return wrong(fmt.Sprintf("counts[%d]", i), "%v", err).Err()
		}
		switch model, _, known := s.Ledger.Policy(issued.Policy); {
		case !known:
			response.UnknownPolicies = append(response.UnknownPolicies, c.GetPolicyHash())
		case who.MayUse(model):
			counts = append(counts, issued)
		}
	}
	var sealed []ledger.Sealed
	if len(counts) == len(r.GetCounts()) { // else some come again
		for _, c := range r.GetSealed() {
			sealed = append(sealed, ledger.Sealed{Sealer: receipt.SealerID(c.GetSealer()), Count: c.GetCount()})
		}
	}
	if err := s.Ledger.Issued(counts, sealed...); err != nil {
		return s.failed("count what was issued", err)
	}
	return nil
}

// noteReloads enters in the trail which policies the daemon has put in force.
func (s *Service) noteReloads(ctx context.Context, r *ckdv1.ReportIssuedRequest) error {
	who := auth.FromContext(ctx)
	var events []ledger.Event
	for _, c := range r.GetChanges() {
		if who.MayUse(c.GetModel()) {
			events = append(events, ledger.Event{Model: c.GetModel(), Before: c.GetBefore(), Policy: c.GetAfter(), By: who.Name(), Detail: "process " + r.GetProcess()})
		}
	}
	if err := s.Ledger.Reloaded(events...); err != nil {
		return s.failed("note a reload", err)
	}
	return nil
}

// answer answers as many of the policies asked for as there is room, with the alarms of their models.
func (s *Service) answer(ctx context.Context, r *ckdv1.ReportIssuedRequest, response *ckdv1.ReportIssuedResponse) error {
	if len(r.GetPolicyHashes()) == 0 {
		return nil
	}
	states, err := s.Ledger.Recent()
	if err != nil {
		return s.failed("read the states", err)
	}
	byPolicy := map[[32]byte][]*promise.Promise{}
	for _, p := range states {
		byPolicy[p.Policy] = append(byPolicy[p.Policy], p)
	}
	who, models := auth.FromContext(ctx), map[string]bool{}
	size := 0
	for i, text := range r.GetPolicyHashes() {
		hash, ok := hashOf(text)
		if !ok {
			return wrong(fmt.Sprintf("policy_hashes[%d]", i), "%.80q, expected 64 hexadecimal digits", text).Err()
		}
		if size > answerBytes {
			break
		}
		response.AnsweredPolicies++
		model, _, known := s.Ledger.Policy(hash)
		if !known {
			response.UnknownPolicies = append(response.UnknownPolicies, text)
		}
		if !known || !who.MayUse(model) {
			continue
		}
		for _, p := range latestStates(byPolicy[hash]) {
			response.Promises = append(response.Promises, promiseMessage(p))
			size += proto.Size(response.Promises[len(response.Promises)-1])
		}
		if models[model] {
			continue
		}
		models[model] = true
		alarms, err := s.Ledger.Alarms(model)
		if err != nil {
			return s.failed("read the alarms", err)
		}
		for i := range alarms {
			response.Alarms = append(response.Alarms, alarmMessage(&alarms[i]))
		}
	}
	slices.Sort(response.UnknownPolicies)
	response.UnknownPolicies = slices.Compact(response.UnknownPolicies)
	return nil
}

// latestStates returns at most so many states of one policy as an answer has: those with an alarm before
// others, then the versions that were in use last.
func latestStates(all []*promise.Promise) []*promise.Promise {
	if len(all) <= answerVersions {
		return all
	}
	all = slices.Clone(all)
	slices.SortStableFunc(all, func(a, b *promise.Promise) int {
		if a.Alarm != b.Alarm {
			if a.Alarm {
				return -1
			}
			return 1
		}
		return cmp.Or(b.Cohorts.NextMature.Compare(a.Cohorts.NextMature), b.Cohorts.Until.Compare(a.Cohorts.Until))
	})
	return all[:answerVersions]
}

// pace says when daemons are to tell next: all of them together are to take a tenth of a core.
type pace struct {
	mu   sync.Mutex
	cost float64 // seconds that a call takes, smoothed
}

// Bounds of the time between two tells of a daemon.
const (
	soonest = 2 * time.Second
	latest  = time.Minute
)

// next takes the time that a call took, and returns when one of so many daemons is to call again.
func (p *pace) next(took time.Duration, daemons int) time.Duration {
	const smoothing, share = 0.05, 0.1
	p.mu.Lock()
	defer p.mu.Unlock()
	p.cost += smoothing * (took.Seconds() - p.cost)
	return min(max(time.Duration(p.cost*float64(daemons)/share*float64(time.Second)), soonest), latest)
}

// identityMessage returns an identity for another process.
func identityMessage(i ledger.Identity) *ckdv1.LedgerIdentity {
	return &ckdv1.LedgerIdentity{Id: i.ID, Generation: i.Generation, Branch: i.Branch, Commit: i.Commit}
}

func identityOf(m *ckdv1.LedgerIdentity) ledger.Identity {
	return ledger.Identity{ID: m.GetId(), Generation: m.GetGeneration(), Branch: m.GetBranch(), Commit: m.GetCommit()}
}

// alarmMessage returns an alarm for another process.
func alarmMessage(a *ledger.Alarm) *ckdv1.Alarm {
	return &ckdv1.Alarm{
		Model: a.Model, Figure: ckdv1.CertifiedFigure(ckdv1.CertifiedFigure_value["CERTIFIED_FIGURE_"+strings.ToUpper(a.Figure)]), CriticalClass: a.Class,
		Raised: timeMessage(a.Raised), Ended: timeMessage(a.Ended), By: a.By, Reason: a.Reason, Successor: a.Successor,
	}
}

// AlarmOf returns an alarm that another process told of.
func AlarmOf(m *ckdv1.Alarm) ledger.Alarm {
	a := ledger.Alarm{
		Model: m.GetModel(), Figure: strings.ToLower(strings.TrimPrefix(m.GetFigure().String(), "CERTIFIED_FIGURE_")), Class: m.GetCriticalClass(),
		Raised: m.GetRaised().AsTime(), By: m.GetBy(), Reason: m.GetReason(), Successor: m.GetSuccessor(),
	}
	if m.GetEnded() != nil {
		a.Ended = m.GetEnded().AsTime()
	}
	return a
}

// checkIssued checks the sizes of a request. The size of the message bounds its lists.
func checkIssued(r *ckdv1.ReportIssuedRequest) error {
	if n := len(r.GetProcess()); n == 0 || n > mostText {
		return wrong("process", "%d bytes, expected a name of 1 to %d", n, mostText).Err()
	}
	if r.GetTime() != nil && r.GetTime().CheckValid() != nil {
		return wrong("time", "no valid time").Err()
	}
	for i, a := range r.GetAlarms() {
		if a.GetRaised().CheckValid() != nil {
			return wrong(fmt.Sprintf("alarms[%d].raised", i), "no valid time").Err()
		}
	}
	for i, c := range r.GetSealed() {
		if n := len(c.GetSealer()); n != len(receipt.SealerID{}) {
			return wrong(fmt.Sprintf("sealed[%d].sealer", i), "%d bytes, expected %d", n, len(receipt.SealerID{})).Err()
		}
	}
	return nil
}

// issuedOf returns a count as the ledger takes it.
func issuedOf(process string, c *ckdv1.IssuedCount) (ledger.Issued, error) {
	issued := ledger.Issued{
		Process: process, Version: c.GetModelVersion(), Stratum: receipt.Stratum(c.GetStratum()), Start: c.GetStart().AsTime(),
		Decisions: c.GetDecisions(), Eligible: c.GetEligible(), Receipts: c.GetReceipts(), Reviews: c.GetReviews(),
		Propensity: c.GetPropensity(), InversePropensity: c.GetInversePropensity(), Audit: auditOf(c.GetAudit()),
	}
	var ok bool
	if issued.Policy, ok = hashOf(c.GetPolicyHash()); !ok {
		return issued, fmt.Errorf("policy_hash: %.80q, expected 64 hexadecimal digits", c.GetPolicyHash())
	}
	switch s := c.GetStratum(); {
	case s < ckdv1.Stratum_STRATUM_DEFERRED || s > ckdv1.Stratum_STRATUM_CALLED_SAFE:
		return issued, fmt.Errorf("stratum: number %d, expected one of those that the contract names", s)
	case c.GetStart().CheckValid() != nil || issued.Start.Unix() <= 0:
		return issued, fmt.Errorf("start: no valid time")
	case len(issued.Version) > mostText:
		return issued, fmt.Errorf("model_version: %d bytes, expected at most %d", len(issued.Version), mostText)
	case issued.Eligible > issued.Decisions || issued.Receipts > issued.Eligible || issued.Reviews > issued.Eligible:
		return issued, fmt.Errorf("%d decisions, %d eligible, %d receipts, %d reviews: expected none larger than those before it", issued.Decisions, issued.Eligible, issued.Receipts, issued.Reviews)
	}
	for name, v := range map[string]float64{"propensity": issued.Propensity, "inverse_propensity": issued.InversePropensity} {
		if !(v >= 0) || math.IsInf(v, 1) {
			return issued, fmt.Errorf("%s: %v, expected a finite sum of at least 0", name, v)
		}
	}
	return issued, nil
}

// IssuedMessage returns a count for the ledger of another process.
func IssuedMessage(c *ledger.Issued) *ckdv1.IssuedCount {
	return &ckdv1.IssuedCount{
		PolicyHash: hex.EncodeToString(c.Policy[:]), ModelVersion: c.Version, Stratum: ckdv1.Stratum(c.Stratum), Start: timeMessage(c.Start),
		Decisions: c.Decisions, Eligible: c.Eligible, Receipts: c.Receipts, Reviews: c.Reviews,
		Propensity: c.Propensity, InversePropensity: c.InversePropensity, Audit: auditMessage(c.Audit),
	}
}

func auditOf(a *ckdv1.AuditSettings) *policy.Audit {
	if a == nil {
		return nil
	}
	settings := &policy.Audit{
		Rate: a.GetRate(), M: a.GetM(), PredictedCritical: policy.CriticalAudited, Cap: a.GetCap(),
		Due: policy.Period(a.GetDue().AsDuration() / time.Second), OnBreach: policy.AlarmOnBreach, Surge: a.GetSurge(),
		RunLength: a.GetRunLength(), ReaderSensitivity: a.GetReaderSensitivity(),
	}
	if a.GetFree() {
		settings.PredictedCritical = policy.CriticalFree
	}
	if a.GetDefersOnBreach() {
		settings.OnBreach = policy.DeferOnBreach
	}
	for _, s := range a.GetSlices() {
		settings.Slices = append(settings.Slices, policy.Slice{Name: s.GetName(), Values: s.GetValues()})
	}
	return settings
}

func auditMessage(a *policy.Audit) *ckdv1.AuditSettings {
	if a == nil {
		return nil
	}
	m := &ckdv1.AuditSettings{
		Rate: a.Rate, M: a.M, Free: a.PredictedCritical == policy.CriticalFree, Cap: a.Cap,
		Due: durationpb.New(time.Duration(a.Due) * time.Second), DefersOnBreach: a.OnBreach == policy.DeferOnBreach, Surge: a.Surge,
		RunLength: a.RunLength, ReaderSensitivity: a.ReaderSensitivity,
	}
	for _, s := range a.Slices {
		m.Slices = append(m.Slices, &ckdv1.DeclaredSlice{Name: s.Name, Values: s.Values})
	}
	return m
}

package outcomes

import (
	"context"
	"encoding/hex"
	"fmt"
	"math"
	"time"

	"google.golang.org/protobuf/types/known/durationpb"

	"github.com/ckd-project/ckd/internal/auth"
	"github.com/ckd-project/ckd/internal/outcome/ledger"
	"github.com/ckd-project/ckd/internal/outcome/receipt"
	"github.com/ckd-project/ckd/policy"
	ckdv1 "github.com/ckd-project/ckd/proto/ckd/v1"
)

// ReportIssued implements the RPC.
func (s *Service) ReportIssued(ctx context.Context, r *ckdv1.ReportIssuedRequest) (*ckdv1.ReportIssuedResponse, error) {
	if err := auth.Require(ctx, (*auth.Identity).MayIssue, "tell what was issued"); err != nil {
		return nil, err
	}
	if err := checkIssued(r); err != nil {
		return nil, err
	}
	who := auth.FromContext(ctx)
	for i, text := range r.GetPolicies() {
		set, err := policy.Parse(policy.File{Name: "policy", Data: text})
		if err != nil {
			return nil, wrong(fmt.Sprintf("policies[%d]", i), "%v", err).Err()
		}
		for _, p := range set.All() {
			if err := auth.Allow(ctx, p.Name); err != nil {
				return nil, err
			}
		}
	}
	if err := s.Ledger.AddPolicy(r.GetPolicies()...); err != nil {
		return nil, s.failed("learn policies", err)
	}
	response := &ckdv1.ReportIssuedResponse{}
	asked := map[[32]byte]bool{}
	for i, text := range r.GetPolicyHashes() {
		hash, ok := hashOf(text)
		if !ok {
			return nil, wrong(fmt.Sprintf("policy_hashes[%d]", i), "%.80q, expected 64 hexadecimal digits", text).Err()
		}
		model, _, known := s.Ledger.Policy(hash)
		switch {
		case !known:
			response.UnknownPolicies = append(response.UnknownPolicies, text)
		case who.MayUse(model):
			asked[hash] = true
		}
	}
	var counts []ledger.Issued
	for i, c := range r.GetCounts() {
		issued, err := issuedOf(r.GetProcess(), c)
		if err != nil {
			return nil, wrong(fmt.Sprintf("counts[%d]", i), "%v", err).Err()
		}
		if model, _, known := s.Ledger.Policy(issued.Policy); known && who.MayUse(model) {
			counts = append(counts, issued) // counts of unknown policies come again with the policy
		}
	}
	var sealed []ledger.Sealed
	if len(counts) == len(r.GetCounts()) { // else some come again
		for _, c := range r.GetSealed() {
			sealed = append(sealed, ledger.Sealed{Sealer: receipt.SealerID(c.GetSealer()), Count: c.GetCount()})
		}
	}
	if err := s.Ledger.Issued(counts, sealed...); err != nil {
		return nil, s.failed("count what was issued", err)
	}
	states, err := s.Ledger.Recent()
	if err != nil {
		return nil, s.failed("read the states", err)
	}
	for _, p := range states {
		if asked[p.Policy] {
			response.Promises = append(response.Promises, promiseMessage(p))
		}
	}
	return response, nil
}

// checkIssued checks the sizes of a request.
func checkIssued(r *ckdv1.ReportIssuedRequest) error {
	switch {
	case r.GetProcess() == "" || len(r.GetProcess()) > mostText:
		return wrong("process", "%d bytes, expected a name of 1 to %d", len(r.GetProcess()), mostText).Err()
	case len(r.GetCounts()) > mostCounts:
		return wrong("counts", "%d, expected at most %d in one call", len(r.GetCounts()), mostCounts).Err()
	case len(r.GetPolicies()) > mostPolicies:
		return wrong("policies", "%d, expected at most %d in one call", len(r.GetPolicies()), mostPolicies).Err()
	case len(r.GetPolicyHashes()) > mostHashes:
		return wrong("policy_hashes", "%d, expected at most %d in one call", len(r.GetPolicyHashes()), mostHashes).Err()
	case len(r.GetSealed()) > mostSealed:
		return wrong("sealed", "%d, expected at most %d in one call", len(r.GetSealed()), mostSealed).Err()
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

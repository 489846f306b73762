package outcomes

import (
	"context"
	"encoding/hex"
	"errors"
	"fmt"
	"math"
	"strings"
	"time"
	"unicode/utf8"

	"go.uber.org/zap"
	"google.golang.org/genproto/googleapis/rpc/errdetails"
	"google.golang.org/grpc"
	"google.golang.org/grpc/codes"
	"google.golang.org/grpc/status"
	"google.golang.org/protobuf/types/known/timestamppb"

	"github.com/ckd-project/ckd/internal/auth"
	"github.com/ckd-project/ckd/internal/clock"
	"github.com/ckd-project/ckd/internal/outcome/ledger"
	"github.com/ckd-project/ckd/internal/outcome/receipt"
	ckdv1 "github.com/ckd-project/ckd/proto/ckd/v1"
)

// Bounds of requests.
const (
	mostOutcomes = 10_000 // of one call
	mostExports  = 2      // at one time
	mostText     = 256    // bytes of a name or reason
)

// Options connects a Service with its surroundings. All fields but Reported are required.
type Options struct {
	Ledger *ledger.Ledger
	// Keys returns the receipt keys in force.
	Keys func() *receipt.Keys
	Log  *zap.Logger
	// Answered is called with each outcome that was answered. The model is empty where the receipt
	// does not say.
	Answered func(model string, s ledger.Status)
	// Reported is called with the outcomes of each call, and their answers in the same order. May be nil.
	Reported func([]*ckdv1.Outcome, []*ckdv1.OutcomeAnswer)
}

// Service implements the RPCs.
type Service struct {
	ckdv1.UnimplementedOutcomeServiceServer
	Options
	exports chan struct{} // holds one for each export under way
	pace    pace
}

// Register adds the service of a ledger to a server. Its methods may also be called directly, without
// an identity.
func Register(to grpc.ServiceRegistrar, o Options) *Service {
	s := &Service{Options: o, exports: make(chan struct{}, mostExports)}
	to.RegisterService(&ckdv1.OutcomeService_ServiceDesc, s)
	return s
}

// ReportOutcomes implements the RPC.
func (s *Service) ReportOutcomes(ctx context.Context, r *ckdv1.ReportOutcomesRequest) (*ckdv1.ReportOutcomesResponse, error) {
	if err := auth.Require(ctx, (*auth.Identity).MayReportOutcomes, "report outcomes"); err != nil {
		return nil, err
	}
	if n := len(r.GetOutcomes()); n > mostOutcomes {
		return nil, wrong("outcomes", "%d outcomes, expected at most %d in one call", n, mostOutcomes).Err()
	}
	who := auth.FromContext(ctx)
	answers := make([]*ckdv1.OutcomeAnswer, len(r.GetOutcomes()))
	batch := make([]ledger.Outcome, 0, len(answers))
	places := make([]int, 0, len(answers)) // places of the batch in the request
	for i, o := range r.GetOutcomes() {
		outcome, fault := s.outcomeOf(who, i, o)
		if fault != nil {
			answers[i] = fault
			continue
		}
		batch, places = append(batch, outcome), append(places, i)
	}
	found, err := s.Ledger.Report(who.Name(), batch)
	if err != nil {
		return nil, s.failed("report outcomes", err)
	}
	for n, a := range found {
		answers[places[n]] = answerMessage(places[n], a)
		model, _, _ := s.Ledger.Policy(a.Policy)
		s.Answered(model, a.Status)
	}
	if s.Reported != nil {
		s.Reported(r.GetOutcomes(), answers)
	}
	return &ckdv1.ReportOutcomesResponse{Answers: answers}, nil
}

// outcomeOf returns an outcome as the ledger takes it, or the answer that refuses it.
func (s *Service) outcomeOf(who *auth.Identity, i int, o *ckdv1.Outcome) (ledger.Outcome, *ckdv1.OutcomeAnswer) {
	found := time.Time{}
	if o.GetTime() != nil {
		if err := o.GetTime().CheckValid(); err != nil {
			return ledger.Outcome{}, refused(i, ckdv1.OutcomeStatus_OUTCOME_STATUS_INVALID, "time", "no valid time")
		}
		if found = o.GetTime().AsTime(); found.IsZero() { // of a client that sent what its language has for no time
			return ledger.Outcome{}, refused(i, ckdv1.OutcomeStatus_OUTCOME_STATUS_INVALID, "time",
				"0001-01-01T00:00:00Z is no time of an outcome, expected when the truth was found, or none for now")
		}
	}
	if strings.ContainsRune(o.GetSource(), utf8.RuneError) { // Müller and Möller would become one
		return ledger.Outcome{}, refused(i, ckdv1.OutcomeStatus_OUTCOME_STATUS_INVALID, "source",
			"a replacement character (U+FFFD), expected the one that was lost before the outcome was sent")
	}
	kind, known := kinds[o.GetKind()]
	if !known {
		return ledger.Outcome{}, refused(i, ckdv1.OutcomeStatus_OUTCOME_STATUS_INVALID, "kind",
			fmt.Sprintf("number %d, expected a reading, a biopsy or a follow-up", o.GetKind()))
	}
	if !s.mayReport(who, o.GetReceipt()) {
		return ledger.Outcome{}, refused(i, ckdv1.OutcomeStatus_OUTCOME_STATUS_NOT_ALLOWED, "receipt",
			"the identity may not report outcomes of its model")
	}
	return ledger.Outcome{Receipt: o.GetReceipt(), Truth: o.GetTruth(), Source: o.GetSource(), At: found, SawModel: o.GetSawModel(), Kind: kind}, nil
}

// mayReport reports whether an identity may use the model of a receipt. A receipt that says nothing of a
// model is for the ledger to refuse.
func (s *Service) mayReport(who *auth.Identity, sealed []byte) bool {
	if who == nil {
		return true
	}
	keys := s.Keys()
	if keys == nil {
		return true
	}
	opened, _, err := keys.Open(sealed)
	if err != nil {
		return true
	}
	model, _, known := s.Ledger.Policy(opened.Policy)
	return !known || who.MayUse(model)
}

// ListPromises implements the RPC.
func (s *Service) ListPromises(ctx context.Context, r *ckdv1.ListPromisesRequest) (*ckdv1.ListPromisesResponse, error) {
	if err := auth.Require(ctx, (*auth.Identity).MayReportOutcomes, "read what outcomes say"); err != nil {
		return nil, err
	}
	promises, err := s.Ledger.States()
	if err != nil {
		return nil, s.failed("list promises", err)
	}
	who := auth.FromContext(ctx)
	response := &ckdv1.ListPromisesResponse{}
	for _, p := range promises {
		if who.MayUse(p.Model) && (r.GetModel() == "" || r.GetModel() == p.Model) {
			response.Promises = append(response.Promises, Figures(p))
		}
	}
	return response, nil
}

// ClearAlarm implements the RPC.
func (s *Service) ClearAlarm(ctx context.Context, r *ckdv1.ClearAlarmRequest) (*ckdv1.ClearAlarmResponse, error) {
	if err := auth.Require(ctx, (*auth.Identity).MayClear, "clear alarms"); err != nil {
		return nil, err
	}
	hash, ok := hashOf(r.GetPolicyHash())
	if !ok {
		return nil, wrong("policy_hash", "%.80q, expected 64 hexadecimal digits", r.GetPolicyHash()).Err()
	}
	who, err := signature(ctx, r.GetBy(), r.GetReason())
	if err != nil {
		return nil, err
	}
	model, _, known := s.Ledger.Policy(hash)
	if err := auth.Allow(ctx, model); known && err != nil {
		return nil, err
	}
	if err := s.Ledger.Clear(who, r.GetReason(), hash, r.GetModelVersion()); err != nil {
		return nil, s.failed("clear an alarm", err)
	}
	s.Log.Warn("an alarm was cleared", zap.String("model", model), zap.String("policy_hash", r.GetPolicyHash()))
	p, err := s.Ledger.State(hash, r.GetModelVersion())
	if err != nil {
		return nil, s.failed("read the state", err)
	}
	return &ckdv1.ClearAlarmResponse{Promise: promiseMessage(p)}, nil
}

// DeleteOutcomes implements the RPC.
func (s *Service) DeleteOutcomes(ctx context.Context, r *ckdv1.DeleteOutcomesRequest) (*ckdv1.DeleteOutcomesResponse, error) {
	// Outcomes of all models are deleted.
	right := func(i *auth.Identity) bool { return i.MayClear() && i.MayUseAll() }
	if err := auth.Require(ctx, right, "delete outcomes"); err != nil {
		return nil, err
	}
	choice, err := choiceOf(r)
	if err != nil {
		return nil, err
	}
	who, err := signature(ctx, r.GetBy(), r.GetReason())
	if err != nil {
		return nil, err
	}
	deleted, err := s.Ledger.Delete(who, r.GetReason(), choice)
	if err != nil {
		return nil, s.failed("delete outcomes", err)
	}
	s.Log.Warn("outcomes were deleted", zap.Uint64("outcomes", deleted.Decisions), zap.Uint64("left", deleted.Left))
	return &ckdv1.DeleteOutcomesResponse{
		Deleted: deleted.Decisions, Left: deleted.Left, Until: timeMessage(deleted.Until), Unreadable: deleted.Unreadable,
	}, nil
}

// choiceOf returns what is to be deleted.
func choiceOf(r *ckdv1.DeleteOutcomesRequest) (ledger.Choice, error) {
	given := 0
	for _, set := range []bool{r.GetBefore() != nil, r.GetGroup() != "", len(r.GetReceipts()) > 0} {
		if set {
			given++
		}
	}
	switch {
	case given != 1:
		return ledger.Choice{}, wrong("before", "%d of before, group and receipts are given, expected one", given).Err()
	case len(r.GetReceipts()) > mostOutcomes:
		return ledger.Choice{}, wrong("receipts", "%d receipts, expected at most %d in one call", len(r.GetReceipts()), mostOutcomes).Err()
	case r.GetBefore() == nil:
		return ledger.Choice{Group: r.GetGroup(), Receipts: r.GetReceipts()}, nil
	}
	if err := r.GetBefore().CheckValid(); err != nil {
		return ledger.Choice{}, wrong("before", "no valid time").Err()
	}
	at := r.GetBefore().AsTime()
	if at.After(clock.Now()) {
		return ledger.Choice{}, wrong("before", "%s, expected a time that has passed", at.Format(time.RFC3339)).Err()
	}
	return ledger.Choice{Before: at}, nil
}

// signature returns who does something that is recorded: the identity and the name that was given
// beside it. There must be one of them, and a reason.
func signature(ctx context.Context, name, reason string) (string, error) {
	if who := auth.FromContext(ctx).Name(); who != "" && name != "" {
		name = who + " (" + name + ")"
	} else if who != "" {
		name = who
	}
	switch {
	case name == "":
		return "", wrong("by", "none, expected who does it: it is recorded").Err()
	case reason == "":
		return "", wrong("reason", "none, expected why: it is recorded").Err()
	case len(name) > mostText:
		return "", wrong("by", "%d bytes, expected at most %d", len(name), mostText).Err()
	case len(reason) > 16*mostText:
		return "", wrong("reason", "%d bytes, expected at most %d", len(reason), 16*mostText).Err()
	}
	return name, nil
}

// failed returns the status of an error of the ledger.
func (s *Service) failed(what string, err error) error {
	switch {
	case errors.Is(err, ledger.ErrNoPromise), errors.Is(err, ledger.ErrPolicyUnknown):
		return fail(codes.NotFound, ckdv1.ErrorReason_ERROR_REASON_UNKNOWN_PROMISE, "policy_hash", err.Error()).Err()
	case errors.Is(err, ledger.ErrNoAlarm):
		return fail(codes.FailedPrecondition, ckdv1.ErrorReason_ERROR_REASON_WRONG_OUTCOME, "policy_hash", err.Error()).Err()
	}
	s.Log.Error("the ledger failed", zap.String("what", what), zap.Error(err))
	return fail(codes.Unavailable, ckdv1.ErrorReason_ERROR_REASON_LEDGER_UNAVAILABLE, "", "the ledger failed; the daemon's log has the cause").Err()
}

// wrong returns the status of a field that is wrong.
func wrong(field, format string, args ...any) *status.Status {
	return fail(codes.InvalidArgument, ckdv1.ErrorReason_ERROR_REASON_WRONG_OUTCOME, field, fmt.Sprintf(format, args...))
}

// fail returns a status with the details of the API.
func fail(code codes.Code, reason ckdv1.ErrorReason, field, message string) *status.Status {
	const prefix = len("ERROR_REASON_")
	text := message
	if field != "" {
		text = field + ": " + message
	}
	st := status.New(code, text)
	info := &errdetails.ErrorInfo{Reason: reason.String()[prefix:], Domain: "ckd.v1"}
	full, err := st.WithDetails(info, &errdetails.BadRequest{FieldViolations: []*errdetails.BadRequest_FieldViolation{
		{Field: field, Description: message, Reason: info.Reason},
	}})
	if err != nil { // only for code OK
		return st
	}
	return full
}

// hashOf reads a hash in hex.
func hashOf(text string) (hash [32]byte, ok bool) {
	n, err := hex.Decode(hash[:], []byte(text[:min(len(text), 2*len(hash)+1)]))
	return hash, err == nil && n == len(hash)
}

// timeMessage returns a time, or nil for none.
func timeMessage(t time.Time) *timestamppb.Timestamp {
	if t.IsZero() {
		return nil
	}
	return timestamppb.New(t)
}

// known returns a pointer to a number, or nil if there is none.
func known(v float64) *float64 {
	if math.IsNaN(v) || math.IsInf(v, 0) {
		return nil
	}
	return &v
}

package spec

import (
	"cmp"
	"errors"
	"fmt"
	"maps"
	"slices"
	"strings"
	"time"

	rpcstatus "google.golang.org/genproto/googleapis/rpc/status"
	"google.golang.org/grpc/status"
	"google.golang.org/protobuf/proto"

	"github.com/ckd-project/ckd/internal/servertest"
	"github.com/ckd-project/ckd/policy"
	ckdv1 "github.com/ckd-project/ckd/proto/ckd/v1"
)

// Stream predicts the answers on one stream.
type Stream struct {
	server *Server
	bound  *Policy // in force when the stream opened
	header *ckdv1.StreamHeader
	terms  terms
	groups map[uint64]*group
	any    bool // a group was opened
	top    uint64
	blocks uint64
	ending string // why the stream opens no more inputs: a reason, or ""
	closed bool
	calm   bool   // its client mostly sends pass by pass what it should
	reply  *reply // expected in answer to the current message
}

// Refused returns the reason with which a first message must be refused, or "".
func (s *Server) Refused(h *ckdv1.StreamHeader) string {
	p, model, reason := s.policies[h.GetModel()], "", "UNKNOWN_MODEL"
	switch {
	case h == nil:
		reason = "HEADER_MISSING"
	case p != nil:
		model, reason = p.Name, s.refusedHeader(p, h)
	}
	if reason != "" {
		s.count(model, 1, "ckd_inputs_rejected_total", "reason", strings.ToLower(reason))
	}
	return reason
}

func (s *Server) refusedHeader(p *Policy, h *ckdv1.StreamHeader) string {
	n := int(h.GetPasses())
	switch why := p.refusedTerms(h); {
	case why != "":
		return why
	case n > s.Limits.Passes:
		return "TOO_MANY_PASSES"
	case n != 0 && n < p.FewestPasses:
		return "TOO_FEW_PASSES"
	case n > 1 && p.Kind == policy.Dirichlet:
		return "TOO_MANY_PASSES"
	case h.GetReceipts() != ckdv1.Receipts_RECEIPTS_UNSPECIFIED && s.Keys == nil:
		return "RECEIPTS_UNAVAILABLE"
	}
	return ""
}

// refusedTerms returns what is wrong with what a header or call says of the model, or "".
func (p *Policy) refusedTerms(h interface {
	GetClasses() []string
	GetKind() ckdv1.Kind
	GetDetail() ckdv1.Detail
	GetPosterior() string
}) string {
	switch {
	case len(h.GetClasses()) > 0 && !slices.Equal(h.GetClasses(), p.Classes):
		return "WRONG_CLASSES"
	case h.GetKind() != ckdv1.Kind_KIND_UNSPECIFIED && h.GetKind() != enum[ckdv1.Kind](ckdv1.Kind_value, "KIND_", string(p.Kind)):
		return "WRONG_KIND"
	case ckdv1.Detail_name[int32(h.GetDetail())] == "":
		return "WRONG_ENUM"
	case strings.Contains(h.GetPosterior(), " "):
		return "WRONG_POSTERIOR"
	}
	return ""
}

// OpenStream opens a stream with a header that is not Refused, and checks its first reply.
func (s *Server) OpenStream(h *ckdv1.StreamHeader, got *ckdv1.DecomposeStreamResponse) (*Stream, error) {
	p := s.policies[h.GetModel()]
	st := &Stream{
		server: s, bound: p, header: h, groups: map[uint64]*group{},
		terms: termsOf(h), calm: h.GetAcceptSettled() && h.GetPosterior() == "",
	}
	s.retain(p)
	info := got.GetInfo()
	if !slices.Equal(info.GetClasses(), p.Classes) || int(info.GetExpectedPasses()) != st.expected() || int(info.GetFewestPasses()) != p.FewestPasses {
		return st, fmt.Errorf("first reply %v: expected the policy's classes and %d passes", info, st.expected())
	}
	if settles := h.GetAcceptSettled() && p.settles(st.expected()); info.GetSettles() != settles || info.GetAcknowledges() != h.GetAcceptSettled() {
		return st, fmt.Errorf("settles %v and acknowledges %v, expected %v and %v", info.GetSettles(), info.GetAcknowledges(), settles, h.GetAcceptSettled())
	}
	if audits := st.terms.receipts != 0 && p.Audit != nil; info.GetAudits() != audits {
		return st, fmt.Errorf("audits %v, expected %v", info.GetAudits(), audits)
	}
	return st, nil
}

// settles reports whether inputs with this number of passes may be decided early.
func (p *Policy) settles(passes int) bool { return p.rule != nil && p.rule.Passes == passes }

// expected returns the passes that finish an input of the stream; 0 for none.
func (s *Stream) expected() int {
	if n := int(s.header.GetPasses()); n > 0 {
		return n
	}
	return s.bound.ExpectedPasses
}

// OpenInputs returns how many inputs are open on the stream.
func (s *Stream) OpenInputs() (n int) {
	for _, g := range s.groups {
		n += g.open()
	}
	return n
}

// Ending returns why the stream opens no more inputs, or "".
func (s *Stream) Ending() string { return s.ending }

// End says that the stream opens no more inputs.
func (s *Stream) End(reason string) {
	if s.ending == "" {
		s.ending = reason
	}
}

// PoliciesReplaced ends the stream if the policy of its model was removed or has another shape.
func (s *Stream) PoliciesReplaced() {
	if next := s.server.policies[s.bound.Name]; !s.bound.sameShape(next) {
		s.End("POLICY_CHANGED")
	}
}

// Receive handles a message and checks the answer, which is nil where none came.
func (s *Stream) Receive(m *ckdv1.DecomposeStreamRequest, now time.Time, got *ckdv1.DecomposeStreamResponse) error {
	s.reply = newReply(got)
	switch b := m.GetBlock(); {
	case b != nil:
		s.blocks++
		if s.header.GetAcceptSettled() {
			s.reply.blocks, s.reply.due = s.blocks, true
		}
		s.block(b, now)
	case m.GetHeader() == nil:
		s.fault("EMPTY_MESSAGE")
	case !proto.Equal(m.GetHeader(), s.header):
		s.fault("HEADER_CHANGED")
	}
	return s.reply.check()
}

// HalfClosed finishes what is open, and checks the answers.
func (s *Stream) HalfClosed(got ...*ckdv1.DecomposeStreamResponse) error {
	s.reply = newReply(got...)
	s.eachOpen(func(g *group, i int, _ *input) { s.finish(g, i) })
	return s.reply.check()
}

// Expire fails the inputs that have had no pass for too long, and checks the answer.
func (s *Stream) Expire(now time.Time, got *ckdv1.DecomposeStreamResponse) error {
	s.reply = newReply(got)
	s.eachOpen(func(g *group, i int, in *input) {
		if now.Sub(in.touched) >= s.server.Limits.InputIdle {
			s.close(g, i, "INPUT_IDLE", false)
		}
	})
	return s.reply.check()
}

// Close ends the stream: what is open is abandoned.
func (s *Stream) Close() {
	if s.closed {
		return
	}
	s.closed = true
	s.eachOpen(func(g *group, i int, in *input) {
		s.server.count(s.bound.Name, 1, "ckd_inputs_abandoned_total")
		if in.checked {
			g.count(1, "ckd_early_stop_checks_lost_total")
		}
		s.ended(g, i)
	})
	s.server.release(s.bound)
}

// eachOpen calls what for the open inputs, in order, and removes the groups that end by that.
func (s *Stream) eachOpen(what func(g *group, i int, in *input)) {
	for _, number := range slices.Sorted(maps.Keys(s.groups)) {
		g := s.groups[number]
		for i := range g.rows {
			if in := &g.rows[i]; in.open {
				what(g, i, in)
			}
		}
		s.removeIfDone(g)
	}
}

// fault expects a fault of the message itself.
func (s *Stream) fault(reason string) {
	s.reply.faults, s.reply.due = append(s.reply.faults, reason), true
	s.server.countRefused(s.bound, reason)
}

// reply is what must come in answer to one message, beside what came.
type reply struct {
	due    bool // an answer must come
	faults []string
	blocks uint64
	err    error // the first difference

	got     []*ckdv1.DecomposeStreamResponse // none of them nil
	results map[place]*arrived
}

type place struct {
	group uint64
	row   uint32
}

// arrived is a result that came.
type arrived struct {
	*ckdv1.Result
	policy   *ckdv1.PolicyRef
	expected bool
}

func newReply(got ...*ckdv1.DecomposeStreamResponse) *reply {
	r := &reply{results: map[place]*arrived{}}
	for _, m := range got {
		if m == nil {
			continue
		}
		r.got = append(r.got, m)
		for _, result := range m.GetResults() {
			at := place{result.GetGroup(), result.GetRow()}
			if r.results[at] != nil {
				r.differs("group %d row %d is answered twice in one reply", at.group, at.row)
			}
			a := &arrived{Result: result}
			if i := int(result.GetPolicy()); i < len(m.GetPolicies()) {
				a.policy = m.GetPolicies()[i]
			}
			r.results[at] = a
		}
	}
	return r
}

// differs notes a difference.
func (r *reply) differs(format string, args ...any) {
	if r.err == nil {
		r.err = fmt.Errorf(format, args...)
	}
}

// result returns the result that must have come for an input, or nil.
func (r *reply) result(at place, id string, p *Policy) *arrived {
	r.due = true
	a := r.results[at]
	if a == nil {
		r.differs("group %d row %d (%q) has no answer", at.group, at.row, id)
		return nil
	}
	if a.expected {
		r.differs("group %d row %d (%q) is to be answered twice: a fault of package spec", at.group, at.row, id)
	}
	a.expected = true
	if a.GetInputId() != shown(id) {
		r.differs("group %d row %d has the id %q, expected %q", at.group, at.row, a.GetInputId(), id)
	}
	if a.policy.GetHash() != p.Hash || a.policy.GetVersion() != p.Version || a.policy.GetModel() != p.Name {
		r.differs("group %d row %d was decided by %v, expected version %q", at.group, at.row, a.policy, p.Version)
	}
	return a
}

// shown returns an id as replies repeat it: cut where it is too long for any daemon.
func shown(id string) string {
	if len(id) > 500 {
		return id[:120] + "..."
	}
	return id
}

// hasFault reports whether a fault of the message came with a reason.
func (r *reply) hasFault(reason string) bool {
	for _, m := range r.got {
		for _, f := range m.GetFaults() {
			if ReasonOf(f) == reason {
				return true
			}
		}
	}
	return false
}

// lacksRoom reports whether the error that came for an input is that the budget has no room: of the
// input itself where field is input_ids, of its result where it is detail.
func (r *reply) lacksRoom(at place, field string) bool {
	a := r.results[at]
	if a == nil || ReasonOf(a.GetError()) != "OUT_OF_MEMORY_BUDGET" {
		return false
	}
	return strings.HasSuffix(servertest.FaultOf(status.ErrorProto(a.GetError())).Field, field)
}

// check returns the first difference.
func (r *reply) check() error {
	switch {
	case r.err != nil:
		return r.err
	case r.due && len(r.got) == 0:
		return fmt.Errorf("no answer, expected faults %v and %d blocks", r.faults, r.blocks)
	case !r.due && len(r.got) > 0:
		return fmt.Errorf("an answer, expected none: %v", r.got)
	}
	var faults []string
	for _, m := range r.got {
		for _, f := range m.GetFaults() {
			faults = append(faults, ReasonOf(f))
		}
		if m.GetBlocks() != r.blocks {
			return fmt.Errorf("%d blocks acknowledged, expected %d", m.GetBlocks(), r.blocks)
		}
		if m.GetInfo() != nil {
			return errors.New("a second info")
		}
	}
	slices.Sort(faults)
	slices.Sort(r.faults)
	if !slices.Equal(faults, r.faults) {
		return fmt.Errorf("faults %v, expected %v", faults, r.faults)
	}
	for at, a := range r.results {
		if !a.expected {
			return fmt.Errorf("group %d row %d (%q) is answered, and should not be: %v", at.group, at.row, a.GetInputId(), a.Result)
		}
	}
	return nil
}

// ReasonOf returns the reason of an error, without its prefix; "" for no error.
func ReasonOf(st *rpcstatus.Status) string {
	if st.GetCode() == 0 {
		return ""
	}
	return cmp.Or(servertest.FaultOf(status.ErrorProto(st)).Reason, "no reason: "+st.GetMessage())
}

package server

import (
	"context"
	"fmt"

	"google.golang.org/grpc"
	"google.golang.org/grpc/status"

	"github.com/ckd-project/ckd/decomp"
	"github.com/ckd-project/ckd/engine"
	"github.com/ckd-project/ckd/policy"
	ckdv1 "github.com/ckd-project/ckd/proto/ckd/v1"
)

// Call holds the complete passes of some inputs that came by another protocol than ckd.v1.
type Call struct {
	Model     string
	Version   string     // version that the policy must have; empty accepts any
	Classes   int        // values in a row, as stated by the client
	Kind      ckdv1.Kind // kind that the policy must accept; unspecified accepts any
	Posterior string     // how the passes were sampled; empty: unknown

	// Receipts and ModelVersion are what ckd.v1.DecomposeRequest says.
	Receipts     ckdv1.Receipts
	ModelVersion string

	// Complete, unless nil, fills the fields of the call that depend on the policy. It is called
	// once the model is found.
	Complete func(*policy.Policy) *Violation

	// ReplyBytes is about the size of the answer to one input.
	ReplyBytes int
	// AllOrNone refuses the call, and decides on no input, if one input is refused.
	AllOrNone bool
	// Handed counts the bytes of the request that the reply repeats.
	Handed int

	// Tensor has no values yet. Read adds them, which take Bytes, once there is room.
	Tensor decomp.Tensor
	Bytes  int
	Read   func(*decomp.Tensor)
}

// Decided holds what was decided about one input.
type Decided struct {
	*engine.Outcome
	// Review says that a person is to look at the input, for a client that takes receipts.
	Review bool
	// Receipt is empty where there is none.
	Receipt []byte
}

// RegisterService implements grpc.ServiceRegistrar. It adds the service of another protocol, whose
// calls count as those of ckd.v1 do. It must not be called once the server serves.
func (s *Server) RegisterService(d *grpc.ServiceDesc, implementation any) {
	s.grpc.RegisterService(d, implementation)
}

// Decide checks a call, decides on its inputs and counts them, as the RPC Decompose does. It
// returns the policy that decided. It calls each for every input, in order, with the error of the
// input or with what was decided, which is valid until each returns. The outcome has no pair terms, and
// no scores but those that decide. Errors are statuses with details, as those of ckd.v1 are. After
// an error of Decide itself, what each received is void.
func (s *Server) Decide(ctx context.Context, c *Call, each func(i int, d *Decided, err error)) (*ckdv1.PolicyRef, error) {
	var ref *ckdv1.PolicyRef
	err := s.decider.serve(ctx, c.Model, &c.Tensor.Inputs, func(m *model) error {
		ref = m.ref
		if c.Complete != nil {
			if f := c.Complete(m.Policy()); f != nil {
				return mismatch(f.Reason, f.Field, f.Got, f.Expected)
			}
		}
		issuer, err := s.decider.receipts.newIssuer(m, c.Receipts, c.ModelVersion)
		if err != nil {
			return err
		}
		if err := s.decider.limits.checkForeign(m, c); err != nil {
			return err
		}
		return s.decider.decideAll(ctx, m, &tensorCall{
			answerer: s.decider.newAnswerer(ctx, issuer, c.Posterior), scratch: &m.lean, allOrNone: c.AllOrNone,
			tensor: c.Tensor, bytes: c.Bytes + c.Handed, result: int64(c.ReplyBytes),
		}, &foreignRequest{Call: c, each: each})
	})
	return ref, err
}

// foreignRequest implements tensorRequest for a Call.
type foreignRequest struct {
	*Call
	each func(i int, d *Decided, err error)
	now  Decided
}

func (r *foreignRequest) read(t *decomp.Tensor) { r.Read(t) }

func (r *foreignRequest) input(int) (id []byte, x inputContext, err error) { return nil, x, nil }

func (r *foreignRequest) decided(i int, _ []byte, w *scratch, drawn *issued) {
	r.now = Decided{w.outcome, drawn.Review, drawn.receipt}
	r.each(i, &r.now, nil)
}

func (r *foreignRequest) refused(i int, _ []byte, said *status.Status) { r.each(i, nil, said.Err()) }

// checkForeign checks everything about a call but its values.
func (l *Limits) checkForeign(m *model, c *Call) error {
	if err := checkVersion(m, c.Version); err != nil {
		return err
	}
	if err := checkTerms(m, terms{kind: c.Kind, posterior: c.Posterior}); err != nil {
		return err
	}
	if got, want := c.Classes, len(m.Policy().Classes); got != want {
		return &fault{
			reason: ckdv1.ErrorReason_ERROR_REASON_WRONG_CLASSES, field: "classes",
			value: fmt.Sprintf("%d classes", got), expected: fmt.Sprintf("%d classes", want),
			message: fmt.Sprintf("classes: a row has %d, the policy of model %q has %d", got, m.Policy().Name, want), numbers: true,
		}
	}
	if err := l.checkCounts(int64(c.Tensor.Inputs), int64(c.Tensor.Passes)); err != nil {
		return err
	}
	if err := l.checkReplyBytes(int64(c.ReplyBytes), c.Tensor.Inputs, "outputs", "these outputs"); err != nil {
		return err
	}
	if total, limit := int64(c.Tensor.Inputs)*int64(c.ReplyBytes)+int64(c.Handed), int64(l.ReplyBytes); total > limit {
		return &fault{
			reason: ckdv1.ErrorReason_ERROR_REASON_REPLY_TOO_LARGE, field: "inputs", value: fmt.Sprintf("%d bytes", c.Handed),
			message:  fmt.Sprintf("with %d bytes of other tensors the reply would have %d bytes, over the limit of %d", c.Handed, total, limit),
			expected: "smaller tensors beside the passes, or outputs by name",
		}
	}
	return nil
}

// Policy returns the policy of a model. It must have the version, unless that is empty.
func (s *Server) Policy(ctx context.Context, name, version string) (*policy.Policy, error) {
	m, err := s.catalog.find(ctx, name)
	if err == nil {
		err = checkVersion(m, version)
	}
	if err != nil {
		return nil, statusOf(err, location{}).Err()
	}
	return m.Policy(), nil
}

// Tensor returns the name of the tensor with the passes in requests by the Open Inference Protocol
// for a model; for an unknown model, the usual name.
func (s *Server) Tensor(model string) string {
	if m := s.catalog.models()[model]; m != nil {
		return m.Policy().Tensor
	}
	return policy.DefaultTensor
}

func checkVersion(m *model, version string) error {
	calibratedVersion := m.Policy().Version
	if version == "" || version == calibratedVersion {
		return nil
	}
	return &fault{
		reason: ckdv1.ErrorReason_ERROR_REASON_UNKNOWN_MODEL, field: "version", value: version, expected: calibratedVersion,
		message: fmt.Sprintf("version: got %q, the policy of model %q has %q", clip(version), m.Policy().Name, clip(calibratedVersion)),
	}
}

// Violation describes what a client did wrong by the rules of another protocol.
type Violation struct {
	Reason        ckdv1.ErrorReason
	Field         string // field of the message at fault
	Got, Expected string
}

package server

import (
	"fmt"
	"slices"
	"sync"
	"sync/atomic"
	"time"

	"go.uber.org/zap"
	"golang.org/x/time/rate"

	"github.com/ckd-project/ckd/engine"
	"github.com/ckd-project/ckd/internal/metrics"
	"github.com/ckd-project/ckd/internal/outcome/audit"
	"github.com/ckd-project/ckd/internal/outcome/receipt"
	"github.com/ckd-project/ckd/policy"
	ckdv1 "github.com/ckd-project/ckd/proto/ckd/v1"
	"github.com/ckd-project/ckd/server/internal/wire"
)

// receipts makes the issuers of streams and calls and counts what they issue. Without keys no client
// gets receipts and nothing is counted. Keys may be replaced but never removed, so an issuer that
// hands out receipts always has a sealer. receipts is safe for concurrent use.
type receipts struct {
	limits  Limits
	log     *zap.Logger
	metrics *metrics.Metrics
	sealer  atomic.Pointer[receipt.Sealer] // nil until there are keys
	issued  issuedCounts

	mu      sync.Mutex
	sealers []*receipt.Sealer // all that were in force
}

// use puts a sealer in force.
func (r *receipts) use(s *receipt.Sealer) {
	r.mu.Lock()
	defer r.mu.Unlock()
	r.sealers = append(r.sealers, s)
	r.sealer.Store(s)
}

// available reports whether there are keys, so that clients may have receipts.
func (r *receipts) available() bool { return r.sealer.Load() != nil }

// SetReceiptKeys puts keys in force: the first seals receipts and draws audits from now on. Until it
// is called, no client can have receipts.
func (s *Server) SetReceiptKeys(k *receipt.Keys) { s.receipts.use(receipt.NewSealer(k)) }

// reviewing holds what a model needs to say who looks at its inputs.
type reviewing struct {
	auditor *audit.Auditor
	hash    [32]byte // of the policy
	version uint64   // receipt.VersionHash of the policy's version
	slices  []slice
	// undeclared limits the log of slices that the policy does not declare.
	undeclared *rate.Sometimes
}

// slice holds the hashes of the values that a policy declares for a slice.
type slice struct {
	name   string
	values map[string]uint16
}

func newReviewing(p *policy.Policy) reviewing {
	r := reviewing{auditor: audit.NewAuditor(p), hash: p.HashBytes(), version: receipt.VersionHash(p.Version), undeclared: &rate.Sometimes{Interval: time.Hour}}
	if p.Audit == nil {
		return r
	}
	for _, declared := range p.Audit.Slices {
		s := slice{declared.Name, make(map[string]uint16, len(declared.Values))}
		for _, value := range declared.Values {
			s.values[value] = policy.SliceHash(s.name, value)
		}
		r.slices = append(r.slices, s)
	}
	return r
}

// inputContext holds what a receipt says of an input beside its decision.
type inputContext struct {
	group  uint64
	slices [policy.MaxSlices]uint16
}

// issuer says of the inputs of one stream or call who looks at them, and seals their receipts.
type issuer struct {
	from    *receipts
	which   ckdv1.Receipts
	version string // of the model, if the client states one
	hash    uint64 // of version
	drawn   issued
	record  receipt.Receipt
	sealed  [receipt.Size]byte
}

// maxModelVersionBytes bounds model_version.
const maxModelVersionBytes = 128

// newIssuer returns the issuer for a client that asks for receipts and states a model version, or the
// fault of these.
func (r *receipts) newIssuer(m *model, which ckdv1.Receipts, version string) (issuer, error) {
	if _, known := ckdv1.Receipts_name[int32(which)]; !known {
		return issuer{}, mismatch(ckdv1.ErrorReason_ERROR_REASON_WRONG_ENUM, "receipts", which.String(), "a value of the enum")
	}
	if n := len(version); n > maxModelVersionBytes {
		return issuer{}, overLimit(ckdv1.ErrorReason_ERROR_REASON_WRONG_CONTEXT, "model_version", "bytes of model_version", int64(n), maxModelVersionBytes)
	}
	if which != ckdv1.Receipts_RECEIPTS_UNSPECIFIED && !r.available() {
		return issuer{}, &fault{
			reason: ckdv1.ErrorReason_ERROR_REASON_RECEIPTS_UNAVAILABLE, field: "receipts", value: which.String(),
			message:  fmt.Sprintf("receipts: got %v, but the daemon was started without --receipt-keys", which),
			expected: ckdv1.Receipts_RECEIPTS_UNSPECIFIED.String(), numbers: true,
		}
	}
	i := issuer{from: r, which: which, version: r.issued.versions.admit(r.log, m.ref, version)}
	if i.version != "" {
		i.hash = receipt.VersionHash(i.version)
	}
	return i, nil
}

// takes reports whether the client takes receipts.
func (i *issuer) takes() bool { return i.which != ckdv1.Receipts_RECEIPTS_UNSPECIFIED }

// resultBytes returns about what receipts add to a result.
func (i *issuer) resultBytes() int64 {
	if i.takes() {
		return receipt.Size + 8
	}
	return 0
}

// checkContexts checks the number of contexts in a message that opens inputs.
func checkContexts(contexts, inputs int) error {
	if contexts == 0 || contexts == inputs {
		return nil
	}
	return mismatch(ckdv1.ErrorReason_ERROR_REASON_WRONG_CONTEXT, "contexts", fmt.Sprint(contexts), fmt.Sprint("none or ", inputs))
}

// context returns the context of input i of a message, for a receipt under a model's policy.
func (i *issuer) context(m *model, contexts *wire.Contexts, input int) (x inputContext, err error) {
	if contexts.Len() == 0 || !i.takes() {
		return x, nil
	}
	stated := contexts.At(input)
	if n, limit := len(stated.Group), i.from.limits.InputIDBytes; n > limit {
		return x, overLimit(ckdv1.ErrorReason_ERROR_REASON_WRONG_CONTEXT, fmt.Sprintf("contexts[%d].group", input),
			"bytes of a group", int64(n), int64(limit))
	}
	x.group = i.from.sealer.Load().DrawKey().Group(stated.Group)
	for n := 0; ; n++ {
		name, value, ok := stated.NextSlice()
		if !ok {
			return x, nil
		}
		if n == policy.MaxSlices {
			return x, &fault{
				reason: ckdv1.ErrorReason_ERROR_REASON_WRONG_CONTEXT, field: fmt.Sprintf("contexts[%d].slices", input),
				value: fmt.Sprintf("more than %d", policy.MaxSlices), expected: fmt.Sprintf("at most %d", policy.MaxSlices),
				message: fmt.Sprintf("contexts[%d]: more than %d slices", input, policy.MaxSlices), numbers: true,
			}
		}
		at := slices.IndexFunc(m.slices, func(s slice) bool { return s.name == string(name) })
		if at >= 0 {
			x.slices[at] = m.slices[at].values[string(value)]
		}
		if at < 0 || x.slices[at] == 0 { // no reason to decide nothing about the input
			i.from.metrics.Refused("slices", "undeclared")
			m.undeclared.Do(func() {
				i.from.log.Warn("a client states a slice that the policy's audit does not declare: receipts leave it out",
					zap.String("model", m.ref.GetModel()), zap.String("slice", fmt.Sprintf("%.64s", name)), zap.String("value", fmt.Sprintf("%.64s", value)))
			})
		}
	}
}

// issued says who looks at an input.
type issued struct {
	audit.Drawn
	eligible bool   // the client takes receipts; without it Drawn has only the stratum
	receipt  []byte // empty for none; valid until the next
}

// issue draws whether a person looks at an input that was decided at a time in microseconds since
// 1970, and seals its receipt if the client gets one. Then it defers the input if it is called safe
// and the promise of the policy is violated: the receipt holds what the policy decided, so that a
// recovery is seen. The result is valid until the next.
func (i *issuer) issue(m *model, now int64, id []byte, o *engine.Outcome, settled bool, x *inputContext) *issued {
	violated := m.isViolated() // before the draw, whose rate depends on it
	i.draw(m, now, id, o, settled, x)
	if violated {
		o.Decision = m.Policy().WhileViolated(o.Decision, o.Predicted)
	}
	return &i.drawn
}

// draw is issue without the promise.
func (i *issuer) draw(m *model, now int64, id []byte, o *engine.Outcome, settled bool, x *inputContext) {
	drawn := &i.drawn
	*drawn = issued{}
	critical := m.lean.CallsCritical(o.Predicted)
	if !i.takes() {
		drawn.Stratum = audit.Stratum(o.Decision, critical)
		return
	}
	sealer := i.from.sealer.Load()
	drawn.eligible = true
	drawn.Drawn = m.auditor.Draw(sealer.DrawKey(), now, o.Decision, critical, o.Risk, id, o.Passes, o.Mean)
	if i.which != ckdv1.Receipts_RECEIPTS_ALL && !drawn.Review && !drawn.Free {
		return
	}
	r := &i.record
	*r = receipt.Receipt{
		Policy: m.hash, Version: m.version, Time: now, Stratum: drawn.Stratum,
		Action: uint8(actionMessages[o.Decision.Action]), Reason: uint8(reasonMessages[o.Decision.Reason]), Gate: uint8(gateMessages[o.Decision.Gate]),
		Predicted: uint32(o.Predicted), Passes: uint32(o.Passes), Settled: settled, Degenerate: o.Degenerate, Review: drawn.Review,
		Risk: float32(o.Risk), Propensity: drawn.Propensity, Draw: drawn.Hash, Group: x.group, Slices: x.slices,
	}
	if i.version != "" {
		r.Version = i.hash
	}
	for score, v := range o.Scores {
		r.Scores[score] = float32(v)
	}
	drawn.receipt = sealer.Seal(i.sealed[:0], r)
}

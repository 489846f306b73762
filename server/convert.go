package server

import (
	"fmt"
	"slices"
	"strings"

	"github.com/ckd-project/ckd/policy"
	ckdv1 "github.com/ckd-project/ckd/proto/ckd/v1"
	"github.com/ckd-project/ckd/server/internal/wire"
)

// modelMessage returns what clients may know of a model, including what its ledger
// says. It states the audit rate only if receipts are available, because nothing is drawn without them.
func modelMessage(m *model, ledger *ledgerState, receiptsAvailable bool, limits *ckdv1.Limits) *ckdv1.Model {
	p := m.Policy()
	message := PolicyMessage(p)
	message.Promises, message.Deferring, message.Limits = ledger.promises[p.Hash], ledger.deferring(p), limits
	if message.Settle != nil {
		message.Settle.Stopped = m.lean.Stopper().Stopped()
	}
	if p.Audit != nil && receiptsAvailable {
		message.AuditRate = &p.Audit.Rate
	}
	return message
}

// PolicyMessage returns what a policy alone says of its model.
func PolicyMessage(p *policy.Policy) *ckdv1.Model {
	message := &ckdv1.Model{
		Policy:               &ckdv1.PolicyRef{Model: p.Name, Version: p.Version, Hash: p.Hash},
		Classes:              p.Classes,
		Critical:             uint32s(p.Critical),
		Safe:                 uint32s(p.Safe),
		Kind:                 kindMessage(p.Kind),
		FewestPasses:         uint32(p.FewestPasses),
		ExpectedPasses:       uint32(p.ExpectedPasses),
		SumTolerance:         p.SumTolerance,
		Variance:             enum[ckdv1.Variance](ckdv1.Variance_value, "VARIANCE_", p.Variance),
		ReliabilityThreshold: p.ReliabilityThreshold,
		Gate:                 enum[ckdv1.Gate](ckdv1.Gate_value, "GATE_", p.Gate),
		Scope:                enum[ckdv1.Scope](ckdv1.Scope_value, "SCOPE_", p.Scope),
		Primary:              ruleMessage(p.Primary),
		Fallback:             ruleMessage(p.Fallback),
		Observes:             p.Observes(),
		Calibration:          calibrationMessage(p.Calibration),
		Settle:               earlyStopMessage(p),
	}
	if g := p.Guard; g != nil {
		message.Guard = ruleMessage(policy.Rule{Score: g.Score, Threshold: g.Threshold, HasThreshold: true})
	}
	if p.Risk != nil {
		message.RiskPrevalence = &p.Risk.Prevalence
	}
	return message
}

// earlyStopMessage returns the early-stopping rule in force, or nil.
func earlyStopMessage(p *policy.Policy) *ckdv1.Settle {
	if p.EarlyStop() == nil {
		return nil
	}
	stopping := p.EarlyStopping
	message := &ckdv1.Settle{
		Passes:       uint32(stopping.Rule.Passes),
		Fewest:       uint32(stopping.Rule.Fewest),
		Ordered:      stopping.Order == policy.MembersOrder,
		Disagreement: stopping.Certificate.Disagreement,
		Confidence:   stopping.Certificate.Confidence,
		Released:     stopping.Certificate.Released.AtMost,
		MeanPasses:   stopping.MeanPasses,
		Groups:       uint64(stopping.Certificate.Groups),
	}
	if critical := stopping.Certificate.CriticalReleased; critical != nil {
		message.CriticalReleased = &critical.AtMost
	}
	return message
}

func calibrationMessage(c *policy.Calibration) *ckdv1.Calibration {
	if c == nil {
		return nil
	}
	share := func(i *policy.Interval) *ckdv1.Share {
		if i == nil {
			return nil
		}
		return &ckdv1.Share{Value: i.Value, Low: i.Low, High: i.High}
	}
	m := &ckdv1.Calibration{
		Posterior:                c.Posterior,
		Passes:                   uint32(c.Recording.Passes),
		Objective:                c.Objective,
		ExpectedCoverage:         share(c.ExpectedCoverage),
		ExpectedCriticalMissRate: share(c.ExpectedCriticalMissRate),
	}
	if t := c.Certificate; t != nil {
		m.Certificate = &ckdv1.Certificate{
			Kind:       enum[ckdv1.CertificateKind](ckdv1.CertificateKind_value, "CERTIFICATE_KIND_", t.Kind),
			Target:     t.Target,
			Cases:      uint64(t.Cases),
			Misses:     uint64(t.Misses),
			Statement:  t.Statement,
			Groups:     uint64(t.Groups),
			Confidence: positive(t.Confidence),
			PValue:     positive(t.PValue),
		}
		for i, l := range t.Limits() {
			bounds := enum[ckdv1.CertifiedFigure](ckdv1.CertifiedFigure_value, "CERTIFIED_FIGURE_", l.Bounds)
			if i == 0 {
				m.Certificate.Bounds, m.Certificate.CriticalClass = bounds, l.Class
				continue
			}
			m.Certificate.Further = append(m.Certificate.Further, &ckdv1.CertifiedLimit{
				Bounds: bounds, CriticalClass: l.Class, Target: l.Target, Cases: uint64(l.Cases), Misses: uint64(l.Misses), PValue: positive(l.PValue),
			})
		}
	}
	return m
}

// positive returns a number that messages leave out where the policy does not state it.
func positive(v float64) *float64 {
	if v > 0 {
		return &v
	}
	return nil
}

func ruleMessage(r policy.Rule) *ckdv1.ScoreRule {
	m := &ckdv1.ScoreRule{Score: scoreMessage(r.Score)}
	if r.HasThreshold {
		m.Threshold = &r.Threshold
	}
	return m
}

// enum returns the enum value that is named by a prefix and a word of a policy in capitals:
// GATE_ANY_CRITICAL for any-critical.
func enum[E ~int32, W ~string](values map[string]int32, prefix string, word W) E {
	return E(values[prefix+strings.ToUpper(strings.ReplaceAll(string(word), "-", "_"))])
}

func kindMessage(k policy.Kind) ckdv1.Kind {
	return enum[ckdv1.Kind](ckdv1.Kind_value, "KIND_", k)
}

func uint32s(in []int) []uint32 {
	out := make([]uint32, len(in))
	for i, v := range in {
		out[i] = uint32(v)
	}
	return out
}

// terms holds what a header or request states about the model.
type terms struct {
	classes   []string
	kind      ckdv1.Kind
	detail    ckdv1.Detail
	posterior string
}

// checkTerms checks what a header or request states against the policy of the model.
func checkTerms(m *model, stated terms) error {
	p := m.Policy()
	classes, kind, detail := stated.classes, stated.kind, stated.detail
	if len(classes) > 0 && !slices.Equal(classes, p.Classes) {
		f := &fault{reason: ckdv1.ErrorReason_ERROR_REASON_WRONG_CLASSES, field: "classes"}
		f.value, f.expected = fmt.Sprintf("%d classes", len(classes)), fmt.Sprintf("%d classes", len(p.Classes))
		for i := range min(len(classes), len(p.Classes)) {
			if classes[i] != p.Classes[i] {
				f.field = fmt.Sprintf("classes[%d]", i)
				f.value, f.expected = classes[i], p.Classes[i]
				break
			}
		}
		f.message = fmt.Sprintf("%s: got %q, the policy of model %q has %q", f.field, clip(f.value), p.Name, clip(f.expected))
		return f
	}
	if _, known := ckdv1.Kind_name[int32(kind)]; !known {
		return mismatch(ckdv1.ErrorReason_ERROR_REASON_WRONG_ENUM, "kind", kind.String(), "a value of the enum")
	}
	if want := kindMessage(p.Kind); kind != ckdv1.Kind_KIND_UNSPECIFIED && kind != want {
		return &fault{
			reason: ckdv1.ErrorReason_ERROR_REASON_WRONG_KIND, field: "kind", value: kind.String(), expected: want.String(),
			message: fmt.Sprintf("kind: got %v, the policy of model %q accepts %v", kind, p.Name, want),
		}
	}
	if _, known := ckdv1.Detail_name[int32(detail)]; !known {
		return mismatch(ckdv1.ErrorReason_ERROR_REASON_WRONG_ENUM, "detail", detail.String(), "a value of the enum")
	}
	if posterior := stated.posterior; posterior != "" && !policy.IsName(posterior) {
		return &fault{
			reason: ckdv1.ErrorReason_ERROR_REASON_WRONG_POSTERIOR, field: "posterior", value: posterior, expected: policy.NameForm,
			message: fmt.Sprintf("posterior: got %q, expected %s", clip(posterior), policy.NameForm),
		}
	}
	return nil
}

// checkValues refuses values that cannot be read.
func checkValues(v *wire.Values) error {
	if v.Floats() > 0 && v.Bytes() > 0 {
		return mismatch(ckdv1.ErrorReason_ERROR_REASON_TWO_ENCODINGS, "values_le", "values and values_le", "one of them")
	}
	if v.Bytes()%4 != 0 {
		return mismatch(ckdv1.ErrorReason_ERROR_REASON_WRONG_LENGTH, "values_le", fmt.Sprint(v.Bytes()), "a multiple of 4 bytes")
	}
	return nil
}

// resultBytes returns about the size of one result on the wire, with what the issuer adds.
func resultBytes(m *model, detail ckdv1.Detail, i *issuer) int64 {
	bytes, classes := 128+i.resultBytes(), int64(len(m.Policy().Classes))
	if detail >= ckdv1.Detail_DETAIL_VECTORS {
		bytes += 8 * 3 * classes
	}
	if detail >= ckdv1.Detail_DETAIL_FULL {
		bytes += 8*4*classes + 24*int64(len(m.lean.Plan().Pairs()))
	}
	return bytes
}

// replyCostFactor is the memory that a reply takes, as a multiple of its size on the wire.
const replyCostFactor = 4

// checkReply refuses more results at once than a reply may hold.
func (l *Limits) checkReply(m *model, detail ckdv1.Detail, i *issuer, inputs int) error {
	return l.checkReplyBytes(resultBytes(m, detail, i), inputs, "input_ids", detail.String())
}

// checkReplyBytes is checkReply for results of a given size. The field and asked say what the
// client asked for.
func (l *Limits) checkReplyBytes(each int64, inputs int, field, asked string) error {
	limit := int64(l.ReplyBytes)
	if int64(inputs)*each <= limit {
		return nil
	}
	most := max(limit/each, 0)
	return &fault{
		reason: ckdv1.ErrorReason_ERROR_REASON_REPLY_TOO_LARGE, field: field, value: fmt.Sprint(inputs),
		message:  fmt.Sprintf("%d inputs with %s would be a reply of %d bytes, over the limit of %d", inputs, asked, int64(inputs)*each, limit),
		expected: fmt.Sprintf("at most %d inputs at once, or less detail", most),
	}
}

// The messages of what every result has, by the policy's value: in arrays, which are faster than
// maps.
var (
	actionMessages = messagesOf[ckdv1.Action](ckdv1.Action_value, "ACTION_", 1+policy.Observe)
	gateMessages   = messagesOf[ckdv1.GateOutcome](ckdv1.GateOutcome_value, "GATE_OUTCOME_", 1+policy.ByFallback)
	reasonMessages = messagesOf[ckdv1.DecisionReason](ckdv1.DecisionReason_value, "DECISION_REASON_", policy.Reasons)
)

// messagesOf returns the enum values of the first n values of a policy, which have the same names.
func messagesOf[E ~int32, V interface {
	~uint8
	fmt.Stringer
}](values map[string]int32, prefix string, n V) []E {
	all := make([]E, n)
	for v := range n {
		all[v] = enum[E](values, prefix, v.String())
	}
	return all
}

func scoreMessage(s policy.Score) ckdv1.Score {
	switch s {
	case policy.CCritMax:
		return ckdv1.Score_SCORE_C_CRIT_MAX
	case policy.CBEC:
		return ckdv1.Score_SCORE_CBEC
	}
	return scoreMessages[s]
}

var scoreMessages = func() map[policy.Score]ckdv1.Score {
	m := map[policy.Score]ckdv1.Score{}
	for _, s := range policy.RuleScores() {
		m[s] = enum[ckdv1.Score](ckdv1.Score_value, "SCORE_", s)
	}
	return m
}()

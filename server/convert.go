package server

import (
	"fmt"
	"slices"
	"strings"

	"github.com/ckd-project/ckd/internal/wire"
	"github.com/ckd-project/ckd/policy"
	ckdv1 "github.com/ckd-project/ckd/proto/ckd/v1"
)

// modelMessage is a policy as clients are told of it.
func modelMessage(m *model) *ckdv1.Model {
	p := m.Policy()
	return &ckdv1.Model{
		Policy:               m.ref,
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
		Settle:               settleMessage(m),
	}
}

// settleMessage is the rule in force; nil for none.
func settleMessage(m *model) *ckdv1.Settle {
	if m.settling == nil {
		return nil
	}
	is := m.Policy().Settle
	told := &ckdv1.Settle{
		Passes:       uint32(is.Rule.Passes),
		Fewest:       uint32(is.Rule.Fewest),
		Ordered:      is.Order == policy.MembersOrder,
		Disagreement: is.Certificate.Disagreement,
		Confidence:   is.Certificate.Confidence,
		Released:     is.Certificate.Released.AtMost,
		MeanPasses:   is.MeanPasses,
		Stopped:      m.settling.stopped.Load(),
	}
	if critical := is.Certificate.CriticalReleased; critical != nil {
		told.CriticalReleased = &critical.AtMost
	}
	return told
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
		Posterior:           c.Posterior,
		Passes:              uint32(c.Recording.Passes),
		Objective:           c.Objective,
		ExpectedCoverage:    share(c.ExpectedCoverage),
		ExpectedCriticalFnr: share(c.ExpectedCriticalFNR),
	}
	if t := c.Certificate; t != nil {
		m.Certificate = &ckdv1.Certificate{
			Kind:      enum[ckdv1.CertificateKind](ckdv1.CertificateKind_value, "CERTIFICATE_KIND_", t.Kind),
			Target:    t.Target,
			Cases:     uint64(t.Cases),
			Misses:    uint64(t.Misses),
			Statement: t.Statement,
		}
		if t.Confidence > 0 {
			m.Certificate.Confidence = &t.Confidence
		}
		if t.PValue > 0 {
			m.Certificate.PValue = &t.PValue
		}
	}
	return m
}

func ruleMessage(r policy.Rule) *ckdv1.ScoreRule {
	m := &ckdv1.ScoreRule{Score: scoreMessage(r.Score)}
	if r.HasThreshold {
		m.Threshold = &r.Threshold
	}
	return m
}

// enum finds the enum value whose name is a prefix and a word of ours in
// capitals: GATE_ANY_CRITICAL of any-critical.
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

// terms are what a header or request states.
type terms struct {
	classes   []string
	kind      ckdv1.Kind
	detail    ckdv1.Detail
	posterior string
}

// checkTerms holds what a header or request states against the model's policy.
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
		return unknownEnum("kind", int32(kind))
	}
	if want := kindMessage(p.Kind); kind != ckdv1.Kind_KIND_UNSPECIFIED && kind != want {
		return &fault{
			reason: ckdv1.ErrorReason_ERROR_REASON_WRONG_KIND, field: "kind", value: kind.String(), expected: want.String(),
			message: fmt.Sprintf("kind: got %v, the policy of model %q accepts %v", kind, p.Name, want),
		}
	}
	if _, known := ckdv1.Detail_name[int32(detail)]; !known {
		return unknownEnum("detail", int32(detail))
	}
	if posterior := stated.posterior; posterior != "" && !policy.IsName(posterior) {
		return &fault{
			reason: ckdv1.ErrorReason_ERROR_REASON_WRONG_POSTERIOR, field: "posterior", value: posterior, expected: policy.NameForm,
			message: fmt.Sprintf("posterior: got %q, expected %s", clip(posterior), policy.NameForm),
		}
	}
	return nil
}

func unknownEnum(field string, value int32) error {
	return &fault{
		reason: ckdv1.ErrorReason_ERROR_REASON_WRONG_ENUM, field: field, value: fmt.Sprint(value),
		message: fmt.Sprintf("%s: %d is no value that this version knows", field, value), expected: "a value of the enum",
	}
}

// checkValues refuses values that cannot be read.
func checkValues(v *wire.Values) error {
	if v.Floats() > 0 && v.Bytes() > 0 {
		return &fault{
			reason: ckdv1.ErrorReason_ERROR_REASON_TWO_ENCODINGS, field: "values_le",
			message: "values came in both encodings", value: "values and values_le", expected: "one of them",
		}
	}
	if v.Bytes()%4 != 0 {
		return &fault{
			reason: ckdv1.ErrorReason_ERROR_REASON_WRONG_LENGTH, field: "values_le",
			message: fmt.Sprintf("values_le has %d bytes, expected a multiple of 4", v.Bytes()),
			value:   fmt.Sprint(v.Bytes()), expected: "a multiple of 4 bytes",
		}
	}
	return nil
}

// resultBytes is about how large one result is on the wire.
func resultBytes(m *model, detail ckdv1.Detail) int64 {
	bytes, classes := int64(128), int64(len(m.Policy().Classes))
	if detail >= ckdv1.Detail_DETAIL_VECTORS {
		bytes += 8 * 3 * classes
	}
	if detail >= ckdv1.Detail_DETAIL_FULL {
		bytes += 8*4*classes + 24*int64(len(m.lean.Plan().Pairs()))
	}
	return bytes
}

// replyCostFactor is how much more than on the wire a reply takes in memory.
const replyCostFactor = 4

// resultCost is what a result takes of the budget until it is sent.
func resultCost(m *model, detail ckdv1.Detail) int64 { return replyCostFactor * resultBytes(m, detail) }

// checkReply refuses so many results at once as would make a reply too large.
func (s *Server) checkReply(m *model, detail ckdv1.Detail, inputs int) error {
	return s.checkReplyBytes(resultBytes(m, detail), inputs, "input_ids", detail.String())
}

// checkReplyBytes is checkReply for results of so many bytes each, which are what
// was asked for in a field.
func (s *Server) checkReplyBytes(each int64, inputs int, field, asked string) error {
	limit := int64(s.limits.ReplyBytes)
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

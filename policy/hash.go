package policy

import (
	"crypto/sha256"
	"fmt"
	"strconv"
)

// hash is the SHA-256, in hex, of the resolved policy but for its version text,
// the name of its tensor and its calibration: of all that a decision, or a refusal of an input, depends on.
func (p *Policy) hash() string {
	meaning := p.meaning()
	if p.SettleRule() != nil {
		meaning = p.Settle.meaning(meaning)
	}
	return sum(meaning)
}

func sum(meaning []byte) string { return fmt.Sprintf("%x", sha256.Sum256(meaning)) }

// meaning is what the hash is of, but for when inputs are settled.
//
// The encoding is one line a field. Texts carry their length, so that no two
// lists look alike; numbers are hexadecimal, so that no digit is lost. The
// first line changes if the meaning of a field ever does.
func (p *Policy) meaning() []byte {
	b := []byte("ckd policy 1\n")
	texts := func(name string, values ...string) {
		b = fmt.Appendf(b, "%s %d", name, len(values))
		for _, v := range values {
			b = fmt.Appendf(b, " %d:%s", len(v), v)
		}
		b = append(b, '\n')
	}
	line := func(name string, values ...any) {
		b = append(b, name...)
		for _, v := range values {
			if x, ok := v.(float64); ok {
				v = strconv.FormatFloat(x, 'x', -1, 64)
			}
			b = fmt.Appendf(b, " %v", v)
		}
		b = append(b, '\n')
	}
	rule := func(name string, r Rule) {
		if r.HasThreshold {
			line(name, r.Score, r.Threshold)
		} else {
			line(name, r.Score)
		}
	}

	texts("name", p.Name)
	texts("classes", p.Classes...)
	line("critical", p.Critical)
	line("safe", p.Safe)
	line("kind", p.Kind)
	line("passes", p.FewestPasses, p.ExpectedPasses)
	line("sum_tolerance", p.SumTolerance)
	line("variance", p.Variance)
	line("top_classes", p.TopClasses)
	line("reliability_threshold", p.ReliabilityThreshold)
	line("gate", p.Gate)
	line("scope", p.Scope)
	rule("primary", p.Primary)
	rule("fallback", p.Fallback)
	for _, w := range p.PairWeights {
		line("pair_weight", w.Safe, w.Critical, w.Weight)
	}
	line("pairs", p.Pairs)
	line("degenerate", p.Degenerate)
	line("saturated", p.Saturated)
	return b
}

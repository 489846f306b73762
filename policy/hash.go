package policy

import (
	"crypto/sha256"
	"encoding/hex"
	"fmt"
	"strconv"

	"github.com/ckd-project/ckd/policy/earlystop"
)

// hash returns the SHA-256, in hex, of all that a decision or the refusal of an input depends on, and
// of the lines in force. A policy without lines has the hash without lines.
func (p *Policy) hash() string {
	b := p.decides()
	for _, l := range p.LinesInForce() {
		b = fmt.Appendf(b, "line %s %d:%s %x\n", l.Bounds, len(l.Class), l.Class, l.Above)
	}
	return sum(b)
}

// HashBytes returns the hash as bytes.
func (p *Policy) HashBytes() (hash [sha256.Size]byte) {
	_, _ = hex.Decode(hash[:], []byte(p.Hash)) // Build and Parse write 64 hexadecimal digits
	return hash
}

// HashWithoutLines returns the hash that the policy would have without lines: two policies with equal
// ones decide alike. It is what a calibration knows its policy by, so that a lowered line voids no
// certificate.
func (p *Policy) HashWithoutLines() string { return sum(p.decides()) }

// decides returns what the hash covers, without lines.
func (p *Policy) decides() []byte {
	if p.EarlyStop() == nil {
		return p.meaning()
	}
	return p.EarlyStopping.meaning(p.meaning())
}

func sum(meaning []byte) string { return fmt.Sprintf("%x", sha256.Sum256(meaning)) }

// meaning returns what the hash covers, without early stopping and lines. Version, tensor, audit,
// log, answers and the rest of the calibration are left out.
//
// The encoding has one line for each field. Texts carry their length, so that no two lists look
// alike. Numbers are hexadecimal, so that no digit is lost. The first line changes if the meaning
// of a field ever does.
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
	if r := p.Risk; r != nil {
		for _, l := range []Logistic{r.CalledSafe, r.CalledCritical} {
			line("risk_line", l.Intercept+0, l.Slope+0) // -0 + 0 is 0
		}
		line("risk", r.Prevalence)
		for _, q := range r.Quantiles {
			line("risk_quantile", q+0)
		}
	}
	if p.Guard != nil {
		line("guard", p.Guard.Score, p.Guard.Threshold)
	}
	return b
}

// meaning appends the block that is in force to what the hash covers.
func (s *EarlyStopping) meaning(b []byte) []byte {
	c := s.Certificate
	b = fmt.Appendf(b, "early_stop %d %d %s %x %x %x\n", s.Rule.Passes, s.Rule.Fewest, s.Order,
		c.Disagreement, c.Confidence, c.Released.AtMost)
	if s.Rule.Patience > 0 {
		b = fmt.Appendf(b, "early_stop_patience %x\n", s.Rule.Patience)
	}
	if s.Rule.Form == nil { // of a program that made no policy of it
		return b
	}
	return formMeaning(b, s.Rule.Form) // its steps may round otherwise on another machine
}

// formMeaning appends the boundaries and terms of a form to what the hash covers.
func formMeaning(b []byte, f *earlystop.Form) []byte {
	for _, at := range f.Boundaries {
		b = fmt.Appendf(b, "early_stop_boundary %d %x %x\n", at.Passes, at.Retain+0, at.Defer+0) // -0 + 0 is 0
	}
	for _, terms := range [][]earlystop.Term{f.Retain, f.Defer} {
		var first, last [earlystop.Terms]float64
		for _, t := range terms {
			first[t.Place()], last[t.Place()] = t.Weight, t.AtLast()
		}
		for at := range first {
			if first[at] != 0 || last[at] != 0 {
				b = fmt.Appendf(b, "early_stop_term %d %x %x\n", at, first[at]+0, last[at]+0)
			}
		}
		b = append(b, "early_stop_side\n"...)
	}
	return b
}

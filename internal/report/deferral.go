package report

import (
	"fmt"

	"github.com/ckd-project/ckd/decomp"
	"github.com/ckd-project/ckd/eval"
	"github.com/ckd-project/ckd/policy"
)

// deferralSection is what deferral does in one scope.
func (b *builder) deferralSection(scope policy.Scope) (section, error) {
	s := section{
		ID:    "deferral-" + string(scope),
		Title: fmt.Sprintf("What deferral does (scope %s)", scope),
		Intro: "Any input may go to a person, those first whose score is highest.",
	}
	if scope == policy.PredictedSafe {
		s.Intro = "Inputs that the model already calls critical are not deferred: they get their treatment anyway, and " +
			"cannot be missed. People look at the others, those first whose score is highest."
	}
	lines := b.lines(scope)
	for _, draw := range []func(policy.Scope, []line) (*figure, error){b.riskFigure, b.jointFigure, b.areaFigure} {
		f, err := draw(scope, lines)
		if err != nil {
			return s, err
		}
		if f != nil {
			s.Parts = append(s.Parts, part{Figure: f})
		}
	}
	s.Parts = append(s.Parts, part{Table: b.policyTable(scope)}, part{Table: b.areaTable(scope)})
	if t := b.pairwiseTable(scope); t != nil {
		s.Parts = append(s.Parts, part{Table: t})
	}
	return s, nil
}

// line is a ranking that the figures of a scope show.
type line struct {
	row    *eval.Row
	curve  *eval.Curve
	stroke stroke
	banded bool // its bootstrap band is shown: more than three could not be told apart
}

func (l line) hasBand() bool {
	return l.banded && len(l.curve.Low) > 0 && len(l.curve.Low) == len(l.curve.High)
}

// lines are a selection of rankings that can still be read: mutual information,
// the score with the lowest area, those that the paper's rule chooses from, the
// gates, and the given policy.
func (b *builder) lines(scope policy.Scope) []line {
	best := b.best(scope, b.area)
	var lines []line
	for i := range b.r.Policies {
		row := &b.r.Policies[i]
		s, chosen := strokes[row.Name]
		if !b.byRisk && !chosen {
			s, chosen = errorStrokes[row.Name]
		}
		if !isScore(row.Name) && !isGate(row.Name) {
			s, chosen = stroke{vermillion, "solid", 2.4}, true
		}
		if row == best && !chosen {
			s, chosen = stroke{sky, "solid", 1.6}, true
		}
		curve := b.curve(scope, row.Name)
		if row.Scope != scope || !chosen || curve == nil {
			continue
		}
		lines = append(lines, line{row, curve, s, row == best || row.Name == mi || s.ink == vermillion})
	}
	return lines
}

var strokes = map[string]stroke{
	mi:                           {grey, "dashed", 1.6},
	decomp.CCritMax.String():     {blue, "solid", 1.6},
	decomp.CBEC.String():         {orange, "solid", 1.6},
	string(policy.AnyCritical):   {green, "dotted", 1.8},
	string(policy.DecidingClass): {purple, "dashed", 1.6},
}

// errorStrokes are of scores that are shown too where there are no critical
// inputs, for which the others are made.
var errorStrokes = map[string]stroke{
	decomp.Entropy.String(): {green, "dotted", 1.8},
	decomp.MaxProb.String(): {sky, "solid", 1.6},
	decomp.EUVar.String():   {purple, "dashed", 1.6},
}

var mi = decomp.MI.String()

func isScore(name string) bool {
	_, ok := decomp.ParseScore(name)
	return ok
}

func isGate(name string) bool {
	return name == string(policy.AnyCritical) || name == string(policy.DecidingClass)
}

// row of a ranking; nil where there is none.
func (b *builder) row(scope policy.Scope, name string) *eval.Row {
	for i, row := range b.r.Policies {
		if row.Scope == scope && row.Name == name {
			return &b.r.Policies[i]
		}
	}
	return nil
}

func (b *builder) curve(scope policy.Scope, name string) *eval.Curve {
	for i, curve := range b.r.Curves.Rows {
		if curve.Scope == scope && curve.Name == name {
			return &b.r.Curves.Rows[i]
		}
	}
	return nil
}

// best score of a scope: the one of the lowest figure, the first of several.
// Gates and policies do not take part. Nil where there is no score.
func (b *builder) best(scope policy.Scope, figure func(*eval.Row) float64) *eval.Row {
	var best *eval.Row
	for i := range b.r.Policies {
		row := &b.r.Policies[i]
		if row.Scope == scope && isScore(row.Name) && (best == nil || figure(row) < figure(best)) {
			best = row
		}
	}
	return best
}

// area under the risk.
func (b *builder) area(row *eval.Row) float64 {
	if b.byRisk {
		return row.AUSC.CriticalFNR
	}
	return row.AUSC.ErrorRate
}

// risk at the coverage.
func (b *builder) risk(row *eval.Row) float64 {
	if b.byRisk {
		return row.CriticalFNR
	}
	return 1 - row.Accuracy
}

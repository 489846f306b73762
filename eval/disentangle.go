package eval

import (
	"cmp"
	"fmt"
	"math"
	"slices"

	"github.com/ckd-project/ckd/decomp"
)

// Level is a recording of a model that was trained under label noise.
type Level struct {
	// Level of the noise: the share of the training labels that was replaced.
	Level float64
	Table *Table
}

// DisentangleReport says how far epistemic uncertainty rises with label noise, which should raise
// aleatoric uncertainty only. `ckd evaluate disentangle --format json` prints it.
type DisentangleReport struct {
	Source DisentangleSource `json:"source"`
	// Levels ascend. The lowest is the baseline.
	Levels []LevelReport `json:"levels"`
	// RankCorrelations need three levels, and are nil with fewer.
	RankCorrelations *RankCorrelations `json:"rank_correlations,omitempty"`
	Notes            []string          `json:"notes"`
}

// DisentangleSource says how the report was computed. Passes has a file for each level.
type DisentangleSource struct {
	Software string `json:"software"`
	Passes   []File `json:"passes"`
	Kind     string `json:"kind"`
	Variance string `json:"variance"`
}

// LevelReport has the uncertainty at one level of noise.
type LevelReport struct {
	Level  float64 `json:"level"`
	Inputs int     `json:"inputs"`
	Passes int     `json:"passes"`
	// Aleatoric is the mean expected entropy of the inputs, in nats. Epistemic has their mean MI
	// and mean sum_c, in nats. Inflation is mean sum_c over mean MI.
	Aleatoric float64   `json:"aleatoric"`
	Epistemic Epistemic `json:"epistemic"`
	Inflation Figure    `json:"inflation"`
	// RAbs is the change of epistemic uncertainty from the baseline over the change of aleatoric.
	// RRel is the same with each change as a share of its own baseline (eq. disentangle-ratio).
	// Both are signed, and 0 without entanglement; the paper tables |RRel|. They are nil at the
	// baseline, and where they would divide by 0.
	RAbs *Epistemic `json:"r_abs,omitempty"`
	RRel *Epistemic `json:"r_rel,omitempty"`
}

// Epistemic has the same figure for MI and for sum_c.
type Epistemic struct {
	MI   float64 `json:"mi"`
	SumC float64 `json:"sum_c"`
}

// RankCorrelations has Spearman's correlations over levels, after de Jong et al.
type RankCorrelations struct {
	// Consistency correlates the level with aleatoric uncertainty: 1 is best.
	Consistency Figure `json:"consistency"`
	// Orthogonality correlates the level with epistemic uncertainty: 0 is best.
	Orthogonality Epistemic `json:"orthogonality"`
}

// Disentangle compares recordings of one architecture, trained under different levels of label
// noise, on the same clean inputs. It needs two levels or more, each once. The caller fills
// software and files of the report's source.
func Disentangle(levels []Level) (*DisentangleReport, error) {
	levels = slices.SortedStableFunc(slices.Values(levels), func(a, b Level) int { return cmp.Compare(a.Level, b.Level) })
	if len(levels) < 2 {
		return nil, fmt.Errorf("%d levels: expected at least 2, the lowest of which is the baseline", len(levels))
	}
	for i, l := range levels {
		switch {
		case math.IsNaN(l.Level) || math.IsInf(l.Level, 0):
			return nil, fmt.Errorf("level %v: expected a finite number", l.Level)
		case i > 0 && l.Level == levels[i-1].Level:
			return nil, fmt.Errorf("level %v is given twice: expected one recording for each level", l.Level)
		case l.Table.K != levels[0].Table.K:
			return nil, fmt.Errorf("level %v has %d classes, level %v has %d: expected the same in all",
				l.Level, l.Table.K, levels[0].Level, levels[0].Table.K)
		}
	}
	spec := levels[0].Table.Spec
	r := &DisentangleReport{
		Source: DisentangleSource{Kind: kindOf(spec.Kind), Variance: varianceOf(spec.Variance)},
		Notes:  []string{},
	}
	for _, l := range levels {
		r.Levels = append(r.Levels, levelReport(l, r.Levels))
	}
	if len(levels) >= 3 {
		r.RankCorrelations = rankCorrelations(r.Levels)
	}
	r.note(levels)
	return r, nil
}

// levelReport describes a level. The first of the levels before it is the baseline.
func levelReport(l Level, before []LevelReport) LevelReport {
	r := LevelReport{
		Level: l.Level, Inputs: l.Table.Inputs, Passes: l.Table.Passes,
		Aleatoric: mean(l.Table.ExpectedEntropy),
		Epistemic: Epistemic{mean(l.Table.Scores[decomp.MI]), mean(l.Table.SumC)},
	}
	r.Inflation = quotient(r.Epistemic.SumC, r.Epistemic.MI)
	if len(before) == 0 {
		return r
	}
	base := before[0]
	rise := r.Aleatoric - base.Aleatoric
	r.RAbs = orNil((r.Epistemic.MI-base.Epistemic.MI)/rise, (r.Epistemic.SumC-base.Epistemic.SumC)/rise)
	rise = change(r.Aleatoric, base.Aleatoric)
	r.RRel = orNil(change(r.Epistemic.MI, base.Epistemic.MI)/rise, change(r.Epistemic.SumC, base.Epistemic.SumC)/rise)
	return r
}

// change returns the change from a baseline as a share of it, and NaN where the baseline is 0.
func change(value, base float64) float64 {
	if base == 0 {
		return math.NaN()
	}
	return (value - base) / base
}

// orNil returns nil unless both are numbers.
func orNil(mi, sumC float64) *Epistemic {
	for _, v := range []float64{mi, sumC} {
		if math.IsNaN(v) || math.IsInf(v, 0) {
			return nil
		}
	}
	return &Epistemic{mi, sumC}
}

func rankCorrelations(levels []LevelReport) *RankCorrelations {
	var level, aleatoric, mi, sumC []float64
	for _, l := range levels {
		level, aleatoric = append(level, l.Level), append(aleatoric, l.Aleatoric)
		mi, sumC = append(mi, l.Epistemic.MI), append(sumC, l.Epistemic.SumC)
	}
	return &RankCorrelations{correlation(level, aleatoric, spearman), Epistemic{spearman(level, mi), spearman(level, sumC)}}
}

// note adds notes on what makes the levels hard to compare.
func (r *DisentangleReport) note(levels []Level) {
	add := func(format string, args ...any) { r.Notes = append(r.Notes, fmt.Sprintf(format, args...)) }
	base := r.Levels[0]
	for i, l := range r.Levels {
		if l.Inputs != base.Inputs {
			add("Level %v has %d inputs and the baseline %d: the levels should be of the same clean inputs.",
				l.Level, l.Inputs, base.Inputs)
		}
		if l.Passes != base.Passes {
			add("Level %v has %d passes and the baseline %d: their sum_c is not on one scale.", l.Level, l.Passes, base.Passes)
		}
		if n := countTrue(levels[i].Table.Degenerate); n > 0 {
			add("Level %v: %d of %d inputs have passes that hardly differ: their epistemic uncertainty is absent, not zero.",
				l.Level, n, l.Inputs)
		}
		const small = 0.05 // a change of aleatoric uncertainty that tells little
		switch rise := ratio(l.Aleatoric-base.Aleatoric, base.Aleatoric); {
		case i == 0:
		case l.RAbs == nil || l.RRel == nil:
			add("Level %v: R is undefined, because aleatoric uncertainty is that of the baseline, or the baseline has none.",
				l.Level)
		case rise < 0:
			add("Level %v: aleatoric uncertainty is below that of the baseline, so that R says little.", l.Level)
		case rise < small:
			add("Level %v: aleatoric uncertainty is only %.2g%% above the baseline, so that R is unstable.", l.Level, 100*rise)
		}
	}
	if r.RankCorrelations == nil {
		add("%d levels are too few for rank correlations: they need three.", len(r.Levels))
	}
}

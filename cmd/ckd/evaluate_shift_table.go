package main

import (
	"fmt"
	"io"
	"math"
	"slices"
	"strconv"

	"github.com/ckd-project/ckd/eval"
)

// writeOODTables prints a comparison of known and foreign inputs.
func writeOODTables(w io.Writer, r *eval.OODReport) error {
	p := newSheet(w)
	seeds := ""
	if r.Seeds > 1 {
		seeds = fmt.Sprintf(" Figures are means over %d seeds ± their standard deviation.", r.Seeds)
	}
	p.section("Known against foreign inputs", "")
	var rows [][]string
	for s := range r.Seeds {
		id, ood := r.Summary.ID[s], r.Summary.OOD[s]
		rows = append(rows, []string{strconv.Itoa(s), strconv.Itoa(id.Inputs), strconv.Itoa(id.Passes), strconv.Itoa(ood.Inputs),
			strconv.Itoa(ood.Passes)})
	}
	p.table(1, []string{"seed", "known", "passes", "foreign", "passes"}, rows)

	best := eval.OODScores[0]
	for _, name := range eval.OODScores {
		if r.Scores[name].AUROC > r.Scores[best].AUROC {
			best = name
		}
	}
	p.section("Scores", "Higher means foreign. The highest AUROC is that of %s. A high ratio does not mean a good separation.%s", best, seeds)
	rows = nil
	for _, name := range eval.OODScores {
		f, sd := r.Scores[name].OODFigures, r.Scores[name].SD
		if sd == nil {
			rows = append(rows, []string{name, fixed(f.AUROC), fixed(f.AUPR), fixed(f.FPR95), fixed(f.Ratio), shortNumber(f.MeanID),
				shortNumber(f.MeanOOD)})
			continue
		}
		rows = append(rows, []string{name, within(f.AUROC, sd.AUROC), within(f.AUPR, sd.AUPR), within(f.FPR95, sd.FPR95),
			within(f.Ratio, sd.Ratio), shortNumber(f.MeanID), shortNumber(f.MeanOOD)})
	}
	p.table(1, []string{"score", "AUROC", "AUPR", "FPR at 95% TPR", "ratio", "mean known", "mean foreign"}, rows)

	p.section("Classes", "C_k of one class as the score, nats.%s", seeds)
	rows = nil
	var skewness [][]string
	for _, c := range r.Classes {
		auroc, ratio := fixed(c.AUROC), fixed(c.Ratio)
		known, foreign := fixed(c.SkewnessID), fixed(c.SkewnessOOD)
		if c.SD != nil {
			auroc, ratio = within(c.AUROC, c.SD.AUROC), within(c.Ratio, c.SD.Ratio)
			known, foreign = within(c.SkewnessID, c.SD.SkewnessID), within(c.SkewnessOOD, c.SD.SkewnessOOD)
		}
		name := shortName(c.Name)
		rows = append(rows, []string{name, auroc, ratio, shortNumber(c.MeanID), shortNumber(c.MeanOOD)})
		skewness = append(skewness, []string{name, known, foreign, fixed(c.MedianID), fixed(c.MedianOOD), pValue(c.P, c.Log10P),
			direction(c.SkewnessID, c.SkewnessOOD)})
	}
	p.table(1, []string{"class", "AUROC", "ratio", "mean known", "mean foreign"}, rows)

	p.section("Skewness", "Mean and median of each class; p is of the two-sided Mann-Whitney test over the inputs of all seeds.%s", seeds)
	p.table(1, []string{"class", "mean known", "mean foreign", "median known", "median foreign", "p", "foreign is"}, skewness)
	if len(r.Notes) > 0 {
		p.section("Notes", "")
		p.points(r.Notes)
	}
	p.computed(r.Source.Software, r.Source.Kind, r.Source.Variance, "", append(slices.Clone(r.Source.ID), r.Source.OOD...)...)
	return p.end()
}

func direction(known, foreign float64) string {
	switch {
	case foreign > known:
		return "higher"
	case foreign < known:
		return "lower"
	}
	return "alike"
}

// entangled is the |R_rel| above which the paper sees substantial contamination.
const entangled = 0.3

// writeDisentangleTables prints a comparison over levels of label noise.
func writeDisentangleTables(w io.Writer, r *eval.DisentangleReport) error {
	p := newSheet(w)
	base := r.Levels[0]
	p.section("Label noise", "Means over inputs, in nats. Aleatoric is the expected entropy; epistemic is MI or sum_c. The baseline is level %v.",
		base.Level)
	var rows [][]string
	for _, l := range r.Levels {
		rows = append(rows, []string{fmt.Sprint(l.Level), strconv.Itoa(l.Inputs), strconv.Itoa(l.Passes), shortNumber(l.Aleatoric),
			shortNumber(l.Epistemic.MI), shortNumber(l.Epistemic.SumC), fixed(l.Inflation)})
	}
	p.table(1, []string{"level", "inputs", "passes", "aleatoric", "MI", "sum_c", "inflation"}, rows)

	p.section("Disentanglement", "|R|: the change of epistemic uncertainty for that of aleatoric, in nats (absolute) and each as a share of its "+
		"baseline (relative). 0 is disentangled, 1 entangled; relative values above %v, marked *, are substantial. The lower of MI and sum_c is named.",
		entangled)
	rows = nil
	lower := 0
	for _, l := range r.Levels[1:] {
		cells := []string{fmt.Sprint(l.Level), "", "", "", "", "undefined"}
		if l.RAbs != nil {
			cells[1], cells[2] = fixed(math.Abs(l.RAbs.MI)), fixed(math.Abs(l.RAbs.SumC))
		}
		if l.RRel != nil {
			cells[3], cells[4], cells[5] = relative(l.RRel.MI), relative(l.RRel.SumC), "MI"
			if math.Abs(l.RRel.SumC) < math.Abs(l.RRel.MI) {
				cells[5] = "sum_c"
				lower++
			}
		}
		rows = append(rows, cells)
	}
	p.table(1, []string{"level", "abs. MI", "abs. sum_c", "rel. MI", "rel. sum_c", "less entangled"}, rows)
	p.text("sum_c is the less entangled at %d of %d levels.", lower, len(r.Levels)-1)
	if c := r.RankCorrelations; c != nil {
		p.text("Rank correlation of the level with aleatoric uncertainty (consistency, 1 is best): %s. With epistemic (orthogonality, "+
			"0 is best): MI %s, sum_c %s.", fixed(c.Consistency), fixed(c.Orthogonality.MI), fixed(c.Orthogonality.SumC))
	}
	if len(r.Notes) > 0 {
		p.section("Notes", "")
		p.points(r.Notes)
	}
	p.computed(r.Source.Software, r.Source.Kind, r.Source.Variance, "", r.Source.Passes...)
	return p.end()
}

// relative is a |R_rel|, marked where it is substantial.
func relative(v float64) string {
	v = math.Abs(v)
	if v > entangled {
		return "* " + fixed(v)
	}
	return fixed(v)
}

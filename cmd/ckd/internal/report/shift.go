package report

import (
	"fmt"
	"math"
	"slices"
	"strconv"

	"github.com/ckd-project/ckd/cmd/ckd/internal/report/document"
	"github.com/ckd-project/ckd/decomp"
	"github.com/ckd-project/ckd/eval"
)

// OOD returns a comparison of known and foreign inputs as a document.
func OOD(r *eval.OODReport) *document.Document {
	d := &document.Document{Title: "Known against foreign inputs", Notes: r.Notes, Screen: oodScreen(r)}
	inputs := &document.Table{Caption: "Inputs and passes", Head: []string{"seed", "known", "passes", "foreign", "passes"}, TextColumns: 1}
	for s := range r.Seeds {
		id, ood := r.Summary.ID[s], r.Summary.OOD[s]
		inputs.Add(strconv.Itoa(s), id.Inputs, id.Passes, ood.Inputs, ood.Passes)
	}
	d.Sections = []document.Section{
		document.NewSection("recordings", "Recordings", "", inputs),
		document.NewSection("scores", "What tells them apart", "", oodScores(r), oodClasses(r)),
		document.NewSection("skewness", "Skewness", "", oodSkewness(r)),
		shiftSource("ckd evaluate ood", r.Source.Software, r.Source.Kind, r.Source.Variance,
			slices.Concat(r.Source.ID, r.Source.OOD)...),
	}
	return d
}

// oodScreen says which score tells foreign inputs from known ones best.
func oodScreen(r *eval.OODReport) document.Screen {
	best := bestOOD(r)
	known, foreign := 0, 0
	for s := range r.Seeds {
		known, foreign = known+r.Summary.ID[s].Inputs, foreign+r.Summary.OOD[s].Inputs
	}
	auroc := r.Scores[best].AUROC
	says := "separates them well"
	switch {
	case !(auroc > 0.6):
		says = "hardly separates them"
	case auroc < 0.8:
		says = "separates them in part"
	}
	t := &document.Table{Head: []string{"score", "AUROC", "mean known", "mean foreign"}, TextColumns: 1}
	for _, name := range eval.OODScores {
		f := r.Scores[name].OODFigures
		sd, spread := spreader(r.Scores[name].SD)
		known, foreign := float64(f.MeanID), float64(f.MeanOOD)
		if name == decomp.MaxProb.String() { // the score is one less the largest probability
			known, foreign = 1-known, 1-foreign
		}
		t.Add(short(name), spread(f.AUROC, sd.AUROC), document.Short(known), document.Short(foreign))
	}
	higher := "higher"
	if best == decomp.MaxProb.String() {
		higher = "lower"
	}
	s := document.Screen{
		Lead: fmt.Sprintf("Of a foreign and a known input, %s is %s for the foreign one with a chance of %s (AUROC %.3f; 0.5 is chance): "+
			"it %s. It is the best of five scores on these %s known and %s foreign inputs.", plain(best), higher, document.Percent(auroc),
			float64(auroc), says, document.Count(known), document.Count(foreign)),
		Table: t,
		Rests: []string{fmt.Sprintf("The foreign inputs are those given: others may look less foreign. %s each; probabilities and variances have no unit, all else is in nats.",
			document.Noun(r.Summary.ID[0].Passes, "pass"))},
		Next: []string{"To send unfamiliar inputs to people, calibrate a guard on mutual information: ckd calibrate --guard 0.02.",
			"C_k and skewness of every class: --full."},
	}
	if r.Seeds > 1 {
		s.Rests = append(s.Rests, fmt.Sprintf("Figures are means over %d seeds ± their standard deviation.", r.Seeds))
	}
	return s
}

// bestOOD returns the score of the highest AUROC.
func bestOOD(r *eval.OODReport) string {
	best := eval.OODScores[0]
	for _, name := range eval.OODScores {
		if r.Scores[name].AUROC > r.Scores[best].AUROC {
			best = name
		}
	}
	return best
}

// oodScores shows how well each score tells foreign inputs from known ones.
func oodScores(r *eval.OODReport) *document.Table {
	t := &document.Table{
		Caption:     "Scores",
		Says:        "Higher means foreign. A high ratio does not mean a good separation.",
		Head:        []string{"score", "AUROC", "ratio", "mean known", "mean foreign"},
		TextColumns: 1,
	}
	for _, name := range eval.OODScores {
		f := r.Scores[name].OODFigures
		sd, spread := spreader(r.Scores[name].SD)
		t.Add(name, spread(f.AUROC, sd.AUROC), spread(f.Ratio, sd.Ratio), document.Short(f.MeanID), document.Short(f.MeanOOD))
	}
	return t
}

// spreader returns standard deviations, 0 where there are none, and a function that makes a cell of a
// figure with its own, if there are any.
func spreader[F any](given *F) (sd F, cell func(v, sd eval.Figure) any) {
	if given == nil {
		return sd, func(v, _ eval.Figure) any { return document.Number(v) }
	}
	return *given, func(v, sd eval.Figure) any { return document.Spread{float64(v), float64(sd)} }
}

// oodClasses shows how well C_k of each class tells foreign inputs from known ones.
func oodClasses(r *eval.OODReport) *document.Table {
	t := &document.Table{
		Caption: "Classes", Says: "C_k of one class as the score, in nats.",
		Head: []string{"class", "AUROC", "ratio", "mean known", "mean foreign"}, TextColumns: 1,
	}
	for _, c := range r.Classes {
		sd, spread := spreader(c.SD)
		t.Add(c.Name, spread(c.AUROC, sd.AUROC), spread(c.Ratio, sd.Ratio), document.Short(c.MeanID), document.Short(c.MeanOOD))
	}
	return t
}

// oodSkewness compares the skewness of each class.
func oodSkewness(r *eval.OODReport) *document.Table {
	t := &document.Table{
		Caption:     "Skewness of each class",
		Says:        "p is of the two-sided Mann-Whitney test over the inputs of all seeds.",
		Head:        []string{"class", "mean known", "mean foreign", "median known", "median foreign", "p", "foreign is"},
		TextColumns: 1,
	}
	for _, c := range r.Classes {
		sd, spread := spreader(c.SD)
		t.Add(c.Name, spread(c.SkewnessID, sd.SkewnessID), spread(c.SkewnessOOD, sd.SkewnessOOD), document.Number(c.MedianID),
			document.Number(c.MedianOOD), pValue(c.P), direction(float64(c.SkewnessID), float64(c.SkewnessOOD)))
	}
	return t
}

// pValue returns the p-value of a test.
func pValue(p float64) string {
	switch {
	case p >= 0.001:
		return strconv.FormatFloat(p, 'f', 3, 64)
	case p > 1e-300:
		return strconv.FormatFloat(p, 'e', 0, 64)
	}
	return "under 1e-300"
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

// Disentanglement returns a comparison over levels of label noise as a document.
func Disentanglement(r *eval.DisentangleReport) *document.Document {
	levels := &document.Table{
		Caption: "Means over inputs, in nats",
		Says: fmt.Sprintf("Aleatoric is the expected entropy; epistemic is MI or sum_c. The baseline is level %v.",
			r.Levels[0].Level),
		Head: []string{"level", "inputs", "passes", "aleatoric", "MI", "sum_c", "inflation"}, TextColumns: 1,
	}
	for _, l := range r.Levels {
		levels.Add(fmt.Sprint(l.Level), l.Inputs, l.Passes, document.Short(l.Aleatoric), document.Short(l.Epistemic.MI),
			document.Short(l.Epistemic.SumC), document.Number(l.Inflation))
	}
	ratios := &document.Table{
		Caption: "|R| by level",
		Head:    []string{"level", "abs. MI", "abs. sum_c", "rel. MI", "rel. sum_c", "less entangled"}, TextColumns: 1,
	}
	lower := 0
	for _, l := range r.Levels[1:] {
		cells := []any{fmt.Sprint(l.Level), nil, nil, nil, nil, "undefined"}
		if l.RAbs != nil {
			cells[1], cells[2] = document.Number(math.Abs(l.RAbs.MI)), document.Number(math.Abs(l.RAbs.SumC))
		}
		if l.RRel != nil {
			cells[3], cells[4], cells[5] = relative(l.RRel.MI), relative(l.RRel.SumC), "MI"
			if math.Abs(l.RRel.SumC) < math.Abs(l.RRel.MI) {
				cells[5] = "sum_c"
				lower++
			}
		}
		ratios.Add(cells...)
	}
	ratios.Says = fmt.Sprintf("sum_c is the less entangled at %d of %d levels.", lower, len(r.Levels)-1)
	var ranks *document.Table
	if c := r.RankCorrelations; c != nil {
		ranks = &document.Table{
			Caption: "Rank correlations with the level",
			Says:    "Of aleatoric uncertainty (consistency) 1 is best, of epistemic uncertainty (orthogonality) 0 is best.",
			Head:    []string{"figure", "correlation"}, TextColumns: 1,
		}
		ranks.Add("consistency", document.Number(c.Consistency))
		ranks.Add("orthogonality of MI", document.Number(c.Orthogonality.MI))
		ranks.Add("orthogonality of sum_c", document.Number(c.Orthogonality.SumC))
	}
	return &document.Document{
		Title: "Aleatoric and epistemic uncertainty under label noise", Notes: r.Notes, Screen: noiseScreen(r, lower),
		Sections: []document.Section{
			document.NewSection("noise", "Label noise", "", levels),
			document.NewSection("disentanglement", "Disentanglement",
				fmt.Sprintf("|R| is the change of epistemic uncertainty over that of aleatoric, in nats (absolute) and each as a "+
					"share of its baseline (relative). 0 is disentangled, 1 entangled; relative values above %v, marked *, are "+
					"substantial.", entangled),
				ratios, ranks),
			shiftSource("ckd evaluate disentangle", r.Source.Software, r.Source.Kind, r.Source.Variance, r.Source.Passes...),
		},
	}
}

// noiseScreen says whether the sum of contributions or mutual information follows label noise less.
func noiseScreen(r *eval.DisentangleReport, lower int) document.Screen {
	last := r.Levels[len(r.Levels)-1]
	s := document.Screen{
		Table: &document.Table{Head: []string{"label noise", "aleatoric (nats)", "mutual information (nats)", "sum of C_k (nats)", "relative, mutual information", "relative, sum of C_k"}, TextColumns: 1},
		Rests: []string{
			fmt.Sprintf("Relative: the change of epistemic uncertainty over that of aleatoric, each as a share of its value at level %v. 0 is "+
				"disentangled, 1 entangled; above %v, marked *, is substantial.", r.Levels[0].Level, entangled),
			fmt.Sprintf("%s at each level, %s each.", document.Noun(last.Inputs, "input"), document.Noun(last.Passes, "pass")),
		},
		Next: []string{"Absolute ratios and rank correlations: --full."},
	}
	s.Lead = fmt.Sprintf("The sum of C_k over all classes follows label noise less than mutual information does at %d of %s.", lower,
		document.Noun(len(r.Levels)-1, "level"))
	if last.RRel != nil {
		s.Lead += fmt.Sprintf(" At level %v, for each percent that aleatoric uncertainty changes, the sum changes by %s%% and mutual information "+
			"by %s%%.", last.Level, document.Digits(math.Abs(last.RRel.SumC)), document.Digits(math.Abs(last.RRel.MI)))
	}
	shown := r.Levels
	if most := 5; len(shown) > most { // the baseline, and the highest levels
		shown = slices.Concat(shown[:1], shown[len(shown)-most+1:])
	}
	for _, l := range shown {
		cells := []any{fmt.Sprint(l.Level), document.Short(l.Aleatoric), document.Short(l.Epistemic.MI), document.Short(l.Epistemic.SumC), nil, nil}
		if l.RRel != nil {
			cells[4], cells[5] = relative(l.RRel.MI), relative(l.RRel.SumC)
		}
		s.Table.Add(cells...)
	}
	return s
}

// relative returns |R_rel|, marked where it is substantial.
func relative(v float64) string {
	text := document.Decimal(math.Abs(v))
	if math.Abs(v) > entangled {
		return "* " + text
	}
	return text
}

// shiftSource shows how a comparison of recordings was computed.
func shiftSource(command, software, kind, variance string, files ...eval.File) document.Section {
	settings := []setting{{"software", software}, {"kind of rows", kind}, {"variance", variance}}
	for _, f := range files {
		settings = append(settings, fileSettings("passes", f)...)
	}
	return computed(command, settings...)
}

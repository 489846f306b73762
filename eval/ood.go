package eval

import (
	"fmt"
	"slices"

	"github.com/ckd-project/ckd/decomp"
)

// OODReport says how well uncertainty tells foreign inputs (out of distribution, OOD) from known
// ones (in distribution, ID). `ckd evaluate ood --format json` prints it. With several seeds every
// figure is the mean over them, and the field sd beside it has the sample standard deviation.
type OODReport struct {
	Source  OODSource  `json:"source"`
	Summary OODSummary `json:"summary"`
	Seeds   int        `json:"seeds"`
	// Scores by the names of OODScores.
	Scores  map[string]OODScore `json:"scores"`
	Classes []OODClass          `json:"classes"`
	Notes   []string            `json:"notes"`
}

// OODSource says how the report was computed. Files are in the order of seeds.
type OODSource struct {
	Software string `json:"software"`
	ID       []File `json:"id"`
	OOD      []File `json:"ood"`
	Kind     string `json:"kind"`
	Variance string `json:"variance"`
}

// OODSummary has the sizes of the recordings, in the order of seeds.
type OODSummary struct {
	Classes int    `json:"classes"`
	ID      []Size `json:"id"`
	OOD     []Size `json:"ood"`
}

// Size of a recording.
type Size struct {
	Inputs int `json:"inputs"`
	Passes int `json:"passes"`
}

// OODScore says how well one score separates. Higher values mean foreign.
type OODScore struct {
	OODFigures
	SD *OODFigures `json:"sd,omitempty"` // nil for one seed
}

// OODFigures of one score.
type OODFigures struct {
	// AUROC is the chance that a foreign input has the higher score; equal scores count half.
	AUROC Figure `json:"auroc"`
	// Ratio is MeanOOD/MeanID, and null where MeanID is 0.
	Ratio   Figure `json:"ratio"`
	MeanID  Figure `json:"mean_id"`
	MeanOOD Figure `json:"mean_ood"`
}

// OODClass says how well the contribution of one class separates.
type OODClass struct {
	Name string `json:"name"`
	OODClassFigures
	SD *OODClassFigures `json:"sd,omitempty"` // nil for one seed
	// P is the p-value of the two-sided Mann-Whitney test that the skewness of the class has one
	// distribution inside and outside, over the inputs of all seeds together. It uses the normal
	// approximation with corrections for ties and continuity, and may underflow to 0.
	P float64 `json:"p"`
}

// OODClassFigures of one class.
type OODClassFigures struct {
	OODFigures // of C_k as a score
	// Mean and median skewness of the class.
	SkewnessID  Figure `json:"skewness_id"`
	SkewnessOOD Figure `json:"skewness_ood"`
	MedianID    Figure `json:"median_id"`
	MedianOOD   Figure `json:"median_ood"`
}

// OODScores has the scores that Detect compares, in the order of the paper: the baselines first.
var OODScores = []string{"maxprob", "entropy", "mi", "eu_var", "sum_c"}

// Detect compares recordings of known inputs with recordings of foreign ones. The two tables of one
// position belong together: they are passes of one model, trained from one seed. All must have the
// same classes and be decomposed alike. The caller fills software and files of the report's source.
func Detect(id, ood []*Table, classes []string) (*OODReport, error) {
	if len(id) == 0 || len(id) != len(ood) {
		return nil, fmt.Errorf("%d recordings of known inputs and %d of foreign ones: expected one of each for every seed",
			len(id), len(ood))
	}
	for s := range id {
		for _, t := range []*Table{id[s], ood[s]} {
			if t.K != len(classes) {
				return nil, fmt.Errorf("a recording of seed %d has %d classes: expected %d in all", s, t.K, len(classes))
			}
		}
	}
	r := &OODReport{
		Source:  OODSource{Kind: kindOf(id[0].Spec.Kind), Variance: varianceOf(id[0].Spec.Variance)},
		Summary: OODSummary{Classes: len(classes)},
		Seeds:   len(id),
		Scores:  make(map[string]OODScore),
		Notes:   oodNotes(id, ood),
	}
	for s := range id {
		r.Summary.ID = append(r.Summary.ID, Size{id[s].Inputs, id[s].Passes})
		r.Summary.OOD = append(r.Summary.OOD, Size{ood[s].Inputs, ood[s].Passes})
	}
	for _, name := range OODScores {
		var seeds []OODFigures
		for s := range id {
			seeds = append(seeds, oodFigures(id[s].column(name), ood[s].column(name)))
		}
		var score OODScore
		score.OODFigures, score.SD = overSeeds(seeds)
		r.Scores[name] = score
	}
	for k, name := range classes {
		r.Classes = append(r.Classes, oodClass(name, id, ood, k))
	}
	return r, nil
}

// column returns the column of a score, or of sum_c, by name.
func (t *Table) column(name string) []float64 {
	if score, ok := decomp.ParseScore(name); ok {
		return t.Scores[score]
	}
	return t.SumC
}

// ofClass returns the entries of class k in a column over classes.
func (t *Table) ofClass(column []float64, k int) []float64 {
	values := make([]float64, t.Inputs)
	for i := range values {
		values[i] = column[i*t.K+k]
	}
	return values
}

func oodFigures(id, ood []float64) OODFigures {
	auroc, _ := mannWhitney(id, ood)
	meanID, meanOOD := mean(id), mean(ood)
	return OODFigures{Figure(auroc), quotient(meanOOD, meanID), Figure(meanID), Figure(meanOOD)}
}

// oodClass compares what class k shows in and out of distribution, over all seeds.
func oodClass(name string, id, ood []*Table, k int) OODClass {
	class := OODClass{Name: name}
	var seeds []OODClassFigures
	var allID, allOOD []float64 // skewness
	for s := range id {
		skewID, skewOOD := id[s].ofClass(id[s].Skewness, k), ood[s].ofClass(ood[s].Skewness, k)
		allID, allOOD = append(allID, skewID...), append(allOOD, skewOOD...)
		f := OODClassFigures{
			OODFigures: oodFigures(id[s].ofClass(id[s].C, k), ood[s].ofClass(ood[s].C, k)),
			SkewnessID: Figure(mean(skewID)), SkewnessOOD: Figure(mean(skewOOD)),
		}
		slices.Sort(skewID)
		slices.Sort(skewOOD)
		f.MedianID, f.MedianOOD = Figure(quantile(skewID, 0.5)), Figure(quantile(skewOOD, 0.5))
		seeds = append(seeds, f)
	}
	class.OODClassFigures, class.SD = overSeeds(seeds)
	_, class.P = mannWhitney(allID, allOOD)
	return class
}

func (f *OODFigures) fields() []*Figure {
	return []*Figure{&f.AUROC, &f.Ratio, &f.MeanID, &f.MeanOOD}
}

func (f *OODClassFigures) fields() []*Figure {
	return append(f.OODFigures.fields(), &f.SkewnessID, &f.SkewnessOOD, &f.MedianID, &f.MedianOOD)
}

// overSeeds returns the mean of figures over the seeds in which they are defined and, for more than
// one seed, their sample standard deviation.
func overSeeds[F any, P interface {
	*F
	fields() []*Figure
}](seeds []F) (average F, sd *F) {
	if len(seeds) > 1 {
		sd = new(F)
	}
	figures := make([]Figure, len(seeds))
	for field, figure := range P(&average).fields() {
		for s := range seeds {
			figures[s] = *P(&seeds[s]).fields()[field]
		}
		over := interval(figures)
		*figure = over.Mean
		if sd != nil {
			*P(sd).fields()[field] = over.SD
		}
	}
	return average, sd
}

// oodNotes says what makes two recordings hard to compare.
func oodNotes(id, ood []*Table) []string {
	notes := []string{}
	add := func(format string, args ...any) { notes = append(notes, fmt.Sprintf(format, args...)) }
	for s := range id {
		named := ""
		if len(id) > 1 {
			named = fmt.Sprintf("Seed %d: ", s)
		}
		if a, b := id[s].Passes, ood[s].Passes; a != b {
			add("%sthe known inputs have %d passes and the foreign ones %d: scores and skewness of different numbers of passes are not "+
				"on one scale.", named, a, b)
		}
		for _, name := range OODScores {
			if constant(slices.Concat(id[s].column(name), ood[s].column(name))) {
				add("%s%s is constant: its figures say nothing.", named, name)
			}
		}
		for _, side := range []struct {
			what string
			t    *Table
		}{{"known", id[s]}, {"foreign", ood[s]}} {
			if n := countTrue(side.t.Degenerate); n > 0 {
				add("%s%d of %d %s inputs have passes that hardly differ: their uncertainty is absent, not zero.", named, n, side.t.Inputs, side.what)
			}
		}
	}
	return notes
}

// constant reports whether all values are equal.
func constant(values []float64) bool {
	return len(values) == 0 || slices.Min(values) == slices.Max(values)
}

func countTrue(marks []bool) (n int) {
	for _, m := range marks {
		n += index(m)
	}
	return n
}

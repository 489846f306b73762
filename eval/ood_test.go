package eval_test

import (
	"encoding/json"
	"math"
	"strings"
	"testing"

	"github.com/ckd-project/ckd/decomp"
	"github.com/ckd-project/ckd/eval"
)

// digitsTable decomposes a recording of digits.
func digitsTable(t *testing.T, name string) *eval.Table {
	t.Helper()
	return table(t, recordedPasses(t, name), decomp.Spec{})
}

var digitNames = strings.Split("0123456", "")

func TestDetectAgreesWithGolden(t *testing.T) {
	var want map[string]json.RawMessage
	golden(t, "digits.ood.json", &want)
	r, err := eval.Detect([]*eval.Table{digitsTable(t, "digits-id")}, []*eval.Table{digitsTable(t, "digits-ood")}, digitNames)
	if err != nil {
		t.Fatal(err)
	}
	if len(want) != 1+len(eval.OODScores) || len(r.Scores) != len(eval.OODScores) {
		t.Fatalf("%d golden entries, %d scores", len(want), len(r.Scores))
	}
	for _, name := range eval.OODScores {
		var w struct {
			AUROC, Ratio float64
			MeanID       float64 `json:"mean_id"`
			MeanOOD      float64 `json:"mean_ood"`
		}
		if err := json.Unmarshal(want[name], &w); err != nil {
			t.Fatal(err)
		}
		got := r.Scores[name]
		closeTo(t, name+" auroc", got.AUROC, w.AUROC)
		closeTo(t, name+" ratio", got.Ratio, w.Ratio)
		closeTo(t, name+" mean_id", got.MeanID, w.MeanID)
		closeTo(t, name+" mean_ood", got.MeanOOD, w.MeanOOD)
		if got.SD != nil {
			t.Errorf("%s: an sd of one seed", name)
		}
	}
	var classes []struct {
		AUROC, Ratio float64
		SkewID       float64 `json:"skew_id"`
		SkewOOD      float64 `json:"skew_ood"`
	}
	if err := json.Unmarshal(want["per_class"], &classes); err != nil {
		t.Fatal(err)
	}
	if len(classes) != 7 || len(r.Classes) != 7 {
		t.Fatalf("%d golden classes, %d classes", len(classes), len(r.Classes))
	}
	for k, w := range classes {
		got := r.Classes[k]
		closeTo(t, got.Name+" auroc", got.AUROC, w.AUROC)
		closeTo(t, got.Name+" ratio", got.Ratio, w.Ratio)
		closeTo(t, got.Name+" skewness_id", got.SkewnessID, w.SkewID)
		closeTo(t, got.Name+" skewness_ood", got.SkewnessOOD, w.SkewOOD)
	}
}

// handTable makes a table with the columns that Detect and Disentangle read.
func handTable(passes int, maxprob, c0, skewness0 []float64) *eval.Table {
	n := len(maxprob)
	t := &eval.Table{
		Inputs: n, Passes: passes, K: 2, SumC: c0, ExpectedEntropy: maxprob,
		C: make([]float64, 2*n), Skewness: make([]float64, 2*n), Degenerate: make([]bool, n),
	}
	for _, s := range []decomp.Score{decomp.MaxProb, decomp.Entropy, decomp.MI, decomp.EUVar} {
		t.Scores[s] = maxprob
	}
	for i := range n {
		t.C[2*i], t.Skewness[2*i] = c0[i], skewness0[i]
	}
	return t
}

func TestDetectOverSeeds(t *testing.T) {
	// Seed 0 separates all pairs; seed 1 orders one of four pairs wrongly. AUROC is 1 and 3/4, with
	// mean 7/8 and sd 1/(4 sqrt 2). The ratios of C_0 are 4 and 2.
	id := []*eval.Table{
		handTable(5, []float64{.1, .2}, []float64{1, 1}, []float64{.1, .2}),
		handTable(5, []float64{.1, .3}, []float64{2, 2}, []float64{.3, .4}),
	}
	ood := []*eval.Table{
		handTable(5, []float64{.3, .4}, []float64{4, 4}, []float64{.5, .6}),
		handTable(5, []float64{.2, .4}, []float64{3, 5}, []float64{.7, .9}),
	}
	r, err := eval.Detect(id, ood, []string{"a", "b"})
	if err != nil {
		t.Fatal(err)
	}
	if r.Seeds != 2 || len(r.Summary.ID) != 2 || r.Summary.OOD[1] != (eval.Size{Inputs: 2, Passes: 5}) {
		t.Errorf("seeds %d, summary %+v", r.Seeds, r.Summary)
	}
	closeTo(t, "auroc", r.Scores["mi"].AUROC, 7./8)
	closeTo(t, "sd of auroc", r.Scores["mi"].SD.AUROC, 0.25/math.Sqrt2)
	closeTo(t, "ratio", r.Classes[0].Ratio, 3)
	closeTo(t, "sd of ratio", r.Classes[0].SD.Ratio, math.Sqrt2)
	closeTo(t, "skewness_id", r.Classes[0].SkewnessID, .25)
	closeTo(t, "median_ood", r.Classes[0].MedianOOD, .675)
	closeTo(t, "sd of skewness_ood", r.Classes[0].SD.SkewnessOOD, .25/math.Sqrt2)
	// From scipy.stats.mannwhitneyu([.1,.2,.3,.4], [.5,.6,.7,.9], method='asymptotic') over both
	// seeds together. The mean over two tests by seed would be 0.2453.
	closeTo(t, "p", r.Classes[0].P, 0.030382821976577504)
	// Class b has the same C everywhere; eu_var varies.
	if b := r.Classes[1]; b.P != 1 || b.Ratio.Defined() || b.AUROC != 0.5 {
		t.Errorf("a class without uncertainty: %+v", b)
	}
	if len(r.Notes) > 0 {
		t.Errorf("notes %q", r.Notes)
	}
}

func TestDetectErrors(t *testing.T) {
	single := handTable(5, []float64{.1}, []float64{1}, []float64{0})
	for _, c := range []struct {
		id, ood []*eval.Table
		classes []string
		want    string
	}{
		{nil, nil, []string{"a", "b"}, "0 recordings of known inputs and 0 of foreign ones"},
		{[]*eval.Table{single, single}, []*eval.Table{single}, []string{"a", "b"}, "expected one of each for every seed"},
		{[]*eval.Table{single}, []*eval.Table{single}, []string{"a", "b", "c"}, "seed 0 has 2 classes: expected 3"},
	} {
		if _, err := eval.Detect(c.id, c.ood, c.classes); err == nil || !strings.Contains(err.Error(), c.want) {
			t.Errorf("got %v, want %q", err, c.want)
		}
	}
}

package eval_test

import (
	"math"
	"slices"
	"strings"
	"testing"

	"github.com/ckd-project/ckd/eval"
)

func TestDisentangleAgreesWithGolden(t *testing.T) {
	var want map[string]eval.Epistemic
	golden(t, "digits.disentangle.json", &want)
	var levels []eval.Level
	for i, percent := range []string{"00", "10", "20", "30", "40", "50"} {
		levels = append(levels, eval.Level{Level: float64(i) / 10, Table: digitsTable(t, "digits-noise-"+percent)})
	}
	slices.Reverse(levels) // the order they are given in does not matter
	r, err := eval.Disentangle(levels)
	if err != nil {
		t.Fatal(err)
	}
	if len(want) != 5 || len(r.Levels) != 6 || r.Levels[0].RRel != nil || r.Levels[0].RAbs != nil {
		t.Fatalf("%d golden levels, levels %+v", len(want), r.Levels)
	}
	for i, key := range []string{"0.1", "0.2", "0.3", "0.4", "0.5"} {
		got := r.Levels[i+1]
		closeTo(t, key+" mi", got.RRel.MI, want[key].MI)
		closeTo(t, key+" sum_c", got.RRel.SumC, want[key].SumC)
	}
}

func TestDisentangle(t *testing.T) {
	// Aleatoric and MI 2, 3, 1; sum_c 4, 10, 1 at levels 0, 0.1, 0.2.
	r, err := eval.Disentangle([]eval.Level{
		{Level: 0.2, Table: handTable(5, []float64{.5, 1.5}, []float64{1, 1}, []float64{0, 0})},
		{Level: 0, Table: handTable(5, []float64{1, 3}, []float64{4, 4}, []float64{0, 0})},
		{Level: 0.1, Table: handTable(5, []float64{3, 3}, []float64{8, 12}, []float64{0, 0})},
	})
	if err != nil {
		t.Fatal(err)
	}
	closeTo(t, "aleatoric", r.Levels[1].Aleatoric, 3)
	closeTo(t, "inflation", r.Levels[1].Inflation, 10./3)
	closeTo(t, "r_abs of sum_c", r.Levels[1].RAbs.SumC, 6)
	closeTo(t, "r_rel of sum_c", r.Levels[1].RRel.SumC, (6./4)/(1./2))
	closeTo(t, "r_abs of mi", r.Levels[2].RAbs.MI, 1)
	// Ranks 2, 3, 1 over levels: correlation -1/2.
	closeTo(t, "consistency", r.RankCorrelations.Consistency, -.5)
	closeTo(t, "orthogonality", r.RankCorrelations.Orthogonality.SumC, -.5)
	if all := strings.Join(r.Notes, "\n"); !strings.Contains(all, "Level 0.2: aleatoric uncertainty is below") {
		t.Errorf("notes %q", r.Notes)
	}
}

func TestDisentangleUndefined(t *testing.T) {
	level0 := func(level, entropy, c float64) eval.Level {
		return eval.Level{Level: level, Table: handTable(5, []float64{entropy}, []float64{c}, []float64{0})}
	}
	more := level0(1, 2, 2) // of both epistemic figures, at the same aleatoric
	more.Table.ExpectedEntropy = []float64{1}
	for _, c := range []struct {
		name   string
		levels []eval.Level
		abs    bool
		note   string
	}{
		{"only epistemic", []eval.Level{level0(0, 1, 1), more}, false, "R is undefined"},
		{"no change", []eval.Level{level0(0, 1, 1), level0(1, 1, 2)}, false, "R is undefined"},
		{"no baseline", []eval.Level{level0(0, 0, 1), level0(1, 1, 2)}, true, "R is undefined"},
		{"no epistemic baseline", []eval.Level{level0(0, 1, 0), level0(1, 2, 2)}, true, "R is undefined"},
		{"little change", []eval.Level{level0(0, 1, 1), level0(1, 1.01, 2)}, true, "only 1% above the baseline"},
	} {
		r, err := eval.Disentangle(c.levels)
		if err != nil {
			t.Fatal(err)
		}
		l := r.Levels[1]
		if (l.RAbs != nil) != c.abs || (l.RRel != nil) != (c.name == "little change") {
			t.Errorf("%s: R %v and %v", c.name, l.RAbs, l.RRel)
		}
		all := strings.Join(r.Notes, "\n")
		if !strings.Contains(all, c.note) || !strings.Contains(all, "2 levels are too few for rank correlations") {
			t.Errorf("%s: notes %q", c.name, r.Notes)
		}
		if r.RankCorrelations != nil {
			t.Errorf("%s: rank correlations of two levels", c.name)
		}
	}
}

func TestDisentangleErrors(t *testing.T) {
	two := handTable(5, []float64{1}, []float64{1}, []float64{0})
	three := &eval.Table{K: 3}
	for _, c := range []struct {
		levels []eval.Level
		want   string
	}{
		{nil, "0 levels: expected at least 2"},
		{[]eval.Level{{Level: 0, Table: two}}, "1 levels: expected at least 2"},
		{[]eval.Level{{Level: 0, Table: two}, {Level: .5, Table: two}, {Level: 0, Table: two}}, "level 0 is given twice"},
		{[]eval.Level{{Level: 0, Table: two}, {Level: math.NaN(), Table: two}}, "level NaN: expected a finite number"},
		{[]eval.Level{{Level: 0, Table: two}, {Level: 1, Table: three}}, "level 1 has 3 classes, level 0 has 2"},
	} {
		if _, err := eval.Disentangle(c.levels); err == nil || !strings.Contains(err.Error(), c.want) {
			t.Errorf("got %v, want %q", err, c.want)
		}
	}
}

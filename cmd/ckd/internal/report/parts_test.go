package report

import (
	"fmt"
	"slices"
	"testing"

	"pgregory.net/rapid"

	"github.com/ckd-project/ckd/eval"
)

func TestNatUnit(t *testing.T) {
	t.Parallel()
	for _, test := range []struct {
		highest, perNat float64
	}{{2, 1e3}, {0.001, 1e3}, {0.0009, 1e6}, {1e-6, 1e6}, {9e-7, 1e9}, {0, 1e9}} {
		if perNat, _ := natUnit(test.highest); perNat != test.perNat {
			t.Errorf("%v in units of 1/%v nats, expected 1/%v", test.highest, perNat, test.perNat)
		}
	}
}

// TestShownClasses expects all classes or as many as there is room for, each once, by groups; of
// the critical ones, those with the most inputs.
func TestShownClasses(t *testing.T) {
	t.Parallel()
	rapid.Check(t, func(t *rapid.T) {
		classes := rapid.SliceOfN(rapid.Custom(func(t *rapid.T) eval.Class {
			of := rapid.IntRange(0, 2).Draw(t, "group")
			return eval.Class{Safe: of == 0, Critical: of == 2, Support: rapid.IntRange(0, 9).Draw(t, "support")}
		}), 1, 90).Draw(t, "classes")
		shown := shownClasses(classes)
		if len(shown) != min(len(classes), mostShown) {
			t.Fatalf("%d of %d classes", len(shown), len(classes))
		}
		if sorted := slices.Compact(slices.Sorted(slices.Values(shown))); len(sorted) != len(shown) {
			t.Fatalf("one is shown twice: %v", shown)
		}
		for i := 1; i < len(shown); i++ {
			if a, b := group(classes[shown[i-1]]), group(classes[shown[i]]); a > b || a == b && shown[i-1] > shown[i] {
				t.Fatalf("not in order: %v", shown)
			}
		}
		for k, c := range classes {
			for _, s := range shown {
				if c.Critical && classes[s].Critical && !slices.Contains(shown, k) && c.Support > classes[s].Support {
					t.Fatalf("class %d has more inputs than %d, and is not shown", k, s)
				}
			}
		}
	})
}

// TestShownClassesOfManyCritical expects the critical classes to take half the room.
func TestShownClassesOfManyCritical(t *testing.T) {
	t.Parallel()
	classes := make([]eval.Class, 80)
	for k := range classes {
		classes[k] = eval.Class{Critical: k%2 == 0, Support: k}
	}
	critical := 0
	for _, k := range shownClasses(classes) {
		critical += int(group(classes[k])) / 2
	}
	if critical != mostShown/2 {
		t.Errorf("%d of %d shown are critical, expected half", critical, mostShown)
	}
}

// TestCurves expects missed over retained, and NaN where nothing is retained.
func TestCurves(t *testing.T) {
	t.Parallel()
	c := &eval.Curve{CriticalRetained: []float64{0, 4, 10}, CriticalMissed: []float64{0, 1, 5}, Wrong: []float64{1, 3, 6}}
	for _, test := range []struct {
		byRisk bool
		want   string
	}{{true, "[NaN 0.25 0.5] [0 4 10]"}, {false, "[NaN 0.5 0.4] [0 6 15]"}} {
		d := &deferral{evaluation: &evaluation{byRisk: test.byRisk, report: &eval.Report{Curves: eval.Curves{
			Coverage: []float64{0, 0.5, 1}, Retained: []int{0, 6, 15}}}}}
		risk, of := d.riskCurve(c)
		if got := fmt.Sprint(risk, of); got != test.want {
			t.Errorf("%s, expected %s", got, test.want)
		}
	}
}

func TestPValue(t *testing.T) {
	t.Parallel()
	for p, want := range map[float64]string{1: "1.000", 0.0302: "0.030", 3e-52: "3e-52", 0: "under 1e-300"} {
		if got := pValue(p); got != want {
			t.Errorf("%v: %s, expected %s", p, got, want)
		}
	}
}

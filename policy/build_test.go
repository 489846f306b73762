package policy

import (
	"errors"
	"math"
	"strings"
	"testing"

	"github.com/google/go-cmp/cmp"
)

// TestBuild compares the policy of a program's draft with that of a file that says the same.
func TestBuild(t *testing.T) {
	tests := []struct {
		name  string
		draft Policy
		file  string
	}{
		{"defaults", Policy{Name: "m", Classes: []string{"a", "b", "c"}, Critical: []int{2, 1}},
			"models: [{name: m, classes: [a, b, c], critical: [c, b]}]"},
		{"no class is safe", Policy{Name: "m", Classes: []string{"a", "b"}, Safe: []int{}, Gate: Never, Primary: Rule{Score: MI}},
			"models: [{name: m, classes: [a, b], safe: [], gate: never, primary: {score: mi}}]"},
		{"dirichlet", Policy{Name: "m", Classes: []string{"a", "b"}, Critical: []int{1}, Kind: Dirichlet},
			"models: [{name: m, classes: [a, b], critical: [b], kind: dirichlet}]"},
		{"a threshold, and one of 0", Policy{Name: "m", Classes: []string{"a", "b"}, Critical: []int{1},
			Primary: Rule{Threshold: 0.5}, Fallback: Rule{HasThreshold: true}},
			"models: [{name: m, classes: [a, b], critical: [b], primary: {threshold: 0.5}, fallback: {threshold: 0}}]"},
		{"weights", Policy{Name: "m", Classes: []string{"a", "b", "c"}, Critical: []int{2},
			PairWeights: []PairWeight{{1, 2, 2}, {0, 2, 1}}},
			"models: [{name: m, classes: [a, b, c], critical: [c], pair_weights: [{safe: b, critical: c, weight: 2}]}]"},
	}
	for _, test := range tests {
		t.Run(test.name, func(t *testing.T) {
			p, err := Build(test.draft)
			if err != nil {
				t.Fatal(err)
			}
			if diff := cmp.Diff(parseOne(t, test.file), p); diff != "" {
				t.Errorf("-file +program:\n%s", diff)
			}
			checkMarshal(t, p)
		})
	}
}

// TestBuildFaults checks that all faults are reported at once, with the paths that a file would have and
// without its lines.
func TestBuildFaults(t *testing.T) {
	sane := func() Policy {
		return Policy{Name: "m", Classes: []string{"a", "b", "c"}, Critical: []int{2}, ExpectedPasses: 30}
	}
	quantiles := make([]float64, Levels)
	tests := []struct {
		name  string
		spoil func(*Policy)
		want  []string // the beginnings of the faults
	}{
		{"nothing", func(d *Policy) { *d = Policy{} }, []string{"name: missing, expected", "classes: missing, expected"}},
		{"name", func(d *Policy) { d.Name = "a b" }, []string{"name: expected at most 128 letters"}},
		{"classes", func(d *Policy) { d.Classes = []string{"a", "", "a", "c"} },
			[]string{`model "m": classes[1]: expected a name`, `model "m": classes[2]: "a" is given twice, first at classes[0]`}},
		{"many", func(d *Policy) {
			d.Kind, d.Gate, d.SumTolerance, d.FewestPasses, d.Primary.Threshold = "probability", "some", 1, -1, math.NaN()
		}, []string{
			`model "m": kind: expected one of`, `model "m": passes.fewest: expected a whole number from 1`,
			`model "m": sum_tolerance: expected a number from`, `model "m": gate: expected one of`,
			`model "m": primary.threshold: expected a finite number >= 0, found text "NaN"`,
		}},
		{"reference", func(d *Policy) {
			d.Calibration = &Calibration{Reference: &Reference{Inputs: 9, Classes: []ClassReference{
				{Class: 3, Epistemic: quantiles, Skewness: quantiles[1:]},
			}}}
		}, []string{
			`model "m": calibrated.reference.classes[0].class: expected text, found nothing`,
			`model "m": calibrated.reference.classes[0].skewness: expected a list of 65 numbers`,
		}},
	}
	for _, test := range tests {
		t.Run(test.name, func(t *testing.T) {
			d := sane()
			test.spoil(&d)
			_, err := Build(d)
			var faults Faults
			ok := errors.As(err, &faults) && len(faults) == len(test.want)
			for i := range min(len(faults), len(test.want)) {
				ok = ok && strings.HasPrefix(faults[i].Error(), test.want[i])
			}
			if !ok {
				t.Errorf("faults\n%v\nwant\n%s", err, strings.Join(test.want, "\n"))
			}
		})
	}
}

// TestBuildCopies checks that changing a draft after Build does not change its policy.
func TestBuildCopies(t *testing.T) {
	draft := parseOne(t, settledText(fullRule)).Draft()
	p, err := Build(draft)
	if err != nil {
		t.Fatal(err)
	}
	before := string(p.Marshal())
	draft.Classes[0], draft.EarlyStopping.Seed, draft.EarlyStopping.Rule.Form.Boundaries[0].Retain = "x", 7, 0
	if string(p.Marshal()) != before {
		t.Error("changing the draft changes the policy")
	}
}

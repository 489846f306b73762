package calibrate

import (
	"cmp"
	"context"
	"errors"
	"fmt"
	"math"
	"math/rand/v2"
	"slices"
	"strings"
	"testing"

	"github.com/ckd-project/ckd/eval"
	"github.com/ckd-project/ckd/policy"
)

// objectives has one of each kind.
var objectives = []Objective{{Coverage: 0.7}, fnrUpTo(0.3, 0.8)}

// TestNotes checks that notes say what a recording lacks.
func TestNotes(t *testing.T) {
	t.Parallel()
	for _, c := range []struct {
		name string
		made func(m *made)
		base []string
		// change edits the table and labels.
		change func(table *eval.Table, labels []int)
		scope  policy.Scope
		want   []string
		// not is a fragment that no note may have.
		not string
	}{
		{name: "nothing is wanting", not: "the"},
		{
			name: "few critical inputs", made: func(m *made) { m.share = 0.05 },
			want: []string{"of 300 inputs are critical: every figure about them is uncertain", "are missed without deferral: the choice of rule"},
		},
		{
			name: "no miss", made: func(m *made) { m.missed = 0 },
			want: []string{"no critical input is missed even without deferral"}, not: "are missed without deferral",
		},
		{
			name: "one critical input",
			change: func(table *eval.Table, labels []int) {
				for i := range labels {
					labels[i], table.Predicted[i] = 0, 0
				}
				labels[7] = 1
			},
			want: []string{"only 1 of 300 inputs are critical", "only 1 are missed", "class 2 has no inputs"},
		},
		{
			name: "a class without examples",
			change: func(_ *eval.Table, labels []int) {
				for i := range labels {
					labels[i] = min(labels[i], 1)
				}
			},
			want: []string{"class 2 has no inputs: nothing is known about missing it"},
		},
		{
			name: "a constant score",
			change: func(table *eval.Table, _ []int) {
				for i := range table.Inputs {
					table.Scores[3][i] = 0.25 * (1 + 1e-12*float64(i%7))
				}
			},
			want: []string{"variance of all classes together is the same for all inputs"},
		},
		{
			name: "no safe class", base: []string{`safe: []`},
			change: func(table *eval.Table, _ []int) { table.Scores[9] = nil },
			want:   []string{"confusion between safe and critical classes is not defined without the sets that it needs"},
		},
		{
			name: "two passes", made: func(m *made) { m.passes = 2 },
			want: []string{"2 passes cannot show a skewness above 0, and the reliability threshold is 0.3", "2 passes are few"},
		},
		{
			name: "three passes", made: func(m *made) { m.passes = 3 },
			want: []string{"3 passes cannot show a skewness above 0.222", "3 passes are few"},
		},
		{name: "five passes", made: func(m *made) { m.passes = 5 }, not: "passes"},
		{
			name:   "a gate with one side",
			change: func(table *eval.Table, _ []int) { table.CriticalSkewness = slices.Repeat([]float64{9}, table.Inputs) },
			want:   []string{"the paper's rule has only 0 inputs on one of its sides"},
		},
		{
			name: "identical passes", made: func(m *made) { m.identical = 0.2 }, base: []string{"degenerate: retain", "saturated: score"},
			want: []string{
				"of 300 inputs hardly differ: the policy retains them whatever their score",
				"of 300 inputs are one-hot: they are decided by score, like any other",
			},
		},
		{
			name: "identical passes that are deferred", made: func(m *made) { m.identical = 0.5 },
			want: []string{"hardly differ: the policy defers them", "coverage of 70% cannot be had: ", "are deferred whatever their score"},
		},
		{
			name: "a scope that retains too many", made: func(m *made) { m.share = 1 }, scope: policy.PredictedSafe,
			change: func(table *eval.Table, _ []int) {
				for i := range table.Inputs * 9 / 10 {
					table.Predicted[i] = 1
				}
			},
			want: []string{"coverage of 70% cannot be had: 9", "of the inputs are retained whatever their score"},
		},
		{
			name: "one score for most inputs",
			change: func(table *eval.Table, _ []int) {
				for i := range table.Predicted {
					if i%8 > 0 {
						for s := range table.Scores {
							table.Scores[s][i] = 0
						}
					}
				}
			},
			want: []string{"coverage of 70% cannot be had: the policy retains 8"},
		},
	} {
		t.Run(c.name, func(t *testing.T) {
			m := usual
			if c.made != nil {
				c.made(&m)
			}
			table, labels := m.table(rand.New(rand.NewPCG(3, 15)))
			if c.change != nil {
				c.change(table, labels)
			}
			o := Options{
				Base: basePolicy(t, 3, append(c.base, `critical: ["1", "2"]`)...), Objective: objectives[1],
				Scope: cmp.Or(c.scope, policy.AllInputs),
			}
			if strings.Contains(strings.Join(c.want, " "), "coverage") {
				o.Objective = objectives[0]
			}
			notes := strings.Join(calibrated(t, table, labels, o).Notes, "\n")
			for _, want := range c.want {
				if !strings.Contains(notes, want) {
					t.Errorf("nothing says %q in\n%s", want, notes)
				}
			}
			if c.not != "" && strings.Contains(notes, c.not) {
				t.Errorf("there should be no %q in\n%s", c.not, notes)
			}
		})
	}
}

// TestErrors checks that errors say what was wrong and what was expected.
func TestErrors(t *testing.T) {
	t.Parallel()
	nan := math.NaN()
	for _, c := range []struct {
		objective Objective
		change    func(table *eval.Table, labels *[]int, o *Options)
		want      string
	}{
		{Objective{}, nil, "expected exactly one objective"},
		{Objective{Coverage: 0.8, Limits: []Limit{{"", policy.CriticalMissRate, 0.1}}}, nil, "expected exactly one objective"},
		{missesUpTo(0.1, 0), nil, "confidence 0"},
		{Objective{Limits: []Limit{{"2", policy.CriticalFNR, 0.1}, {"2", policy.CriticalFNR, 0.2}}, Confidence: 0.9}, nil, "max-critical-fnr 2=0.2: given twice"},
		{Objective{Limits: []Limit{{"0", policy.CriticalFNR, 0.1}}, Confidence: 0.9}, nil, "not critical"},
		{Objective{Limits: []Limit{{"x", policy.CriticalFNR, 0.1}}, Confidence: 0.9}, nil, "no such class"},
		{Objective{Limits: []Limit{{"2", policy.CriticalFNR, 1}}, Confidence: 0.9}, nil, "limit of 1: expected a share"},
		{Objective{Limits: []Limit{{"2", "accuracy", 0.1}}, Confidence: 0.9}, nil, "accuracy"},
		{Objective{Coverage: 1.1}, nil, "coverage 1.1: expected a share above 0 and at most 1"},
		{Objective{Coverage: -1}, nil, "coverage -1"},
		{Objective{Coverage: nan}, nil, "coverage NaN"},
		{missesUpTo(0, 0.9), nil, "limit of 0: expected a share above 0 and below 1"},
		{missesUpTo(nan, 0.9), nil, "limit of NaN"},
		{fnrUpTo(-0.1, 0.9), nil, "limit of -0.1: expected"},
		{fnrUpTo(0.1, 0), nil, "confidence 0: expected a share above 0 and below 1"},
		{fnrUpTo(0.1, 1), nil, "confidence 1"},
		{objectives[0], func(_ *eval.Table, _ *[]int, o *Options) { o.Scope = "some" }, `scope "some": expected all or predicted-safe`},
		{objectives[0], func(_ *eval.Table, labels *[]int, _ *Options) { *labels = (*labels)[1:] }, "299 labels, expected 300"},
		{objectives[0], func(_ *eval.Table, labels *[]int, _ *Options) { (*labels)[9] = 3 }, "label 9 is 3, expected 0 to 2"},
		{objectives[0], func(_ *eval.Table, labels *[]int, _ *Options) { (*labels)[9] = -1 }, "label 9 is -1"},
		{objectives[0], func(table *eval.Table, _ *[]int, _ *Options) { table.Spec.Critical = nil }, "no class is critical"},
		{objectives[0], func(table *eval.Table, _ *[]int, _ *Options) { table.Passes = 1 }, "has 1 passes, but the policy accepts no fewer than 2"},
		{objectives[0], func(_ *eval.Table, labels *[]int, _ *Options) { clear(*labels) }, "no input has a critical class"},
		{objectives[0], func(table *eval.Table, _ *[]int, _ *Options) {
			for s := range table.Scores {
				table.Scores[s] = slices.Repeat([]float64{float64(s)}, table.Inputs)
			}
		}, "every score is the same for all inputs"},
	} {
		t.Run(c.want, func(t *testing.T) {
			table, labels := usual.table(rand.New(rand.NewPCG(3, 15)))
			o := options(t, c.objective, policy.AllInputs, 1)
			if c.change != nil {
				c.change(table, &labels, &o)
			}
			if _, err := Choose(t.Context(), table, labels, o); err == nil || !strings.Contains(err.Error(), c.want) {
				t.Errorf("error %v, want %q", err, c.want)
			}
		})
	}
}

func TestCancelled(t *testing.T) {
	t.Parallel()
	table, labels := usual.table(rand.New(rand.NewPCG(3, 15)))
	for _, objective := range objectives {
		ctx, cancel := context.WithCancel(t.Context())
		cancel()
		_, err := Choose(ctx, table, labels, options(t, objective, policy.AllInputs, 1))
		if !errors.Is(err, context.Canceled) {
			t.Errorf("%s: error %v", objective, err)
		}
	}
}

// TestProgress checks that progress is reported step by step, up to the end.
func TestProgress(t *testing.T) {
	t.Parallel()
	table, labels := usual.table(rand.New(rand.NewPCG(3, 15)))
	for _, objective := range objectives {
		o := options(t, objective, policy.AllInputs, 1)
		told, last := 0, 0
		o.Progress = func(_ string, done, total int) {
			told++
			if done != told {
				t.Errorf("%s: told of %d, want %d", objective, done, told)
			}
			last = total
		}
		calibrated(t, table, labels, o)
		if told == 0 || told != last {
			t.Errorf("%s: told of %d steps, of %d", objective, told, last)
		}
	}
}

// isShare reports whether a share is n/of, and nil of nothing.
func isShare(share *float64, n, of int) bool {
	if of == 0 {
		return share == nil
	}
	return share != nil && math.Abs(*share-float64(n)/float64(of)) <= 1e-12
}

// TestComparison checks that the comparison has the procedure itself in both scopes, every single
// score and the paper's gate, by distinct names.
func TestComparison(t *testing.T) {
	t.Parallel()
	table, labels := usual.table(rand.New(rand.NewPCG(7, 16)))
	for _, objective := range objectives {
		for _, scope := range []policy.Scope{policy.AllInputs, policy.PredictedSafe} {
			found := calibrated(t, table, labels, options(t, objective, scope, 1))
			names := map[string]bool{}
			for _, r := range found.Comparison {
				names[fmt.Sprint(r.Rule, " ", r.Scope)] = true
				if r.Calibrated != (r.Rule == "calibrated") {
					t.Errorf("row %+v", r)
				}
				if !isShare(r.CriticalFNR, r.Missed, r.CriticalRetained) || !isShare(r.CriticalMissRate, r.Missed, r.CriticalInputs) ||
					objective.Coverage > 0 && r.CriticalInputs != found.Critical {
					t.Errorf("row %+v", r)
				}
			}
			if len(names) != len(found.Comparison) {
				t.Errorf("%s: two rows have one name in %v", objective, names)
			}
			for _, own := range []policy.Scope{policy.AllInputs, policy.PredictedSafe} {
				for _, candidate := range []string{"calibrated", "mi", "cbec", "p_critical", "any-critical (c_crit_max, cbec)"} {
					if !names[candidate+" "+string(own)] {
						t.Errorf("%s: no row %s in scope %s", objective, candidate, own)
					}
				}
			}
			if none := found.Comparison[0]; none.Rule != noReview || none.Deferred != 0 {
				t.Errorf("%s: the first row is %+v", objective, none)
			}
			first := found.Comparison[1]
			if !first.Calibrated || first.Scope != scope {
				t.Errorf("%s: the first row is %+v", objective, first)
			}
		}
	}
}

// TestSecondAttempt checks that a certificate is void if the replaced policy tells of another one
// on the same recording, and that the new policy tells of it in turn.
func TestSecondAttempt(t *testing.T) {
	t.Parallel()
	table, labels := usual.table(rand.New(rand.NewPCG(8, 16)))
	for _, objective := range objectives[1:] {
		t.Run(objective.String(), func(t *testing.T) {
			o := options(t, objective, policy.AllInputs, 1)
			o.Source = Source{Passes: eval.File{Name: "p.npy", SHA256: strings.Repeat("0", 64)}}
			finished := func() *Report {
				chosen, draft, err := choose(t.Context(), table, labels, o)
				if err != nil {
					t.Fatal(err)
				}
				report := chosen.report
				draft.Calibration.Recording.PassesSHA256 = o.Source.Passes.SHA256
				if err := o.noticeEarlierAttempt(report, draft); err != nil {
					t.Fatal(err)
				}
				if err := report.put(draft); err != nil {
					t.Fatal(err)
				}
				return report
			}
			first := finished()
			if first.Certificate == nil || !slices.Contains(first.Why, oneAttempt) || len(first.Lines) != 1 {
				t.Fatalf("certificate %+v, why %q", first.Certificate, first.Why)
			}
			o.Replaces = first.Policy
			if again := finished(); again.Certificate.Void != "" || again.PolicyText != first.PolicyText {
				t.Errorf("the same again: %q", again.Certificate.Void)
			}
			o.Seed = 2
			second := finished()
			if second.Certificate == nil {
				t.Skip("another seed certifies nothing")
			}
			in := second.Policy.Calibration
			if in.Certificate != nil || in.EarlierAttempt == "" || !strings.Contains(second.Certificate.Void, in.EarlierAttempt) {
				t.Errorf("calibration %+v, certificate %+v", in, second.Certificate)
			}
			if slices.Contains(second.Why, oneAttempt) || len(second.Lines) > 0 || in.Lines != nil {
				t.Errorf("why %q, lines %v: a void certificate is for no attempt, and leaves no line", second.Why, second.Lines)
			}
		})
	}
}

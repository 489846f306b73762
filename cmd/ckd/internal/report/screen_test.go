package report

import (
	"fmt"
	"regexp"
	"slices"
	"strings"
	"testing"

	"github.com/jedib0t/go-pretty/v6/text"

	"github.com/ckd-project/ckd/cmd/ckd/internal/report/document"
	"github.com/ckd-project/ckd/decomp"
	"github.com/ckd-project/ckd/eval"
)

// TestScreenOfEvaluation expects a screen of at most 40 lines of 100 columns that begins with what is
// missed, and a whole text of 100 columns, however many classes there are and whatever their names.
func TestScreenOfEvaluation(t *testing.T) {
	t.Parallel()
	long := strings.Repeat("a long name, ", 16)
	for _, c := range []struct {
		inputs, classes int
		name            string
	}{{400, 2, ""}, {400, 3, long}, {400, 26, "class "}, {400, 26, long}, {60, 1000, long}} {
		t.Run(fmt.Sprintf("%d classes %.5s", c.classes, c.name), func(t *testing.T) {
			t.Parallel()
			passes, labels := synthetic(c.inputs, c.classes)
			spec := decomp.Spec{Classes: c.classes}
			var names []string
			for k := range c.classes {
				names = append(names, c.name+fmt.Sprint(k))
				if k%2 == 1 {
					spec.Critical = append(spec.Critical, k)
				} else {
					spec.Safe = append(spec.Safe, k)
				}
			}
			r, table := evaluate(t, passes, labels, spec, eval.Options{Classes: names, Bootstrap: 5})
			d, err := Evaluation(r, table, labels, Given{Alone: true, Recording: [][2]string{{"--passes", long}, {"--classes", strings.Join(names, ",")}}})
			if err != nil {
				t.Fatal(err)
			}
			var screen, whole strings.Builder
			if _, err := d.Screen.WriteTo(&screen); err != nil {
				t.Fatal(err)
			}
			if err := document.Text(&whole, d); err != nil {
				t.Fatal(err)
			}
			if lines := strings.Count(screen.String(), "\n"); lines > document.ScreenLines {
				t.Errorf("%d lines", lines)
			}
			for _, out := range []string{screen.String(), whole.String()} {
				for line := range strings.Lines(out) {
					if n := text.StringWidth(strings.TrimSuffix(line, "\n")); n > 100 {
						t.Errorf("%d columns: %s", n, line)
					}
				}
			}
			first, _, _ := strings.Cut(d.Screen.Lead, "; ")
			if want := fmt.Sprintf(" of %d critical inputs", r.Summary.Critical); !strings.Contains(first, want) || !strings.Contains(first, "95%: ") {
				t.Errorf("the first sentence has no %q with an interval: %s", want, d.Screen.Lead)
			}
		})
	}
}

// TestLead expects the figures of the rule in the lead, in their order: reviews, missed, critical
// inputs, rate, interval, missed without review, calls that nobody looks at, false ones.
func TestLead(t *testing.T) {
	t.Parallel()
	for _, c := range []struct {
		name, want string
		change     func(*eval.Report)
	}{
		{"a policy", "325 1,000 2 20 10.0% 95% 1.2 31.7 4 10 6", func(*eval.Report) {}},
		{"reviewed calls", "325 1,000 2 20 10.0% 95% 1.2 31.7 4", func(r *eval.Report) { r.Source.CriticalCalls = eval.Reviewed }},
		{"a score", "300 1,000 2 20 10.0% 95% 2.0 24.0 4 3 0", func(r *eval.Report) { r.Gain.Rule, r.Policy = mi, nil }},
		{"no gain", "325 1,000 2 20 10.0% 95% 1.2 31.7 4 2", func(r *eval.Report) { r.Gain.P, r.Gain.Supports = 0.06, false }},
		{"nothing is missed", "0 20", func(r *eval.Report) { r.Summary.Missed = 0 }},
		{"nothing is sent", "2 20 10.0% 95% 1.2 31.7", func(r *eval.Report) { r.Gain.Deferred, r.Gain.Supports = 0, false }},
		{"no critical input", "40", func(r *eval.Report) { r.Summary.Critical = 0 }},
	} {
		t.Run(c.name, func(t *testing.T) {
			r, table, labels := byHand()
			c.change(r)
			d, err := Evaluation(r, table, labels, Given{})
			if err != nil {
				t.Fatal(err)
			}
			got := strings.Join(regexp.MustCompile(`\d+(,\d{3})*(\.\d+)?%?`).FindAllString(d.Screen.Lead, -1), " ")
			if got != c.want {
				t.Errorf("figures %q, want %q: %s", got, c.want, d.Screen.Lead)
			}
			const refusal = "This recording cannot support a policy: "
			if refused, want := strings.HasPrefix(d.Screen.Lead, refusal), !r.Gain.Supports || r.Summary.Critical*r.Summary.Missed == 0; refused != want {
				t.Errorf("the lead is %q", d.Screen.Lead)
			}
		})
	}
}

// TestFiveRows expects the model alone first and the rule last, and one row for rules of the same
// figures.
func TestFiveRows(t *testing.T) {
	t.Parallel()
	r, table, labels := byHand()
	names := func() (names []string) {
		d, err := Evaluation(r, table, labels, Given{})
		if err != nil {
			t.Fatal(err)
		}
		for _, row := range d.Screen.Table.Rows {
			names = append(names, row[0].(string))
		}
		return names
	}
	if got, want := names(), []string{"no review", "mutual information, any input", "mutual information, only called safe", "this policy"}; !slices.Equal(got, want) {
		t.Errorf("rows %q, want %q", got, want)
	}
	r.Policy.At = r.Policies[4].At
	if got, want := names(), []string{"no review", "mutual information, any input", "this policy; mutual information, only called safe"}; !slices.Equal(got, want) {
		t.Errorf("rows %q, want %q", got, want)
	}
}

// TestCommand expects a command that a shell reads, in lines that fit a screen.
func TestCommand(t *testing.T) {
	t.Parallel()
	e := &evaluation{given: Given{Recording: [][2]string{{"--passes", "a b.npy"}, {"--classes", strings.Repeat("c,", 60)}, {"--critical", "it's"}}}}
	got := e.command("calibrate", "--out", "p.yaml")
	for _, want := range []string{"ckd calibrate --passes 'a b.npy' \\\n", `--critical 'it'\''s'`, "--out p.yaml"} {
		if !strings.Contains(got, want) {
			t.Errorf("no %q in\n%s", want, got)
		}
	}
}

// TestNeeded checks that more labels are asked for only where they are too few to show a gain.
func TestNeeded(t *testing.T) {
	t.Parallel()
	e := &evaluation{report: &eval.Report{Summary: eval.Summary{Critical: 200, Missed: 50}}}
	for _, test := range []struct {
		needed int
		want   string
	}{{10, "more labels will not help"}, {50, "more labels will not help"}, {80, "about 80 critical inputs"}, {0, "--reviews-per-1000"}} {
		if got := e.needed(&eval.RuleGain{Rule: "mi", Gain: eval.Gain{Without: 50, Needed: test.needed}}); !strings.Contains(got, test.want) {
			t.Errorf("%d needed: %s", test.needed, got)
		}
	}
}

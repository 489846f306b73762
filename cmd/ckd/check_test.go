package main

import (
	"fmt"
	"path/filepath"
	"strings"
	"testing"

	"github.com/jedib0t/go-pretty/v6/text"

	"github.com/ckd-project/ckd/cmd/ckd/internal/report/document"
	"github.com/ckd-project/ckd/policy"
)

func TestCheck(t *testing.T) {
	t.Parallel()
	const sane = `models:
- name: fetal-health
  version: "2026-11-21"
  classes: [normal, suspect, pathologic]
  critical: [suspect, pathologic]
  passes: {fewest: 10, expected: 30}
  primary: {threshold: 0.02}
  fallback: {threshold: 0.003}
`
	good := writeFile(t, "good.yaml", sane)
	calibrated := writeFile(t, "calibrated.yaml", sane+`  calibrated:
    recording: {passes: 20, inputs: 900, critical_inputs: 90}
    posterior: ensemble
    expected_coverage: {value: 0.801, low: 0.78, high: 0.82}
    expected_critical_miss_rate: {value: 0.0191, low: 0.009, high: 0.036}
    certificate: {kind: learn-then-test, bounds: critical-miss-rate, target: 0.05, confidence: 0.9}
`)
	unwise := writeFile(t, "unwise.yaml", "models: [{name: two, classes: [a, b], critical: [b], passes: {fewest: 5, expected: 9}}]\n")
	loose := writeFile(t, "loose.yaml", strings.NewReplacer("0.02", "2.0", "0.003", "3").Replace(sane))
	known := func(name, passes string) string {
		return "- name: " + name + "\n  model: fetal-health\n  expect: defer\n  passes: [" + strings.TrimSuffix(strings.Repeat(passes+", ", 5), ", ") + "]\n"
	}
	cases := writeFile(t, "cases.yaml", "cases:\n"+known("one that differs", "[0.9, 0.05, 0.05], [0.2, 0.3, 0.5]")+
		known("one that does not", "[0.9, 0.05, 0.05], [0.9, 0.05, 0.05]"))
	none := writeFile(t, "none.yaml", "cases: []\n")
	bad := writeFile(t, "bad.yaml", "models: [{name: x, classes: [a, b], critical: [c]}, {name: fetal-health, classes: [a, b], gate: nevr}]\n")

	for name, c := range map[string]struct {
		args           []string
		code           int
		stdout, stderr []string // fragments; none for empty
	}{
		"good": {args: []string{good, "--strict"}, stdout: []string{
			"Policy fetal-health: defer when the largest C_k of a critical class is above 0.02 nats",
			"How many critical inputs this misses", "Version 2026-11-21, hash ",
		}},
		"calibrated": {args: []string{calibrated}, stdout: []string{
			"Warning: calibrated.recording.passes: calibrated on inputs of 20 passes",
			"Expected: 1.9% of critical inputs missed (95%: 0.9 to 3.6) with 199 reviews per 1,000 inputs.",
			"Certified with confidence 90%: at most 5% of the critical inputs", "on 900 inputs (90 critical) of 20 passes by ensemble",
		}},
		"two": {args: []string{good, unwise}, stdout: []string{
			"Policy fetal-health: defer when", "Warning: fallback.score: with two classes", "Policy two observes", "2 policies, 1 warning.",
		}},
		"unwise and strict": {args: []string{unwise, "--strict"}, code: exitFault,
			stdout: []string{"Policy two observes: every input is answered, none is deferred."}, stderr: []string{"1 warning found"}},
		"cases hold":  {args: []string{good, "--test", cases}, stdout: []string{"All 2 cases hold."}},
		"cases fail":  {args: []string{loose, "--test", cases}, code: exitFault, stdout: []string{"1 of 2 cases failed.", ":2: one that differs: retained"}, stderr: []string{"known input"}},
		"no cases":    {args: []string{good, "--test", none}, code: exitFault, stderr: []string{"expected at least one case", "1 fault found"}},
		"no model":    {args: []string{unwise, "--test", cases}, code: exitFault, stderr: []string{"no policy is of model", "2 faults found"}},
		"changed":     {args: []string{loose, "--against", good}, stdout: []string{"1 of 1 policy changes.", "Fewer inputs are deferred by the largest C_k"}},
		"not changed": {args: []string{good, "--against", good}, stdout: []string{"Nothing changes"}},
		"another set": {args: []string{good, "--against", unwise}, stdout: []string{"2 of 2 policies change.", "New. Policy fetal-health", "Removed: inputs"}},
		"both":        {args: []string{good, "--against", good, "--test", cases}, code: exitUsage, stderr: []string{"expected one of them"}},
		"bad": {args: []string{good, bad, filepath.Join(t.TempDir(), "missing")}, code: exitFault, stderr: []string{
			"missing: cannot read: no such file or directory\n",
			bad + `:1:48: model "x": critical[0]: "c" is none of the classes` + "\n",
			bad + `:1:60: model "fetal-health": name: already the name of the model at ` + good + ":2:9, expected one of its own\n",
			bad + `:1:97: model "fetal-health": gate: expected one of any-critical, always, never, ` +
				`found "nevr", did you mean "never"?` + "\n",
			"4 faults found",
		}},
		"no files": {code: exitUsage, stderr: []string{"no policy file given"}},
		"schema":   {args: []string{"--schema"}, stdout: []string{string(policy.JSONSchema())}},
	} {
		t.Run(name, func(t *testing.T) {
			stdout, stderr, code := runCommand(t, append([]string{"check"}, c.args...)...)
			if code != c.code {
				t.Errorf("exit code %d, want %d", code, c.code)
			}
			for name, output := range map[string]struct {
				got  string
				want []string
			}{"standard output": {stdout, c.stdout}, "standard error": {stderr, c.stderr}} {
				if len(output.want) == 0 && output.got != "" {
					t.Errorf("%s has %q, want nothing", name, output.got)
				}
				got := output.got
				if name == "standard output" && !strings.Contains(got, "{") {
					got = strings.Join(strings.Fields(got), " ")
				}
				for _, fragment := range output.want {
					wantFragment(t, got, fragment)
				}
				if lines := strings.Count(output.got, "\n"); lines > document.ScreenLines && name == "standard output" && c.args[0] != "--schema" {
					t.Errorf("%d lines", lines)
				}
			}
		})
	}
}

// TestCheckIsOneScreen checks the lines and columns for any number of classes, with long names and all that
// a calibration can say.
func TestCheckIsOneScreen(t *testing.T) {
	t.Parallel()
	for _, k := range []int{2, 3, 26, 1000} {
		for _, name := range []string{"c", strings.Repeat("n", 200), strings.Repeat("long name ", 20)} {
			t.Run(fmt.Sprintf("%d classes, %d letters", k, len(name)), func(t *testing.T) {
				t.Parallel()
				var classes, critical, lines []string
				for i := range k {
					classes = append(classes, fmt.Sprintf("%q", fmt.Sprint(name, i)))
					if i%2 == 1 {
						critical = append(critical, classes[i])
						lines = append(lines, fmt.Sprintf("{kind: learn-then-test, bounds: critical-miss-rate, class: %s, target: 0.1, confidence: 0.9}", classes[i]))
					}
				}
				further := strings.ReplaceAll(strings.Join(lines, ", "), "kind: learn-then-test, ", "")
				path := writeFile(t, "p.yaml", "models:\n- name: "+strings.Repeat("m", 128)+"\n  classes: ["+strings.Join(classes, ", ")+"]\n  critical: ["+
					strings.Join(critical, ", ")+"]\n  passes: {fewest: 4}\n  degenerate: retain\n  sum_tolerance: 0.05\n  primary: {threshold: 0.02}\n  fallback: {threshold: 0.003}\n"+
					"  audit: {rate: 0.02, m: 0.4, surge: 9}\n  guard: {score: mi, threshold: 1}\n  calibrated:\n    expected_coverage: {value: 0.8, low: 0.7, high: 0.9}\n"+
					"    expected_critical_miss_rate: {value: 0.1, low: 0, high: 0.2}\n"+
					"    certificate: {kind: learn-then-test, bounds: critical-miss-rate, target: 0.1, confidence: 0.9, further: ["+strings.ReplaceAll(further, ", confidence: 0.9", ", cases: 9, misses: 0, p_value: 0.01")+"]}\n")
				out := runOK(t, "check", path)
				if n := strings.Count(out, "\n"); n > document.ScreenLines {
					t.Errorf("%d lines\n%s", n, out)
				}
				if columns := text.LongestLineLen(out); columns > 100 {
					t.Errorf("%d columns\n%s", columns, out)
				}
				for _, want := range []string{"Expected: 10% of critical inputs missed (95%: 0 to 20) with 200 reviews", "Certified with", "Calibrated on", "What to do next"} {
					wantFragment(t, strings.Join(strings.Fields(out), " "), want)
				}
			})
		}
	}
}

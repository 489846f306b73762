package main

import (
	"path/filepath"
	"testing"

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
    certificate: {kind: learn-then-test, bounds: critical-miss-rate, target: 0.05, confidence: 0.9}
`)
	unwise := writeFile(t, "unwise.yaml", "models: [{name: two, classes: [a, b], critical: [b], passes: {fewest: 5, expected: 9}}]\n")
	bad := writeFile(t, "bad.yaml", "models: [{name: x, classes: [a, b], critical: [c]}, {name: fetal-health, classes: [a, b], gate: nevr}]\n")

	for name, c := range map[string]struct {
		args           []string
		code           int
		stdout, stderr []string // fragments; none for empty
	}{
		"good": {args: []string{good, "--strict"}, stdout: []string{
			"fetal-health, version 2026-11-21, hash ",
			"\n  Of 3 classes, suspect and pathologic must not be missed",
			"\n  A person sees an input (defer) when c_crit_max is above 0.02 nats",
		}},
		"calibrated": {args: []string{calibrated}, stdout: []string{
			"\n  It was calibrated on 900 inputs (90 critical) of 20 passes from ensemble",
			"\n  Its certificate, by learn-then-test: with confidence 0.9, at most 5% of the critical inputs",
			"\n  warning: calibrated.recording.passes: calibrated on inputs of 20 passes, but an input is answered when it has 30",
		}},
		"unwise": {args: []string{good, unwise}, stdout: []string{
			"\n\ntwo, hash ",
			"\n  warning: fallback.score: with two classes",
			"\n  warning: thresholds: none are given",
		}},
		"unwise and strict": {args: []string{unwise, "--strict"}, code: exitFault,
			stdout: []string{"\n  warning: "}, stderr: []string{"2 warnings found"}},
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
				for _, fragment := range output.want {
					wantFragment(t, output.got, fragment)
				}
			}
		})
	}
}

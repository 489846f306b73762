package main

import (
	"bytes"
	"context"
	"errors"
	"os"
	"path/filepath"
	"strings"
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
	dir := t.TempDir()
	write := func(name, text string) string {
		path := filepath.Join(dir, name)
		if err := os.WriteFile(path, []byte(text), 0o600); err != nil {
			t.Fatal(err)
		}
		return path
	}
	good := write("good.yaml", sane)
	calibrated := write("calibrated.yaml", sane+`  calibration:
    recording: {passes: 20, inputs: 900, critical_inputs: 90}
    posterior: ensemble
    certificate: {kind: conformal-risk-control, target: 0.05}
`)
	unwise := write("unwise.yaml", "models: [{name: two, classes: [a, b], critical: [b], passes: {fewest: 5, expected: 9}}]\n")
	bad := write("bad.yaml", "models: [{name: x, classes: [a, b], critical: [c]}, {name: fetal-health, classes: [a, b], gate: nevr}]\n")

	tests := []struct {
		name           string
		command        checkCmd
		code           int
		stdout, stderr []string // fragments; none for empty
		failure        string
	}{
		{
			name: "good", command: checkCmd{Files: []string{good}, Strict: true},
			stdout: []string{
				"fetal-health, version 2026-11-21, hash ",
				"\n  Of 3 classes, suspect and pathologic must not be missed",
				"\n  A person sees an input (defer) when c_crit_max is above 0.02 nats",
			},
		},
		{
			name: "calibrated", command: checkCmd{Files: []string{calibrated}},
			stdout: []string{
				"\n  It was calibrated on 900 inputs (90 critical) of 20 passes from ensemble",
				"\n  Its certificate, by conformal-risk-control: on average, at most 5% of the critical inputs",
				"\n  warning: calibration.recording.passes: calibrated on inputs of 20 passes, but an input is answered when it has 30",
			},
		},
		{
			name: "unwise", command: checkCmd{Files: []string{good, unwise}},
			stdout: []string{
				"\n\ntwo, hash ",
				"\n  warning: fallback.score: with two classes",
				"\n  warning: thresholds: none are given",
			},
		},
		{
			name: "unwise and strict", command: checkCmd{Files: []string{unwise}, Strict: true}, code: exitFault,
			stdout: []string{"\n  warning: "}, failure: "2 warnings found, which --strict takes for faults",
		},
		{
			name: "bad", command: checkCmd{Files: []string{good, bad, filepath.Join(dir, "missing")}}, code: exitFault,
			stderr: []string{
				"missing: cannot read: no such file or directory\n",
				bad + `:1:48: model "x": critical[0]: "c" is none of the classes` + "\n",
				bad + `:1:60: model "fetal-health": name: already the name of the model at ` + good + ":2:9, expected one of its own\n",
				bad + `:1:97: model "fetal-health": gate: expected one of any-critical, deciding-class, always, never, ` +
					`found "nevr", did you mean "never"?` + "\n",
			},
			failure: "4 faults found",
		},
		{
			name: "no files", code: exitUsage,
			failure: "no policy file given, expected at least one file or directory",
		},
		{
			name: "schema", command: checkCmd{Schema: true},
			stdout: []string{string(policy.JSONSchema())},
		},
	}
	for _, test := range tests {
		t.Run(test.name, func(t *testing.T) {
			var stdout, stderr bytes.Buffer
			err := test.command.Run(&cmdContext{Ctx: context.Background(), Stdout: &stdout, Stderr: &stderr})
			code, text := exitOK, ""
			if err != nil {
				code, text = exitFault, err.Error()
			}
			if f := (*failure)(nil); errors.As(err, &f) {
				code = f.code
			}
			if code != test.code || text != test.failure {
				t.Errorf("exit code %d, %q; want %d, %q", code, text, test.code, test.failure)
			}
			compareOutput(t, "standard output", stdout.String(), test.stdout)
			compareOutput(t, "standard error", stderr.String(), test.stderr)
		})
	}
}

// compareOutput wants all the fragments, or nothing where there are none.
func compareOutput(t *testing.T, name, got string, fragments []string) {
	t.Helper()
	if len(fragments) == 0 && got != "" {
		t.Errorf("%s has %q, want nothing", name, got)
	}
	for _, f := range fragments {
		if !strings.Contains(got, f) {
			t.Errorf("%s has no %q:\n%s", name, f, got)
		}
	}
}

package cases

import (
	"os"
	"path/filepath"
	"strings"
	"testing"

	"github.com/ckd-project/ckd/policy"
	"github.com/ckd-project/ckd/policy/store"
)

const example = "../../../../deploy/policy/fetal-health.cases.yaml"

// TestExample holds the shipped policy to the cases beside it.
func TestExample(t *testing.T) {
	t.Parallel()
	set, err := store.Load("../../../../deploy/policy/fetal-health.yaml")
	if err != nil {
		t.Fatal(err)
	}
	known, err := Read(example, set)
	if err != nil {
		t.Fatal(err)
	}
	results, err := Judge(known)
	if err != nil || len(results) < 3 {
		t.Fatalf("%d results, error %v", len(results), err)
	}
	for _, r := range results {
		if !r.Holds {
			t.Errorf("%s: %s: %s, expected %s", r.Place, r.Name, r.Found, r.Expected)
		}
	}
}

// policies returns a set with one policy.
func policies(t *testing.T, text string) *policy.Set {
	t.Helper()
	set, err := policy.Parse(policy.File{Name: "p.yaml", Data: []byte(text)})
	if err != nil {
		t.Fatal(err)
	}
	return set
}

const (
	deciding = "models: [{name: m, classes: [a, b], critical: [b], gate: never, primary: {score: mi, threshold: 0.05}, passes: {fewest: 2}}]"
	unsure   = "[[0.9, 0.1], [0.2, 0.8]]"
	sure     = "[[0.9, 0.1], [0.91, 0.09]]"
)

func write(t *testing.T, text string) string {
	t.Helper()
	path := filepath.Join(t.TempDir(), "c.yaml")
	if err := os.WriteFile(path, []byte(text), 0o600); err != nil {
		t.Fatal(err)
	}
	return path
}

// TestJudge checks that a case holds exactly where everything that it expects was found.
func TestJudge(t *testing.T) {
	t.Parallel()
	const observing = "models: [{name: m, classes: [a, b], critical: [b], passes: {fewest: 4}}]"
	for name, test := range map[string]struct {
		policy, fields string
		holds          bool
		found          string
	}{
		"deferred":              {deciding, "expect: defer, passes: " + unsure, true, "deferred, called a"},
		"retained":              {deciding, "expect: retain, passes: " + sure, true, "at most 0.05"},
		"not deferred":          {deciding, "expect: defer, passes: " + sure, false, "retained"},
		"not retained":          {deciding, "expect: retain, passes: " + unsure, false, "above 0.05"},
		"reason":                {deciding, "expect: defer, reason: degenerate, passes: [[0.5, 0.5], [0.5, 0.5]]", true, "hardly differ"},
		"another reason":        {deciding, "expect: defer, reason: degenerate, passes: " + unsure, false, "above"},
		"class":                 {deciding, "expect: retain, predicted: a, passes: " + sure, true, "called a"},
		"another class":         {deciding, "expect: retain, predicted: b, passes: " + sure, false, "called a"},
		"refused":               {deciding, "expect: defer, passes: [[0.9, 0.3], [0.2, 0.8]]", false, "refused"},
		"too few passes":        {deciding, "expect: defer, passes: [[0.9, 0.1]]", false, "refused"},
		"observed is no retain": {observing, "expect: retain, passes: [[0.9, 0.1], [0.8, 0.2], [0.9, 0.1], [0.9, 0.1]]", false, "observed"},
	} {
		t.Run(name, func(t *testing.T) {
			known, err := Read(write(t, "cases: [{name: x, model: m, "+test.fields+"}]"), policies(t, test.policy))
			if err != nil {
				t.Fatal(err)
			}
			results, err := Judge(known)
			if err != nil {
				t.Fatal(err)
			}
			if r := results[0]; r.Holds != test.holds || !strings.Contains(r.Found, test.found) || strings.Contains(r.Found+r.Expected, "_") {
				t.Errorf("holds %t: %s; expected %s", r.Holds, r.Found, r.Expected)
			}
		})
	}
}

// TestNumPyFile checks that an input of a recording is read, from beside the cases.
func TestNumPyFile(t *testing.T) {
	t.Parallel()
	set, err := store.Load("../../../../deploy/policy/fetal-health.yaml")
	if err != nil {
		t.Fatal(err)
	}
	recording, err := filepath.Abs("../../../../internal/recordings/ctg-mcdropout.passes.npy")
	if err != nil {
		t.Fatal(err)
	}
	text := "cases: [{name: x, model: fetal-health, expect: retain, file: " + recording + ", input: "
	known, err := Read(write(t, text+"2125}]"), set)
	if err != nil || known[0].passes.Passes != 30 || len(known[0].passes.Float32) != 90 {
		t.Errorf("%+v, error %v", known, err)
	}
	if _, err := Read(write(t, text+"2126}]"), set); err == nil || !strings.Contains(err.Error(), "from 0 to 2125") {
		t.Errorf("error %v", err)
	}
}

// TestFaults checks that a file that proves nothing is an error, with its place.
func TestFaults(t *testing.T) {
	t.Parallel()
	for name, test := range map[string]struct{ text, want string }{
		"no file":       {"", "cannot read"},
		"empty":         {"cases: []", ":1:8: cases: empty, expected at least one case"},
		"no cases":      {"{}", "cases"},
		"another key":   {"cases: [{name: x, model: m, expect: defer, passes: " + sure + ", odd: 1}]", "odd"},
		"another model": {"cases: [{name: x, model: n, expect: defer, passes: " + sure + "}]", ":1:26: cases[0].model: no policy is of model \"n\", expected one of m"},
		"no passes":     {"cases: [{name: x, model: m, expect: defer}]", "expected either passes"},
		"both":          {"cases: [{name: x, model: m, expect: defer, file: a.npy, input: 1, passes: " + sure + "}]", "expected either passes"},
		"ragged":        {"cases: [{name: x, model: m, expect: defer, passes: [[1], [0.5, 0.5]]}]", "a row of 1 numbers, expected 2"},
		"no rows":       {"cases: [{name: x, model: m, expect: defer, passes: []}]", "expected at least one row"},
		"not a number":  {"cases: [{name: x, model: m, expect: defer, passes: [[.nan, 1], [0.5, 0.5]]}]", "passes[0][0]"},
		"expect":        {"cases: [{name: x, model: m, expect: observe, passes: " + sure + "}]", "expected one of retain, defer"},
		"class":         {"cases: [{name: x, model: m, expect: defer, predicted: c, passes: " + sure + "}]", "none of the classes"},
		"file missing":  {"cases: [{name: x, model: m, expect: defer, file: a.npy, input: 1}]", "a.npy"},
	} {
		t.Run(name, func(t *testing.T) {
			path := filepath.Join(t.TempDir(), "missing.yaml")
			if test.text != "" {
				path = write(t, test.text)
			}
			known, err := Read(path, policies(t, deciding))
			if err == nil || !strings.Contains(err.Error(), test.want) {
				t.Errorf("%d cases, error %v, expected %s", len(known), err, test.want)
			}
		})
	}
}

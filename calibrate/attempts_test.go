package calibrate

import (
	"os"
	"path/filepath"
	"strings"
	"sync"
	"testing"

	"github.com/google/go-cmp/cmp"

	"github.com/ckd-project/ckd/eval"
	"github.com/ckd-project/ckd/policy"
)

// seeking returns options that seek a certificate on a recording of a name, with a file of attempts.
func seeking(t *testing.T, file, recording string, most float64) Options {
	o := options(t, Objective{MaxCriticalMiss: most, Confidence: 0.9}, policy.AllInputs, 1)
	o.Attempts = file
	o.Source = Source{Software: "test", Passes: eval.File{SHA256: recording}, Labels: eval.File{SHA256: "labels"}}
	return o
}

// TestAttempts checks which attempts count as earlier ones.
func TestAttempts(t *testing.T) {
	t.Parallel()
	file := filepath.Join(t.TempDir(), "p.npy.attempts.jsonl")
	step := func(name string, o Options, found string, want ...string) {
		t.Run(name, func(t *testing.T) {
			a := must(o.remember())
			var got []string
			for _, b := range a.earlier {
				got = append(got, b.Misses)
			}
			if diff := cmp.Diff(want, got); diff != "" {
				t.Errorf("earlier attempts (-want +got):\n%s", diff)
			}
			if err := a.found(found); err != nil {
				t.Fatal(err)
			}
			if other := a.other != nil; other != strings.HasPrefix(name, "other outcome") {
				t.Errorf("another outcome before: %t", other)
			}
		})
	}
	first := "max-critical-miss 0.1 at confidence 0.9, scope all, seed 1"
	step("first", seeking(t, file, "a", 0.1), "")
	step("second", seeking(t, file, "a", 0.2), "h", first)
	step("first again", seeking(t, file, "a", 0.1), "")
	step("other outcome of the first", seeking(t, file, "a", 0.1), "g")
	step("second again", seeking(t, file, "a", 0.2), "h", first)
	step("other recording", seeking(t, file, "b", 0.2), "h")
	grouped := seeking(t, file, "b", 0.2)
	grouped.Groups = []int{1, 1, 2}
	step("other groups", grouped, "h", "max-critical-miss 0.2 at confidence 0.9, scope all, seed 1")
	coverage := seeking(t, file, "c", 0.1)
	coverage.Objective = Objective{Coverage: 0.8}
	before, _ := os.ReadFile(file)
	step("nothing sought", coverage, "h")
	step("a pipe", seeking(t, file, "", 0.1), "h")
	if after, _ := os.ReadFile(file); string(after) != string(before) {
		t.Errorf("added to the file:\n%s", strings.TrimPrefix(string(after), string(before)))
	}
}

// TestAttemptsAtOnce checks that of many attempts at the same time exactly one is the first.
func TestAttemptsAtOnce(t *testing.T) {
	t.Parallel()
	const n = 20
	file := filepath.Join(t.TempDir(), "attempts.jsonl")
	earlier := make([]int, n)
	var wait sync.WaitGroup
	for i := range n {
		o := seeking(t, file, "a", 0.01*float64(i+1))
		wait.Go(func() { earlier[i] = len(must(o.remember()).earlier) })
	}
	wait.Wait()
	seen := make([]int, n)
	for _, e := range earlier {
		seen[e]++
	}
	for place, times := range seen {
		if times != 1 {
			t.Errorf("%d attempts are number %d", times, place)
		}
	}
}

// TestAttemptsFaults checks that a file that cannot be read or written is an error that says what to
// do: without it, nothing tells whether a certificate is the first.
func TestAttemptsFaults(t *testing.T) {
	t.Parallel()
	dir := t.TempDir()
	broken := filepath.Join(dir, "broken.jsonl")
	if err := os.WriteFile(broken, []byte("{\"id\":\"x\",\"passes_sha256\":\"a\"}\nmine\n"), 0o600); err != nil {
		t.Fatal(err)
	}
	for name, c := range map[string]struct{ file, want string }{
		"no folder":   {filepath.Join(dir, "none", "a.jsonl"), "--attempts"},
		"a folder":    {dir, "--attempts"},
		"not of ours": {broken, "broken.jsonl:2: no attempt"},
	} {
		t.Run(name, func(t *testing.T) {
			o := seeking(t, c.file, "a", 0.1)
			if _, err := o.remember(); err == nil || !strings.Contains(err.Error(), c.want) {
				t.Errorf("%v, want %q", err, c.want)
			}
		})
	}
}

package integration_test

import (
	"context"
	"os"
	"os/exec"
	"path"
	"path/filepath"
	"regexp"
	"slices"
	"strings"
	"testing"
	"time"

	"github.com/ckd-project/ckd/integration_test/testbed"
	"github.com/ckd-project/ckd/internal/timed"
)

// TestReadme runs every command of the README in order, from the project's root. It replaces
// addresses by those of the daemon that the README's own command started.
func TestReadme(t *testing.T) {
	timed.Full(t)
	t.Parallel()
	text := readPage(t, "../README.md")
	var d *daemon
	var demo string // HTTP address of the demo that stays up
	ran := 0
	have := []string{"go", "curl", "export"} // programs that the reader has so far
	dir := t.TempDir()                       // for the files that the README writes
	for _, block := range regexp.MustCompile("(?s)```sh\n(.*?)```").FindAllStringSubmatch(text, -1) {
		for _, line := range strings.Split(strings.TrimSpace(strings.ReplaceAll(block[1], "\\\n", " ")), "\n") {
			words := strings.Fields(line)
			for i, word := range words {
				if word == "policy.yaml" || strings.HasPrefix(word, "settled") {
					words[i] = filepath.Join(dir, word)
				}
			}
			ran++
			if !slices.Contains(have, words[0]) {
				t.Errorf("the README uses %s before it shows how to get it: %s", words[0], line)
			}
			switch {
			case line == "go test ./...": // runs this test
			case words[0] == "go" && words[1] == "build":
				have = append(have, builds(t, words[2:])...)
			case line == `export PATH="$PWD/bin:$PATH"`: // the tests know the paths of the programs
			case words[0] == "ckd" && words[1] == "demo":
				for i, word := range words {
					words[i] = strings.ReplaceAll(word, "127.0.0.1:8591", "127.0.0.1:0")
				}
				demo = testbed.StartDemo(t, exec.Command(ckd, words[1:]...), "HTTP API")
			case words[0] == "curl":
				t.Run("curl", func(t *testing.T) {
					words[0] = testbed.Program(t, "curl", "CURL")
					last := &words[len(words)-1]
					*last = strings.Replace(*last, "http://127.0.0.1:8591", demo, 1)
					if out := runReadme(t, words, d); !strings.Contains(out, `"ACTION_`) {
						t.Errorf("%s: %s", line, out)
					}
				})
			case words[0] == "ckd" && words[1] == "serve":
				d = serve(t, fromRoot(words[2:])...)
			case words[0] == "ckd" || words[0] == "go" && words[1] == "run":
				out := runReadme(t, words, d)
				switch {
				case words[len(words)-1] == "demo":
					showsOutput(t, text, out)
				case words[1] == "calibrate" && words[2] == "early-stop":
					showsEarlyStopping(t, text, out)
				case words[1] == "calibrate":
					showsCalibration(t, text, out)
				case words[1] == "outcomes":
					showsPlan(t, text, out)
				}
			case words[0] == "ghz":
				t.Run("ghz", func(t *testing.T) {
					words[0] = testbed.Program(t, "ghz", "GHZ")
					out := runReadme(t, words, d)
					if !strings.Contains(out, "[OK]") || strings.Contains(out, "Error distribution") {
						t.Errorf("%s: %s", line, out)
					}
				})
			case words[0] == "helm":
				t.Run("helm", func(t *testing.T) {
					words[0] = testbed.Program(t, "helm", "HELM")
					if out := runReadme(t, words, d); !strings.Contains(out, "kind: Deployment") {
						t.Errorf("%s: %s", line, out)
					}
				})
			default:
				t.Errorf("the README shows a command that this test does not know: %s", line)
			}
		}
	}
	if ran < 8 {
		t.Errorf("found only %d commands in the README", ran)
	}
}

// builds checks a command that builds programs into bin, and returns their names. Every package
// must be a command. Packages that tools/go.mod pins are looked up only where CKD_REQUIRE_TOOLS is
// set: elsewhere Go might have to download them.
func builds(t *testing.T, args []string) (names []string) {
	t.Helper()
	pinned, args := cutPrefix(args, "-modfile=tools/go.mod")
	into, packages := cutPrefix(args, "-o", "bin/")
	if !into || len(packages) == 0 {
		t.Fatalf("go build %q, expected -o bin/ and packages", args)
	}
	for _, name := range packages {
		names = append(names, path.Base(name))
	}
	list := []string{"list", "-f", "{{.Name}}"}
	if pinned {
		module, err := os.ReadFile("../tools/go.mod")
		if err != nil {
			t.Fatal(err)
		}
		for _, name := range packages {
			if !strings.Contains(string(module), "\t"+name+"\n") {
				t.Errorf("tools/go.mod does not pin %s", name)
			}
		}
		if os.Getenv("CKD_REQUIRE_TOOLS") == "" {
			return names
		}
		list = append(list, "-modfile=tools/go.mod")
	}
	c := exec.CommandContext(inTime(t), "go", append(list, packages...)...)
	c.Dir = ".."
	if r := testbed.Run(t, c); r.Stdout != strings.Repeat("main\n", len(packages)) {
		t.Errorf("go build %q: the packages are %q, expected commands\n%s", args, r.Stdout, r.Stderr)
	}
	return names
}

// cutPrefix reports whether args begin with the prefix, and returns the rest.
func cutPrefix(args []string, prefix ...string) (found bool, rest []string) {
	if len(args) < len(prefix) || !slices.Equal(args[:len(prefix)], prefix) {
		return false, args
	}
	return true, args[len(prefix):]
}

// showsCalibration compares the README's figures of a calibration with those that the command
// prints.
func showsCalibration(t *testing.T, readme, out string) {
	t.Helper()
	told := regexp.MustCompile(`here (\d+ of \d+) critical inputs are missed, where mutual information misses (\d+)\. .* would miss (\d+), and`).
		FindStringSubmatch(strings.Join(strings.Fields(readme), " "))
	if told == nil {
		t.Fatal("the README tells no figures of a calibration")
	}
	figures := regexp.MustCompile(`(?m)^ (\* calibrated|mi|risk) +all +\S+ +\S+ to \S+ +((\d+) of \d+)`).FindAllStringSubmatch(out, -1)
	if len(figures) != 3 {
		t.Fatalf("no figures in scope all in:\n%s", out)
	}
	if own, mi, risk := figures[0], figures[1], figures[2]; own[2] != told[1] || mi[3] != told[2] || risk[3] != told[3] {
		t.Errorf("the README tells %q, the command %q, %q and %q", told[1:], own[1:], mi[1:], risk[1:])
	}
}

// showsPlan compares the README's figures of a plan for audits with those that the command prints.
func showsPlan(t *testing.T, readme, out string) {
	t.Helper()
	told := regexp.MustCompile(`at (\d+)% of the retained inputs, (\d+) reviews per 1,000 inputs in place\s+of (\d+)`).FindStringSubmatch(readme)
	if told == nil {
		t.Fatal("the README tells no figures of a plan")
	}
	own := regexp.MustCompile(`(?m)^ +` + told[1] + `\.0% +(\d+) +(\d+) `).FindStringSubmatch(out)
	if own == nil || !slices.Equal(told[2:], own[1:]) {
		t.Errorf("the README tells %q, the command:\n%s", told[1:], out)
	}
}

// showsEarlyStopping compares the README's figures of early stopping with those that the command
// prints.
func showsEarlyStopping(t *testing.T, readme, out string) {
	t.Helper()
	told := regexp.MustCompile(`and used (\S+) of 30 passes\. A`).FindStringSubmatch(strings.Join(strings.Fields(readme), " "))
	if told == nil {
		t.Fatal("the README tells no passes that are used")
	}
	says := strings.Join(strings.Fields(out), " ")
	if !strings.Contains(says, "it used "+told[1]+" of 30 passes on average") {
		t.Errorf("the README tells %q, the command:\n%s", told, out)
	}
}

// showsOutput checks that the command prints every line of the README's example of output.
func showsOutput(t *testing.T, readme, out string) {
	t.Helper()
	example := regexp.MustCompile("(?s)## What the output means\n\n```\n(.*?)```").FindStringSubmatch(readme)
	if example == nil {
		t.Fatal("the README shows no output")
	}
	for line := range strings.Lines(example[1]) {
		if !strings.Contains(out, line) {
			t.Errorf("the README shows a line that is not printed: %s", line)
		}
	}
}

// fromRoot makes paths of the project's files relative to this folder.
func fromRoot(words []string) []string {
	out := make([]string, len(words))
	for i, w := range words {
		out[i] = w
		if _, err := os.Stat(filepath.Join("..", w)); err == nil {
			out[i] = filepath.Join("..", w)
		}
	}
	return out
}

// runReadme runs one command in the project's root. It must succeed.
func runReadme(t *testing.T, words []string, d *daemon) string {
	t.Helper()
	ctx, cancel := context.WithTimeout(t.Context(), 5*time.Minute)
	defer cancel()
	args := make([]string, len(words))
	for i, w := range words {
		args[i] = w
		if d != nil {
			args[i] = strings.ReplaceAll(w, "127.0.0.1:8590", d.GRPC[0])
		}
	}
	if args[0] == "ckd" {
		args[0] = ckd
	}
	c := exec.CommandContext(ctx, args[0], args[1:]...)
	c.Dir = ".."
	r := testbed.Run(t, c)
	if r.Code != 0 {
		t.Errorf("%s: exit %d\n%s%s", strings.Join(words, " "), r.Code, r.Stdout, r.Stderr)
	}
	return r.Stdout
}

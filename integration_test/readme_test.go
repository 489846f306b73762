package integration_test

import (
	"context"
	"os"
	"os/exec"
	"path/filepath"
	"regexp"
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
	ran := 0
	built := false
	dir := t.TempDir() // for the files that the README writes
	for _, block := range regexp.MustCompile("(?s)```sh\n(.*?)```").FindAllStringSubmatch(text, -1) {
		for line := range strings.Lines(block[1]) {
			line = strings.TrimSpace(line)
			words := strings.Fields(line)
			for i, word := range words {
				if word == "policy.yaml" {
					words[i] = filepath.Join(dir, word)
				}
			}
			ran++
			switch {
			case line == "go test ./...": // runs this test
			case line == "go build -o bin/ ./cmd/ckd": // as the tests did
				built = true
			case line == `export PATH="$PWD/bin:$PATH"`: // the tests know the path
			case words[0] == "ckd" && words[1] == "serve":
				d = serve(t, fromRoot(words[2:])...)
			case words[0] == "ckd" && built || words[0] == "go" && words[1] == "run":
				out := runReadme(t, words, d)
				if words[len(words)-1] == "demo" {
					showsOutput(t, text, out)
				}
			default:
				t.Errorf("the README shows a command that this test does not know, or before ckd is built: %s", line)
			}
		}
	}
	if ran < 12 {
		t.Errorf("found only %d commands in the README", ran)
	}
}

// showsOutput checks that the command prints every line of the README's example of output.
func showsOutput(t *testing.T, readme, out string) {
	t.Helper()
	example := regexp.MustCompile("(?s)\n```\n( rule .*?)```").FindStringSubmatch(readme)
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

package metrics

import (
	"fmt"
	"os"
	"path/filepath"
	"regexp"
	"slices"
	"strings"
	"testing"

	"github.com/ckd-project/ckd/internal/metrics/internal/sharded"
)

// TestReference checks that the table of docs/metrics.md lists the declared series row by row, and
// that its text names no others.
func TestReference(t *testing.T) {
	text, err := os.ReadFile("../../docs/metrics.md")
	if err != nil {
		t.Fatal(err)
	}
	var declared []string
	names := make(map[string]bool)
	for _, f := range newCollector(Options{}).families {
		declared = append(declared, row(f))
		names[f.name] = true
		if f.kind == "histogram" {
			names[f.name+"_bucket"], names[f.name+"_sum"], names[f.name+"_count"] = true, true, true
		}
	}
	for line := range strings.Lines(string(text)) {
		line = strings.TrimSpace(line)
		if !strings.HasPrefix(line, "| `") {
			continue
		}
		at := slices.Index(declared, line)
		if at < 0 {
			t.Errorf("docs/metrics.md has a row of no series:\n%s", line)
			continue
		}
		declared = slices.Delete(declared, at, at+1)
	}
	if len(declared) > 0 {
		t.Errorf("docs/metrics.md lacks the rows\n%s", strings.Join(declared, "\n"))
	}
	for _, s := range []sharded.Scale{sharded.Contribution, sharded.Ratio, sharded.Total, sharded.Entropy} {
		if edges := "| " + strings.Trim(fmt.Sprint(s.Edges), "[]") + " |"; !strings.Contains(string(text), edges) {
			t.Errorf("docs/metrics.md lacks the edges %s", edges)
		}
	}
	for _, name := range regexp.MustCompile(`\bckd_\w+`).FindAllString(string(text), -1) {
		if !names[name] {
			t.Errorf("docs/metrics.md speaks of %s, which is not declared", name)
		}
	}
}

// TestReaders checks that something reads every series: a dashboard, a rule, the triage page or the
// runbook.
func TestReaders(t *testing.T) {
	var text strings.Builder
	for _, pattern := range []string{"../../deploy/grafana/*.json", "../../deploy/prometheus/rules/*.yaml", "../../web/triage/scrape.go", "../../docs/runbook.md"} {
		files, err := filepath.Glob(pattern)
		if err != nil || len(files) == 0 {
			t.Fatalf("%s: %q, %v", pattern, files, err)
		}
		for _, file := range files {
			data, err := os.ReadFile(file)
			if err != nil {
				t.Fatal(err)
			}
			text.Write(data)
		}
	}
	for _, f := range newCollector(Options{}).families {
		if !regexp.MustCompile(`\b` + f.name + `(_bucket|_sum|_count)?\b`).MatchString(text.String()) {
			t.Errorf("nothing reads %s", f.name)
		}
	}
}

// row returns the row of the table for a family.
func row(f family) string {
	labels := "none"
	if len(f.labels) > 0 {
		labels = "`" + strings.Join(f.labels, "`, `") + "`"
	}
	return fmt.Sprintf("| `%s` | %s | %s | %s |", f.name, f.kind, labels, f.help)
}

package metrics

import (
	"fmt"
	"os"
	"path/filepath"
	"regexp"
	"strings"
	"testing"

	"github.com/ckd-project/ckd/internal/metrics/internal/sharded"
	"github.com/ckd-project/ckd/internal/reference"
)

//go:generate go test -run ^TestReference$ -update .

const page = "../../docs/metrics.md"

// TestReference checks that docs/metrics.md lists the declared series and the edges of histograms, and
// speaks of no other series.
func TestReference(t *testing.T) {
	var rows strings.Builder
	rows.WriteString("| Name | Type | Labels | Meaning |\n|---|---|---|---|\n")
	names := make(map[string]bool)
	for _, f := range newCollector(Options{}).families {
		rows.WriteString(row(f))
		names[f.name] = true
		if f.kind == "histogram" {
			names[f.name+"_bucket"], names[f.name+"_sum"], names[f.name+"_count"] = true, true, true
		}
	}
	rows.WriteString("\n| Histograms of | Classic edges |\n|---|---|\n")
	for _, s := range []struct {
		of string
		sharded.Scale
	}{
		{"C_k, risk", sharded.Contribution}, {"skewness", sharded.Ratio}, {"mutual information", sharded.Total}, {"entropy", sharded.Entropy},
	} {
		fmt.Fprintf(&rows, "| %s | %s |\n", s.of, strings.Trim(fmt.Sprint(s.Edges), "[]"))
	}
	reference.Section(t, page, "the series", rows.String())
	text, err := os.ReadFile(page)
	if err != nil {
		t.Fatal(err)
	}
	for _, name := range regexp.MustCompile(`\bckd_\w+`).FindAllString(string(text), -1) {
		if !names[name] {
			t.Errorf("%s speaks of %s, which is not declared", page, name)
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
	return fmt.Sprintf("| `%s` | %s | %s | %s |\n", f.name, f.kind, labels, f.help)
}

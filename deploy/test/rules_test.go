package deploytest

import (
	"fmt"
	"os/exec"
	"path/filepath"
	"regexp"
	"slices"
	"strings"
	"testing"

	"github.com/prometheus/prometheus/promql/parser"
	"gopkg.in/yaml.v3"

	"github.com/ckd-project/ckd/integration_test/testbed"
)

const rulesFolder = "../prometheus/rules"

// rule is a recording or alerting rule.
type rule struct {
	Record, Alert, Expr string
	For                 string
	Labels              map[string]string
	Annotations         map[string]string
}

func (r *rule) name() string { return r.Record + r.Alert }

// readRules reads a file of rules.
func readRules(t *testing.T, file string) []rule {
	t.Helper()
	var content struct {
		Groups []struct {
			Name  string
			Rules []rule
		}
	}
	readYAML(t, filepath.Join(rulesFolder, file), &content)
	var rules []rule
	for _, g := range content.Groups {
		rules = append(rules, g.Rules...)
	}
	if len(rules) == 0 {
		t.Fatalf("%s has no rules", file)
	}
	return rules
}

func readYAML(t *testing.T, path string, into any) {
	t.Helper()
	if err := yaml.Unmarshal([]byte(getFile(t, path)), into); err != nil {
		t.Fatalf("%s: %v", path, err)
	}
}

// TestPromtool checks that promtool accepts the rules, and that their tests pass.
func TestPromtool(t *testing.T) {
	promtool := testbed.Program(t, "promtool", "PROMTOOL")
	tests, err := filepath.Glob(filepath.Join(rulesFolder, "tests", "*.yaml"))
	if err != nil || len(tests) == 0 {
		t.Fatalf("no tests of rules (%v)", err)
	}
	commands := map[string][]string{"check": {"check", "rules", filepath.Join(rulesFolder, "recording.yaml"), filepath.Join(rulesFolder, "alerts.yaml")}}
	for _, file := range tests {
		commands[filepath.Base(file)] = []string{"test", "rules", file}
	}
	for name, args := range commands {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			if r := testbed.Run(t, exec.CommandContext(t.Context(), promtool, args...)); r.Code != 0 {
				t.Errorf("promtool %s: exit %d\n%s%s", strings.Join(args, " "), r.Code, r.Stdout, r.Stderr)
			}
		})
	}
}

// TestRules checks the names of rules, and that they query existing metrics.
func TestRules(t *testing.T) {
	known := knownMetrics(t)
	recorded := make(map[string]bool)
	for _, r := range readRules(t, "recording.yaml") {
		if r.Record == "" {
			t.Errorf("recording.yaml: %s is no recording rule", r.name())
			continue
		}
		if recorded[r.Record] {
			t.Errorf("recording.yaml: %s is there twice", r.Record)
		}
		recorded[r.Record] = true
		labels, err := levelLabels(r.Record)
		if err != nil {
			t.Error(err)
			continue
		}
		known[r.Record] = labels // before the query, which may carry the rule's own last value on
		checkQuery(t, r.Record, r.Expr, known)
		if got := grouping(t, r.Expr); !slices.Equal(got, labels) {
			t.Errorf("recording.yaml: %s sums by %v, by its name it should by %v", r.Record, got, labels)
		}
	}
	used := make(map[string]bool)
	for _, r := range readRules(t, "alerts.yaml") {
		if r.Alert == "" {
			t.Errorf("alerts.yaml: %s is no alert", r.name())
			continue
		}
		if used[r.Alert] {
			t.Errorf("alerts.yaml: %s is there twice", r.Alert)
		}
		used[r.Alert] = true
		checkQuery(t, r.Alert, r.Expr, known)
		if s := r.Labels["severity"]; s != "warning" && s != "critical" {
			t.Errorf("%s: severity %q, expected warning or critical", r.Alert, s)
		}
		if !strings.Contains(r.Annotations["summary"], "{{") || !strings.Contains(r.Annotations["description"], "{{") {
			t.Errorf("%s: summary and description should say of what", r.Alert)
		}
		if want := runbookURL + "#" + strings.ToLower(r.Alert); r.Annotations["runbook_url"] != want {
			t.Errorf("%s: runbook_url %q, expected %s", r.Alert, r.Annotations["runbook_url"], want)
		}
	}
}

// levelLabels returns the labels that the level of a recorded name stands for, as in
// job_model:metric:operation.
func levelLabels(name string) ([]string, error) {
	parts := strings.Split(name, ":")
	if len(parts) != 3 || !strings.HasPrefix(parts[1], "ckd_") || parts[2] == "" {
		return nil, fmt.Errorf("recording.yaml: %s is not level:ckd_metric:operation", name)
	}
	level, ofJob := strings.CutPrefix(parts[0], "job_")
	level = strings.Replace(level, "class_class", "class_a_class_b", 1)
	labels := []string{"namespace"}
	switch {
	case ofJob:
		labels = append(labels, "job")
	case !strings.HasPrefix(parts[1], "ckd_alarm_"): // alarms are of a model, whichever job knows of them
		return nil, fmt.Errorf("recording.yaml: %s is not by job", name)
	}
	return append(labels, regexp.MustCompile(`class_[ab]|[a-z]+`).FindAllString(level, -1)...), nil
}

// grouping returns the labels of the first aggregation of a query.
func grouping(t *testing.T, query string) []string {
	t.Helper()
	expr, err := parsePromQL(query)
	if err != nil {
		t.Fatal(err)
	}
	var found []string
	parser.Inspect(expr, func(node parser.Node, _ []parser.Node) error {
		if a, is := node.(*parser.AggregateExpr); is && found == nil {
			found = a.Grouping
		}
		return nil
	})
	return found
}

// TestAlertsAreTested checks that every alert has a test in which it fires and one in which it does
// not.
func TestAlertsAreTested(t *testing.T) {
	files, err := filepath.Glob(filepath.Join(rulesFolder, "tests", "*.yaml"))
	if err != nil {
		t.Fatal(err)
	}
	fires, silent := make(map[string]bool), make(map[string]bool)
	for _, file := range files {
		var content struct {
			Tests []struct {
				Alerts []struct {
					Name string      `yaml:"alertname"`
					Want []yaml.Node `yaml:"exp_alerts"`
				} `yaml:"alert_rule_test"`
			}
		}
		readYAML(t, file, &content)
		for _, test := range content.Tests {
			for _, a := range test.Alerts {
				if len(a.Want) > 0 {
					fires[a.Name] = true
				} else {
					silent[a.Name] = true
				}
			}
		}
	}
	for _, r := range readRules(t, "alerts.yaml") {
		if !fires[r.Alert] {
			t.Errorf("%s: no test in which it fires", r.Alert)
		}
		if !silent[r.Alert] {
			t.Errorf("%s: no test in which it does not", r.Alert)
		}
	}
}

const runbookURL = "https://github.com/ckd-project/ckd/blob/main/docs/runbook.md"

// TestAlertsThatPage checks that docs/operate.md names the alerts that page: those of severity critical.
func TestAlertsThatPage(t *testing.T) {
	_, text, _ := strings.Cut(getFile(t, "../../docs/operate.md"), "**Page on these eight**")
	text, _, _ = strings.Cut(text, "Where other replicas")
	got := regexp.MustCompile(`Ckd\w+`).FindAllString(text, -1)
	var want []string
	for _, r := range readRules(t, "alerts.yaml") {
		if r.Labels["severity"] == "critical" {
			want = append(want, r.Alert)
		}
	}
	slices.Sort(want)
	if !slices.Equal(got, want) || len(want) != 8 {
		t.Errorf("docs/operate.md pages on %v, expected %v", got, want)
	}
}

// TestRunbook checks that the runbook has an entry for every alert, in their order, that entries begin
// with what to do, that links to entries resolve, and that its queries are of existing metrics.
func TestRunbook(t *testing.T) {
	text := getFile(t, "../../docs/runbook.md")
	entries := strings.Split(text, "\n### ")[1:]
	var got, want []string
	for _, entry := range entries {
		name, body, _ := strings.Cut(entry, "\n")
		got = append(got, name)
		act, rest, _ := strings.Cut(body, "**See**")
		if strings.TrimSpace(act) == "" || strings.Contains(act, "**Cause**") || strings.Count(rest, "**Cause**") != 1 {
			t.Errorf("docs/runbook.md: %s: expected what to do, then where to **See** it, then the **Cause**", name)
		}
	}
	for _, anchor := range regexp.MustCompile(`\(#([a-z-]+)\)`).FindAllStringSubmatch(text, -1) {
		heading := regexp.MustCompile(`(?mi)^##+ ` + strings.ReplaceAll(anchor[1], "-", " ") + `$`)
		if !heading.MatchString(text) {
			t.Errorf("docs/runbook.md: no heading for #%s", anchor[1])
		}
	}
	for _, r := range readRules(t, "alerts.yaml") {
		want = append(want, r.Alert)
	}
	if !slices.Equal(got, want) {
		t.Errorf("docs/runbook.md has the entries\n%v, alerts.yaml the alerts\n%v", got, want)
	}
	known := knownMetrics(t)
	for _, r := range readRules(t, "recording.yaml") {
		known[r.Record], _ = levelLabels(r.Record) // TestRules reports its faults
	}
	for _, block := range regexp.MustCompile("(?s)```promql\n(.*?)\n```").FindAllStringSubmatch(text, -1) {
		for _, query := range strings.Split(strings.ReplaceAll(block[1], "\n  ", " "), "\n") {
			checkQuery(t, "docs/runbook.md", query, known)
		}
	}
}

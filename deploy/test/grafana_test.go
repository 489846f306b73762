package deploytest

import (
	"bytes"
	"encoding/json"
	"fmt"
	"maps"
	"math"
	mathrand "math/rand/v2"
	"os"
	"os/exec"
	"path/filepath"
	"regexp"
	"slices"
	"strings"
	"testing"
	"time"

	"github.com/prometheus/common/model"

	"github.com/ckd-project/ckd/integration_test/testbed"
	"github.com/ckd-project/ckd/internal/monitor/fullpass"
	"github.com/ckd-project/ckd/internal/record"
	"github.com/ckd-project/ckd/internal/tlsfiles/certtest"
	"github.com/ckd-project/ckd/policy"
)

// dashboard holds what the tests read of a dashboard.
type dashboard struct {
	file          string
	UID           string
	Title         string
	Description   string
	Tags          []string
	SchemaVersion int
	Inputs        json.RawMessage `json:"__inputs"`
	Links         []link
	Annotations   struct {
		List []struct {
			Name, Expr string
			Target     struct{ Expr string }
			BuiltIn    int
			Datasource datasource
		}
	}
	Templating struct{ List []variable }
	Panels     []panel
}

type link struct {
	Type, Title, URL      string
	Tags                  []string
	IncludeVars, KeepTime bool
}

type datasource struct{ Type, UID string }

type variable struct {
	Name, Label, Description, Type string
	Datasource                     datasource
	Query                          json.RawMessage // a JSON object if Type is query
	AllValue                       string
	Multi, IncludeAll              bool
	Options                        []struct{ Value string }
}

type panel struct {
	Type, Title, Description string
	Datasource               datasource
	Targets                  []struct {
		RefID, Expr, LegendFormat string
		Datasource                datasource
	}
	Links       []link
	FieldConfig struct {
		Defaults struct {
			Unit       string
			Thresholds *struct{ Steps []struct{ Color string } }
			Color      struct{ Mode, FixedColor string }
		}
		Overrides json.RawMessage
	}
}

var dashboardUIDs = map[string]string{"triage.json": "ckd-triage", "classes.json": "ckd-classes", "serving.json": "ckd-serving"}

func readDashboards(t *testing.T) []dashboard {
	t.Helper()
	files, err := filepath.Glob("../grafana/*.json")
	if err != nil || len(files) != len(dashboardUIDs) {
		t.Fatalf("%d dashboards, expected %d (%v)", len(files), len(dashboardUIDs), err)
	}
	var found []dashboard
	for _, file := range files {
		d := dashboard{file: filepath.Base(file)}
		if err := json.Unmarshal([]byte(getFile(t, file)), &d); err != nil {
			t.Fatalf("%s: %v", file, err)
		}
		found = append(found, d)
	}
	return found
}

// query is one query of a dashboard.
type query struct {
	where  string
	legend string // legend of a panel
	expr   string
}

// queries returns all queries of a dashboard. A variable that lists a label becomes a query for the
// series with that label.
func (d *dashboard) queries(t *testing.T) []query {
	t.Helper()
	var all []query
	for _, a := range d.Annotations.List {
		if a.BuiltIn == 0 {
			all = append(all, query{where: fmt.Sprintf("%s: annotation %q", d.file, a.Name), expr: a.Expr})
		}
	}
	for _, v := range d.Templating.List {
		if v.Type != "query" {
			continue
		}
		where := fmt.Sprintf("%s: variable %q", d.file, v.Name)
		var q struct{ Query string }
		if err := json.Unmarshal(v.Query, &q); err != nil {
			t.Fatalf("%s: %v", where, err)
		}
		listed := regexp.MustCompile(`^label_values\((.+), (\w+)\)$`).FindStringSubmatch(q.Query)
		if listed == nil {
			t.Errorf("%s: %q is not label_values(SERIES, LABEL)", where, q.Query)
			continue
		}
		all = append(all, query{where: where, expr: fmt.Sprintf("group by (%s) (%s)", listed[2], listed[1])})
	}
	for _, p := range d.Panels {
		for _, target := range p.Targets {
			all = append(all, query{fmt.Sprintf("%s: panel %q %s", d.file, p.Title, target.RefID), target.LegendFormat, target.Expr})
		}
	}
	return all
}

// values returns what Grafana replaces variables with. A variable of several values becomes a
// regular expression, and one without a choice its own expression for all. Ranges and intervals are
// longer than any test: what a query returns depends on what happened, not on how long ago.
func (d *dashboard) values(chosen map[string][]string) map[string]string {
	values := map[string]string{"__rate_interval": "1h", "__range": "1h", "__interval": "1h"}
	for _, v := range d.Templating.List {
		var quoted []string
		for _, value := range chosen[v.Name] {
			if v.Multi || v.IncludeAll {
				value = regexp.QuoteMeta(value)
			}
			quoted = append(quoted, strings.ReplaceAll(value, `\`, `\\`)) // for the string around it
		}
		switch {
		case v.Type == "datasource":
			values[v.Name] = "prometheus"
		case v.Type == "interval":
			values[v.Name] = "1h"
		case len(quoted) == 1 || len(quoted) > 1 && !v.Multi:
			values[v.Name] = quoted[0]
		case len(quoted) > 1:
			values[v.Name] = "(" + strings.Join(quoted, "|") + ")"
		case v.IncludeAll && v.AllValue == "":
			values[v.Name] = "()"
		default:
			values[v.Name] = v.AllValue
		}
	}
	return values
}

// choose adds the choices that Grafana makes by itself: all values it finds where a variable may be
// all without an expression for it, else the first.
func (d *dashboard) choose(t *testing.T, p *testbed.Prometheus, at string, chosen map[string][]string) map[string][]string {
	t.Helper()
	chosen = maps.Clone(chosen)
	for _, q := range d.queries(t) {
		i := slices.IndexFunc(d.Templating.List, func(v variable) bool { return strings.HasSuffix(q.where, fmt.Sprintf("variable %q", v.Name)) })
		if i < 0 || d.Templating.List[i].AllValue != "" || chosen[d.Templating.List[i].Name] != nil {
			continue
		}
		v := d.Templating.List[i]
		label := regexp.MustCompile(`^group by \((\w+)\)`).FindStringSubmatch(q.expr)[1]
		var found []string
		for _, sample := range p.Query(interpolate(q.expr, d.values(chosen)), at) {
			if value := string(sample.Metric[model.LabelName(label)]); value != "" {
				found = append(found, value)
			}
		}
		slices.Sort(found)
		if !v.IncludeAll {
			found = found[:min(1, len(found))]
		}
		chosen[v.Name] = found
	}
	return chosen
}

// interpolate replaces $name and ${name}. It leaves undefined names, which no parser accepts.
func interpolate(expr string, values map[string]string) string {
	return regexp.MustCompile(`\$\{?(\w+)\}?`).ReplaceAllStringFunc(expr, func(found string) string {
		if value, defined := values[strings.Trim(found, "${}")]; defined {
			return value
		}
		return found
	})
}

// TestDashboards checks what every dashboard and panel must have, and that all queries are of existing metrics
// and labels.
func TestDashboards(t *testing.T) {
	runbook, known := getFile(t, "../../docs/runbook.md"), knownMetrics(t)
	for _, d := range readDashboards(t) {
		if d.UID != dashboardUIDs[d.file] {
			t.Errorf("%s: uid %q, expected %q", d.file, d.UID, dashboardUIDs[d.file])
		}
		if d.SchemaVersion < 39 || d.SchemaVersion > 41 {
			t.Errorf("%s: schemaVersion %d, expected one of Grafana 11", d.file, d.SchemaVersion)
		}
		if d.Inputs != nil {
			t.Errorf("%s: has __inputs, which provisioning does not fill in", d.file)
		}
		if d.Description == "" || !slices.Contains(d.Tags, "ckd") {
			t.Errorf("%s: needs a description, and the tag ckd", d.file)
		}
		if !slices.ContainsFunc(d.Links, func(l link) bool {
			return l.Type == "dashboards" && slices.Contains(l.Tags, "ckd") && l.IncludeVars && l.KeepTime
		}) || !slices.ContainsFunc(d.Links, func(l link) bool { return l.URL == runbookURL }) {
			t.Errorf("%s: does not link to the other dashboards and the runbook", d.file)
		}
		defined := map[string]bool{"__rate_interval": true, "__range": true, "__interval": true, "__url_time_range": true, "__value": true, "__all": true}
		for i, v := range d.Templating.List {
			defined[v.Name] = true
			if v.Label == "" || v.Description == "" {
				t.Errorf("%s: variable %q has no label or no description", d.file, v.Name)
			}
			if i == 0 && (v.Type != "datasource" || v.Name != "datasource") {
				t.Errorf("%s: the first variable is not the data source", d.file)
			}
			if v.Type == "query" {
				checkDatasource(t, fmt.Sprintf("%s: variable %q", d.file, v.Name), v.Datasource)
			}
			// Other jobs have go_goroutines too, so all means all jobs and instances of ckd. Only
			// Kubernetes has namespaces.
			if listed := v.Name == "job" || v.Name == "instance"; v.IncludeAll && (v.AllValue == "") != listed {
				t.Errorf("%s: variable %q has allValue %q", d.file, v.Name, v.AllValue)
			}
			// Models of two namespaces or jobs must not be summed.
			if v.Multi && d.file != "serving.json" && (v.Name == "namespace" || v.Name == "job") {
				t.Errorf("%s: several values of variable %q would be summed", d.file, v.Name)
			}
		}
		for _, a := range d.Annotations.List {
			if a.BuiltIn == 0 {
				checkDatasource(t, fmt.Sprintf("%s: annotation %q", d.file, a.Name), a.Datasource)
				if a.Expr == "" || a.Target.Expr != a.Expr {
					t.Errorf("%s: annotation %q: expr is for Grafana 11, target.expr for later ones: they have to be the same", d.file, a.Name)
				}
			}
		}
		text := getFile(t, filepath.Join("../grafana", d.file))
		for _, used := range regexp.MustCompile(`\$\{?(\w+)`).FindAllStringSubmatch(text, -1) {
			if !defined[used[1]] {
				t.Errorf("%s: the variable $%s is not defined", d.file, used[1])
			}
		}
		for _, anchor := range regexp.MustCompile(`runbook\.md#(\w+)`).FindAllStringSubmatch(text, -1) {
			if !regexp.MustCompile(`(?mi)^### ` + anchor[1] + `$`).MatchString(runbook) {
				t.Errorf("%s: docs/runbook.md has no entry %s", d.file, anchor[1])
			}
		}
		checkPanels(t, &d)
		for _, q := range d.queries(t) {
			checkQuery(t, q.where, interpolate(q.expr, d.values(map[string][]string{"model": {"m"}, "window": {"256"}})), known)
		}
	}
}

func checkPanels(t *testing.T, d *dashboard) {
	t.Helper()
	titles := make(map[string]bool)
	for _, p := range d.Panels {
		where := fmt.Sprintf("%s: panel %q", d.file, p.Title)
		if titles[p.Title] || p.Title == "" {
			t.Errorf("%s: no title, or that of another panel", where)
		}
		titles[p.Title] = true
		if p.Type == "row" {
			continue
		}
		if len(p.Description) < 20 || p.FieldConfig.Defaults.Unit == "" {
			t.Errorf("%s: has no description or no unit", where)
		}
		if p.Type != "heatmap" && p.FieldConfig.Defaults.Thresholds == nil {
			t.Errorf("%s: has no thresholds", where)
		}
		if len(p.Targets) == 0 {
			t.Errorf("%s: asks for nothing", where)
		}
		checkDatasource(t, where, p.Datasource)
		for _, target := range p.Targets {
			checkDatasource(t, where, target.Datasource)
			if strings.Contains(target.Expr, "ckd_expected_misses_total") || strings.Contains(target.Expr, `ckd_policy_expected{figure="critical_`) {
				checkNeverGreen(t, where, &p)
			}
		}
	}
}

// checkNeverGreen checks that a panel does not say by its colour that all is well.
func checkNeverGreen(t *testing.T, where string, p *panel) {
	t.Helper()
	defaults := p.FieldConfig.Defaults
	if c := defaults.Color; c.FixedColor == "" || strings.Contains(c.FixedColor, "green") || c.Mode != "shades" && c.Mode != "fixed" {
		t.Errorf("%s: its colour is %+v, expected a fixed one that is not green", where, c)
	}
	for _, step := range defaults.Thresholds.Steps {
		if strings.Contains(step.Color, "green") {
			t.Errorf("%s: a threshold is %s: expected misses are no measurement, and never well", where, step.Color)
		}
	}
}

func checkDatasource(t *testing.T, where string, d datasource) {
	t.Helper()
	if d != (datasource{"prometheus", "${datasource}"}) {
		t.Errorf("%s: its data source is %v, expected ${datasource}", where, d)
	}
}

// noNamespace reports whether a query lists namespaces. Only Kubernetes gives targets that label.
func noNamespace(where string) bool { return strings.HasSuffix(where, `variable "namespace"`) }

// emptyWhileHealthy names the queries that have no data while all is well.
var emptyWhileHealthy = []string{
	`serving.json: panel "Refused for lack of room" A`, `triage.json: panel "Refused inputs" A`,
	`serving.json: panel "Access refused" A`, `serving.json: panel "HTTP requests refused" A`, `classes.json: panel "Alarms raised" A`,
}

const digitNames = "zero,one,two,three,four,five,six"

// TestDashboardsShow scrapes two daemons that do well. Every query of every dashboard and rule must
// have data, and no alert may be raised.
func TestDashboardsShow(t *testing.T) {
	t.Parallel()
	binary := testbed.Program(t, "prometheus", "PROMETHEUS")
	policies := t.TempDir()
	calibrate(t, policies, "digits", "digits-id", "--classes", digitNames, "--critical", "three,five")
	calibrate(t, policies, "heart", "ctg-mcdropout", "--classes", "normal,suspect,pathologic", "--critical", "suspect,pathologic")
	addGate(t, filepath.Join(policies, "heart.yaml"))
	for _, name := range []string{"digits.yaml", "heart.yaml"} {
		addRisk(t, filepath.Join(policies, name))
		stopEarly(t, filepath.Join(policies, name), 0.5, 0.9)
	}
	addAudits(t, filepath.Join(policies, "digits.yaml"))
	keys := receiptKeys(t)
	cert, key, authority := certificate(t)

	ledger := testbed.Ledger(t, ckd) // which has a backup, as it should
	if out, err := exec.Command(ckd, "outcomes", "backup", "--ledger", ledger, "--out", filepath.Join(t.TempDir(), "backup.db")).CombinedOutput(); err != nil {
		t.Fatalf("%v: %s", err, out)
	}
	// Two of the seven digits share a label.
	start := exec.Command(ckd, "serve", "--listen", "127.0.0.1:0", "--admin", "127.0.0.1:0", "--policy", policies, "--class-labels", "5", "--class-buckets",
		"--receipt-keys", keys, "--ledger", ledger)
	start.Env = append(os.Environ(), "GOMEMLIMIT=1GiB")
	plain := testbed.Start(t, start, 1)
	encrypted := testbed.Serve(t, ckd, "--policy", policies, "--class-labels", "5", "--class-buckets",
		"--tls-cert", cert, "--tls-key", key, "--receipt-keys", keys, "--ledger-at", plain.GRPC[0])
	p := testbed.StartPrometheus(t, binary, prometheusConfig(t, plain, encrypted))
	await(t, p, "count(ckd_build_info) == 2") // every counter is scraped at 0

	digits, heart := recording("digits-id"), shuffled(t, recording("ctg-mcdropout"))
	for _, d := range []*testbed.Daemon{plain, encrypted} {
		for _, send := range [][]string{{"digits", digits, "low-rank"}, {"heart", heart, "mc-dropout"}} {
			args := []string{"replay", "--addr", d.GRPC[0], "--model", send[0], "--passes", send[1], "--posterior", send[2], "--quiet"}
			if d == encrypted {
				args = append(args, "--tls-ca", authority, "--unary", "--in-flight", "32")
			}
			if r := testbed.Run(t, exec.CommandContext(t.Context(), ckd, args...)); r.Code != 0 {
				t.Fatalf("replay: exit %d\n%s", r.Code, r.Stderr)
			}
		}
	}
	answered := answerReviews(t, plain, "digits", "digits-id", strings.Split(digitNames, ","))
	await(t, p, fmt.Sprintf(`sum(ckd_promise_reviews{state="answered"}) == %d and sum(ckd_promise_reviews{state="due"}) == %[1]d`, answered))
	sendStopping(t, plain, "digits", digits, int(fullpass.NewSampler(0).First))
	sendStopping(t, plain, "digits", digits, 0)
	shows(t, p, "every query has data", func(at string) []string { return shownFaults(t, p, at) })
	shows(t, p, "no alert is raised", func(at string) (raised []string) {
		for _, sample := range p.Query(`ALERTS`, at) {
			raised = append(raised, sample.Metric.String())
		}
		return raised
	})
	shows(t, p, "every rule runs and has data", func(string) []string { return ruleFaults(t, p) })
}

// shows waits until there are no faults after a new scrape. On a busy machine a scrape may fail, or
// a series have too few samples for a rate.
func shows(t *testing.T, p *testbed.Prometheus, what string, faults func(at string) []string) {
	t.Helper()
	var before []string
	testbed.Eventually(t, what, func() bool {
		found := faults(p.Scraped(time.Now()))
		if len(found) > 0 && !slices.Equal(found, before) {
			t.Logf("not yet: %s\n%s", what, strings.Join(found, "\n"))
		}
		before = found
		return len(found) == 0
	})
}

// shownFaults runs all queries of all dashboards, with everything chosen and with one of each. It
// returns what is wrong with their data.
func shownFaults(t *testing.T, p *testbed.Prometheus, at string) (faults []string) {
	t.Helper()
	choices := []map[string][]string{
		{"model": {"digits"}, "window": {"64"}},
		{"namespace": nil, "job": {"ckd"}, "model": {"digits", "heart"}, "class": {"three", "other"}, "window": {"64"}},
	}
	for _, d := range readDashboards(t) {
		for _, q := range d.queries(t) {
			none := false
			for _, chosen := range choices {
				expr := interpolate(q.expr, d.values(d.choose(t, p, at, chosen)))
				found := slices.DeleteFunc(p.Query(expr, at), func(s *model.Sample) bool { return math.IsNaN(float64(s.Value)) })
				none = none || len(found) == 0
				for _, label := range regexp.MustCompile(`\{\{(\w+)\}\}`).FindAllStringSubmatch(q.legend, -1) {
					name := model.LabelName(label[1])
					if len(found) > 0 && !slices.ContainsFunc(found, func(s *model.Sample) bool { return s.Metric[name] != "" }) {
						faults = append(faults, fmt.Sprintf("%s: its legend names %q, which no series has: %v", q.where, name, found[0].Metric))
					}
				}
			}
			if none && !noNamespace(q.where) && !slices.Contains(emptyWhileHealthy, q.where) {
				faults = append(faults, q.where+": there is no data")
			}
		}
	}
	return faults
}

// ruleFaults returns the rules that Prometheus does not evaluate, and recorded ones without data.
func ruleFaults(t *testing.T, p *testbed.Prometheus) (faults []string) {
	t.Helper()
	_, body, _ := p.Get("/api/v1/rules")
	var reply struct {
		Data struct {
			Groups []struct {
				Rules []struct{ Name, Health, LastError string }
			}
		}
	}
	if err := json.Unmarshal([]byte(body), &reply); err != nil {
		t.Fatal(err)
	}
	healthy := make(map[string]bool)
	for _, g := range reply.Data.Groups {
		for _, r := range g.Rules {
			if healthy[r.Name] = r.Health == "ok"; !healthy[r.Name] {
				faults = append(faults, fmt.Sprintf("rule %s: %s %s", r.Name, r.Health, r.LastError))
			}
		}
	}
	for _, r := range append(readRules(t, "recording.yaml"), readRules(t, "alerts.yaml")...) {
		if !healthy[r.name()] {
			faults = append(faults, fmt.Sprintf("rule %s: Prometheus has not evaluated it", r.name()))
		}
		if r.Record != "" && len(p.Query(r.Record, "")) == 0 {
			faults = append(faults, fmt.Sprintf("rule %s: there is no data", r.Record))
		}
	}
	return faults
}

// await waits until a query returns something.
func await(t *testing.T, p *testbed.Prometheus, query string) {
	t.Helper()
	testbed.Eventually(t, "a result of "+query, func() bool { return len(p.Query(query, "")) > 0 })
}

func recording(name string) string {
	return filepath.Join("..", "..", "internal", "recordings", name+".passes.npy")
}

// calibrate writes the policy NAME.yaml to a folder and returns its path.
func calibrate(t *testing.T, folder, name, from string, flags ...string) string {
	t.Helper()
	labels := strings.Replace(recording(from), ".passes.", ".labels.", 1)
	path := filepath.Join(folder, name+".yaml")
	args := append([]string{"calibrate", "--passes", recording(from), "--labels", labels, "--name", name, "--coverage", "0.8", "--out", path}, flags...)
	if r := testbed.Run(t, exec.CommandContext(t.Context(), ckd, args...)); r.Code != 0 {
		t.Fatalf("calibrate: exit %d\n%s", r.Code, r.Stderr)
	}
	return path
}

// addGate lets the policy in a file decide by two scores, as panels about the fallback score need
// it, whatever rule its calibration chose.
func addGate(t *testing.T, path string) {
	t.Helper()
	set, err := policy.Parse(policy.File{Name: filepath.Base(path), Data: []byte(getFile(t, path))})
	if err != nil {
		t.Fatal(err)
	}
	d := set.All()[0].Draft()
	d.Gate, d.FewestPasses = policy.AnyCritical, 5 // fewer passes show little skewness
	d.Primary, d.Fallback = policy.Rule{Score: policy.CCritMax, Threshold: 0.025}, policy.Rule{Score: policy.CBEC, Threshold: 0.025}
	p, err := policy.Build(d)
	if err != nil {
		t.Fatal(err)
	}
	putFile(t, path, string(p.Marshal()))
}

// addRisk gives the policy in a file a risk model.
func addRisk(t *testing.T, path string) {
	t.Helper()
	set, err := policy.Parse(policy.File{Name: filepath.Base(path), Data: []byte(getFile(t, path))})
	if err != nil {
		t.Fatal(err)
	}
	d := set.All()[0].Draft()
	d.Risk = &policy.Risk{
		CalledSafe:     policy.Logistic{Intercept: -1, Slope: 1},
		CalledCritical: policy.Logistic{Slope: 1}, Quantiles: make([]float64, policy.Levels), Prevalence: 0.2,
	}
	d.Calibration.PolicyHash = "" // another than it was calibrated with
	p, err := policy.Build(d)
	if err != nil {
		t.Fatal(err)
	}
	putFile(t, path, string(p.Marshal()))
}

// shuffled returns a copy of a recording, float32 [passes][inputs][classes], in random order.
// Recordings of fetal hearts are in the order they were taken in, which looks like drift.
func shuffled(t *testing.T, path string) string {
	t.Helper()
	passes, err := record.ReadPasses(path, record.Options{})
	if err != nil {
		t.Fatal(err)
	}
	values := make([]float32, 0, len(passes.Float32))
	order := mathrand.New(mathrand.NewPCG(1, 2)).Perm(passes.N)
	for s := range passes.S {
		for _, n := range order {
			values = append(values, passes.Float32[(s*passes.N+n)*passes.K:][:passes.K]...)
		}
	}
	var file bytes.Buffer
	if err := record.Write(&file, &record.Array{Shape: []int{passes.S, passes.N, passes.K}, Float32: values}); err != nil {
		t.Fatal(err)
	}
	return putFile(t, filepath.Join(t.TempDir(), "shuffled.npy"), file.String())
}

// prometheusConfig writes a config that scrapes the daemons and has the rules.
func prometheusConfig(t *testing.T, daemons ...*testbed.Daemon) string {
	t.Helper()
	rules, err := filepath.Abs(rulesFolder)
	if err != nil {
		t.Fatal(err)
	}
	var targets []string
	for _, d := range daemons {
		targets = append(targets, strings.TrimPrefix(d.Admin, "http://"))
	}
	config, err := json.Marshal(map[string]any{ // JSON is YAML
		"global":     map[string]any{"scrape_interval": "1s", "evaluation_interval": "1s"},
		"rule_files": []string{filepath.Join(rules, "recording.yaml"), filepath.Join(rules, "alerts.yaml")},
		"scrape_configs": []any{map[string]any{
			"job_name":       "ckd",
			"static_configs": []any{map[string]any{"targets": targets}},
		}},
	})
	if err != nil {
		t.Fatal(err)
	}
	return putFile(t, filepath.Join(t.TempDir(), "prometheus.yaml"), string(config))
}

// certificate returns the files of a certificate for this machine, its key and its authority. It is
// valid for 60 days, longer than the alerts require.
func certificate(t *testing.T) (certFile, keyFile, authority string) {
	t.Helper()
	ca := certtest.NewCA(t, "dashboards")
	pair := ca.Issue(t, certtest.Valid(time.Now().Add(-time.Hour), time.Now().Add(60*24*time.Hour)))
	folder := t.TempDir()
	certFile = putFile(t, filepath.Join(folder, "cert.pem"), string(pair.CertPEM))
	keyFile = putFile(t, filepath.Join(folder, "key.pem"), string(pair.KeyPEM))
	return certFile, keyFile, putFile(t, filepath.Join(folder, "ca.pem"), string(ca.PEM))
}

package deploytest

import (
	"bytes"
	"crypto/ecdsa"
	"crypto/elliptic"
	"crypto/rand"
	"crypto/x509"
	"encoding/binary"
	"encoding/json"
	"encoding/pem"
	"fmt"
	"maps"
	"math"
	"math/big"
	mathrand "math/rand/v2"
	"net"
	"net/http"
	"net/http/httptest"
	"os"
	"os/exec"
	"path/filepath"
	"regexp"
	"slices"
	"strings"
	"sync/atomic"
	"testing"
	"time"

	"github.com/prometheus/common/model"
	"github.com/prometheus/prometheus/model/labels"
	"github.com/prometheus/prometheus/promql/parser"

	"github.com/ckd-project/ckd/integration_test/testbed"
	"github.com/ckd-project/ckd/settle/audit"
)

// dashboard is what the tests read of one.
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
	Query                          json.RawMessage // an object, for queries
	AllValue                       string
	Multi, IncludeAll              bool
	Options                        []struct{ Value string }
}

type panel struct {
	ID                       int
	Type, Title, Description string
	Datasource               datasource
	Targets                  []struct {
		RefID, Expr, LegendFormat string
		Datasource                datasource
	}
	Links       []link
	GridPos     struct{ X, Y, W, H int }
	FieldConfig struct {
		Defaults struct {
			Unit       string
			Thresholds *struct{ Steps []struct{ Color string } }
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
		text, err := os.ReadFile(file)
		if err != nil {
			t.Fatal(err)
		}
		d := dashboard{file: filepath.Base(file)}
		if err := json.Unmarshal(text, &d); err != nil {
			t.Fatalf("%s: %v", file, err)
		}
		found = append(found, d)
	}
	return found
}

// query of a dashboard.
type query struct {
	where  string
	legend string // of a panel
	expr   string
}

// queries are all of a dashboard, those of variables as the series that have the
// label that they list.
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

// values are what Grafana puts in the place of variables. A variable that may have
// several values becomes a regular expression; where none is chosen, the variable's own
// one for all of them.
func (d *dashboard) values(chosen map[string][]string) map[string]string {
	values := map[string]string{"__rate_interval": "5m", "__range": "5m", "__interval": "1m"}
	for _, v := range d.Templating.List {
		var quoted []string
		for _, value := range chosen[v.Name] {
			if v.Multi || v.IncludeAll {
				value = regexp.QuoteMeta(value)
			}
			quoted = append(quoted, strings.ReplaceAll(value, `\`, `\\`)) // for the string that it is in
		}
		switch {
		case v.Type == "datasource":
			values[v.Name] = "prometheus"
		case v.Type == "interval":
			values[v.Name] = "5m"
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

// choose adds to what is chosen what Grafana does of itself: all values that are found
// where all may be chosen and there is no expression for them, else the first.
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

// interpolate puts values in the place of $name and ${name}. It leaves what is not
// defined, which no parser takes.
func interpolate(expr string, values map[string]string) string {
	return regexp.MustCompile(`\$\{?(\w+)\}?`).ReplaceAllStringFunc(expr, func(found string) string {
		if value, defined := values[strings.Trim(found, "${}")]; defined {
			return value
		}
		return found
	})
}

// TestDashboards: what every dashboard and panel has.
func TestDashboards(t *testing.T) {
	runbook, err := os.ReadFile("../../docs/runbook.md")
	if err != nil {
		t.Fatal(err)
	}
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
			// Other jobs have go_goroutines, too: all is what has been found to be a ckd. A
			// namespace is found in Kubernetes alone.
			if listed := v.Name == "job" || v.Name == "instance"; v.IncludeAll && (v.AllValue == "") != listed {
				t.Errorf("%s: variable %q has allValue %q", d.file, v.Name, v.AllValue)
			}
			// What two namespaces or jobs have in common is not one model.
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
		text, err := os.ReadFile(filepath.Join("../grafana", d.file))
		if err != nil {
			t.Fatal(err)
		}
		for _, used := range regexp.MustCompile(`\$\{?(\w+)`).FindAllSubmatch(text, -1) {
			if !defined[string(used[1])] {
				t.Errorf("%s: the variable $%s is not defined", d.file, used[1])
			}
		}
		for _, anchor := range regexp.MustCompile(`runbook\.md#(\w+)`).FindAllSubmatch(text, -1) {
			if !regexp.MustCompile(`(?mi)^### ` + string(anchor[1]) + `$`).Match(runbook) {
				t.Errorf("%s: docs/runbook.md has no entry %s", d.file, anchor[1])
			}
		}
		checkPanels(t, &d)
	}
}

func checkPanels(t *testing.T, d *dashboard) {
	t.Helper()
	ids, titles := make(map[int]bool), make(map[string]bool)
	var taken [24]int // how far down each column is
	for _, p := range d.Panels {
		where := fmt.Sprintf("%s: panel %q", d.file, p.Title)
		if ids[p.ID] || titles[p.Title] || p.Title == "" {
			t.Errorf("%s: a second one with id %d or this title", where, p.ID)
		}
		ids[p.ID], titles[p.Title] = true, true
		g := p.GridPos
		if g.W < 1 || g.H < 1 || g.X < 0 || g.X+g.W > len(taken) {
			t.Errorf("%s: lies beyond the grid", where)
			continue
		}
		for x := g.X; x < g.X+g.W; x++ {
			if taken[x] > g.Y {
				t.Errorf("%s: lies on another", where)
			}
			taken[x] = g.Y + g.H
		}
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
		refs := make(map[string]bool)
		for _, target := range p.Targets {
			checkDatasource(t, where, target.Datasource)
			if refs[target.RefID] {
				t.Errorf("%s: two queries %s", where, target.RefID)
			}
			refs[target.RefID] = true
		}
	}
}

func checkDatasource(t *testing.T, where string, d datasource) {
	t.Helper()
	if d != (datasource{"prometheus", "${datasource}"}) {
		t.Errorf("%s: its data source is %v, expected ${datasource}", where, d)
	}
}

// TestDashboardQueries: every query is PromQL about metrics and labels that there
// are, whatever is chosen.
func TestDashboardQueries(t *testing.T) {
	known := knownMetrics(t)
	several := []string{"a.b", "c|d"}
	for _, d := range readDashboards(t) {
		chosen := make(map[string][]string)
		one := make(map[string][]string)
		for _, v := range d.Templating.List {
			if v.Type != "query" {
				continue
			}
			one[v.Name] = several[:1]
			if chosen[v.Name] = several[:1]; v.Multi {
				chosen[v.Name] = several
			}
		}
		for _, q := range d.queries(t) {
			for _, values := range []map[string][]string{one, chosen, {"model": {"m"}, "window": {"256"}}} {
				checkQuery(t, q.where, interpolate(q.expr, d.values(values)), known)
			}
		}
	}
}

// emptyWhileHealthy are the queries without data while all is well, and why.
var emptyWhileHealthy = map[string]string{
	`serving.json: panel "Refused for lack of room" A`: "there was room",
	`triage.json: panel "Refused inputs" A`:            "none was refused",
}

// aboutTheTrouble are the alerts that come of what the test does. Most still wait:
// it has not been going on for long.
var aboutTheTrouble = []string{
	"CkdDeferralRateHigh", // of what the model does not know, and of identical passes
	"CkdDrift", "CkdDegeneratePasses", "CkdCalibrationMismatch", "CkdInputsRejected", "CkdOverloaded", "CkdPolicyReloadFailed",
}

// noNamespace is why the variable has no values here: no target has the label,
// which Kubernetes gives.
func noNamespace(where string) bool { return strings.HasSuffix(where, `variable "namespace"`) }

// TestDashboardsShow: a Prometheus that scrapes two daemons, one after the other
// well and in trouble, has data for every query of every dashboard and rule, and
// the alerts are about the trouble alone.
func TestDashboardsShow(t *testing.T) {
	binary := testbed.Program(t, "prometheus", "PROMETHEUS")
	policies := t.TempDir()
	calibrate(t, policies, "digits", "digits-id", "low-rank", "--classes", "zero,one,two,three,four,five,six", "--critical", "three,five")
	calibrate(t, policies, "heart", "ctg-mcdropout", "mc-dropout", "--classes", "normal,suspect,pathologic", "--critical", "suspect,pathologic")
	for _, name := range []string{"digits.yaml", "heart.yaml"} {
		settleAll(t, filepath.Join(policies, name), 0.5, 0.9)
	}
	cert, key := certificate(t)

	// Two of the seven digits share a label.
	start := exec.Command(ckd, "serve", "--listen", "127.0.0.1:0", "--admin", "127.0.0.1:0", "--policy", policies, "--class-labels", "5")
	start.Env = append(os.Environ(), "GOMEMLIMIT=1GiB")
	plain := testbed.Start(t, start, 1)
	encrypted := testbed.Serve(t, ckd, "--policy", policies, "--class-labels", "5",
		"--tls-cert", cert, "--tls-key", key, "--max-open-bytes", "1048576")
	p := testbed.StartPrometheus(t, binary, prometheusConfig(t, foreign(t), plain, encrypted))
	await(t, p, "count(ckd_build_info) == 2") // every counter is scraped at 0

	send := func(d *testbed.Daemon, model, passes string, flags ...string) testbed.Result {
		t.Helper()
		args := append([]string{"replay", "--addr", d.GRPC[0], "--model", model, "--passes", passes, "--quiet"}, flags...)
		if d == encrypted {
			args = append(args, "--tls-ca", cert)
		}
		return testbed.Run(t, exec.CommandContext(t.Context(), ckd, args...))
	}
	digits, heart := recording("digits-id"), shuffled(t, recording("ctg-mcdropout"))
	for _, r := range []testbed.Result{
		send(plain, "digits", digits, "--posterior", "low-rank"),
		send(plain, "heart", heart, "--posterior", "mc-dropout"),
		send(encrypted, "digits", digits, "--posterior", "low-rank", "--unary"),
		send(encrypted, "heart", heart, "--posterior", "mc-dropout", "--unary"),
	} {
		if r.Code != 0 {
			t.Fatalf("replay: exit %d\n%s", r.Code, r.Stderr)
		}
	}
	at := p.Scraped(time.Now())
	checkShares(t, p, at, 1e-9, slices.Concat(deferralShares, otherShares))
	sendSettling(t, plain, "digits", digits, audit.DefaultFirst)
	sendSettling(t, plain, "digits", digits, 0)
	at = p.Scraped(time.Now())
	empty := checkShown(t, p, at)
	if want := slices.Sorted(maps.Keys(emptyWhileHealthy)); !slices.Equal(empty, want) {
		t.Errorf("while all is well there is no data for\n%s\nexpected for\n%s", strings.Join(empty, "\n"), strings.Join(want, "\n"))
	}
	if active := p.Query(`ALERTS`, at); len(active) > 0 {
		t.Errorf("while all is well there are the alerts %v", active)
	}
	checkForeign(t, p, at)
	checkShares(t, p, at, 1e-9, settlingShares)

	// Inputs that the model does not know, and some that are not as they should be.
	send(plain, "digits", recording("digits-ood"), "--posterior", "low-rank")
	send(plain, "digits", changed(t, digits, func(passes, _ int, values []float32) {
		for i := range values {
			values[i] = values[i%(len(values)/passes)] // the first pass again
		}
	}), "--posterior", "low-rank")
	send(plain, "digits", changed(t, digits, func(passes, inputs int, values []float32) {
		classes := len(values) / passes / inputs
		for n := range inputs / 2 {
			values[n*classes] = float32(math.NaN()) // of the first pass
		}
	}), "--posterior", "low-rank")
	send(plain, "heart", heart, "--posterior", "deep-ensemble")
	send(encrypted, "digits", digits, "--posterior", "low-rank", "--unary", "--batch", "506", "--in-flight", "506")
	// A new policy, and then one with a fault.
	replaceInFile(t, filepath.Join(policies, "heart.yaml"), "reliability_threshold: 0.3", "reliability_threshold: 0.25")
	await(t, p, `count(ckd_policy_info{model="heart"} unless ckd_policy_info{model="heart"} offset 1m) > 0 and on () count(count by (hash) (last_over_time(ckd_policy_info{model="heart"}[5m]))) == 2`)
	replaceInFile(t, filepath.Join(policies, "heart.yaml"), "classes: [normal,", "classes: [normal, normal,")
	await(t, p, `sum(ckd_policy_last_reload_successful) == 0`)
	at = p.Scraped(time.Now())
	if empty := checkShown(t, p, at); len(empty) > 0 {
		t.Errorf("there is no data for\n%s", strings.Join(empty, "\n"))
	}
	for _, alert := range aboutTheTrouble {
		await(t, p, fmt.Sprintf(`ALERTS{alertname=%q}`, alert))
	}
	for _, active := range p.Query(`ALERTS`, "") {
		// How many passes are under way when their input is refused is up to the machine.
		if name := string(active.Metric["alertname"]); name != "CkdPassesLate" && !slices.Contains(aboutTheTrouble, name) {
			t.Errorf("an alert that is not about the trouble: %v", active)
		}
	}
	checkRulesRun(t, p)

	// What a policy without thresholds answers is no part of the deferral rate.
	observe(t, filepath.Join(policies, "heart.yaml"))
	await(t, p, `sum(ckd_policy_last_reload_successful) == 2`)
	send(plain, "heart", heart, "--posterior", "mc-dropout")
	at = p.Scraped(time.Now())
	if observed := p.Query(`sum(ckd_decisions_total{action="observe"}) > 1000`, at); len(observed) == 0 {
		t.Error("no inputs are observed")
	}
	checkShares(t, p, at, 0.02, deferralShares)
}

// checkShown asks all queries of all dashboards, with everything chosen and with
// one of each. It returns those for which there is no data.
func checkShown(t *testing.T, p *testbed.Prometheus, at string) (empty []string) {
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
						t.Errorf("%s: its legend names %q, which no series has: %v", q.where, name, found[0].Metric)
					}
				}
			}
			if none && !noNamespace(q.where) {
				empty = append(empty, q.where)
			}
		}
	}
	slices.Sort(empty)
	return empty
}

// share that a panel shows of a model, and the counters that it is made of.
type share struct{ file, title, model, want string }

const heartDeferred = `sum(ckd_decisions_total{model="heart", action="defer"}) / sum(ckd_decisions_total{model="heart", action=~"retain|defer"})`

var deferralShares = []share{
	{"triage.json", "Deferred", "heart", heartDeferred},
	{"triage.json", "Deferral rate and what calibration expects", "heart", heartDeferred},
}

var otherShares = []share{
	{"triage.json", "Decided by the fallback score", "heart", `sum(ckd_decisions_total{model="heart", score="cbec"}) / sum(ckd_decisions_total{model="heart"})`},
	// Two digits share the label.
	{"classes.json", "Unreliable", "digits", `sum(ckd_class_unreliable_total{model="digits", class="other"}) / sum(ckd_decisions_total{model="digits"}) / max(ckd_class_labels_cut{model="digits"})`},
	{"classes.json", "Predicted", "digits", `sum(ckd_class_predicted_total{model="digits", class="other"}) / sum(ckd_decisions_total{model="digits"})`},
	{"classes.json", "C_k: mean", "digits", `sum(ckd_class_epistemic_nats_sum{model="digits", class="other"}) / sum(ckd_decisions_total{model="digits"}) / max(ckd_class_labels_cut{model="digits"})`},
}

var settlingShares = []share{
	{"triage.json", "Passes used", "digits", `sum(ckd_passes_used_sum{model="digits"}) / sum(ckd_passes_used_count{model="digits"})`},
	{"triage.json", "Evidence against the certificate", "digits", `max(ckd_settle_evidence{model="digits"}) / 50000`},
}

// checkShares holds some panels against the counters that they are made of, which
// began at 0 within the time that the panels look back. What rate adds beyond the
// samples is the same for all only where replicas and series are alike: hence tolerance.
func checkShares(t *testing.T, p *testbed.Prometheus, at string, tolerance float64, shares []share) {
	t.Helper()
	number := func(query string) float64 {
		t.Helper()
		found := p.Query(query, at)
		if len(found) != 1 {
			t.Fatalf("%s\nreturns %v, expected one value", query, found)
		}
		return float64(found[0].Value)
	}
	shown := func(file, title, ref, of string) float64 {
		t.Helper()
		for _, d := range readDashboards(t) {
			for _, q := range d.queries(t) {
				if q.where == fmt.Sprintf("%s: panel %q %s", file, title, ref) {
					model := map[string][]string{"model": {of}, "class": {"other"}}
					return number(interpolate(q.expr, d.values(d.choose(t, p, at, model))))
				}
			}
		}
		t.Fatalf("%s has no panel %q", file, title)
		return 0
	}
	for _, share := range shares {
		got, want := shown(share.file, share.title, "A", share.model), number(share.want)
		if !(want > 0 && math.Abs(got-want) <= tolerance*want) {
			t.Errorf("%s: %s shows %v, expected %v", share.file, share.title, got, want)
		}
	}
}

// checkForeign: what is not a ckd makes no difference to any panel, whatever job it is
// of. One that is down is not one that has gone.
func checkForeign(t *testing.T, p *testbed.Prometheus, at string) {
	t.Helper()
	var own []string
	for _, sample := range p.Query("ckd_build_info", at) {
		own = append(own, regexp.QuoteMeta(string(sample.Metric["instance"])))
	}
	ckds := labels.MustNewMatcher(labels.MatchRegexp, "instance", strings.Join(own, "|"))
	if others := p.Query(fmt.Sprintf(`count by (job) (up{instance!~%q})`, ckds.Value), at); len(others) != 2 {
		t.Fatalf("%v targets that are not a ckd, expected some of two jobs", others)
	}
	for _, d := range readDashboards(t) {
		for _, q := range d.queries(t) {
			query := interpolate(q.expr, d.values(d.choose(t, p, at, map[string][]string{})))
			expr, err := parsePromQL(query)
			if err != nil {
				t.Fatalf("%s: %v", q.where, err)
			}
			parser.Inspect(expr, func(node parser.Node, _ []parser.Node) error {
				if selector, is := node.(*parser.VectorSelector); is {
					selector.LabelMatchers = append(selector.LabelMatchers, ckds)
				}
				return nil
			})
			if got, want := shownValues(p.Query(query, at)), shownValues(p.Query(expr.String(), at)); !maps.EqualFunc(got, want, closeTo) {
				t.Errorf("%s: with what is not a ckd %v, without %v", q.where, got, want)
			}
		}
	}
}

func shownValues(of model.Vector) map[string]float64 {
	values := make(map[string]float64, len(of))
	for _, sample := range of {
		values[sample.Metric.String()] = float64(sample.Value)
	}
	return values
}

// closeTo allows for another order of summation.
func closeTo(a, b float64) bool {
	return a == b || math.Abs(a-b) <= 1e-9*math.Abs(b) || a != a && b != b
}

// foreign is the addresses of two targets that are not a ckd: one has the metrics that
// any Go server with gRPC has, and grows; the other is down.
func foreign(t *testing.T) []string {
	t.Helper()
	var scrapes atomic.Int64
	server := httptest.NewServer(http.HandlerFunc(func(w http.ResponseWriter, _ *http.Request) {
		value := 1_000_000 * scrapes.Add(1)
		for _, name := range slices.Sorted(maps.Keys(otherMetrics)) {
			if name == "up" {
				continue
			}
			set := map[string]string{"grpc_type": "unary", "grpc_service": "other.Service", "grpc_method": "Other", "grpc_code": "OK", "le": "+Inf"}
			var pairs []string
			for _, label := range otherMetrics[name] {
				pairs = append(pairs, fmt.Sprintf("%s=%q", label, set[label]))
			}
			fmt.Fprintf(w, "%s{%s} %d\n", name, strings.Join(pairs, ","), value)
		}
	}))
	t.Cleanup(server.Close)
	down := httptest.NewServer(http.NotFoundHandler())
	t.Cleanup(down.Close)
	return []string{server.Listener.Addr().String(), down.Listener.Addr().String()}
}

// checkRulesRun: Prometheus evaluates every rule, and has what is recorded.
func checkRulesRun(t *testing.T, p *testbed.Prometheus) {
	t.Helper()
	_, body, err := p.Get("/api/v1/rules")
	if err != nil {
		t.Fatal(err)
	}
	var reply struct {
		Data struct {
			Groups []struct {
				Rules []struct{ Name, Health, LastError string }
			}
		}
	}
	if err := json.Unmarshal(body, &reply); err != nil {
		t.Fatal(err)
	}
	healthy := make(map[string]bool)
	for _, g := range reply.Data.Groups {
		for _, r := range g.Rules {
			if healthy[r.Name] = r.Health == "ok"; !healthy[r.Name] {
				t.Errorf("rule %s: %s %s", r.Name, r.Health, r.LastError)
			}
		}
	}
	for _, r := range append(readRules(t, "recording.yaml"), readRules(t, "alerts.yaml")...) {
		if !healthy[r.name()] {
			t.Errorf("rule %s: Prometheus has not evaluated it", r.name())
		}
		if r.Record != "" && len(p.Query(r.Record, "")) == 0 {
			t.Errorf("rule %s: there is no data", r.Record)
		}
	}
}

// await waits until a query returns something.
func await(t *testing.T, p *testbed.Prometheus, query string) {
	t.Helper()
	for range 300 {
		if len(p.Query(query, "")) > 0 {
			return
		}
		time.Sleep(100 * time.Millisecond)
	}
	t.Fatalf("after 30 s there is still nothing for %s", query)
}

func recording(name string) string {
	return filepath.Join("..", "..", "internal", "recordings", name+".passes.npy")
}

// calibrate writes the policy NAME.yaml to a folder.
func calibrate(t *testing.T, folder, name, from, posterior string, flags ...string) {
	t.Helper()
	labels := strings.Replace(recording(from), ".passes.", ".labels.", 1)
	args := append([]string{"calibrate", "--passes", recording(from), "--labels", labels, "--name", name, "--posterior", posterior,
		"--coverage", "0.8", "--out", filepath.Join(folder, name+".yaml")}, flags...)
	if r := testbed.Run(t, exec.CommandContext(t.Context(), ckd, args...)); r.Code != 0 {
		t.Fatalf("calibrate: exit %d\n%s", r.Code, r.Stderr)
	}
}

// changed is a copy of a recording of float32 [passes][inputs][classes] with other
// values.
func changed(t *testing.T, path string, change func(passes, inputs int, values []float32)) string {
	t.Helper()
	content, err := os.ReadFile(path)
	if err != nil {
		t.Fatal(err)
	}
	header := 10 + int(binary.LittleEndian.Uint16(content[8:])) // of .npy, version 1
	var passes, inputs, classes int
	shape := content[bytes.IndexByte(content, '('):header]
	if _, err := fmt.Sscanf(string(shape), "(%d, %d, %d)", &passes, &inputs, &classes); err != nil {
		t.Fatalf("%s: shape %s: %v", path, shape, err)
	}
	values := make([]float32, passes*inputs*classes)
	if err := binary.Read(bytes.NewReader(content[header:]), binary.LittleEndian, values); err != nil {
		t.Fatal(err)
	}
	change(passes, inputs, values)
	copied := bytes.NewBuffer(content[:header:header])
	if err := binary.Write(copied, binary.LittleEndian, values); err != nil {
		t.Fatal(err)
	}
	to := filepath.Join(t.TempDir(), "changed.npy")
	if err := os.WriteFile(to, copied.Bytes(), 0o600); err != nil {
		t.Fatal(err)
	}
	return to
}

// shuffled is a recording in another order. Those of fetal hearts are in the order in
// which they were taken, like with like, and that is drift.
func shuffled(t *testing.T, path string) string {
	t.Helper()
	return changed(t, path, func(passes, inputs int, values []float32) {
		classes := len(values) / passes / inputs
		row := func(s, n int) []float32 { return values[(s*inputs+n)*classes:][:classes] }
		mathrand.New(mathrand.NewPCG(1, 2)).Shuffle(inputs, func(i, j int) {
			for s := range passes {
				for k := range classes {
					row(s, i)[k], row(s, j)[k] = row(s, j)[k], row(s, i)[k]
				}
			}
		})
	})
}

// observe takes a policy of heart traces off its thresholds.
func observe(t *testing.T, path string) {
	t.Helper()
	text, err := os.ReadFile(path)
	if err != nil {
		t.Fatal(err)
	}
	passes := regexp.MustCompile(`(?m)^    passes: .*$`).Find(text)
	if passes == nil {
		t.Fatalf("%s does not tell the passes", path)
	}
	observing := "models:\n  - name: heart\n    classes: [normal, suspect, pathologic]\n    critical: [suspect, pathologic]\n" + string(passes) + "\n"
	if err := os.WriteFile(path, []byte(observing), 0o600); err != nil {
		t.Fatal(err)
	}
}

func replaceInFile(t *testing.T, path, old, replacement string) {
	t.Helper()
	text, err := os.ReadFile(path)
	if err != nil {
		t.Fatal(err)
	}
	if strings.Count(string(text), old) != 1 {
		t.Fatalf("%s does not have %q once", path, old)
	}
	if err := os.WriteFile(path, []byte(strings.Replace(string(text), old, replacement, 1)), 0o600); err != nil {
		t.Fatal(err)
	}
}

// prometheusConfig scrapes the daemons, in one job with targets that are foreign, and
// these as a job of their own, and has the rules.
func prometheusConfig(t *testing.T, foreign []string, daemons ...*testbed.Daemon) string {
	t.Helper()
	rules, err := filepath.Abs(rulesFolder)
	if err != nil {
		t.Fatal(err)
	}
	targets := slices.Clone(foreign)
	for _, d := range daemons {
		targets = append(targets, strings.TrimPrefix(d.Admin, "http://"))
	}
	config, err := json.Marshal(map[string]any{ // which is YAML
		"global":     map[string]any{"scrape_interval": "1s", "evaluation_interval": "1s"},
		"rule_files": []string{filepath.Join(rules, "recording.yaml"), filepath.Join(rules, "alerts.yaml")},
		"scrape_configs": []any{map[string]any{
			"job_name":       "ckd",
			"static_configs": []any{map[string]any{"targets": targets}},
		}, map[string]any{
			"job_name":       "other",
			"static_configs": []any{map[string]any{"targets": foreign}},
		}},
	})
	if err != nil {
		t.Fatal(err)
	}
	path := filepath.Join(t.TempDir(), "prometheus.yaml")
	if err := os.WriteFile(path, config, 0o600); err != nil {
		t.Fatal(err)
	}
	return path
}

// certificate makes one for this machine, good for 60 days.
func certificate(t *testing.T) (certFile, keyFile string) {
	t.Helper()
	key, err := ecdsa.GenerateKey(elliptic.P256(), rand.Reader)
	if err != nil {
		t.Fatal(err)
	}
	now := time.Now()
	template := &x509.Certificate{
		SerialNumber: big.NewInt(1), NotBefore: now.Add(-time.Hour), NotAfter: now.Add(60 * 24 * time.Hour),
		IPAddresses: []net.IP{net.IPv4(127, 0, 0, 1)}, IsCA: true, BasicConstraintsValid: true,
		KeyUsage: x509.KeyUsageDigitalSignature | x509.KeyUsageCertSign,
	}
	cert, err := x509.CreateCertificate(rand.Reader, template, template, &key.PublicKey, key)
	if err != nil {
		t.Fatal(err)
	}
	secret, err := x509.MarshalPKCS8PrivateKey(key)
	if err != nil {
		t.Fatal(err)
	}
	folder := t.TempDir()
	certFile, keyFile = filepath.Join(folder, "cert.pem"), filepath.Join(folder, "key.pem")
	for file, block := range map[string]*pem.Block{
		certFile: {Type: "CERTIFICATE", Bytes: cert},
		keyFile:  {Type: "PRIVATE KEY", Bytes: secret},
	} {
		if err := os.WriteFile(file, pem.EncodeToMemory(block), 0o600); err != nil {
			t.Fatal(err)
		}
	}
	return certFile, keyFile
}

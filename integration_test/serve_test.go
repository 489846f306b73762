package integration_test

import (
	"bytes"
	"encoding/json"
	"fmt"
	"math"
	"net"
	"os"
	"os/exec"
	"path/filepath"
	"strings"
	"testing"

	dto "github.com/prometheus/client_model/go"
	"github.com/prometheus/common/expfmt"
	"github.com/prometheus/common/model"

	"github.com/ckd-project/ckd/integration_test/testbed"
)

// TestMetrics: after a replay the daemon's metrics say what the recording does.
func TestMetrics(t *testing.T) {
	t.Parallel()
	d := serve(t, "--policy", writePolicy(t, policyText))
	replayed := lines(t, mustRun(t, "replay", "--addr", d.GRPC[0], "--model", "fetal-health",
		"--passes", recording("ctg-mcdropout", ".passes.npy")).Stdout)

	deferred, unreliable, sumMI := 0.0, [3]float64{}, 0.0
	for _, l := range replayed {
		line := l.(map[string]any)
		if line["decision"].(map[string]any)["action"] == "defer" {
			deferred++
		}
		sumMI += line["mi"].(float64)
		for k, s := range line["skewness"].([]any) {
			if s.(float64) > 0.3 {
				unreliable[k]++
			}
		}
	}
	_, text, contentType := d.Get("/metrics")
	if !strings.HasPrefix(contentType, "text/plain") {
		t.Errorf("content type %q", contentType)
	}
	families := parse(t, text)
	check := func(want float64, name string, labels ...string) {
		t.Helper()
		if got := sum(families[name], labels...); math.Abs(got-want) > 1e-9*math.Abs(want) {
			t.Errorf("%s%v is %v, want %v", name, labels, got, want)
		}
	}
	check(2126, "ckd_decisions_total", "model", "fetal-health")
	check(deferred, "ckd_decisions_total", "action", "defer")
	check(sum(families["ckd_decisions_total"], "score", "cbec"), "ckd_inputs_fallback_total", "model", "fetal-health")
	check(2126*30, "ckd_passes_total", "model", "fetal-health")
	for k, class := range []string{"normal", "suspect", "pathologic"} {
		check(unreliable[k], "ckd_class_unreliable_total", "class", class)
		check(2126, "ckd_class_epistemic_nats", "class", class)
	}
	check(0, "ckd_inputs_open")
	check(0, "ckd_inputs_rejected_total")
	check(1, "ckd_policy_info", "model", "fetal-health", "version", "integration")
	check(1, "ckd_build_info")
	check(1, "grpc_server_handled_total", "grpc_method", "DecomposeStream", "grpc_code", "OK")
	if got := families["ckd_mutual_information_nats"].GetMetric()[0].GetHistogram().GetSampleSum(); math.Abs(got-sumMI) > 1e-9*sumMI {
		t.Errorf("sum of MI %v, want %v", got, sumMI)
	}
	// Shares of 2126 inputs, from the golden evaluation of this recording.
	for pair, want := range map[[2]string]float64{
		{"normal", "suspect"}: 0.007121379292345986, {"normal", "pathologic"}: 0.00674562427814097,
	} {
		check(2126*want, "ckd_pair_confusion_nats_total", "class_a", pair[0], "class_b", pair[1])
	}

	// The other two formats: OpenMetrics, and protobuf with native histograms.
	if _, body, contentType := d.Get("/metrics", "Accept", "application/openmetrics-text; version=1.0.0"); !strings.HasPrefix(contentType, "application/openmetrics-text") ||
		!strings.HasSuffix(strings.TrimSpace(body), "# EOF") {
		t.Errorf("OpenMetrics: content type %q", contentType)
	}
	const protobuf = "application/vnd.google.protobuf;proto=io.prometheus.client.MetricFamily;encoding=delimited"
	_, body, contentType := d.Get("/metrics", "Accept", protobuf)
	if !strings.HasPrefix(contentType, "application/vnd.google.protobuf") {
		t.Fatalf("protobuf: content type %q", contentType)
	}
	decoder := expfmt.NewDecoder(bytes.NewReader([]byte(body)), expfmt.NewFormat(expfmt.TypeProtoDelim))
	native, classic := 0, 0
	for {
		var family dto.MetricFamily
		if decoder.Decode(&family) != nil {
			break
		}
		if !strings.HasPrefix(family.GetName(), "ckd_class_epistemic_nats") {
			continue
		}
		for _, m := range family.GetMetric() {
			native += len(m.GetHistogram().GetPositiveSpan())
			classic += len(m.GetHistogram().GetBucket())
		}
	}
	if native == 0 || classic == 0 || classic > 3*12 {
		t.Errorf("%d spans of native histograms, %d classic buckets", native, classic)
	}
}

// sum of a family's values (counts, of histograms) with the given labels.
func sum(family *dto.MetricFamily, labels ...string) float64 {
	total := 0.0
series:
	for _, m := range family.GetMetric() {
		for i := 0; i < len(labels); i += 2 {
			found := false
			for _, l := range m.GetLabel() {
				found = found || l.GetName() == labels[i] && l.GetValue() == labels[i+1]
			}
			if !found {
				continue series
			}
		}
		total += m.GetCounter().GetValue() + m.GetGauge().GetValue() + float64(m.GetHistogram().GetSampleCount())
	}
	return total
}

// TestProbes and the command that asks them.
func TestProbes(t *testing.T) {
	t.Parallel()
	d := serve(t, "--policy", writePolicy(t, policyText))
	for path, want := range map[string]string{"/livez": "ok\n", "/readyz": "ok\n", "/healthz": "model fetal-health"} {
		if code, body, _ := d.Get(path); code != 200 || !strings.Contains(body, want) {
			t.Errorf("%s: %d %q", path, code, body)
		}
	}
	if code, _, _ := d.Get("/nothing"); code != 404 {
		t.Errorf("/nothing: %d", code)
	}
	mustRun(t, "healthcheck", "--admin", strings.TrimPrefix(d.Admin, "http://"))
	d.Stop()
	if r := run(t, "healthcheck", "--admin", strings.TrimPrefix(d.Admin, "http://")); r.Code != 1 {
		t.Errorf("a daemon that is gone is healthy: exit %d", r.Code)
	}
}

// TestFailClosed: a daemon that cannot start says why, and its exit code says
// that it did not.
func TestFailClosed(t *testing.T) {
	t.Parallel()
	taken, err := net.Listen("tcp", "127.0.0.1:0")
	if err != nil {
		t.Fatal(err)
	}
	defer taken.Close()
	good := writePolicy(t, policyText)
	bad := writePolicy(t, strings.Replace(policyText, "c_crit_max", "c_crit_min", 1))
	settings := filepath.Join(t.TempDir(), "ckd.yaml")
	if err := os.WriteFile(settings, []byte("policy: [x]\nmax-streams: many\nlisten: {a: b}\nmax-stream: 5\n"), 0o600); err != nil {
		t.Fatal(err)
	}
	for name, c := range map[string]struct {
		args []string
		code int
		want []string
	}{
		"no policy":        {[]string{"serve"}, 2, []string{"policy"}},
		"bad policy":       {[]string{"serve", "--policy", bad}, 1, []string{bad + ":8:22", `model "fetal-health"`, "c_crit_min"}},
		"no such file":     {[]string{"serve", "--policy", "nowhere.yaml"}, 1, []string{"nowhere.yaml", "no such file"}},
		"taken port":       {[]string{"serve", "--policy", good, "--listen", taken.Addr().String()}, 1, []string{taken.Addr().String(), "in use"}},
		"taken admin port": {[]string{"serve", "--policy", good, "--listen", "127.0.0.1:0", "--admin", taken.Addr().String()}, 1, []string{"admin", "in use"}},
		"no address":       {[]string{"serve", "--policy", good, "--listen", "here"}, 2, []string{"HOST:PORT"}},
		"limit":            {[]string{"serve", "--policy", good, "--max-streams", "0"}, 2, []string{"max-streams: 0, expected 1 to"}},
		"unknown flag":     {[]string{"serve", "--polcy", good}, 2, []string{"--polcy"}},
		"bad settings": {[]string{"serve", "--config", settings}, 2, []string{
			settings + ":2:14: max-streams", settings + ":3:9: listen", settings + ":4:1: max-stream",
		}},
	} {
		t.Run(name, func(t *testing.T) {
			r := run(t, c.args...)
			if r.Code != c.code {
				t.Errorf("exit %d, want %d: %s", r.Code, c.code, r.Stderr)
			}
			for _, part := range c.want {
				if !strings.Contains(r.Stderr, part) {
					t.Errorf("standard error lacks %q:\n%s", part, r.Stderr)
				}
			}
		})
	}
}

// TestSettings: a flag wins over the environment, the environment over the
// file, the file over the default.
func TestSettings(t *testing.T) {
	t.Parallel()
	dir := t.TempDir()
	settings := filepath.Join(dir, "ckd.yaml")
	text := fmt.Sprintf("policy:\n  - %q\nmax-open-inputs: 11\nmax-passes: 22\nmax-id-bytes: 33\n", writePolicy(t, policyText))
	if err := os.WriteFile(settings, []byte(text), 0o600); err != nil {
		t.Fatal(err)
	}
	command := exec.Command(ckd, "serve", "--listen", "127.0.0.1:0", "--admin", "127.0.0.1:0", "--config", settings, "--max-id-bytes", "66")
	command.Env = append(os.Environ(), "CKD_MAX_PASSES=44", "CKD_MAX_ID_BYTES=55")
	d := testbed.Start(t, command, 1)
	limits := streamInfo(t, d.GRPC[0]).GetLimits()
	if limits.GetOpenInputsPerStream() != 11 || limits.GetPassesPerInput() != 44 || limits.GetInputIdBytes() != 66 {
		t.Errorf("limits %v", limits)
	}
}

// TestStaleSocket: what a killed daemon leaves behind does not keep the next
// one from starting; a live one does.
func TestStaleSocket(t *testing.T) {
	t.Parallel()
	policy := writePolicy(t, policyText)
	socket := filepath.Join(t.TempDir(), "ckd.sock")
	first := serveOn(t, "unix:"+socket, "--policy", policy)
	if r := run(t, "serve", "--policy", policy, "--admin", "off", "--listen", "unix:"+socket); r.Code != 1 || !strings.Contains(r.Stderr, "in use") {
		t.Errorf("a second daemon on the socket of the first: exit %d: %s", r.Code, r.Stderr)
	}
	if err := first.Process.Process.Kill(); err != nil {
		t.Fatal(err)
	}
	<-first.Exited
	if _, err := os.Stat(socket); err != nil {
		t.Fatalf("the killed daemon left no socket: %v", err)
	}
	if code := serveOn(t, "unix:"+socket, "--policy", policy).Stop(); code != 0 {
		t.Errorf("exit %d", code)
	}
}

// TestDemo: what the demo prints as JSON is complete and consistent.
func TestDemo(t *testing.T) {
	t.Parallel()
	r := mustRun(t, "demo", "--json")
	var report struct {
		Inputs, Retained, Deferred, Fallback int
		Classes                              []struct {
			Name   string
			MeanC  float64 `json:"mean_c"`
			Unrel  float64 `json:"unreliable_share"`
			Domin  float64 `json:"dominant_share"`
			Critic bool    `json:"critical"`
		}
		Rules []struct {
			Name     string
			Retained int
			Accuracy float64
			FNR      float64 `json:"critical_fnr"`
			Missed   int     `json:"critical_missed"`
			Critical int     `json:"critical_retained"`
		}
		Top []struct {
			Input  string
			C      []float64
			Reason string
		} `json:"top_deferred"`
		Addresses struct{ API, Metrics string }
	}
	if err := json.Unmarshal([]byte(r.Stdout), &report); err != nil {
		t.Fatal(err)
	}
	if report.Inputs != 1063 || report.Retained+report.Deferred != 1063 || len(report.Classes) != 3 || len(report.Rules) != 3 || len(report.Top) != 5 {
		t.Fatalf("report %+v", report)
	}
	none, mi, ours := report.Rules[0], report.Rules[1], report.Rules[2]
	if none.Retained != 1063 || mi.Retained != ours.Retained || ours.Retained != report.Retained {
		t.Errorf("retained %d, %d, %d", none.Retained, mi.Retained, ours.Retained)
	}
	if !(ours.FNR < mi.FNR && ours.FNR < none.FNR) {
		t.Errorf("critical FNR: ckd %v, MI %v, no deferral %v", ours.FNR, mi.FNR, none.FNR)
	}
	if !strings.HasPrefix(report.Addresses.Metrics, "http://127.0.0.1:") || !strings.HasPrefix(report.Addresses.API, "127.0.0.1:") {
		t.Errorf("addresses %+v", report.Addresses)
	}
	text := mustRun(t, "demo").Stdout
	for _, part := range []string{"pathologic (critical)", "mutual information alone", "no deferral", "█", report.Top[0].Input} {
		if !strings.Contains(text, part) {
			t.Errorf("the text lacks %q", part)
		}
	}
}

// parse reads the text format.
func parse(t *testing.T, text string) map[string]*dto.MetricFamily {
	t.Helper()
	parser := expfmt.NewTextParser(model.UTF8Validation)
	families, err := parser.TextToMetricFamilies(strings.NewReader(text))
	if err != nil {
		t.Fatal(err)
	}
	return families
}

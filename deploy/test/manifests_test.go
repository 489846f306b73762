package deploytest

import (
	"flag"
	"os"
	"path/filepath"
	"regexp"
	"strings"
	"testing"

	monitoring "github.com/prometheus-operator/prometheus-operator/pkg/apis/monitoring/v1"
	apps "k8s.io/api/apps/v1"
	core "k8s.io/api/core/v1"
)

var update = flag.Bool("update", false, "render the manifests of deploy/kubernetes anew")

// manifestForms lists the manifests for those without Helm: what the chart renders with these values.
// tail is what the chart leaves to the owner of a model server.
var manifestForms = map[string]struct{ head, values, tail string }{
	"sidecar.yaml": {`# A model server with ckd beside it, on a unix socket that only the pod reaches. Replace both images, the
# container "server" by your own, and the policy at the end. Both containers run as user 65532.
`, `
mode: sidecar
nameOverride: model-server
fullnameOverride: model-server
sidecar:
  container:
    name: server
    image: registry.example/model-server:1.0
    args: [--ckd=unix:/run/ckd/ckd.sock]
    ports: [{name: infer, containerPort: 8001}]
    resources: {requests: {cpu: "1", memory: 1Gi}, limits: {memory: 1Gi}}
    volumeMounts: [{name: tmp, mountPath: /tmp}]
  volumes: [{name: tmp, emptyDir: {}}]
settings: {max-streams: 16}
`, `---
# For callers of the model server. The annotations lead Prometheus to the metrics of ckd.
apiVersion: v1
kind: Service
metadata:
  name: model-server
  namespace: grading
  annotations: {prometheus.io/scrape: "true", prometheus.io/port: "9590"}
spec:
  selector: {app.kubernetes.io/name: model-server, app.kubernetes.io/instance: ckd}
  ports:
    - {name: infer, port: 8001, targetPort: infer}
`},
	"deployment.yaml": {`# Two replicas of ckd behind a headless Service. Replace the image, and the policy at the end. First make the
# Secret ckd-tls, of type kubernetes.io/tls, for the name ckd.grading.svc. Pods of the namespace with the
# label ckd/client: "true" may call.
`, `
tls: {existingSecret: ckd-tls}
service: {annotations: {prometheus.io/scrape: "true", prometheus.io/port: "9590"}}
`, ""},
}

// manifestPolicy observes, as a first policy should.
const manifestPolicy = `---
# The policies. The daemon takes a change within about a minute, without a restart.
apiVersion: v1
kind: ConfigMap
metadata:
  name: ckd-policies
  namespace: grading
data:
  fetal-health.yaml: |
    models:
      - name: fetal-health
        version: "1"
        classes: [normal, suspect, pathologic]
        critical: [suspect, pathologic]
        passes: {fewest: 10, expected: 30}
        # Without thresholds this policy observes: the action is observe, nothing is retained, all is counted.
        # Keep your own rule until ckd calibrate writes thresholds.
`

// helmsOwn matches what a rendering says of Helm and its chart, and the checksum by which an upgrade
// restarts pods.
var helmsOwn = regexp.MustCompile(`(?m)^(# Source: .*| +app\.kubernetes\.io/(managed-by|version): .*| +helm\.sh/chart: .*` +
	`| +annotations:\n +# Only changed settings.*\n +checksum/settings: .*| +# Without the versions of chart and app.*)\n`)

// TestManifestOfRules checks that deploy/kubernetes/prometheusrule.yaml is what the chart renders, with every alert.
func TestManifestOfRules(t *testing.T) {
	t.Parallel()
	got := renderManifest(t, "prometheusrule.yaml", `# The rules of deploy/prometheus/rules for the Prometheus operator. Add the label by which your Prometheus selects.
`, "prometheusRule: {enabled: true}\n", "--show-only", "templates/rules.yaml")
	alerts := 0
	for _, g := range onlyObject[*monitoring.PrometheusRule](t, decodeManifests(t, got)).Spec.Groups {
		for _, r := range g.Rules {
			if r.Alert != "" {
				alerts++
			}
		}
	}
	if want := len(readRules(t, "alerts.yaml")); alerts != want {
		t.Errorf("%d alerts, want %d", alerts, want)
	}
}

// TestManifestOfMetrics checks that deploy/kubernetes/podmonitor.yaml is what the chart renders, and finds the
// port of the sidecar.
func TestManifestOfMetrics(t *testing.T) {
	t.Parallel()
	got := renderManifest(t, "podmonitor.yaml", `# The Prometheus operator finds the sidecars of the namespace by their label, and sets the label namespace that
# the rules need. Add the label by which your Prometheus selects.
`, manifestForms["sidecar.yaml"].values+"podMonitor: {enabled: true}\n", "--show-only", "templates/monitors.yaml")
	all := append(decodeManifests(t, getFile(t, "../kubernetes/sidecar.yaml")), decodeManifests(t, got)...)
	checkMonitors(t, all, podsOf(all))
	if len(objectsOf[*monitoring.PodMonitor](all)) != 1 {
		t.Error("no PodMonitor")
	}
}

// renderManifest compares a file of deploy/kubernetes with a comment and what the chart renders, and returns it.
func renderManifest(t *testing.T, file, head, values string, flags ...string) string {
	t.Helper()
	r := helmTemplate(t, values, flags...)
	if r.Code != 0 {
		t.Fatal(r.Stderr)
	}
	return checkManifest(t, file, head+helmsOwn.ReplaceAllString(r.Stdout, ""))
}

// checkManifest compares a file of deploy/kubernetes with what it should be, and returns the file.
func checkManifest(t *testing.T, file, want string) string {
	t.Helper()
	want = "# Rendered from the chart by go generate ./deploy.\n" + want
	path := filepath.Join("../kubernetes", file)
	if *update {
		putFile(t, path, want)
		if err := os.Chmod(path, 0o644); err != nil {
			t.Fatal(err)
		}
	}
	got := getFile(t, path)
	if got != want {
		t.Errorf("%s is not what the chart renders: run go generate ./deploy", path)
	}
	if strings.Contains(strings.ToLower(got), "helm") {
		t.Error("it speaks of Helm")
	}
	return got
}

// TestSidecarWithoutReadiness renders a pod whose model server stays in its Service while ckd is not ready.
func TestSidecarWithoutReadiness(t *testing.T) {
	t.Parallel()
	r := renderChart(t, manifestForms["sidecar.yaml"].values+"readinessProbe: null\n")
	c := onlyObject[*apps.Deployment](t, r).Spec.Template.Spec.InitContainers[0]
	if c.ReadinessProbe != nil || c.StartupProbe == nil || c.LivenessProbe == nil {
		t.Errorf("probes %v, %v, %v, expected no readiness, startup and liveness", c.ReadinessProbe, c.StartupProbe, c.LivenessProbe)
	}
}

// TestManifests checks the manifests of deploy/kubernetes like the chart, and that they are what it
// renders. `go generate ./deploy` renders them anew.
func TestManifests(t *testing.T) {
	for file, form := range manifestForms {
		t.Run(file, func(t *testing.T) {
			r := helmTemplate(t, form.values+"policiesConfigMap: ckd-policies\nimage: {repository: registry.example/ckd, tag: \"1.2.3\"}\n", "--skip-tests")
			if r.Code != 0 {
				t.Fatal(r.Stderr)
			}
			got := checkManifest(t, file, form.head+"# Settings are read at the start: after a change of them, kubectl rollout restart.\n"+
				helmsOwn.ReplaceAllString(r.Stdout, "")+form.tail+manifestPolicy)
			all := decodeManifests(t, got)
			pods := podsOf(all)
			for _, p := range pods {
				checkPod(t, all, p)
			}
			checkDeployment(t, all)
			checkServices(t, all, pods)
			checkNetwork(t, all, pods)
			checkPolicies(t, all)
			if s := onlyObject[*core.Service](t, all); s.Annotations["prometheus.io/scrape"] != "true" || s.Annotations["prometheus.io/port"] != "9590" {
				t.Errorf("a Prometheus without operator does not find %s by %v", s.Name, s.Annotations)
			}
			if d := onlyObject[*apps.Deployment](t, all); len(pods) != 1 || *d.Spec.Replicas != 2 {
				t.Errorf("%d kinds of pods, %d replicas", len(pods), *d.Spec.Replicas)
			}
		})
	}
}

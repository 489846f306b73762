package deploytest

import (
	"bytes"
	"encoding/json"
	"fmt"
	"math"
	"os"
	"os/exec"
	"path/filepath"
	"reflect"
	"slices"
	"strconv"
	"strings"
	"testing"
	"time"

	"github.com/alecthomas/kong"
	monitoring "github.com/prometheus-operator/prometheus-operator/pkg/apis/monitoring/v1"
	apps "k8s.io/api/apps/v1"
	core "k8s.io/api/core/v1"
	networking "k8s.io/api/networking/v1"
	meta "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/runtime"
	"k8s.io/apimachinery/pkg/util/validation"
	"sigs.k8s.io/yaml"

	"github.com/ckd-project/ckd/integration_test/testbed"
	"github.com/ckd-project/ckd/internal/config"
)

const chart = "../helm/ckd"

// sidecarValues are a model server, as the values of mode sidecar have it.
const sidecarValues = `
mode: sidecar
sidecar:
  container:
    name: server
    image: registry.example/fetal-health:1.4
    ports: [{name: infer, containerPort: 8001}]
`

// chartForms are values that the chart is rendered with; what is on in them is up to
// the checks to find.
var chartForms = map[string]string{
	"default": "",
	"tls":     "tls: {existingSecret: ckd-tls}\nsettings: {trace-endpoint: \"http://collector.tracing:4317\"}",
	"access":  "tls: {existingSecret: ckd-tls}\naccess: {existingSecret: ckd-access}",
	"a user of the cluster's choice": "access: {existingSecret: ckd-access}\n" +
		"podSecurityContext: {runAsUser: null, runAsGroup: null, fsGroup: null}",
	"sidecar":               sidecarValues,
	"sidecar without ports": strings.Replace(sidecarValues, "ports:", "env: [] #", 1),
	"everything": `
commonLabels: {team: eye}
image: {repository: registry.example/ckd, digest: "sha256:0123456789abcdef0123456789abcdef0123456789abcdef0123456789abcdef"}
imagePullSecrets: [{name: pull}]
policies:
  retina.yaml: |
    models: [{name: retina, version: "1", classes: [a, b], critical: [b], passes: {fewest: 10, expected: 30}}]
  second.yml: |
    models: [{name: second, version: "1", classes: [a, b], critical: [b], passes: {fewest: 10, expected: 30}}]
models: 2
settings:
  trace-endpoint: http://collector.tracing:4317
  trace-sample: 0.5
  recent-inputs: 20
  admin-reload: true
  channelz: true
  pprof: "127.0.0.1:6060"
  max-stream-age: 3m
  shutdown-grace: 1m30s
  max-open-bytes: 1073741824
  log-level: debug
http: {enabled: true}
access: {existingSecret: ckd-access}
tls:
  certManager: {enabled: true, issuerRef: {name: ca}, dnsNames: [ckd.example]}
  admin: true
  clientCA: {existingSecret: ckd-client-ca, crlKey: crl.pem}
replicas: 3
minReadySeconds: 5
autoscaling: {enabled: true, targetInputsOpen: 1000}
podDisruptionBudget: {maxUnavailable: "", minAvailable: 1}
resources: {limits: {cpu: 2}}
networkPolicy:
  egress: [{to: [{ipBlock: {cidr: 10.0.0.0/8}}]}]
  traces: [{namespaceSelector: {matchLabels: {kubernetes.io/metadata.name: tracing}}}]
  dns: {peers: [{ipBlock: {cidr: 169.254.20.10/32}}], ports: [5353]}
service: {annotations: {a: b}}
serviceAccount: {annotations: {a: b}}
podAnnotations: {a: b}
podLabels: {c: d}
priorityClassName: high
nodeSelector: {kubernetes.io/arch: amd64}
tolerations: [{key: k, operator: Exists}]
affinity: {podAntiAffinity: {preferredDuringSchedulingIgnoredDuringExecution: []}}
env: [{name: GODEBUG, value: cpu.avx512f=off}]
serviceMonitor: {enabled: true, labels: {release: prometheus}}
prometheusRule: {enabled: true, labels: {release: prometheus}}
dashboards: {enabled: true, annotations: {grafana_folder: ckd}}
`,
	"everything of a sidecar": sidecarValues + `
  loopback: true
  volumes: [{name: models, emptyDir: {}}]
http: {enabled: true}
access: {existingSecret: ckd-access}
policiesConfigMap: mine
networkPolicy: {server: [{namespaceSelector: {}}]}
podMonitor: {enabled: true, namespaces: [a, b]}
prometheusRule: {enabled: true}
dashboards: {enabled: true}
preStopSleepSeconds: 30
`,
	"nothing": `
replicas: 1
podDisruptionBudget: {enabled: false}
networkPolicy: {enabled: false, clients: [], metrics: [], admin: []}
serviceAccount: {create: false}
topologySpreadConstraints: []
preStopSleepSeconds: 0
test: {enabled: false}
policiesConfigMap: mine
`,
	"one replica":     "replicas: 1",
	"nobody may come": "networkPolicy: {clients: [], metrics: [], admin: []}",
	"library":         "mode: library\npodMonitor: {enabled: true}\nprometheusRule: {enabled: true}\ndashboards: {enabled: true}",
}

// TestChart decodes strictly what the chart renders, and asks of every form what
// must hold in any.
func TestChart(t *testing.T) {
	for form, values := range chartForms {
		t.Run(form, func(t *testing.T) {
			r := renderChart(t, values)
			pods := podsOf(r)
			for _, p := range pods {
				checkPod(t, r, p)
			}
			checkDeployment(t, r)
			checkServices(t, r, pods)
			checkAround(t, r, pods)
			checkNetwork(t, r, pods)
			checkMonitors(t, r, pods)
			checkCopies(t, r)
			if form != "library" && len(pods) == 0 {
				t.Error("no pod")
			}
		})
	}
}

// TestChartForms asks of each form what is its own.
func TestChartForms(t *testing.T) {
	kindsOf := func(r []runtime.Object) string {
		var all []string
		for _, o := range r {
			all = append(all, o.GetObjectKind().GroupVersionKind().Kind)
		}
		slices.Sort(all)
		return strings.Join(slices.Compact(all), " ")
	}
	for form, want := range map[string]string{
		"default": "ConfigMap Deployment NetworkPolicy Pod PodDisruptionBudget Service ServiceAccount",
		"sidecar": "ConfigMap Deployment NetworkPolicy PodDisruptionBudget ServiceAccount",
		"everything": "Certificate ConfigMap Deployment HorizontalPodAutoscaler NetworkPolicy Pod PodDisruptionBudget " +
			"PrometheusRule Service ServiceAccount ServiceMonitor",
		"everything of a sidecar": "ConfigMap Deployment NetworkPolicy PodDisruptionBudget PodMonitor PrometheusRule ServiceAccount",
		"nothing":                 "ConfigMap Deployment Service",
		"library":                 "ConfigMap PodMonitor PrometheusRule",
	} {
		if got := kindsOf(renderChart(t, chartForms[form])); got != want {
			t.Errorf("%s: %s, want %s", form, got, want)
		}
	}

	// What a setting follows from.
	for _, c := range []struct {
		form, setting string
		want          any
	}{
		{"default", "insecure-plaintext", true}, {"tls", "insecure-plaintext", nil}, {"sidecar", "insecure-plaintext", nil},
		{"default", "max-stream-age", "10m"}, {"sidecar", "max-stream-age", nil}, {"everything", "max-stream-age", "3m"},
		{"sidecar", "listen", []any{"unix:/run/ckd/ckd.sock"}},
		{"everything of a sidecar", "listen", []any{"unix:/run/ckd/ckd.sock", "127.0.0.1:8590"}},
		{"everything of a sidecar", "http", "127.0.0.1:8591"}, {"everything", "http", ":8591"},
		{"everything", "max-open-bytes", 1073741824.}, {"everything", "recent-inputs", 20.}, {"everything", "admin-tls", true},
	} {
		if got := settingsOf(t, renderChart(t, chartForms[c.form]))[c.setting]; !reflect.DeepEqual(got, c.want) {
			t.Errorf("%s: %s is %v, want %v", c.form, c.setting, got, c.want)
		}
	}

	// A native sidecar, which the model server waits for and which outlives it.
	spec := onlyObject[*apps.Deployment](t, renderChart(t, sidecarValues)).Spec.Template.Spec
	if len(spec.InitContainers) != 1 || len(spec.Containers) != 1 {
		t.Fatalf("%d and %d containers", len(spec.InitContainers), len(spec.Containers))
	}
	ours, theirs := spec.InitContainers[0], spec.Containers[0]
	if ours.RestartPolicy == nil || *ours.RestartPolicy != core.ContainerRestartPolicyAlways || ours.StartupProbe == nil ||
		ours.StartupProbe.HTTPGet.Path != "/readyz" || ours.Lifecycle != nil {
		t.Errorf("sidecar: %+v", ours)
	}
	shares := func(c core.Container) bool {
		return slices.ContainsFunc(c.VolumeMounts, func(m core.VolumeMount) bool {
			return m.Name == "ckd-socket" && m.MountPath == "/run/ckd"
		})
	}
	if !shares(ours) || !shares(theirs) || theirs.Name != "server" {
		t.Errorf("the socket's folder is not shared: %+v, %+v", ours.VolumeMounts, theirs.VolumeMounts)
	}

	// An older Kubernetes has no sleep.
	if d := onlyObject[*apps.Deployment](t, renderChart(t, "", "--kube-version", "1.29.3")); d.Spec.Template.Spec.Containers[0].Lifecycle != nil {
		t.Error("a sleep before 1.30")
	}
	// Policies, certificates and tokens are taken without a restart; settings are not.
	sum := func(values string) string {
		d := onlyObject[*apps.Deployment](t, renderChart(t, values))
		return d.Spec.Template.Annotations["checksum/settings"]
	}
	other := "policies: {a.yaml: \"models: []\"}"
	if sum("") != sum(other) || sum("") == sum("settings: {log-level: debug}") || sum("") == "" {
		t.Error("the checksum is not of the settings alone")
	}

	// As many replicas as there are is for the autoscaler to know: GitOps renders without a cluster to look at.
	templates, err := filepath.Glob(filepath.Join(chart, "templates/*"))
	if err != nil || len(templates) < 10 {
		t.Fatalf("%d templates, error %v", len(templates), err)
	}
	for _, path := range templates {
		if info, err := os.Stat(path); err == nil && !info.IsDir() && strings.Contains(getFile(t, path), "lookup") {
			t.Errorf("%s looks into the cluster", path)
		}
	}
}

// TestChartPolicyText: a policy comes to the daemon as it was given.
func TestChartPolicyText(t *testing.T) {
	for _, text := range []string{
		onePolicy,
		"  # indented\n" + onePolicy,
		"\n\n  models:\n  - {name: a}\nlimits: {}\n",
		"models: []",
		"models: []\n\n\n",
		"a: \"<ü> {{ .Values }}\\t\" # \u2028\r\n",
	} {
		values, err := json.Marshal(map[string]any{"policies": map[string]string{"retina.yaml": text}})
		if err != nil {
			t.Fatal(err)
		}
		for _, c := range objectsOf[*core.ConfigMap](renderChart(t, string(values))) {
			if strings.HasSuffix(c.Name, "-policies") && !reflect.DeepEqual(c.Data, map[string]string{"retina.yaml": text}) {
				t.Errorf("%q came as %q", text, c.Data)
			}
		}
	}
}

// TestChartServerIsReached: the NetworkPolicy lets in those who call the model
// server, whether or not its container says what ports it has.
func TestChartServerIsReached(t *testing.T) {
	for form, values := range map[string]string{"ports": sidecarValues, "none": chartForms["sidecar without ports"]} {
		for peers, want := range map[string]int{"[]": 0, "[{podSelector: {matchLabels: {calls: server}}}]": 1} {
			n := onlyObject[*networking.NetworkPolicy](t, renderChart(t, values+"networkPolicy: {metrics: [], admin: [], server: "+peers+"}"))
			if len(n.Spec.Ingress) != 1 || len(n.Spec.Ingress[0].From) != want || (len(n.Spec.Ingress[0].Ports) == 0) != (form == "none") {
				t.Errorf("%s, server: %s: %+v", form, peers, n.Spec.Ingress)
			}
		}
	}
}

// TestChartRefuses: what the schema does not know, and values that contradict each
// other, end with their name.
func TestChartRefuses(t *testing.T) {
	for _, c := range []struct{ values, want string }{
		{"bogus: 1", "additional properties 'bogus' not allowed"},
		{"settings: {bogus: 1}", "additional properties 'bogus' not allowed"},
		{"settings: {listen: ':1'}", "additional properties 'listen' not allowed"},
		{"settings: {max-streams: many}", "got string, want integer"},
		{"settings: {max-streams: 0}", "/settings/max-streams"},
		{"settings: {shutdown-grace: 1d}", "/settings/shutdown-grace"},
		{"settings: {pprof: ':6060'}", "/settings/pprof"},
		{"image: {tagg: x}", "'tagg' not allowed"},
		{"tls: {clientCA: {crl: x}}", "'crl' not allowed"},
		{"env: [{name: CKD_LISTEN, value: x}]", "/env/0/name"},
		{"policies: {retina.json: '{}'}", `policies: "retina.json": expected a name that ends in .yaml or .yml`},
		{"policies: {x: abc}", `policies: "x": expected a name that ends in .yaml or .yml`},
		{"policies: {retina: {yaml: abc}}", `policies: "retina": expected the text of a file; --set takes the dot of a file's name as \.`},
		{"policies: {retina.yaml: ''}", `policies: "retina.yaml": empty, or only comments, expected the text of a policy file`},
		{`policies: {retina.yaml: " \n\t\n"}`, `policies: "retina.yaml": empty, or only comments`},
		{`policies: {a.yaml: "models: []", b.yaml: "# models:\n---\n  # none\n"}`, `policies: "b.yaml": empty, or only comments`},
		{"policies: {retina.yaml: null}", `policies: "retina.yaml": expected the text of a file`},
		{"policies: {.yaml: abc}", `policies: ".yaml": expected a name`},
		{"policies: {" + strings.Repeat("x", 249) + ".yaml: abc}", "expected a name of at most 253 characters"},
		{"policies: {a.yaml: \"" + strings.Repeat("x", 1<<19) + "\", b.yaml: \"" + strings.Repeat("x", 1<<19+1) + "\"}", "policies: 1048577 bytes, expected 1048576 at most"},
		{"mode: daemonset", "/mode"},
		{"mode: sidecar", "sidecar.container: none given"},
		{"sidecar: {container: {name: x}}", "sidecar.container is of mode sidecar"},
		{sidecarValues + "autoscaling: {enabled: true}", "a sidecar grows with its model server"},
		{sidecarValues + "serviceMonitor: {enabled: true}", "expected podMonitor"},
		{"podMonitor: {enabled: true}", "expected serviceMonitor"},
		{"policies: {a.yaml: 'models: []'}\npoliciesConfigMap: b", "both given"},
		{"tls: {existingSecret: a, certManager: {enabled: true}}", "both given"},
		{"tls: {certManager: {enabled: true}}", "issuerRef.name: none given"},
		{"tls: {admin: true}", "mean nothing without tls.existingSecret"},
		{"tls: {clientCA: {crlKey: a}}", "crlKey means nothing"},
		{"settings: {admin-reload: true}", "anybody who reaches the admin port could reload"},
		{"settings: {recent-inputs: 5}\ntls: {existingSecret: a, admin: true}", "would see ids of inputs"},
		{"settings: {recent-inputs: 5}\ntls: {existingSecret: a}\naccess: {existingSecret: a}", "would see ids of inputs"},
		{"autoscaling: {enabled: true, targetCPUUtilizationPercentage: 0}", "no target"},
		{"autoscaling: {enabled: true}\nresources: {requests: {cpu: null}}", "resources.requests.cpu, which is not given"},
		{"autoscaling: {enabled: true, minReplicas: 20}", "minReplicas is more than maxReplicas"},
		{"podDisruptionBudget: {minAvailable: 1}", "expected one of"},
		{"podDisruptionBudget: {maxUnavailable: '', minAvailable: 2}", "no node could ever be drained"},
		{"podDisruptionBudget: {maxUnavailable: '', minAvailable: 100%}", "no node could ever be drained"},
		{"podDisruptionBudget: {maxUnavailable: '', minAvailable: 51%}", "no node could ever be drained"}, // 1.02, rounded up
		{"podDisruptionBudget: {maxUnavailable: '', minAvailable: 101%}", "/podDisruptionBudget/minAvailable"},
		{"podDisruptionBudget: {maxUnavailable: 0}", "no node could ever be drained"},
		{"podDisruptionBudget: {maxUnavailable: 0%}", "no node could ever be drained"},
		{"podDisruptionBudget: {maxUnavailable: 00%}", "/podDisruptionBudget/maxUnavailable"},
		{"podLabels: {app.kubernetes.io/name: a}", "podLabels: app.kubernetes.io/name is for the chart to set"},
		{"podLabels: {app.kubernetes.io/instance: a}", "podLabels: app.kubernetes.io/instance is for the chart to set"},
		{"podLabels: {ckd/sidecar: 'false'}", "podLabels: ckd/sidecar is for the chart to set"},
		{"podAnnotations: {checksum/settings: a}", "podAnnotations: checksum/settings is for the chart to set"},
		{"commonLabels: {app.kubernetes.io/name: a}", "commonLabels: app.kubernetes.io/name is for the chart to set"},
		{"commonLabels: {app.kubernetes.io/instance: a}", "commonLabels: app.kubernetes.io/instance is for the chart to set"},
		{"commonLabels: {app.kubernetes.io/component: a}", "commonLabels: app.kubernetes.io/component is for the chart to set"},
		{"commonLabels: {helm.sh/chart: a}", "commonLabels: helm.sh/chart is for the chart to set"},
		{"serviceMonitor: {labels: {app.kubernetes.io/name: a}}", "serviceMonitor.labels: app.kubernetes.io/name is for the chart to set"},
		{"dashboards: {labels: {app.kubernetes.io/version: a}}", "dashboards.labels: app.kubernetes.io/version is for the chart to set"},
		{"commonLabels: {team: a}\npodLabels: {team: b}", "podLabels: team is in commonLabels too"},
		{"commonLabels: {release: a}\nprometheusRule: {labels: {release: b}}", "prometheusRule.labels: release is in commonLabels too"},
		{"models: 0", "/models"},
		{"networkPolicy: {dns: {ports: []}}", "/networkPolicy/dns/ports"},
		{"terminationGracePeriodSeconds: 19", "19 is too short"},
		{"settings: {shutdown-grace: 5m}\nterminationGracePeriodSeconds: 60", "expected 310 at least"},

		// Values that make manifests which Kubernetes refuses.
		{"updateStrategy: {type: OnDelete}", "/updateStrategy/type"},
		{"updateStrategy: {rollingUpdate: {maxSurge: 0}}", "updateStrategy.rollingUpdate: maxSurge and maxUnavailable are both 0"},
		{"updateStrategy: {rollingUpdate: {maxSurge: 0%, maxUnavailable: 0%}}", "maxSurge and maxUnavailable are both 0"},
		{"updateStrategy: {rollingUpdate: {maxSurge: '1'}}", "/updateStrategy/rollingUpdate/maxSurge"},
		{"updateStrategy: {rollingUpdate: {maxUnavailable: ''}}", "/updateStrategy/rollingUpdate/maxUnavailable"},
		{"updateStrategy: {rollingUpdate: {maxUnavailable: 101%}}", "/updateStrategy/rollingUpdate/maxUnavailable"},
		{"updateStrategy: {rollingUpdate: {maxSurges: 1}}", "'maxSurges' not allowed"},
		{"minReadySeconds: 600", "/minReadySeconds"},
		{"nameOverride: UPPER_case", `nameOverride, with the name of the release: "ckd-UPPER_case" would be the name of the Service, expected a DNS-1035 label: at most 63`},
		{"nameOverride: a b\nfullnameOverride: a", `nameOverride: "a b" would be the label app.kubernetes.io/name`},
		{"fullnameOverride: 9abc", `fullnameOverride: "9abc" would be the name of the Service, expected a DNS-1035 label`},
		{"fullnameOverride: a.b", `fullnameOverride: "a.b" would be the name of the Service`},
		{sidecarValues + "fullnameOverride: A.b", `fullnameOverride: "A.b", expected a DNS-1123 subdomain`},
		{"serviceAccount: {name: A}", `serviceAccount.name: "A", expected a DNS-1123 subdomain`},
		{"priorityClassName: a b", `priorityClassName: "a b", expected a DNS-1123 subdomain`},
		{"policiesConfigMap: a_b", `policiesConfigMap: "a_b", expected a DNS-1123 subdomain`},
		{"access: {existingSecret: a..b}", `access.existingSecret: "a..b", expected a DNS-1123 subdomain`},
		{"access: {existingSecret: a, key: a/b}", "/access/key"},
		{"tls: {existingSecret: UPPER}", `tls.existingSecret: "UPPER", expected a DNS-1123 subdomain`},
		{"tls: {existingSecret: " + strings.Repeat("a", 254) + "}", "at most 253"},
		{"tls: {existingSecret: a, clientCA: {existingSecret: -a}}", `tls.clientCA.existingSecret: "-a", expected a DNS-1123 subdomain`},
		{"tls: {existingSecret: a, clientCA: {existingSecret: a, crlKey: a b}}", "/tls/clientCA/crlKey"},
		{"tls: {certManager: {enabled: true, issuerRef: {name: A}}}", `tls.certManager.issuerRef.name: "A", expected a DNS-1123 subdomain`},
		{"tls: {certManager: {enabled: true, issuerRef: {name: a}, duration: 30m}}", "tls.certManager.duration: 30m, expected 1h at least"},
		{"tls: {certManager: {enabled: true, issuerRef: {name: a}, duration: 24h}}", "tls.certManager.renewBefore: 720h, expected 5m at least and less than duration, 24h"},
		{"tls: {certManager: {dnsNames: ['https://ckd.example']}}", "/tls/certManager/dnsNames/0"},
		{"imagePullSecrets: [{name: a}, {name: B}]", `imagePullSecrets[1].name: "B", expected a DNS-1123 subdomain`},
		{"mode: library\npodMonitor: {namespaces: [a, a.b]}", `podMonitor.namespaces[1]: "a.b", expected a DNS-1123 label`},
		{"mode: library\npodMonitor: {interval: 30s1m}", "/podMonitor/interval"},
		{"serviceMonitor: {interval: ''}", "/serviceMonitor/interval"},
		{"image: {repository: 'ckd:1.2.3'}", "/image/repository"},
		{"image: {tag: 'a b'}", "/image/tag"},
		{"commonLabels: {x: a b c}", `commonLabels: x: "a b c", expected a label value`},
		{"commonLabels: {x y: a}", `commonLabels: "x y", expected a key`},
		{"podLabels: {x: " + strings.Repeat("a", 64) + "}", "podLabels: x: "},
		{"podLabels: {Example.com/x: a}", `podLabels: "Example.com/x", expected a key`},
		{"podLabels: {a/b/c: a}", `podLabels: "a/b/c", expected a key`},
		{"nodeSelector: {x: -a}", `nodeSelector: x: "-a", expected a label value`},
		{"serviceMonitor: {labels: {x: a b}}", `serviceMonitor.labels: x: "a b", expected a label value`},
		{"podMonitor: {labels: {/x: a}}", `podMonitor.labels: "/x", expected a key`},
		{"prometheusRule: {labels: {x/: a}}", `prometheusRule.labels: "x/", expected a key`},
		{"dashboards: {labels: {x: a/b}}", `dashboards.labels: x: "a/b", expected a label value`},
		{"podAnnotations: {x y: a}", `podAnnotations: "x y", expected a key`},
		{"service: {annotations: {x y: a}}", `service.annotations: "x y", expected a key`},
		{"serviceAccount: {annotations: {x y: a}}", `serviceAccount.annotations: "x y", expected a key`},
		{"dashboards: {annotations: {x y: a}}", `dashboards.annotations: "x y", expected a key`},
		{"resources: {requests: {memory: 2Gi}, limits: {memory: 1Gi}}", "resources.requests.memory: 2Gi is above resources.limits.memory, 1Gi, expected no more"},
		{"resources: {requests: {memory: 1000M}, limits: {memory: 953.6Mi}}", "resources.requests.memory: 1000M is above"},
		{"resources: {requests: {memory: 2Gi}}", "resources.requests.memory: 2Gi is above resources.limits.memory, 924Mi by the settings"},
		{"resources: {limits: {cpu: 100m}}", "resources.requests.cpu: 250m is above resources.limits.cpu, 100m, expected no more"},
		{"resources: {requests: {cpu: 1}, limits: {cpu: 0.5}}", "resources.requests.cpu: 1 is above resources.limits.cpu, 0.5"},
		{"resources: {requests: {ephemeral-storage: 1G}, limits: {ephemeral-storage: 512Mi}}", "resources.requests.ephemeral-storage: 1G is above"},
		{"resources: {limits: {memory: 12}}", "resources.limits.memory: 12 is 12 bytes, expected 16Mi at least"},
		{"resources: {requests: {memory: 128m}}", "resources.requests.memory: 128m is 0.128 bytes, expected 16Mi at least"},
		{"resources: {limits: {memory: 1.2.3}}", "/resources/limits/memory"},
		{"resources: {limits: {cpu: 250Mi}}", "/resources/limits/cpu"},
		{"resources: {limits: {gpu: 1}}", "at '/resources/limits': additional properties 'gpu' not allowed"},
		{"settings: {max-open-bytes: 9223372036854775807}", "settings.max-open-bytes: 9223372036854775808, expected 1099511627776"},
		{"settings: {trace-endpoint: 'http://a:70000'}", "settings.trace-endpoint: http://a:70000: no such port"},
		{"settings: {trace-endpoint: 'http://a:04317'}", "/settings/trace-endpoint"},
		{"settings: {pprof: '127.0.0.1:70000'}", "settings.pprof: 127.0.0.1:70000: no such port"},
		{"autoscaling: {targetInputsOpen: '0'}", "/autoscaling/targetInputsOpen"},
		{"autoscaling: {behavior: {scaleDown: {stabilizationWindowSeconds: 3601}}}", "/autoscaling/behavior/scaleDown/stabilizationWindowSeconds"},
		{"autoscaling: {behavior: {scaleUp: {policies: []}}}", "/autoscaling/behavior/scaleUp/policies"},
		{"networkPolicy: {clients: [{}]}", "/networkPolicy/clients/0"},
		{"networkPolicy: {clients: [{podSelector: {matchLabels: {a: true}}}]}", "/networkPolicy/clients/0/podSelector/matchLabels/a"},
		{"networkPolicy: {metrics: [{podselector: {}}]}", "'podselector' not allowed"},
		{"networkPolicy: {egress: [{to: [{ipBlock: {cidr: 10.0.0.0}}]}]}", "/networkPolicy/egress/0/to/0/ipBlock/cidr"},
		{"networkPolicy: {server: [{ipBlock: {cidr: 10.0.0.0/8}, podSelector: {}}]}", "/networkPolicy/server/0"},
		{"tolerations: [{key: a, value: true}]", "/tolerations/0/value"},
		{"topologySpreadConstraints: [{topologyKey: a, whenUnsatisfiable: ScheduleAnyway}]", "missing property 'maxSkew'"},
		{"env: [{name: A, value: 1}]", "/env/0/value"},
		{"env: [{name: A=B}]", "/env/0/name"},
		{"tls: null", "missing property 'tls'"},
		{"networkPolicy: {dns: null}", "at '/networkPolicy': missing property 'dns'"},
		{"podDisruptionBudget: {maxUnavailable: null}", "at '/podDisruptionBudget': missing property 'maxUnavailable'"},

		// And of the pod of a model server.
		{strings.Replace(sidecarValues, "name: server", "name: ckd", 1), `sidecar.container.name: "ckd" is the daemon's container`},
		{strings.Replace(sidecarValues, "name: server", "name: a.b", 1), `sidecar.container.name: "a.b", expected a DNS-1123 label`},
		{strings.Replace(sidecarValues, "name: server", "name: ''", 1), "sidecar.container.name: none given"},
		{strings.Replace(sidecarValues, "image: registry.example/fetal-health:1.4", "image: ''", 1), "sidecar.container.image: none given"},
		{strings.Replace(sidecarValues, "image: registry.example/fetal-health:1.4", "image: ' x'", 1), "/sidecar/container/image"},
		{sidecarValues + "    volumeMounts: [{name: a, mountPath: /run/ckd}]", "sidecar.container.volumeMounts[0].mountPath: /run/ckd is the folder of the socket"},
		{sidecarValues + "    volumeMounts: [{name: a, mountPath: /run/ckd/}]", "/run/ckd/ is the folder of the socket"},
		{sidecarValues + "    volumeMounts: [{name: a, mountPath: /a}]", `sidecar.container.volumeMounts[0].name: no volume "a"`},
		{sidecarValues + "    volumeMounts: [{name: a, mountPath: /a}, {name: a, mountPath: /a}]\n  volumes: [{name: a}]", "volumeMounts[1].mountPath: /a is mounted twice"},
		{sidecarValues + "    volumeMounts: [{mountPath: /a}]", "missing property 'name'"},
		{sidecarValues + "    volumeMounts: [{name: a, mountPath: 'c:/a'}]", "/sidecar/container/volumeMounts/0/mountPath"},
		{sidecarValues + "  volumes: [{name: a}, {name: a}]", `sidecar.volumes[1].name: "a" is another volume of the pod`},
		{sidecarValues + "  volumes: [{name: ckd-socket}]", `sidecar.volumes[0].name: "ckd-socket" is another volume of the pod`},
		{sidecarValues + "  volumes: [{name: a_b}]", `sidecar.volumes[0].name: "a_b", expected a DNS-1123 label`},
		{sidecarValues + "    resources: {requests: {memory: 2Gi}, limits: {memory: 1Gi}}", "sidecar.container.resources.requests.memory: 2Gi is above"},
		{sidecarValues + "    resources: {limits: {memory: 12}}", "sidecar.container.resources.limits.memory: 12 is 12 bytes"},
		{sidecarValues + "    args: [1]", "/sidecar/container/args/0"},
		{sidecarValues + "    env: [{name: A, value: true}]", "/sidecar/container/env/0/value"},
		{strings.Replace(sidecarValues, "8001", "9590", 1), "sidecar.container.ports[0].containerPort: 9590 is ckd's in this pod, its admin port"},
		{strings.Replace(sidecarValues, "8001", "8590", 1) + "  loopback: true", "8590 is ckd's in this pod, sidecar.loopback"},
		{strings.Replace(sidecarValues, "8001", "8591", 1) + "http: {enabled: true}", "8591 is ckd's in this pod, http.enabled"},
		{strings.Replace(sidecarValues, "8001", "80010", 1), "/sidecar/container/ports/0/containerPort"},
		{strings.Replace(sidecarValues, "name: infer", "name: ckd-admin", 1), `ports[0].name: "ckd-admin" is another port of the pod`},
		{strings.Replace(sidecarValues, "}]", "}, {name: infer, containerPort: 2}]", 1), `ports[1].name: "infer" is another port of the pod`},
		{strings.Replace(sidecarValues, "name: infer", "name: of-16-characters", 1), "/sidecar/container/ports/0/name"},
	} {
		result := helmTemplate(t, c.values)
		if result.Code == 0 || !strings.Contains(result.Stderr, c.want) {
			t.Errorf("%s\nexit %d, want a message with %q:\n%s", c.values, result.Code, c.want, result.Stderr)
		}
	}
	// What is not refused, though it is near to it.
	for _, values := range []string{
		"podDisruptionBudget: {maxUnavailable: '', minAvailable: 50%}",
		"podDisruptionBudget: {maxUnavailable: 1%}", // rounded up to one
		"replicas: 1\npodDisruptionBudget: {maxUnavailable: '', minAvailable: 1}",
		"podLabels: {app.kubernetes.io/version: a, app.kubernetes.io/component: b}",
		"commonLabels: {app.kubernetes.io/part-of: a}",
		"commonLabels: {a: '', B_c: 1.2_3-A, sub.example/D.e: '1'}\npodAnnotations: {Example.com/Any: a b c}",
		"nameOverride: " + strings.Repeat("a", 70),
		"nameOverride: Any_name.1\nfullnameOverride: a-9",
		sidecarValues + "fullnameOverride: 9.a",
		"updateStrategy: {rollingUpdate: {maxSurge: 0, maxUnavailable: 1%}}",
		"updateStrategy: {rollingUpdate: {maxSurge: 200%}}",
		"updateStrategy: {rollingUpdate: null}",
		"resources: {requests: {cpu: 0.25, memory: 1024Mi}, limits: {cpu: 250m, memory: 1Gi}}",
		"resources: {limits: {memory: 1073741824}}",
		"settings: {max-open-bytes: 1099511627776}",
		"image: {repository: 'localhost:5000/a/b__c-d.e', tag: 1.2.3-rc.1_a}",
		"podSecurityContext: null\ntls: {existingSecret: a.b-1}",
		"autoscaling: {enabled: true, targetInputsOpen: 2k, behavior: {scaleDown: {selectPolicy: Disabled}}}",
		"networkPolicy: {clients: [{ipBlock: {cidr: 'fd00::/8', except: ['fd00:1::/32']}}, {podSelector: {}, namespaceSelector: {}}], server: [{podSelector: {}}]}",
		strings.Replace(sidecarValues, "8001", "8590", 1),
		strings.Replace(sidecarValues, "8001", "9590, protocol: UDP", 1),
		sidecarValues + "    volumeMounts: [{name: a, mountPath: /run}, {name: a, mountPath: /run/ckd/a}]\n  volumes: [{name: a, emptyDir: {}}]",
		sidecarValues + "    resources: {requests: {cpu: 1e3, memory: 1Pi}, limits: {nvidia.com/gpu: 1}}",
	} {
		checkDeployment(t, renderChart(t, values))
	}
	if r := helmTemplate(t, sidecarValues, "--kube-version", "1.28.9"); r.Code == 0 || !strings.Contains(r.Stderr, "need Kubernetes 1.29") {
		t.Errorf("a Kubernetes without native sidecars: exit %d, %s", r.Code, r.Stderr)
	}
}

// TestChartWithoutFiles takes files of the chart away, as copies by some tools lack them. The chart
// fails where it needs the file, and says what to set instead.
func TestChartWithoutFiles(t *testing.T) {
	const policy = "files/example-policy.yaml"
	for _, c := range []struct{ name, file, text, values, want string }{
		{"no policy", policy, "", "", policy + " is missing or empty in this copy of the chart: set policies or policiesConfigMap"},
		{"a blank policy", policy, " \n\n", "", policy + " is missing or empty"},
		{"a commented policy", policy, "# models:\n---\n", "", policy + " is missing or empty"},
		{"a commented policy of a sidecar", policy, "# models:\n", sidecarValues, policy + " is missing or empty"},
		{"a commented policy of a library", policy, "# models:\n", "mode: library", policy + " is missing or empty"},
		{"the policy that is given", policy, "", "policies: {a.yaml: 'models: []'}", ""},
		{"the ConfigMap that is given", policy, "", "policiesConfigMap: mine", ""},
		{"no rules", "files/rules/alerts.yaml", "", "prometheusRule: {enabled: true}",
			"files/rules/alerts.yaml is missing or empty in this copy of the chart: install the whole chart, or set prometheusRule.enabled to false"},
		{"blank rules", "files/rules/recording.yaml", "# groups:\n", "prometheusRule: {enabled: true}", "files/rules/recording.yaml is missing or empty"},
		{"rules without groups", "files/rules/recording.yaml", "groups: []\n", "prometheusRule: {enabled: true}", "files/rules/recording.yaml has no groups"},
		{"rules that are not asked for", "files/rules", "", "", ""},
		{"no dashboards", "files/grafana", "", "dashboards: {enabled: true}",
			"files/grafana/*.json is missing or empty in this copy of the chart: install the whole chart, or set dashboards.enabled to false"},
		{"a blank dashboard", "files/grafana/triage.json", "\n", "dashboards: {enabled: true}", "files/grafana/triage.json is missing or empty"},
		{"dashboards that are not asked for", "files/grafana", "", "", ""},
	} {
		t.Run(c.name, func(t *testing.T) {
			copied := copyChart(t)
			path := filepath.Join(copied, c.file)
			if err := os.RemoveAll(path); err != nil {
				t.Fatal(err)
			}
			if c.text != "" {
				putFile(t, path, c.text)
			}
			result := helmTemplateOf(t, copied, c.values)
			if (result.Code == 0) != (c.want == "") || !strings.Contains(result.Stderr, c.want) {
				t.Errorf("exit %d, want the message %q:\n%s", result.Code, c.want, result.Stderr)
			}
		})
	}
}

// TestChartRecreates: a Deployment that recreates its pods has no rollingUpdate,
// which the defaults have.
func TestChartRecreates(t *testing.T) {
	for kind, rolls := range map[apps.DeploymentStrategyType]bool{apps.RecreateDeploymentStrategyType: false, apps.RollingUpdateDeploymentStrategyType: true} {
		d := onlyObject[*apps.Deployment](t, renderChart(t, fmt.Sprintf("updateStrategy: {type: %s}", kind)))
		if d.Spec.Strategy.Type != kind || (d.Spec.Strategy.RollingUpdate != nil) != rolls {
			t.Errorf("%s: strategy %+v", kind, d.Spec.Strategy)
		}
	}
}

// TestChartNames: names that YAML would take for numbers or truths stay names.
func TestChartNames(t *testing.T) {
	for _, name := range []string{"true", "on", "null", "e1", "0x1"} {
		form := sidecarValues
		if name != "0x1" {
			form = "tls: {existingSecret: '123', clientCA: {existingSecret: '1e3'}}\n"
		}
		values := form + fmt.Sprintf("fullnameOverride: %q\nnameOverride: '7'\npriorityClassName: '1'\naccess: {existingSecret: 'false'}\n", name)
		d := onlyObject[*apps.Deployment](t, renderChart(t, values))
		if spec := d.Spec.Template.Spec; d.Name != name || d.Labels["app.kubernetes.io/name"] != "7" ||
			spec.ServiceAccountName != name || spec.PriorityClassName != "1" {
			t.Errorf("%s: %s with %v, %+v", name, d.Name, d.Labels, spec)
		}
	}
	// A release and a namespace of digits.
	for _, document := range splitManifests(t, testbed.Run(t, exec.Command(helmProgram(t), "template", "123", chart,
		"--namespace", "456", "--set", "fullnameOverride=a", "--kube-version", kubeVersion)).Stdout) {
		object, _, err := decoder.Decode(document, nil, nil)
		if err != nil {
			t.Fatalf("%v in\n%s", err, document)
		}
		if o := object.(meta.Object); o.GetNamespace() != "456" {
			t.Errorf("%s is in the namespace %q", o.GetName(), o.GetNamespace())
		}
	}
}

// TestChartKnowsNames: the chart takes of a name, a label and its key what
// Kubernetes takes, and no more.
func TestChartKnowsNames(t *testing.T) {
	texts := []string{"a", "A", "9", "a-", "a.b", "a..b", "a_b", "a/b", "A/b", "/a", "é", "a\n",
		strings.Repeat("a", 63), strings.Repeat("a", 64), strings.Repeat("a", 254)}
	for _, c := range []struct {
		values string
		faults func(string) []string
	}{
		{"fullnameOverride: %s", func(name string) []string {
			return validation.IsDNS1035Label(strings.TrimSuffix(name[:min(len(name), 52)], "-"))
		}},
		{"tls: {existingSecret: %s}", validation.IsDNS1123Subdomain},
		{"mode: library\npodMonitor: {namespaces: [%s]}", validation.IsDNS1123Label},
		{"podLabels: {x: %s}", validation.IsValidLabelValue},
		{"podLabels: {%s: x}", validation.IsQualifiedName},
		{"podAnnotations: {%s: x}", func(key string) []string { return validation.IsQualifiedName(strings.ToLower(key)) }},
	} {
		for _, text := range texts {
			quoted, err := json.Marshal(text)
			if err != nil {
				t.Fatal(err)
			}
			values := fmt.Sprintf(c.values, quoted)
			if r, faults := helmTemplate(t, values), c.faults(text); (r.Code != 0) != (len(faults) > 0) {
				t.Errorf("%s: exit %d, Kubernetes has faults %q:\n%s", values, r.Code, faults, r.Stderr)
			}
		}
	}
}

// TestChartSettings: the schema has every setting of the daemon that the chart does
// not set by itself, with its type and default, and no other.
func TestChartSettings(t *testing.T) {
	text, err := os.ReadFile(filepath.Join(chart, "values.schema.json"))
	if err != nil {
		t.Fatal(err)
	}
	type property struct {
		Type, Ref string
		Enum      []string
		Default   any

		Minimum, Maximum *float64
	}
	var values struct {
		Properties struct {
			Settings struct{ Properties map[string]property }
		}
	}
	if err := json.Unmarshal(bytes.ReplaceAll(text, []byte(`"$ref"`), []byte(`"ref"`)), &values); err != nil {
		t.Fatal(err)
	}
	known := values.Properties.Settings.Properties
	chartsOwn := strings.Fields("config policy listen admin http tls-cert tls-key tls-client-ca tls-crl admin-tls access insecure-plaintext")
	defaults, err := config.Default()
	if err != nil {
		t.Fatal(err)
	}
	for _, field := range reflect.VisibleFields(reflect.TypeFor[config.Config]()) {
		env, isSetting := field.Tag.Lookup("env")
		name := strings.ToLower(strings.ReplaceAll(strings.TrimPrefix(env, "CKD_"), "_", "-"))
		p, there := known[name]
		delete(known, name)
		if !isSetting || slices.Contains(chartsOwn, name) {
			if there {
				t.Errorf("%s: the chart sets it", name)
			}
			continue
		}
		want := property{Type: "string", Default: fmt.Sprint(reflect.ValueOf(*defaults).FieldByIndex(field.Index))}
		switch {
		case field.Type == reflect.TypeFor[time.Duration]():
			want.Type, want.Ref, want.Default = "", "#/$defs/time", field.Tag.Get("default")
		case field.Type.Kind() == reflect.Bool:
			want.Type, want.Default = "boolean", false
		case field.Type.Kind() == reflect.Float64:
			want.Type, want.Default = "number", reflect.ValueOf(*defaults).FieldByIndex(field.Index).Float()
		case field.Type.Kind() != reflect.String:
			want.Type, want.Default = "integer", float64(reflect.ValueOf(*defaults).FieldByIndex(field.Index).Int())
		}
		if enum := field.Tag.Get("enum"); enum != "" {
			want.Enum = strings.Split(enum, ",")
		}
		if want.Type == "integer" || want.Type == "number" {
			checkBounds(t, field, name, p.Minimum, p.Maximum)
			p.Minimum, p.Maximum = nil, nil
		}
		if !there || !reflect.DeepEqual(p, want) {
			t.Errorf("%s: the schema has %+v (%v), the daemon %+v", name, p, there, want)
		}
	}
	for name := range known {
		t.Errorf("%s: no setting of the daemon", name)
	}
}

// checkBounds: the schema takes of a number what the daemon takes, and no more.
func checkBounds(t *testing.T, field reflect.StructField, name string, least, most *float64) {
	t.Helper()
	taken := func(number string) bool {
		parser, err := kong.New(&config.Config{})
		if err != nil {
			t.Fatal(err)
		}
		_, err = parser.Parse([]string{"--policy=none", "--" + name + "=" + number})
		if err != nil && !strings.Contains(err.Error(), name+": ") {
			t.Fatalf("%s=%s: %v", name, number, err)
		}
		return err == nil
	}
	number := func(n float64) string { return strconv.FormatFloat(n, 'f', -1, 64) }
	if least == nil || !taken(number(*least)) || taken(number(*least-1)) {
		t.Errorf("%s: the daemon's minimum is not the schema's %v", name, least)
	}
	if most == nil { // only what the type bounds
		if field.Type.Kind() != reflect.Int64 || !taken(strconv.Itoa(math.MaxInt64)) {
			t.Errorf("%s: the schema has no maximum, the daemon has", name)
		}
	} else if !taken(number(*most)) || taken(number(*most+1)) {
		t.Errorf("%s: the daemon's maximum is not the schema's %v", name, *most)
	}
}

// TestChartServes starts the daemon with the rendered files, mounted as the kubelet
// does it, and changes the policies under it.
func TestChartServes(t *testing.T) {
	for form, values := range chartForms {
		if form == "library" {
			continue
		}
		t.Run(form, func(t *testing.T) {
			r := renderChart(t, values)
			spec := onlyObject[*apps.Deployment](t, r).Spec.Template.Spec
			container := slices.Concat(spec.InitContainers, spec.Containers)[0]
			root := socketDir(t)
			mounted := mountVolumes(t, r, spec, container, root)
			settings := filepath.Join(root, "ckd.yaml")
			putFile(t, settings, rooted(root).Replace(mounted["/etc/ckd/settings"].read(t, "ckd.yaml")))
			arguments := slices.Clone(container.Args)
			i := slices.Index(arguments, "--config=/etc/ckd/settings/ckd.yaml")
			if i < 0 {
				t.Fatalf("arguments %q", arguments)
			}
			arguments[i] = "--config=" + settings
			d := testbed.Start(t, exec.Command(ckd, arguments...), len(settingsOf(t, r)["listen"].([]any)))

			health := []string{"healthcheck", "--admin", d.Admin[strings.Index(d.Admin, "://")+3:]}
			if settingsOf(t, r)["admin-tls"] == true {
				health = append(health, "--admin-tls", "--tls-ca", filepath.Join(root, "etc/ckd/tls/ca.crt"), "--server-name", serverName)
			}
			if got := testbed.Run(t, exec.Command(ckd, health...)); got.Code != 0 {
				t.Fatalf("health check: %s", got.Stderr)
			}
			before := hashes(t, d, root)
			mounted["/etc/ckd/policies"].swap(t, map[string]string{"other.yaml": strings.Replace(onePolicy, "one", "another", 1)})
			for i := 0; !strings.Contains(hashes(t, d, root), "model another:"); i++ {
				if i == 300 {
					t.Fatalf("after 30 s the policies in force are %s, as before: %s", hashes(t, d, root), before)
				}
				time.Sleep(100 * time.Millisecond)
			}
			if code := d.Stop(); code != 0 {
				t.Errorf("exit code %d", code)
			}
		})
	}
}

// TestChartNotes: what the notes warn of is so, and what is so they warn of. Helm
// prints them for an installation alone; here they are in a manifest.
func TestChartNotes(t *testing.T) {
	dir := copyChart(t)
	putFile(t, filepath.Join(dir, "templates/notes.yaml"),
		`{{- define "notes" }}`+getFile(t, filepath.Join(chart, "templates/NOTES.txt"))+`{{ end }}notes: {{ include "notes" . | quote }}`)

	for _, c := range []struct {
		values    string
		has, lack []string
	}{
		{"", []string{"dns:///ckd.grading.svc:8590", "*** PLAINTEXT", "*** EXAMPLE POLICY", "No access.existingSecret", "http://127.0.0.1:9590/"},
			[]string{"every pod of the cluster", "PRIVACY", "-http", "resources.limits"}},
		{"networkPolicy: {enabled: false}", []string{"*** PLAINTEXT", "every pod of the cluster can call"}, []string{"ckd/client"}},
		{"settings: {recent-inputs: 5}\ntls: {existingSecret: a, admin: true}\naccess: {existingSecret: b}",
			[]string{"*** PRIVACY", "to identities with `recent: true`"}, []string{"No access", "The page is off"}},
		{"tls: {existingSecret: a}\naccess: {existingSecret: b}", []string{"The page is off"}, []string{"No access", "PRIVACY"}},
		{"access: {existingSecret: b}", []string{"The page is off", "*** PLAINTEXT"}, []string{"No access"}},
		{sidecarValues + "access: {existingSecret: b}", []string{"The page is off"}, nil},
		{chartForms["sidecar without ports"], []string{"declares no ports", "anybody reaches it"}, []string{"The page is off"}},
		{chartForms["sidecar without ports"] + "networkPolicy: {server: [{podSelector: {}}]}", []string{"the peers of networkPolicy.server reach it"}, nil},
		{"policies: {a.yaml: 'models: [{name: a}, {name: b}]', b.yaml: 'models: [{name: c}]'}", []string{"have 3 models, and the memory is for 1. Set models=3."}, nil},
		{"models: 3\npolicies: {a.yaml: 'models: [{name: a}, {name: b}]', b.yaml: 'models: 7'}", nil, []string{"*** MEMORY"}},
		{"tls: {existingSecret: a, admin: true}\naccess: {existingSecret: b}\npoliciesConfigMap: c\nhttp: {enabled: true}\nresources: {limits: {memory: 1Gi}}",
			[]string{"https://ckd-http.grading.svc:8591", "https://127.0.0.1:9590/", "with models=1, takes 1066Mi"}, []string{"***", "No access"}},
		{sidecarValues, []string{"server with ckd beside it", "unix:/run/ckd/ckd.sock."}, []string{"PLAINTEXT", "No access"}},
		{"mode: library", []string{"ckd.sidecar"}, []string{"PLAINTEXT"}},
	} {
		result := helmTemplateOf(t, dir, c.values, "--show-only", "templates/notes.yaml")
		var rendered struct{ Notes string }
		if err := yaml.Unmarshal([]byte(result.Stdout), &rendered); err != nil || result.Code != 0 {
			t.Fatalf("%s\n%s%v", c.values, result.Stderr, err)
		}
		if off := tokensInPlaintext(t, renderChart(t, c.values)); off != strings.Contains(rendered.Notes, "The page is off") {
			t.Errorf("%s\nthe page is off: %v; the notes:\n%s", c.values, off, rendered.Notes)
		}
		for _, text := range c.has {
			if !strings.Contains(rendered.Notes, text) {
				t.Errorf("%s\nthe notes lack %q:\n%s", c.values, text, rendered.Notes)
			}
		}
		for _, text := range c.lack {
			if strings.Contains(rendered.Notes, text) {
				t.Errorf("%s\nthe notes have %q:\n%s", c.values, text, rendered.Notes)
			}
		}
	}
}

// tokensInPlaintext is what turns the daemon's page off.
func tokensInPlaintext(t *testing.T, r []runtime.Object) bool {
	t.Helper()
	settings := settingsOf(t, r)
	c := config.Config{Admin: fmt.Sprint(settings["admin"])}
	c.Access, _ = settings["access"].(string)
	c.AdminTLS, _ = settings["admin-tls"].(bool)
	c.InsecurePlaintext, _ = settings["insecure-plaintext"].(bool)
	return c.TokensInPlaintext()
}

// TestChartInAnother takes the chart into that of a model server, as
// docs/kubernetes.md tells it.
func TestChartInAnother(t *testing.T) {
	helm := helmProgram(t)
	folder := t.TempDir()
	parent := filepath.Join(folder, "heart")
	ours, err := filepath.Abs(chart)
	if err != nil {
		t.Fatal(err)
	}
	if err := os.Symlink(ours, filepath.Join(folder, "ckd")); err != nil {
		t.Fatal(err)
	}
	blocks := kubernetesDocs(t)
	for _, file := range []string{"Chart.yaml", "values.yaml", "templates/deployment.yaml"} {
		if blocks[file] == "" {
			t.Fatalf("docs/kubernetes.md has no %s", file)
		}
		putFile(t, filepath.Join(parent, file), blocks[file])
	}
	build := exec.Command(helm, "dependency", "build", "heart")
	build.Dir = folder
	if r := testbed.Run(t, build); r.Code != 0 || !strings.Contains(blocks["sh"], "helm dependency build heart\n") {
		t.Fatal(r.Stderr)
	}
	result := testbed.Run(t, exec.Command(helm, "template", "heart", parent, "--namespace", "grading", "--kube-version", kubeVersion))
	if result.Code != 0 {
		t.Fatal(result.Stderr)
	}
	r := decodeManifests(t, result.Stdout)
	pods := podsOf(r)
	for _, p := range pods {
		checkPod(t, r, p)
	}
	checkMonitors(t, r, pods)
	checkPolicies(t, r)
	d := onlyObject[*apps.Deployment](t, r)
	if len(objectsOf[*monitoring.PodMonitor](r)) != 1 || len(d.Spec.Template.Spec.InitContainers) != 1 {
		t.Errorf("%+v", d.Spec.Template.Spec)
	}
}

// TestDocsOfKubernetes: every helm command of docs/kubernetes.md renders.
func TestDocsOfKubernetes(t *testing.T) {
	helm := helmProgram(t)
	blocks := kubernetesDocs(t)
	dir := t.TempDir()
	for name, text := range blocks {
		if strings.HasSuffix(name, ".yaml") {
			putFile(t, filepath.Join(dir, name), text)
		}
	}
	putFile(t, filepath.Join(dir, "retina.yaml"), onePolicy)
	absolute, err := filepath.Abs(chart)
	if err != nil {
		t.Fatal(err)
	}
	commands := 0
	for _, line := range strings.Split(strings.ReplaceAll(blocks["sh"], "\\\n", " "), "\n") {
		words := strings.Fields(strings.NewReplacer("deploy/helm/ckd", absolute, "'", "").Replace(line))
		if len(words) < 2 || words[0] != "helm" || !slices.Contains([]string{"upgrade", "lint", "template"}, words[1]) {
			continue
		}
		commands++
		if words[1] == "upgrade" {
			words = slices.DeleteFunc(words, func(w string) bool { return w == "--install" || w == "--create-namespace" || w == "--reuse-values" })
			words[1] = "template"
		}
		command := exec.Command(helm, append(words[1:], "--kube-version", kubeVersion)...)
		command.Dir = dir
		r := testbed.Run(t, command)
		if r.Code != 0 {
			t.Errorf("%s\n%s", line, r.Stderr)
		} else if words[1] == "template" {
			checkPolicies(t, decodeManifests(t, r.Stdout))
		}
	}
	if commands < 5 {
		t.Errorf("%d commands found", commands)
	}
}

// TestExampleManifests decodes what examples has for Kubernetes, as far as its own
// types go; KServe's have a test in examples.
func TestExampleManifests(t *testing.T) {
	files, err := filepath.Glob("../../examples/kserve/*.yaml")
	if err != nil {
		t.Fatal(err)
	}
	decoded := 0
	for _, file := range files {
		text, err := os.ReadFile(file)
		if err != nil {
			t.Fatal(err)
		}
		for _, document := range splitManifests(t, string(text)) {
			var kind meta.TypeMeta
			if err := yaml.Unmarshal(document, &kind); err != nil {
				t.Fatal(err)
			}
			if strings.HasPrefix(kind.APIVersion, "serving.kserve.io/") {
				continue
			}
			if _, _, err := decoder.Decode(document, nil, nil); err != nil {
				t.Errorf("%s: %s: %v", file, kind.Kind, err)
			}
			decoded++
		}
	}
	if decoded < 5 {
		t.Errorf("%d manifests of Kubernetes", decoded)
	}
}

// TestChartMemoryLimit: a limit that is given is not under the request, which
// Kubernetes would refuse.
func TestChartMemoryLimit(t *testing.T) {
	for values, want := range map[string]string{
		"resources: {limits: {memory: 128Mi}}":                            "128Mi",
		"resources: {limits: {memory: 128Mi}, requests: {memory: 100Mi}}": "100Mi",
		"": "192Mi",
	} {
		for _, d := range objectsOf[*apps.Deployment](renderChart(t, values)) {
			r := d.Spec.Template.Spec.Containers[0].Resources
			if got := r.Requests.Memory(); got.String() != want || got.Cmp(*r.Limits.Memory()) > 0 {
				t.Errorf("%q: request %v, limit %v, want %s", values, got, r.Limits.Memory(), want)
			}
		}
	}
}

package deploytest

import (
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
	"github.com/google/go-cmp/cmp"
	monitoring "github.com/prometheus-operator/prometheus-operator/pkg/apis/monitoring/v1"
	apps "k8s.io/api/apps/v1"
	core "k8s.io/api/core/v1"
	networking "k8s.io/api/networking/v1"
	meta "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/runtime"
	"sigs.k8s.io/yaml"

	"github.com/ckd-project/ckd/integration_test/testbed"
	"github.com/ckd-project/ckd/internal/config"
)

const chart = "../helm/ckd"

// sidecarValues describe a model server for mode sidecar.
const sidecarValues = `
mode: sidecar
sidecar:
  container:
    name: server
    image: registry.example/fetal-health:1.4
    ports: [{name: infer, containerPort: 8001}]
`

// restrictedContainer is a container that a namespace of the profile restricted admits.
const restrictedContainer = "{name: first, image: registry.example/first, securityContext: {allowPrivilegeEscalation: false, " +
	"readOnlyRootFilesystem: true, runAsNonRoot: true, capabilities: {drop: [ALL]}, seccompProfile: {type: RuntimeDefault}}}"

// chartForms lists values to render the chart with. The checks find out what is on in them.
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
  class-buckets: true
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
autoscaling: {enabled: true, targetInputsOpen: 1000}
podDisruptionBudget: {maxUnavailable: 50%}
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
serviceMonitor:
  enabled: true
  labels: {release: prometheus}
  metricRelabelings: [{sourceLabels: [__name__], regex: go_.*, action: drop}]
prometheusRule: {enabled: true, labels: {release: prometheus}}
dashboards: {enabled: true, annotations: {grafana_folder: ckd}}
`,
	"what other charts have": `
global: {imageRegistry: mirror.example/}
image: {registry: registry.example, repository: eye/ckd, tag: "1.2.3"}
http: {enabled: true}
access: {existingSecret: ckd-access}
tls: {existingSecret: ckd-tls}
envFrom: [{configMapRef: {name: more}}]
extraVolumes:
  - name: issuer
    projected: {sources: [{serviceAccountToken: {path: token}}, {configMap: {name: kube-root-ca.crt}}]}
extraVolumeMounts: [{name: issuer, mountPath: /var/run/secrets/issuer, readOnly: true}]
initContainers: [` + restrictedContainer + `]
extraContainers: [` + strings.Replace(restrictedContainer, "first", "beside", 1) + `]
startupProbe: {failureThreshold: 600}
readinessProbe: {initialDelaySeconds: 3}
service:
  type: LoadBalancer
  annotations: {a: b}
  loadBalancerSourceRanges: [10.0.0.0/8]
ingress:
  enabled: true
  className: nginx
  annotations: {nginx.ingress.kubernetes.io/backend-protocol: HTTPS}
  hosts: [{host: ckd.example}, {host: also.example, paths: [{path: /v1, pathType: Exact}]}]
  tls: [{hosts: [ckd.example], secretName: ckd-example-tls}]
grpcRoute: {enabled: true, parentRefs: [{name: gateway, namespace: gateways}], hostnames: [ckd.example]}
httpRoute: {enabled: true, parentRefs: [{name: gateway}]}
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
	"ledger": `
mode: ledger
receipts: {existingSecret: ckd-receipts}
access: {existingSecret: ckd-access}
tls: {certManager: {enabled: true, issuerRef: {name: ca}}}
ledger: {size: 20Gi, storageClassName: fast}
serviceMonitor: {enabled: true}
`,
	"with a ledger": `
receipts: {existingSecret: ckd-receipts, key: keys}
access: {existingSecret: ckd-access}
tls: {existingSecret: ckd-tls}
ledger: {at: "ledger.eye.svc:8590", tokenKey: ledger-token}
settings: {trace-endpoint: "http://collector.tracing:4317"}
`,
	"one replica":     "replicas: 1",
	"nobody may come": "networkPolicy: {clients: [], metrics: [], admin: []}",
	"library":         "mode: library\npodMonitor: {enabled: true}\nprometheusRule: {enabled: true}\ndashboards: {enabled: true}",
}

// TestChart decodes what the chart renders strictly, and checks what must hold for any values.
func TestChart(t *testing.T) {
	t.Parallel()
	for form, values := range chartForms {
		t.Run(form, func(t *testing.T) {
			t.Parallel()
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

// TestChartLedger checks that the ledger is one pod with a volume, and that other releases know it.
func TestChartLedger(t *testing.T) {
	t.Parallel()
	r := renderChart(t, chartForms["ledger"])
	sets := objectsOf[*apps.StatefulSet](r)
	if len(sets) != 1 {
		t.Fatalf("%d StatefulSets", len(sets))
	}
	s := sets[0]
	selects(t, "StatefulSet", s.Spec.Selector, podsOf(r))
	if *s.Spec.Replicas != 1 || s.Spec.ServiceName != s.Name {
		t.Errorf("%d replicas of service %s", *s.Spec.Replicas, s.Spec.ServiceName)
	}
	claims := s.Spec.VolumeClaimTemplates
	if len(claims) != 1 || claims[0].Spec.Resources.Requests.Storage().String() != "20Gi" || *claims[0].Spec.StorageClassName != "fast" {
		t.Errorf("claims %+v", claims)
	}
	if !slices.ContainsFunc(s.Spec.Template.Spec.Containers[0].VolumeMounts, func(m core.VolumeMount) bool {
		return m.Name == claims[0].Name && strings.HasPrefix(fmt.Sprint(settingsOf(t, r)["ledger"]), m.MountPath+"/")
	}) {
		t.Error("the ledger is not on its volume")
	}
	known := renderChart(t, chartForms["with a ledger"])
	if got := settingsOf(t, known)["ledger-at"]; got != "ledger.eye.svc:8590" {
		t.Errorf("ledger-at %v", got)
	}
	if got := objectsOf[*apps.Deployment](known)[0].Spec.Template.Labels["ckd/client"]; got != "true" {
		t.Error("the network policy of the ledger does not admit the pods")
	}
}

// TestChartEgress checks that the daemon may reach what it calls, and no more.
func TestChartEgress(t *testing.T) {
	for name, c := range map[string]struct {
		values string
		want   string // the ports of each rule
	}{
		"nothing":                    {"", ""},
		"collector":                  {"settings: {trace-endpoint: 'http://a:4317'}", "[53 53] [4317]"},
		"collector without a port":   {"env: [{name: OTEL_EXPORTER_OTLP_ENDPOINT, value: 'https://a'}]", "[53 53] [443]"},
		"collector in env":           {"env: [{name: OTEL_EXPORTER_OTLP_ENDPOINT, value: 'http://a:4318'}]", "[53 53] [4318]"},
		"env wins over settings":     {"settings: {trace-endpoint: 'http://a:1'}\nenv: [{name: OTEL_EXPORTER_OTLP_ENDPOINT, value: 'http://a:2'}]", "[53 53] [2]"},
		"collector of traces in env": {"env: [{name: OTEL_EXPORTER_OTLP_TRACES_ENDPOINT, value: 'http://a:2'}, {name: OTEL_EXPORTER_OTLP_ENDPOINT, value: 'http://a:1'}]", "[53 53] [2]"},
		"issuer":                     {"networkPolicy: {egress: [{to: [{ipBlock: {cidr: 10.0.0.1/32}}], ports: [{port: 6443}]}]}", "[6443] [53 53]"},
		"ledger": {"receipts: {existingSecret: k, key: keys}\naccess: {existingSecret: a}\ntls: {existingSecret: t}\nledger: {at: 'l:8590', tokenKey: t}",
			"[53 53] [8590]"},
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			var rules []string
			for _, rule := range onlyObject[*networking.NetworkPolicy](t, renderChart(t, c.values)).Spec.Egress {
				var ports []string
				for _, p := range rule.Ports {
					ports = append(ports, p.Port.String())
				}
				rules = append(rules, fmt.Sprint(ports))
			}
			if got := strings.Join(rules, " "); got != c.want {
				t.Errorf("egress to %s, want %s", got, c.want)
			}
		})
	}
}

// TestChartSidecar checks that ckd is a native sidecar: the model server waits for it, shares its
// socket and stops first.
func TestChartSidecar(t *testing.T) {
	t.Parallel()
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
}

// TestChartChecksum checks that only changed settings restart pods. The daemon reads policies,
// certificates and tokens again by itself.
func TestChartChecksum(t *testing.T) {
	t.Parallel()
	sum := func(values string) string {
		d := onlyObject[*apps.Deployment](t, renderChart(t, values))
		return d.Spec.Template.Annotations["checksum/settings"]
	}
	other := fmt.Sprintf("policies: {a.yaml: %q}", onePolicy)
	if sum("") != sum(other) || sum("") == sum("settings: {log-level: debug}") || sum("") == "" {
		t.Error("the checksum is not of the settings alone")
	}
}

// TestChartRefuses renders values that would start a daemon that cannot work, or that the chart would
// ignore. The schema must refuse them, at the place that it names. What each lacks makes it good.
func TestChartRefuses(t *testing.T) {
	const access, tls = "access: {existingSecret: a}\n", "tls: {existingSecret: a}\n"
	const outside = access + "ingress: {enabled: true, hosts: [{host: a}], tls: [{secretName: a}]}\n"
	for name, c := range map[string]struct {
		values, at string
		good       string // values that make it good, after those
	}{
		"unknown value":          {"bogus: 1", "'bogus'", ""},
		"unknown setting":        {"settings: {bogus: 1}", "'bogus'", ""},
		"a setting of the chart": {"settings: {listen: ':1'}", "'listen'", ""},
		"a setting in env":       {"env: [{name: CKD_LISTEN, value: x}]", "/env/0/name", ""},
		"pprof beyond loopback":  {"settings: {pprof: ':6060'}", "/settings/pprof", ""},
		"no such port":           {"settings: {trace-endpoint: 'http://a:70000'}", "/settings/trace-endpoint", ""},
		"too many open bytes":    {"settings: {max-open-bytes: 1099511627777}", "/settings/max-open-bytes", ""},
		"no image":               {"image: {repository: ''}", "/image/repository", ""},
		"a volume of the chart":  {"extraVolumes: [{name: ckd-tls, emptyDir: {}}]", "/extraVolumes/0/name", ""},
		"a key that leads away":  {"access: {existingSecret: a, key: ../a}", "/access/key", ""},
		"another probe":          {"livenessProbe: {exec: {command: [a]}}", "/livenessProbe", ""},
		"memory without a unit":  {"resources: {limits: {memory: 512}}", "/resources/limits/memory", ""},
		"memory in thousandths":  {"resources: {requests: {memory: 128m}}", "/resources/requests/memory", ""},
		"no replica may go":      {"podDisruptionBudget: {maxUnavailable: 0%}", "/podDisruptionBudget/maxUnavailable", ""},
		"a port of ckd":          {strings.Replace(sidecarValues, "8001", "9590", 1), "/sidecar/container/ports/0/containerPort", ""},
		"policy of another name": {"policies: {a.json: 'models: [{}]'}", "a.json", ""},
		"policy split by --set":  {"policies: {a.yaml: {yaml: x}}", "/policies/a.yaml", ""},
		"policy that is empty":   {`policies: {a.yaml: " \n"}`, "/policies/a.yaml", ""},
		"policy of comments":     {`policies: {a.yaml: "# models:\n"}`, "/policies/a.yaml", ""},
		"policies twice":         {"policies: {a.yaml: 'models: [{}]'}\npoliciesConfigMap: b", "/policies", "policies: null"},
		"sidecar of nothing":     {"mode: sidecar", "/sidecar/container", sidecarValues},
		"deployment beside":      {"sidecar: {container: {name: x}}", "/sidecar/container", ""},
		"sidecar that scales":    {sidecarValues + "autoscaling: {enabled: true}", "/autoscaling/enabled", ""},
		"sidecar's Service":      {sidecarValues + "serviceMonitor: {enabled: true}", "/serviceMonitor/enabled", ""},
		"deployment's pods":      {"podMonitor: {enabled: true}", "/podMonitor/enabled", ""},
		"ledger without keys":    {"mode: ledger", "/receipts/existingSecret", "receipts: {existingSecret: a}"},
		"ledger elsewhere":       {"mode: ledger\nreceipts: {existingSecret: k}\nledger: {at: 'l:8590'}", "/ledger/at", ""},
		"ledger in plaintext":    {"mode: library\nledger: {at: 'l:8590'}", "/tls/", tls},
		"token without access":   {"ledger: {at: 'l:8590', tokenKey: t}", "/access/existingSecret", access},
		"two certificates":       {"tls: {existingSecret: a, certManager: {enabled: true, issuerRef: {name: a}}}", "/tls/existingSecret", ""},
		"no issuer":              {"tls: {certManager: {enabled: true}}", "/tls/certManager/issuerRef/name", "tls: {certManager: {issuerRef: {name: a}}}"},
		"admin TLS of nothing":   {"tls: {admin: true}", "/tls/", tls},
		"revocations of nobody":  {"tls: {clientCA: {crlKey: a}}", "/tls/clientCA/existingSecret", "tls: {existingSecret: a, clientCA: {existingSecret: a}}"},
		"ids for anybody":        {"settings: {recent-inputs: 5}\ntls: {existingSecret: a, admin: true}", "/access/existingSecret", access},
		"ids in plaintext":       {"settings: {recent-inputs: 5}\n" + access + tls, "/tls/admin", "tls: {admin: true}"},
		"outside in plaintext":   {"service: {type: LoadBalancer}\n" + access, "/tls/", tls},
		"outside for anybody":    {"service: {type: NodePort}\n" + tls, "/access/existingSecret", access},
		"outside for a sidecar":  {sidecarValues + access + tls + "service: {type: NodePort}", "/service/type", ""},
		"ingress for anybody":    {strings.Replace(outside, access, "", 1) + "http: {enabled: true}", "/access/existingSecret", access},
		"ingress in plaintext":   {strings.Replace(outside, "[{secretName: a}]", "[]", 1) + "http: {enabled: true}", "/ingress/tls", ""},
		"ingress to no port":     {outside, "/http/enabled", "ingress: {port: grpc}"},
		"route of no Gateway":    {"grpcRoute: {enabled: true}\n" + access, "/grpcRoute/parentRefs", "grpcRoute: {parentRefs: [{name: a}]}"},
		"no target of scaling":   {"autoscaling: {enabled: true, targetCPUUtilizationPercentage: 0}", "/autoscaling/targetInputsOpen", "autoscaling: {targetInputsOpen: 2k}"},
		"share of no CPU":        {"autoscaling: {enabled: true}\nresources: {requests: {cpu: null}}", "/resources/requests", "resources: {requests: {cpu: 1}}"},
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			result := helmTemplate(t, c.values)
			if result.Code == 0 || !strings.Contains(result.Stderr, c.at) {
				t.Errorf("%s\nexit %d, want a message with %q:\n%s", c.values, result.Code, c.at, result.Stderr)
			}
			if c.good == "" {
				return
			}
			file := filepath.Join(t.TempDir(), "good.yaml")
			putFile(t, file, c.good)
			if result := helmTemplate(t, c.values, "--values", file); result.Code != 0 {
				t.Errorf("%s\n%s\n%s", c.values, c.good, result.Stderr)
			}
		})
	}
	if r := helmTemplate(t, sidecarValues, "--kube-version", "1.28.9"); r.Code == 0 || !strings.Contains(r.Stderr, "1.29") {
		t.Errorf("Kubernetes without native sidecars: exit %d, %s", r.Code, r.Stderr)
	}
}

// TestChartWithoutFiles removes files from the chart, as some tools do when they copy it. helm must
// fail where a file is needed and say what to set instead.
func TestChartWithoutFiles(t *testing.T) {
	t.Parallel()
	const policy = "files/example-policy.yaml"
	for _, c := range []struct{ name, file, text, values, want string }{
		{"no policy", policy, "", "", policy + " is missing or empty in this copy of the chart: set policies or policiesConfigMap"},
		{"a commented policy", policy, "# models:\n---\n", sidecarValues, policy + " is missing or empty"},
		{"the policy that is given", policy, "", "policies: {a.yaml: 'models: [{name: a}]'}", ""},
		{"no rules", "files/rules/alerts.yaml", "", "prometheusRule: {enabled: true}",
			"files/rules/alerts.yaml is missing or empty in this copy of the chart: install the whole chart, or set prometheusRule.enabled to false"},
		{"rules without groups", "files/rules/recording.yaml", "groups: []\n", "prometheusRule: {enabled: true}", "files/rules/recording.yaml has no groups"},
		{"no dashboards", "files/grafana", "", "dashboards: {enabled: true}",
			"files/grafana/*.json is missing or empty in this copy of the chart: install the whole chart, or set dashboards.enabled to false"},
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

// TestChartSettings compares the schema with the settings of the daemon: all but those that the
// chart sets itself, with their type and default.
func TestChartSettings(t *testing.T) {
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
	text := strings.ReplaceAll(getFile(t, filepath.Join(chart, "values.schema.json")), `"$ref"`, `"ref"`)
	if err := json.Unmarshal([]byte(text), &values); err != nil {
		t.Fatal(err)
	}
	known := values.Properties.Settings.Properties
	chartsOwn := strings.Fields("config policy listen admin http tls-cert tls-key tls-client-ca tls-crl admin-tls access insecure-plaintext " +
		"receipt-keys ledger ledger-at ledger-ca ledger-token ledger-state")
	defaults, err := config.Default()
	if err != nil {
		t.Fatal(err)
	}
	for _, field := range reflect.VisibleFields(reflect.TypeFor[config.Config]()) {
		env, isSetting := field.Tag.Lookup("env")
		env, _, _ = strings.Cut(env, ",") // others may stand for it
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
		if name == "max-open-bytes" {
			p.Maximum = nil // the sum that makes the limit of memory must not overflow
		}
		if want.Type == "integer" || want.Type == "number" {
			checkBounds(t, field, name, p.Minimum, p.Maximum)
			p.Minimum, p.Maximum = nil, nil
		}
		if d := cmp.Diff(want, p); d != "" {
			t.Errorf("%s: -daemon +schema:\n%s", name, d)
		}
	}
	for name := range known {
		t.Errorf("%s: no setting of the daemon", name)
	}
}

// checkBounds checks that the schema accepts the same range of a number as the daemon.
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
	if most == nil { // only the type bounds it
		if field.Type.Kind() != reflect.Int64 || !taken(strconv.Itoa(math.MaxInt64)) {
			t.Errorf("%s: the schema has no maximum, the daemon has", name)
		}
	} else if !taken(number(*most)) || taken(number(*most+1)) {
		t.Errorf("%s: the daemon's maximum is not the schema's %v", name, *most)
	}
}

// TestChartServes starts the daemon with the rendered files, mounted as the kubelet does it, and
// changes its policies.
func TestChartServes(t *testing.T) {
	t.Parallel()
	for form, values := range chartForms {
		if form == "library" {
			continue
		}
		t.Run(form, func(t *testing.T) {
			t.Parallel()
			r := renderChart(t, values)
			pods := podsOf(r)
			spec := pods[slices.IndexFunc(pods, func(p pod) bool { return p.served })].spec
			all := slices.Concat(spec.InitContainers, spec.Containers)
			container := all[slices.IndexFunc(all, isCkd)]
			root := socketDir(t)
			mounted := mountVolumes(t, r, spec, container, root)
			settings := filepath.Join(root, "ckd.yaml")
			putFile(t, settings, rooted(root).Replace(getFile(t, mounted["/etc/ckd/settings"].Path("ckd.yaml"))))
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
			mounted["/etc/ckd/policies"].MustWrite(t, map[string]string{"other.yaml": strings.Replace(onePolicy, "one", "another", 1)})
			testbed.Eventually(t, "the changed policies are in force", func() bool {
				return strings.Contains(healthz(t, d, root), "model another:")
			})
			if code := d.Stop(); code != 0 {
				t.Errorf("exit code %d", code)
			}
		})
	}
}

// TestChartNotes checks that the notes warn of exactly what is the case. Helm prints notes only for
// an installation, so the test renders them into a manifest.
func TestChartNotes(t *testing.T) {
	t.Parallel()
	dir := copyChart(t)
	putFile(t, filepath.Join(dir, "templates/notes.yaml"),
		`{{- define "notes" }}`+getFile(t, filepath.Join(chart, "templates/NOTES.txt"))+`{{ end }}notes: {{ include "notes" . | quote }}`)

	for _, c := range []struct {
		name, values string
		has, lack    []string
	}{
		{"default", "", []string{"dns:///ckd.grading.svc:8590", "*** PLAINTEXT", "*** EXAMPLE POLICY", "No access.existingSecret", "http://127.0.0.1:9590/"},
			[]string{"every pod of the cluster", "PRIVACY", "-http", "resources.limits"}},
		{"no NetworkPolicy", "networkPolicy: {enabled: false}", []string{"*** PLAINTEXT", "every pod of the cluster can call"}, []string{"ckd/client"}},
		{"recent inputs", "settings: {recent-inputs: 5}\ntls: {existingSecret: a, admin: true}\naccess: {existingSecret: b}",
			[]string{"*** PRIVACY", "to identities with `recent: true`"}, []string{"No access", "The page is off"}},
		{"sidecar without ports", chartForms["sidecar without ports"], []string{"declares no ports", "anybody reaches it"}, []string{"The page is off"}},
		{"too few models", "policies: {a.yaml: 'models: [{name: a}, {name: b}]', b.yaml: 'models: [{name: c}]'}", []string{"have 3 models, and the memory is for 1. Set models=3."}, nil},
		{"everything secured", "tls: {existingSecret: a, admin: true}\naccess: {existingSecret: b}\npoliciesConfigMap: c\nhttp: {enabled: true}\nresources: {limits: {memory: 1Gi}}",
			[]string{"https://ckd-http.grading.svc:8591", "https://127.0.0.1:9590/", "with models=1, takes"}, []string{"***", "No access"}},
		{"sidecar", sidecarValues, []string{"server with ckd beside it", "unix:/run/ckd/ckd.sock."}, []string{"PLAINTEXT", "No access"}},
		{"library", "mode: library", []string{"ckd.sidecar"}, []string{"PLAINTEXT"}},
	} {
		t.Run(c.name, func(t *testing.T) {
			t.Parallel()
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
		})
	}
}

// tokensInPlaintext reports whether the daemon turns its page off, because tokens would be sent in
// plaintext.
func tokensInPlaintext(t *testing.T, r []runtime.Object) bool {
	t.Helper()
	settings := settingsOf(t, r)
	c := config.Config{Addresses: config.Addresses{Admin: fmt.Sprint(settings["admin"])}}
	c.Access, _ = settings["access"].(string)
	c.AdminTLS, _ = settings["admin-tls"].(bool)
	c.InsecurePlaintext, _ = settings["insecure-plaintext"].(bool)
	return c.TokensInPlaintext()
}

// TestChartInAnother includes the chart in a model server's chart as docs/kubernetes.md describes.
func TestChartInAnother(t *testing.T) {
	t.Parallel()
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

// TestDocsOfKubernetes runs every helm command of docs/kubernetes.md.
func TestDocsOfKubernetes(t *testing.T) {
	t.Parallel()
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
	image, err := filepath.Abs(imageFile)
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
			if slices.Contains(words, "--reuse-values") {
				words = append(words, "--values", image)
			}
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

// TestExampleManifests decodes the manifests of examples/kserve that have Kubernetes' own types.
// examples tests those of KServe.
func TestExampleManifests(t *testing.T) {
	files, err := filepath.Glob("../../examples/kserve/*.yaml")
	if err != nil {
		t.Fatal(err)
	}
	decoded := 0
	for _, file := range files {
		for _, document := range splitManifests(t, getFile(t, file)) {
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

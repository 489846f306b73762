package deploytest

import (
	"encoding/json"
	"errors"
	"fmt"
	"os"
	"os/exec"
	"path/filepath"
	"reflect"
	"slices"
	"strings"
	"testing"
	"time"

	"github.com/google/go-cmp/cmp"
	monitoring "github.com/prometheus-operator/prometheus-operator/pkg/apis/monitoring/v1"
	apps "k8s.io/api/apps/v1"
	core "k8s.io/api/core/v1"
	networking "k8s.io/api/networking/v1"

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
	"a user of the cluster's choice": "access: {existingSecret: ckd-access}\n" +
		"podSecurityContext: {runAsUser: null, runAsGroup: null, fsGroup: null}",
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
  decision-log: stdout
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
	"library": "mode: library\npodMonitor: {enabled: true}\nprometheusRule: {enabled: true}\ndashboards: {enabled: true}",
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
	for name, c := range map[string]struct {
		values string
		flags  []string
		begins bool
	}{
		"install":              {"", nil, true},
		"upgrade":              {"", []string{"--is-upgrade"}, false},
		"install of a restore": {"ledger: {begin: false}", nil, false},
	} {
		set := objectsOf[*apps.StatefulSet](renderChart(t, "mode: ledger\nreceipts: {existingSecret: a}\n"+c.values, c.flags...))[0]
		if got := len(set.Spec.Template.Spec.InitContainers) == 1; got != c.begins {
			t.Errorf("%s: the ledger begins: %v, want %v", name, got, c.begins)
		}
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
		"nothing":                {"", ""},
		"collector":              {"settings: {trace-endpoint: 'http://a:4317'}", "[53 53] [4317]"},
		"env wins over settings": {"settings: {trace-endpoint: 'http://a:1'}\nenv: [{name: OTEL_EXPORTER_OTLP_ENDPOINT, value: 'http://a:2'}]", "[53 53] [2]"},
		"issuer":                 {"networkPolicy: {egress: [{to: [{ipBlock: {cidr: 10.0.0.1/32}}], ports: [{port: 6443}]}]}", "[6443] [53 53]"},
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
		"a setting in env":      {"env: [{name: CKD_LISTEN, value: x}]", "/env/0/name", ""},
		"pprof beyond loopback": {"settings: {pprof: ':6060'}", "/settings/pprof", ""},
		"a volume of the chart": {"extraVolumes: [{name: ckd-tls, emptyDir: {}}]", "/extraVolumes/0/name", ""},
		"memory without a unit": {"resources: {limits: {memory: 512}}", "/resources/limits/memory", ""},
		"a port of ckd":         {strings.Replace(sidecarValues, "8001", "9590", 1), "/sidecar/container/ports/0/containerPort", ""},
		"policy that is empty":  {`policies: {a.yaml: " \n"}`, "/policies/a.yaml", ""},
		"policies twice":        {"policies: {a.yaml: 'models: [{}]'}\npoliciesConfigMap: b", "/policies", "policies: null"},
		"sidecar of nothing":    {"mode: sidecar", "/sidecar/container", sidecarValues},
		"sidecar's Service":     {sidecarValues + "serviceMonitor: {enabled: true}", "/serviceMonitor/enabled", ""},
		"ledger without keys":   {"mode: ledger", "/receipts/existingSecret", "receipts: {existingSecret: a}"},
		"ledger in plaintext":   {"mode: library\nledger: {at: 'l:8590'}", "/tls/", tls},
		"token without access":  {"ledger: {at: 'l:8590', tokenKey: t}", "/access/existingSecret", access},
		"two certificates":      {"tls: {existingSecret: a, certManager: {enabled: true, issuerRef: {name: a}}}", "/tls/existingSecret", ""},
		"revocations of nobody": {"tls: {clientCA: {crlKey: a}}", "/tls/clientCA/existingSecret", "tls: {existingSecret: a, clientCA: {existingSecret: a}}"},
		"ids for anybody":       {"settings: {recent-inputs: 5}\ntls: {existingSecret: a, admin: true}", "/access/existingSecret", access},
		"ids in plaintext":      {"settings: {recent-inputs: 5}\n" + access + tls, "/tls/admin", "tls: {admin: true}"},
		"outside in plaintext":  {"service: {type: LoadBalancer}\n" + access, "/tls/", tls},
		"outside for anybody":   {"service: {type: NodePort}\n" + tls, "/access/existingSecret", access},
		"ingress for anybody":   {strings.Replace(outside, access, "", 1) + "http: {enabled: true}", "/access/existingSecret", access},
		"ingress to no port":    {outside, "/http/enabled", "ingress: {port: grpc}"},
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

// TestChartSettings compares the schema with the settings of the daemon: all but those that the
// chart sets itself, with their type and default.
func TestChartSettings(t *testing.T) {
	type property struct {
		Type, Ref string
		Enum      []string
		Default   any
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
		if d := cmp.Diff(want, p); d != "" {
			t.Errorf("%s: -daemon +schema:\n%s", name, d)
		}
	}
	for name := range known {
		t.Errorf("%s: no setting of the daemon", name)
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
			for _, c := range spec.InitContainers {
				if c.Name != "begin" {
					continue
				}
				first := strings.Split(rooted(root).Replace(strings.Join(c.Args, "\n")), "\n")
				for range 2 { // a pod that is started again before the first upgrade
					if got := testbed.Run(t, exec.Command(ckd, first...)); got.Code != 0 {
						t.Fatalf("init container: %s", got.Stderr)
					}
				}
			}
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

// TestChartInAnother renders examples/helm, a model server's chart that includes this one.
func TestChartInAnother(t *testing.T) {
	t.Parallel()
	helm := helmProgram(t)
	folder := t.TempDir()
	parent := filepath.Join(folder, "examples/helm")
	ours, err := filepath.Abs(chart)
	if err != nil {
		t.Fatal(err)
	}
	if err := errors.Join(os.MkdirAll(filepath.Join(folder, "deploy/helm"), 0o755), os.Symlink(ours, filepath.Join(folder, "deploy/helm/ckd"))); err != nil {
		t.Fatal(err)
	}
	for _, file := range []string{"Chart.yaml", "values.yaml", "templates/deployment.yaml"} {
		putFile(t, filepath.Join(parent, file), getFile(t, filepath.Join("../../examples/helm", file)))
	}
	build := exec.Command(helm, "dependency", "build", "examples/helm")
	build.Dir = folder
	if r := testbed.Run(t, build); r.Code != 0 || !strings.Contains(kubernetesDocs(t)["sh"], "helm dependency build examples/helm\n") {
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

// TestDocsOfKubernetes runs every helm command of docs/kubernetes.md, renders its values, and looks for the
// files that others name.
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
		if i := slices.Index(words, "--filename"); i >= 0 {
			getFile(t, filepath.Join("../..", words[i+1]))
		}
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
	renderChart(t, blocks[""])
	resources := onlyObject[*apps.Deployment](t, renderChart(t, "")).Spec.Template.Spec.Containers[0].Resources
	defaults := fmt.Sprintf("The defaults are %v and %v.", resources.Requests.Memory(), resources.Limits.Memory())
	if page := getFile(t, "../../docs/kubernetes.md"); !strings.Contains(strings.Join(strings.Fields(page), " "), defaults) {
		t.Errorf("the page does not say: %s", defaults)
	}
}

package deploytest

import (
	"bufio"
	"crypto/ecdsa"
	"crypto/elliptic"
	"crypto/rand"
	"crypto/tls"
	"crypto/x509"
	"crypto/x509/pkix"
	"encoding/pem"
	"errors"
	"fmt"
	"io"
	"maps"
	"math/big"
	"net/http"
	"os"
	"os/exec"
	"path/filepath"
	"reflect"
	"regexp"
	"slices"
	"strings"
	"sync"
	"testing"
	"time"

	monitoring "github.com/prometheus-operator/prometheus-operator/pkg/apis/monitoring/v1"
	apps "k8s.io/api/apps/v1"
	autoscaling "k8s.io/api/autoscaling/v2"
	core "k8s.io/api/core/v1"
	networking "k8s.io/api/networking/v1"
	disruption "k8s.io/api/policy/v1"
	meta "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/labels"
	"k8s.io/apimachinery/pkg/runtime"
	"k8s.io/apimachinery/pkg/runtime/schema"
	"k8s.io/apimachinery/pkg/runtime/serializer"
	"k8s.io/apimachinery/pkg/util/intstr"
	"k8s.io/apimachinery/pkg/util/validation"
	manifests "k8s.io/apimachinery/pkg/util/yaml"
	kubernetes "k8s.io/client-go/kubernetes/scheme"
	security "k8s.io/pod-security-admission/api"
	securitypolicy "k8s.io/pod-security-admission/policy"
	"sigs.k8s.io/yaml"

	"github.com/ckd-project/ckd/integration_test/testbed"
)

// ---- rendering

const kubeVersion = "1.34.0"

// pinnedHelm is the helm of tools/go.mod, which the go command builds; "" where it
// cannot.
var pinnedHelm = sync.OnceValue(func() string {
	build := exec.Command("go", "tool", "-n", "-modfile=tools/go.mod", "helm")
	build.Dir = "../.."
	path, err := build.Output()
	if err != nil {
		return ""
	}
	return strings.TrimSpace(string(path))
})

// helmProgram is $HELM, or helm on the PATH, or the pinned one.
func helmProgram(t *testing.T) string {
	t.Helper()
	if _, err := exec.LookPath("helm"); err != nil && os.Getenv("HELM") == "" {
		if path := pinnedHelm(); path != "" {
			return path
		}
	}
	return testbed.Program(t, "helm", "HELM")
}

func helmTemplate(t *testing.T, values string, flags ...string) testbed.Result {
	t.Helper()
	return helmTemplateOf(t, chart, values, flags...)
}

func helmTemplateOf(t *testing.T, chart, values string, flags ...string) testbed.Result {
	t.Helper()
	if !slices.Contains(flags, "--kube-version") {
		flags = append(flags, "--kube-version", kubeVersion)
	}
	command := exec.Command(helmProgram(t), append([]string{"template", "ckd", chart, "--namespace", "grading", "--values", "-"}, flags...)...)
	command.Stdin = strings.NewReader(values)
	return testbed.Run(t, command)
}

// copyChart returns the folder of a copy of the chart, for a test to change.
func copyChart(t *testing.T) string {
	t.Helper()
	dir := t.TempDir()
	if err := os.CopyFS(dir, os.DirFS(chart)); err != nil {
		t.Fatal(err)
	}
	return dir
}

func renderChart(t *testing.T, values string, flags ...string) []runtime.Object {
	t.Helper()
	result := helmTemplate(t, values, flags...)
	if result.Code != 0 {
		t.Fatalf("helm: %s", result.Stderr)
	}
	return decodeManifests(t, result.Stdout)
}

// issuedCertificate is what the chart uses of cert-manager's type, which is not a
// dependency here.
type issuedCertificate struct {
	meta.TypeMeta   `json:",inline"`
	meta.ObjectMeta `json:"metadata"`
	Spec            struct {
		SecretName  string            `json:"secretName"`
		IssuerRef   map[string]string `json:"issuerRef"`
		Duration    meta.Duration     `json:"duration"`
		RenewBefore meta.Duration     `json:"renewBefore"`
		PrivateKey  struct {
			Algorithm      string `json:"algorithm"`
			Size           int    `json:"size"`
			RotationPolicy string `json:"rotationPolicy"`
		} `json:"privateKey"`
		Usages   []string `json:"usages"`
		DNSNames []string `json:"dnsNames"`
	} `json:"spec"`
}

func (c *issuedCertificate) DeepCopyObject() runtime.Object { return c }

// decoder refuses fields that a type does not have, and those that come twice.
var decoder = func() runtime.Decoder {
	scheme := runtime.NewScheme()
	for _, add := range []func(*runtime.Scheme) error{kubernetes.AddToScheme, monitoring.AddToScheme} {
		if err := add(scheme); err != nil {
			panic(err)
		}
	}
	scheme.AddKnownTypeWithName(schema.GroupVersionKind{Group: "cert-manager.io", Version: "v1", Kind: "Certificate"}, &issuedCertificate{})
	return serializer.NewCodecFactory(scheme, serializer.EnableStrict).UniversalDeserializer()
}()

func decodeManifests(t *testing.T, text string) []runtime.Object {
	t.Helper()
	var all []runtime.Object
	seen := map[string]bool{}
	for _, document := range splitManifests(t, text) {
		object, kind, err := decoder.Decode(document, nil, nil)
		if err != nil {
			t.Fatalf("%v in\n%s", err, document)
		}
		o := object.(meta.Object)
		id := kind.Kind + " " + o.GetName()
		if seen[id] || o.GetName() == "" || o.GetNamespace() != "grading" {
			t.Errorf("%s of namespace %q: twice, or without a name or namespace", id, o.GetNamespace())
		}
		seen[id] = true
		checkNames(t, id, object)
		all = append(all, object)
	}
	return all
}

// checkNames: the API server would take an object's name, labels and annotations.
func checkNames(t *testing.T, id string, object runtime.Object) {
	t.Helper()
	o := object.(meta.Object)
	faults := validation.IsDNS1123Subdomain(o.GetName())
	all := []meta.Object{o}
	switch typed := object.(type) {
	case *core.Service:
		faults = validation.IsDNS1035Label(o.GetName())
	case *apps.Deployment:
		all = append(all, &typed.Spec.Template.ObjectMeta)
	}
	for _, o := range all {
		for key, value := range o.GetLabels() {
			faults = slices.Concat(faults, validation.IsQualifiedName(key), validation.IsValidLabelValue(value))
		}
		for key := range o.GetAnnotations() {
			faults = slices.Concat(faults, validation.IsQualifiedName(strings.ToLower(key)))
		}
	}
	if len(faults) > 0 {
		t.Errorf("%s: %q", id, faults)
	}
}

func splitManifests(t *testing.T, text string) [][]byte {
	t.Helper()
	var all [][]byte
	for reader := manifests.NewYAMLReader(bufio.NewReader(strings.NewReader(text))); ; {
		document, err := reader.Read()
		if errors.Is(err, io.EOF) {
			return all
		}
		if err != nil {
			t.Fatal(err)
		}
		var content any
		if err := yaml.Unmarshal(document, &content); err != nil {
			t.Fatalf("%v in\n%s", err, document)
		}
		if content != nil { // comments alone
			all = append(all, document)
		}
	}
}

func objectsOf[T runtime.Object](r []runtime.Object) []T {
	var all []T
	for _, o := range r {
		if typed, ok := o.(T); ok {
			all = append(all, typed)
		}
	}
	return all
}

func onlyObject[T runtime.Object](t *testing.T, r []runtime.Object) T {
	t.Helper()
	all := objectsOf[T](r)
	if len(all) != 1 {
		t.Fatalf("%d of %T, want one", len(all), *new(T))
	}
	return all[0]
}

// pod is a pod that the chart makes, by itself or by a Deployment.
type pod struct {
	name   string
	labels labels.Set
	meta   meta.ObjectMeta
	spec   core.PodSpec
	served bool // it is of the Deployment
}

func podsOf(r []runtime.Object) []pod {
	var all []pod
	for _, d := range objectsOf[*apps.Deployment](r) {
		template := d.Spec.Template
		all = append(all, pod{"Deployment " + d.Name, template.Labels, template.ObjectMeta, template.Spec, true})
	}
	for _, p := range objectsOf[*core.Pod](r) {
		all = append(all, pod{"Pod " + p.Name, p.Labels, p.ObjectMeta, p.Spec, false})
	}
	return all
}

func settingsOf(t *testing.T, r []runtime.Object) map[string]any {
	t.Helper()
	for _, c := range objectsOf[*core.ConfigMap](r) {
		if strings.HasSuffix(c.Name, "-settings") {
			settings := map[string]any{}
			if err := yaml.UnmarshalStrict([]byte(c.Data["ckd.yaml"]), &settings); err != nil {
				t.Fatal(err)
			}
			return settings
		}
	}
	t.Fatal("no settings")
	return nil
}

// onePolicy is a policy of the model "one".
const onePolicy = `models: [{name: one, version: "1", classes: [a, b], critical: [b], passes: {fewest: 10, expected: 30}}]
`

// ---- what must hold in every form

func checkPod(t *testing.T, r []runtime.Object, p pod) {
	t.Helper()
	evaluator, err := securitypolicy.NewEvaluator(securitypolicy.DefaultChecks(), nil)
	if err != nil {
		t.Fatal(err)
	}
	restricted := security.LevelVersion{Level: security.LevelRestricted, Version: security.LatestVersion()}
	for _, verdict := range evaluator.EvaluatePod(restricted, &p.meta, &p.spec) {
		if !verdict.Allowed {
			t.Errorf("%s: not restricted: %s, %s", p.name, verdict.ForbiddenReason, verdict.ForbiddenDetail)
		}
	}
	if s := p.spec.AutomountServiceAccountToken; s == nil || *s {
		t.Errorf("%s: the token of the service account is mounted", p.name)
	}

	volumes := map[string]core.Volume{}
	for _, v := range p.spec.Volumes {
		if _, twice := volumes[v.Name]; twice {
			t.Errorf("%s: volume %s twice", p.name, v.Name)
		}
		volumes[v.Name] = v
		// Root's files are for the daemon to read by its group, or by everybody where the pod has none.
		if shared := p.spec.SecurityContext != nil && p.spec.SecurityContext.FSGroup != nil; v.Secret != nil &&
			(shared != (v.Secret.DefaultMode != nil) || shared && *v.Secret.DefaultMode != 0o440) {
			t.Errorf("%s: volume %s has mode %v, a group: %v", p.name, v.Name, v.Secret.DefaultMode, shared)
		}
		if v.ConfigMap != nil && v.ConfigMap.Name != "mine" && !slices.ContainsFunc(objectsOf[*core.ConfigMap](r),
			func(c *core.ConfigMap) bool { return c.Name == v.ConfigMap.Name }) {
			t.Errorf("%s: no ConfigMap %s", p.name, v.ConfigMap.Name)
		}
	}
	used := map[string]bool{}
	ports := map[string]bool{}
	for _, c := range slices.Concat(p.spec.InitContainers, p.spec.Containers) {
		paths := map[string]bool{}
		for _, m := range c.VolumeMounts {
			if _, there := volumes[m.Name]; !there || paths[m.MountPath] {
				t.Errorf("%s: %s: mount %+v is of no volume, or the second at its place", p.name, c.Name, m)
			}
			if m.SubPath != "" || m.SubPathExpr != "" {
				t.Errorf("%s: %s: a subPath is never brought up to date: %+v", p.name, c.Name, m)
			}
			used[m.Name], paths[m.MountPath] = true, true
		}
		if c.SecurityContext == nil || c.SecurityContext.ReadOnlyRootFilesystem == nil || !*c.SecurityContext.ReadOnlyRootFilesystem {
			t.Errorf("%s: %s may write its root", p.name, c.Name)
		}
		for _, port := range c.Ports {
			if ports[port.Name] || len(port.Name) > 15 {
				t.Errorf("%s: port %s twice, or too long", p.name, port.Name)
			}
			ports[port.Name] = true
		}
		if c.Name == "ckd" {
			checkDaemon(t, r, p, c)
		}
	}
	for name := range volumes {
		if !used[name] && strings.HasPrefix(name, "ckd-") {
			t.Errorf("%s: nobody mounts %s", p.name, name)
		}
	}
}

// checkDaemon asks of the container what follows from the settings.
func checkDaemon(t *testing.T, r []runtime.Object, p pod, c core.Container) {
	t.Helper()
	settings := settingsOf(t, r)
	scheme := core.URISchemeHTTP
	if settings["admin-tls"] == true {
		scheme = core.URISchemeHTTPS
	}
	for path, probe := range map[string]*core.Probe{"/readyz": c.ReadinessProbe, "/livez": c.LivenessProbe} {
		checkProbe(t, c, probe, path, scheme)
	}
	checkProbe(t, c, c.StartupProbe, "/readyz", scheme)

	// Every file that a setting names is in a mount.
	for _, name := range []string{"policy", "access", "tls-cert", "tls-key", "tls-client-ca", "tls-crl", "listen"} {
		for _, path := range regexp.MustCompile(`/[a-z-]+/ckd/[^ \]]+`).FindAllString(fmt.Sprint(settings[name]), -1) {
			if !slices.ContainsFunc(c.VolumeMounts, func(m core.VolumeMount) bool { return path == m.MountPath || filepath.Dir(path) == m.MountPath }) {
				t.Errorf("%s: %s is in no mount", name, path)
			}
		}
	}
	// Beyond loopback in plaintext only where it was said aloud, and never beside a model server.
	exposed := strings.Contains(fmt.Sprint(settings["listen"], settings["http"]), " :") || strings.Contains(fmt.Sprint(settings["listen"]), "[:")
	if plaintext := settings["insecure-plaintext"] == true; plaintext != (exposed && settings["tls-cert"] == nil) {
		t.Errorf("insecure-plaintext is %v with %v", plaintext, settings)
	}

	// All that clients can make it hold fits nine tenths of the limit, which is what Go may use.
	number := func(name string) float64 { n, _ := settings[name].(float64); return n }
	itself := float64(56+8*countModels(t, r)) * (1 << 20)
	holds := 2 * number("max-open-bytes") // with garbage
	if settings["http"] != "off" {
		holds *= 2 // the bodies, and as much again decoded
	}
	holds += number("max-message-bytes")*(number("max-streams")+number("max-calls")) + itself
	limit, request := float64(c.Resources.Limits.Memory().Value()), float64(c.Resources.Requests.Memory().Value())
	if holds < 1<<20 || limit*0.9 < holds-(2<<20) || limit*0.9 > holds*1.05 || request > limit || request < 2*number("max-open-bytes")+itself {
		t.Errorf("memory: request %.0f MiB, limit %.0f MiB; the daemon may hold %.0f MiB", request/(1<<20), limit/(1<<20), holds/(1<<20))
	}
	if c.Resources.Requests.Cpu().IsZero() {
		t.Error("no request of cpu")
	}

	grace, err := time.ParseDuration(fmt.Sprint(settings["shutdown-grace"]))
	if err != nil {
		t.Fatal(err)
	}
	if c.Lifecycle != nil && c.Lifecycle.PreStop != nil {
		grace += time.Duration(c.Lifecycle.PreStop.Sleep.Seconds) * time.Second
	}
	if len(p.spec.InitContainers) > 0 {
		grace += 30 * time.Second // Kubernetes' default, which is the model server's
	}
	seconds := p.spec.TerminationGracePeriodSeconds
	if seconds == nil {
		t.Fatal("no terminationGracePeriodSeconds")
	}
	if killed := time.Duration(*seconds) * time.Second; killed <= grace+2*time.Second { // by when the daemon has exited
		t.Errorf("killed after %v, within 2s of its own grace of %v", killed, grace)
	}
}

// countModels is how many models the daemon has.
func countModels(t *testing.T, r []runtime.Object) int {
	t.Helper()
	n := 0
	for _, c := range objectsOf[*core.ConfigMap](r) {
		if !strings.HasSuffix(c.Name, "-policies") {
			continue
		}
		for name, text := range c.Data {
			var file struct{ Models []any }
			if err := yaml.Unmarshal([]byte(text), &file); err != nil {
				t.Fatalf("%s: %v", name, err)
			}
			n += len(file.Models)
		}
	}
	return max(n, 1) // of a ConfigMap that is not the chart's
}

func checkProbe(t *testing.T, c core.Container, probe *core.Probe, path string, scheme core.URIScheme) {
	t.Helper()
	if probe == nil || probe.HTTPGet == nil {
		t.Fatalf("no probe of %s by HTTP", path)
	}
	get := probe.HTTPGet
	if get.Scheme == "" {
		get.Scheme = core.URISchemeHTTP
	}
	port, there := portOf([]core.Container{c}, get.Port)
	if !there || port != 9590 || get.Path != path || get.Scheme != scheme {
		t.Errorf("probe %+v: want %s of the admin port by %s", get, path, scheme)
	}
}

// portOf is the number of a container's port that is asked for by name or number.
func portOf(containers []core.Container, port intstr.IntOrString) (int32, bool) {
	for _, c := range containers {
		for _, p := range c.Ports {
			if port.StrVal != "" && p.Name == port.StrVal || port.StrVal == "" && p.ContainerPort == port.IntVal {
				return p.ContainerPort, true
			}
		}
	}
	return 0, false
}

func containersOf(p pod) []core.Container {
	return slices.Concat(p.spec.InitContainers, p.spec.Containers)
}

// selects reports whether a selector means the pods of the Deployment, and no others.
func selects(t *testing.T, what string, selector *meta.LabelSelector, pods []pod) {
	t.Helper()
	s, err := meta.LabelSelectorAsSelector(selector)
	if err != nil || s.Empty() {
		t.Errorf("%s: selector %v: error %v", what, selector, err)
		return
	}
	for _, p := range pods {
		if s.Matches(p.labels) != p.served {
			t.Errorf("%s: selector %v and %s with %v", what, selector, p.name, p.labels)
		}
	}
}

func checkDeployment(t *testing.T, r []runtime.Object) {
	t.Helper()
	for _, d := range objectsOf[*apps.Deployment](r) {
		selects(t, "Deployment", d.Spec.Selector, podsOf(r))
		for _, c := range d.Spec.Template.Spec.TopologySpreadConstraints {
			selects(t, "topologySpreadConstraints", c.LabelSelector, podsOf(r))
		}
		account := d.Spec.Template.Spec.ServiceAccountName
		accounts := objectsOf[*core.ServiceAccount](r)
		if len(accounts) > 0 && accounts[0].Name != account || len(accounts) == 0 && account != "default" {
			t.Errorf("service account %s of %d", account, len(accounts))
		}
		least := int32(0)
		for _, h := range objectsOf[*autoscaling.HorizontalPodAutoscaler](r) {
			want := autoscaling.CrossVersionObjectReference{Kind: "Deployment", Name: d.Name, APIVersion: "apps/v1"}
			if h.Spec.ScaleTargetRef != want || d.Spec.Replicas != nil {
				t.Errorf("the autoscaler scales %+v; replicas %v", h.Spec.ScaleTargetRef, d.Spec.Replicas)
			}
			if h.Spec.MinReplicas == nil || *h.Spec.MinReplicas > h.Spec.MaxReplicas || len(h.Spec.Metrics) == 0 || h.Spec.Behavior == nil {
				t.Errorf("autoscaler %+v", h.Spec)
			}
			least = *h.Spec.MinReplicas
		}
		if d.Spec.Replicas != nil {
			least = *d.Spec.Replicas
		}
		budgets := objectsOf[*disruption.PodDisruptionBudget](r)
		if least < 2 && len(budgets) > 0 {
			t.Error("a disruption budget for one replica holds up every drain")
		}
		for _, b := range budgets {
			selects(t, "PodDisruptionBudget", b.Spec.Selector, podsOf(r))
			pods := func(n *intstr.IntOrString) int {
				scaled, err := intstr.GetScaledValueFromIntOrPercent(n, int(least), true)
				if err != nil {
					t.Fatal(err)
				}
				return scaled
			}
			if (b.Spec.MinAvailable == nil) == (b.Spec.MaxUnavailable == nil) ||
				b.Spec.MinAvailable != nil && pods(b.Spec.MinAvailable) >= int(least) ||
				b.Spec.MaxUnavailable != nil && pods(b.Spec.MaxUnavailable) < 1 {
				t.Errorf("budget %+v of %d replicas", b.Spec, least)
			}
		}
	}
}

func checkServices(t *testing.T, r []runtime.Object, pods []pod) {
	t.Helper()
	for _, s := range objectsOf[*core.Service](r) {
		selects(t, "Service "+s.Name, &meta.LabelSelector{MatchLabels: s.Spec.Selector}, pods)
		if s.Spec.PublishNotReadyAddresses {
			t.Errorf("%s publishes addresses that are not ready", s.Name)
		}
		if headless := s.Spec.ClusterIP == core.ClusterIPNone; headless == strings.HasSuffix(s.Name, "-http") {
			t.Errorf("%s: headless %v", s.Name, headless)
		}
		for _, port := range s.Spec.Ports {
			for _, p := range pods {
				if number, there := portOf(containersOf(p), port.TargetPort); p.served && (!there || number != port.Port) {
					t.Errorf("%s: port %+v", s.Name, port)
				}
			}
		}
	}
}

func checkAround(t *testing.T, r []runtime.Object, pods []pod) {
	t.Helper()
	for _, c := range objectsOf[*issuedCertificate](r) {
		for _, s := range objectsOf[*core.Service](r) {
			if !slices.Contains(c.Spec.DNSNames, s.Name+".grading.svc") {
				t.Errorf("the certificate is not for %s: %v", s.Name, c.Spec.DNSNames)
			}
		}
		for _, p := range pods {
			for _, v := range p.spec.Volumes {
				if v.Name == "ckd-tls" && v.Secret.SecretName != c.Spec.SecretName {
					t.Errorf("the certificate goes to %s, the daemon reads %s", c.Spec.SecretName, v.Secret.SecretName)
				}
			}
		}
	}
	// The test asks the Service, by a port of its own.
	for _, p := range objectsOf[*core.Pod](r) {
		service := objectsOf[*core.Service](r)[0]
		if want := fmt.Sprintf("--admin=%s.grading.svc:9590", service.Name); !slices.Contains(p.Spec.Containers[0].Args, want) {
			t.Errorf("the test runs %q, want %s", p.Spec.Containers[0].Args, want)
		}
	}
}

func checkNetwork(t *testing.T, r []runtime.Object, pods []pod) {
	t.Helper()
	for _, n := range objectsOf[*networking.NetworkPolicy](r) {
		selects(t, "NetworkPolicy", &n.Spec.PodSelector, pods)
		if !slices.Contains(n.Spec.PolicyTypes, networking.PolicyTypeIngress) {
			t.Error("anybody may come")
		}
		alone := len(objectsOf[*core.Service](r)) > 0
		if alone != slices.Contains(n.Spec.PolicyTypes, networking.PolicyTypeEgress) {
			t.Errorf("policy types %v", n.Spec.PolicyTypes)
		}
		for _, rule := range n.Spec.Ingress {
			if declared := slices.ContainsFunc(pods, func(p pod) bool { return p.served && len(p.spec.Containers[0].Ports) > 0 }); declared && len(rule.Ports) == 0 {
				t.Errorf("a rule for all ports: %+v", rule)
			}
			for _, port := range rule.Ports {
				var number int32
				for _, p := range pods {
					found, there := portOf(containersOf(p), *port.Port)
					if p.served && !there {
						t.Errorf("no port %v", port.Port)
					}
					number = max(number, found)
				}
				if len(rule.From) == 0 && (number == 8590 || number == 8591 || number == 9590) {
					t.Errorf("anybody may come to port %d", number)
				}
				if number == 9590 {
					checkTestComes(t, pods, rule.From)
				}
			}
		}
		trace := fmt.Sprint(settingsOf(t, r)["trace-endpoint"])
		reaches := slices.ContainsFunc(n.Spec.Egress, func(e networking.NetworkPolicyEgressRule) bool {
			return len(e.Ports) == 1 && strings.HasSuffix(trace, fmt.Sprintf(":%d", e.Ports[0].Port.IntVal))
		})
		resolves := slices.ContainsFunc(n.Spec.Egress, func(e networking.NetworkPolicyEgressRule) bool {
			return len(e.Ports) == 2 && len(e.To) == 1 && (e.Ports[0].Port.IntVal == 53 || e.To[0].IPBlock != nil && e.Ports[0].Port.IntVal == 5353)
		})
		if reaches != resolves || reaches != strings.Contains(trace, "://") || trace == "<nil>" && len(n.Spec.Egress) > 0 {
			t.Errorf("trace endpoint %s, egress %+v", trace, n.Spec.Egress)
		}
	}
}

// checkTestComes: the pod of the test is let in.
func checkTestComes(t *testing.T, pods []pod, from []networking.NetworkPolicyPeer) {
	t.Helper()
	for _, p := range pods {
		if !p.served && !slices.ContainsFunc(from, func(peer networking.NetworkPolicyPeer) bool {
			s, err := meta.LabelSelectorAsSelector(peer.PodSelector)
			return err == nil && peer.NamespaceSelector == nil && s.Matches(p.labels)
		}) {
			t.Errorf("%s is not let in", p.name)
		}
	}
}

func checkMonitors(t *testing.T, r []runtime.Object, pods []pod) {
	t.Helper()
	for _, m := range objectsOf[*monitoring.ServiceMonitor](r) {
		found := 0
		for _, s := range objectsOf[*core.Service](r) {
			selector, err := meta.LabelSelectorAsSelector(&m.Spec.Selector)
			if err != nil {
				t.Fatal(err)
			}
			if !selector.Matches(labels.Set(s.Labels)) {
				continue
			}
			found++
			for _, e := range m.Spec.Endpoints {
				if !slices.ContainsFunc(s.Spec.Ports, func(p core.ServicePort) bool { return p.Name == e.Port && p.Port == 9590 }) {
					t.Errorf("%s has no admin port %s", s.Name, e.Port)
				}
				if tls := settingsOf(t, r)["admin-tls"] == true; tls != (e.Scheme != nil && *e.Scheme == "https") {
					t.Errorf("scrapes by %v", e.Scheme)
				}
			}
		}
		if found != 1 {
			t.Errorf("%d Services are scraped, want one", found)
		}
	}
	for _, m := range objectsOf[*monitoring.PodMonitor](r) {
		selects(t, "PodMonitor", &m.Spec.Selector, pods)
		for _, e := range m.Spec.PodMetricsEndpoints {
			for _, p := range pods {
				if number, there := portOf(containersOf(p), intstr.FromString(*e.Port)); p.served && (!there || number != 9590) {
					t.Errorf("%s: port %s is %d", p.name, *e.Port, number)
				}
			}
		}
	}
}

// checkCopies: rules, dashboards and the example policy are those of the project.
func checkCopies(t *testing.T, r []runtime.Object) {
	t.Helper()
	for _, rule := range objectsOf[*monitoring.PrometheusRule](r) {
		var want monitoring.PrometheusRuleSpec
		for _, file := range []string{"recording", "alerts"} {
			var spec monitoring.PrometheusRuleSpec
			if err := yaml.UnmarshalStrict([]byte(getFile(t, "../prometheus/rules/"+file+".yaml")), &spec); err != nil {
				t.Fatalf("%s: %v", file, err)
			}
			want.Groups = append(want.Groups, spec.Groups...)
		}
		if len(want.Groups) == 0 || !reflect.DeepEqual(rule.Spec, want) {
			t.Errorf("the rules are not those of deploy/prometheus/rules:\n%+v\n%+v", rule.Spec, want)
		}
	}
	dashboards := map[string]string{}
	for _, c := range objectsOf[*core.ConfigMap](r) {
		if c.Labels["grafana_dashboard"] != "" {
			maps.Copy(dashboards, c.Data)
		}
		if text := c.Data["example.yaml"]; text != "" && text != getFile(t, "../policy/fetal-health.yaml") {
			t.Error("the example policy is not deploy/policy/fetal-health.yaml")
		}
	}
	if len(dashboards) == 0 {
		return
	}
	files, err := filepath.Glob("../grafana/*.json")
	if err != nil || len(files) != len(dashboards) {
		t.Fatalf("%d dashboards of %d in deploy/grafana, error %v", len(dashboards), len(files), err)
	}
	for _, file := range files {
		name := "ckd-" + strings.TrimPrefix(filepath.Base(file), "ckd-")
		if strings.TrimSpace(dashboards[name]) != strings.TrimSpace(getFile(t, file)) {
			t.Errorf("%s is not %s", name, file)
		}
	}
}

// checkPolicies: the daemon would take the policies.
func checkPolicies(t *testing.T, r []runtime.Object) {
	t.Helper()
	dir := t.TempDir()
	for _, c := range objectsOf[*core.ConfigMap](r) {
		if strings.HasSuffix(c.Name, "-policies") {
			for name, text := range c.Data {
				putFile(t, filepath.Join(dir, name), text)
			}
		}
	}
	if result := testbed.Run(t, exec.Command(ckd, "check", dir)); result.Code != 0 {
		t.Errorf("ckd check: %s%s", result.Stdout, result.Stderr)
	}
}

// ---- files as the kubelet mounts them

const serverName = "ckd.grading.svc"

// volume is a mounted folder: files that are links through the link ..data, so
// that all of them change at once.
type volume struct {
	path       string
	generation int
}

func (v *volume) swap(t *testing.T, files map[string]string) {
	t.Helper()
	v.generation++
	generation := fmt.Sprintf("..generation_%d", v.generation)
	for name, text := range files {
		putFile(t, filepath.Join(v.path, generation, name), text)
	}
	link := filepath.Join(v.path, "..data_tmp")
	if err := errors.Join(os.Symlink(generation, link), os.Rename(link, filepath.Join(v.path, "..data"))); err != nil {
		t.Fatal(err)
	}
	there, err := filepath.Glob(filepath.Join(v.path, "[^.]*"))
	if err != nil {
		t.Fatal(err)
	}
	for _, path := range there {
		if err := os.Remove(path); err != nil {
			t.Fatal(err)
		}
	}
	for name := range files {
		if err := os.Symlink(filepath.Join("..data", name), filepath.Join(v.path, name)); err != nil {
			t.Fatal(err)
		}
	}
}

func (v *volume) read(t *testing.T, name string) string {
	t.Helper()
	return getFile(t, filepath.Join(v.path, name))
}

// mountVolumes makes the folders that a container mounts, under root.
func mountVolumes(t *testing.T, r []runtime.Object, spec core.PodSpec, c core.Container, root string) map[string]*volume {
	t.Helper()
	secrets := secretFiles(t)
	all := map[string]*volume{}
	for _, m := range c.VolumeMounts {
		v := &volume{path: filepath.Join(root, m.MountPath)}
		all[m.MountPath] = v
		if err := os.MkdirAll(v.path, 0o755); err != nil {
			t.Fatal(err)
		}
		source := spec.Volumes[slices.IndexFunc(spec.Volumes, func(s core.Volume) bool { return s.Name == m.Name })]
		switch {
		case source.ConfigMap != nil && source.ConfigMap.Name == "mine":
			v.swap(t, map[string]string{"one.yaml": onePolicy})
		case source.ConfigMap != nil:
			for _, o := range objectsOf[*core.ConfigMap](r) {
				if o.Name == source.ConfigMap.Name {
					v.swap(t, o.Data)
				}
			}
		case source.Secret != nil:
			if secrets[source.Secret.SecretName] == nil {
				t.Fatalf("no secret %s", source.Secret.SecretName)
			}
			v.swap(t, secrets[source.Secret.SecretName])
		case source.EmptyDir == nil:
			t.Fatalf("volume %+v", source)
		}
	}
	return all
}

// secretFiles are the Secrets that a user brings: a certificate of an authority
// that is also the clients', its revocation list, and an access file.
func secretFiles(t *testing.T) map[string]map[string]string {
	t.Helper()
	key, err := ecdsa.GenerateKey(elliptic.P256(), rand.Reader)
	if err != nil {
		t.Fatal(err)
	}
	now := time.Now()
	authority := &x509.Certificate{SerialNumber: big.NewInt(1), Subject: pkix.Name{CommonName: "authority"}, IsCA: true, BasicConstraintsValid: true,
		NotBefore: now.Add(-time.Hour), NotAfter: now.Add(30 * 24 * time.Hour), KeyUsage: x509.KeyUsageCertSign | x509.KeyUsageCRLSign,
		SubjectKeyId: []byte{1}}
	leaf := &x509.Certificate{SerialNumber: big.NewInt(2), Subject: pkix.Name{CommonName: "ckd"}, DNSNames: []string{serverName},
		NotBefore: authority.NotBefore, NotAfter: authority.NotAfter, ExtKeyUsage: []x509.ExtKeyUsage{x509.ExtKeyUsageServerAuth}}
	ca, err1 := x509.CreateCertificate(rand.Reader, authority, authority, key.Public(), key)
	certificate, err2 := x509.CreateCertificate(rand.Reader, leaf, authority, key.Public(), key)
	private, err3 := x509.MarshalPKCS8PrivateKey(key)
	revoked, err4 := x509.CreateRevocationList(rand.Reader,
		&x509.RevocationList{Number: big.NewInt(1), ThisUpdate: now.Add(-time.Hour), NextUpdate: now.Add(time.Hour)}, authority, key)
	if err := errors.Join(err1, err2, err3, err4); err != nil {
		t.Fatal(err)
	}
	block := func(kind string, der []byte) string {
		return string(pem.EncodeToMemory(&pem.Block{Type: kind, Bytes: der}))
	}
	authorities := block("CERTIFICATE", ca)
	return map[string]map[string]string{
		"ckd-tls":       {"tls.crt": block("CERTIFICATE", certificate), "tls.key": block("PRIVATE KEY", private), "ca.crt": authorities},
		"ckd-client-ca": {"ca.crt": authorities, "crl.pem": block("X509 CRL", revoked)},
		"ckd-access": {
			"access.yaml":  "identities:\n  - name: grader\n    tokens: [{file: grader-token}]\n    models: ['*']\n",
			"grader-token": "0123456789abcdef0123456789abcdef\n",
		},
	}
}

// rooted puts the paths and addresses of a container under a folder and on free ports.
func rooted(root string) *strings.Replacer {
	free := `"127.0.0.1:0"`
	return strings.NewReplacer("/etc/ckd", root+"/etc/ckd", "/run/ckd", root+"/run/ckd",
		`":8590"`, free, `":8591"`, free, `":9590"`, free, `"127.0.0.1:8590"`, free, `"127.0.0.1:8591"`, free, `"127.0.0.1:6060"`, free)
}

// socketDir is a folder of a short name: a socket's path has 107 bytes at most.
func socketDir(t *testing.T) string {
	t.Helper()
	dir, err := os.MkdirTemp("", "ckd")
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { _ = os.RemoveAll(dir) }) // what is left is in the system's temporary folder
	return dir
}

// hashes is what the daemon says of the policies in force.
func hashes(t *testing.T, d *testbed.Daemon, root string) string {
	t.Helper()
	transport := &http.Transport{}
	if strings.HasPrefix(d.Admin, "https:") {
		transport.TLSClientConfig = &tls.Config{ServerName: serverName, RootCAs: x509.NewCertPool()}
		transport.TLSClientConfig.RootCAs.AppendCertsFromPEM([]byte(getFile(t, filepath.Join(root, "etc/ckd/tls/ca.crt"))))
	}
	defer transport.CloseIdleConnections()
	answer, err := (&http.Client{Transport: transport}).Get(d.Admin + "/healthz")
	if err != nil {
		t.Fatal(err)
	}
	defer answer.Body.Close()
	text, err := io.ReadAll(answer.Body)
	if err != nil {
		t.Fatal(err)
	}
	return string(text)
}

func getFile(t *testing.T, path string) string {
	t.Helper()
	text, err := os.ReadFile(path)
	if err != nil {
		t.Fatal(err)
	}
	return string(text)
}

func putFile(t *testing.T, path, text string) {
	t.Helper()
	if err := errors.Join(os.MkdirAll(filepath.Dir(path), 0o755), os.WriteFile(path, []byte(text), 0o600)); err != nil {
		t.Fatal(err)
	}
}

// kubernetesDocs is the code of docs/kubernetes.md: files by the name that stands
// before them, as in `values.yaml`:, and all of a language by that.
func kubernetesDocs(t *testing.T) map[string]string {
	t.Helper()
	all := map[string]string{}
	for _, m := range regexp.MustCompile("(?ms)(?:`([^`\n]+)`:\n\n)?^```([a-z]+)\n(.*?)^```$").FindAllStringSubmatch(getFile(t, "../../docs/kubernetes.md"), -1) {
		if m[1] != "" {
			all[m[1]] += m[3]
		}
		all[m[2]] += m[3]
	}
	return all
}

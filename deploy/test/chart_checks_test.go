package deploytest

import (
	"fmt"
	"os/exec"
	"path/filepath"
	"slices"
	"strings"
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
	"k8s.io/apimachinery/pkg/util/intstr"
	security "k8s.io/pod-security-admission/api"
	securitypolicy "k8s.io/pod-security-admission/policy"
	"sigs.k8s.io/yaml"

	"github.com/ckd-project/ckd/integration_test/testbed"
	"github.com/ckd-project/ckd/internal/decisionlog"
	"github.com/ckd-project/ckd/server"
)

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

	for _, v := range p.spec.Volumes {
		// Secrets belong to root. The daemon reads them by its group, or everybody may where the
		// pod has none.
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
	for _, c := range containersOf(p) {
		for _, m := range c.VolumeMounts {
			if m.SubPath != "" || m.SubPathExpr != "" {
				t.Errorf("%s: %s: a subPath is never brought up to date: %+v", p.name, c.Name, m)
			}
			used[m.Name] = true
		}
		if c.SecurityContext == nil || c.SecurityContext.ReadOnlyRootFilesystem == nil || !*c.SecurityContext.ReadOnlyRootFilesystem {
			t.Errorf("%s: %s may write its root", p.name, c.Name)
		}
		if c.Name == "ckd" {
			checkDaemon(t, r, p, c)
		}
	}
	for _, v := range p.spec.Volumes {
		if !used[v.Name] && strings.HasPrefix(v.Name, "ckd-") {
			t.Errorf("%s: nobody mounts %s", p.name, v.Name)
		}
	}
}

// checkDaemon checks what the container must have because of its settings.
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

	// Plaintext beyond loopback needs insecure-plaintext, and a sidecar has neither.
	exposed := strings.Contains(fmt.Sprint(settings["listen"], settings["http"]), " :") || strings.Contains(fmt.Sprint(settings["listen"]), "[:")
	if plaintext := settings["insecure-plaintext"] == true; plaintext != (exposed && settings["tls-cert"] == nil) {
		t.Errorf("insecure-plaintext is %v with %v", plaintext, settings)
	}

	// Everything that clients can make the daemon hold must fit into nine tenths of the limit,
	// which is Go's share.
	number := func(name string) float64 { n, _ := settings[name].(float64); return n }
	itself := float64(56+8*countModels(t, r)) * (1 << 20)
	limits := server.LimitsFor(int64(number("max-open-bytes")))
	limits.Streams = int(number("max-streams"))
	connections := int(number("max-connections"))
	if connections == 0 {
		connections = 1024
	}
	holds := float64(limits.WorstCase(countModels(t, r), connections, settings["http"] != "off").Total())
	if settings["decision-log"] != nil {
		holds += decisionlog.MemoryBytes
	}
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
	if slices.ContainsFunc(p.spec.InitContainers, isCkd) {
		grace += 30 * time.Second // Kubernetes' default, for the model server
	}
	seconds := p.spec.TerminationGracePeriodSeconds
	if seconds == nil {
		t.Fatal("no terminationGracePeriodSeconds")
	}
	if killed := time.Duration(*seconds) * time.Second; killed <= grace+2*time.Second { // the daemon has exited by then
		t.Errorf("killed after %v, within 2s of its own grace of %v", killed, grace)
	}
}

// countModels returns the number of models that the daemon has.
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
	return max(n, 1) // for a ConfigMap that is not part of the chart
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

// portOf returns the number of a container's port, given its name or number.
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

func isCkd(c core.Container) bool { return c.Name == "ckd" }

// selects checks that a selector matches exactly the pods of the Deployment.
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
			if h.Spec.MinReplicas == nil || len(h.Spec.Metrics) == 0 || h.Spec.Behavior == nil {
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
			if b.Spec.MinAvailable != nil && pods(b.Spec.MinAvailable) >= int(least) ||
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
		if headless := s.Spec.ClusterIP == core.ClusterIPNone; headless != (s.Labels["app.kubernetes.io/component"] == "replicas") {
			t.Errorf("%s: headless %v", s.Name, headless)
		}
		for _, port := range s.Spec.Ports {
			if s.Spec.Type != "" && port.TargetPort.StrVal == "admin" {
				t.Errorf("%s: the admin port is for the inside of the cluster alone", s.Name)
			}
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
			if s.Spec.Type == "" && !slices.Contains(c.Spec.DNSNames, s.Name+".grading.svc") {
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
	// The chart's test asks the Service by its admin port.
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
		alone := slices.ContainsFunc(objectsOf[*core.Service](r), func(s *core.Service) bool { return s.Spec.ClusterIP == core.ClusterIPNone })
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
			}
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

// checkPolicies has ckd check accept the policies.
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

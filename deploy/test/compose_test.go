package deploytest

import (
	"fmt"
	"net/url"
	"os"
	"os/exec"
	"path/filepath"
	"regexp"
	"slices"
	"strings"
	"testing"

	"github.com/compose-spec/compose-go/v2/loader"
	"github.com/compose-spec/compose-go/v2/types"
	"sigs.k8s.io/yaml"

	"github.com/ckd-project/ckd/integration_test/testbed"
)

// composeProject reads the compose file against its schema and fills in variables.
func composeProject(t *testing.T, environment map[string]string) *types.Project {
	t.Helper()
	folder, err := filepath.Abs("../compose")
	if err != nil {
		t.Fatal(err)
	}
	project, err := loader.LoadWithContext(t.Context(), types.ConfigDetails{
		WorkingDir:  folder,
		ConfigFiles: []types.ConfigFile{{Filename: filepath.Join(folder, "compose.yaml")}},
		Environment: environment,
	})
	if err != nil {
		t.Fatal(err)
	}
	return project
}

// TestCompose checks that mounts and builds exist, that ports are published on loopback only, and
// that images have a version.
func TestCompose(t *testing.T) {
	project := composeProject(t, nil)
	if names := project.ServiceNames(); !slices.Equal(names, []string{"ckd", "grafana", "prometheus"}) {
		t.Fatalf("services %v", names)
	}
	for name, s := range project.Services {
		if len(s.Ports) == 0 {
			t.Errorf("%s publishes nothing", name)
		}
		for _, port := range s.Ports {
			if port.HostIP != "127.0.0.1" || port.Published == "" {
				t.Errorf("%s publishes %+v, want 127.0.0.1 and a port", name, port)
			}
		}
		for _, v := range s.Volumes {
			if v.Type != types.VolumeTypeBind {
				continue
			}
			if _, err := os.Stat(v.Source); err != nil || !v.ReadOnly {
				t.Errorf("%s mounts %s, read-only %v: %v", name, v.Source, v.ReadOnly, err)
			}
		}
		if !s.ReadOnly || !slices.Contains(s.CapDrop, "ALL") || s.Privileged || !slices.Contains(s.SecurityOpt, "no-new-privileges:true") {
			t.Errorf("%s is not confined", name)
		}
		if s.Build == nil && !regexp.MustCompile(`:v?[0-9]+\.[0-9]+\.[0-9]+$`).MatchString(s.Image) {
			t.Errorf("%s: image %s has no version", name, s.Image)
		}
	}

	build := project.Services["ckd"].Build
	dockerfile := getFile(t, filepath.Join(build.Context, build.Dockerfile))
	for argument := range build.Args {
		if !regexp.MustCompile(`(?m)^ARG ` + argument + `(=|$)`).MatchString(dockerfile) {
			t.Errorf("the Dockerfile has no argument %s", argument)
		}
	}

	other := composeProject(t, map[string]string{"GRAFANA_IMAGE": "a:1", "PROMETHEUS_IMAGE": "b:2", "GO_IMAGE": "c:3"})
	if got := fmt.Sprint(other.Services["grafana"].Image, other.Services["prometheus"].Image, *other.Services["ckd"].Build.Args["GO_IMAGE"]); got != "a:1b:2c:3" {
		t.Errorf("images of the environment: %s", got)
	}
}

// inService returns the path on this machine of a path in a service.
func inService(t *testing.T, s types.ServiceConfig, path string) string {
	t.Helper()
	for _, v := range s.Volumes {
		if below, ok := strings.CutPrefix(path, v.Target); ok && v.Type == types.VolumeTypeBind {
			return filepath.Join(v.Source, below)
		}
	}
	t.Fatalf("%s mounts nothing at %s", s.Name, path)
	return ""
}

// TestComposeGrafana checks that Grafana finds its data source and the dashboards.
func TestComposeGrafana(t *testing.T) {
	project := composeProject(t, nil)
	grafana := project.Services["grafana"]
	read := func(path string, into any) {
		t.Helper()
		if err := yaml.UnmarshalStrict([]byte(getFile(t, inService(t, grafana, path))), into); err != nil {
			t.Fatalf("%s: %v", path, err)
		}
	}
	var sources struct {
		APIVersion  int `json:"apiVersion"`
		Datasources []struct {
			Name, UID, Type, Access, URL string
			IsDefault                    bool `json:"isDefault"`
			Editable                     bool
			JSONData                     struct {
				TimeInterval string `json:"timeInterval"`
				HTTPMethod   string `json:"httpMethod"`
			} `json:"jsonData"`
		}
	}
	read("/etc/grafana/provisioning/datasources/prometheus.yaml", &sources)
	if len(sources.Datasources) != 1 || sources.APIVersion != 1 {
		t.Fatalf("%+v", sources)
	}
	source := sources.Datasources[0]
	to, err := url.Parse(source.URL)
	if err != nil || source.Type != "prometheus" || !source.IsDefault {
		t.Fatalf("data source %+v: %v", source, err)
	}
	if target, there := project.Services[to.Hostname()]; !there || !listensOn(target, to.Port()) {
		t.Errorf("nothing is at %s", source.URL)
	}

	var provisioned struct {
		APIVersion int `json:"apiVersion"`
		Providers  []struct {
			Name, Type, Folder    string
			DisableDeletion       bool `json:"disableDeletion"`
			AllowUIUpdates        bool `json:"allowUiUpdates"`
			UpdateIntervalSeconds int  `json:"updateIntervalSeconds"`
			Options               struct{ Path string }
		}
	}
	read("/etc/grafana/provisioning/dashboards/ckd.yaml", &provisioned)
	if len(provisioned.Providers) != 1 || provisioned.APIVersion != 1 {
		t.Fatalf("%+v", provisioned)
	}
	dashboards, err := filepath.Glob(filepath.Join(inService(t, grafana, provisioned.Providers[0].Options.Path), "*.json"))
	if err != nil || len(dashboards) == 0 {
		t.Errorf("%d dashboards, error %v", len(dashboards), err)
	}
	home := *grafana.Environment["GF_DASHBOARDS_DEFAULT_HOME_DASHBOARD_PATH"]
	if _, err := os.Stat(inService(t, grafana, home)); err != nil {
		t.Error(err)
	}
	for setting, want := range map[string]string{"GF_AUTH_ANONYMOUS_ORG_ROLE": "Viewer", "GF_AUTH_BASIC_ENABLED": "false", "GF_AUTH_DISABLE_LOGIN_FORM": "true"} {
		if got := grafana.Environment[setting]; got == nil || *got != want {
			t.Errorf("%s: want %s", setting, want)
		}
	}
}

func listensOn(s types.ServiceConfig, port string) bool {
	return slices.ContainsFunc(s.Ports, func(p types.ServicePortConfig) bool { return fmt.Sprint(p.Target) == port })
}

// TestComposePrometheus checks that promtool accepts the configuration with the project's rules, and
// that it scrapes the daemon's port.
func TestComposePrometheus(t *testing.T) {
	t.Parallel()
	promtool := testbed.Program(t, "promtool", "PROMTOOL")
	const path = "/etc/prometheus/prometheus.yaml"
	project := composeProject(t, nil)
	service := project.Services["prometheus"]
	if !slices.Contains(service.Command, "--config.file="+path) {
		t.Fatalf("command %q", service.Command)
	}
	text := getFile(t, inService(t, service, path))
	for _, rules := range regexp.MustCompile(`/etc/prometheus/rules/\S+`).FindAllString(text, -1) {
		text = strings.Replace(text, rules, inService(t, service, rules), 1)
	}
	target := regexp.MustCompile(`"(ckd):(\d+)"`).FindStringSubmatch(text)
	if target == nil || !listensOn(project.Services[target[1]], target[2]) {
		t.Fatalf("Prometheus scrapes %v", target)
	}
	config := putFile(t, filepath.Join(t.TempDir(), "prometheus.yaml"), text)
	if r := testbed.Run(t, exec.Command(promtool, "check", "config", config)); r.Code != 0 || !strings.Contains(r.Stdout, "2 rule files found") {
		t.Fatalf("promtool: %s%s", r.Stdout, r.Stderr)
	}
}

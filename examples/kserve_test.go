package examples_test

import (
	"encoding/json"
	"fmt"
	"os"
	"path/filepath"
	"regexp"
	"slices"
	"strings"
	"testing"

	"go.yaml.in/yaml/v3"

	"github.com/ckd-project/ckd/internal/strictyaml"
)

// manifest holds the parts of a document that the test looks at.
type manifest struct {
	APIVersion string `yaml:"apiVersion"`
	Kind       string
	Metadata   struct{ Name, Namespace string }
	Data       map[string]string
	Spec       struct {
		Template    pods
		Transformer podSpec
		podSpec     `yaml:",inline"` // of a runtime
		Predictor   struct {
			Model struct{ Runtime string }
		}
		Ports   []struct{ Port int }
		Ingress []struct {
			From []struct {
				PodSelector selector `yaml:"podSelector"`
			}
		}
		Nodes map[string]struct {
			Steps []struct {
				ServiceName      string `yaml:"serviceName"`
				ServiceURL       string `yaml:"serviceUrl"`
				Data, Dependency string
			}
		}
	}
}

type pods struct{ Spec podSpec }

type podSpec struct {
	Containers []struct {
		Name string
		Args []string
	}
	Volumes []struct {
		EmptyDir  map[string]string     `yaml:"emptyDir"`
		ConfigMap struct{ Name string } `yaml:"configMap"`
		Secret    struct {
			SecretName string `yaml:"secretName"`
		}
	}
}

type selector struct {
	MatchLabels map[string]string `yaml:"matchLabels"`
}

// manifests reads every document of the example strictly.
func manifests(t *testing.T) map[string]manifest {
	t.Helper()
	found := map[string]manifest{}
	files, err := filepath.Glob("kserve/*.yaml")
	if err != nil || len(files) == 0 {
		t.Fatalf("%d files, error %v", len(files), err)
	}
	for _, path := range files {
		text, err := os.ReadFile(path)
		if err != nil {
			t.Fatal(err)
		}
		for _, document := range strings.Split(string(text), "\n---\n") {
			var faults strictyaml.Faults
			if strictyaml.Parse(path, []byte(document), &faults); len(faults) > 0 {
				t.Error(faults)
			}
			var m manifest
			if err := yaml.Unmarshal([]byte(document), &m); err != nil {
				t.Fatalf("%s: %v", path, err)
			}
			in := m.Metadata.Namespace
			switch m.Kind {
			case "Namespace":
				in = m.Metadata.Name
			case "ClusterServingRuntime": // it has none
				in += "grading"
			}
			if m.APIVersion == "" || m.Metadata.Name == "" || in != "grading" {
				t.Errorf("%s: %+v", path, m)
			}
			found[m.Kind+" "+m.Metadata.Name] = m
		}
	}
	return found
}

// TestKServe checks that the manifests fit together: the daemon, its policy and flags, and the graph
// that calls it.
func TestKServe(t *testing.T) {
	m := manifests(t)
	// The policy is valid, and the daemon has all flags.
	policy := filepath.Join(t.TempDir(), "policy.yaml")
	if err := os.WriteFile(policy, []byte(m["ConfigMap ckd-policy"].Data["fetal-health.yaml"]), 0o600); err != nil {
		t.Fatal(err)
	}
	if r := run(t, ckd, "check", policy); r.Code != 0 {
		t.Errorf("the policy: exit %d, %s", r.Code, r.Stderr)
	}
	help := run(t, ckd, "serve", "--help").Stdout
	daemons := 0
	runtime := m["ClusterServingRuntime triton-ckd"].Spec
	for _, c := range slices.Concat(m["Deployment ckd"].Spec.Template.Spec.Containers, m["InferenceService fetal-health"].Spec.Transformer.Containers,
		runtime.Containers) {
		if c.Name != "ckd" {
			continue
		}
		daemons++
		for _, arg := range c.Args {
			if flag := regexp.MustCompile(`^--[a-z-]+`).FindString(arg); flag != "" && !regexp.MustCompile(flag+"[= ]").MatchString(help) {
				t.Errorf("ckd serve has no flag %s", flag)
			}
		}
	}
	if daemons != 3 {
		t.Errorf("%d containers of ckd, expected 3", daemons)
	}
	for _, v := range slices.Concat(m["Deployment ckd"].Spec.Template.Spec.Volumes, m["InferenceService fetal-health"].Spec.Transformer.Volumes,
		runtime.Volumes) {
		if v.EmptyDir != nil {
			continue
		}
		if _, there := m["ConfigMap "+v.ConfigMap.Name]; !there || v.Secret.SecretName != "" {
			t.Errorf("volume %+v, expected only what the manifests create", v)
		}
	}

	// The model names the runtime, whose model server asks the daemon where it listens.
	if named := m["InferenceService fetal-health-graded"].Spec.Predictor.Model.Runtime; named != "triton-ckd" {
		t.Errorf("the model is of runtime %q", named)
	}
	step, err := os.ReadFile("triton/model_repository/ckd/config.pbtxt")
	if err != nil {
		t.Fatal(err)
	}
	address := regexp.MustCompile(`key: "address" value { string_value: "([^"]*)"`).FindSubmatch(step)
	if args := runtime.Containers[1].Args; address == nil || !slices.Contains(args, "--listen="+string(address[1])) {
		t.Errorf("the daemon has %q, but Triton's step asks %q", args, address)
	}

	// The graph calls the right service and does not take a failure for an answer.
	service := m["Service ckd"]
	url := fmt.Sprintf("http://%s.%s.svc.cluster.local:%d/v2/models/fetal-health/infer",
		service.Metadata.Name, service.Metadata.Namespace, service.Spec.Ports[0].Port)
	callers := m["NetworkPolicy ckd"].Spec.Ingress[0].From
	if len(callers) != 1 || callers[0].PodSelector.MatchLabels["serving.kserve.io/inferencegraph"] != "fetal-health" {
		t.Errorf("callers %+v, expected the pods of the graph's router alone", callers)
	}
	steps := m["InferenceGraph fetal-health"].Spec.Nodes["root"].Steps
	if len(steps) != 2 || steps[1].ServiceURL != url || steps[1].Data != "$response" {
		t.Errorf("steps %+v, expected the second to call %s with the first's answer", steps, url)
	}
	for i, step := range steps {
		if step.Dependency != "Hard" {
			t.Errorf("step %d goes on after a failure", i)
		}
	}
	if _, there := m["InferenceService "+steps[0].ServiceName]; !there {
		t.Errorf("the graph calls %q", steps[0].ServiceName)
	}
}

// TestKServeTransformer checks that the transformer appends the daemon's decisions to the
// classifier's answer. It must defer a refused input, and all inputs while the daemon is away.
func TestKServeTransformer(t *testing.T) {
	python := python(t, "numpy")
	d := serve(t, "--http", "127.0.0.1:0")
	url := d.HTTP + "/v2/models/fetal-health/infer"
	transform := func(url string) (answer struct {
		ID              string
		Decision, Error []string
		Defer           []bool
	}) {
		t.Helper()
		r := run(t, python, "testdata/run_kserve.py", url, recording, fmt.Sprint(inputs))
		if err := json.Unmarshal([]byte(r.Stdout), &answer); err != nil || r.Code != 0 {
			t.Fatalf("exit %d, %v\n%s", r.Code, err, r.Stderr)
		}
		if answer.ID != "7" || len(answer.Decision) != inputs || len(answer.Defer) != inputs || len(answer.Error) != inputs {
			t.Fatalf("answer %+v", answer)
		}
		return answer
	}
	a := transform(url)
	for i, want := range decisions(t, d.GRPC[0])[:inputs] {
		switch {
		case i == 1 || i == 2: // inputs with spoilt passes
			if !a.Defer[i] || !strings.Contains(a.Error[i], "expected") {
				t.Errorf("input %d: %s, defer %v, %q; expected that it is deferred, and why", i, a.Decision[i], a.Defer[i], a.Error[i])
			}
		case a.Decision[i] != want || a.Defer[i] != (want == "defer") || a.Error[i] != "":
			t.Errorf("input %d: %s, defer %v, %q; expected %s", i, a.Decision[i], a.Defer[i], a.Error[i], want)
		}
	}
	a = transform(d.HTTP + "/v2/models/nobody/infer")
	everyDeferred(t, "unknown model", a.Defer, a.Error, "nobody")
	d.Stop()
	a = transform(url)
	everyDeferred(t, "no daemon", a.Defer, a.Error, "not to be asked")
}

func everyDeferred(t *testing.T, what string, deferred []bool, errors []string, want string) {
	t.Helper()
	for i := range deferred {
		if !deferred[i] || !strings.Contains(errors[i], want) {
			t.Fatalf("%s: input %d, defer %v, %q, expected it deferred, with %q", what, i, deferred[i], errors[i], want)
		}
	}
}

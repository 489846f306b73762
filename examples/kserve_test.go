package examples_test

import (
	"encoding/json"
	"fmt"
	"io"
	"net/http"
	"net/http/httptest"
	"os"
	"path/filepath"
	"regexp"
	"slices"
	"strconv"
	"strings"
	"testing"

	"go.yaml.in/yaml/v3"

	"github.com/ckd-project/ckd/internal/strictyaml"
	"github.com/ckd-project/ckd/server"
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
		Name      string
		Args      []string
		Resources struct{ Limits struct{ Memory string } }
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
			strictyaml.Parse([]byte(document), func(f strictyaml.Fault) { t.Errorf("%s: %+v", path, f) })
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
	for kind, version := range map[string]string{
		"Namespace grading": "v1", "NetworkPolicy ckd": "networking.k8s.io/v1", "ConfigMap ckd-policy": "v1", "Service ckd": "v1", "Deployment ckd": "apps/v1",
		"InferenceGraph fetal-health": "serving.kserve.io/v1alpha1", "InferenceService fetal-health": "serving.kserve.io/v1beta1",
		"ClusterServingRuntime triton-ckd": "serving.kserve.io/v1alpha1", "InferenceService fetal-health-graded": "serving.kserve.io/v1beta1",
	} {
		if m[kind].APIVersion != version {
			t.Errorf("%s: version %q, expected %q", kind, m[kind].APIVersion, version)
		}
	}

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
		fits(t, c.Args, c.Resources.Limits.Memory)
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

// fits checks that what clients can make the daemon hold fits the container's memory.
func fits(t *testing.T, args []string, memory string) {
	t.Helper()
	flag := func(name string) int {
		for _, arg := range args {
			if value, is := strings.CutPrefix(arg, "--"+name+"="); is {
				n, err := strconv.Atoi(value)
				if err != nil {
					t.Error(err)
				}
				return n
			}
		}
		t.Errorf("no flag --%s", name)
		return 0
	}
	gigabytes, err := strconv.Atoi(strings.TrimSuffix(memory, "Gi"))
	if err != nil {
		t.Fatal(err)
	}
	limits := server.LimitsFor(int64(flag("max-open-bytes")))
	limits.Streams, limits.Watches = flag("max-streams"), flag("max-streams")
	most := limits.WorstCase(1, 1024, true).Total()
	if most > int64(gigabytes)<<30*9/10 {
		t.Errorf("clients can make the daemon hold %d bytes, where the limit of memory is %s", most, memory)
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

// TestKServeGraph checks that the graph returns the daemon's decisions, the predicted classes, and
// what the classifier answered beside the passes.
func TestKServeGraph(t *testing.T) {
	d := serve(t, "--http", "127.0.0.1:0")
	label := fmt.Sprintf(`{"name":"label","datatype":"BYTES","shape":[%d],"parameters":{"content_type":"str"},"data":["a b"%s]}`, inputs, strings.Repeat(`,"\u00e4"`, inputs-1))
	logits := `{"name":"logits","datatype":"BF16","shape":[1,2],"data":[[0.50,-3e2]]}`
	classifier := httptest.NewServer(http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		body, err := io.ReadAll(r.Body)
		if err != nil || string(body) != `{"inputs": "features"}` {
			t.Errorf("the classifier is asked %s, %v", body, err)
		}
		fmt.Fprintf(w, `{"model_name": "classifier", "model_version": null, "id": "7", "parameters": null, "outputs": [%s,
			{"name": "passes", "datatype": "FP32", "shape": [%d, 30, 3], "data": %s}, {"name": "decision", "datatype": "INT8", "shape": [1], "data": [0]}, %s]}`,
			label, inputs, recordedJSON(t), logits)
	}))
	defer classifier.Close()
	code, body := route(t, `{"inputs": "features"}`, func(name, path string) string {
		if name == "fetal-health-passes" {
			return classifier.URL
		}
		return d.HTTP + path
	})
	var got struct {
		ID      string
		Outputs []struct {
			Name string
			Data json.RawMessage
		}
	}
	if err := json.Unmarshal([]byte(body), &got); err != nil || code != http.StatusOK || got.ID != "7" {
		t.Fatalf("%d, %v: %s", code, err, body)
	}
	names, said := map[string]int{}, map[string]string{}
	for _, output := range got.Outputs {
		names[output.Name]++
		said[output.Name] = string(output.Data)
	}
	var predicted []int
	var classes []string
	for passes := range slices.Chunk(recorded(t), 30*3) {
		var sums [3]float64
		for i, v := range passes {
			sums[i%3] += float64(v)
		}
		top := slices.Index(sums[:], slices.Max(sums[:]))
		predicted, classes = append(predicted, top), append(classes, []string{"normal", "suspect", "pathologic"}[top])
	}
	for name, want := range map[string]any{"decision": decisions(t, d.GRPC[0])[:inputs], "predicted": predicted, "predicted_class": classes} {
		if text, err := json.Marshal(want); err != nil || said[name] != string(text) || names[name] != 1 {
			t.Errorf("%s, %d times: %s, want %s", name, names[name], said[name], text)
		}
	}
	if !strings.HasSuffix(body, ","+label+","+logits+"]}\n") || names["passes"] != 0 {
		t.Errorf("%s\nexpected label and logits at the end, as they were, and no passes", body)
	}
}

// route runs the steps of the example's graph as KServe's router does: it posts each answer to the
// next step unchanged, without its headers, and stops at a failure.
func route(t *testing.T, body string, address func(service, path string) string) (code int, answer string) {
	t.Helper()
	for _, step := range manifests(t)["InferenceGraph fetal-health"].Spec.Nodes["root"].Steps {
		path := ""
		if at := strings.Index(step.ServiceURL, "/v2/"); at >= 0 {
			path = step.ServiceURL[at:]
		}
		reply, err := http.Post(address(step.ServiceName, path), "application/json", strings.NewReader(body))
		if err != nil {
			t.Fatal(err)
		}
		data, err := io.ReadAll(reply.Body)
		if err != nil {
			t.Fatal(err)
		}
		if err := reply.Body.Close(); err != nil {
			t.Fatal(err)
		}
		if code, body = reply.StatusCode, string(data); code != http.StatusOK {
			break
		}
	}
	return code, body
}

// recordedJSON returns the passes of the first inputs as JSON, [inputs][passes][classes].
func recordedJSON(t *testing.T) string {
	t.Helper()
	text, err := json.Marshal(recorded(t))
	if err != nil {
		t.Fatal(err)
	}
	return string(text)
}

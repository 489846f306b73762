package deploytest

import (
	"bufio"
	"errors"
	"io"
	"os"
	"os/exec"
	"path/filepath"
	"regexp"
	"slices"
	"strings"
	"sync"
	"testing"

	monitoring "github.com/prometheus-operator/prometheus-operator/pkg/apis/monitoring/v1"
	apps "k8s.io/api/apps/v1"
	core "k8s.io/api/core/v1"
	meta "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/labels"
	"k8s.io/apimachinery/pkg/runtime"
	"k8s.io/apimachinery/pkg/runtime/schema"
	"k8s.io/apimachinery/pkg/runtime/serializer"
	manifests "k8s.io/apimachinery/pkg/util/yaml"
	kubernetes "k8s.io/client-go/kubernetes/scheme"
	gateway "sigs.k8s.io/gateway-api/apis/v1"
	"sigs.k8s.io/yaml"

	"github.com/ckd-project/ckd/integration_test/testbed"
)

const (
	kubeVersion = "1.34.0"
	// imageFile has the only value without a default.
	imageFile = "testdata/image.yaml"
)

// pinnedHelm returns the path of the helm that tools/go.mod pins, built by the go command, or "".
var pinnedHelm = sync.OnceValue(func() string {
	build := exec.Command("go", "tool", "-n", "-modfile=tools/go.mod", "helm")
	build.Dir = "../.."
	path, err := build.Output()
	if err != nil {
		return ""
	}
	return strings.TrimSpace(string(path))
})

// helmProgram returns the path of $HELM, of the helm on the PATH, or of the pinned one.
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
	command := exec.Command(helmProgram(t), append([]string{"template", "ckd", chart, "--namespace", "grading", "--values", imageFile, "--values", "-"}, flags...)...)
	command.Stdin = strings.NewReader(values)
	return testbed.Run(t, command)
}

func renderChart(t *testing.T, values string, flags ...string) []runtime.Object {
	t.Helper()
	result := helmTemplate(t, values, flags...)
	if result.Code != 0 {
		t.Fatalf("helm: %s", result.Stderr)
	}
	return decodeManifests(t, result.Stdout)
}

// issuedCertificate holds the fields of cert-manager's Certificate that the chart uses.
// cert-manager's own module is not a dependency here.
type issuedCertificate struct {
	meta.TypeMeta   `json:",inline"`
	meta.ObjectMeta `json:"metadata"`
	Spec            struct {
		SecretName string            `json:"secretName"`
		IssuerRef  map[string]string `json:"issuerRef"`
		PrivateKey struct {
			Algorithm      string `json:"algorithm"`
			Size           int    `json:"size"`
			RotationPolicy string `json:"rotationPolicy"`
		} `json:"privateKey"`
		Usages   []string `json:"usages"`
		DNSNames []string `json:"dnsNames"`
	} `json:"spec"`
}

func (c *issuedCertificate) DeepCopyObject() runtime.Object { return c }

// decoder refuses unknown fields and fields that come twice.
var decoder = func() runtime.Decoder {
	scheme := runtime.NewScheme()
	for _, add := range []func(*runtime.Scheme) error{kubernetes.AddToScheme, monitoring.AddToScheme, gateway.Install} {
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
		if seen[id] || o.GetNamespace() != "grading" {
			t.Errorf("%s of namespace %q: twice, or of another namespace", id, o.GetNamespace())
		}
		seen[id] = true
		all = append(all, object)
	}
	return all
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
		if content != nil { // only comments
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

// pod holds a pod of the chart, either a Pod or the template of a Deployment.
type pod struct {
	name   string
	labels labels.Set
	meta   meta.ObjectMeta
	spec   core.PodSpec
	served bool // it belongs to the Deployment
}

func podsOf(r []runtime.Object) []pod {
	var all []pod
	for _, d := range objectsOf[*apps.Deployment](r) {
		template := d.Spec.Template
		all = append(all, pod{"Deployment " + d.Name, template.Labels, template.ObjectMeta, template.Spec, true})
	}
	for _, s := range objectsOf[*apps.StatefulSet](r) {
		template := s.Spec.Template
		all = append(all, pod{"StatefulSet " + s.Name, template.Labels, template.ObjectMeta, template.Spec, true})
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

// onePolicy is a policy for the model "one".
const onePolicy = `models: [{name: one, version: "1", classes: [a, b], critical: [b], passes: {fewest: 10, expected: 30}}]
`

// kubernetesDocs returns the code blocks of docs/kubernetes.md: files by the name in front of them, such as
// `values.yaml`, the values without a name by "", and all blocks of a language by that.
func kubernetesDocs(t *testing.T) map[string]string {
	t.Helper()
	all := map[string]string{}
	page := getFile(t, "../../docs/kubernetes.md")
	for _, m := range regexp.MustCompile("(?ms)(?:`([^`\n]+)`:\n\n)?^ *```([a-z]+)\n(.*?)^ *```$").FindAllStringSubmatch(page, -1) {
		if m[1] != "" || m[2] == "yaml" {
			all[m[1]] += m[3]
		}
		all[m[2]] += m[3]
	}
	return all
}

func getFile(t *testing.T, path string) string {
	t.Helper()
	text, err := os.ReadFile(path)
	if err != nil {
		t.Fatal(err)
	}
	return string(text)
}

// putFile writes a file, and the folders above it, and returns its path.
func putFile(t *testing.T, path, text string) string {
	t.Helper()
	if err := errors.Join(os.MkdirAll(filepath.Dir(path), 0o755), os.WriteFile(path, []byte(text), 0o600)); err != nil {
		t.Fatal(err)
	}
	return path
}

package examples_test

import (
	"encoding/json"
	"fmt"
	"os"
	"path/filepath"
	"strings"
	"testing"

	"google.golang.org/protobuf/encoding/prototext"

	inferencepb "github.com/ckd-project/ckd/proto/inference"
)

// The step answers for every input what the daemon decided; one that it refuses,
// and all where it is away, are for a person.
func TestTriton(t *testing.T) {
	python := python(t, "grpc", "google.protobuf", "numpy")
	d := serve(t)
	want := decisions(t, d.grpc)
	want[1] = "error" // a value of it is made NaN
	answers := tritonAnswers(t, python, d.grpc)
	for i, a := range answers {
		left := a.Defer[0] != (want[i] == "defer" || want[i] == "error") || a.Decision[0] != want[i]
		if left || (a.Error[0] == "") != (want[i] != "error") || (a.Score[0] == nil) != (want[i] == "error") || len(a.C) != 3 {
			t.Errorf("input %d: %+v, expected %s", i, a, want[i])
		}
	}
	if !strings.Contains(answers[1].Error[0], "is NaN") {
		t.Errorf("error %q, expected that it names the fault", answers[1].Error[0])
	}
	d.stop(t)
	for i, a := range tritonAnswers(t, python, d.grpc) {
		if !a.Defer[0] || a.Decision[0] != "error" || a.Error[0] == "" {
			t.Errorf("input %d: %+v without a daemon, expected that a person sees it", i, a)
		}
	}
}

type tritonAnswer struct {
	Defer    []bool
	Decision []string
	Score, C []*float64 // nil for NaN
	Error    []string
}

func tritonAnswers(t *testing.T, python, address string) []tritonAnswer {
	t.Helper()
	r := run(t, python, "testdata/run_triton.py", address, "fetal-health", recording, fmt.Sprint(inputs))
	if r.code != 0 {
		t.Fatalf("exit %d\n%s", r.code, r.stderr)
	}
	var answers []tritonAnswer
	for line := range strings.Lines(r.stdout) {
		var a tritonAnswer
		if err := json.Unmarshal([]byte(line), &a); err != nil {
			t.Fatalf("%s: %v", line, err)
		}
		answers = append(answers, a)
	}
	if len(answers) != inputs {
		t.Fatalf("%d answers, expected %d", len(answers), inputs)
	}
	return answers
}

// The configurations are of Triton's form, as far as ckd knows it, and fit together.
func TestTritonConfigurations(t *testing.T) {
	configs := map[string]*inferencepb.ModelConfig{}
	for _, name := range []string{"ckd", "graded"} {
		path := filepath.Join("triton/model_repository", name, "config.pbtxt")
		text, err := os.ReadFile(path)
		if err != nil {
			t.Fatal(err)
		}
		config := &inferencepb.ModelConfig{}
		if err := (prototext.UnmarshalOptions{DiscardUnknown: true}).Unmarshal(text, config); err != nil {
			t.Fatalf("%s: %v", path, err)
		}
		if config.GetName() != name || config.GetMaxBatchSize() == 0 {
			t.Errorf("%s: name %q, batches of %d", path, config.GetName(), config.GetMaxBatchSize())
		}
		configs[name] = config
	}
	for _, out := range configs["graded"].GetOutput() {
		if out.GetName() == "PASSES" {
			continue
		}
		same := false
		for _, own := range configs["ckd"].GetOutput() {
			same = same || own.GetName() == out.GetName() && own.GetDataType() == out.GetDataType()
		}
		if !same {
			t.Errorf("the ensemble's output %s is none of the step's", out.GetName())
		}
	}
}

package examples_test

import (
	"context"
	"encoding/json"
	"fmt"
	"os"
	"path/filepath"
	"strings"
	"sync"
	"testing"

	"google.golang.org/protobuf/encoding/prototext"

	ckdv1 "github.com/ckd-project/ckd/proto/ckd/v1"
	inferencepb "github.com/ckd-project/ckd/proto/inference"
)

// TestTriton checks that the step returns the daemon's decision for every input. A refused input, and
// all inputs while the daemon is away, must go to a person.
func TestTriton(t *testing.T) {
	t.Parallel()
	python := python(t, "grpc", "google.protobuf", "numpy")
	d := serve(t)
	want := decisions(t, d.GRPC[0])[:inputs]
	want[1] = "error" // one of its values is made NaN
	answers := tritonAnswers(t, python, d.GRPC[0], "30")
	for i, a := range answers {
		left := a.Defer[0] != (want[i] == "defer" || want[i] == "error") || a.Decision[0] != want[i]
		if left || (a.Error[0] == "") != (want[i] != "error") || (a.Score[0] == nil) != (want[i] == "error") || len(a.C) != 3 {
			t.Errorf("input %d: %+v, expected %s", i, a, want[i])
		}
	}
	if !strings.Contains(answers[1].Error[0], "is NaN") {
		t.Errorf("error %q, expected that it names the fault", answers[1].Error[0])
	}
	d.Stop()
	for i, a := range tritonAnswers(t, python, d.GRPC[0], "0.5") {
		if !a.Defer[0] || a.Decision[0] != "error" || a.Error[0] == "" {
			t.Errorf("input %d: %+v without a daemon, expected that a person sees it", i, a)
		}
	}
}

// gatherer fakes a daemon that answers calls only when all have arrived.
type gatherer struct {
	ckdv1.UnimplementedUncertaintyServiceServer
	all sync.WaitGroup
}

func (g *gatherer) Decompose(_ context.Context, r *ckdv1.DecomposeRequest) (*ckdv1.DecomposeResponse, error) {
	g.all.Done()
	g.all.Wait()
	reply := &ckdv1.DecomposeResponse{Policy: &ckdv1.PolicyRef{}}
	for i, id := range r.GetInputIds() {
		result := decided(ckdv1.Action_ACTION_RETAIN)
		result.InputId, result.Row = id, uint32(i)
		result.GetDecomposition().C = make([]float64, 3)
		reply.Results = append(reply.Results, result)
	}
	return reply, nil
}

// TestTritonAsksAtOnce checks that requests which Triton hands over together are sent together, so
// that all are answered within the patience of one.
func TestTritonAsksAtOnce(t *testing.T) {
	t.Parallel()
	python := python(t, "grpc", "google.protobuf", "numpy")
	g := &gatherer{}
	g.all.Add(9)
	address := serveFake(t, g)
	for i, a := range tritonAnswers(t, python, address, "20") {
		if a.Decision[0] != "retain" {
			t.Fatalf("input %d: %+v, expected it retained", i, a)
		}
	}
}

type tritonAnswer struct {
	Defer    []bool
	Decision []string
	Score, C []*float64 // nil stands for NaN
	Error    []string
}

func tritonAnswers(t *testing.T, python, address, patience string) []tritonAnswer {
	t.Helper()
	r := run(t, python, "testdata/run_triton.py", address, "fetal-health", recording, fmt.Sprint(inputs), patience)
	if r.Code != 0 {
		t.Fatalf("exit %d\n%s", r.Code, r.Stderr)
	}
	var answers []tritonAnswer
	for line := range strings.Lines(r.Stdout) {
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

// TestTritonConfigurations checks that the configurations have Triton's form, as far as ckd knows it,
// and fit together.
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

package examples_test

import (
	"path/filepath"
	"strings"
	"testing"
)

// TestPythonTorch: the network of the example is asked: dropout stays on, and all
// else is as in use.
func TestPythonTorch(t *testing.T) {
	python := python(t, "grpc", "google.protobuf", "numpy", "torch")
	dir := t.TempDir()
	weights, features := filepath.Join(dir, "classifier.pt"), filepath.Join(dir, "features.npy")
	r := run(t, python, "-c", `
import sys
sys.path.insert(0, "python")
import mc_dropout, numpy, torch
torch.manual_seed(1)
module = mc_dropout.classifier(5, 3)
torch.save(module.state_dict(), sys.argv[1])
numpy.save(sys.argv[2], numpy.random.default_rng(1).normal(size=(20, 5)))
module = torch.nn.Sequential(torch.nn.BatchNorm1d(5), module)
forward = mc_dropout.mc_dropout(module, torch.ones(4, 5))
passes = [forward(numpy.arange(4)) for _ in range(2)]
assert passes[0].shape == (4, 3) and abs(passes[0].sum() - 4) < 1e-5, passes
assert forward(numpy.array([1, 3])).shape == (2, 3), "inputs are not left out"
assert (passes[0] != passes[1]).any(), "dropout is off"
assert not module[0].training, "batch statistics are those of the batch"
`, weights, features)
	if r.Code != 0 {
		t.Fatal(r.Stderr)
	}
	d := serve(t)
	r = run(t, python, "python/mc_dropout.py", "--addr", d.GRPC[0], "--weights", weights, "--inputs", features, "--batch", "8")
	if lines := strings.Count(r.Stdout, "\n"); r.Code != 0 || lines != 20 || strings.Contains(r.Stdout, "degenerate") {
		t.Errorf("exit %d, %d lines\n%s%s", r.Code, lines, r.Stdout, r.Stderr)
	}
}

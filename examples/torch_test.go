package examples_test

import (
	"path/filepath"
	"strings"
	"testing"

	"github.com/ckd-project/ckd/internal/timed"
)

// TestPythonTorch checks that the passes of the example's network decide, and that they differ.
func TestPythonTorch(t *testing.T) {
	timed.Full(t)
	t.Parallel()
	python := python(t, "grpc", "google.protobuf", "numpy", "torch")
	dir := t.TempDir()
	weights, features := filepath.Join(dir, "classifier.pt"), filepath.Join(dir, "features.npy")
	d := serve(t)
	// One process for all, because PyTorch takes seconds to start.
	r := run(t, python, "-c", `
import sys
sys.path.insert(0, "python")
import ckd, mc_dropout, numpy, torch
torch.manual_seed(1)
torch.save(mc_dropout.classifier(5, 3).state_dict(), sys.argv[1])
numpy.save(sys.argv[2], numpy.random.default_rng(1).normal(size=(20, 5)))
sys.argv[1:] = ["--addr", sys.argv[3], "--weights", sys.argv[1], "--inputs", sys.argv[2], "--batch", "8"]
sys.exit(mc_dropout.main())
`, weights, features, d.GRPC[0])
	if lines := strings.Count(r.Stdout, "\n"); r.Code != 0 || lines != 20 || strings.Contains(r.Stdout, "degenerate") {
		t.Errorf("exit %d, %d lines\n%s%s", r.Code, lines, r.Stdout, r.Stderr)
	}
}

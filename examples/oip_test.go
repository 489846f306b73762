package examples_test

import (
	"fmt"
	"strings"
	"testing"
)

// TestOIP checks that a Python client of the Open Inference Protocol, with messages of another
// compiler, gets the same decisions as the native service.
func TestOIP(t *testing.T) {
	python := python(t, "grpc", "grpc_tools.protoc", "numpy")
	d := serve(t)
	r := run(t, python, "python/oip.py", "--addr", d.GRPC[0], "--passes", recording, "--limit", fmt.Sprint(inputs))
	printed(t, r, decisions(t, d.GRPC[0])[:inputs])

	r = run(t, python, "python/oip.py", "--addr", d.GRPC[0], "--model", "nobody", "--passes", recording, "--limit", "2")
	if r.Code == 0 || !strings.Contains(r.Stderr, "NOT_FOUND") {
		t.Errorf("unknown model: exit %d, %s", r.Code, r.Stderr)
	}
	r = run(t, python, "python/oip.py", "--addr", "192.0.2.1:8590", "--passes", recording, "--limit", "2")
	if r.Code == 0 || !strings.Contains(r.Stderr, "plaintext is for unix sockets and loopback addresses") {
		t.Errorf("plaintext elsewhere: exit %d, %s", r.Code, r.Stderr)
	}
}

package integration_test

import (
	"slices"
	"strings"
	"testing"

	"github.com/ckd-project/ckd/client"
	"github.com/ckd-project/ckd/internal/recordings"
)

// TestDegenerate serves a model whose dropout was switched off by a deployment, on a GPU that rounds the
// passes of an input differently: 2,126 of 2,126 inputs were retained, and nothing said so. They must be
// deferred, and /healthz must name the model until passes come again.
func TestDegenerate(t *testing.T) {
	t.Parallel()
	r, err := recordings.CTGMCDropout()
	if err != nil {
		t.Fatal(err)
	}
	d := serve(t, "--policy", writePolicy(t, policyText))
	c, err := client.Dial(d.GRPC[0], client.WithInsecure())
	if err != nil {
		t.Fatal(err)
	}
	defer func() { _ = c.Close() }()
	const inputs = 100
	send := func(dropout bool) (retained int) {
		p := r.Passes
		batch := client.Batch{Model: "fetal-health", Passes: p.S, Inputs: inputs}
		for s := range p.S {
			pass := p.Float32[p.Offset(s, 0):][:inputs*p.K]
			if !dropout {
				pass = slices.Clone(p.Float32[:inputs*p.K])
				for at := range pass {
					pass[at] = min(pass[at]*(1+1e-7*float32((s+at)%5)), 1)
				}
			}
			batch.Values = append(batch.Values, pass...)
		}
		results, err := c.Decompose(t.Context(), batch)
		if err != nil {
			t.Fatal(err)
		}
		for _, result := range results {
			if result.Retained() {
				retained++
			}
		}
		return retained
	}
	health := func() string {
		_, text, _ := d.Get("/healthz")
		return text
	}
	if retained := send(false); retained != 0 || !strings.Contains(health(), "model fetal-health: degenerate: the passes of an input hardly differ") {
		t.Errorf("with dropout off %d retained, and /healthz says\n%s", retained, health())
	}
	send(true) // the window in which the last of them stand must end
	if retained := send(true); retained == 0 || strings.Contains(health(), "degenerate") {
		t.Errorf("with dropout on %d retained, and /healthz says\n%s", retained, health())
	}
}

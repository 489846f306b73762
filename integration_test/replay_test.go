package integration_test

import (
	"os"
	"path/filepath"
	"strings"
	"testing"

	"github.com/google/go-cmp/cmp"
	"github.com/google/go-cmp/cmp/cmpopts"

	"github.com/ckd-project/ckd/internal/timed"
)

// TestReplayEqualsDecompose replays recordings over TCP and a unix socket, streaming and unary. The
// answers must equal those of decompose offline.
func TestReplayEqualsDecompose(t *testing.T) {
	timed.Full(t)
	t.Parallel()
	policy := writePolicy(t, policyText)
	socket := filepath.Join(t.TempDir(), "ckd.sock")
	d := serveOn(t, "127.0.0.1:0,unix:"+socket, "--policy", policy)
	for _, name := range []string{"ctg-mcdropout", "ctg-lowrank", "ctg-ensemble"} {
		passes := recording(name, ".passes.npy")
		offline := decodeLines[any](t, mustRun(t, "decompose", "--passes", passes, "--policy", policy).Stdout)
		for _, address := range d.GRPC {
			for form, want := range map[string][]any{"": offline, "--unary --limit 500": offline[:500], "--batch 1 --limit 300": offline[:300]} {
				t.Run(name+" "+address+" "+form, func(t *testing.T) {
					args := append([]string{"replay", "--addr", address, "--model", "fetal-health", "--passes", passes}, strings.Fields(form)...)
					if d := cmp.Diff(want, decodeLines[any](t, mustRun(t, args...).Stdout), approximately(1e-12)); d != "" {
						t.Errorf("-offline +online:\n%s", d)
					}
				})
			}
		}
	}
	if code := d.Stop(); code != 0 {
		t.Errorf("exit code %d after SIGTERM", code)
	}
	if _, err := os.Stat(socket); !os.IsNotExist(err) {
		t.Errorf("the socket is left behind: %v", err)
	}
}

// approximately compares numbers to a relative tolerance, or to 1e-15.
func approximately(relative float64) cmp.Option { return cmpopts.EquateApprox(relative, 1e-15) }

package integration_test

import (
	"bytes"
	"encoding/json"
	"fmt"
	"math"
	"os"
	"path/filepath"
	"reflect"
	"strconv"
	"strings"
	"testing"

	"github.com/ckd-project/ckd/integration_test/testbed"
)

// TestReplayEqualsDecompose: what the daemon answers, over TCP and a unix
// socket, streaming and unary, equals what decompose computes offline with the
// same policy, and both equal the golden numbers.
func TestReplayEqualsDecompose(t *testing.T) {
	if testing.Short() {
		t.Skip("it takes seconds")
	}
	t.Parallel()
	policy := writePolicy(t, policyText)
	socket := filepath.Join(t.TempDir(), "ckd.sock")
	d := serveOn(t, "127.0.0.1:0,unix:"+socket, "--policy", policy)
	for _, name := range recordings {
		t.Run(name, func(t *testing.T) {
			passes := recording(name, ".passes.npy")
			offline := lines(t, mustRun(t, "decompose", "--passes", passes, "--policy", policy, "--model", "fetal-health").Stdout)
			if len(offline) != 2126 {
				t.Fatalf("%d lines, want 2126", len(offline))
			}
			golden, err := os.ReadFile(filepath.Join("..", "internal", "recordings", "golden", name+".decompose.jsonl"))
			if err != nil {
				t.Fatal(err)
			}
			for _, want := range lines(t, string(golden)) {
				fields := want.(map[string]any)
				i := int(fields["index"].(float64))
				for key, value := range fields {
					if d := difference(offline[i].(map[string]any)[key], value, 1e-9); d != "" {
						t.Errorf("offline, input %d: %s%s", i, key, d)
					}
				}
			}
			for _, address := range d.GRPC {
				forms := [][]string{nil, {"--unary", "--limit", "500"}, {"--batch", "1", "--in-flight", "64", "--limit", "300"}}
				for _, extra := range forms {
					args := append([]string{"replay", "--addr", address, "--model", "fetal-health", "--passes", passes}, extra...)
					online := lines(t, mustRun(t, args...).Stdout)
					want := len(offline)
					if len(extra) > 0 {
						want, _ = strconv.Atoi(extra[len(extra)-1])
					}
					if len(online) != want {
						t.Fatalf("%v: %d lines, want %d", args, len(online), want)
					}
					for i := range online {
						if d := difference(online[i], offline[i], 1e-12); d != "" {
							t.Errorf("%v: input %d: %s", extra, i, d)
						}
					}
				}
			}
		})
	}
	if code := d.Stop(); code != 0 {
		t.Errorf("exit code %d after SIGTERM", code)
	}
	if _, err := os.Stat(socket); !os.IsNotExist(err) {
		t.Errorf("the socket is left behind: %v", err)
	}
}

// difference says where values of JSON differ: numbers to a relative tolerance,
// or 1e-15. It is empty where they do not.
func difference(got, want any, relative float64) string {
	switch want := want.(type) {
	case float64:
		number, ok := got.(float64)
		if d := math.Abs(number - want); ok && (d <= relative*math.Abs(want) || d <= 1e-15) {
			return ""
		}
	case []any:
		list, ok := got.([]any)
		if ok && len(list) == len(want) {
			for i := range want {
				if d := difference(list[i], want[i], relative); d != "" {
					return fmt.Sprintf("[%d]%s", i, d)
				}
			}
			return ""
		}
	case map[string]any:
		object, ok := got.(map[string]any)
		if ok && len(object) == len(want) {
			for key := range want {
				if d := difference(object[key], want[key], relative); d != "" {
					return "." + key + d
				}
			}
			return ""
		}
	default:
		if reflect.DeepEqual(got, want) {
			return ""
		}
	}
	return fmt.Sprintf(": got %v, want %v", got, want)
}

func lines(t *testing.T, text string) []any {
	t.Helper()
	var out []any
	decoder := json.NewDecoder(bytes.NewReader([]byte(text)))
	for decoder.More() {
		var line any
		if err := decoder.Decode(&line); err != nil {
			t.Fatal(err)
		}
		out = append(out, line)
	}
	return out
}

// TestReplaySummary: throughput and latency are told, on standard error.
func TestReplaySummary(t *testing.T) {
	t.Parallel()
	d := serve(t, "--policy", writePolicy(t, policyText))
	r := mustRun(t, "replay", "--addr", d.GRPC[0], "--model", "fetal-health", "--summary", "--quiet",
		"--passes", recording("ctg-ensemble", ".passes.npy"), "--rate", "4000")
	if r.Stdout != "" {
		t.Errorf("lines in spite of --quiet: %.100s", r.Stdout)
	}
	for _, part := range []string{"2126", "p50", "p90", "p99", "max", "inputs/s"} {
		if !strings.Contains(r.Stderr, part) {
			t.Errorf("the summary lacks %q:\n%s", part, r.Stderr)
		}
	}
}

// TestReplayRefusals: inputs that are refused have error lines, the others
// their answers, and the exit code says so.
func TestReplayRefusals(t *testing.T) {
	t.Parallel()
	d := serve(t, "--policy", writePolicy(t, policyText))
	data, err := os.ReadFile(recording("ctg-ensemble", ".passes.npy"))
	if err != nil {
		t.Fatal(err)
	}
	const header, k, n = 128, 3, 2126
	at := header + 4*((2*n+17)*k+1) // pass 2, input 17, class 1
	copy(data[at:], []byte{0, 0, 0xc0, 0x7f})
	spoilt := filepath.Join(t.TempDir(), "spoilt.npy")
	if err := os.WriteFile(spoilt, data, 0o600); err != nil {
		t.Fatal(err)
	}
	offline := run(t, "decompose", "--passes", spoilt, "--classes", "normal,suspect,pathologic")
	online := run(t, "replay", "--addr", d.GRPC[0], "--model", "fetal-health", "--passes", spoilt)
	for name, r := range map[string]testbed.Result{"decompose": offline, "replay": online} {
		if r.Code != 1 || !strings.Contains(r.Stderr, "1 of 2126 inputs") {
			t.Errorf("%s: exit %d: %s", name, r.Code, r.Stderr)
		}
		for i, line := range lines(t, r.Stdout) {
			fault, failed := line.(map[string]any)["error"].(map[string]any)
			if failed != (i == 17) {
				t.Errorf("%s: line %d: %v", name, i, line)
			}
			if failed && fault["reason"] != "not_finite" {
				t.Errorf("%s: reason %v", name, fault)
			}
		}
	}
}

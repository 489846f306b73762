package integration_test

import (
	"context"
	"encoding/json"
	"fmt"
	"io"
	"net/http"
	"os"
	"os/exec"
	"path/filepath"
	"strconv"
	"strings"
	"syscall"
	"testing"

	"google.golang.org/grpc"
	"google.golang.org/grpc/credentials/insecure"

	"github.com/ckd-project/ckd/integration_test/testbed"
	"github.com/ckd-project/ckd/internal/record"
)

// ckd is the path of the binary under test, which TestMain builds.
var ckd string

func TestMain(m *testing.M) {
	if role := os.Getenv(roleEnv); role != "" {
		fmt.Fprintln(os.Stderr, play(role))
		os.Exit(1)
	}
	os.Exit(testbed.Main(m, map[string]*string{"../cmd/ckd": &ckd}))
}

// roleEnv makes the test's binary play a role in a process of its own.
const roleEnv = "CKD_TEST_ROLE"

// play is such a process, which goes on until it is killed.
func play(role string) error {
	if role == "idiomatic" {
		return serveIdiomatic()
	}
	return fmt.Errorf("no such role: %q", role)
}

func recording(name, suffix string) string {
	return filepath.Join("..", "internal", "recordings", name+suffix)
}

// policyText accepts all three recordings, even the ensemble with its five passes.
const policyText = `
models:
  - name: fetal-health
    version: integration
    classes: [normal, suspect, pathologic]
    critical: [suspect, pathologic]
    passes: {fewest: 5}
    primary: {score: c_crit_max, threshold: 0.052}
    fallback: {score: cbec, threshold: 0.023}
`

func writePolicy(t *testing.T, text string) string {
	t.Helper()
	path := filepath.Join(t.TempDir(), "policy.yaml")
	if err := os.WriteFile(path, []byte(text), 0o600); err != nil {
		t.Fatal(err)
	}
	return path
}

// run runs ckd and waits until it exits.
func run(t *testing.T, args ...string) testbed.Result {
	t.Helper()
	return testbed.Run(t, exec.CommandContext(inTime(t), ckd, args...))
}

// mustRun runs ckd, which must exit with code 0.
func mustRun(t *testing.T, args ...string) testbed.Result {
	t.Helper()
	r := run(t, args...)
	if r.Code != 0 {
		t.Fatalf("ckd %s: exit %d\n%s", strings.Join(args, " "), r.Code, r.Stderr)
	}
	return r
}

// daemon wraps a running ckd serve with what these tests ask of it.
type daemon struct {
	*testbed.Daemon
	t *testing.T
}

// serve starts a daemon on free ports and waits until it listens. The end of the test stops it.
func serve(t *testing.T, args ...string) *daemon {
	t.Helper()
	return &daemon{testbed.Serve(t, ckd, args...), t}
}

func serveOn(t *testing.T, listen string, args ...string) *daemon {
	t.Helper()
	return &daemon{testbed.ServeOn(t, ckd, listen, args...), t}
}

// serveSite starts a daemon that serves gRPC, HTTP and its admin address on free ports. It uses
// policyText unless args name a policy. The end of the test stops it.
func serveSite(t *testing.T, args ...string) *daemon {
	t.Helper()
	all := []string{"serve", "--listen", "127.0.0.1:0", "--admin", "127.0.0.1:0", "--http", "127.0.0.1:0"}
	if !strings.Contains(strings.Join(args, " "), "--policy") {
		all = append(all, "--policy", writePolicy(t, policyText))
	}
	return &daemon{testbed.Start(t, exec.Command(ckd, append(all, args...)...), strings.Count(strings.Join(args, " "), "--listen ")+1), t}
}

// gauge returns the sum of a metric's values with the given pairs of label and value.
func (d *daemon) gauge(name string, labels ...string) float64 {
	d.t.Helper()
	return d.Metrics().Sum(name, labels...)
}

// fallsTo waits until a metric is at most bound.
func (d *daemon) fallsTo(name string, bound float64, labels ...string) {
	d.t.Helper()
	eventually(d.t, fmt.Sprintf("%s is at most %v", name, bound), func() bool { return d.gauge(name, labels...) <= bound })
}

// says waits until the log contains a text.
func (d *daemon) says(text string) {
	d.t.Helper()
	eventually(d.t, "the log says "+strconv.Quote(text), func() bool { return strings.Contains(d.Log(), text) })
}

// replacePolicy writes a policy file that the daemon watches and waits until the daemon has read
// it.
func (d *daemon) replacePolicy(path, text string) {
	d.t.Helper()
	const read = "ckd_policy_last_reload_success_timestamp_seconds"
	before := d.gauge(read)
	if err := os.WriteFile(path, []byte(text), 0o600); err != nil {
		d.t.Fatal(err)
	}
	d.signal(syscall.SIGHUP) // the daemon then reads at once
	eventually(d.t, "the policy is read again", func() bool { return d.gauge(read) != before })
}

func (d *daemon) signal(s syscall.Signal) {
	d.t.Helper()
	if err := d.Process.Process.Signal(s); err != nil {
		d.t.Fatal(err)
	}
}

func (d *daemon) dial() *grpc.ClientConn {
	d.t.Helper()
	conn, err := grpc.NewClient(d.GRPC[0], grpc.WithTransportCredentials(insecure.NewCredentials()),
		grpc.WithDefaultCallOptions(grpc.MaxCallRecvMsgSize(64<<20)))
	if err != nil {
		d.t.Fatal(err)
	}
	d.t.Cleanup(func() { _ = conn.Close() })
	return conn
}

// reply holds an answer over HTTP.
type reply struct {
	code   int
	header http.Header
	body   string
}

// ask sends a request with pairs of header and value, and reads the whole answer.
func ask(ctx context.Context, client *http.Client, method, url, body string, headers ...string) (reply, error) {
	request, err := http.NewRequestWithContext(ctx, method, url, strings.NewReader(body))
	if err != nil {
		return reply{}, err
	}
	for i := 0; i < len(headers); i += 2 {
		request.Header.Add(headers[i], headers[i+1])
	}
	answer, err := client.Do(request)
	if err != nil {
		return reply{}, err
	}
	defer answer.Body.Close()
	text, err := io.ReadAll(answer.Body)
	return reply{answer.StatusCode, answer.Header, string(text)}, err
}

// mustAsk sends a request to the daemon's HTTP address, which must answer.
func (d *daemon) mustAsk(method, path, body string, headers ...string) reply {
	d.t.Helper()
	r, err := ask(inTime(d.t), http.DefaultClient, method, d.HTTP+path, body, headers...)
	if err != nil {
		d.t.Fatal(err)
	}
	return r
}

const hang = testbed.Hang

// eventually waits until a condition holds.
func eventually(t *testing.T, what string, holds func() bool) {
	t.Helper()
	testbed.Eventually(t, what, holds)
}

// inTime returns the test's context with a deadline, so that a call that hangs fails.
func inTime(t *testing.T) context.Context {
	ctx, cancel := context.WithTimeout(t.Context(), hang)
	t.Cleanup(cancel)
	return ctx
}

// decodeLines decodes JSON lines.
func decodeLines[T any](t *testing.T, text string) (lines []T) {
	t.Helper()
	for decoder := json.NewDecoder(strings.NewReader(text)); decoder.More(); {
		var line T
		if err := decoder.Decode(&line); err != nil {
			t.Fatal(err)
		}
		lines = append(lines, line)
	}
	return lines
}

func jsonText(t *testing.T, v any) string {
	t.Helper()
	text, err := json.Marshal(v)
	if err != nil {
		t.Fatal(err)
	}
	return string(text)
}

func readPage(t *testing.T, name string) string {
	t.Helper()
	text, err := os.ReadFile(filepath.Join("..", "docs", name))
	if err != nil {
		t.Fatal(err)
	}
	return string(text)
}

// readRecording returns at most limit inputs of a recording, [N,S,K].
func readRecording(t *testing.T, name string, limit int) (values []float32, n, s, k int) {
	t.Helper()
	p, err := record.ReadPasses(recording(name, ".passes.npy"), record.Options{})
	if err != nil {
		t.Fatal(err)
	}
	n = min(limit, p.N)
	values = make([]float32, 0, n*p.S*p.K)
	for i := range n {
		for s := range p.S {
			at := (s*p.N + i) * p.K
			values = append(values, p.Float32[at:at+p.K]...)
		}
	}
	return values, n, p.S, p.K
}

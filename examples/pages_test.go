package examples_test

import (
	"context"
	"io"
	"net/http"
	"os"
	"os/exec"
	"path/filepath"
	"regexp"
	"strconv"
	"strings"
	"testing"
	"time"

	"github.com/ckd-project/ckd/integration_test/testbed"
	"github.com/ckd-project/ckd/internal/timed"
)

// session runs all blocks of a page of docs in order, in a folder of its own, and returns what they print.
func session(t *testing.T, page string, modules ...string) (out, dir string) {
	t.Helper()
	interpreter := python(t, append(modules, "grpc", "google.protobuf", "numpy")...)
	dir = t.TempDir()
	for name, target := range map[string]string{"internal": "../internal", "deploy": "../deploy", "bin/ckd": ckd, "bin/python3": interpreter} {
		target, err := filepath.Abs(target)
		if err == nil {
			err = os.MkdirAll(filepath.Dir(filepath.Join(dir, name)), 0o700)
		}
		if err == nil {
			err = os.Symlink(target, filepath.Join(dir, name))
		}
		if err != nil {
			t.Fatal(err)
		}
	}
	paths := []string{"testdata/run_page.py", "../docs/" + page}
	for i, path := range paths {
		var err error
		if _, err = os.Stat(path); err == nil { // makes go test depend on the file
			paths[i], err = filepath.Abs(path)
		}
		if err != nil {
			t.Fatal(err)
		}
	}
	ctx, cancel := context.WithTimeout(t.Context(), 5*time.Minute)
	defer cancel()
	c := exec.CommandContext(ctx, interpreter, paths[0], paths[1], ckd)
	c.Dir, c.Env = dir, append(os.Environ(), "PATH="+filepath.Join(dir, "bin")+":"+os.Getenv("PATH"), "CKD_BINARY="+ckd)
	r := testbed.Run(t, c)
	if r.Code != 0 {
		t.Fatalf("docs/%s: exit %d\n%s%s", page, r.Code, r.Stdout, r.Stderr)
	}
	return r.Stdout, dir
}

// TestOutcomesPage goes through docs/outcomes.md. The ledger counts every outcome that was sent, and is
// the restored one in the end.
func TestOutcomesPage(t *testing.T) {
	timed.Full(t)
	t.Parallel()
	if _, err := exec.LookPath("openssl"); err != nil {
		testbed.Lacks(t, "openssl is not installed")
	}
	out, dir := session(t, "outcomes.md")
	labels, err := os.ReadFile(filepath.Join(dir, "labels.csv"))
	if err != nil {
		t.Fatal(err)
	}
	if reviews := strings.Count(string(labels), "\n") - 1; reviews < 900 || reviews > 1700 {
		t.Errorf("%d reviews of 2126 inputs, a fifth of them deferred and half of the others audited", reviews)
	}
	for _, want := range []string{"0 outcomes are overdue", "Generation 2 begins", "1 decisions with outcomes are deleted"} {
		if !strings.Contains(out, want) {
			t.Errorf("no %q in\n%s", want, out)
		}
	}
}

// TestDoubleReadingPage goes through docs/double-reading.md: second readings are wanted, one of a reading
// that was withdrawn among them, then two third readings, then none.
func TestDoubleReadingPage(t *testing.T) {
	timed.Full(t)
	t.Parallel()
	if _, err := exec.LookPath("openssl"); err != nil {
		testbed.Lacks(t, "openssl is not installed")
	}
	out, dir := session(t, "double-reading.md")
	var wanted []string
	for _, m := range regexp.MustCompile(`of (\d+) inputs another reading is wanted`).FindAllStringSubmatch(out, -1) {
		wanted = append(wanted, m[1])
	}
	if len(wanted) != 3 || wanted[0] == "0" || wanted[1] != "2" || wanted[2] != "0" {
		t.Errorf("another reading is wanted of %q inputs, expected some, 2 and 0", wanted)
	}
	csv, err := os.ReadFile(filepath.Join(dir, "wanted.csv"))
	if err != nil {
		t.Fatal(err)
	}
	withdrawn, err := os.ReadFile(filepath.Join(dir, "withdrawn.csv"))
	if err != nil {
		t.Fatal(err)
	}
	id := strings.Split(strings.Split(string(withdrawn), "\n")[1], ",")[0]
	if !regexp.MustCompile(`(?m)^\d+,` + id + `,answered,[^,]*,second_read,ann$`).Match(csv) {
		t.Errorf("no second reading of %s is wanted after the first was withdrawn:\n%s", id, csv)
	}
	if !strings.Contains(out, "a third read by another source is wanted; read by ann, bob") {
		t.Errorf("no third reading is wanted in\n%s", out)
	}
	in := func(name string) string { return filepath.Join(dir, name) }
	d := serveOn(t, "127.0.0.1:0", "--policy", in("policy.yaml"), "--receipt-keys", in("receipt-keys"), "--ledger", in("ledger"), "--recent-inputs", "10", "--access", in("access.yaml"))
	for who, want := range map[string]string{"reader-ann": `"enter":true,"enter_why":"","source":"reader-ann"`, "reader-bob": `"enter":true,"enter_why":"","source":"reader-bob"`, "lead": `"enter":true`, "server": "not allowed"} {
		if code, list := asked(t, d.Admin+"/triage/reviews", in(who+".token")); code != http.StatusOK && who != "server" || !strings.Contains(list, want) {
			t.Errorf("%s: %d %s", who, code, list)
		}
		code, _ := asked(t, d.Admin+"/triage/state?model=fetal-health", in(who+".token"))
		if sees := code == http.StatusOK; sees != (who == "lead") {
			t.Errorf("%s: the triage page answers %d", who, code)
		}
	}
}

// asked returns what an address of the triage page answers somebody with a token.
func asked(t *testing.T, url, tokenFile string) (int, string) {
	t.Helper()
	token, err := os.ReadFile(tokenFile)
	if err != nil {
		t.Fatal(err)
	}
	request, err := http.NewRequestWithContext(t.Context(), http.MethodGet, url, http.NoBody)
	if err != nil {
		t.Fatal(err)
	}
	request.SetBasicAuth("anyone", strings.TrimSpace(string(token)))
	response, err := http.DefaultClient.Do(request)
	if err != nil {
		t.Fatal(err)
	}
	defer response.Body.Close()
	text, err := io.ReadAll(response.Body)
	if err != nil {
		t.Fatal(err)
	}
	return response.StatusCode, string(text)
}

// TestPythonPage goes through docs/python.md: a table, a figure and a page, a policy that holds on later
// data, and decisions.
func TestPythonPage(t *testing.T) {
	timed.Full(t)
	t.Parallel()
	out, dir := session(t, "python.md", "sklearn", "torch", "matplotlib")
	for name, begins := range map[string]string{"misses.svg": "<?xml", "report.html": "<!doctype html>", "policy.yaml": "# Written by ckd calibrate", "net.yaml": "# Written by ckd calibrate"} {
		if text, err := os.ReadFile(filepath.Join(dir, name)); err != nil || !strings.HasPrefix(strings.ToLower(string(text)), strings.ToLower(begins)) {
			t.Errorf("%s: %v, begins %.40q", name, err, text)
		}
	}
	if !strings.Contains(out, "signs: []\n") || !strings.Contains(out, "signs with dropout off: ['dropout_off'") || !strings.Contains(out, "refused: ") {
		t.Errorf("signs, or a refusal, are not as the page says in\n%s", out)
	}
	figures := regexp.MustCompile(`(\d+) of 3000 are deferred, (\d+) of (\d+) critical inputs are missed\n<case-\d+: defer: `).FindStringSubmatch(out)
	if figures == nil {
		t.Fatalf("no decisions in\n%s", out)
	}
	var n [3]int
	for i := range n {
		n[i], _ = strconv.Atoi(figures[i+1])
	}
	// The policy is for 150 reviews per 1,000; the bounds are wide, as the data are made by a library.
	if deferred, missed, critical := n[0], n[1], n[2]; deferred < 300 || deferred > 600 || 5*missed > critical {
		t.Errorf("%d deferred of 3000, %d of %d missed", deferred, missed, critical)
	}
}

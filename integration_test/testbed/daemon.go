package testbed

import (
	"encoding/json"
	"io"
	"net/http"
	"os/exec"
	"path/filepath"
	"slices"
	"strings"
	"testing"
)

// Daemon wraps a running ckd serve.
type Daemon struct {
	*process
	GRPC  []string // addresses to dial
	Admin string   // URL
	HTTP  string   // URL; empty unless the API is served over HTTP
}

// Ledger begins a ledger in a folder of the test, and returns its path.
func Ledger(t *testing.T, ckd string) string {
	t.Helper()
	dir := filepath.Join(t.TempDir(), "ledger")
	if out, err := exec.Command(ckd, "outcomes", "begin", "--ledger", dir).CombinedOutput(); err != nil {
		t.Fatalf("%v: %s", err, out)
	}
	return dir
}

// Serve starts a daemon on free ports and waits until it listens.
func Serve(t *testing.T, ckd string, args ...string) *Daemon {
	t.Helper()
	return ServeOn(t, ckd, "127.0.0.1:0", args...)
}

// ServeOn starts a daemon on the given gRPC addresses.
func ServeOn(t *testing.T, ckd, listen string, args ...string) *Daemon {
	t.Helper()
	all := append([]string{"serve", "--listen", listen, "--admin", "127.0.0.1:0"}, args...)
	return Start(t, exec.Command(ckd, all...), strings.Count(listen, ",")+1)
}

// Start starts a daemon and waits until it listens on its admin address, on so many gRPC addresses,
// and on that for HTTP if the command names one.
func Start(t *testing.T, command *exec.Cmd, addresses int) *Daemon {
	t.Helper()
	http := slices.Contains(command.Args, "--http")
	return StartUntil(t, command, func(d *Daemon) bool {
		return len(d.GRPC) == addresses && d.Admin != "" && (d.HTTP != "" || !http)
	})
}

// StartUntil starts a daemon and waits until listens reports true. The end of the test stops it.
func StartUntil(t *testing.T, command *exec.Cmd, listens func(*Daemon) bool) *Daemon {
	t.Helper()
	d := &Daemon{}
	d.process = start(t, command, func(text string) bool {
		var line struct{ Msg, For, Address string }
		if json.Unmarshal([]byte(text), &line) != nil || line.Msg != "listening" {
			return false
		}
		switch line.For {
		case "grpc":
			d.GRPC = append(d.GRPC, line.Address)
		case "admin":
			d.Admin = line.Address
		case "http":
			d.HTTP = line.Address
		}
		return listens(d)
	})
	return d
}

// Get fetches a path of the admin address, with pairs of header and value.
func (d *Daemon) Get(path string, header ...string) (code int, body string, contentType string) {
	d.t.Helper()
	// Without this header /metrics may answer with values from before the call.
	return get(d.t, d.Admin+path, append([]string{"Cache-Control", "no-cache"}, header...)...)
}

// get fetches a URL, with pairs of header and value.
func get(t *testing.T, url string, header ...string) (code int, body string, contentType string) {
	t.Helper()
	request, err := http.NewRequestWithContext(t.Context(), http.MethodGet, url, nil)
	if err != nil {
		t.Fatal(err)
	}
	for i := 0; i < len(header); i += 2 {
		request.Header.Set(header[i], header[i+1])
	}
	answer, err := http.DefaultClient.Do(request)
	if err != nil {
		t.Fatal(err)
	}
	defer answer.Body.Close()
	data, err := io.ReadAll(answer.Body)
	if err != nil {
		t.Fatal(err)
	}
	return answer.StatusCode, string(data), answer.Header.Get("Content-Type")
}

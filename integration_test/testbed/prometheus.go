package testbed

import (
	"bytes"
	"context"
	"encoding/json"
	"io"
	"net"
	"net/http"
	"net/url"
	"os/exec"
	"syscall"
	"testing"
	"time"

	"github.com/prometheus/common/model"
)

// Prometheus is a running Prometheus.
type Prometheus struct {
	t       *testing.T
	process *exec.Cmd
	URL     string
	log     bytes.Buffer // to be read when it has exited
	exited  chan struct{}
}

// StartPrometheus starts a Prometheus on a free port and waits until it is ready.
// It is stopped at the end of the test.
func StartPrometheus(t *testing.T, binary, config string, flags ...string) *Prometheus {
	t.Helper()
	for range 3 { // the port may be taken between finding and using it
		free, err := net.Listen("tcp", "127.0.0.1:0")
		if err != nil {
			t.Fatal(err)
		}
		address := free.Addr().String()
		_ = free.Close() // nothing was accepted
		p := &Prometheus{t: t, URL: "http://" + address, exited: make(chan struct{})}
		p.process = exec.Command(binary, append([]string{"--config.file", config,
			"--storage.tsdb.path", t.TempDir(), "--web.listen-address", address}, flags...)...)
		p.process.Stdout, p.process.Stderr = &p.log, &p.log
		if err := p.process.Start(); err != nil {
			t.Fatal(err)
		}
		go func() {
			_ = p.process.Wait() // how it ends is of no interest
			close(p.exited)
		}()
		t.Cleanup(p.Stop)
		if p.ready() {
			return p
		}
	}
	t.Fatal("Prometheus does not start")
	return nil
}

// ready waits until Prometheus answers, and reports false if it exits before.
func (p *Prometheus) ready() bool {
	p.t.Helper()
	for range int(hang / (100 * time.Millisecond)) {
		select {
		case <-p.exited:
			return false
		case <-time.After(100 * time.Millisecond):
		}
		if code, _, err := p.Get("/-/ready"); err == nil && code == http.StatusOK {
			return true
		}
	}
	p.t.Fatalf("Prometheus is not ready after %v", hang)
	return false
}

// Stop tells Prometheus to stop, and makes it.
func (p *Prometheus) Stop() {
	_ = p.process.Process.Signal(syscall.SIGTERM) // it may have exited
	select {
	case <-p.exited:
	case <-time.After(hang):
		_ = p.process.Process.Kill() // it may have exited
		<-p.exited
		p.t.Errorf("Prometheus did not stop within %v of SIGTERM", hang)
	}
	if p.t.Failed() {
		p.t.Logf("log of Prometheus:\n%s", p.log.String())
	}
}

// Scraped waits until every target that is up has been scraped, by a scrape that
// began after the given time, and returns the time of the last samples.
func (p *Prometheus) Scraped(after time.Time) string {
	p.t.Helper()
	// The values that a daemon answers with may be a second old, and Prometheus moves the
	// time of a scrape by some milliseconds, to regular steps.
	if !after.IsZero() {
		after = after.Add(1100 * time.Millisecond)
	}
	for range int(hang / (100 * time.Millisecond)) {
		targets := p.Query("timestamp(up) and up == 1", "")
		var first, last model.SampleValue
		for i, sample := range targets {
			if i == 0 || sample.Value < first {
				first = sample.Value
			}
			last = max(last, sample.Value)
		}
		if len(targets) > 0 && float64(first) > float64(after.UnixMilli())/1000 {
			return last.String()
		}
		time.Sleep(100 * time.Millisecond)
	}
	p.t.Fatalf("Prometheus has not scraped its targets within %v", hang)
	return ""
}

// Query asks for an instant vector, as of the given time or of now.
func (p *Prometheus) Query(query, at string) model.Vector {
	p.t.Helper()
	parameters := url.Values{"query": {query}}
	if at != "" {
		parameters.Set("time", at)
	}
	_, body, err := p.Get("/api/v1/query?" + parameters.Encode())
	if err != nil {
		p.t.Fatal(err)
	}
	var reply struct {
		Status string
		Data   struct{ Result model.Vector }
	}
	if err := json.Unmarshal(body, &reply); err != nil || reply.Status != "success" {
		p.t.Fatalf("%s\nis answered with %s (%v)", query, body, err)
	}
	return reply.Data.Result
}

// Get fetches a path.
func (p *Prometheus) Get(path string) (code int, body []byte, err error) {
	ctx, cancel := context.WithTimeout(p.t.Context(), hang)
	defer cancel()
	request, err := http.NewRequestWithContext(ctx, http.MethodGet, p.URL+path, nil)
	if err != nil {
		return 0, nil, err
	}
	answer, err := http.DefaultClient.Do(request)
	if err != nil {
		return 0, nil, err
	}
	defer answer.Body.Close()
	body, err = io.ReadAll(answer.Body)
	return answer.StatusCode, body, err
}

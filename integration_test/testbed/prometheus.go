package testbed

import (
	"bytes"
	"context"
	"encoding/json"
	"io"
	"math"
	"net"
	"net/http"
	"net/url"
	"os/exec"
	"syscall"
	"testing"
	"time"

	"github.com/prometheus/common/model"
)

// Prometheus wraps a running Prometheus.
type Prometheus struct {
	t       *testing.T
	process *exec.Cmd
	URL     string
	log     bytes.Buffer // complete once the process has exited
	exited  chan struct{}
}

// StartPrometheus starts a Prometheus on a free port and waits until it is ready. The end of the
// test stops it.
func StartPrometheus(t *testing.T, binary, config string, flags ...string) *Prometheus {
	t.Helper()
	for range 3 { // another process may take the port before Prometheus does
		free, err := net.Listen("tcp", "127.0.0.1:0")
		if err != nil {
			t.Fatal(err)
		}
		address := free.Addr().String()
		_ = free.Close() // it accepted no connection
		p := &Prometheus{t: t, URL: "http://" + address, exited: make(chan struct{})}
		p.process = exec.Command(binary, append([]string{"--config.file", config,
			"--storage.tsdb.path", t.TempDir(), "--web.listen-address", address}, flags...)...)
		p.process.Stdout, p.process.Stderr = &p.log, &p.log
		if err := p.process.Start(); err != nil {
			t.Fatal(err)
		}
		go func() {
			_ = p.process.Wait() // any exit code will do
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

// ready waits until Prometheus answers. It reports false if Prometheus exits first.
func (p *Prometheus) ready() bool {
	p.t.Helper()
	up := false
	Eventually(p.t, "Prometheus is ready", func() bool {
		select {
		case <-p.exited:
			return true
		default:
		}
		code, _, err := p.Get("/-/ready")
		up = err == nil && code == http.StatusOK
		return up
	})
	return up
}

// Stop sends SIGTERM and waits for the end, then kills.
func (p *Prometheus) Stop() {
	_ = p.process.Process.Signal(syscall.SIGTERM) // it may have exited
	select {
	case <-p.exited:
	case <-time.After(Hang):
		_ = p.process.Process.Kill() // it may have exited
		<-p.exited
		p.t.Errorf("Prometheus did not stop within %v of SIGTERM", Hang)
	}
	if p.t.Failed() {
		p.t.Logf("log of Prometheus:\n%s", p.log.String())
	}
}

// Scraped waits until every target that is up has been scraped by a scrape that began after the
// given time. It returns the time of the last samples.
func (p *Prometheus) Scraped(after time.Time) string {
	p.t.Helper()
	// A daemon may answer with values that are a second old, and Prometheus moves the times of
	// scrapes by some milliseconds, to regular steps.
	if !after.IsZero() {
		after = after.Add(1100 * time.Millisecond)
	}
	var last model.SampleValue
	Eventually(p.t, "Prometheus has scraped its targets", func() bool {
		targets := p.Query("timestamp(up) and up == 1", "")
		first := model.SampleValue(math.Inf(1))
		last = 0
		for _, sample := range targets {
			first, last = min(first, sample.Value), max(last, sample.Value)
		}
		return len(targets) > 0 && float64(first) > float64(after.UnixMilli())/1000
	})
	return last.String()
}

// Query returns an instant vector at the given time, or now if at is empty.
func (p *Prometheus) Query(query, moment string) model.Vector {
	p.t.Helper()
	parameters := url.Values{"query": {query}}
	if moment != "" {
		parameters.Set("time", moment)
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
	ctx, cancel := context.WithTimeout(p.t.Context(), Hang)
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

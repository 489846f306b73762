package testbed

import (
	"encoding/json"
	"math"
	"net/url"
	"os/exec"
	"regexp"
	"strings"
	"testing"
	"time"

	"github.com/prometheus/common/model"
)

// Prometheus wraps a running Prometheus.
type Prometheus struct {
	*process
	URL string
}

var listeningOn = regexp.MustCompile(`"Listening on".* address=(\S+)`)

// StartPrometheus starts a Prometheus on a free port and waits until it is ready. The end of the
// test stops it.
func StartPrometheus(t *testing.T, binary, config string, flags ...string) *Prometheus {
	t.Helper()
	p := &Prometheus{}
	p.process = start(t, exec.Command(binary, append([]string{"--config.file", config,
		"--storage.tsdb.path", t.TempDir(), "--web.listen-address", "127.0.0.1:0"}, flags...)...), func(line string) bool {
		if address := listeningOn.FindStringSubmatch(line); address != nil {
			p.URL = "http://" + address[1]
		}
		return strings.Contains(line, "Server is ready to receive web requests")
	})
	return p
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
	_, body, _ := p.Get("/api/v1/query?" + parameters.Encode())
	var reply struct {
		Status string
		Data   struct{ Result model.Vector }
	}
	if err := json.Unmarshal([]byte(body), &reply); err != nil || reply.Status != "success" {
		p.t.Fatalf("%s\nis answered with %s (%v)", query, body, err)
	}
	return reply.Data.Result
}

// Get fetches a path.
func (p *Prometheus) Get(path string) (code int, body string, contentType string) {
	p.t.Helper()
	return get(p.t, p.URL+path)
}

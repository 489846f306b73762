package integration_test

import (
	"bufio"
	"crypto/sha256"
	"encoding/base64"
	"encoding/json"
	"fmt"
	"io"
	"net/http"
	"os"
	"path/filepath"
	"strings"
	"testing"

	"github.com/ckd-project/ckd/internal/triage"
)

// state is what the triage page shows of a model.
func (d *daemon) state(model string, header ...string) (s triage.State) {
	d.t.Helper()
	code, body, _ := d.Get("/triage/state?model="+model, header...)
	if err := json.Unmarshal([]byte(body), &s); err != nil || code != http.StatusOK {
		d.t.Fatalf("state: %d %s (%v)", code, body, err)
	}
	return s
}

// TestTriagePage: the page says of a replay what its lines say, and follows a reload.
func TestTriagePage(t *testing.T) {
	if testing.Short() {
		t.Skip("it takes seconds")
	}
	t.Parallel()
	path := writePolicy(t, policyText)
	d := serve(t, "--policy", path, "--recent-inputs", "5")
	if m := d.state("fetal-health").Model; m == nil || m.Spans[0].Inputs != 0 || m.Spans[0].DeferredShare != nil || len(m.Recent.Inputs) != 0 {
		t.Errorf("before any input: %+v", m)
	}
	lines := replayLines(t, d)
	deferred := 0
	for _, l := range lines {
		if l.Decision.Action == "defer" {
			deferred++
		}
	}
	eventually(t, "all inputs are on the page", func() bool {
		return d.state("fetal-health").Model.Spans[0].Inputs >= float64(len(lines))
	})
	s := d.state("fetal-health")
	m := s.Model
	span := m.Spans[len(m.Spans)-1]
	if span.Inputs != float64(len(lines)) || span.Deferred != float64(deferred) || span.Retained != float64(len(lines)-deferred) {
		t.Errorf("%+v, want %d inputs, %d of them deferred", span, len(lines), deferred)
	}
	if share := span.DeferredShare; share == nil || !(share.Low < share.Value && share.Value < share.High) {
		t.Errorf("share of deferred %+v", share)
	}
	if n := len(m.Recent.Inputs); n != 5 {
		t.Errorf("%d recent inputs, want the last 5", n)
	} else if got := m.Recent.Inputs[0]; got.ID == "" || got.Score == "" || got.Threshold == nil || float64(got.Value) <= *got.Threshold || len(got.Fingerprint) == 0 {
		t.Errorf("the last deferred input is %+v", got)
	}
	if !s.Daemon.Serving || !s.Daemon.Reload.OK || s.Daemon.CertificateEnds != nil {
		t.Errorf("%+v", s.Daemon)
	}

	write := func(text string) {
		t.Helper()
		if err := os.WriteFile(path, []byte(text), 0o600); err != nil {
			t.Fatal(err)
		}
	}
	write(policyText + "    gate: sometimes\n")
	eventually(t, "the page tells of the failed reload", func() bool {
		r := d.state("fetal-health").Daemon.Reload
		return !r.OK && strings.Contains(r.Error, "sometimes") && r.Success.Before(r.At)
	})
	write(strings.Replace(policyText, "version: integration", "version: mended", 1))
	eventually(t, "the page tells of the next one", func() bool {
		s := d.state("fetal-health")
		return s.Daemon.Reload.OK && s.Daemon.Reload.Error == "" && s.Model.Policy.Version == "mended"
	})
	if s := d.state("no-such-model"); s.Model != nil || len(s.Models) != 1 {
		t.Errorf("%+v", s)
	}
}

// TestTriagePageAccess: with access control the page is for administrators, the last
// inputs for those who may see them as well, and a browser's password will do.
func TestTriagePageAccess(t *testing.T) {
	t.Parallel()
	tokens := map[string]string{"team": "triage-team-0123456789", "viewer": "viewer-0123456789abc", "sidecar": "sidecar-0123456789ab", "narrow": "narrow-0123456789abc"}
	text := "identities:\n"
	for name, rights := range map[string]string{"team": `models: ["*"], admin: true, recent: true`, "narrow": "models: [another], admin: true, recent: true", "viewer": "admin: true", "sidecar": `models: ["*"]`} {
		text += fmt.Sprintf("- {name: %s, tokens: [{sha256: %x}], %s}\n", name, sha256.Sum256([]byte(tokens[name])), rights)
	}
	access := filepath.Join(t.TempDir(), "access.yaml")
	if err := os.WriteFile(access, []byte(text), 0o600); err != nil {
		t.Fatal(err)
	}
	d := serve(t, "--policy", writePolicy(t, policyText), "--recent-inputs", "5", "--access", access)
	bearer := func(name string) []string { return []string{"Authorization", "Bearer " + tokens[name]} }
	basic := func(name string) []string {
		return []string{"Authorization", "Basic " + base64.StdEncoding.EncodeToString([]byte("someone:"+tokens[name]))}
	}
	for _, c := range []struct {
		path   string
		header []string
		code   int
	}{
		{"/", nil, 401}, {"/triage/state", nil, 401}, {"/triage/events", nil, 401}, {"/", basic("sidecar"), 403},
		{"/triage/state", bearer("sidecar"), 403}, {"/", basic("viewer"), 200}, {"/", bearer("viewer"), 200},
		{"/metrics", nil, 200}, {"/readyz", nil, 200},
		{"/", append(basic("team"), "Host", "page.example"), 200}, // the client sends its own Host
	} {
		if code, body, _ := d.Get(c.path, c.header...); code != c.code {
			t.Errorf("%s %q: %d %s, want %d", c.path, c.header, code, body, c.code)
		}
	}
	if m := d.state("fetal-health", basic("team")...).Model; m.Recent == nil || m.RecentWhy != "" {
		t.Errorf("the team sees %+v, %q", m.Recent, m.RecentWhy)
	}
	for _, who := range []string{"viewer", "narrow"} {
		if m := d.state("fetal-health", basic(who)...).Model; m.Recent != nil || m.RecentWhy != "not allowed" {
			t.Errorf("%s sees %+v, %q", who, m.Recent, m.RecentWhy)
		}
	}
}

// TestTriagePageRebound: a page of another name that was made to mean this machine
// learns nothing.
func TestTriagePageRebound(t *testing.T) {
	t.Parallel()
	d := serve(t, "--policy", writePolicy(t, policyText))
	for host, want := range map[string]int{"page.example": 403, "localhost:9590": 200} {
		for _, path := range []string{"/", "/triage/state"} {
			request, err := http.NewRequestWithContext(t.Context(), http.MethodGet, d.Admin+path, nil)
			if err != nil {
				t.Fatal(err)
			}
			request.Host = host
			answer, err := http.DefaultClient.Do(request)
			if err != nil {
				t.Fatal(err)
			}
			if answer.Body.Close(); answer.StatusCode != want {
				t.Errorf("%s of %s: %s, want %d", path, host, answer.Status, want)
			}
		}
	}
}

// TestTriagePageEvents: events come while inputs are decided, and somebody who
// watches does not hold up the end of the daemon.
func TestTriagePageEvents(t *testing.T) {
	t.Parallel()
	d := serve(t, "--policy", writePolicy(t, policyText), "--shutdown-grace", "1h") // which Stop does not wait for
	ctx := inTime(t)
	request, err := http.NewRequestWithContext(ctx, http.MethodGet, d.Admin+"/triage/events?model=fetal-health", nil)
	if err != nil {
		t.Fatal(err)
	}
	answer, err := http.DefaultClient.Do(request)
	if err != nil {
		t.Fatal(err)
	}
	defer answer.Body.Close()
	events := bufio.NewScanner(answer.Body)
	events.Buffer(nil, 1<<20)
	next := func() (s triage.State) {
		t.Helper()
		for events.Scan() {
			if data, ok := strings.CutPrefix(events.Text(), "data: "); ok {
				if err := json.Unmarshal([]byte(data), &s); err != nil {
					t.Fatal(err)
				}
				return s
			}
		}
		t.Fatalf("no further event: %v", events.Err())
		return s
	}
	if m := next().Model; m == nil || m.Spans[0].Inputs != 0 {
		t.Errorf("the first event has %+v", m)
	}
	lines := replayLines(t, d)
	for next().Model.Spans[0].Inputs != float64(len(lines)) { // the deadline ends it
	}
	if code := d.Stop(); code != 0 {
		t.Errorf("exit code %d", code)
	}
	if _, err := io.Copy(io.Discard, answer.Body); err != nil {
		t.Errorf("the stream of events broke: %v", err)
	}
}

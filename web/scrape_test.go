package web

import (
	"compress/gzip"
	"fmt"
	"io"
	"net/http"
	"net/http/httptest"
	"strings"
	"testing"
	"testing/synctest"
	"time"

	"github.com/prometheus/client_golang/prometheus"
	"go.uber.org/zap"
)

// scraped returns /metrics of a registry with one counter, gathered, which counts how often it is
// gathered.
func scraped() http.Handler {
	registry := prometheus.NewRegistry()
	gathered := 0.0
	registry.MustRegister(prometheus.NewCounterFunc(prometheus.CounterOpts{Name: "gathered"}, func() float64 {
		gathered++
		return gathered
	}))
	return newScrapes(registry, zap.NewNop())
}

func scrape(t *testing.T, h http.Handler, headers ...string) (w *httptest.ResponseRecorder, text string) {
	t.Helper()
	w = httptest.NewRecorder()
	r := httptest.NewRequestWithContext(t.Context(), http.MethodGet, "/metrics", nil)
	for i := 0; i < len(headers); i += 2 {
		r.Header.Set(headers[i], headers[i+1])
	}
	h.ServeHTTP(w, r)
	body := io.Reader(w.Body)
	if w.Header().Get("Content-Encoding") == "gzip" {
		var err error
		if body, err = gzip.NewReader(w.Body); err != nil {
			t.Fatal(err)
		}
	}
	data, err := io.ReadAll(body)
	if err != nil {
		t.Fatal(err)
	}
	return w, string(data)
}

// TestScrapesShare checks that all scrapes within a second have the values of the first, each in
// the format that it asks for, but for those that ask for new ones.
func TestScrapesShare(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		h := scraped()
		for second := 1; second <= 5; second += 2 {
			value := fmt.Sprintf("\ngathered %d\n", second)
			for _, c := range []struct{ accept, encoding, cache, media, fragment string }{
				{"", "", "", "text/plain; version=0.0.4", value},
				{"*/*", "deflate, gzip;q=1.0, *;q=0.5", "", "text/plain; version=0.0.4", value},
				{"text/plain", "gzip;q=0", "", "text/plain; version=0.0.4", value},
				{"application/openmetrics-text;version=1.0.0;escaping=allow-utf-8", "gzip", "", "application/openmetrics-text; version=1.0.0", "# EOF"},
				{"application/vnd.google.protobuf;proto=io.prometheus.client.MetricFamily;encoding=delimited", "", "", "application/vnd.google.protobuf", "gathered"},
				{"", "", "no-cache", "text/plain", fmt.Sprintf("\ngathered %d\n", second+1)},
			} {
				w, text := scrape(t, h, "Accept", c.accept, "Accept-Encoding", c.encoding, "Cache-Control", c.cache)
				if w.Code != http.StatusOK || !strings.HasPrefix(w.Header().Get("Content-Type"), c.media) || !strings.Contains(text, c.fragment) {
					t.Errorf("%q, %q: %d %s %s", c.accept, c.encoding, w.Code, w.Header(), text)
				}
				if gzipped := w.Header().Get("Content-Encoding") == "gzip"; gzipped != (strings.Contains(c.encoding, "gzip") && c.encoding != "gzip;q=0") {
					t.Errorf("%q is answered with gzip: %v", c.encoding, gzipped)
				}
			}
			time.Sleep(scrapeShare) // on synctest's clock
		}
	})
}

// heldWriter is the answer to a client that does not read.
type heldWriter struct {
	*httptest.ResponseRecorder
	held     chan struct{}
	deadline time.Time
}

// Write implements http.ResponseWriter.
func (w *heldWriter) Write(p []byte) (int, error) {
	<-w.held
	return w.ResponseRecorder.Write(p)
}

// SetWriteDeadline serves http.ResponseController.
func (w *heldWriter) SetWriteDeadline(at time.Time) error {
	w.deadline = at
	return nil
}

// TestScrapesAtOnce checks that two scrapes are answered at a time, each with a deadline, and that
// others learn when to come again.
func TestScrapesAtOnce(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		h := scraped()
		held := make(chan struct{})
		writers := []*heldWriter{{httptest.NewRecorder(), held, time.Time{}}, {httptest.NewRecorder(), held, time.Time{}}}
		for _, w := range writers {
			go h.ServeHTTP(w, httptest.NewRequest(http.MethodGet, "/metrics", nil))
		}
		synctest.Wait()
		for i, w := range writers {
			if got := time.Until(w.deadline); got != scrapeWrite {
				t.Errorf("writer %d has %v", i, got)
			}
		}
		if w, text := scrape(t, h); w.Code != http.StatusServiceUnavailable || w.Header().Get("Retry-After") != "1" || !strings.Contains(text, "2 scrapes") {
			t.Errorf("a third: %d %s %s", w.Code, w.Header(), text)
		}
		close(held)
		synctest.Wait()
		begun := time.Now()
		for range 100 {
			if w, _ := scrape(t, h); w.Code != http.StatusOK {
				t.Errorf("then: %d", w.Code)
			}
		}
		if took := time.Since(begun); took < 49*scrapePause {
			t.Errorf("100 scrapes take %v", took)
		}
		time.Sleep(scrapePause) // frees the last places
	})
}

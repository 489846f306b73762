package web

import (
	"bytes"
	"context"
	"fmt"
	"net/http"
	"strconv"
	"strings"
	"sync"
	"time"

	"github.com/prometheus/client_golang/prometheus"
	"github.com/prometheus/client_golang/prometheus/promhttp"
	dto "github.com/prometheus/client_model/go"
	"github.com/prometheus/common/expfmt"
	"go.uber.org/zap"
)

const (
	// scrapesAtOnce bounds the scrapes answered at one time. Others wait for scrapeWait before they are refused.
	scrapesAtOnce = 2
	scrapeWait    = time.Second
	// scrapePause keeps a place taken after its answer, so that all clients together get at most a
	// hundred answers a second.
	scrapePause = 20 * time.Millisecond
	// scrapeWrite bounds how long a client may take to read an answer.
	scrapeWrite = 5 * time.Second
	// scrapeShare is the age up to which scrapes share their values.
	scrapeShare = time.Second
	// scrapeFresh bounds the scrapes in a row that may ask for new values. One more may after each scrapeShare.
	scrapeFresh = 20
)

// scrapes serves /metrics at a cost that does not grow with the number of scrapers. It answers two
// scrapes at a time, with the values and the bytes of the last scrape while those are less than a
// second old.
type scrapes struct {
	handler http.Handler // encodes the families
	log     *zap.Logger
	places  chan struct{}

	mu       sync.Mutex
	gathered time.Time // time of the values
	families []*dto.MetricFamily
	err      error
	encoded  map[string]*encoding
	fresh    int       // scrapes that asked for new values, less one for each scrapeShare since
	since    time.Time // when fresh was last reduced
}

// encoding is an answer that is sent to many scrapers.
type encoding struct {
	code   int
	header http.Header
	body   bytes.Buffer
}

// newScrapes returns a handler that serves what a registry gathers, and counts scrapes there.
func newScrapes(registry *prometheus.Registry, log *zap.Logger) http.Handler {
	s := &scrapes{log: log, places: make(chan struct{}, scrapesAtOnce)}
	values := prometheus.GathererFunc(func() ([]*dto.MetricFamily, error) { return s.families, s.err })
	s.handler = promhttp.HandlerFor(values, promhttp.HandlerOpts{
		EnableOpenMetrics: true, ErrorLog: zap.NewStdLog(log), OfferedCompressions: []promhttp.Compression{promhttp.Gzip},
	})
	return promhttp.InstrumentMetricHandler(registry, s.serve(registry))
}

// serve returns the handler of /metrics.
func (s *scrapes) serve(from prometheus.Gatherer) http.HandlerFunc {
	return func(w http.ResponseWriter, r *http.Request) {
		if strings.Contains(r.Header.Get("Cache-Control"), "no-cache") {
			s.renew(r.Context())
		}
		if !s.enter(r.Context()) {
			if r.Context().Err() == nil {
				w.Header().Set("Retry-After", strconv.Itoa(int(scrapeWait.Seconds())))
				reply(w, http.StatusServiceUnavailable, fmt.Sprintf("%d scrapes are being answered, which is the limit; try again in a second\n", scrapesAtOnce))
			}
			return
		}
		defer time.AfterFunc(scrapePause, func() { <-s.places })
		e := s.encode(r, from)
		for name, values := range e.header {
			w.Header()[name] = values
		}
		w.Header().Set("Content-Length", strconv.Itoa(e.body.Len()))
		_ = http.NewResponseController(w).SetWriteDeadline(time.Now().Add(scrapeWrite)) // the recorder of tests has no deadlines
		w.WriteHeader(e.code)
		_, _ = w.Write(e.body.Bytes()) // a client that went away needs no answer
	}
}

// enter takes a place, and reports whether one was free in time.
func (s *scrapes) enter(ctx context.Context) bool {
	ctx, cancel := context.WithTimeout(ctx, scrapeWait)
	defer cancel()
	select {
	case s.places <- struct{}{}:
		return true
	case <-ctx.Done():
		return false
	}
}

// renew makes sure that encode uses values from after the call. It waits if too many scrapers have
// asked for that, at most until ctx ends.
func (s *scrapes) renew(ctx context.Context) {
	for called := time.Now(); ; {
		wait := s.outdate(called)
		if wait <= 0 {
			return
		}
		select {
		case <-time.After(wait):
		case <-ctx.Done():
			return
		}
	}
}

// outdate drops values from before a time. If that has to wait, it returns how long.
func (s *scrapes) outdate(called time.Time) time.Duration {
	s.mu.Lock()
	defer s.mu.Unlock()
	now := time.Now()
	age := now.Sub(s.gathered)
	if s.gathered.After(called) || age >= scrapeShare {
		return 0
	}
	if back := int(now.Sub(s.since) / scrapeShare); back > 0 {
		s.fresh, s.since = max(s.fresh-back, 0), now
	}
	if s.fresh == scrapeFresh {
		return scrapeShare - age
	}
	s.fresh++
	s.gathered = time.Time{}
	return 0
}

// encode returns the answer to a request, which may have been encoded for another one.
func (s *scrapes) encode(r *http.Request, from prometheus.Gatherer) *encoding {
	// Our metric names need no escaping, so all ways to ask for it give the same answer.
	accept, _, _ := strings.Cut(string(expfmt.NegotiateAccept(r.Header, expfmt.DefaultOpenMetricsAcceptedFormats()...)), "; escaping=")
	asked := &http.Request{Method: http.MethodGet, Header: http.Header{"Accept": {accept}}}
	key := accept
	if acceptsGzip(r.Header) {
		asked.Header.Set("Accept-Encoding", "gzip")
		key += " gzip"
	}
	s.mu.Lock()
	defer s.mu.Unlock()
	if time.Since(s.gathered) >= scrapeShare {
		s.gathered, s.encoded = time.Now(), map[string]*encoding{}
		s.families, s.err = from.Gather()
	}
	e := s.encoded[key]
	if e == nil {
		e = &encoding{code: http.StatusOK, header: http.Header{}}
		s.handler.ServeHTTP(e, asked)
		s.encoded[key] = e
	}
	return e
}

// acceptsGzip reports whether a header names gzip among the encodings that its sender reads.
func acceptsGzip(h http.Header) bool {
	for part := range strings.SplitSeq(strings.Join(h.Values("Accept-Encoding"), ","), ",") {
		name, weight, _ := strings.Cut(part, ";")
		if strings.EqualFold(strings.TrimSpace(name), "gzip") {
			return strings.TrimSpace(weight) != "q=0"
		}
	}
	return false
}

// Header implements http.ResponseWriter.
func (e *encoding) Header() http.Header { return e.header }

// WriteHeader implements http.ResponseWriter.
func (e *encoding) WriteHeader(code int) { e.code = code }

// Write implements http.ResponseWriter.
func (e *encoding) Write(p []byte) (int, error) { return e.body.Write(p) }

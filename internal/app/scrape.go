package app

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
	// scrapesAtOnce are answered. Others wait for scrapeWait, and are refused then.
	scrapesAtOnce = 2
	scrapeWait    = time.Second
	// scrapePause keeps the place of a scrape that was answered, so that clients which scrape without
	// a pause take a hundred answers a second, however many they are.
	scrapePause = 20 * time.Millisecond
	// scrapeWrite is how long a client may take to read an answer.
	scrapeWrite = 5 * time.Second
	// scrapeShare is how long all scrapes are answered with the same values.
	scrapeShare = time.Second
	// scrapeFresh scrapes may ask for values of their own in a row; another may after each scrapeShare.
	scrapeFresh = 20
)

// scrapes serves /metrics, so that it costs the same however many scrape: no more than two are answered at one
// time, with the values and the bytes of the last scrape while those are less than a second old.
type scrapes struct {
	handler http.Handler // encodes families
	log     *zap.Logger
	places  chan struct{}

	mu       sync.Mutex
	at       time.Time // of the values
	families []*dto.MetricFamily
	err      error
	encoded  map[string]*encoding
	fresh    int       // scrapes that asked for values of their own, of those that may
	since    time.Time // when fresh was reckoned
}

// encoding is an answer that is sent to many.
type encoding struct {
	code   int
	header http.Header
	body   bytes.Buffer
}

// newScrapes serves what a registry gathers, and counts scrapes there.
func newScrapes(registry *prometheus.Registry, log *zap.Logger) http.Handler {
	s := &scrapes{log: log, places: make(chan struct{}, scrapesAtOnce)}
	values := prometheus.GathererFunc(func() ([]*dto.MetricFamily, error) { return s.families, s.err })
	s.handler = promhttp.HandlerFor(values, promhttp.HandlerOpts{
		EnableOpenMetrics: true, ErrorLog: zap.NewStdLog(log), OfferedCompressions: []promhttp.Compression{promhttp.Gzip},
	})
	return promhttp.InstrumentMetricHandler(registry, s.serve(registry))
}

func (s *scrapes) serve(from prometheus.Gatherer) http.HandlerFunc {
	return func(w http.ResponseWriter, r *http.Request) {
		if strings.Contains(r.Header.Get("Cache-Control"), "no-cache") {
			s.renew(r.Context())
		}
		if !s.enter(r.Context()) {
			if r.Context().Err() == nil {
				w.Header().Set("Retry-After", strconv.Itoa(int(scrapeWait.Seconds())))
				reply(w, http.StatusServiceUnavailable, fmt.Sprintf("%d scrapes are being answered, expected at most so many at one time; try again later\n", scrapesAtOnce))
			}
			return
		}
		defer time.AfterFunc(scrapePause, func() { <-s.places })
		e := s.encode(r, from)
		for name, values := range e.header {
			w.Header()[name] = values
		}
		w.Header().Set("Content-Length", strconv.Itoa(e.body.Len()))
		_ = http.NewResponseController(w).SetWriteDeadline(time.Now().Add(scrapeWrite)) // without deadlines, as in a recorder of tests, it is written all the same
		w.WriteHeader(e.code)
		_, _ = w.Write(e.body.Bytes()) // a client that went away needs no answer
	}
}

// enter takes a place, and reports whether there was one in time.
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

// renew sees to it that encode has values from after the call, or returns when ctx ends. It waits where too many have
// asked for that.
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

// outdate gives up values from before a time, unless it returns how long that has to wait.
func (s *scrapes) outdate(called time.Time) time.Duration {
	s.mu.Lock()
	defer s.mu.Unlock()
	now := time.Now()
	age := now.Sub(s.at)
	if s.at.After(called) || age >= scrapeShare {
		return 0
	}
	if back := int(now.Sub(s.since) / scrapeShare); back > 0 {
		s.fresh, s.since = max(s.fresh-back, 0), now
	}
	if s.fresh == scrapeFresh {
		return scrapeShare - age
	}
	s.fresh++
	s.at = time.Time{}
	return 0
}

// encode returns the answer to a request, which may be another's.
func (s *scrapes) encode(r *http.Request, from prometheus.Gatherer) *encoding {
	// The names of our metrics need no escaping, so that all ways to ask for one are the same.
	accept, _, _ := strings.Cut(string(expfmt.NegotiateAccept(r.Header, expfmt.DefaultOpenMetricsAcceptedFormats()...)), "; escaping=")
	asked := &http.Request{Method: http.MethodGet, Header: http.Header{"Accept": {accept}}}
	key := accept
	if acceptsGzip(r.Header) {
		asked.Header.Set("Accept-Encoding", "gzip")
		key += " gzip"
	}
	s.mu.Lock()
	defer s.mu.Unlock()
	if time.Since(s.at) >= scrapeShare {
		s.at, s.encoded = time.Now(), map[string]*encoding{}
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

package web

import (
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
	"go.uber.org/zap"
	"golang.org/x/sync/semaphore"
)

const (
	// scrapesAtOnce bounds the scrapes answered at one time. Others wait for scrapeWait before they are refused.
	scrapesAtOnce = 2
	scrapeWait    = time.Second
	// scrapePause keeps a place taken after its answer, so that all clients together get at most twenty
	// answers a second.
	scrapePause = 100 * time.Millisecond
	// scrapeWrite bounds how long a client may take to read an answer.
	scrapeWrite = 5 * time.Second
	// scrapeShare is the age up to which scrapes share their values.
	scrapeShare = time.Second
)

// scrapes serves /metrics at a cost that does not grow with the number of scrapers. It answers two
// scrapes at a time, with the values of the last scrape while those are less than a second old.
type scrapes struct {
	registry *prometheus.Registry
	places   *semaphore.Weighted

	mu       sync.Mutex
	gathered time.Time // time of the values; zero to gather anew
	families []*dto.MetricFamily
	err      error
}

// newScrapes returns a handler that serves what a registry gathers, and counts scrapes there.
func newScrapes(registry *prometheus.Registry, log *zap.Logger) http.Handler {
	s := &scrapes{registry: registry, places: semaphore.NewWeighted(scrapesAtOnce)}
	encode := promhttp.HandlerFor(prometheus.GathererFunc(s.gather), promhttp.HandlerOpts{
		EnableOpenMetrics: true, ErrorLog: zap.NewStdLog(log), OfferedCompressions: []promhttp.Compression{promhttp.Gzip},
	})
	return promhttp.InstrumentMetricHandler(registry, s.serve(encode))
}

// gather returns the values of the last scrape, or new ones where those are old.
func (s *scrapes) gather() ([]*dto.MetricFamily, error) {
	s.mu.Lock()
	defer s.mu.Unlock()
	if time.Since(s.gathered) >= scrapeShare {
		s.gathered = time.Now()
		s.families, s.err = s.registry.Gather()
	}
	return s.families, s.err
}

// serve returns the handler of /metrics, which answers by another one.
func (s *scrapes) serve(encode http.Handler) http.HandlerFunc {
	return func(w http.ResponseWriter, r *http.Request) {
		waiting, cancel := context.WithTimeout(r.Context(), scrapeWait)
		err := s.places.Acquire(waiting, 1)
		if cancel(); err != nil {
			if r.Context().Err() == nil {
				w.Header().Set("Retry-After", strconv.Itoa(int(scrapeWait.Seconds())))
				reply(w, http.StatusServiceUnavailable, fmt.Sprintf("%d scrapes are being answered, which is the limit; try again in a second\n", scrapesAtOnce))
			}
			return
		}
		defer time.AfterFunc(scrapePause, func() { s.places.Release(1) })
		if strings.Contains(r.Header.Get("Cache-Control"), "no-cache") {
			s.mu.Lock()
			s.gathered = time.Time{}
			s.mu.Unlock()
		}
		_ = http.NewResponseController(w).SetWriteDeadline(time.Now().Add(scrapeWrite)) // the recorder of tests has no deadlines
		encode.ServeHTTP(w, r)
	}
}

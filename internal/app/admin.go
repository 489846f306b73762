package app

import (
	"fmt"
	"net/http"
	"time"

	"github.com/prometheus/client_golang/prometheus"
	"github.com/prometheus/client_golang/prometheus/promhttp"
	"go.uber.org/zap"

	"github.com/ckd-project/ckd/server"
)

// newAdmin serves /metrics and the probes. It changes nothing: every path is
// read-only.
//
//   - /livez: the process answers.
//   - /readyz: it wants traffic: policies are loaded, and it is not stopping.
//   - /healthz: the same, with the models and their state.
func newAdmin(registry *prometheus.Registry, s *server.Server, log *zap.Logger) *http.Server {
	mux := http.NewServeMux()
	mux.Handle("GET /metrics", promhttp.InstrumentMetricHandler(registry, promhttp.HandlerFor(registry, promhttp.HandlerOpts{
		EnableOpenMetrics: true,
		ErrorLog:          zap.NewStdLog(log),
	})))
	mux.HandleFunc("GET /livez", func(w http.ResponseWriter, _ *http.Request) {
		reply(w, http.StatusOK, "ok\n")
	})
	mux.HandleFunc("GET /readyz", func(w http.ResponseWriter, _ *http.Request) {
		code, text := readiness(s)
		reply(w, code, text+"\n")
	})
	mux.HandleFunc("GET /healthz", func(w http.ResponseWriter, _ *http.Request) {
		code, text := readiness(s)
		body := text + "\n"
		for _, m := range s.Models() {
			body += fmt.Sprintf("model %s: version %q, hash %s\n", m.GetModel(), m.GetVersion(), m.GetHash())
		}
		reply(w, code, body)
	})
	return &http.Server{
		Handler:           mux,
		ErrorLog:          zap.NewStdLog(log),
		ReadHeaderTimeout: 5 * time.Second,
		ReadTimeout:       10 * time.Second,
		WriteTimeout:      60 * time.Second,
		IdleTimeout:       2 * time.Minute,
		MaxHeaderBytes:    1 << 16,
	}
}

func readiness(s *server.Server) (code int, text string) {
	if s.Serving() {
		return http.StatusOK, "ok"
	}
	return http.StatusServiceUnavailable, "not serving"
}

func reply(w http.ResponseWriter, code int, body string) {
	w.Header().Set("Content-Type", "text/plain; charset=utf-8")
	w.WriteHeader(code)
	_, _ = w.Write([]byte(body)) // a client that went away needs no answer
}

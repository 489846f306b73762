package app

import (
	"fmt"
	"net/http"
	"net/http/pprof"
	"strings"
	"time"

	"github.com/prometheus/client_golang/prometheus"
	"go.uber.org/zap"

	"github.com/ckd-project/ckd/internal/origin"
	"github.com/ckd-project/ckd/policy/store"
	"github.com/ckd-project/ckd/server"
	"github.com/ckd-project/ckd/settle/audit"
)

// adminHandler serves the triage page, /metrics and the probes, which change
// nothing, and, where it is allowed, reloads.
//
//   - /: the triage page, and under /triage/ what it is made of.
//   - /livez: the process answers.
//   - /readyz: it wants traffic: policies are loaded, and it is not stopping.
//   - /healthz: the same, with the models and their state.
//   - POST /-/reload: loads the policies again; 200 if they are in force, 500
//     with the faults if those before stay. Only if reload is given.
//
// On an address that is loopback's alone /metrics keeps to the rule of origin, too; anywhere else it is scraped by the
// names of services, also through a proxy beside the daemon.
func adminHandler(registry *prometheus.Registry, s *server.Server, log *zap.Logger, page http.Handler, reload func() store.Outcome, notReloaded func() string, loopback bool) http.Handler {
	mux := http.NewServeMux()
	scraped := newScrapes(registry, log)
	if loopback {
		scraped = ownOrigin(scraped)
	}
	mux.Handle("GET /metrics", scraped)
	mux.HandleFunc("GET /livez", func(w http.ResponseWriter, _ *http.Request) {
		reply(w, http.StatusOK, "ok\n")
	})
	mux.HandleFunc("GET /readyz", func(w http.ResponseWriter, _ *http.Request) {
		code, text := readiness(s)
		reply(w, code, text+"\n")
	})
	mux.HandleFunc("GET /healthz", func(w http.ResponseWriter, _ *http.Request) {
		code, text := readiness(s)
		body, settling := text+"\n"+notReloaded(), s.Settling()
		for _, m := range s.Models() {
			body += fmt.Sprintf("model %s: version %q, hash %s\n", m.GetModel(), m.GetVersion(), m.GetHash())
			if is, ok := settling[m.GetModel()]; ok {
				body += fmt.Sprintf("model %s: %s\n", m.GetModel(), settlingWords(is))
			}
		}
		for _, p := range s.Policies() {
			if p.Settle != nil && p.SettleRule() == nil {
				body += fmt.Sprintf("model %s: its rule to settle inputs early was learned for another policy, and is not in force\n", p.Name)
			}
		}
		reply(w, code, body)
	})
	mux.Handle("GET /{$}", ownOrigin(page))
	mux.Handle("GET /triage/", ownOrigin(page))
	mux.Handle("POST /-/reload", ownOrigin(http.HandlerFunc(func(w http.ResponseWriter, _ *http.Request) {
		if reload == nil {
			reply(w, http.StatusForbidden, "reloading over HTTP is off; --admin-reload allows it\n")
			return
		}
		if o := reload(); o.Err != nil {
			reply(w, http.StatusInternalServerError, o.Err.Error()+"\n")
			return
		}
		reply(w, http.StatusOK, "ok\n")
	})))
	return mux
}

// withoutPage refuses the triage page, where asking for a token would have people send
// it in plaintext.
func withoutPage(next http.Handler) http.Handler {
	return http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		if r.URL.Path == "/" || strings.HasPrefix(r.URL.Path, "/triage/") {
			reply(w, http.StatusForbidden, "the triage page is off: a token for it would be sent in plaintext; admin-tls, or an address on loopback, turns it on\n")
			return
		}
		next.ServeHTTP(w, r)
	})
}

// ownOrigin refuses what pages of other sites have a browser send.
func ownOrigin(next http.Handler) http.Handler {
	return http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		if err := origin.Check(r); err != nil {
			reply(w, http.StatusForbidden, err.Error()+"\n")
			return
		}
		next.ServeHTTP(w, r)
	})
}

// pprofHandler serves Go's profiler.
func pprofHandler() http.Handler {
	mux := http.NewServeMux()
	mux.HandleFunc("GET /debug/pprof/", pprof.Index)
	mux.HandleFunc("GET /debug/pprof/cmdline", pprof.Cmdline)
	mux.HandleFunc("GET /debug/pprof/profile", pprof.Profile)
	mux.HandleFunc("GET /debug/pprof/symbol", pprof.Symbol)
	mux.HandleFunc("GET /debug/pprof/trace", pprof.Trace)
	return mux
}

func newHTTPServer(handler http.Handler, log *zap.Logger) *http.Server {
	return &http.Server{
		Handler:           handler,
		ErrorLog:          zap.NewStdLog(log),
		ReadHeaderTimeout: 5 * time.Second,
		ReadTimeout:       10 * time.Second,
		WriteTimeout:      2 * time.Minute,
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

// settlingWords say whether inputs are settled early, and what audits have shown.
func settlingWords(is audit.Status) string {
	words := "settles inputs before their last pass"
	if is.Stop != nil {
		words = "has stopped to settle inputs before their last pass, as audits show more decided otherwise than was certified; load another policy"
	}
	return fmt.Sprintf("%s: %d of %d audited were decided otherwise (certified: at most %v of all)", words, is.All.Disagreements,
		is.All.Audited, is.All.Certified)
}

func reply(w http.ResponseWriter, code int, body string) {
	w.Header().Set("Content-Type", "text/plain; charset=utf-8")
	w.WriteHeader(code)
	_, _ = w.Write([]byte(body)) // a client that went away needs no answer
}

package web

import (
	"fmt"
	"net/http"
	"net/http/pprof"
	"strings"

	"github.com/prometheus/client_golang/prometheus"
	"go.uber.org/zap"

	"github.com/ckd-project/ckd/internal/auth"
	"github.com/ckd-project/ckd/internal/monitor/fullpass"
	"github.com/ckd-project/ckd/policy"
	"github.com/ckd-project/ckd/web/internal/csrf"
)

// State tells the admin address how the daemon is. *server.Server implements it.
type State interface {
	// Serving reports whether the daemon wants traffic.
	Serving() bool
	// Policies returns the policies in force, in the order of their models' names.
	Policies() []*policy.Policy
	// FullPassChecks returns the findings of full-pass checks, by model. Models that do not
	// stop early are absent.
	FullPassChecks() map[string]fullpass.Status
	// Degenerate returns, by model, why the latest inputs do not look like passes. Models whose inputs
	// do are absent.
	Degenerate() map[string]string
}

// AdminOptions holds the parts of the admin address.
type AdminOptions struct {
	Registry *prometheus.Registry // shown by /metrics; scrapes are counted in it
	State    State
	Page     http.Handler // the triage page
	// FailedReloads returns lines on the files whose last reload failed.
	FailedReloads func() string
	// Access admits requests; nil admits all.
	Access *auth.Store
	// TokensInPlaintext says that Access asks for tokens which could be read on the way to this
	// address. The triage page is then off, because people cannot know that they should not send
	// one.
	TokensInPlaintext bool
	// Loopback says that only this machine reaches the address. Requests for /metrics must then
	// name it by an IP address or as localhost, as requests for the page always must. Elsewhere
	// scrapers use names of services, also through a proxy beside the daemon.
	Loopback bool
	Log      *zap.Logger
}

// Admin returns the handler of the admin address.
//
//   - /: the triage page, with its parts under /triage/.
//   - /review: of that page only the list to review, for readers.
//   - POST /triage/outcome: enters an outcome of an input in that list.
//   - /metrics: the metrics.
//   - /livez: 200 while the process answers.
//   - /readyz: 200 while the daemon wants traffic: it has policies and is not stopping.
//   - /healthz: as /readyz, with the models, their state and failed reloads.
func Admin(o AdminOptions) http.Handler {
	mux := http.NewServeMux()
	scraped := newScrapes(o.Registry, o.Log)
	if o.Loopback {
		scraped = ownOrigin(scraped)
	}
	mux.Handle("GET /metrics", scraped)
	mux.HandleFunc("GET /livez", func(w http.ResponseWriter, _ *http.Request) {
		reply(w, http.StatusOK, "ok\n")
	})
	mux.HandleFunc("GET /readyz", func(w http.ResponseWriter, _ *http.Request) {
		code, text := readiness(o.State)
		reply(w, code, text+"\n")
	})
	mux.HandleFunc("GET /healthz", func(w http.ResponseWriter, _ *http.Request) {
		code, text := readiness(o.State)
		reply(w, code, text+"\n"+o.FailedReloads()+modelLines(o.State))
	})
	mux.Handle("GET /{$}", ownOrigin(o.Page))
	mux.Handle("GET /triage/", ownOrigin(o.Page))
	mux.Handle("GET /review", ownOrigin(o.Page))
	mux.Handle("POST /triage/outcome", ownOrigin(o.Page))
	admitted := o.Access.HTTP(mux, auth.HTTPOptions{Need: adminNeed, Basic: !o.TokensInPlaintext})
	if o.TokensInPlaintext {
		return withoutPage(admitted)
	}
	return admitted
}

// adminNeed returns the right that a request needs.
func adminNeed(r *http.Request) auth.Need {
	switch r.URL.Path {
	case "/livez", "/readyz", "/healthz", "/metrics":
		return auth.NeedNothing
	case "/", "/triage/state":
		return auth.NeedAdmin
	}
	return auth.NeedIdentity // the list to review checks rights of its own; scripts and styles are no secret
}

// modelLines returns the lines of /healthz about the models.
func modelLines(s State) string {
	var lines strings.Builder
	checks, degenerate := s.FullPassChecks(), s.Degenerate()
	for _, m := range s.Policies() {
		if why, ok := degenerate[m.Name]; ok {
			fmt.Fprintf(&lines, "model %s: degenerate: %s\n", m.Name, why)
		}
		fmt.Fprintf(&lines, "model %s: version %q, hash %s\n", m.Name, m.Version, m.Hash)
		if status, ok := checks[m.Name]; ok {
			fmt.Fprintf(&lines, "model %s: %s\n", m.Name, earlyStoppingWords(status))
		}
	}
	for _, p := range s.Policies() {
		if p.EarlyStopping != nil && p.EarlyStop() == nil {
			fmt.Fprintf(&lines, "model %s: its early-stopping rule was learned for another policy, and is not in force\n", p.Name)
		}
	}
	return lines.String()
}

// withoutPage refuses the triage page, which would ask people for a token that their browser then
// sends in plaintext.
func withoutPage(next http.Handler) http.Handler {
	return http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		if r.URL.Path == "/" || r.URL.Path == "/review" || strings.HasPrefix(r.URL.Path, "/triage/") {
			reply(w, http.StatusForbidden, "the triage page is off: a token for it would be sent in plaintext; admin-tls, or an address on loopback, turns it on\n")
			return
		}
		next.ServeHTTP(w, r)
	})
}

// ownOrigin refuses requests that pages of other sites make a browser send.
func ownOrigin(next http.Handler) http.Handler {
	return http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		if err := csrf.Check(r); err != nil {
			reply(w, http.StatusForbidden, err.Error()+"\n")
			return
		}
		next.ServeHTTP(w, r)
	})
}

// Profiler returns the handler of Go's profiler, under /debug/pprof/.
func Profiler() http.Handler {
	mux := http.NewServeMux()
	mux.HandleFunc("GET /debug/pprof/", pprof.Index)
	mux.HandleFunc("GET /debug/pprof/cmdline", pprof.Cmdline)
	mux.HandleFunc("GET /debug/pprof/profile", pprof.Profile)
	mux.HandleFunc("GET /debug/pprof/symbol", pprof.Symbol)
	mux.HandleFunc("GET /debug/pprof/trace", pprof.Trace)
	return mux
}

// readiness returns the status and the first line of the probes.
func readiness(s State) (code int, text string) {
	if s.Serving() {
		return http.StatusOK, "ok"
	}
	return http.StatusServiceUnavailable, "not serving"
}

// earlyStoppingWords returns whether a model stops inputs early, and what full-pass checks have
// shown.
func earlyStoppingWords(s fullpass.Status) string {
	words := "decides inputs before their last pass"
	if s.Stop != nil {
		words = "no longer decides inputs before their last pass, as full-pass checks show more decided otherwise than was certified; load another policy"
	}
	return fmt.Sprintf("%s: %d of %d checked were decided otherwise (certified: at most %v of all)", words, s.All.Disagreements,
		s.All.Checked, s.All.Certified)
}

// reply answers with plain text.
func reply(w http.ResponseWriter, code int, body string) {
	w.Header().Set("Content-Type", "text/plain; charset=utf-8")
	w.WriteHeader(code)
	_, _ = w.Write([]byte(body)) // a client that went away needs no answer
}

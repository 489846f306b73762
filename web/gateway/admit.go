package gateway

import (
	"net/http"

	"google.golang.org/grpc/status"

	"github.com/ckd-project/ckd/server/auth"
)

// need returns what a request must be allowed: probes are for everybody.
func need(r *http.Request) auth.Need {
	switch r.URL.Path {
	case livePath, readyPath:
		return auth.NeedNothing
	}
	return auth.NeedIdentity
}

// refuse answers a request that access does not admit.
func refuse(w http.ResponseWriter, r *http.Request, st *status.Status) { answerError(w, r, st.Err()) }

// The paths of probes, which are answered while the server stops.
const (
	livePath  = "/v2/health/live"
	readyPath = "/v2/health/ready"
)

// untilStopping returns a handler that answers in place of next once the server takes no more
// calls: the daemon is alive, and wants no traffic.
func (o *Options) untilStopping(next http.Handler) http.Handler {
	if o.Stopping == nil {
		return next
	}
	return http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		why := o.Stopping()
		switch {
		case why == nil:
			next.ServeHTTP(w, r)
		case r.URL.Path == livePath:
			answerJSON(w, http.StatusOK, `{"live":true}`)
		case r.URL.Path == readyPath:
			answerJSON(w, http.StatusServiceUnavailable, `{"ready":false}`)
		default:
			answerError(w, r, why)
		}
	})
}

// answerJSON answers with a line of JSON.
func answerJSON(w http.ResponseWriter, code int, body string) {
	w.Header().Set("Content-Type", "application/json")
	w.WriteHeader(code)
	_, _ = w.Write([]byte(body + "\n")) // a client that went away needs no answer
}

package auth

import (
	"net/http"
	"strings"

	"google.golang.org/grpc/codes"
	"google.golang.org/grpc/status"
)

// Need says what an HTTP request asks of its sender.
type Need int

// The needs. Nobody meets the zero Need.
const (
	_ Need = iota
	// NeedNothing suits probes and /metrics.
	NeedNothing
	// NeedIdentity suits what checks a right of its own, as models do.
	NeedIdentity
	// NeedAdmin asks for the right admin.
	NeedAdmin
)

// Refuse writes the answer to a refused request, with the code that HTTPCode returns. The header
// WWW-Authenticate is set already.
type Refuse func(http.ResponseWriter, *http.Request, *status.Status)

// HTTPOptions says how requests are let in.
type HTTPOptions struct {
	// Need returns what a request asks of its sender.
	Need func(*http.Request) Need
	// Refuse answers refused requests. Nil answers in plain text.
	Refuse Refuse
	// Basic also takes a token as the password of HTTP's basic authentication, with any user name,
	// for addresses that people open in a browser. An empty password is a bad credential.
	Basic bool
}

// HTTP returns a handler that passes to next the requests of known identities that meet the need,
// and refuses all others. A nil Store returns next.
//
// next gets requests without an authorization header, because nothing behind it needs the token.
// Their context is cancelled when what let them in is withdrawn.
func (s *Store) HTTP(next http.Handler, o HTTPOptions) http.Handler {
	if s == nil {
		return next
	}
	if o.Refuse == nil {
		o.Refuse = refusePlainly
	}
	return http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		what := o.Need(r)
		if what == NeedNothing {
			ctx, _ := s.enterAsNobody(r.Context())
			next.ServeHTTP(w, cleaned(r.WithContext(ctx)))
			return
		}
		at := origin{r.Method + " " + r.URL.Path, r.RemoteAddr}
		c, why := presented(o.authorization(r), r.TLS)
		if why == "" {
			ctx, one, unknown := s.enter(r.Context(), at, c, what)
			if why = unknown; why == "" {
				ctx = one.stay(ctx)
				defer one.leave()
				who := one.identity.Load()
				if who.meets(what) {
					next.ServeHTTP(w, cleaned(r.WithContext(ctx)))
					return
				}
				s.refused(ctx, at, NotAllowed)
				o.Refuse(w, r, status.Convert(errNotAllowed("do this")))
				return
			}
		}
		s.refused(r.Context(), at, why)
		if why == RevokedCertificate {
			w.Header().Set("Connection", "close") // no request over it can succeed
		}
		if why == KeysUnavailable {
			w.Header().Set("Retry-After", "1")
		} else {
			w.Header().Set("WWW-Authenticate", "Bearer")
			if o.Basic {
				w.Header().Add("WWW-Authenticate", `Basic realm="ckd: a token as the password", charset="UTF-8"`)
			}
		}
		o.Refuse(w, r, status.Convert(unauthenticated(why)))
	})
}

// authorization returns the values of the header, with a password turned into a bearer token.
func (o *HTTPOptions) authorization(r *http.Request) []string {
	values := r.Header.Values("Authorization")
	if o.Basic && len(values) == 1 {
		if _, token, ok := r.BasicAuth(); ok {
			return []string{"Bearer " + token}
		}
	}
	return values
}

// meets reports whether the identity has what a Need asks for.
func (i *Identity) meets(what Need) bool {
	switch what {
	case NeedNothing, NeedIdentity:
		return true
	case NeedAdmin:
		return i.MayAdmin()
	}
	return false
}

// cleaned removes a request's credentials, and the headers that would become metadata which only
// the process itself may set.
func cleaned(r *http.Request) *http.Request {
	r.Header = r.Header.Clone()
	for name := range r.Header {
		lower := strings.ToLower(name)
		if strings.HasSuffix(lower, identityKey) || strings.HasSuffix(lower, "authorization") {
			delete(r.Header, name)
		}
	}
	return r
}

// HTTPCode returns the HTTP code for a status that refuses a request.
func HTTPCode(st *status.Status) int {
	switch st.Code() {
	case codes.PermissionDenied:
		return http.StatusForbidden
	case codes.Unavailable:
		return http.StatusServiceUnavailable
	}
	return http.StatusUnauthorized
}

func refusePlainly(w http.ResponseWriter, _ *http.Request, st *status.Status) {
	http.Error(w, st.Message(), HTTPCode(st))
}

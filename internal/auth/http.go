package auth

import (
	"net/http"
	"strings"

	"google.golang.org/grpc/codes"
	"google.golang.org/grpc/status"
)

// Need is the right that an HTTP request needs.
type Need int

// The needs. No sender meets the zero Need.
const (
	_ Need = iota
	// NeedNothing suits probes and /metrics.
	NeedNothing
	// NeedIdentity suits handlers that check a right of their own, as those of models do.
	NeedIdentity
	// NeedAdmin asks for the right admin.
	NeedAdmin
)

// HTTPOptions says how requests are let in.
type HTTPOptions struct {
	// Need returns the right that a request needs.
	Need func(*http.Request) Need
	// Refuse answers refused requests. The header WWW-Authenticate is set already. Nil answers in
	// plain text.
	Refuse func(http.ResponseWriter, *http.Request, *status.Status)
	// Basic also takes a token as the password of HTTP's basic authentication, with any user name,
	// for addresses that people open in a browser. An empty password is a bad credential.
	Basic bool
}

// HTTP returns a handler that passes to next the requests of known identities that meet the need,
// and refuses all others. A nil Store returns next.
//
// next gets requests without an authorization header, because nothing behind it needs the token.
// Their context is cancelled when their credential or right is withdrawn.
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
		from := origin{r.Method + " " + r.URL.Path, r.RemoteAddr}
		c, why := presented(o.authorization(r), r.TLS)
		if why == "" {
			ctx, call, unknown := s.enter(r.Context(), from, c, what)
			if why = unknown; why == "" {
				ctx = call.stay(ctx)
				defer call.leave()
				who := call.identity.Load()
				if who.meets(what) {
					next.ServeHTTP(w, cleaned(r.WithContext(ctx)))
					return
				}
				s.refused(ctx, from, notAllowed)
				o.Refuse(w, r, status.Convert(errNotAllowed("do this")))
				return
			}
		}
		s.refused(r.Context(), from, why)
		if why == keysUnavailable {
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

// meets reports whether the identity has the right that a Need names.
func (i *Identity) meets(what Need) bool {
	switch what {
	case NeedNothing, NeedIdentity:
		return true
	case NeedAdmin:
		return i.mayAdmin()
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

func refusePlainly(w http.ResponseWriter, _ *http.Request, st *status.Status) {
	code := http.StatusUnauthorized
	switch st.Code() {
	case codes.PermissionDenied:
		code = http.StatusForbidden
	case codes.Unavailable:
		code = http.StatusServiceUnavailable
	}
	http.Error(w, st.Message(), code)
}

package access

import (
	"net/http"
	"strings"

	"google.golang.org/grpc/codes"
	"google.golang.org/grpc/status"
)

// Need is what an HTTP request asks of who sends it.
type Need int

// The needs. The zero Need is met by nobody.
const (
	_ Need = iota
	// NeedNothing is for probes and /metrics.
	NeedNothing
	// NeedIdentity is for what has a right of its own to check, as models do.
	NeedIdentity
	// NeedAdmin and NeedReload are for who has the right of that name.
	NeedAdmin
	NeedReload
)

// Refuse writes the answer to a request that is not let in, with HTTPCode as its
// code. The header WWW-Authenticate is set already.
type Refuse func(http.ResponseWriter, *http.Request, *status.Status)

// HTTPOptions say how requests are let in.
type HTTPOptions struct {
	// Need is what a request asks of who sends it.
	Need func(*http.Request) Need
	// Refuse answers those who are refused, in plain text where it is nil.
	Refuse Refuse
	// Basic is for addresses that people open in a browser: it takes a token as the
	// password of HTTP's basic authentication, too, whatever the user's name. An empty
	// password is no token, and a credential that is no good.
	Basic bool
}

// HTTP lets in the requests of those who are known and may do what is needed. All
// others are refused. It is next itself where s is nil.
//
// The request that next gets has no header authorization: nothing behind it
// needs the token. Its context is cancelled when what let it in is withdrawn.
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
			next.ServeHTTP(w, cleaned(r.WithContext(s.enterAsNobody(r.Context()))))
			return
		}
		at := place{r.Method + " " + r.URL.Path, r.RemoteAddr}
		c, why := presented(o.authorization(r), r.TLS)
		if why == "" {
			ctx, one, unknown := s.enter(r.Context(), at, c, what, true)
			if why = unknown; why == "" {
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
			w.Header().Set("Connection", "close") // the connection is good for nothing any more
		}
		w.Header().Set("WWW-Authenticate", "Bearer")
		if o.Basic {
			w.Header().Add("WWW-Authenticate", `Basic realm="ckd: a token as the password", charset="UTF-8"`)
		}
		o.Refuse(w, r, status.Convert(errUnauthenticated))
	})
}

// authorization is the values of the header, a password in the place of a token
// made one.
func (o *HTTPOptions) authorization(r *http.Request) []string {
	values := r.Header.Values("Authorization")
	if o.Basic && len(values) == 1 {
		if _, token, ok := r.BasicAuth(); ok {
			return []string{"Bearer " + token}
		}
	}
	return values
}

// meets reports whether the identity may do what is needed.
func (i *Identity) meets(what Need) bool {
	switch what {
	case NeedNothing, NeedIdentity:
		return true
	case NeedAdmin:
		return i.MayAdmin()
	case NeedReload:
		return i.MayReload()
	}
	return false
}

// cleaned is a request without credentials, and without what only the process
// itself may say, by whatever prefix it would become metadata.
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

// HTTPCode is the HTTP code of a status that HTTP refuses with.
func HTTPCode(st *status.Status) int {
	if st.Code() == codes.PermissionDenied {
		return http.StatusForbidden
	}
	return http.StatusUnauthorized
}

func refusePlainly(w http.ResponseWriter, _ *http.Request, st *status.Status) {
	http.Error(w, st.Message(), HTTPCode(st))
}

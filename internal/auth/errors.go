package auth

import (
	"strconv"
	"strings"

	"google.golang.org/genproto/googleapis/rpc/errdetails"
	"google.golang.org/grpc/codes"
	"google.golang.org/grpc/status"

	ckdv1 "github.com/ckd-project/ckd/proto/ckd/v1"
)

// Why a call was refused, for logs and metrics. Clients learn less.
const (
	noCredential         = "no_credential"
	badCredential        = "bad_credential"
	unknownToken         = "unknown_token"
	invalidToken         = "invalid_token"
	expiredToken         = "expired_token"
	ambiguousToken       = "ambiguous_token"
	keysUnavailable      = "keys_unavailable"
	unknownCertificate   = "unknown_certificate"
	ambiguousCertificate = "ambiguous_certificate"
	unknownIdentity      = "unknown_identity"
	notAllowed           = "not_allowed"
)

// reasons lists every reason of a Refusal with its meaning, for docs/security.md.
var reasons = [][2]string{
	{noCredential, "neither a token nor a client certificate"},
	{badCredential, "more than one `authorization`, or one that is not a bearer token"},
	{unknownToken, "no identity has the token, or the claims of the JWT"},
	{invalidToken, "a JWT whose signature, audience or beginning is wrong"},
	{expiredToken, "a JWT that has ended, or has no end"},
	{ambiguousToken, "several identities have claims of the JWT"},
	{keysUnavailable, "the key that signed the JWT is not fetched yet"},
	{unknownCertificate, "no identity has one of the certificate's names"},
	{ambiguousCertificate, "several identities have names of the certificate"},
	{unknownIdentity, "the identity was withdrawn while its HTTP request was handed on"},
	{notAllowed, "the identity is known and lacks the right"},
}

// Reasons returns every reason of a Refusal.
func Reasons() []string {
	var names []string
	for _, r := range reasons {
		names = append(names, r[0])
	}
	return names
}

// errorDomain is the domain of every google.rpc.ErrorInfo of the API.
const errorDomain = "ckd.v1"

// errUnauthenticated refuses a call without naming the fault of its credential.
var errUnauthenticated = statusError(codes.Unauthenticated, ckdv1.ErrorReason_ERROR_REASON_UNAUTHENTICATED,
	"no identity is known by what was presented, expected a valid bearer token or client certificate")

// errKeys refuses a call that may succeed once the keys of the token's issuer are here.
var errKeys = statusError(codes.Unavailable, ckdv1.ErrorReason_ERROR_REASON_KEYS_UNAVAILABLE,
	"the keys of the token's issuer are not at hand yet; try again")

// errExpired ends a stream whose token has expired.
var errExpired = statusError(codes.Unavailable, ckdv1.ErrorReason_ERROR_REASON_DRAINING,
	"the token of the stream has expired; open another stream with a fresh one")

// unauthenticated returns the status that refuses a call for a reason.
func unauthenticated(why string) error {
	if why == keysUnavailable {
		return errKeys
	}
	return errUnauthenticated
}

func errNotAllowed(what string) error {
	return statusError(codes.PermissionDenied, ckdv1.ErrorReason_ERROR_REASON_NOT_ALLOWED, "the identity may not "+what)
}

func errModel(model string) error {
	const most = 120 // statuses travel in headers
	if len(model) > most {
		model = strings.ToValidUTF8(model[:most], "") + "..."
	}
	return errNotAllowed("use the model " + strconv.Quote(model))
}

func statusError(code codes.Code, reason ckdv1.ErrorReason, message string) error {
	st := status.New(code, message)
	full, err := st.WithDetails(&errdetails.ErrorInfo{
		Reason: strings.TrimPrefix(reason.String(), "ERROR_REASON_"), Domain: errorDomain,
	})
	if err != nil { // only for code OK
		return st.Err()
	}
	return full.Err()
}

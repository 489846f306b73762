package auth

import (
	"strconv"
	"strings"

	"google.golang.org/genproto/googleapis/rpc/errdetails"
	"google.golang.org/grpc/codes"
	"google.golang.org/grpc/status"

	ckdv1 "github.com/ckd-project/ckd/proto/ckd/v1"
)

// Reason says why a call was refused, for logs and metrics. Clients learn less.
type Reason string

// The reasons.
const (
	// NoCredential: the call has none.
	NoCredential Reason = "no_credential"
	// BadCredential: it cannot be read, or is of another scheme.
	BadCredential Reason = "bad_credential"
	// UnknownToken: the token belongs to no identity, or not any more.
	UnknownToken Reason = "unknown_token"
	// InvalidToken: it is a JWT whose signature, audience or beginning is wrong.
	InvalidToken Reason = "invalid_token"
	// ExpiredToken: it is a JWT that has ended.
	ExpiredToken Reason = "expired_token"
	// AmbiguousToken: several identities have claims of the JWT.
	AmbiguousToken Reason = "ambiguous_token"
	// KeysUnavailable: it is a JWT, and the key that signed it is not at hand yet.
	KeysUnavailable Reason = "keys_unavailable"
	// UnknownCertificate: no identity has any of its names.
	UnknownCertificate Reason = "unknown_certificate"
	// AmbiguousCertificate: several identities have its names.
	AmbiguousCertificate Reason = "ambiguous_certificate"
	// RevokedCertificate: it was revoked, or its CA is no longer trusted.
	RevokedCertificate Reason = "revoked_certificate"
	// UnknownIdentity: the identity was passed on within the process, and has since been removed.
	UnknownIdentity Reason = "unknown_identity"
	// NotAllowed: the identity is known, and lacks the right.
	NotAllowed Reason = "not_allowed"
)

// Reasons returns every Reason.
func Reasons() []Reason {
	return []Reason{
		NoCredential, BadCredential, UnknownToken, InvalidToken, ExpiredToken, AmbiguousToken, KeysUnavailable,
		UnknownCertificate, AmbiguousCertificate, RevokedCertificate, UnknownIdentity, NotAllowed,
	}
}

// errorDomain is the domain of every google.rpc.ErrorInfo of the API.
const errorDomain = "ckd.v1"

// errUnauthenticated refuses a call without saying what was wrong with its credential.
var errUnauthenticated = statusError(codes.Unauthenticated, ckdv1.ErrorReason_ERROR_REASON_UNAUTHENTICATED,
	"no identity is known by what was presented, expected a valid bearer token or client certificate")

// errKeys refuses a call that may succeed once the keys of the token's issuer are here.
var errKeys = statusError(codes.Unavailable, ckdv1.ErrorReason_ERROR_REASON_KEYS_UNAVAILABLE,
	"the keys of the token's issuer are not at hand yet; try again")

// errExpired ends a stream whose token has expired.
var errExpired = statusError(codes.Unavailable, ckdv1.ErrorReason_ERROR_REASON_DRAINING,
	"the token of the stream has expired; open another stream with a fresh one")

// unauthenticated returns the status that refuses a call for a reason.
func unauthenticated(why Reason) error {
	if why == KeysUnavailable {
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

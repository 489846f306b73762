package access

import (
	"strconv"
	"strings"

	"google.golang.org/genproto/googleapis/rpc/errdetails"
	"google.golang.org/grpc/codes"
	"google.golang.org/grpc/status"

	ckdv1 "github.com/ckd-project/ckd/proto/ckd/v1"
)

// Reason is why a call was refused, for logs and metrics. Clients are told less.
type Reason string

// The reasons.
const (
	// NoCredential: there was none.
	NoCredential Reason = "no_credential"
	// BadCredential: there was one that cannot be read, as of another scheme.
	BadCredential Reason = "bad_credential"
	// UnknownToken: it is no identity's, or no longer.
	UnknownToken Reason = "unknown_token"
	// UnknownCertificate: none of its names is an identity's.
	UnknownCertificate Reason = "unknown_certificate"
	// AmbiguousCertificate: its names are those of several identities.
	AmbiguousCertificate Reason = "ambiguous_certificate"
	// RevokedCertificate: it was revoked, or its CA is no longer trusted.
	RevokedCertificate Reason = "revoked_certificate"
	// UnknownIdentity: one that was known when it was passed on within the process.
	UnknownIdentity Reason = "unknown_identity"
	// NotAllowed: the identity is known, and may not.
	NotAllowed Reason = "not_allowed"
)

// Reasons is all of them.
func Reasons() []Reason {
	return []Reason{
		NoCredential, BadCredential, UnknownToken, UnknownCertificate, AmbiguousCertificate, RevokedCertificate,
		UnknownIdentity, NotAllowed,
	}
}

// errorDomain is the domain of every google.rpc.ErrorInfo of the API.
const errorDomain = "ckd.v1"

// errUnauthenticated is the same whatever was wrong.
var errUnauthenticated = statusError(codes.Unauthenticated, ckdv1.ErrorReason_ERROR_REASON_UNAUTHENTICATED,
	"no identity is known by what was presented, expected a valid bearer token or client certificate")

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

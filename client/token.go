package client

import (
	"context"
	"fmt"
	"io"
	"os"
	"strings"
	"sync"

	"google.golang.org/grpc/codes"
	"google.golang.org/grpc/credentials"
	"google.golang.org/grpc/credentials/local"
	"google.golang.org/grpc/status"
)

// WithTokenFile makes every call and stream present the bearer token in a file. The file is read for
// each of them, so tokens can be rotated while a client lives. If the file cannot be read then, the
// last token stays in use.
//
// A token is sent only over TLS, a unix socket or the loopback: Dial refuses other connections
// unless WithInsecure allows plaintext.
func WithTokenFile(path string) Option {
	return func(o *options) { o.token = &path }
}

// mostTokenBytes limits the file. No token is longer, and a file that was named by mistake often is.
const mostTokenBytes = 16 << 10

// tokenFile implements the credentials of WithTokenFile. A nil tokenFile stands for no token.
type tokenFile struct {
	path     string
	strict   bool // makes Dial refuse plaintext
	insecure bool // plaintext is allowed

	mu   sync.Mutex
	last string // the token as last read
}

// openToken reads a token from its file.
func openToken(path string, strict, insecure bool) (*tokenFile, error) {
	token, err := readToken(path)
	return &tokenFile{path: path, strict: strict, insecure: insecure, last: token}, err
}

// GetRequestMetadata returns the header that carries the token. It fails on a connection that
// others can listen to, for example if a local name resolved to another machine.
func (t *tokenFile) GetRequestMetadata(ctx context.Context, _ ...string) (map[string]string, error) {
	info, _ := credentials.RequestInfoFromContext(ctx)
	if !t.insecure && !private(info.AuthInfo) {
		return nil, status.Error(codes.Unauthenticated,
			"a token is not sent over plaintext, expected TLS, a unix socket or the loopback")
	}
	return map[string]string{"authorization": "Bearer " + t.current()}, nil
}

// RequireTransportSecurity reports whether grpc must refuse plaintext before anything is sent. grpc
// takes the loopback for plaintext; for local targets GetRequestMetadata checks instead.
func (t *tokenFile) RequireTransportSecurity() bool { return t.strict }

// private reports whether nobody else can listen to a connection.
func private(info credentials.AuthInfo) bool {
	if info == nil {
		return false
	}
	return info.AuthType() == local.NewCredentials().Info().SecurityProtocol ||
		credentials.CheckSecurityLevel(info, credentials.PrivacyAndIntegrity) == nil
}

// current returns the token in the file, or the last one if the file cannot be read.
func (t *tokenFile) current() string {
	if t == nil {
		return ""
	}
	token, err := readToken(t.path)
	t.mu.Lock()
	defer t.mu.Unlock()
	if err == nil {
		t.last = token
	}
	return t.last
}

// renewed reports whether a stream that was refused should be opened again, because the file now
// holds another token than the stream presented.
func (t *tokenFile) renewed(err error, presented string) bool {
	return status.Code(err) == codes.Unauthenticated && t.current() != presented
}

// readToken reads a token. Its errors do not show the token.
func readToken(path string) (string, error) {
	file, err := os.Open(path)
	if err != nil {
		return "", fmt.Errorf("token: %w", err)
	}
	defer file.Close()
	text, err := io.ReadAll(io.LimitReader(file, mostTokenBytes+1))
	if err != nil {
		return "", fmt.Errorf("token: %w", err)
	}
	token := strings.TrimSpace(string(text))
	switch {
	case len(text) > mostTokenBytes:
		return "", fmt.Errorf("token: %s: expected at most %d bytes", path, mostTokenBytes)
	case token == "":
		return "", fmt.Errorf("token: %s: the file is empty, expected a token", path)
	case strings.ContainsFunc(token, func(r rune) bool { return r <= ' ' || r > '~' }):
		return "", fmt.Errorf("token: %s: expected one token of visible ASCII characters", path)
	}
	return token, nil
}

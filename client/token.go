package client

import (
	"context"
	"errors"
	"fmt"
	"io"
	"os"
	"strings"
	"sync"

	"google.golang.org/grpc"
	"google.golang.org/grpc/codes"
	"google.golang.org/grpc/credentials"
	"google.golang.org/grpc/credentials/local"
	"google.golang.org/grpc/status"
)

// WithTokenFile has every call and stream present the bearer token that a file
// holds. The file is read again when it changes, and when the daemon refuses the
// token, so that tokens can be rotated while a client lives. If it cannot be read
// then, the token that was read last stays in use.
//
// A token goes over TLS, a unix socket or the loopback, and nowhere else: Dial
// refuses another connection, unless WithInsecure allows plaintext.
func WithTokenFile(path string) Option {
	return func(o *options) { o.token = &path }
}

// mostTokenBytes is more than any token takes, and less than a file that was named
// by mistake may have.
const mostTokenBytes = 16 << 10

// tokenFile is the credentials of WithTokenFile. A nil one is no token.
type tokenFile struct {
	path     string
	strict   bool // Dial is to refuse plaintext
	insecure bool // plaintext is allowed

	mu      sync.Mutex
	read    os.FileInfo // what the file was when it was read
	token   string
	version int // counts the tokens that the file had
}

// openToken reads a token for the first time.
func openToken(path string, strict, insecure bool) (*tokenFile, error) {
	t := &tokenFile{path: path, strict: strict, insecure: insecure}
	if err := t.load(); err != nil {
		return nil, err
	}
	return t, nil
}

// GetRequestMetadata is the header of a call. It fails where a connection is not
// what Dial was told.
func (t *tokenFile) GetRequestMetadata(ctx context.Context, _ ...string) (map[string]string, error) {
	info, _ := credentials.RequestInfoFromContext(ctx)
	if !t.insecure && !private(info.AuthInfo) {
		return nil, status.Error(codes.Unauthenticated,
			"a token is not sent over plaintext, expected TLS, a unix socket or the loopback")
	}
	t.mu.Lock()
	defer t.mu.Unlock()
	t.refresh()
	return map[string]string{"authorization": "Bearer " + t.token}, nil
}

// RequireTransportSecurity has grpc refuse plaintext before anything is sent. It
// takes the loopback for plaintext, of which GetRequestMetadata knows better.
func (t *tokenFile) RequireTransportSecurity() bool { return t.strict }

// private tells a connection that nobody else can listen to.
func private(info credentials.AuthInfo) bool {
	if info == nil {
		return false
	}
	return info.AuthType() == local.NewCredentials().Info().SecurityProtocol ||
		credentials.CheckSecurityLevel(info, credentials.PrivacyAndIntegrity) == nil
}

// current is the number of the token that a call would present.
func (t *tokenFile) current() int {
	if t == nil {
		return 0
	}
	t.mu.Lock()
	defer t.mu.Unlock()
	t.refresh()
	return t.version
}

// renewed tells whether a call that was refused may be made again, because the file
// holds another token than the one of that number.
func (t *tokenFile) renewed(err error, number int) bool {
	if t == nil || status.Code(err) != codes.Unauthenticated {
		return false
	}
	t.mu.Lock()
	defer t.mu.Unlock()
	_ = t.load() // the token that was read last stays
	return t.version != number
}

// again makes an unary call once more where its token was replaced meanwhile.
func (t *tokenFile) again(
	ctx context.Context, method string, request, reply any, conn *grpc.ClientConn, call grpc.UnaryInvoker, opts ...grpc.CallOption,
) error {
	number := t.current()
	err := call(ctx, method, request, reply, conn, opts...)
	if t.renewed(err, number) {
		err = call(ctx, method, request, reply, conn, opts...)
	}
	return err
}

// refresh reads the file again if it looks like another. mu is held.
func (t *tokenFile) refresh() {
	is, err := os.Stat(t.path)
	if err == nil && (!os.SameFile(is, t.read) || is.Size() != t.read.Size() || !is.ModTime().Equal(t.read.ModTime())) {
		_ = t.load() // the token that was read last stays
	}
}

// load reads the file. mu is held, or t is nobody else's yet.
func (t *tokenFile) load() error {
	file, err := os.Open(t.path)
	if err != nil {
		return fmt.Errorf("token: %w", err)
	}
	defer file.Close()
	info, err := file.Stat()
	if err != nil {
		return fmt.Errorf("token: %w", err)
	}
	text, err := io.ReadAll(io.LimitReader(file, mostTokenBytes+1))
	if err != nil {
		return fmt.Errorf("token: %w", err)
	}
	token, err := parseToken(text)
	if err != nil {
		return fmt.Errorf("token: %s: %w", t.path, err)
	}
	t.read = info
	if token != t.token {
		t.token = token
		t.version++
	}
	return nil
}

// parseToken finds the token in what a file holds. Errors do not show it.
func parseToken(text []byte) (string, error) {
	token := strings.TrimSpace(string(text))
	switch {
	case len(text) > mostTokenBytes:
		return "", fmt.Errorf("expected at most %d bytes", mostTokenBytes)
	case token == "":
		return "", errors.New("the file is empty, expected a token")
	case strings.ContainsFunc(token, func(r rune) bool { return r <= ' ' || r > '~' }):
		return "", errors.New("expected one token of visible ASCII characters")
	}
	return token, nil
}

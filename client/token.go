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

// WithTokenFile makes every call and stream present the bearer token in a file. The file is read
// again when it changes, and when the daemon refuses the token, so tokens can be rotated while a
// client lives. If the file cannot be read then, the last token stays in use.
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

	mu      sync.Mutex
	read    os.FileInfo // describes the file as last read
	token   string
	version int // number of different tokens read so far
}

// openToken reads a token from its file.
func openToken(path string, strict, insecure bool) (*tokenFile, error) {
	t := &tokenFile{path: path, strict: strict, insecure: insecure}
	if err := t.load(); err != nil {
		return nil, err
	}
	return t, nil
}

// GetRequestMetadata returns the header that carries the token. It fails on a connection that
// others can listen to, for example if a local name resolved to another machine.
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

// current returns the number of the token that a call would present now.
func (t *tokenFile) current() int {
	if t == nil {
		return 0
	}
	t.mu.Lock()
	defer t.mu.Unlock()
	t.refresh()
	return t.version
}

// renewed reports whether a refused call should be made again, because the file now holds another
// token than the one with that number.
func (t *tokenFile) renewed(err error, number int) bool {
	if t == nil || status.Code(err) != codes.Unauthenticated {
		return false
	}
	t.mu.Lock()
	defer t.mu.Unlock()
	_ = t.load() // on an error the last token stays in use
	return t.version != number
}

// again makes a unary call, and makes it once more if its token was replaced meanwhile.
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

// refresh reads the file again if it has changed. The caller holds mu.
func (t *tokenFile) refresh() {
	is, err := os.Stat(t.path)
	if err == nil && (!os.SameFile(is, t.read) || is.Size() != t.read.Size() || !is.ModTime().Equal(t.read.ModTime())) {
		_ = t.load() // on an error the last token stays in use
	}
}

// load reads the file. The caller holds mu, or t is not shared yet.
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

// parseToken returns the token in the text of a file. Its errors do not show the token.
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

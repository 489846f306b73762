package client

import (
	"context"
	"crypto/tls"
	"crypto/x509"
	"errors"
	"fmt"
	"net"
	"os"
	"sync/atomic"

	"google.golang.org/grpc/credentials"
)

// TLSFiles names the PEM files that secure a connection. They are read again for every connection,
// so they can be replaced while a client lives.
type TLSFiles struct {
	// CA holds the certificates of the authorities that may sign the daemon's. Empty means those of
	// the system.
	CA string
	// Cert holds the client's own certificate with any intermediates, Key its key. Set both or
	// neither.
	Cert, Key string
	// ServerName must stand in the daemon's certificate. Empty means the host of the target.
	ServerName string
}

// WithTLS secures the connection with TLS 1.3. Dial fails if the files cannot be read. If they
// cannot be read again later, for example while they are being replaced, what was read last stays
// in use.
func WithTLS(files TLSFiles) Option {
	return func(o *options) { o.tls = &files }
}

// load reads the files.
func (f TLSFiles) load() (*tls.Config, error) {
	config := &tls.Config{MinVersion: tls.VersionTLS13, ServerName: f.ServerName}
	if f.CA != "" {
		text, err := os.ReadFile(f.CA)
		if err != nil {
			return nil, fmt.Errorf("TLS authorities: %w", err)
		}
		config.RootCAs = x509.NewCertPool()
		if !config.RootCAs.AppendCertsFromPEM(text) {
			return nil, fmt.Errorf("TLS authorities: %s: no certificate, expected at least one in PEM", f.CA)
		}
	}
	if (f.Cert == "") != (f.Key == "") {
		return nil, errors.New("TLS: a certificate without its key, or a key alone, expected both or neither")
	}
	if f.Cert != "" {
		own, err := tls.LoadX509KeyPair(f.Cert, f.Key)
		if err != nil {
			return nil, fmt.Errorf("TLS certificate %s with key %s: %w", f.Cert, f.Key, err)
		}
		config.Certificates = []tls.Certificate{own}
	}
	return config, nil
}

// fileCredentials makes credentials of the files anew for every handshake.
type fileCredentials struct {
	credentials.TransportCredentials // made of the files as first read
	files                            TLSFiles
	last                             atomic.Pointer[tls.Config] // made of the files as last read
}

func newFileCredentials(files TLSFiles) (*fileCredentials, error) {
	config, err := files.load()
	if err != nil {
		return nil, err
	}
	f := &fileCredentials{TransportCredentials: credentials.NewTLS(config), files: files}
	f.last.Store(config)
	return f, nil
}

// ClientHandshake reads the files again and uses them for the handshake. If they cannot be read, it
// uses what was read last.
func (f *fileCredentials) ClientHandshake(ctx context.Context, authority string, conn net.Conn) (net.Conn, credentials.AuthInfo, error) {
	config, stale := f.files.load()
	if stale == nil {
		f.last.Store(config)
	}
	secure, info, err := credentials.NewTLS(f.last.Load()).ClientHandshake(ctx, authority, conn)
	if err != nil && stale != nil {
		return nil, nil, fmt.Errorf("%w; with files that were read earlier, as now: %w", err, stale)
	}
	return secure, info, err
}

// Clone returns the same credentials, since nothing can be set on them.
func (f *fileCredentials) Clone() credentials.TransportCredentials { return f }

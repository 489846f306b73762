package tlsfiles

import (
	"context"
	"crypto/tls"
	"errors"
	"net"
	"net/http"
	"sync"
	"sync/atomic"
	"time"

	"github.com/ckd-project/ckd/internal/watch"
)

// Options names the files, all of them PEM, and the demands on clients.
type Options struct {
	// Cert holds the server's certificate, followed by the intermediates that lead to its root; Key
	// holds its private key.
	Cert, Key string
	// ClientCA holds the CAs that verify client certificates. Without it none are asked for.
	ClientCA string
	// CRL holds lists of the certificates that a CA of ClientCA has revoked. May be empty.
	CRL string
}

// Source keeps certificates in force. Its methods are safe for concurrent use.
type Source struct {
	options  Options
	now      func() time.Time
	current  atomic.Pointer[state]
	reloader *watch.Reloader

	tracking sync.Mutex
	open     map[net.Conn]tls.ConnectionState // with a client certificate
}

// Load reads the files. It fails if they are faulty or the certificate is not valid now.
func Load(o Options) (*Source, error) {
	s := &Source{options: o, now: time.Now, open: map[net.Conn]tls.ConnectionState{}}
	s.reloader = watch.NewReloader(o.paths, s.replace)
	st, err := o.load()
	if err == nil {
		err = st.valid(s.now())
	}
	if err != nil {
		return nil, err
	}
	s.current.Store(st)
	return s, nil
}

// Reload reads the files again and puts them in force if they are sound. Otherwise nothing changes,
// and the outcome has the reason. The outcome warns of what has expired or soon will.
func (s *Source) Reload(trigger string) watch.Outcome { return s.reloader.Reload(trigger) }

// Watch reloads when the files change, until ctx ends, and calls report with what is new, warnings
// included. It begins with a reload, for what changed before.
func (s *Source) Watch(ctx context.Context, report func(watch.Outcome)) {
	s.reloader.Watch(ctx, report)
}

// NotAfter returns when the server's certificate expires, or an intermediate sent with it if that
// is earlier.
func (s *Source) NotAfter() time.Time { return s.current.Load().notAfter }

// TLSConfig returns the configuration of an HTTP server (h2 and http/1.1) whose
// handshakes use the certificates in force.
func (s *Source) TLSConfig() *tls.Config {
	return s.config(false, "h2", "http/1.1")
}

// TLSConfigForProbes returns a TLSConfig that needs no client certificate, for an address of probes
// and scrapers. A certificate that is shown is verified all the same.
func (s *Source) TLSConfigForProbes() *tls.Config { return s.config(true, "h2", "http/1.1") }

// ErrUntrusted says that a client certificate was revoked, or that its CA is no longer trusted.
var ErrUntrusted = errors.New("the client certificate was revoked, or its CA is no longer trusted")

// config returns a configuration whose handshakes use the certificates in force when they begin.
func (s *Source) config(optional bool, protocols ...string) *tls.Config {
	inForce := func() *tls.Config { return s.current.Load().config(s.options, optional, protocols) }
	c := inForce()
	c.GetConfigForClient = func(*tls.ClientHelloInfo) (*tls.Config, error) { return inForce(), nil }
	return c
}

// replace puts the files' contents in force if they are sound and new.
func (s *Source) replace() (watch.Result, error) {
	was, now := s.current.Load(), s.now()
	unchanged := watch.Result{Hash: was.hash, Warnings: was.warnings(now)}
	st, err := s.options.load()
	if err != nil || st.hash == was.hash {
		return unchanged, err
	}
	if err := st.valid(now); err != nil {
		return unchanged, err
	}
	s.current.Store(st)
	s.closeUntrusted()
	return watch.Result{Changed: true, Hash: st.hash, Warnings: st.warnings(now)}, nil
}

// conn is a connection of gRPC with a client certificate. Its Source knows it while it is open.
type conn struct {
	net.Conn
	source *Source
}

// Close implements net.Conn.
func (c *conn) Close() error {
	c.source.forget(c)
	return c.Conn.Close()
}

// ConnState lets the Source close connections whose client certificate is no longer good. It is the
// hook of an HTTP server that serves with the TLSConfig.
func (s *Source) ConnState(c net.Conn, state http.ConnState) {
	secured, ok := c.(*tls.Conn)
	if !ok {
		return
	}
	switch state {
	case http.StateActive: // for the first time or again, after the handshake
		if state := secured.ConnectionState(); len(state.PeerCertificates) > 0 {
			_ = s.add(c, state) // it is closed then
		}
	case http.StateClosed, http.StateHijacked:
		s.forget(c)
	}
}

// add keeps an open connection, or closes it if its certificate is no longer good.
func (s *Source) add(c net.Conn, state tls.ConnectionState) error {
	s.tracking.Lock()
	s.open[c] = state
	s.tracking.Unlock()
	err := s.current.Load().check(state)
	if err != nil {
		_ = c.Close() // it was not used
	}
	return err
}

func (s *Source) forget(c net.Conn) {
	s.tracking.Lock()
	defer s.tracking.Unlock()
	delete(s.open, c)
}

// closeUntrusted closes the connections whose client certificate is no longer good. Their clients
// may connect again with another.
func (s *Source) closeUntrusted() {
	var untrusted []net.Conn
	s.tracking.Lock()
	for c, state := range s.open {
		if s.current.Load().check(state) != nil {
			untrusted = append(untrusted, c)
		}
	}
	s.tracking.Unlock()
	var closing sync.WaitGroup
	for _, c := range untrusted { // at one time, as each may take seconds to say goodbye
		closing.Go(func() { _ = c.Close() }) // there is nothing to lose
	}
	closing.Wait()
}

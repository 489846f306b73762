package certs

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

// Options name the files, all of them PEM, and say what is asked of clients.
type Options struct {
	// Cert is the server's certificate, followed by the intermediates that lead
	// to its root; Key is its private key.
	Cert, Key string
	// ClientCA is the CAs that client certificates are verified by. Without it
	// none are asked for.
	ClientCA string
	// CRL is the lists of certificates that a CA of ClientCA has revoked; empty
	// for none.
	CRL string
	// ClientCertOptional lets clients in that show no certificate: they are known
	// in another way, or open to all. One that is shown is verified all the same.
	ClientCertOptional bool
	// TLS12 also takes TLS 1.2, with forward secrecy and AEAD alone.
	TLS12 bool
}

// Source is the certificates in force. Its methods may be called at the same time.
type Source struct {
	options  Options
	now      func() time.Time
	current  atomic.Pointer[state]
	reloader *watch.Reloader

	tracking sync.Mutex
	open     map[net.Conn]tls.ConnectionState // with a client certificate
}

// Load the files. What is wrong with them is an error, and so is a certificate
// that is not valid now.
func Load(o Options) (*Source, error) {
	s := &Source{options: o, now: time.Now, open: map[net.Conn]tls.ConnectionState{}}
	s.reloader = watch.NewReloader(func() *watch.Places { return watch.PlacesOf(o.paths()...) }, s.replace)
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

// Reload reads the files again and puts what they say in force, if it is sound
// and not in force already. Otherwise what was in force stays, with the reason in
// the outcome. The outcome warns of what has expired or soon will.
func (s *Source) Reload(trigger string) watch.Outcome { return s.reloader.Reload(trigger) }

// Watch reloads when the files change, until ctx ends, and calls report with what
// is news, warnings included. It begins with a reload, for what changed before.
func (s *Source) Watch(ctx context.Context, report func(watch.Outcome)) {
	s.reloader.Watch(ctx, report)
}

// NotAfter is when the server's certificate expires, or, where that is earlier,
// an intermediate that is sent with it.
func (s *Source) NotAfter() time.Time { return s.current.Load().notAfter }

// TLSConfig is for an HTTP server (h2 and http/1.1), which serves with whatever is
// in force.
func (s *Source) TLSConfig() *tls.Config {
	return s.config(s.options.ClientCertOptional, "h2", "http/1.1")
}

// TLSConfigForProbes is TLSConfig for an address that probes and scrapers come
// to: they may show a certificate, but need none.
func (s *Source) TLSConfigForProbes() *tls.Config { return s.config(true, "h2", "http/1.1") }

// ErrUntrusted is why a client certificate is refused that a CA has issued: it was
// revoked since, or the CA is not trusted any more.
var ErrUntrusted = errors.New("the client certificate was revoked, or its CA is no longer trusted")

// Check is ErrUntrusted where a connection's client certificate, which was good at
// its handshake, is not good by what is in force now. That it has expired since is
// left to the next handshake.
func (s *Source) Check(c tls.ConnectionState) error { return s.current.Load().check(c) }

// config whose handshakes use what is in force when they begin.
func (s *Source) config(optional bool, protocols ...string) *tls.Config {
	inForce := func() *tls.Config { return s.current.Load().config(s.options, optional, protocols) }
	c := inForce()
	c.GetConfigForClient = func(*tls.ClientHelloInfo) (*tls.Config, error) { return inForce(), nil }
	return c
}

// replace what is in force by what the files say, if that is sound and something else.
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

// conn is a connection of gRPC's with a client certificate, known to its Source while open.
type conn struct {
	net.Conn
	source *Source
}

// track a connection that was just verified. It is closed if what is in force has
// changed since.
func (s *Source) track(c net.Conn, state tls.ConnectionState) (net.Conn, error) {
	tracked := &conn{c, s}
	return tracked, s.add(tracked, state)
}

// Close implements net.Conn.
func (c *conn) Close() error {
	c.source.forget(c)
	return c.Conn.Close()
}

// ConnState is the hook of an HTTP server that serves with the TLSConfig: its
// connections are closed, as gRPC's are, when their client certificate is good no
// more.
func (s *Source) ConnState(c net.Conn, is http.ConnState) {
	secured, ok := c.(*tls.Conn)
	if !ok {
		return
	}
	switch is {
	case http.StateActive: // for the first time or again, after the handshake
		if state := secured.ConnectionState(); len(state.PeerCertificates) > 0 {
			_ = s.add(c, state) // it is closed then
		}
	case http.StateClosed, http.StateHijacked:
		s.forget(c)
	}
}

// add a connection to those that are open, and close it if it is good no more.
func (s *Source) add(c net.Conn, state tls.ConnectionState) error {
	s.tracking.Lock()
	s.open[c] = state
	s.tracking.Unlock()
	err := s.Check(state)
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

// closeUntrusted closes the connections whose client certificate is good no more.
// Their peers may come again with another.
func (s *Source) closeUntrusted() {
	var untrusted []net.Conn
	s.tracking.Lock()
	for c, state := range s.open {
		if s.Check(state) != nil {
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

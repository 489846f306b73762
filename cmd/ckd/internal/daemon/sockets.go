package daemon

import (
	"errors"
	"fmt"
	"net"
	"os"
	"strings"
	"syscall"
	"time"

	"github.com/ckd-project/ckd/internal/config"
)

// sockets holds the open addresses. A listener is nil where its address is off.
type sockets struct {
	grpc               []net.Listener
	admin, http, pprof net.Listener
}

// open opens every address of the configuration. After an error, some may be open.
func (s *sockets) open(c *config.Config) error {
	for _, address := range c.Listen {
		l, err := listen(address)
		if err != nil {
			return fmt.Errorf("listen on %s: %w", address, err)
		}
		s.grpc = append(s.grpc, l)
	}
	for _, h := range []struct {
		name, address string
		listener      *net.Listener
	}{{"admin", c.Admin, &s.admin}, {"http", c.HTTP, &s.http}, {"pprof", c.Pprof, &s.pprof}} {
		if h.address == config.Off {
			continue
		}
		l, err := listen(h.address)
		if err != nil {
			return fmt.Errorf("%s on %s: %w", h.name, h.address, err)
		}
		*h.listener = l
	}
	return nil
}

// limit counts the connections of clients, and bounds the admin address's connections.
func (s *sockets) limit(c *connectionLimit) {
	for i, l := range s.grpc {
		s.grpc[i] = c.guard(l)
	}
	if s.http != nil {
		s.http = c.guard(s.http)
	}
	if s.admin != nil {
		s.admin = &liveliest{Listener: s.admin, most: adminConnections}
	}
}

// close closes the open listeners.
func (s *sockets) close() {
	for _, l := range append(s.grpc, s.admin, s.http, s.pprof) {
		if l != nil {
			_ = l.Close() // nothing was accepted
		}
	}
}

// targets returns the gRPC addresses as clients dial them.
func (s *sockets) targets() []string {
	var targets []string
	for _, l := range s.grpc {
		targets = append(targets, target(l.Addr()))
	}
	return targets
}

// names returns the addresses by what they are for, as the log shows them.
func (s *sockets) names() map[string]any {
	names := map[string]any{"grpc": s.targets()}
	for name, l := range map[string]net.Listener{"admin": s.admin, "http": s.http, "pprof": s.pprof} {
		if l != nil {
			names[name] = l.Addr().String()
		}
	}
	return names
}

// listen opens HOST:PORT or unix:PATH. It replaces a socket file without a listener,
// as a killed daemon leaves behind.
func listen(address string) (net.Listener, error) {
	path, isUnix := strings.CutPrefix(address, "unix:")
	if !isUnix {
		return net.Listen("tcp", address)
	}
	l, err := net.Listen("unix", path)
	if err == nil || !isStale(path) {
		return l, err
	}
	if err := os.Remove(path); err != nil {
		return nil, err
	}
	return net.Listen("unix", path)
}

// isStale reports whether path is a socket without a listener.
func isStale(path string) bool {
	info, err := os.Lstat(path)
	if err != nil || info.Mode().Type() != os.ModeSocket {
		return false
	}
	c, err := net.DialTimeout("unix", path, time.Second)
	if err == nil {
		_ = c.Close() // a listener answers
		return false
	}
	return errors.Is(err, syscall.ECONNREFUSED)
}

// target returns a listener's address as a client dials it.
func target(address net.Addr) string {
	if address.Network() == "unix" {
		return "unix:" + address.String()
	}
	return address.String()
}

// isLoopback reports whether only this machine reaches an address by TCP.
func isLoopback(a net.Addr) bool {
	tcp, ok := a.(*net.TCPAddr)
	return ok && tcp.IP.IsLoopback()
}

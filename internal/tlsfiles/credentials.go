package tlsfiles

import (
	"context"
	"errors"
	"net"

	"google.golang.org/grpc/credentials"
)

// Transport says what a plaintext connection goes over.
type Transport string

// The transports.
const (
	// InProcess connects the process to itself.
	InProcess Transport = "in-process"
	// UnixSocket connects processes of one machine.
	UnixSocket Transport = "unix"
	// Network stands for everything else.
	Network Transport = "network"
)

// Plaintext is the AuthInfo of an unencrypted connection. Encrypted ones have a
// credentials.TLSInfo.
type Plaintext struct {
	credentials.CommonAuthInfo
	Over Transport
}

// AuthType implements credentials.AuthInfo.
func (Plaintext) AuthType() string { return "plaintext" }

// Connected adds the connection to its AuthInfo.
type Connected struct {
	credentials.AuthInfo
	Conn net.Conn
}

// GetSecurityValue implements credentials.ChannelzSecurityInfo.
func (c Connected) GetSecurityValue() credentials.ChannelzSecurityValue {
	if info, ok := c.AuthInfo.(credentials.ChannelzSecurityInfo); ok {
		return info.GetSecurityValue()
	}
	return nil
}

// InfoOf returns the AuthInfo without its connection, if it is Connected.
func InfoOf(info credentials.AuthInfo) credentials.AuthInfo {
	if c, ok := info.(Connected); ok {
		return c.AuthInfo
	}
	return info
}

// IsInProcess reports whether a connection connects the process to itself.
func IsInProcess(info credentials.AuthInfo) bool {
	plain, ok := InfoOf(info).(Plaintext)
	return ok && plain.Over == InProcess
}

// Credentials returns the credentials of a gRPC server that may listen on several addresses.
// Connections of unix sockets, and those with a method InProcess(), stay in plaintext. All others
// get TLS, or plaintext if src is nil. Listeners must hand out connections unwrapped, or they are
// treated as the network.
func Credentials(src *Source) credentials.TransportCredentials {
	c := &serverCredentials{source: src}
	if src != nil {
		c.tls = credentials.NewTLS(src.config(src.options.ClientCertOptional, "h2"))
	}
	return c
}

type serverCredentials struct {
	source *Source                          // nil for plaintext
	tls    credentials.TransportCredentials // nil for plaintext
}

// ServerHandshake implements credentials.TransportCredentials.
func (c *serverCredentials) ServerHandshake(raw net.Conn) (net.Conn, credentials.AuthInfo, error) {
	over := transportOf(raw)
	if over != Network || c.tls == nil {
		level := credentials.PrivacyAndIntegrity // what goes over it never leaves the machine
		if over == Network {
			level = credentials.NoSecurity
		}
		return raw, Plaintext{credentials.CommonAuthInfo{SecurityLevel: level}, over}, nil
	}
	secured, info, err := c.tls.ServerHandshake(raw)
	if err != nil {
		return nil, nil, err
	}
	if t, ok := info.(credentials.TLSInfo); ok && len(t.State.PeerCertificates) > 0 {
		secured = &conn{secured, c.source}
		if err := c.source.add(secured, t.State); err != nil {
			return nil, nil, err
		}
	}
	return secured, info, nil
}

func transportOf(c net.Conn) Transport {
	if _, ok := c.(interface{ InProcess() }); ok {
		return InProcess
	}
	if at := c.LocalAddr(); at != nil && at.Network() == "unix" {
		return UnixSocket
	}
	return Network
}

// ClientHandshake implements credentials.TransportCredentials. It always fails: these are a
// server's credentials.
func (*serverCredentials) ClientHandshake(context.Context, string, net.Conn) (net.Conn, credentials.AuthInfo, error) {
	return nil, nil, errors.New("these are the credentials of a server")
}

// Info implements credentials.TransportCredentials.
func (c *serverCredentials) Info() credentials.ProtocolInfo {
	if c.tls == nil {
		return credentials.ProtocolInfo{SecurityProtocol: "insecure"}
	}
	return c.tls.Info()
}

// Clone implements credentials.TransportCredentials.
func (c *serverCredentials) Clone() credentials.TransportCredentials { return c }

// OverrideServerName implements credentials.TransportCredentials. It does nothing: the certificate
// has the server's names.
func (*serverCredentials) OverrideServerName(string) error { return nil }

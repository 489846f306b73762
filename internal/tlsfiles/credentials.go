package tlsfiles

import (
	"context"
	"errors"
	"net"

	"google.golang.org/grpc/credentials"
)

// Plaintext is the AuthInfo of an unencrypted connection. Encrypted ones have a
// credentials.TLSInfo.
type Plaintext struct {
	credentials.CommonAuthInfo
	inProcess bool
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
	return ok && plain.inProcess
}

// Credentials returns the credentials of a gRPC server that may listen on several addresses.
// Connections of unix sockets, and connections with a method InProcess(), stay in plaintext. All others
// get TLS, or plaintext if src is nil. Listeners must hand out connections unwrapped, or they are
// treated as the network.
func Credentials(src *Source) credentials.TransportCredentials {
	c := &serverCredentials{source: src}
	if src != nil {
		c.tls = credentials.NewTLS(src.config(false, "h2"))
	}
	return c
}

type serverCredentials struct {
	source *Source                          // nil for plaintext
	tls    credentials.TransportCredentials // nil for plaintext
}

// ServerHandshake implements credentials.TransportCredentials.
func (c *serverCredentials) ServerHandshake(raw net.Conn) (net.Conn, credentials.AuthInfo, error) {
	_, inProcess := raw.(interface{ InProcess() })
	local := inProcess || raw.LocalAddr() != nil && raw.LocalAddr().Network() == "unix"
	if local || c.tls == nil {
		level := credentials.NoSecurity
		if local {
			level = credentials.PrivacyAndIntegrity // what goes over it never leaves the machine
		}
		return raw, Plaintext{credentials.CommonAuthInfo{SecurityLevel: level}, inProcess}, nil
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

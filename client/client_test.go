package client_test

import (
	"context"
	"net"
	"strings"
	"testing"

	"google.golang.org/grpc"
	"google.golang.org/grpc/codes"
	"google.golang.org/grpc/credentials"
	"google.golang.org/grpc/credentials/insecure"

	"github.com/ckd-project/ckd/client"
)

// TestDialRefusesPlaintextElsewhere checks which targets Dial takes for this machine.
func TestDialRefusesPlaintextElsewhere(t *testing.T) {
	const refused = "plaintext is for unix sockets and loopback addresses"
	plain := client.WithDialOptions(grpc.WithTransportCredentials(insecure.NewCredentials()))
	tls := client.WithDialOptions(grpc.WithTransportCredentials(credentials.NewTLS(nil)))
	for _, c := range []struct {
		target string
		option client.Option
		want   string
	}{
		{"unix:/run/ckd.sock", nil, ""},
		{"unix:///run/ckd.sock", nil, ""},
		{"unix-abstract:ckd", nil, ""},
		{"localhost:9090", nil, ""},
		{"127.0.0.1:9090", nil, ""},
		{"127.8.8.8:9090", nil, ""},
		{"[::1]:9090", nil, ""},
		{"dns:///localhost:9090", nil, ""},
		{"dns:localhost:9090", nil, ""},
		{"passthrough:///127.0.0.1:9090", nil, ""},
		{"ckd:9090", nil, refused},
		{"ckd.default.svc:9090", nil, refused},
		{"10.0.0.1:9090", nil, refused},
		{"0.0.0.0:9090", nil, refused},
		{"[::]:9090", nil, refused},
		{"[fe80::1]:9090", nil, refused},
		{"localhost.example.org:9090", nil, refused},
		{"dns:///ckd:9090", nil, refused},
		{"dns://10.0.0.1/localhost:9090", nil, refused},
		{"passthrough:///ckd:9090", nil, refused},
		{"ckd:9090", client.WithInsecure(), ""},
		{"ckd:9090", tls, ""},
		{"ckd:9090", plain, ""},
		{"localhost:9090", tls, ""},
		{"ckd:9090", client.WithMessageBytes(10), "messages of 10 bytes, expected more than 128"},
		{"localhost:9090", client.WithDialOptions(grpc.WithDefaultServiceConfig("{")), `dial "localhost:9090": grpc: `},
	} {
		t.Run(c.target, func(t *testing.T) {
			if c.option == nil {
				checkDial(t, c.want, c.target)
			} else {
				checkDial(t, c.want, c.target, c.option)
			}
		})
	}
}

// checkDial expects that Dial works, or fails with a text.
func checkDial(t *testing.T, want, target string, opts ...client.Option) {
	t.Helper()
	c, err := client.Dial(target, opts...)
	if err == nil {
		ok(t, c.Close())
	}
	saying(want).check(t, target, err)
	if err != nil && (strings.Contains(err.Error(), "s3c") || strings.Contains(err.Error(), "PRIVATE")) {
		t.Errorf("the error shows what is in a file: %v", err)
	}
}

// TestDialLooksAtTheConnection checks that a local name that leads to another machine is refused
// when the connection is made.
func TestDialLooksAtTheConnection(t *testing.T) {
	near, far := net.Pipe() // the addresses of a pipe are not on the loopback
	defer far.Close()
	dial := grpc.WithContextDialer(func(context.Context, string) (net.Conn, error) { return near, nil })
	c, err := client.Dial("passthrough:///localhost:9090", client.WithDialOptions(dial))
	ok(t, err)
	defer c.Close()
	_, err = c.Models(t.Context())
	fault{codes.Unavailable, 0, "non-local address"}.check(t, "Models", err)
}

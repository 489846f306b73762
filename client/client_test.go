package client_test

import (
	"context"
	"net"
	"path/filepath"
	"strings"
	"sync"
	"testing"

	"google.golang.org/grpc"
	"google.golang.org/grpc/codes"
	"google.golang.org/grpc/credentials"
	"google.golang.org/grpc/credentials/insecure"
	"google.golang.org/grpc/status"

	"github.com/ckd-project/ckd/client"
	ckdv1 "github.com/ckd-project/ckd/proto/ckd/v1"
)

func TestDialRefusesPlaintextElsewhere(t *testing.T) {
	const refused = "plaintext is for unix sockets and loopback addresses"
	plain := client.WithDialOptions(grpc.WithTransportCredentials(insecure.NewCredentials()))
	tls := client.WithCredentials(credentials.NewTLS(nil))
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
		var opts []client.Option
		if c.option != nil {
			opts = append(opts, c.option)
		}
		cl, err := client.Dial(c.target, opts...)
		if err == nil {
			_ = cl.Close()
		}
		if (err == nil) != (c.want == "") || err != nil && !strings.Contains(err.Error(), c.want) {
			t.Errorf("%s: error %v, expected %q", c.target, err, c.want)
		}
	}
}

func TestDialRealSockets(t *testing.T) {
	for _, network := range []string{"tcp", "unix"} {
		t.Run(network, func(t *testing.T) {
			address := "127.0.0.1:0"
			if network == "unix" {
				address = filepath.Join(t.TempDir(), "s")
			}
			listener, err := net.Listen(network, address)
			ok(t, err)
			server := grpc.NewServer()
			ckdv1.RegisterUncertaintyServiceServer(server, newFake(2))
			var wg sync.WaitGroup
			wg.Go(func() { _ = server.Serve(listener) })
			defer wg.Wait()
			defer server.Stop()

			target := listener.Addr().String()
			if network == "unix" {
				target = "unix:" + target
			}
			c, err := client.Dial(target)
			ok(t, err)
			defer c.Close()
			s, err := c.Session(t.Context(), client.SessionConfig{Model: model})
			ok(t, err)
			g := open(t, s, "a")
			ok(t, g.Send(low))
			ok(t, g.Send(low))
			if r := wait(t, g)[0]; !r.Retained() {
				t.Errorf("result %+v, expected it retained", r)
			}
			ok(t, s.Close())
		})
	}
}

// A name that looks like this machine and leads elsewhere is found out.
func TestDialLooksAtTheConnection(t *testing.T) {
	near, far := net.Pipe() // whose address is not on the loopback
	defer far.Close()
	dial := grpc.WithContextDialer(func(context.Context, string) (net.Conn, error) { return near, nil })
	c, err := client.Dial("passthrough:///localhost:9090", client.WithDialOptions(dial))
	ok(t, err)
	defer c.Close()
	_, err = c.Models(t.Context())
	if status.Code(err) != codes.Unavailable || !strings.Contains(err.Error(), "non-local address") {
		t.Errorf("error %v, expected that the connection is refused", err)
	}
}

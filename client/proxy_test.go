package client_test

import (
	"net"
	"os"
	"os/exec"
	"strings"
	"testing"
	"time"

	"github.com/ckd-project/ckd/client"
)

// proxyClients are clients of a daemon that only a proxy could reach.
var proxyClients = map[string]func() (*client.Client, error){
	"WithInsecure": func() (*client.Client, error) { return client.Dial("ckd.invalid:8590", client.WithInsecure()) },
	"TLS": func() (*client.Client, error) {
		return client.Dial("ckd.invalid:8590", client.WithTLS(client.TLSFiles{}))
	},
}

// TestProxy checks that the proxy of the environment is asked for TLS only: with HTTPS_PROXY set,
// ids and passes of plaintext went to the proxy in clear. Go reads the environment once in a
// process, so a process of its own makes each client.
func TestProxy(t *testing.T) {
	if name := os.Getenv("CKD_TEST_PROXY_CLIENT"); name != "" {
		c, err := proxyClients[name]()
		ok(t, err)
		defer func() { ok(t, c.Close()) }()
		if _, err := c.Models(t.Context()); err == nil {
			t.Error("nothing serves there")
		}
		return
	}
	for name := range proxyClients {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			proxy, err := net.Listen("tcp", "127.0.0.1:0")
			ok(t, err)
			asked := make(chan string, 1)
			go func() {
				connection, err := proxy.Accept()
				if err != nil {
					close(asked)
					return
				}
				request := make([]byte, 100)
				n, _ := connection.Read(request)
				asked <- string(request[:n])
				_ = connection.Close()
			}()
			command := exec.CommandContext(t.Context(), os.Args[0], "-test.run=^TestProxy$", "-test.timeout="+time.Minute.String())
			command.Env = append(os.Environ(), "CKD_TEST_PROXY_CLIENT="+name, "NO_PROXY=", "no_proxy=",
				"HTTPS_PROXY=http://"+proxy.Addr().String(), "HTTP_PROXY=http://"+proxy.Addr().String())
			if out, err := command.CombinedOutput(); err != nil {
				t.Fatalf("%v\n%s", err, out)
			}
			ok(t, proxy.Close())
			if request := <-asked; strings.HasPrefix(request, "CONNECT ckd.invalid:8590") != (name == "TLS") {
				t.Errorf("the proxy was asked %q", request)
			}
		})
	}
}

package csrf

import (
	"context"
	"crypto/tls"
	"fmt"
	"net"
	"net/http"
	"net/http/httptest"
	"testing"
)

// TestCheck checks that a loopback address answers to no other name than its own, unless TLS has
// proved it, and that no page of another origin may post.
func TestCheck(t *testing.T) {
	tcp := func(ip string) net.Addr { return &net.TCPAddr{IP: net.ParseIP(ip), Port: 8591} }
	for _, c := range []struct {
		local net.Addr
		host  string
		tls   bool
		same  bool
	}{
		{tcp("127.0.0.1"), "page.example", false, true},
		{tcp("127.8.0.1"), "page.example", false, true},
		{tcp("::1"), "page.example:8591", false, true},
		{tcp("127.0.0.1"), "localhost.page.example", false, true},
		{tcp("127.0.0.1"), "127.0.0.1.page.example", false, true},
		{tcp("127.0.0.1"), "[page.example]", false, true},
		{tcp("127.0.0.1"), "page.example", true, false},
		{tcp("10.0.0.1"), "page.example", false, false},
		{&net.UnixAddr{Name: "/run/ckd.sock"}, "page.example", false, false},
		{nil, "page.example", false, false},
		{tcp("127.0.0.1"), "LocalHost:80", false, false},
		{tcp("127.0.0.1"), "10.0.0.1", false, false},
		{tcp("::1"), "[::1]", false, false},
		{tcp("::1"), "[::1]:8591", false, false},
		{tcp("127.0.0.1"), "", false, false},
	} {
		t.Run(fmt.Sprintf("%q at %v, TLS %v", c.host, c.local, c.tls), func(t *testing.T) {
			r := httptest.NewRequest(http.MethodPost, "/v1/models", nil)
			r.Host = c.host
			if c.tls {
				r.TLS = &tls.ConnectionState{}
			}
			if c.local != nil {
				r = r.WithContext(context.WithValue(r.Context(), http.LocalAddrContextKey, c.local))
			}
			if (Check(r) != nil) != c.same {
				t.Errorf("not refused: %v", !c.same)
			}
		})
	}
	for site, elsewhere := range map[string]bool{"cross-site": true, "same-site": true, "same-origin": false, "none": false, "": false} {
		for _, method := range []string{http.MethodPost, http.MethodGet} {
			for _, mode := range []string{"navigate", "cors", "no-cors", ""} {
				r := httptest.NewRequest(method, "/-/reload", nil)
				r.Header.Set("Sec-Fetch-Site", site)
				r.Header.Set("Sec-Fetch-Mode", mode)
				want := elsewhere && (method == http.MethodPost || mode != "navigate")
				if got := Check(r) != nil; got != want {
					t.Errorf("%s from %q to %q: refused %v", method, site, mode, got)
				}
			}
		}
	}
}

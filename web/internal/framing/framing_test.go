package framing

import (
	"bufio"
	"crypto/tls"
	"fmt"
	"io"
	"net"
	"net/http"
	"net/http/httptest"
	"strings"
	"testing"
	"testing/iotest"
	"time"
)

// TestGuard checks that a connection ends with a request that has two lengths, whatever came before
// it, and with no other.
func TestGuard(t *testing.T) {
	const (
		plain   = "POST /plain HTTP/1.1\r\nHost: a\r\nContent-Length: 3\r\n\r\nabc"
		get     = "GET /get HTTP/1.1\r\nHost: a\r\n\r\n"
		chunked = "POST /chunked HTTP/1.1\r\nHost: a\r\nTransfer-Encoding: chunked\r\n\r\n3\r\nabc\r\n0\r\n\r\n"
		both    = "POST /both HTTP/1.1\r\nHost: a\r\nContent-Length: 5\r\nTransfer-Encoding: chunked\r\n\r\n0\r\n\r\n"
		other   = "POST /both HTTP/1.1\r\nTransfer-encoding: chunked\nHost: a\ncontent-LENGTH:5\r\n\r\n0\r\n\r\n"
		options = "OPTIONS * HTTP/1.1\r\nHost: a\r\nContent-Length: 5\r\nTransfer-Encoding: chunked\r\n\r\n0\r\n\r\n"
		old     = "POST /old HTTP/1.0\r\nHost: a\r\nConnection: keep-alive\r\nContent-Length: 3\r\n\r\nabc"
		oldBoth = "POST /both HTTP/1.0\r\nHost: a\r\nConnection: keep-alive\r\nTransfer-Encoding: chunked\r\nContent-Length: 3\r\n\r\nabc"
		name    = "POST /name HTTP/1.1\r\nHost: a\r\nX-Content-Length: 9\r\nContent-Lengths: 9\r\nX: Content-Length: 9\r\nTransfer-Encoding: chunked\r\n\r\n0\r\n\r\n"
	)
	for _, secure := range []bool{false, true} {
		for name, c := range map[string]struct {
			requests []string
			answers  int  // before the connection ends
			anyway   bool // with TLS the connection ends after the first request
		}{
			"no body":               {[]string{get, get, get}, 3, false},
			"one length":            {[]string{plain, get, plain, plain}, 4, false},
			"chunks":                {[]string{chunked, plain, chunked, get, chunked}, 5, true},
			"both":                  {[]string{both, get}, 1, true},
			"otherwise written":     {[]string{other, get}, 1, true},
			"both, after others":    {[]string{plain, get, plain, both, get}, 4, false},
			"to no path":            {[]string{options, get}, 1, true},
			"HTTP/1.0":              {[]string{old, old, get}, 3, true},
			"HTTP/1.0, both":        {[]string{old, oldBoth, get}, 2, true},
			"headers of like names": {[]string{name, get}, 2, true},
		} {
			t.Run(fmt.Sprintf("%s, TLS %v", name, secure), func(t *testing.T) {
				s := httptest.NewUnstartedServer(http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
					_, _ = io.Copy(w, r.Body) // a client that went away needs no answer
				}))
				var conn net.Conn
				var err error
				if secure {
					s.TLS = &tls.Config{}
					s.Config.TLSConfig = s.TLS
					s.Listener = Guard(s.Config, s.Listener)
					s.StartTLS()
					conn, err = tls.Dial("tcp", s.Listener.Addr().String(), &tls.Config{InsecureSkipVerify: true}) //nolint:gosec // a test's own server
				} else {
					s.Listener = Guard(s.Config, s.Listener)
					s.Start()
					conn, err = net.Dial("tcp", s.Listener.Addr().String())
				}
				defer s.Close()
				if err != nil {
					t.Fatal(err)
				}
				defer conn.Close()
				if err := conn.SetDeadline(time.Now().Add(time.Minute)); err != nil {
					t.Fatal(err)
				}
				want := c.answers
				if secure && c.anyway {
					want = 1
				}
				answers, got := bufio.NewReader(conn), 0
				for _, request := range c.requests {
					if _, err := io.WriteString(conn, request); err != nil {
						break
					}
					answer, err := http.ReadResponse(answers, nil)
					if err != nil {
						break
					}
					_, _ = io.Copy(io.Discard, answer.Body) // an error ends the next one
					answer.Body.Close()
					got++
					if answer.Close != (got == want && want < len(c.requests)) {
						t.Errorf("answer %d says that the connection ends: %v", got, answer.Close)
					}
				}
				if got != want {
					t.Errorf("%d answers, want %d", got, want)
				}
			})
		}
	}
}

// TestScan checks that the count does not depend on where reads end.
func TestScan(t *testing.T) {
	const text = "POST / HTTP/1.1\r\nContent-Length: 5\r\nX: y\r\nTransfer-Encoding: chunked\r\n\r\n0\r\n\r\n"
	for name, read := range map[string]func(io.Reader) io.Reader{
		"whole":    func(r io.Reader) io.Reader { return r },
		"halves":   iotest.HalfReader,
		"one byte": iotest.OneByteReader,
	} {
		t.Run(name, func(t *testing.T) {
			c := &conn{Conn: readerConn{Reader: read(strings.NewReader(text))}}
			if _, err := io.Copy(io.Discard, c); err != nil || c.stated.Load() != 2 {
				t.Errorf("%d lengths, %v", c.stated.Load(), err)
			}
		})
	}
}

type readerConn struct {
	net.Conn
	io.Reader
}

// Read implements net.Conn.
func (c readerConn) Read(p []byte) (int, error) { return c.Reader.Read(p) }

package daemon_test

import (
	"bufio"
	"fmt"
	"io"
	"net"
	"net/http"
	"strconv"
	"strings"
	"testing"
	"time"

	"github.com/ckd-project/ckd/internal/config"
)

// littleRoom is a budget in bytes that a greedy client fills at once.
const littleRoom = 1 << 20

func withLittleRoom(c *config.Config) { c.MaxOpenBytes = littleRoom }

// held returns the share of the budget that is held.
func (d *started) held() float64 {
	d.t.Helper()
	_, text := request(d.t, http.MethodGet, d.AdminURL()+"/metrics", func(r *http.Request) { r.Header.Set("Cache-Control", "no-cache") })
	for line := range strings.Lines(text) {
		if value, ok := strings.CutPrefix(line, `ckd_in_use{resource="open_bytes"} `); ok {
			bytes, err := strconv.ParseFloat(strings.TrimSpace(value), 64)
			if err != nil {
				d.t.Fatal(err)
			}
			return bytes / littleRoom
		}
	}
	d.t.Fatalf("the bytes in use are not there: %s", text)
	return 0
}

func (d *started) expectAlive() {
	d.t.Helper()
	if code, text := get(d.t, d.AdminURL()+"/livez"); code != http.StatusOK {
		d.t.Errorf("/livez: %d %s", code, text)
	}
}

// TestBodiesAreCharged checks that a body that does not end is charged to its connection, whose other
// requests and calls then find no room, and that other connections do.
func TestBodiesAreCharged(t *testing.T) {
	d := start(t, withHTTP, withLittleRoom, func(c *config.Config) { c.MaxMessageBytes = 1 << 20 })
	conn, err := net.Dial("tcp", strings.TrimPrefix(d.HTTPURL(), "http://"))
	if err != nil {
		t.Fatal(err)
	}
	defer conn.Close()
	fmt.Fprintf(conn, "POST /v1/models/m:decompose HTTP/1.1\r\nHost: localhost\r\nContent-Length: %d\r\n\r\n", 2*littleRoom)
	if _, err := conn.Write(make([]byte, littleRoom*3/4+1)); err != nil {
		t.Fatal(err)
	}
	answer, err := http.ReadResponse(bufio.NewReader(conn), nil)
	if err != nil {
		t.Fatal(err)
	}
	defer answer.Body.Close()
	text, err := io.ReadAll(answer.Body)
	if err != nil || answer.StatusCode != http.StatusTooManyRequests || answer.Header.Get("Retry-After") == "" || !strings.Contains(string(text), "this connection holds") {
		t.Errorf("%d, retry after %q: %s %v", answer.StatusCode, answer.Header.Get("Retry-After"), text, err)
	}
	for deadline := time.Now().Add(time.Minute); d.held() > 0; time.Sleep(10 * time.Millisecond) {
		if time.Now().After(deadline) {
			t.Fatalf("%v of the budget are held by a body that was refused", d.held())
		}
	}
}

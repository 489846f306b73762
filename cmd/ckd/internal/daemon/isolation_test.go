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
	ckdv1 "github.com/ckd-project/ckd/proto/ckd/v1"
)

// littleRoom is a budget in bytes that a greedy client fills at once.
const littleRoom = 1 << 20

func withLittleRoom(c *config.Config) { c.MaxOpenBytes = littleRoom }

// opener opens inputs on a stream of its own connection.
type opener struct {
	t      *testing.T
	stream ckdv1.UncertaintyService_DecomposeStreamClient
	groups uint64
}

// overGRPC returns an opener over a new gRPC connection.
func overGRPC(t *testing.T, d *started) *opener {
	t.Helper()
	return &opener{t: t, stream: openStream(t, d.Targets()[0])}
}

// open opens inputs in a group, and returns the group and why the first of those was refused that
// were: empty if all were taken.
func (c *opener) open(inputs int) (group uint64, refusal string) {
	c.t.Helper()
	c.groups++
	block := &ckdv1.Block{Group: c.groups}
	for i := range inputs {
		block.InputIds = append(block.InputIds, fmt.Sprint(c.groups, "-", i))
		block.Values = append(block.Values, 0.5, 0.5)
	}
	sendBlock(c.t, c.stream, block)
	sendBlock(c.t, c.stream, &ckdv1.Block{Group: 1 << 40}) // a fault, which answers
	for {
		reply := receive(c.t, c.stream)
		for _, r := range reply.GetResults() {
			if e := r.GetError(); e != nil && refusal == "" {
				refusal = e.GetMessage()
			}
		}
		if len(reply.GetFaults()) > 0 {
			return c.groups, refusal
		}
	}
}

// fill opens inputs until one is refused, and returns why.
func (c *opener) fill() string {
	c.t.Helper()
	for range 100 {
		if _, refusal := c.open(50); refusal != "" {
			return refusal
		}
	}
	c.t.Fatal("everything was taken")
	return ""
}

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

func expectRefusal(t *testing.T, refusal string, parts ...string) {
	t.Helper()
	for _, part := range parts {
		if !strings.Contains(refusal, part) {
			t.Errorf("refused with %q, want %q", refusal, part)
		}
	}
}

func (d *started) expectAlive() {
	d.t.Helper()
	if code, text := get(d.t, d.AdminURL()+"/livez"); code != http.StatusOK {
		d.t.Errorf("/livez: %d %s", code, text)
	}
}

// TestLittleOnesFindRoom checks that one client gets three quarters of the budget, and that three
// who take all they get leave room for forty small calls of others, over gRPC and HTTP.
func TestLittleOnesFindRoom(t *testing.T) {
	d := start(t, withHTTP, withLittleRoom)
	expectRefusal(t, overGRPC(t, d).fill(), "this connection holds", "and may hold 786432")
	if held := d.held(); held < 0.7 || held > 0.76 {
		t.Errorf("%v of the budget are held by the first", held)
	}
	for range 2 {
		expectRefusal(t, overGRPC(t, d).fill(), "all clients hold", "this connection holds")
	}
	if held := d.held(); held < 0.86 || held > 0.88 {
		t.Errorf("%v of the budget are held by three", held)
	}
	little := ckdv1.NewUncertaintyServiceClient(dial(t, d.Targets()[0]))
	for range 20 {
		if _, err := little.Decompose(t.Context(), &ckdv1.DecomposeRequest{
			Model: "m", Layout: ckdv1.Layout_LAYOUT_SNK, Inputs: 1, Passes: 4, Values: []float32{0.5, 0.5, 0.25, 0.75, 0.5, 0.5, 0.25, 0.75},
		}); err != nil {
			t.Errorf("a small call: %v", err)
		}
		code, text := request(t, http.MethodPost, d.HTTPURL()+"/v1/models/m:decompose", func(r *http.Request) {
			r.Body = io.NopCloser(strings.NewReader(`{"layout": "LAYOUT_SNK", "inputs": 1, "passes": 4, "values": [0.5, 0.5, 0.25, 0.75, 0.5, 0.5, 0.25, 0.75]}`))
		})
		if code != http.StatusOK {
			t.Errorf("a small call over HTTP: %d %s", code, text)
		}
	}
	d.expectAlive()
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

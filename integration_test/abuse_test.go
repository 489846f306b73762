package integration_test

import (
	"bytes"
	"cmp"
	"compress/gzip"
	"context"
	"crypto/sha256"
	"encoding/binary"
	"fmt"
	"io"
	"math"
	"net"
	"net/http"
	"os"
	"os/exec"
	"path/filepath"
	"slices"
	"strings"
	"sync"
	"testing"
	"text/tabwriter"
	"time"

	"golang.org/x/net/http2"
	"golang.org/x/net/http2/hpack"
	healthv1 "google.golang.org/grpc/health/grpc_health_v1"
	"google.golang.org/grpc/metadata"
	"google.golang.org/protobuf/proto"

	"github.com/ckd-project/ckd/integration_test/testbed"
	"github.com/ckd-project/ckd/internal/servertest"
	"github.com/ckd-project/ckd/internal/timed"
	ckdv1 "github.com/ckd-project/ckd/proto/ckd/v1"
)

// The limits of a server under attack.
const (
	abuseMemory      = 240 << 20 // of the container
	abuseOpen        = 16 << 20
	abuseMessage     = 256 << 10
	abuseStreams     = 64
	abuseCalls       = abuseOpen >> 20
	abuseConnections = 200
)

const (
	crowd  = 4      // connections of an attack that sends on each what it can
	many   = 100    // connections of one that sends little on each
	frames = 20_000 // that an attack sends of one kind, in all
)

// attack is one way to abuse the daemon. It ends by itself.
type attack struct {
	name    string
	surface surface
	run     func(*assault) // leaves open what it opens
}

// surface is where a daemon can be attacked.
type surface int

const (
	overGRPC surface = iota
	overHTTP
	overAdmin
)

// surfaces returns the addresses of a daemon.
func (d *daemon) surfaces() []string {
	return []string{overGRPC: d.GRPC[0], overHTTP: hostOf(d.HTTP), overAdmin: hostOf(d.Admin)}
}

// assault is an attack under way.
type assault struct {
	address string

	mu       sync.Mutex
	conns    []net.Conn
	unopened error // a connection that the server did not take
}

// dial opens a connection.
func (a *assault) dial() net.Conn {
	conn, err := net.Dial("tcp", a.address)
	if err != nil {
		conn, _ = net.Pipe()
		_ = conn.Close()
	}
	a.mu.Lock()
	defer a.mu.Unlock()
	a.conns, a.unopened = append(a.conns, conn), cmp.Or(a.unopened, err)
	return conn
}

// peer opens a connection of HTTP/2.
func (a *assault) peer(settings ...http2.Setting) *servertest.Peer {
	return servertest.Greet(a.dial(), attackerToken, false, settings...)
}

// crowd runs an attack on several connections at once.
func (a *assault) crowd(run func(p *servertest.Peer), settings ...http2.Setting) {
	a.sideBySide(crowd, func(int) { run(a.peer(settings...)) })
}

func (a *assault) sideBySide(n int, run func(i int)) {
	var all sync.WaitGroup
	for i := range n {
		all.Go(func() { run(i) })
	}
	all.Wait()
}

// text sends the same text on many connections, and leaves them open.
func (a *assault) text(n int, text string) {
	a.sideBySide(n, func(int) { write(a.dial(), text) })
}

// flood sends frames again and again, a hundred times at once, until the server has had enough.
func flood(p *servertest.Peer, one func(w *http2.Framer)) {
	for sent, taken := 0, true; sent < frames/crowd && taken; sent += 100 {
		taken = p.Write(func(w *http2.Framer) {
			for range 100 {
				one(w)
			}
		})
	}
}

// write sends a text to a server that may have had enough.
func write(conn net.Conn, text string) bool {
	_ = conn.SetWriteDeadline(time.Now().Add(time.Second)) // TCP connections take deadlines
	_, err := io.WriteString(conn, text)
	return err == nil
}

var zippedHeader = hpack.HeaderField{Name: "grpc-encoding", Value: "gzip"}

// packed returns so many zeros, packed.
func packed(size int) []byte {
	var b bytes.Buffer
	w := gzip.NewWriter(&b)
	_, _ = w.Write(make([]byte, size)) // into memory
	_ = w.Close()
	return b.Bytes()
}

// hostOf returns the address of a URL.
func hostOf(url string) string { return strings.TrimPrefix(url, "http://") }

// release closes all connections.
func (a *assault) release() {
	for _, conn := range a.conns {
		_ = conn.Close()
	}
}

const (
	decompose = ckdv1.UncertaintyService_Decompose_FullMethodName
	streaming = ckdv1.UncertaintyService_DecomposeStream_FullMethodName
)

// attacks returns the table of attacks.
func attacks() []attack {
	const inputs, passes = 400, 30
	request, err := proto.Marshal(&ckdv1.DecomposeRequest{
		Model: "fetal-health", Layout: ckdv1.Layout_LAYOUT_NSK, Inputs: inputs, Passes: passes, ValuesLe: rowsOf(inputs*passes, 3),
		Detail: ckdv1.Detail_DETAIL_FULL, // so that the reply is large, too
	})
	if err != nil {
		panic(err) // all of it stands above
	}
	header, err := proto.Marshal(&ckdv1.DecomposeStreamRequest{Message: &ckdv1.DecomposeStreamRequest_Header{Header: &ckdv1.StreamHeader{Model: "fetal-health"}}})
	if err != nil {
		panic(err)
	}
	unread := append(servertest.Message(false, len(header), header), bytes.Repeat(servertest.Message(false, 100, make([]byte, 100)), 1<<13)...)
	zeros := packed(64 << 20)
	half := servertest.Message(false, abuseMessage, make([]byte, abuseMessage-1))
	calls := func(p *servertest.Peer) {
		for range abuseCalls / crowd {
			id := p.Open(decompose)
			p.Send(id, servertest.Message(false, len(request), request), 16<<10)
			p.Write(func(w *http2.Framer) { _ = w.WriteData(id, true, nil) })
		}
	}
	bare := func(method string) func(*assault) {
		return func(a *assault) {
			a.crowd(func(p *servertest.Peer) {
				for range 1000 {
					p.Open(method)
				}
			})
		}
	}
	get := "GET /metrics HTTP/1.1\r\nHost: localhost\r\n" + authorized
	post := func(path string) string {
		return "POST " + path + " HTTP/1.1\r\nHost: localhost\r\n" + authorized + "Content-Type: application/json\r\nContent-Length: 200000\r\n\r\n{\"inputs\": "
	}
	all := []attack{
		{"tiny DATA frames", overGRPC, func(a *assault) {
			a.crowd(func(p *servertest.Peer) { p.Send(p.Open(streaming), half[:frames/crowd], 1) })
		}},
		{"half messages on streams", overGRPC, func(a *assault) {
			a.crowd(func(p *servertest.Peer) {
				a.sideBySide(abuseStreams/crowd, func(int) { p.Send(p.Open(streaming), half, 16<<10) })
			})
		}},
		{"half messages of calls", overGRPC, func(a *assault) {
			a.crowd(func(p *servertest.Peer) {
				a.sideBySide(abuseCalls/crowd, func(int) { p.Send(p.Open(decompose), half, 16<<10) })
			})
		}},
		{"half messages on many connections", overGRPC, func(a *assault) { // 500 MiB
			a.sideBySide(many, func(int) {
				p := a.peer()
				a.sideBySide(20, func(int) { p.Send(p.Open(streaming), half, 16<<10) })
			})
		}},
		{"messages that nobody reads", overGRPC, func(a *assault) {
			a.crowd(func(p *servertest.Peer) {
				a.sideBySide(abuseStreams/crowd, func(int) { p.Send(p.Open(streaming), unread, 16<<10) })
			}, http2.Setting{ID: http2.SettingInitialWindowSize, Val: 0}) // so that the stream waits until its first reply is read
		}},
		{"gzip bombs", overGRPC, func(a *assault) {
			a.crowd(func(p *servertest.Peer) {
				for range 4 {
					p.Send(p.Open(streaming, zippedHeader), servertest.Message(true, len(zeros), zeros), 16<<10)
				}
			})
		}},
		{"bare headers of streams", overGRPC, bare(streaming)},
		{"bare headers of calls", overGRPC, bare(decompose)},
		{"bare headers of health checks", overGRPC, bare(healthv1.Health_Check_FullMethodName)},
		{"bare headers of watches", overGRPC, bare(healthv1.Health_Watch_FullMethodName)},
		{"health checks with a window of 0", overGRPC, func(a *assault) {
			a.crowd(func(p *servertest.Peer) {
				flood(p, func(w *http2.Framer) {
					id := p.Stream()
					_ = w.WriteHeaders(http2.HeadersFrameParam{StreamID: id, BlockFragment: p.Encode(healthv1.Health_Check_FullMethodName), EndHeaders: true})
					_ = w.WriteData(id, true, make([]byte, 5))
				})
			}, http2.Setting{ID: http2.SettingInitialWindowSize, Val: 0})
		}},
		{"refused calls with far deadlines", overGRPC, func(a *assault) {
			far := hpack.HeaderField{Name: "grpc-timeout", Value: "99999999H"}
			a.crowd(func(p *servertest.Peer) {
				for range abuseCalls {
					p.Open(decompose) // take all places
				}
				flood(p, func(w *http2.Framer) {
					_ = w.WriteHeaders(http2.HeadersFrameParam{StreamID: p.Stream(), BlockFragment: p.Encode(decompose, far), EndHeaders: true, EndStream: true})
				})
			})
		}},
		{"window of 0", overGRPC, func(a *assault) {
			a.crowd(calls, http2.Setting{ID: http2.SettingInitialWindowSize, Val: 0})
		}},
		{"replies unread in TCP", overGRPC, func(a *assault) {
			a.sideBySide(crowd, func(int) {
				calls(servertest.Greet(a.dial(), attackerToken, true, http2.Setting{ID: http2.SettingInitialWindowSize, Val: 1 << 30}))
			})
		}},
	}
	for _, of := range []struct {
		name    string
		surface surface
		path    string
	}{{"", overGRPC, streaming}, {" over HTTP", overHTTP, "/v1/models/fetal-health:decompose"}} {
		name, surface, path := of.name, of.surface, of.path
		all = append(all,
			attack{"rapid reset" + name, surface, func(a *assault) {
				a.crowd(func(p *servertest.Peer) {
					flood(p, func(w *http2.Framer) {
						id := p.Stream()
						_ = w.WriteHeaders(http2.HeadersFrameParam{StreamID: id, BlockFragment: p.Encode(path), EndHeaders: true})
						_ = w.WriteRSTStream(id, http2.ErrCodeCancel)
					})
				})
			}},
			attack{"CONTINUATION flood" + name, surface, func(a *assault) {
				a.crowd(func(p *servertest.Peer) {
					id, block := p.Stream(), p.Encode(path)
					p.Write(func(w *http2.Framer) { _ = w.WriteHeaders(http2.HeadersFrameParam{StreamID: id, BlockFragment: block}) })
					// A literal field that never ends.
					filler := append([]byte{0x00, 0x7f, 0x80, 0x80, 0x80, 0x20}, make([]byte, 1<<10)...)
					flood(p, func(w *http2.Framer) { _ = w.WriteContinuation(id, false, filler) })
				})
			}},
			attack{"empty CONTINUATION frames" + name, surface, func(a *assault) {
				a.crowd(func(p *servertest.Peer) {
					id, block := p.Stream(), p.Encode(path)
					p.Write(func(w *http2.Framer) { _ = w.WriteHeaders(http2.HeadersFrameParam{StreamID: id, BlockFragment: block}) })
					flood(p, func(w *http2.Framer) { _ = w.WriteContinuation(id, false, nil) })
				})
			}},
			attack{"HPACK bomb" + name, surface, func(a *assault) {
				a.crowd(func(p *servertest.Peer) {
					huge := hpack.HeaderField{Name: "x", Value: strings.Repeat("x", 4000)}
					p.Open(path, huge)
					for range 100 { // a byte for each of 4000
						block := append(p.Encode(path), slices.Repeat([]byte{0x80 | 62}, 15_000)...)
						id := p.Stream()
						if !p.Write(func(w *http2.Framer) {
							_ = w.WriteHeaders(http2.HeadersFrameParam{StreamID: id, BlockFragment: block, EndHeaders: true})
						}) {
							return
						}
					}
				})
			}},
			attack{"SETTINGS and PING flood" + name, surface, func(a *assault) {
				a.sideBySide(crowd, func(int) {
					p := servertest.Greet(a.dial(), attackerToken, true)
					flood(p, func(w *http2.Framer) {
						_ = w.WriteSettings()
						_ = w.WritePing(false, [8]byte{})
					})
				})
			}},
			attack{"empty DATA frames" + name, surface, func(a *assault) {
				a.crowd(func(p *servertest.Peer) {
					id := p.Open(path)
					flood(p, func(w *http2.Framer) { _ = w.WriteData(id, false, nil) })
				})
			}},
			attack{"connections without a word" + name, surface, func(a *assault) { a.text(many, "") }},
			attack{"connections that only greet" + name, surface, func(a *assault) { a.text(many, http2.ClientPreface) }},
			attack{"connections without acknowledgement of SETTINGS" + name, surface, func(a *assault) {
				a.text(many, http2.ClientPreface+string(servertest.Frames(func(w *http2.Framer) { _ = w.WriteSettings() })))
			}},
		)
	}
	slow := func(texts ...string) func(a *assault) { // byte by byte
		return func(a *assault) {
			a.sideBySide(many, func(i int) {
				conn := a.dial()
				for _, b := range []byte(texts[i%len(texts)]) {
					if !write(conn, string(b)) {
						return
					}
				}
			})
		}
	}
	return append(all,
		attack{"greetings byte by byte", overGRPC, slow(http2.ClientPreface[:20])},
		attack{"headers and bodies byte by byte over HTTP", overHTTP, slow("GET /v2 HTTP/1.1\r\nHost: localhost\r\nX: y", post("/v1/models/fetal-health:decompose"))},
		attack{"half bodies over HTTP", overHTTP, func(a *assault) {
			a.text(many, post("/v1/models/fetal-health:decompose")+strings.Repeat(" ", 190_000))
		}},
		attack{"headers and bodies byte by byte of the admin", overAdmin, slow(get, post("/triage/outcome"))},
		attack{"huge headers of the admin", overAdmin, func(a *assault) { a.text(many, get+"X: "+strings.Repeat("x", 1<<20)) }},
		attack{"scrapes unread of the admin", overAdmin, func(a *assault) { a.text(many, strings.Repeat(get+"\r\n", 50)) }},
	)
}

// standing is a server that is attacked, with a client of it that behaves.
type standing struct {
	*daemon
	patience time.Duration // of the client, for each answer
	calls    ckdv1.UncertaintyServiceClient
	health   healthv1.HealthClient
	stream   ckdv1.UncertaintyService_DecomposeStreamClient
	ctx      context.Context // with who the client is
	group    uint64
	call     *ckdv1.DecomposeRequest
	wants    map[string]proto.Message // what the client is to be answered
}

// Tokens of the client and of those who attack.
const (
	clientToken   = "client-0123456789abcdef"
	attackerToken = "attacker-0123456789abcdef"
	authorized    = "Authorization: Bearer " + attackerToken + "\r\n"
)

// inContainer returns a command whose process has the memory of a container: in a cgroup where one can be
// made, and by Go's limit alone elsewhere.
func inContainer(t *testing.T, name string, args ...string) *exec.Cmd {
	t.Helper()
	command := exec.Command(name, args...)
	command.Env = append(command.Environ(), fmt.Sprintf("GOMEMLIMIT=%d", abuseMemory/10*9))
	for _, kind := range cgroups {
		if group, err := kind.make(t, abuseMemory); err == nil {
			enter(command, group)
			break
		}
	}
	return command
}

// standCKD starts a daemon with identities whose limits leave room for the client.
func standCKD(t *testing.T) *standing {
	t.Helper()
	access := filepath.Join(t.TempDir(), "access.yaml")
	text := fmt.Sprintf(`identities:
- {name: client, tokens: [{sha256: %x}], models: ["*"], streams: 2, calls: 2}
- {name: attacker, tokens: [{sha256: %x}], models: ["*"], streams: %d, calls: %d, watches: %d}
`, sha256.Sum256([]byte(clientToken)), sha256.Sum256([]byte(attackerToken)), abuseStreams-2, abuseCalls-2, abuseStreams-2)
	if err := os.WriteFile(access, []byte(text), 0o600); err != nil {
		t.Fatal(err)
	}
	command := inContainer(t, ckd, "serve", "--policy", writePolicy(t, policyText), "--access", access,
		"--listen", "127.0.0.1:0", "--admin", "127.0.0.1:0", "--http", "127.0.0.1:0",
		"--max-open-bytes", fmt.Sprint(abuseOpen), "--max-message-bytes", fmt.Sprint(abuseMessage),
		"--max-streams", fmt.Sprint(abuseStreams), "--max-connections", fmt.Sprint(abuseConnections))
	return newStanding(t, testbed.Start(t, command, 1), hang)
}

// standIdiomatic starts a server of few lines, whose client waits for few seconds.
func standIdiomatic(t *testing.T) *standing {
	t.Helper()
	command := inContainer(t, os.Args[0])
	command.Env = append(command.Env, roleEnv+"=idiomatic")
	return newStanding(t, testbed.StartUntil(t, command, func(d *testbed.Daemon) bool { return len(d.GRPC) > 0 }), 5*time.Second)
}

func newStanding(t *testing.T, d *testbed.Daemon, patience time.Duration) *standing {
	t.Helper()
	s := &standing{daemon: &daemon{d, t}, patience: patience, call: tensorOf(t, 4), wants: map[string]proto.Message{}}
	s.ctx = metadata.AppendToOutgoingContext(t.Context(), "authorization", "Bearer "+clientToken)
	conn := s.dial()
	s.calls, s.health = ckdv1.NewUncertaintyServiceClient(conn), healthv1.NewHealthClient(conn)
	if err := s.ask(); err != nil {
		t.Fatal(err)
	}
	return s
}

// lives reports whether the server's process goes on.
func (s *standing) lives() bool {
	select {
	case <-s.Exited:
		return false
	default:
		return true
	}
}

// ask has the client call once and send a group on its stream. The answers must be those that it was
// given first.
func (s *standing) ask() error {
	ctx, cancel := context.WithTimeout(s.ctx, s.patience)
	defer cancel()
	answer, err := s.calls.Decompose(ctx, s.call)
	if err != nil {
		return err
	}
	s.isAnswered("call", answer)
	if s.stream == nil {
		if s.stream, err = s.calls.DecomposeStream(s.ctx); err != nil {
			return err
		}
		if err := s.stream.Send(streamOf("fetal-health")); err != nil {
			return err
		}
		if _, err := s.stream.Recv(); err != nil {
			s.stream = nil
			return err
		}
	}
	s.group++
	reply := make(chan error, 1)
	go func(stream ckdv1.UncertaintyService_DecomposeStreamClient) {
		if err := stream.Send(block(s.group, 4, 5, true)); err != nil {
			reply <- err
			return
		}
		answer, err := stream.Recv()
		for _, r := range answer.GetResults() {
			if r.GetError() != nil {
				err = fmt.Errorf("an input is refused: %v", r.GetError())
			}
			r.Group = 0
		}
		if err == nil {
			s.isAnswered("stream", answer)
		}
		reply <- err
	}(s.stream)
	select {
	case err = <-reply:
	case <-ctx.Done():
		err = ctx.Err()
	}
	if err != nil {
		s.stream = nil
	}
	return err
}

// isAnswered checks that the client is answered as it was first.
func (s *standing) isAnswered(on string, answer proto.Message) {
	if want, known := s.wants[on]; !known {
		s.wants[on] = answer
	} else if !proto.Equal(answer, want) {
		s.t.Errorf("the client's %s is answered with %v, want %v", on, answer, want)
	}
}

// resident returns the resident memory of the server's process in bytes; 0 if it has ended.
func (s *standing) resident() (bytes int64) {
	text, _ := os.ReadFile(fmt.Sprintf("/proc/%d/status", s.Process.Process.Pid)) // none where it has ended
	_, after, _ := strings.Cut(string(text), "VmRSS:")
	_, _ = fmt.Sscan(after, &bytes)
	return bytes << 10
}

// asks is how often the client asks during an attack.
const asks = 20

// figures are what was measured of an attack on a server.
type figures struct {
	peak     int64 // resident bytes at most
	answered int   // of asks
	died     bool
	last     error // why the client was not answered
}

func (f *figures) String() string {
	switch {
	case f == nil:
		return "-\t-"
	case f.died:
		return fmt.Sprintf("%d\tdied", f.peak>>20)
	}
	return fmt.Sprintf("%d\t%d", f.peak>>20, f.answered)
}

// withstand runs an attack while the client asks, and returns what it found.
func (s *standing) withstand(a attack) *figures {
	s.t.Helper()
	f, at, over := &figures{}, &assault{address: s.surfaces()[a.surface]}, make(chan struct{})
	var attack sync.WaitGroup
	attack.Go(func() { a.run(at) })
	go func() {
		attack.Wait()
		close(over)
	}()
	watched, stop := make(chan struct{}), make(chan struct{})
	go func() {
		defer close(watched)
		for tick := time.NewTicker(10 * time.Millisecond); ; {
			select {
			case <-stop:
				return
			case <-tick.C:
				f.peak = max(f.peak, s.resident())
			}
		}
	}()
	for range asks {
		if err := s.ask(); err != nil {
			f.last = err
		} else {
			f.answered++
		}
		time.Sleep(20 * time.Millisecond)
	}
	<-over
	close(stop)
	<-watched
	f.died = !s.lives()
	at.release()
	if at.unopened != nil && !f.died {
		s.t.Error(at.unopened)
	}
	return f
}

// TestAbuse attacks a daemon in all the ways of the table, one after the other, and an idiomatic server
// of few lines too. The daemon must live in the memory of a small container, answer nothing wrongly, and
// answer all that a client within the limits of its identity asks. Afterwards nothing may be left.
func TestAbuse(t *testing.T) {
	timed.Long(t)
	s, other := standCKD(t), standIdiomatic(t)
	goroutines, descriptors := s.gauge("go_goroutines"), s.gauge("process_open_fds")
	rows := "attack\tckd: MiB\tanswered of 20\tidiomatic: MiB\tanswered of 20\n"
	for _, a := range attacks() {
		f := s.withstand(a)
		var beside *figures
		if a.surface == overGRPC {
			if beside = other.withstand(a); beside.died {
				other = standIdiomatic(t)
			}
		}
		rows += fmt.Sprintf("%s\t%v\t%v\n", a.name, f, beside)
		if f.died {
			t.Fatalf("%s: the daemon died", a.name)
		}
		if f.answered != asks {
			t.Errorf("%s: the client was answered %d of %d times: %v", a.name, f.answered, asks, f.last)
		}
		if code, text, _ := s.Get("/livez"); code != http.StatusOK {
			t.Errorf("%s: /livez: %d %s", a.name, code, text)
		}
		if _, err := s.health.Check(inTime(t), &healthv1.HealthCheckRequest{}); err != nil {
			t.Errorf("%s: a health check: %v", a.name, err)
		}
		for name, most := range map[string]float64{
			"ckd_inputs_open": 0, "go_goroutines": goroutines + 10, "process_open_fds": descriptors + 10,
		} {
			s.fallsTo(name, most)
		}
		for resource, most := range map[string]float64{"open_bytes": 0, "calls": 0, "watches": 0, "streams": 1} {
			s.fallsTo("ckd_in_use", most, "resource", resource)
		}
	}
	if strings.Contains(s.Log(), "panic") {
		t.Error("a panic")
	}
	var table strings.Builder
	w := tabwriter.NewWriter(&table, 0, 0, 2, ' ', 0)
	fmt.Fprint(w, rows)
	_ = w.Flush() // a buffer takes everything
	t.Logf("\n%s", table.String())
}

// tensorOf returns a request with some inputs of a recording.
func tensorOf(t *testing.T, inputs int) *ckdv1.DecomposeRequest {
	t.Helper()
	values, n, s, _ := readRecording(t, "ctg-mcdropout", inputs)
	return &ckdv1.DecomposeRequest{Model: "fetal-health", Inputs: uint32(n), Passes: uint32(s), Layout: ckdv1.Layout_LAYOUT_NSK, Values: values}
}

// rowsOf returns different rows of so many classes.
func rowsOf(rows, classes int) []byte {
	var raw []byte
	for r := range rows {
		for k := range classes {
			v := 1 / float32(classes)
			if k/2*2+1 < classes { // one of a pair of classes
				v *= 1 + float32(1-2*(k%2))*float32((r*7+k/2*13)%31)/40
			}
			raw = binary.LittleEndian.AppendUint32(raw, math.Float32bits(v))
		}
	}
	return raw
}

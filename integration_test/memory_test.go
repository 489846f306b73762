package integration_test

import (
	"fmt"
	"os"
	"os/exec"
	"path/filepath"
	"slices"
	"strings"
	"sync"
	"testing"
	"time"

	"golang.org/x/net/http2/hpack"
	"google.golang.org/grpc/codes"
	healthv1 "google.golang.org/grpc/health/grpc_health_v1"
	"google.golang.org/grpc/status"

	"github.com/ckd-project/ckd/integration_test/testbed"
	"github.com/ckd-project/ckd/internal/timed"
	ckdv1 "github.com/ckd-project/ckd/proto/ckd/v1"
)

// A memoryAttack makes a daemon with a memory limit hold far more than that, unless it defends itself.
type memoryAttack struct {
	limit    int64
	streams  int // on each of two connections
	encoding []hpack.HeaderField
	run      func(*peer, uint32)
	ends     bool // connections must be ended
}

// attackedOpenBytes is the budget of attacked daemons, so large that the memory limit alone
// protects them.
const attackedOpenBytes = 256 << 20

// attacked returns the command of such a daemon.
func attacked(t *testing.T) *exec.Cmd {
	t.Helper()
	return exec.Command(ckd, "serve", "--policy", writePolicy(t, policyText), "--listen", "127.0.0.1:0", "--admin", "127.0.0.1:0",
		"--max-message-bytes", fmt.Sprint(16<<20), "--max-open-bytes", fmt.Sprint(attackedOpenBytes))
}

// halfMessages are messages that never end: 2 x 30 halves of 12 MiB are 720 MiB.
func halfMessages(limit int64) memoryAttack {
	half := message(false, 16<<20-1, make([]byte, 12<<20))
	return memoryAttack{limit, 30, nil, func(p *peer, id uint32) { p.send(id, half, 16<<10) }, true}
}

// TestMemoryLimit attacks daemons that have a memory limit, with messages that never end and with
// messages that unpack to far more than they are.
func TestMemoryLimit(t *testing.T) {
	timed.Full(t)
	zeros := packed(16<<20 - 1000)
	for name, a := range map[string]memoryAttack{
		"half messages": halfMessages(200 << 20),
		// 2 x 1 MiB in frames of a byte are up to 84 MiB.
		"tiny frames": {64 << 20, 1, nil, func(p *peer, id uint32) { p.send(id, message(false, 16<<20-1, make([]byte, 1<<20)), 1) }, false},
		// 2 x 30 of 16 KB unpack to 960 MiB.
		"gzip bombs": {200 << 20, 30, []hpack.HeaderField{zippedHeader}, func(p *peer, id uint32) { p.send(id, message(true, len(zeros), zeros), 16<<10) }, false},
	} {
		t.Run(name, func(t *testing.T) {
			command := attacked(t)
			command.Env = append(command.Environ(), fmt.Sprintf("GOMEMLIMIT=%d", a.limit))
			survives(t, &daemon{testbed.Start(t, command, 1), t}, a)
		})
	}
}

// survives attacks a daemon. What lives must stay below the limit, a client that behaves must be served
// again, and nothing may be held in the end.
func survives(t *testing.T, d *daemon, a memoryAttack) {
	t.Helper()
	conn := d.dial()
	victim := ckdv1.NewUncertaintyServiceClient(conn)
	served := func() error {
		_, err := victim.Decompose(inTime(t), tensorOf(t, 8))
		return err
	}
	if err := served(); err != nil {
		t.Fatal(err)
	}
	var attackers []*peer
	var attacks sync.WaitGroup
	for range 2 {
		p := connect(t, d.GRPC[0], false)
		attackers = append(attackers, p)
		for range a.streams {
			id := p.open(ckdv1.UncertaintyService_DecomposeStream_FullMethodName, a.encoding...)
			attacks.Go(func() { a.run(p, id) })
		}
	}
	over := make(chan struct{})
	go func() {
		attacks.Wait()
		close(over)
	}()
	most, resident, answered, refused := 0.0, 0.0, 0, 0
	look := func() {
		t.Helper()
		most = max(most, d.gauge("ckd_memory_pressure"))
		resident = max(resident, d.gauge("process_resident_memory_bytes"))
		switch err := served(); status.Code(err) {
		case codes.OK:
			answered++
		case codes.ResourceExhausted:
			refused++
		default:
			t.Fatalf("the victim: %v", err)
		}
		if _, err := healthv1.NewHealthClient(conn).Check(inTime(t), &healthv1.HealthCheckRequest{}); err != nil {
			t.Errorf("a probe: %v", err)
		}
		if code, _, _ := d.Get("/livez"); code != 200 {
			t.Errorf("/livez says %d", code)
		}
	}
	for running := true; running; {
		select {
		case <-over:
			running = false
		case <-time.After(10 * time.Millisecond):
		}
		look()
	}
	t.Logf("pressure at most %.2f; the victim: %d answered, %d refused; ended: %v; resident %.0f MiB",
		most, answered, refused, d.gauge("ckd_connections_ended_total", "reason", "memory"), resident/(1<<20))
	if ended := d.gauge("ckd_connections_ended_total", "reason", "memory"); a.ends && ended == 0 {
		t.Error("no connection was ended")
	}
	// How far the limit is overshot between two looks at the memory is for the clock to say. That
	// unpacking ends where clients hold max-open-bytes is not.
	if resident > float64(a.limit+attackedOpenBytes) {
		t.Errorf("%.0f MiB are resident, with a limit of %d MiB and %d MiB of open bytes", resident/(1<<20), a.limit>>20, attackedOpenBytes>>20)
	}
	eventually(t, "the victim is served again", func() bool { look(); return served() == nil })
	for _, p := range attackers {
		_ = p.conn.Close()
	}
	d.fallsTo("ckd_in_use", 0, "resource", "open_bytes") // buffers that were lost wait for the next collection
	if err := served(); err != nil {
		t.Errorf("the victim afterwards: %v", err)
	}
	if strings.Contains(d.Log(), "panic") {
		t.Error("a panic")
	}
}

// TestContainerMemory attacks a daemon in a cgroup, as a container is. The daemon once read the
// cgroup's limit after it had made its memory guard, which was off in every container: the kernel
// killed it.
func TestContainerMemory(t *testing.T) {
	timed.Full(t)
	const memory = 240 << 20
	for _, kind := range cgroups {
		t.Run(kind.name, func(t *testing.T) {
			group, err := kind.make(t, memory)
			if err != nil {
				t.Skip(err)
			}
			a := halfMessages(memory / 10 * 9)
			inner := filepath.Join(group, "inner")
			if err := os.Mkdir(inner, 0o755); err != nil {
				t.Fatal(err)
			}
			t.Cleanup(func() { eventually(t, "the cgroup is empty", func() bool { return os.Remove(inner) == nil }) })
			startIn := func(group string) *daemon {
				command := attacked(t)
				enter(command, group)
				command.Env = slices.DeleteFunc(command.Environ(), func(v string) bool { return strings.HasPrefix(v, "GOMEMLIMIT=") })
				d := &daemon{testbed.Start(t, command, 1), t}
				if !strings.Contains(d.Log(), fmt.Sprintf(`"limit_bytes":%d,`, a.limit)) {
					t.Errorf("the log does not name the limit of %d bytes", a.limit)
				}
				return d
			}
			startIn(inner).Stop() // with the limit of the cgroup around it, as that of a pod
			d := startIn(group)
			survives(t, d, a)
			if _, on := d.Metrics()["ckd_memory_pressure"]; !on {
				t.Error("no series ckd_memory_pressure")
			}
		})
	}
}

// tensorOf returns a request with some inputs of a recording.
func tensorOf(t *testing.T, inputs int) *ckdv1.DecomposeRequest {
	t.Helper()
	values, n, s, k := readRecording(t, "ctg-mcdropout", inputs)
	_ = k
	return &ckdv1.DecomposeRequest{Model: "fetal-health", Inputs: uint32(n), Passes: uint32(s), Layout: ckdv1.Layout_LAYOUT_NSK, Values: values}
}

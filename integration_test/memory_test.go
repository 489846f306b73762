package integration_test

import (
	"fmt"
	"os"
	"os/exec"
	"path/filepath"
	"slices"
	"strings"
	"testing"

	"github.com/ckd-project/ckd/integration_test/testbed"
	"github.com/ckd-project/ckd/internal/servertest"
	"github.com/ckd-project/ckd/internal/timed"
)

// TestContainerMemory attacks a daemon in a cgroup, as a container is, with messages that never end and a
// budget far above the limit: the memory guard alone protects it. The daemon once read the cgroup's limit
// after it had made its guard, which was off in every container: the kernel killed it.
func TestContainerMemory(t *testing.T) {
	timed.Full(t)
	const memory = 240 << 20
	half := servertest.Message(false, 16<<20-1, make([]byte, 12<<20))
	halves := attack{"half messages", overGRPC, func(a *assault) { // 2 x 30 of 12 MiB are 720 MiB
		a.sideBySide(2, func(int) {
			p := a.peer()
			a.sideBySide(30, func(int) { p.Send(p.Open(streaming), half, 16<<10) })
		})
	}}
	for _, kind := range cgroups {
		t.Run(kind.name, func(t *testing.T) {
			group, err := kind.make(t, memory)
			if err != nil {
				t.Skipf("no cgroups of this kind can be made: %v", err)
			}
			inner := filepath.Join(group, "inner")
			if err := os.Mkdir(inner, 0o755); err != nil {
				t.Fatal(err)
			}
			t.Cleanup(func() { eventually(t, "the cgroup is empty", func() bool { return os.Remove(inner) == nil }) })
			startIn := func(group string) *testbed.Daemon {
				command := exec.Command(ckd, "serve", "--policy", writePolicy(t, policyText), "--listen", "127.0.0.1:0", "--admin", "127.0.0.1:0",
					"--max-message-bytes", fmt.Sprint(16<<20), "--max-open-bytes", fmt.Sprint(256<<20))
				enter(command, group)
				command.Env = slices.DeleteFunc(command.Environ(), func(v string) bool { return strings.HasPrefix(v, "GOMEMLIMIT=") })
				d := testbed.Start(t, command, 1)
				if limit := memory / 10 * 9; !strings.Contains(d.Log(), fmt.Sprintf(`"limit_bytes":%d,`, limit)) {
					t.Errorf("the log does not name the limit of %d bytes", limit)
				}
				return d
			}
			startIn(inner).Stop() // with the limit of the cgroup around it, as that of a pod
			s := newStanding(t, startIn(group), hang)
			f := s.withstand(halves)
			t.Logf("MiB, answered of %d: %v", asks, f)
			if f.died {
				t.Fatal("the daemon died")
			}
			if s.gauge("ckd_connections_ended_total", "reason", "memory") == 0 {
				t.Error("no connection was ended")
			}
			eventually(t, "the client is served again", func() bool { return s.ask() == nil })
			s.fallsTo("ckd_in_use", 0, "resource", "open_bytes")
			if _, on := s.Metrics()["ckd_memory_pressure"]; !on || strings.Contains(s.Log(), "panic") {
				t.Error("no series ckd_memory_pressure, or a panic")
			}
		})
	}
}

package integration_test

import (
	"bufio"
	"io"
	"net/http"
	"os/exec"
	"path/filepath"
	"slices"
	"strconv"
	"strings"
	"testing"

	"golang.org/x/sys/unix"
	"google.golang.org/grpc/codes"

	"github.com/ckd-project/ckd/integration_test/testbed"
	ckdv1 "github.com/ckd-project/ckd/proto/ckd/v1"
)

// TestLedgerCannotWrite lets the disk of a running ledger fail. What was answered before stays, what
// comes meanwhile is refused, the daemon decides on, and afterwards the same outcomes can be sent again;
// none counts twice.
func TestLedgerCannotWrite(t *testing.T) {
	t.Parallel()
	for name, begin := range map[string]func(*testing.T, int) (end func()){
		"file size limit": limitFiles,
		"fdatasync fails": injectErrors("fdatasync"),
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			f := newLedgered(t)
			listen := "unix:" + filepath.Join(t.TempDir(), "s")
			d := f.serve(t, listen, "--ledger", f.ledger)
			reviewed, outcomes := outcomesOf(f.stream(t, d, "i", 500))
			c := f.dial(t, d)
			report := func(some []*ckdv1.Outcome) error {
				answer, err := c.Outcomes().ReportOutcomes(inTime(t), &ckdv1.ReportOutcomesRequest{Outcomes: some})
				if slices.ContainsFunc(answer.GetAnswers(), func(a *ckdv1.OutcomeAnswer) bool { return a.GetError() != nil }) {
					t.Errorf("refused: %v", answer)
				}
				return err
			}
			third := len(outcomes) / 3
			if err := report(outcomes[:third]); err != nil {
				t.Fatal(err)
			}
			end := begin(t, d.Process.Process.Pid)
			for range 2 {
				if err := report(outcomes[third : 2*third]); !isRefusal(err, codes.Unavailable, ckdv1.ErrorReason_ERROR_REASON_LEDGER_UNAVAILABLE) {
					t.Errorf("while nothing can be written: %v", err)
				}
			}
			d.says("the outcomes are not stored")
			if code, text, _ := d.Get("/livez"); code != http.StatusOK {
				t.Errorf("/livez: %d %s", code, text)
			}
			if _, err := ckdv1.NewUncertaintyServiceClient(d.dial()).Decompose(inTime(t), tensorOf(t, 1)); err != nil {
				t.Errorf("a decision meanwhile: %v", err)
			}
			end()
			for _, some := range [][]*ckdv1.Outcome{outcomes[third : 2*third], outcomes[2*third:]} {
				if err := report(some); err != nil {
					t.Errorf("afterwards: %v", err)
				}
			}
			if err := d.Process.Process.Kill(); err != nil {
				t.Fatal(err)
			}
			<-d.Exited
			f.expectMissRate(t, f.serve(t, listen, "--ledger", f.ledger), reviewed)
		})
	}
}

// limitFiles lets a process write nothing beyond the first KiB of any file.
func limitFiles(t *testing.T, pid int) (end func()) {
	t.Helper()
	var before unix.Rlimit
	if err := unix.Prlimit(pid, unix.RLIMIT_FSIZE, nil, &before); err != nil {
		t.Fatal(err)
	}
	set := func(most uint64) {
		if err := unix.Prlimit(pid, unix.RLIMIT_FSIZE, &unix.Rlimit{Cur: most, Max: before.Max}, nil); err != nil {
			t.Fatal(err)
		}
	}
	set(1 << 10)
	return func() { set(before.Cur) }
}

// injectErrors lets a system call of a process fail.
func injectErrors(call string) func(*testing.T, int) func() {
	return func(t *testing.T, pid int) (end func()) {
		t.Helper()
		c := exec.CommandContext(inTime(t), testbed.Program(t, "strace", "STRACE"), "-f", "-e", "trace="+call, "-e", "inject="+call+":error=EIO",
			"-p", strconv.Itoa(pid))
		says, err := c.StderrPipe()
		if err != nil {
			t.Fatal(err)
		}
		if err := c.Start(); err != nil {
			t.Fatal(err)
		}
		lines := bufio.NewReader(says)
		first, _ := lines.ReadString('\n')
		if !strings.Contains(first, "attached") {
			_ = c.Wait()
			testbed.Lacks(t, "strace may not trace: %s", first)
		}
		go func() { _, _ = io.Copy(io.Discard, lines) }() // or it would block
		return func() {
			_ = c.Process.Signal(unix.SIGINT) // it detaches
			_ = c.Wait()                      // its exit code says that it was interrupted
		}
	}
}

package ledger_test

import (
	"bufio"
	"encoding/json"
	"fmt"
	"math/rand/v2"
	"os"
	"os/exec"
	"testing"
	"time"

	"github.com/ckd-project/ckd/internal/outcome/ledger"
	"github.com/ckd-project/ckd/internal/outcome/outcometest"
	"github.com/ckd-project/ckd/internal/outcome/receipt"
	"github.com/ckd-project/ckd/internal/outcome/truth"
)

// childDir names the ledger of a process that TestKill starts, which is this binary again.
const childDir = "CKD_TEST_LEDGER_DIR"

// TestMain runs the child of TestKill, or the tests.
func TestMain(m *testing.M) {
	if dir := os.Getenv(childDir); dir != "" {
		if err := reportForever(dir); err != nil {
			fmt.Fprintln(os.Stderr, err)
			os.Exit(1)
		}
		return
	}
	os.Exit(m.Run())
}

// childBatch is what the child sends in one call. Batches repeat each other in part.
type childBatch struct{ Outcomes []ledger.Outcome }

// reportForever reports the batches that it reads, and writes a line for each that is acknowledged.
// Between batches it asks for the state, which merges what has gathered.
func reportForever(dir string) error {
	b := &bench{dir: dir, now: day0.Add(24 * time.Hour)}
	var err error
	if b.keys, err = receipt.ParseKeys("keys", []byte(outcometest.Key)); err != nil {
		return err
	}
	l, err := ledger.Open(dir, b.withClock(ledger.Options{}))
	if err != nil {
		return err
	}
	stdin := json.NewDecoder(bufio.NewReader(os.Stdin))
	for n := 0; ; n++ {
		var batch childBatch
		if err := stdin.Decode(&batch); err != nil {
			return err
		}
		answers, err := l.Report("child", batch.Outcomes)
		if err != nil {
			return err
		}
		for _, a := range answers {
			if !a.Stored() {
				return fmt.Errorf("batch %d: %+v", n, a)
			}
		}
		fmt.Println(n)
		if n%3 == 0 {
			if _, err := l.States(); err != nil {
				return err
			}
		}
	}
}

// TestKill kills a process with SIGKILL while it writes, again and again: whatever it acknowledged is
// there, and nothing twice.
func TestKill(t *testing.T) {
	rounds := 12
	if testing.Short() {
		rounds = 4
	}
	b := openBench(t, ledger.Options{})
	if err := b.Close(); err != nil {
		t.Fatal(err)
	}
	rng := rand.New(rand.NewPCG(3, 4))
	var (
		acknowledged = map[string]bool{} // receipts
		all          []ledger.Outcome
	)
	for range rounds {
		all = b.killed(rng, all, acknowledged)
		b.open()
		found := map[string]int{}
		count := 0
		err := b.Walk(func(d *truth.Decision) error {
			found[string(d.ID[:])]++
			if len(d.Readings) != 1 {
				return fmt.Errorf("%d readings, want 1", len(d.Readings))
			}
			count++
			return nil
		})
		if err != nil {
			t.Fatal(err)
		}
		for sealed := range acknowledged {
			_, id, err := b.keys.Open([]byte(sealed))
			if err != nil {
				t.Fatal(err)
			}
			if found[string(id[:])] != 1 {
				t.Fatalf("an acknowledged outcome is there %d times, want once", found[string(id[:])])
			}
		}
		if s := b.state(); s.Provisional.Decided != uint64(count) || count != len(found) {
			t.Errorf("%d decided, %d records of %d decisions", s.Provisional.Decided, count, len(found))
		}
		if err := b.Close(); err != nil {
			t.Fatal(err)
		}
	}
	t.Logf("%d outcomes acknowledged in %d lives", len(acknowledged), rounds)
	b.open()
}

// killed runs a child until it has acknowledged some batches, kills it while it goes on, and returns
// all outcomes that were sent.
func (b *bench) killed(rng *rand.Rand, all []ledger.Outcome, acknowledged map[string]bool) []ledger.Outcome {
	b.Helper()
	child := exec.Command(os.Args[0])
	child.Env = append(os.Environ(), childDir+"="+b.dir)
	child.Stderr = os.Stderr
	stdin, err := child.StdinPipe()
	if err != nil {
		b.Fatal(err)
	}
	out, err := child.StdoutPipe()
	if err != nil {
		b.Fatal(err)
	}
	if err := child.Start(); err != nil {
		b.Fatal(err)
	}
	const batches = 40
	sent := make([]childBatch, batches)
	for i := range sent {
		for range 1 + rng.IntN(60) {
			o := ledger.Outcome{Receipt: b.seal(receiptAt(deferred(), day0.Add(time.Duration(rng.IntN(86400))*time.Second))), Truth: "a",
				Source: "ann", At: day0.Add(24 * time.Hour)}
			if len(all) > 0 && rng.IntN(4) == 0 {
				o = all[rng.IntN(len(all))]
			}
			sent[i].Outcomes = append(sent[i].Outcomes, o)
			all = append(all, o)
		}
	}
	go func() { // ends with the child, whose death breaks the pipe
		e := json.NewEncoder(stdin)
		for i := range sent {
			if e.Encode(&sent[i]) != nil {
				return
			}
		}
	}()
	lines := bufio.NewScanner(out)
	last := rng.IntN(batches - 1)
	for lines.Scan() {
		var n int
		if _, err := fmt.Sscan(lines.Text(), &n); err != nil {
			b.Fatal(err)
		}
		for _, o := range sent[n].Outcomes {
			acknowledged[string(o.Receipt)] = true
		}
		if n == last {
			time.AfterFunc(time.Duration(rng.IntN(3000))*time.Microsecond, func() { _ = child.Process.Kill() })
		}
	}
	_ = child.Wait() // killed
	return all
}

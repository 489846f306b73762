package integration_test

import (
	"bytes"
	"flag"
	"fmt"
	"math/rand/v2"
	"net"
	"net/http"
	"slices"
	"strings"
	"syscall"
	"testing"
	"text/tabwriter"
	"time"

	"google.golang.org/grpc"
	"google.golang.org/grpc/codes"
	healthv1 "google.golang.org/grpc/health/grpc_health_v1"

	"github.com/ckd-project/ckd/internal/timed"
	ckdv1 "github.com/ckd-project/ckd/proto/ckd/v1"
)

var soak = flag.Duration("soak", 3*time.Second, "how long TestSoak goes on")

// TestStopWithHeldStreams sends SIGTERM. An idle stream ends at once, one with open inputs when
// they are answered, and a stuck one with the grace. All end with DRAINING, and the exit code is 0,
// whatever else clients hold open.
func TestStopWithHeldStreams(t *testing.T) {
	t.Parallel()
	d := serveSite(t, "--shutdown-grace", "1s", "--input-idle-timeout", "1h")
	h := hold(t, d)
	for _, address := range []string{d.GRPC[0], strings.TrimPrefix(d.Admin, "http://"), strings.TrimPrefix(d.HTTP, "http://")} {
		silent, err := net.Dial("tcp", address)
		if err != nil {
			t.Fatal(err)
		}
		defer silent.Close()
	}
	watch, err := healthv1.NewHealthClient(h.conn).Watch(t.Context(), &healthv1.HealthCheckRequest{})
	if err != nil {
		t.Fatal(err)
	}
	if _, err := watch.Recv(); err != nil {
		t.Fatal(err)
	}
	exit, asked := make(chan int, 1), time.Now()
	go func() { exit <- d.Stop() }()
	if err := h.end("idle"); !isRefusal(err, codes.Unavailable, ckdv1.ErrorReason_ERROR_REASON_DRAINING) {
		t.Errorf("idle: %v", err)
	}
	if err := h.streams["busy"].Send(further(1, 2, true)); err != nil {
		t.Fatal(err)
	}
	if reply, err := h.streams["busy"].Recv(); err != nil || len(reply.GetResults()) != 2 || reply.GetResults()[0].GetDecomposition() == nil {
		t.Errorf("busy: %v, %v", reply, err)
	}
	for _, name := range []string{"busy", "stuck"} {
		if err := h.end(name); !isRefusal(err, codes.Unavailable, ckdv1.ErrorReason_ERROR_REASON_DRAINING) {
			t.Errorf("%s: %v", name, err)
		}
	}
	if code := <-exit; code != 0 {
		t.Errorf("exit code %d", code)
	}
	// Only the end of the grace ends the stuck stream.
	if took := time.Since(asked); took < time.Second {
		t.Errorf("it took %v to stop, with a grace of 1s", took)
	}
}

// held holds the streams that are open when the daemon is told to stop.
type held struct {
	conn    *grpc.ClientConn
	streams map[string]ckdv1.UncertaintyService_DecomposeStreamClient
}

// hold opens an idle stream, one that will finish, one whose inputs get no further passes, and one
// that does not read.
func hold(t *testing.T, d *daemon) *held {
	t.Helper()
	h := &held{d.dial(), map[string]ckdv1.UncertaintyService_DecomposeStreamClient{}}
	for _, name := range []string{"idle", "busy", "stuck", "stalled"} {
		stream, err := openStream(t.Context(), h.conn)
		if err != nil {
			t.Fatal(err)
		}
		h.streams[name] = stream
	}
	for _, name := range []string{"busy", "stuck"} {
		if err := h.streams[name].Send(block(1, 2, 4, false)); err != nil {
			t.Fatal(err)
		}
	}
	go func() { // does not read, so that the daemon's send blocks
		for g := range uint64(1000) {
			if h.streams["stalled"].Send(block(g, 256, 5, true)) != nil {
				return
			}
		}
	}()
	eventually(t, "the inputs are open", func() bool {
		return d.gauge("ckd_inputs_open") >= 4 && d.gauge("ckd_decisions_total") >= 256
	})
	return h
}

// end reads a stream to its end and returns the error that ended it.
func (h *held) end(name string) (err error) {
	for err == nil {
		_, err = h.streams[name].Recv()
	}
	return err
}

// TestFurtherSignals sends a second signal while the daemon drains. A SIGTERM changes nothing, a
// SIGINT ends the daemon at once.
func TestFurtherSignals(t *testing.T) {
	t.Parallel()
	for name, c := range map[string]struct {
		first, further syscall.Signal
		code           int
	}{
		"SIGTERM again": {syscall.SIGTERM, syscall.SIGTERM, 0},
		"SIGINT again":  {syscall.SIGINT, syscall.SIGINT, 130},
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			d := serve(t, "--policy", writePolicy(t, policyText), "--shutdown-grace", "1h", "--input-idle-timeout", "1h")
			stream, err := openStream(t.Context(), d.dial())
			if err != nil {
				t.Fatal(err)
			}
			if err := stream.Send(block(1, 1, 4, false)); err != nil {
				t.Fatal(err)
			}
			eventually(t, "the input is open", func() bool { return d.gauge("ckd_inputs_open") == 1 })
			d.signal(c.first)
			eventually(t, "it stops", func() bool { return strings.Contains(d.Log(), `"msg":"stopping"`) })
			d.signal(c.further)
			if c.code == 0 {
				d.signal(c.further)
				for range 3 { // three answers give a dying daemon the time to die
					if code, _, _ := d.Get("/readyz"); code != http.StatusServiceUnavailable {
						t.Errorf("/readyz: %d", code)
					}
				}
				if err := stream.Send(further(1, 1, true)); err != nil {
					t.Fatal(err)
				}
				if reply, err := stream.Recv(); err != nil || reply.GetResults()[0].GetDecomposition().GetPasses() != 5 {
					t.Errorf("the open input: %v, %v", reply, err)
				}
			}
			select {
			case <-d.Exited:
			case <-time.After(hang):
				t.Fatal("it does not end")
			}
			if code := d.Process.ProcessState.ExitCode(); code != c.code {
				t.Errorf("exit code %d, want %d", code, c.code)
			}
		})
	}
}

// soakRow is what TestSoak shows of one moment.
type soakRow struct {
	after                      time.Duration
	rss, heap                  float64 // bytes
	goroutines, descriptors    float64
	inputs                     float64 // decided so far
	median, nearlyAll, slowest time.Duration
}

// measure takes a row: what the daemon says of itself, and the latency of 200 small calls.
func (d *daemon) measure(c ckdv1.UncertaintyServiceClient, since time.Time) soakRow {
	d.t.Helper()
	row := soakRow{
		after: time.Since(since), rss: d.gauge("process_resident_memory_bytes"), heap: d.gauge("go_memstats_heap_inuse_bytes"),
		goroutines: d.gauge("go_goroutines"), descriptors: d.gauge("process_open_fds"), inputs: d.gauge("ckd_decisions_total"),
	}
	values := block(0, 1, 5, false).GetBlock().GetValues()
	var took []time.Duration
	for range 200 {
		begun := time.Now()
		_, err := c.Decompose(d.t.Context(), &ckdv1.DecomposeRequest{
			Model: "fetal-health", Layout: ckdv1.Layout_LAYOUT_SNK, Passes: 5, Inputs: 1, Values: values,
		})
		if err != nil {
			d.t.Fatal(err)
		}
		took = append(took, time.Since(begun))
	}
	slices.Sort(took)
	row.median, row.nearlyAll, row.slowest = took[100], took[198], took[199]
	return row
}

// soakTable writes the rows of a soak for people.
func soakTable(rows []soakRow) string {
	var out strings.Builder
	w := tabwriter.NewWriter(&out, 0, 0, 2, ' ', tabwriter.AlignRight)
	fmt.Fprintln(w, "after\tinputs\tRSS MiB\theap MiB\tgoroutines\tdescriptors\tcall p50\tp99\tmax\t")
	for _, r := range rows {
		fmt.Fprintf(w, "%v\t%.0f\t%.1f\t%.1f\t%.0f\t%.0f\t%v\t%v\t%v\t\n", r.after.Round(time.Second), r.inputs, r.rss/(1<<20), r.heap/(1<<20),
			r.goroutines, r.descriptors, r.median.Round(time.Microsecond), r.nearlyAll.Round(time.Microsecond), r.slowest.Round(time.Microsecond))
	}
	_ = w.Flush() // a buffer takes everything
	return out.String()
}

// TestSoak sends mixed traffic for as long as -soak says. The memory of the daemon must not grow. Its
// figures come out as a table of about twenty rows, with -v.
func TestSoak(t *testing.T) {
	timed.Long(t)
	d := serve(t, "--policy", writePolicy(t, policyText))
	passes := recording("ctg-ensemble", ".passes.npy")
	round := func(seed uint64) {
		rng := rand.New(rand.NewPCG(seed, 1))
		args := []string{"replay", "--addr", d.GRPC[0], "--model", "fetal-health", "--passes", passes, "--quiet",
			"--batch", fmt.Sprint(1 + rng.IntN(100)), "--in-flight", fmt.Sprint(100 + rng.IntN(900))}
		if rng.IntN(3) == 0 {
			args = append(args, "--unary")
		}
		mustRun(t, args...)
	}
	c := ckdv1.NewUncertaintyServiceClient(d.dial())
	d.measure(c, time.Now())
	for i := range uint64(5) { // until everything that stays for good is allocated
		round(i)
	}
	before, goroutines := d.gauge("go_memstats_heap_inuse_bytes"), d.gauge("go_goroutines")
	rounds, began := 5.0, time.Now()
	rows := []soakRow{d.measure(c, began)}
	for ; time.Since(began) < *soak; rounds++ {
		round(uint64(rounds))
		if time.Since(began)-rows[len(rows)-1].after >= *soak/20 {
			rows = append(rows, d.measure(c, began))
		}
	}
	rows = append(rows, d.measure(c, began))
	t.Logf("\n%s", soakTable(rows))
	d.fallsTo("go_goroutines", goroutines+5)
	d.fallsTo("ckd_inputs_open", 0)
	d.fallsTo("go_memstats_heap_inuse_bytes", 2*before+(64<<20))
	if got, want := d.gauge("ckd_decisions_total"), 2126*rounds+float64(200*(1+len(rows))); got != want {
		t.Errorf("%v decisions, expected %v: %v rounds of 2126, and 200 for each row and one before", got, want, rounds)
	}
	if log := d.Log(); bytes.Contains([]byte(log), []byte(`"level":"error"`)) {
		t.Errorf("errors in the log: %s", log)
	}
}

package ledger_test

import (
	"fmt"
	"math/rand/v2"
	"runtime"
	"syscall"
	"testing"
	"time"

	"github.com/ckd-project/ckd/internal/outcome/ledger"
)

// BenchmarkReport reports outcomes in batches of 1,000, in random order of decision time, beside
// stored ones. An iteration is one outcome, durable. It states outcomes per second of wall time, per
// second of processor time, and with the merges that they cause.
func BenchmarkReport(b *testing.B) {
	for _, stored := range []int{0, 5_000_000} {
		b.Run(fmt.Sprintf("stored=%d", stored), func(b *testing.B) {
			if stored > 0 && testing.Short() {
				b.Skip("takes minutes")
			}
			bench := openBench(b, ledger.NoSync(ledger.Options{}))
			bench.now = day0.Add(16 * 24 * time.Hour) // cohorts of 14 days are open
			rng := rand.New(rand.NewPCG(1, 2))
			for done := 0; done < stored; done += 10_000 {
				bench.report(bench.random(rng, 10_000)...)
			}
			bench.options = ledger.Options{}
			bench.reopen()
			syscall.Sync()
			outcomes := bench.random(rng, b.N)
			b.ResetTimer()
			began, used := time.Now(), processorTime()
			for len(outcomes) > 0 {
				n := min(1000, len(outcomes))
				bench.report(outcomes[:n]...)
				outcomes = outcomes[n:]
			}
			b.ReportMetric(float64(b.N)/time.Since(began).Seconds(), "outcomes/s")
			b.ReportMetric(float64(b.N)/(processorTime()-used).Seconds(), "outcomes/cpu-s")
			if err := bench.Close(); err != nil {
				b.Fatal(err)
			}
			b.ReportMetric(float64(b.N)/time.Since(began).Seconds(), "merged/s")
			b.ReportMetric(float64(b.N)/(processorTime()-used).Seconds(), "merged/cpu-s")
			b.StopTimer()
			bench.open()
		})
	}
}

// BenchmarkOpen opens a ledger of many outcomes, and then reads its state for the first time. Besides
// the time to open it states that of the state in ms, and the memory of the heap after both.
func BenchmarkOpen(b *testing.B) {
	for _, stored := range []int{0, 10_000_000} {
		b.Run(fmt.Sprintf("stored=%d", stored), func(b *testing.B) {
			if stored > 0 && testing.Short() {
				b.Skip("takes minutes")
			}
			bench := openBench(b, ledger.NoSync(ledger.Options{}))
			bench.now = day0.Add(40 * 24 * time.Hour) // all cohorts are mature
			rng := rand.New(rand.NewPCG(1, 2))
			for done := 0; done < stored; done += 10_000 {
				bench.report(bench.random(rng, 10_000)...)
			}
			bench.stateIfAny() // counts them
			var state time.Duration
			for b.Loop() {
				b.StopTimer()
				if err := bench.Close(); err != nil {
					b.Fatal(err)
				}
				b.StartTimer()
				bench.open()
				b.StopTimer()
				began := time.Now()
				bench.stateIfAny()
				state += time.Since(began)
				b.StartTimer()
			}
			b.ReportMetric(float64(state.Milliseconds())/float64(b.N), "ms/state")
			var m runtime.MemStats
			runtime.GC()
			runtime.ReadMemStats(&m)
			b.ReportMetric(float64(m.HeapInuse)/(1<<20), "heap-MB")
		})
	}
}

// random returns outcomes of decisions of 14 days, most of them in id-carrying traffic.
func (b *bench) random(rng *rand.Rand, n int) []ledger.Outcome {
	outcomes := make([]ledger.Outcome, n)
	for i := range outcomes {
		r := deferred()
		truth := "c"
		if rng.IntN(3) > 0 {
			r = audited(0.02)
		} else if rng.IntN(2) > 0 {
			truth = "a"
		}
		r = receiptAt(r, day0.Add(time.Duration(rng.Int64N(int64(14*24*time.Hour)))))
		r.Draw = 1 + rng.Uint64N(1<<62)
		outcomes[i] = ledger.Outcome{Receipt: b.seal(r), Truth: truth, Source: "reader 7", At: day0.Add(15 * 24 * time.Hour)}
	}
	return outcomes
}

// processorTime returns the time that all processors have spent on this process.
func processorTime() time.Duration {
	var u syscall.Rusage
	if err := syscall.Getrusage(syscall.RUSAGE_SELF, &u); err != nil {
		panic(err)
	}
	return time.Duration(u.Utime.Nano() + u.Stime.Nano())
}

package ledger_test

import (
	"fmt"
	"math/rand/v2"
	"os"
	"path/filepath"
	"runtime"
	"slices"
	"syscall"
	"testing"
	"time"

	"github.com/ckd-project/ckd/internal/outcome/ledger"
	"github.com/ckd-project/ckd/internal/outcome/receipt"
	"github.com/ckd-project/ckd/internal/outcome/store"
)

// BenchmarkReport reports outcomes in batches of 1,000, in random order of decision time, beside
// stored ones. An iteration is one outcome, durable. It states outcomes per second of wall time and per
// second of processor time, the bytes of the file for each, and the 99% quantile of the time that one
// outcome by itself takes then.
func BenchmarkReport(b *testing.B) {
	for _, stored := range []int{0, 1_000_000, 5_000_000} {
		b.Run(fmt.Sprintf("stored=%d", stored), func(b *testing.B) {
			bench := fill(b, stored, 16)
			rng := rand.New(rand.NewPCG(3, 4))
			outcomes, single := bench.random(rng, b.N), bench.random(rng, max(b.N/20, 1))
			b.ResetTimer()
			began, used := time.Now(), processorTime()
			for len(outcomes) > 0 {
				n := min(1000, len(outcomes))
				bench.report(outcomes[:n]...)
				outcomes = outcomes[n:]
			}
			b.ReportMetric(float64(b.N)/time.Since(began).Seconds(), "outcomes/s")
			b.ReportMetric(float64(b.N)/(processorTime()-used).Seconds(), "outcomes/cpu-s")
			b.StopTimer()
			times := make([]time.Duration, len(single))
			for i := range single {
				began := time.Now()
				bench.report(single[i])
				times[i] = time.Since(began)
			}
			slices.Sort(times)
			b.ReportMetric(float64(times[len(times)*99/100].Microseconds())/1000, "one-p99-ms")
			if err := bench.Close(); err != nil {
				b.Fatal(err)
			}
			info, err := os.Stat(filepath.Join(bench.dir, store.FileName))
			if err != nil {
				b.Fatal(err)
			}
			b.ReportMetric(float64(info.Size())/float64(stored+b.N+len(single)), "bytes/outcome")
			bench.open()
		})
	}
}

// BenchmarkState opens a ledger of many outcomes, computes the state for the first time, and again after
// a correction in the oldest cohort. It states the time to open, and the processor time of both.
func BenchmarkState(b *testing.B) {
	for _, stored := range []int{1_000_000, 10_000_000} {
		b.Run(fmt.Sprintf("stored=%d", stored), func(b *testing.B) {
			bench := fill(b, stored, 40) // all cohorts are mature
			outcomes := bench.random(rand.New(rand.NewPCG(3, 4)), b.N)
			used := processorTime()
			bench.state()
			b.ReportMetric((processorTime() - used).Seconds(), "first-cpu-s")
			var open, corrected time.Duration
			for i := range b.N {
				if err := bench.Close(); err != nil {
					b.Fatal(err)
				}
				began := time.Now()
				bench.open()
				open += time.Since(began)
				bench.state()
				oldest := outcomes[i]
				oldest.Receipt = bench.seal(receiptAt(deferred(), day0.Add(time.Duration(i)*time.Second)))
				bench.report(oldest)
				used = processorTime()
				bench.state()
				corrected += processorTime() - used
			}
			b.ReportMetric(open.Seconds()*1000/float64(b.N), "open-ms")
			b.ReportMetric(corrected.Seconds()/float64(b.N), "corrected-cpu-s")
			var m runtime.MemStats
			runtime.GC()
			runtime.ReadMemStats(&m)
			b.ReportMetric(float64(m.HeapInuse)/(1<<20), "heap-MB")
		})
	}
}

// fill returns a ledger with outcomes, so many days after the first of them.
func fill(b *testing.B, stored, days int) *bench {
	if stored > 0 && testing.Short() {
		b.Skip("takes minutes")
	}
	bench := openBench(b, ledger.NoSync(ledger.Options{}))
	bench.now = day0.Add(time.Duration(days) * 24 * time.Hour)
	rng := rand.New(rand.NewPCG(1, 2))
	for done := 0; done < stored; done += 10_000 {
		bench.report(bench.random(rng, 10_000)...)
	}
	bench.options = ledger.Options{}
	bench.reopen()
	syscall.Sync()
	return bench
}

// random returns outcomes of decisions of 14 days, most of them in id-carrying traffic.
func (b *bench) random(rng *rand.Rand, n int) []ledger.Outcome {
	outcomes := make([]ledger.Outcome, n)
	var sealers [40]*receipt.Sealer // of a fleet
	for i := range sealers {
		sealers[i] = receipt.NewSealer(b.keys)
	}
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
		b.sealer = sealers[i%len(sealers)]
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

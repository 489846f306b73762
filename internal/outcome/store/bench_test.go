package store_test

import (
	"encoding/binary"
	"fmt"
	"math/rand/v2"
	"os"
	"path/filepath"
	"syscall"
	"testing"
	"time"

	"github.com/ckd-project/ckd/internal/outcome/receipt"
	"github.com/ckd-project/ckd/internal/outcome/store"
	"github.com/ckd-project/ckd/internal/outcome/truth"
)

const (
	days    = 14
	sealers = 1
)

// outcomes makes outcomes with random draws at random times of 14 days, by the sealers of 40
// processes.
type outcomes struct {
	rng     *rand.Rand
	sealers [sealers][16]byte
	counts  [sealers]uint64
	sealed  []byte
}

func newOutcomes(seed uint64) *outcomes {
	o := &outcomes{rng: rand.New(rand.NewPCG(seed, 2)), sealed: make([]byte, receipt.Size)}
	for i := range o.sealers {
		o.fill(o.sealers[i][:])
	}
	return o
}

func (o *outcomes) fill(b []byte) {
	for i := range b {
		b[i] = byte(o.rng.Uint32())
	}
}

func (o *outcomes) next() *truth.Decision {
	at := day0.Add(time.Duration(o.rng.Int64N(int64(days * 24 * time.Hour)))).Truncate(time.Microsecond)
	d := &truth.Decision{Receipt: receipt.Receipt{Policy: [32]byte{1}, Version: 7, Time: at.UnixMicro(), Stratum: receipt.CalledSafe, Review: true,
		Predicted: 1, Passes: 20, Risk: o.rng.Float32(), Propensity: o.rng.Float32(), Draw: o.rng.Uint64()}}
	for i := range d.Receipt.Scores {
		d.Receipt.Scores[i] = o.rng.Float32()
	}
	p := o.rng.IntN(len(o.sealers))
	o.counts[p]++
	copy(d.ID[:], o.sealers[p][:])
	binary.BigEndian.PutUint64(d.ID[16:], o.counts[p])
	d.Readings = []truth.Reading{{Source: "reader-12", Truth: o.rng.IntN(2), At: at.Add(time.Hour), By: "ris.example.org", Reported: at.Add(2 * time.Hour)}}
	return d
}

// report stores outcomes as a ledger does.
func (o *outcomes) report(tb testing.TB, s *store.Store, batch []*truth.Decision) {
	tb.Helper()
	update(tb, s, func(tx *store.Tx) error {
		touched := make(map[int64]bool)
		for _, d := range batch {
			copy(o.sealed[4:], d.ID[:])
			o.fill(o.sealed[28:40])
			if err := tx.Insert(1, d, o.sealed); err != nil {
				return err
			}
			touched[d.Receipt.Time-d.Receipt.Time%86400e6] = true
		}
		for start := range touched {
			if err := tx.Touch(1, start); err != nil {
				return err
			}
		}
		return nil
	})
}

// filled returns a store with outcomes. It is kept in the folder that STORE_BENCH names, since
// filling it takes minutes.
func filled(tb testing.TB, n int, sync bool) *store.Store {
	tb.Helper()
	dir := tb.TempDir()
	if keep := os.Getenv("STORE_BENCH"); keep != "" && n > 0 {
		dir = filepath.Join(keep, fmt.Sprint(n))
	}
	err := store.Create(dir, store.Options{})
	if err == nil {
		s, err := store.Open(dir, store.Options{NoSync: true})
		if err != nil {
			tb.Fatal(err)
		}
		update(tb, s, func(tx *store.Tx) error {
			return tx.AddPromise(&store.Promise{Policy: [32]byte{1}, Version: 7, Period: 86400e6})
		})
		o := newOutcomes(1)
		for done := 0; done < n; done += 100_000 {
			batch := make([]*truth.Decision, min(100_000, n-done))
			for i := range batch {
				batch[i] = o.next()
			}
			o.report(tb, s, batch)
		}
		if err := s.Close(); err != nil {
			tb.Fatal(err)
		}
		syscall.Sync()
	}
	s, err := store.Open(dir, store.Options{NoSync: !sync})
	if err != nil {
		tb.Fatal(err)
	}
	tb.Cleanup(func() { s.Close() })
	return s
}

func processorTime() time.Duration {
	var u syscall.Rusage
	if err := syscall.Getrusage(syscall.RUSAGE_SELF, &u); err != nil {
		panic(err)
	}
	return time.Duration(u.Utime.Nano() + u.Stime.Nano())
}

// BenchmarkOpen opens a ledger, and reads its identity.
func BenchmarkOpen(b *testing.B) {
	for _, n := range []int{0, 10_000_000} {
		b.Run(fmt.Sprintf("stored=%d", n), func(b *testing.B) {
			if n > 0 && testing.Short() {
				b.Skip("takes minutes")
			}
			s := filled(b, n, false)
			dir := s.Dir()
			for b.Loop() {
				s.Close()
				var err error
				if s, err = store.Open(dir, store.Options{}); err != nil {
					b.Fatal(err)
				}
			}
			s.Close()
		})
	}
}

// BenchmarkVerify checks a whole ledger.
func BenchmarkVerify(b *testing.B) {
	if testing.Short() {
		b.Skip("takes minutes")
	}
	s := filled(b, 1_000_000, false)
	used := processorTime()
	for b.Loop() {
		if _, err := s.Verify(b.Context(), nil, func(fault string) { b.Error(fault) }); err != nil {
			b.Fatal(err)
		}
	}
	b.ReportMetric((processorTime()-used).Seconds()/float64(b.N), "cpu-s/op")
}

// BenchmarkBackup backs up a ledger while outcomes are stored as fast as they can be. It states the size of
// the log afterwards.
func BenchmarkBackup(b *testing.B) {
	if testing.Short() {
		b.Skip("takes minutes")
	}
	s := filled(b, 5_000_000, false)
	o := newOutcomes(uint64(time.Now().UnixNano()))
	stop, stopped, stored := make(chan bool), make(chan bool), 0
	go func() {
		defer close(stopped)
		for {
			select {
			case <-stop:
				return
			default:
			}
			batch := make([]*truth.Decision, 1000)
			for i := range batch {
				batch[i] = o.next()
			}
			o.report(b, s, batch)
			stored += len(batch)
		}
	}()
	to := filepath.Join(b.TempDir(), "backup.db")
	for b.Loop() {
		if err := s.Backup(b.Context(), to); err != nil {
			b.Fatal(err)
		}
		b.ReportMetric(float64(s.Status().LogBytes)/1e6, "log-MB")
	}
	close(stop)
	<-stopped
	b.ReportMetric(float64(stored)/b.Elapsed().Seconds(), "outcomes/s")
}

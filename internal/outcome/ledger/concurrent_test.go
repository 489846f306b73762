package ledger_test

import (
	"io"
	"sync"
	"testing"
	"time"

	"github.com/ckd-project/ckd/internal/outcome/ledger"
	"github.com/ckd-project/ckd/internal/outcome/receipt"
)

// TestConcurrent does everything at the same time. Run it with the race detector.
func TestConcurrent(t *testing.T) {
	b := openBench(t, ledger.NoSync(ledger.Options{}))
	b.now = day0.Add(20 * oneDay)
	var wg sync.WaitGroup
	for worker := range 4 {
		wg.Go(func() {
			for i := range 25 {
				when := day0.Add(time.Duration(i)*time.Hour + time.Duration(worker)*time.Minute)
				o := ledger.Outcome{Receipt: b.seal(receiptAt(audited(.1), when)), Truth: "c", Source: "ann"}
				if answers, err := b.Report("clinic", []ledger.Outcome{o, o}); err != nil || !answers[0].Stored() {
					t.Error(answers, err)
				}
			}
		})
	}
	for range 2 {
		wg.Go(func() {
			for range 10 {
				if _, err := b.States(); err != nil {
					t.Error(err)
				}
				if _, err := b.Recent(); err != nil {
					t.Error(err)
				}
				if err := b.Export(io.Discard, ledger.JSONLines, ledger.Filter{}); err != nil {
					t.Error(err)
				}
			}
		})
		wg.Go(func() {
			for i := range uint64(10) {
				issued := ledger.Issued{Process: "daemon", Policy: b.policy, Version: version, Stratum: receipt.CalledSafe, Start: day0,
					Decisions: i, Reviews: i}
				if err := b.Issued([]ledger.Issued{issued}); err != nil {
					t.Error(err)
				}
			}
		})
	}
	wg.Wait()
	if s := b.state(); s.Provisional.Decided != 100 || s.Strata[2].Decisions != 9 {
		t.Errorf("%d decided, want 100; %d decisions, want 9", s.Provisional.Decided, s.Strata[2].Decisions)
	}
}

package outcomes_test

import (
	"fmt"
	"strings"
	"testing"
	"time"

	"google.golang.org/protobuf/types/known/timestamppb"

	"github.com/ckd-project/ckd/internal/outcome/outcometest"
	ckdv1 "github.com/ckd-project/ckd/proto/ckd/v1"
)

// BenchmarkFleet has a hundred daemons tell one ledger what they decided of a hundred models, late in a day.
// An operation is one daemon's tell. cores is what all of them take at the pace that the ledger asks for.
func BenchmarkFleet(b *testing.B) {
	const daemons, models, hours = 100, 100, 20
	d := start(b, "")
	var hashes []string
	var texts [][]byte
	for m := range models {
		text := strings.Replace(policyText, "name: triage", fmt.Sprintf("name: triage%d", m), 1)
		hashes, texts = append(hashes, outcometest.Policy(b, text).Hash), append(texts, []byte(text))
	}
	midnight := time.Now().UTC().Add(-24 * time.Hour).Truncate(24 * time.Hour)
	tell := func(daemon, hour, decisions int, ask []string) time.Duration {
		r := &ckdv1.ReportIssuedRequest{Process: fmt.Sprintf("p%d", daemon), PolicyHashes: ask, Time: timestamppb.Now()}
		for _, hash := range hashes {
			for stratum := ckdv1.Stratum_STRATUM_DEFERRED; stratum <= ckdv1.Stratum_STRATUM_CALLED_SAFE; stratum++ {
				r.Counts = append(r.Counts, &ckdv1.IssuedCount{
					PolicyHash: hash, ModelVersion: "model-7", Stratum: stratum, Start: timestamppb.New(midnight.Add(time.Duration(hour) * time.Hour)),
					Decisions: uint64(decisions), Eligible: uint64(decisions), Receipts: uint64(decisions), Reviews: 1, Propensity: 1, InversePropensity: 1,
				})
			}
		}
		answer, err := d.ReportIssued(b.Context(), r)
		if err != nil {
			b.Fatal(err)
		}
		return answer.GetNext().AsDuration()
	}
	if err := d.ledger.AddPolicy(texts...); err != nil {
		b.Fatal(err)
	}
	for daemon := range daemons {
		for _, hour := range []int{0, hours - 1} {
			tell(daemon, hour, 1, nil)
		}
	}
	var next time.Duration
	n := 0
	for b.Loop() {
		n++
		next = tell(n%daemons, hours, 2+n/daemons, hashes)
	}
	b.ReportMetric(next.Seconds(), "s-between-tells")
	b.ReportMetric(b.Elapsed().Seconds()/float64(n)*daemons/next.Seconds(), "cores")
}

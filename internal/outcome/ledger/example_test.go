package ledger_test

import (
	"fmt"
	"os"
	"time"

	"github.com/ckd-project/ckd/internal/outcome/ledger"
	"github.com/ckd-project/ckd/internal/outcome/receipt"
	"github.com/ckd-project/ckd/policy"
)

// A day of decisions comes back with the truth. Every input called critical is worked up; of those
// called safe one in fifty was audited, so that each miss that was found stands for fifty.
func Example() {
	dir, err := os.MkdirTemp("", "ledger")
	if err != nil {
		fmt.Println(err)
		return
	}
	defer func() { _ = os.RemoveAll(dir) }()
	keys, err := receipt.ParseKeys("receipt-keys", []byte("00112233445566778899aabbccddeeff00112233445566778899aabbccddeeff"))
	if err != nil {
		fmt.Println(err)
		return
	}
	decided := time.Date(2026, 3, 1, 12, 0, 0, 0, time.UTC)
	if err := ledger.Begin(dir, ledger.Options{}); err != nil {
		fmt.Println(err)
		return
	}
	l, err := ledger.Open(dir, ledger.Options{
		Keys: func() *receipt.Keys { return keys },
		Now:  func() time.Time { return decided.AddDate(0, 0, 30) }, // all outcomes are due
	})
	if err != nil {
		fmt.Println(err)
		return
	}
	defer l.Close()

	// A daemon tells its policy, and seals a receipt for each input.
	file := []byte(`
models:
  - name: lesions
    classes: [benign, malignant]
    critical: [malignant]
    passes: {fewest: 4}
    audit: {rate: 0.02, m: 1, due: 14d, predicted-critical: free}
`)
	if err := l.AddPolicy(file); err != nil {
		fmt.Println(err)
		return
	}
	set, err := policy.Parse(policy.File{Name: "lesions.yaml", Data: file})
	if err != nil {
		fmt.Println(err)
		return
	}
	hash, sealer := set.All()[0].HashBytes(), receipt.NewSealer(keys)
	var batch []ledger.Outcome
	report := func(n int, r receipt.Receipt, truth string) {
		r.Policy, r.Version, r.Time = hash, receipt.VersionHash("model-7"), decided.UnixMicro()
		for range n {
			batch = append(batch, ledger.Outcome{Receipt: sealer.Seal(nil, &r), Truth: truth, Source: "grading-room"})
		}
	}
	report(4500, receipt.Receipt{Stratum: receipt.CalledCritical, Predicted: 1, Propensity: 1}, "malignant")
	report(990, receipt.Receipt{Stratum: receipt.CalledSafe, Review: true, Propensity: 0.02}, "benign")
	report(10, receipt.Receipt{Stratum: receipt.CalledSafe, Review: true, Propensity: 0.02}, "malignant")
	answers, err := l.Report("clinic", batch)
	if err != nil {
		fmt.Println(err)
		return
	}
	fmt.Println("a miss:", answers[len(answers)-1].Status)

	promise, err := l.State(hash, "model-7")
	if err != nil {
		fmt.Println(err)
		return
	}
	rate := promise.Mature.MissRate
	fmt.Printf("critical miss rate %.2f, where %d of %d are found missed\n", rate.Value, rate.Misses, rate.Critical)
	// Output:
	// a miss: second_read_wanted
	// critical miss rate 0.10, where 10 of 4510 are found missed
}

package receipt_test

import (
	"errors"
	"fmt"
	"strings"
	"time"

	"github.com/ckd-project/ckd/internal/outcome/receipt"
)

// A daemon seals what it decided. A ledger with the same key file opens the receipt, and refuses one
// that was changed.
func Example() {
	keys, err := receipt.ParseKeys("receipt-keys", []byte(strings.Repeat("5a", 32)))
	if err != nil {
		fmt.Println(err)
		return
	}
	decided := time.Date(2026, 3, 1, 12, 0, 0, 0, time.UTC)
	sealed := receipt.NewSealer(keys).Seal(nil, &receipt.Receipt{
		Version: receipt.VersionHash("model-7"), Time: decided.UnixMicro(),
		Stratum: receipt.CalledSafe, Predicted: 0, Passes: 30, Review: true, Propensity: 0.02,
	})

	opened, _, err := keys.Open(sealed)
	if err != nil {
		fmt.Println(err)
		return
	}
	fmt.Println(time.UnixMicro(opened.Time).UTC().Format(time.DateOnly), opened.Stratum,
		"stands for", 1/opened.Propensity, "inputs")

	sealed[len(sealed)-1] ^= 1
	_, _, err = keys.Open(sealed)
	fmt.Println(errors.Is(err, receipt.ErrForged))
	// Output:
	// 2026-03-01 called_safe stands for 50 inputs
	// true
}

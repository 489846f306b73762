// Package outcometest holds what the tests of outcomes share: policies and keys of receipts.
package outcometest

import (
	"strings"
	"testing"

	"github.com/ckd-project/ckd/internal/outcome/receipt"
	"github.com/ckd-project/ckd/policy"
)

// Key is a key of receipts.
const Key = "00112233445566778899aabbccddeeff00112233445566778899aabbccddeeff"

// Keys returns keys of receipts, given in hex.
func Keys(t testing.TB, hex ...string) *receipt.Keys {
	t.Helper()
	keys, err := receipt.ParseKeys("keys", []byte(strings.Join(hex, "\n")))
	if err != nil {
		t.Fatal(err)
	}
	return keys
}

// Policy returns the first policy of a file.
func Policy(t testing.TB, file string) *policy.Policy {
	t.Helper()
	set, err := policy.Parse(policy.File{Name: "test.yaml", Data: []byte(file)})
	if err != nil {
		t.Fatalf("%v\n%s", err, file)
	}
	return set.All()[0]
}

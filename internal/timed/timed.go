package timed

import (
	"os"
	"testing"
)

// Only skips a test that takes long or judges by the clock, unless CKD_TIMED is set. Such a test
// passes only on a machine that does nothing else.
func Only(t testing.TB) {
	t.Helper()
	if os.Getenv("CKD_TIMED") == "" {
		t.Skipf("takes long, or judges by the clock; to run it in this folder: CKD_TIMED=1 go test -count=1 -run '^%s$'", t.Name())
	}
}

// Full skips a test that takes seconds if go test has the flag -short.
func Full(t testing.TB) {
	t.Helper()
	if testing.Short() {
		t.Skip("takes seconds: left out by -short")
	}
}

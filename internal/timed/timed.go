package timed

import (
	"os"
	"testing"
)

// Only skips a test that takes long or judges by the clock, unless CKD_TIMED is set.
// Such a test passes on a quiet machine alone.
func Only(t testing.TB) {
	t.Helper()
	if os.Getenv("CKD_TIMED") == "" {
		t.Skipf("takes long, or judges by the clock; to run it in this folder: CKD_TIMED=1 go test -count=1 -run '^%s$'", t.Name())
	}
}

package timed

import (
	"os"
	"testing"
)

// Long skips a test that takes half a minute or more, unless CKD_LONG is set.
func Long(t testing.TB) {
	t.Helper()
	if os.Getenv("CKD_LONG") == "" {
		t.Skipf("takes long; to run it in this folder: CKD_LONG=1 go test -count=1 -run '^%s$'", t.Name())
	}
}

// Full skips a test that takes seconds if go test has the flag -short.
func Full(t testing.TB) {
	t.Helper()
	if testing.Short() {
		t.Skip("takes seconds: left out by -short")
	}
}

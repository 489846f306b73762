package timed

import (
	"os"
	"testing"
)

// Only skips a test that judges by the clock, unless CKD_TIMED is set. Such a test passes only on a
// machine that does nothing else.
func Only(t testing.TB) {
	t.Helper()
	unless(t, "CKD_TIMED", "judges by the clock")
}

// Long skips a test that takes half a minute or more, unless CKD_LONG is set.
func Long(t testing.TB) {
	t.Helper()
	unless(t, "CKD_LONG", "takes long")
}

func unless(t testing.TB, variable, why string) {
	t.Helper()
	if os.Getenv(variable) == "" {
		t.Skipf("%s; to run it in this folder: %s=1 go test -count=1 -run '^%s$'", why, variable, t.Name())
	}
}

// Full skips a test that takes seconds if go test has the flag -short.
func Full(t testing.TB) {
	t.Helper()
	if testing.Short() {
		t.Skip("takes seconds: left out by -short")
	}
}

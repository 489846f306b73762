package testbed

import (
	"testing"
	"time"
)

// Hang bounds every wait of a test. It is far more than anything needs on a busy machine, so that
// whatever takes longer hangs.
const Hang = 3 * time.Minute

// Eventually waits until a condition holds.
func Eventually(t *testing.T, what string, holds func() bool) {
	t.Helper()
	for end := time.Now().Add(Hang); time.Now().Before(end); time.Sleep(20 * time.Millisecond) {
		if holds() {
			return
		}
	}
	t.Fatalf("within %v this has not come about: %s", Hang, what)
}

package clock

import (
	"os"
	"path/filepath"
	"testing"
	"time"
)

// between fails unless the clock is ahead of the system's by d.
func between(t *testing.T, d time.Duration) {
	t.Helper()
	before, now, after := time.Now(), Now(), time.Now()
	if now.Before(before.Add(d)) || now.After(after.Add(d)) {
		t.Errorf("%v, expected %v later than %v to %v", now, d, before, after)
	}
}

// TestSteered lets a file move the clock of a binary that the linker made steerable, and of no other.
func TestSteered(t *testing.T) {
	const name = "CKD_TEST_CLOCK"
	file := filepath.Join(t.TempDir(), "ahead")
	t.Setenv(name, file)
	between(t, 0)
	if got := Every(time.Minute); got != time.Minute {
		t.Errorf("%v, expected a minute", got)
	}

	variable = name
	defer func() { variable = "" }()
	for _, text := range []string{"2160h", "-90s\n"} {
		if err := os.WriteFile(file, []byte(text), 0o600); err != nil {
			t.Fatal(err)
		}
		want := map[string]time.Duration{"2160h": 90 * 24 * time.Hour, "-90s\n": -90 * time.Second}[text]
		between(t, want)
	}
	if got := Since(time.Now()); got > -90*time.Second+time.Minute {
		t.Errorf("%v have passed, expected less than none: the clock was set back", got)
	}
	if got := Every(time.Minute); got != 3*time.Second {
		t.Errorf("%v, expected a 20th of a minute", got)
	}
	t.Setenv(name, "")
	between(t, 0)
}

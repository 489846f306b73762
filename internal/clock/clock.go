package clock

import (
	"fmt"
	"os"
	"strings"
	"time"
)

// variable names the environment variable of a steered binary. The linker sets it; it is empty in every
// other binary.
var variable string

// Now returns the civil time.
func Now() time.Time {
	if variable == "" {
		return time.Now()
	}
	return time.Now().Add(ahead())
}

// Since returns the civil time that has passed since a time that Now returned.
func Since(t time.Time) time.Duration { return Now().Sub(t) }

// hasteOfTests is how many times as often a steered binary does what a normal one does every few seconds.
const hasteOfTests = 20

// Every returns the pause between two rounds of what is done every d. It is shorter in a steered binary,
// where a test waits for the next round on each of its days.
func Every(d time.Duration) time.Duration {
	if variable == "" {
		return d
	}
	return d / hasteOfTests
}

// ahead returns how far the civil time of a steered process is ahead of the system's. It panics if the
// file is missing or wrong: the times that a test judges by would be wrong too.
func ahead() time.Duration {
	path := os.Getenv(variable)
	if path == "" {
		return 0
	}
	text, err := os.ReadFile(path)
	if err != nil {
		panic(fmt.Sprintf("%s: %v", variable, err))
	}
	d, err := time.ParseDuration(strings.TrimSpace(string(text)))
	if err != nil {
		panic(fmt.Sprintf("%s: %s: %v", variable, path, err))
	}
	return d
}

// Package clock tells the civil time of decisions, outcomes and alarms, so that a test may let a year pass.
//
// A build reads the system's clock, unless the linker names an environment variable:
//
//	go build -ldflags "-X github.com/ckd-project/ckd/internal/clock.variable=NAME" ./cmd/ckd
//
// Only in such a binary the variable NAME may name a file that holds how far the process's civil time is
// ahead of the system's, as in -90s or 2160h. The file may be replaced at any time.
//
// What is measured or waited for (timeouts, latencies) stays with package time.
package clock

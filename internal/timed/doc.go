// Package timed keeps long runs, and tests that judge by the clock, out of go test:
// they run in a stage of .ci/run of their own, with nothing beside them.
package timed

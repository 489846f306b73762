// Package timed marks tests that take long, so that go test skips them: some unless they are asked
// for, since they judge by the clock and a stage of .ci/run runs them with nothing beside them, some
// only under -short.
package timed

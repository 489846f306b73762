// Package timed marks tests that take long, so that go test skips them: some only under -short, some
// unless they are asked for, as a lane of .ci/run does.
package timed

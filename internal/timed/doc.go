// Package timed marks tests that take long, or that judge by the clock, so that go test skips them:
// some only under -short, some unless they are asked for. A lane of .ci/run runs those that take
// long, and a stage with nothing beside it those that judge by the clock.
package timed

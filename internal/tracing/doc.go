// Package tracing sends the spans of calls to an OpenTelemetry collector.
//
// It is off unless the daemon is told where the collector is. A caller's trace is
// gone on with, and its sampling decision kept; of calls without one, a share is
// sampled.
package tracing

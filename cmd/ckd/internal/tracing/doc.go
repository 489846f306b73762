// Package tracing sends the spans of calls to an OpenTelemetry collector.
//
// It is off unless the settings name a collector. It continues the trace of a caller and keeps its
// sampling decision; of calls without a trace it samples a share.
package tracing

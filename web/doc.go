// Package web serves what the daemon answers over HTTP, apart from the API: the admin
// address with its triage page, metrics and probes, and Go's profiler. The API as JSON and
// the Open Inference Protocol's REST form come from package gateway, the page from package
// triage.
//
// Stability: experimental. The paths, answers and status codes are stable, since probes and
// scrapers depend on them; the Go API follows the daemon's needs and may change in any
// release.
package web

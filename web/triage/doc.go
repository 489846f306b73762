// Package triage serves the page for a triage team: what the daemon's own metrics say of each
// model, live, with the policy in force and, where allowed, the last inputs that were deferred.
//
// A Page samples the metrics like a scrape and keeps 15 minutes of history for each model, in steps
// of 15 seconds. Browsers get a State as JSON, whole at first, and then with every sample what has
// changed.
//
// Stability: experimental. Exported names may change with any minor version.
package triage

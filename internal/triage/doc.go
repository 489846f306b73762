// Package triage serves the page that the triage team looks at: what the daemon's
// own metrics say of each model, live, with the policy in force and, where that is
// allowed, the last inputs that were deferred.
package triage

// Package app builds the daemon out of its parts, runs them together, and stops
// them in order.
package app

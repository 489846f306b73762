// Package daemon assembles the daemon: it builds the parts from the settings, runs them together,
// and stops them in order.
package daemon

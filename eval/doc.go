// Package eval turns labelled recordings into evidence: what a deferral rule
// retains, and what is wrong with what it retains.
package eval

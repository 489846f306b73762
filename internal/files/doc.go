// Package files puts a whole file in the place of another, of which a crash leaves the one or the
// other.
package files

// Package risk computes log-odds and their inverse, in which a policy states how probable it is that
// an input is truly critical.
package risk

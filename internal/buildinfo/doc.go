// Package buildinfo says which build of ckd this is.
package buildinfo

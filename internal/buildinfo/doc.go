// Package buildinfo reports which build of ckd is running.
package buildinfo

// Package examples runs the examples in its folders on the real daemon.
package examples

// Package testbed runs programs for tests: the built daemon on free ports, and the programs that
// people use beside it. The end of a test stops whatever it started.
package testbed

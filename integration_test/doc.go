// Package integration runs the built binary, over real sockets, with real
// recordings and, where they are installed, with the programs that people use
// beside it.
package integration

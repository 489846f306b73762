// Package integration runs the built binary over real sockets with real recordings, beside the
// programs that people use with it where they are installed.
package integration

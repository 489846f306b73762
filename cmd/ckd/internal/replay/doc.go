// Package replay sends recorded passes to a daemon, batch after batch, and prints the answers.
package replay

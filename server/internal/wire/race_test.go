//go:build race

package wire

func init() { race = true }

//go:build race

package receipt

func init() { race = true }

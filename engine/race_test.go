//go:build race

package engine

func init() { race = true }

//go:build race

package server

func init() { race = true }

//go:build race

package decisionlog

func init() { race = true }

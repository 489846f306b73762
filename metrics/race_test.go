//go:build race

package metrics

func init() { race = true }

//go:build nometrics

package metrics

const off = true

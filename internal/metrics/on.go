//go:build !nometrics

package metrics

// off switches counting of decided inputs off. The tag nometrics is only for benchmarks that
// measure what counting costs.
const off = false

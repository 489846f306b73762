//go:build !nometrics

package metrics

// off leaves decided inputs uncounted. The tag nometrics is for benchmarks, which
// show by it what counting costs, and for nothing else.
const off = false

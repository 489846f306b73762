package decomp

import "github.com/ckd-project/ckd/internal/kernel"

// Kernel is the version of the arithmetic that runs on this processor: "avx512",
// "avx2" or "scalar". They differ in speed alone.
func Kernel() string { return kernel.Name() }

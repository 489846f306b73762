package decomp

import "github.com/ckd-project/ckd/internal/kernel"

// Kernel is the version of the arithmetic that runs on this processor: "avx512",
// "avx2" or "scalar". On amd64 they differ in
// speed alone; on others the last digits may.
func Kernel() string { return kernel.Name() }

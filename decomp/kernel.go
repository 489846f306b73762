package decomp

import "github.com/ckd-project/ckd/internal/kernel"

// Kernel returns the name of the arithmetic that runs on this processor: "avx512", "avx2" or
// "scalar". On amd64 they differ only in speed; on other processors the last digits may differ,
// too.
func Kernel() string { return kernel.Name() }

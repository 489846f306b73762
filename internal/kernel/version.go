package kernel

// variant names a version of the functions of this package.
type variant uint8

const (
	scalar variant = iota
	avx2
	avx512
)

func (v variant) String() string { return [...]string{"scalar", "avx2", "avx512"}[v] }

// version is the variant that runs.
var version = best()

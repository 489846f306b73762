package kernel

// variant is a version of the functions of this package.
type variant uint8

const (
	scalar variant = iota
	avx2
	avx512
)

func (v variant) String() string { return [...]string{"scalar", "avx2", "avx512"}[v] }

// version is the one that runs.
var version = best()

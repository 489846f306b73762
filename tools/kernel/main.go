// Command kernel writes the assembly of internal/kernel. From the top of
// the repository:
//
//	go -C tools run ./kernel -out ../internal/kernel/kernel_amd64.s \
//		-stubs ../internal/kernel/stubs_amd64.go -pkg kernel
//
// scalar.go of that package specifies what the assembly computes, and why. The generated code
// follows it operation by operation.
package main

import (
	. "github.com/mmcloughlin/avo/build" //nolint:revive,staticcheck // avo's programs read as assembly
)

func main() {
	ConstraintExpr("!purego")
	for _, m := range []machine{{wide: true}, {wide: false}} {
		for _, from := range []element{float32s, float64s} {
			m.moments(from)
			m.rotated(from)
			m.deviations(from)
			m.crossed(from)
		}
		m.plain()
		m.inverseRoots()
		m.confusions()
		m.sum()
	}
	Generate()
}

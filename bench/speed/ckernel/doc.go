// Package ckernel is the opponent of ckd's kernel: the same work in C, with AVX-512 and AVX2
// intrinsics.
//
// For every column of a panel of float32 [passes][width] it computes mean, variance, third moment,
// C_k, skewness, M_k and mean*log(mean), in float64, by the algorithm that kernel.h states. It does
// not check its values.
//
// It needs cgo and amd64; elsewhere Kernels is empty.
package ckernel

// Panel is values as [Passes][Width], rows Stride values apart.
type Panel struct {
	Values                []float32
	Passes, Width, Stride int
}

// Columns is what a kernel writes, for every column.
type Columns struct {
	Mean, Variance, ThirdMoment, C, Skewness, M, PLogP []float64

	aside []float64 // room for the kernels
}

// NewColumns makes room for width columns.
func NewColumns(width int) *Columns {
	all := make([]float64, 7*width)
	take := func() (s []float64) {
		s, all = all[:width:width], all[width:]
		return s
	}
	return &Columns{take(), take(), take(), take(), take(), take(), take(), nil}
}

// Path is an instruction set.
type Path string

// The paths.
const (
	AVX512 Path = "AVX-512"
	AVX2   Path = "AVX2"
)

// Kernel is one C function.
type Kernel struct {
	Path Path
	// Name tells the variants of a path apart.
	Name   string
	number int
}

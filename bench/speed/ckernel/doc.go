// Package ckernel is the opponent of ckd's kernel: the same work in C, with AVX-512 and AVX2
// intrinsics.
//
// For every column of values laid out [passes][width] it computes mean, variance, third moment,
// C_k, skewness, M_k and mean*log(mean), in float64, by the algorithm that kernel.h states. It does
// not check its values.
//
// It needs cgo and amd64; elsewhere it runs no path.
package ckernel

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

// Package kernel does the arithmetic that grows with the number of passes: for
// every column, which is one class of one input, what its S values say; and the
// sums of products of two columns.
//
// There are three versions of each function, in plain Go (scalar.go, which is
// also the specification), for AVX2 and for AVX-512 (kernel_amd64.s, generated
// by tools/kernel). The processor, and GODEBUG=cpu.avx512f=off and the like,
// decide at start which one runs; the build tag purego leaves the plain one
// alone. They agree bit for bit, on any input: columns do not mix, what is
// added up within one is added in an order that follows from the number of passes
// alone, and every operation is the same correctly rounded one. TestVersionsAgree
// holds them together.
//
// Values are in [0,1]. Others give numbers that mean nothing, in their columns
// alone: what becomes of inputs with rows that were refused.
package kernel

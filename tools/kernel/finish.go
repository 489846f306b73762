package main

import (
	"github.com/mmcloughlin/avo/attr"
	. "github.com/mmcloughlin/avo/build"   //nolint:revive,staticcheck // avo's programs read as assembly
	. "github.com/mmcloughlin/avo/operand" //nolint:revive,staticcheck // the same
	"github.com/mmcloughlin/avo/reg"
)

// inverseRoots writes the assembly of scalarInverseRoots.
func (m machine) inverseRoots() {
	TEXT(m.name("inverseRoots"), attr.NOSPLIT, "func(dst, mean *float64, n int)")
	Pragma("noescape")
	Doc(m.name("inverseRoots") + " implements scalarInverseRoots for n > 0.")
	dst, mean := param("dst"), param("mean")
	one, half, factor := m.copied(constant("one")), m.copied(constant("half")), m.copied(constant("3/8"))
	epsilon, guess := m.copied(constant("epsilon")), m.copied(constant("guess"))
	m.row(param("n")).each(func(_ int, at Mem, only *mask) {
		x, y, e, t := m.vector(), m.vector(), m.vector(), m.vector()
		VADDPD(m.load(float64s, sliceIn(mean, at), only), epsilon, x)
		VPSRLQ(Imm(1), x, y)
		VPSUBQ(y, guess, y)
		for range 3 {
			VMULPD(x, y, e)
			VFNMADD213PD(one, y, e)
			m.move(half, t)
			VFMADD231PD(factor, e, t)
			VMULPD(y, e, e)
			VFMADD231PD(e, t, y)
		}
		m.store(y, sliceIn(dst, at), only)
	})
	VZEROUPPER()
	RET()
}

// confusions writes the assembly of scalarConfusions.
func (m machine) confusions() {
	TEXT(m.name("confusions"), attr.NOSPLIT, "func(shares, terms, sums, scales, roots, weights *float64, "+
		"inputs, n, width, apart, weightsApart int)")
	Pragma("noescape")
	Doc(m.name("confusions") + " implements scalarConfusions for inputs, n, width > 0.")
	shares, terms, sums, scales := param("shares"), param("terms"), param("sums"), param("scales")
	roots, apart, weightsApart := param("roots"), param("apart"), param("weightsApart")
	SHLQ(Imm(3), apart)
	SHLQ(Imm(3), weightsApart)
	inputs := param("inputs")
	zero, columns := m.zero(), m.row(param("width"))
	total := make([]reg.VecVirtual, 8/m.lanes())

	input, row := label("input"), label("row")
	Label(input)
	rows, weights := param("n"), param("weights")
	Label(row)
	scale := m.broadcast(Mem{Base: scales})
	for i := range total {
		total[i] = m.zero()
	}
	columns.each(func(i int, at Mem, only *mask) {
		term := m.vector()
		VSUBPD(m.load(float64s, sliceIn(sums, at), only), zero, term)
		VMAXPD(zero, term, term)
		VMULPD(scale, term, term)
		VMULPD(m.load(float64s, sliceIn(roots, at), only), term, term)
		m.store(term, sliceIn(terms, at), only)
		VFMADD231PD(m.load(float64s, sliceIn(weights, at), only), term, total[i])
	})
	if m.wide {
		half := YMM()
		VEXTRACTF64X4(Imm(1), total[0], half)
		VADDPD(half, total[0].AsY(), total[0].AsY())
	} else {
		VADDPD(total[1], total[0], total[0])
	}
	two, one := XMM(), XMM()
	VEXTRACTF128(Imm(1), total[0].AsY(), two)
	VADDPD(two, total[0].AsX(), two)
	VUNPCKHPD(two, two, one)
	VADDSD(one, two, two)
	VMOVSD(two, Mem{Base: shares})
	ADDQ(Imm(8), shares)
	ADDQ(Imm(8), scales)
	ADDQ(apart, sums)
	ADDQ(apart, terms)
	ADDQ(weightsApart, weights)
	DECQ(rows)
	JNZ(LabelRef(row))
	ADDQ(apart, roots)
	DECQ(inputs)
	JNZ(LabelRef(input))
	VZEROUPPER()
	RET()
}

// sum writes the assembly of scalarSum for groups of eight values.
func (m machine) sum() {
	TEXT(m.name("sum"), attr.NOSPLIT, "func(parts, values *float64, n int)")
	Pragma("noescape")
	Doc(m.name("sum") + " implements scalarSum for n > 0, a multiple of 8. It adds to the parts.")
	parts, values, n := param("parts"), param("values"), param("n")
	total := make([]reg.VecVirtual, 8/m.lanes())
	in := func(slice reg.Register, i int) Mem { return Mem{Base: slice, Disp: 8 * m.lanes() * i} }
	for i := range total {
		total[i] = m.copied(in(parts, i))
	}
	offset, eight := GP64(), label("eight")
	XORQ(offset, offset)
	Label(eight)
	for i := range total {
		VADDPD(in(values, i).Idx(offset, 8), total[i], total[i])
	}
	ADDQ(Imm(8), offset)
	CMPQ(offset, n)
	JLT(LabelRef(eight))
	for i := range total {
		VMOVUPD(total[i], in(parts, i))
	}
	VZEROUPPER()
	RET()
}

// row is a row of numbers: full ones in groups of eight, and the rest.
type row struct {
	m          machine
	full, left reg.GPVirtual
	last       []mask // of the registers of the rest
}

// row returns a row of n numbers. It overwrites the register n.
func (m machine) row(n reg.GPVirtual) row {
	r := row{m, GP64(), n, make([]mask, 8/m.lanes())}
	MOVQ(n, r.full)
	ANDQ(I8(-8), r.full)
	SUBQ(r.full, n)
	for i := range r.last {
		left := GP64()
		LEAQ(Mem{Base: n, Disp: -m.lanes() * i}, left)
		r.last[i] = m.first(left, m.memory(2))
	}
	return r
}

// each generates a loop that runs the body for every register i of every group of eight numbers. In
// the last group some may be missing. at is the offset into slices.
func (r row) each(body func(i int, at Mem, only *mask)) {
	column, eight, rest, done := GP64(), label("eight"), label("rest"), label("done")
	at := func(i int) Mem { return Mem{Index: column, Scale: 8, Disp: 8 * r.m.lanes() * i} }
	XORQ(column, column)
	CMPQ(column, r.full)
	JGE(LabelRef(rest))
	Label(eight)
	for i := range r.last {
		body(i, at(i), nil)
	}
	ADDQ(Imm(8), column)
	CMPQ(column, r.full)
	JLT(LabelRef(eight))
	Label(rest)
	TESTQ(r.left, r.left)
	JZ(LabelRef(done))
	for i := range r.last {
		body(i, at(i), &r.last[i])
	}
	Label(done)
}

// sliceIn returns an offset applied to a slice.
func sliceIn(slice reg.Register, at Mem) Mem {
	at.Base = slice
	return at
}

package main

import (
	"github.com/mmcloughlin/avo/attr"
	. "github.com/mmcloughlin/avo/build"   //nolint:revive,staticcheck // avo's programs read as assembly
	. "github.com/mmcloughlin/avo/operand" //nolint:revive,staticcheck // the same
	"github.com/mmcloughlin/avo/reg"
)

// inverseRoots is the part of scalarInverseRoots in groups of eight.
func (m machine) inverseRoots() {
	TEXT(m.name("inverseRoots"), attr.NOSPLIT, "func(dst, mean *float64, n int)")
	Pragma("noescape")
	Doc(m.name("inverseRoots") + " is scalarInverseRoots of n > 0, a multiple of 8.")
	dst, mean, n := param("dst"), param("mean"), param("n")
	one, epsilon := m.copied(constant("one")), m.copied(constant("epsilon"))
	m.eights(n, func(i int, at Mem) {
		root := m.vector()
		VADDPD(in(mean, at), epsilon, root)
		VSQRTPD(root, root)
		VDIVPD(root, one, root)
		VMOVUPD(root, in(dst, at))
	})
	VZEROUPPER()
	RET()
}

// confusion is the part of scalarConfusion in groups of eight.
func (m machine) confusion() {
	TEXT(m.name("confusion"), attr.NOSPLIT, "func(parts, terms, sums, roots, weights *float64, n int, scale float64)")
	Pragma("noescape")
	Doc(m.name("confusion") + " is scalarConfusion of n > 0, a multiple of 8, added to the parts.")
	parts, terms, sums := param("parts"), param("terms"), param("sums")
	roots, weights, n := param("roots"), param("weights"), param("n")
	scale, zero := m.broadcast(argument("scale")), m.zero()
	total := m.parts(parts)
	m.eights(n, func(i int, at Mem) {
		term := m.vector()
		VSUBPD(in(sums, at), zero, term)
		VMAXPD(zero, term, term)
		VMULPD(scale, term, term)
		VMULPD(in(roots, at), term, term)
		VMOVUPD(term, in(terms, at))
		VFMADD231PD(in(weights, at), term, total[i])
	})
	m.keep(total, parts)
	VZEROUPPER()
	RET()
}

// sum is the part of scalarSum in groups of eight.
func (m machine) sum() {
	TEXT(m.name("sum"), attr.NOSPLIT, "func(parts, values *float64, n int)")
	Pragma("noescape")
	Doc(m.name("sum") + " is scalarSum of n > 0, a multiple of 8, added to the parts.")
	parts, values, n := param("parts"), param("values"), param("n")
	total := m.parts(parts)
	m.eights(n, func(i int, at Mem) {
		VADDPD(in(values, at), total[i], total[i])
	})
	m.keep(total, parts)
	VZEROUPPER()
	RET()
}

// eights runs the body for every register i of every group of eight numbers,
// which are at a place in their slices.
func (m machine) eights(n reg.Register, body func(i int, at Mem)) {
	offset := GP64()
	XORQ(offset, offset)
	loop := label("eight")
	Label(loop)
	for i := range 8 / m.lanes() {
		body(i, Mem{Index: offset, Scale: 8, Disp: 8 * m.lanes() * i})
	}
	ADDQ(Imm(8), offset)
	CMPQ(offset, n)
	JLT(LabelRef(loop))
}

// in is a place in a slice.
func in(slice reg.Register, at Mem) Mem {
	at.Base = slice
	return at
}

// parts is registers with the eight sums.
func (m machine) parts(at reg.Register) []reg.VecVirtual {
	total := make([]reg.VecVirtual, 8/m.lanes())
	for i := range total {
		total[i] = m.copied(Mem{Base: at, Disp: 8 * m.lanes() * i})
	}
	return total
}

// keep writes them back.
func (m machine) keep(total []reg.VecVirtual, at reg.Register) {
	for i := range total {
		VMOVUPD(total[i], Mem{Base: at, Disp: 8 * m.lanes() * i})
	}
}

package main

import (
	"github.com/mmcloughlin/avo/attr"
	. "github.com/mmcloughlin/avo/build"   //nolint:revive,staticcheck // avo's programs read as assembly
	. "github.com/mmcloughlin/avo/operand" //nolint:revive,staticcheck // the same
	"github.com/mmcloughlin/avo/reg"
)

// rotated is scalarRotated, as far as the inputs of a register go: the classes
// of each are turned round in the register. AVX2 has room for up to 4 classes.
func (m machine) rotated(from element) {
	TEXT(m.name("rotated", from), attr.NOSPLIT, "func(sums *float64, apart int, data *"+from.name+
		", passes, width, stride int, mean *float64, each int, turns *[3][8]uint64, rotations int)")
	Pragma("noescape")
	Doc(m.name("rotated", from)+" is scalarRotated of passes, width > 0: of each columns at a time, which are whole inputs and fit",
		"into a register, turned as turns says; AVX2 takes its elements for halves of lanes.")
	sums, apart, data, mean := param("sums"), param("apart"), param("data"), param("mean")
	passes, width, stride := param("passes"), param("width"), param("stride")
	SHLQ(Imm(3), apart)
	SHLQ(Imm(uint64(from.shift())), stride)
	rotations := param("rotations")
	each := param("each")
	room := m.memory(2)

	var turns []reg.VecVirtual
	index := param("turns")
	for r := range 3 {
		turns = append(turns, m.copied(Mem{Base: index, Disp: 64 * r}))
	}
	left, step := GP64(), GP64()
	for r := 1; r <= 3; r++ {
		next, block := label("rotations"), label("block")
		CMPQ(rotations, Imm(uint64(r)))
		JNE(LabelRef(next))
		Label(block)
		MOVQ(width, left)
		CMPQ(each, left)
		CMOVQLT(each, left) // of the last block there may be fewer
		only := m.first(left, room)
		mu := m.load(float64s, Mem{Base: mean}, &only)
		sum := make([]reg.VecVirtual, r)
		for i := range sum {
			sum[i] = m.zero()
		}
		row := GP64()
		MOVQ(data, row)
		times(passes, func() {
			d := m.load(from, Mem{Base: row}, &only)
			VSUBPD(mu, d, d)
			for i := range sum {
				turned := m.vector()
				if m.wide {
					VPERMPD(d, turns[i], turned)
				} else {
					VPERMPS(d, turns[i], turned)
				}
				VFMADD231PD(turned, d, sum[i])
			}
			ADDQ(stride, row)
		})
		to := GP64()
		MOVQ(sums, to)
		for i := range sum {
			m.store(sum[i], Mem{Base: to}, &only)
			ADDQ(apart, to)
		}
		LEAQ(Mem{Base: sums, Index: each, Scale: 8}, sums)
		LEAQ(Mem{Base: mean, Index: each, Scale: 8}, mean)
		LEAQ(Mem{Base: data, Index: each, Scale: uint8(from.bytes)}, data)
		MOVQ(each, step)
		SUBQ(step, width)
		JG(LabelRef(block))
		JMP(LabelRef("done"))
		Label(next)
	}
	Label("done")
	VZEROUPPER()
	RET()
}

// deviations is scalarDeviations.
func (m machine) deviations(from element) {
	TEXT(m.name("deviations", from), attr.NOSPLIT, "func(dst *float64, apart int, data *"+from.name+
		", passes, width, stride int, mean *float64)")
	Pragma("noescape")
	Doc(m.name("deviations", from) + " is scalarDeviations of passes, width > 0.")
	dst, apart, data, mean := param("dst"), param("apart"), param("data"), param("mean")
	passes, left, stride := param("passes"), param("width"), param("stride")
	SHLQ(Imm(3), apart)
	SHLQ(Imm(uint64(from.shift())), stride)
	room := m.memory(2)

	block := label("block")
	Label(block)
	only := m.first(left, room)
	mu := m.load(float64s, Mem{Base: mean}, &only)
	row, to := GP64(), GP64()
	MOVQ(data, row)
	MOVQ(dst, to)
	times(passes, func() {
		d := m.load(from, Mem{Base: row}, &only)
		VSUBPD(mu, d, d)
		m.store(d, Mem{Base: to}, &only)
		ADDQ(stride, row)
		ADDQ(apart, to)
	})
	ADDQ(Imm(uint64(8*m.lanes())), dst)
	ADDQ(Imm(uint64(8*m.lanes())), mean)
	ADDQ(Imm(uint64(from.bytes*m.lanes())), data)
	SUBQ(Imm(uint64(m.lanes())), left)
	JG(LabelRef(block))
	VZEROUPPER()
	RET()
}

// crossed is scalarCrossed: of one register of columns at a time, with the other
// factor of up to eight classes.
func (m machine) crossed(from element) {
	TEXT(m.name("crossed", from), attr.NOSPLIT, "func(sums *float64, apart int, data *"+from.name+
		", passes, width, stride int, mean, fixed *float64, n int, first bool)")
	Pragma("noescape")
	Doc(m.name("crossed", from) + " is scalarCrossed of passes, width, n > 0.")
	sums, apart, data, mean := param("sums"), param("apart"), param("data"), param("mean")
	passes, stride, fixed, n := param("passes"), param("stride"), param("fixed"), param("n")
	SHLQ(Imm(3), apart)
	SHLQ(Imm(uint64(from.shift())), stride)
	between := GP64() // rows of fixed
	MOVQ(n, between)
	SHLQ(Imm(3), between)
	room := m.memory(2)

	Label("classes")
	for _, classes := range []int{8, 5, 3, 2, 1} {
		fewer, block := label("fewer"), label("block")
		CMPQ(n, Imm(uint64(classes)))
		JLT(LabelRef(fewer))
		left, column := param("width"), GP64()
		XORQ(column, column)
		Label(block)
		only := m.first(left, room)
		mu := m.load(float64s, Mem{Base: mean, Index: column, Scale: 8}, &only)
		sum, to, fresh := make([]reg.VecVirtual, classes), GP64(), label("fresh")
		for i := range sum {
			sum[i] = m.zero()
		}
		CMPB(argument("first"), Imm(0))
		JNE(LabelRef(fresh))
		LEAQ(Mem{Base: sums, Index: column, Scale: 8}, to)
		for i := range sum {
			VMOVAPD(m.load(float64s, Mem{Base: to}, &only), sum[i])
			ADDQ(apart, to)
		}
		Label(fresh)
		row, factor := GP64(), GP64()
		LEAQ(Mem{Base: data, Index: column, Scale: uint8(from.bytes)}, row)
		MOVQ(fixed, factor)
		times(passes, func() {
			d := m.load(from, Mem{Base: row}, &only)
			VSUBPD(mu, d, d)
			for i := range sum {
				at := Mem{Base: factor, Disp: 8 * i}
				if m.wide {
					VFMADD231PD_BCST(at, d, sum[i])
				} else {
					VFMADD231PD(m.broadcast(at), d, sum[i])
				}
			}
			ADDQ(stride, row)
			ADDQ(between, factor)
		})
		LEAQ(Mem{Base: sums, Index: column, Scale: 8}, to)
		for i := range sum {
			m.store(sum[i], Mem{Base: to}, &only)
			ADDQ(apart, to)
		}
		ADDQ(Imm(uint64(m.lanes())), column)
		SUBQ(Imm(uint64(m.lanes())), left)
		JG(LabelRef(block))
		for range classes {
			ADDQ(apart, sums)
		}
		ADDQ(Imm(uint64(8*classes)), fixed)
		SUBQ(Imm(uint64(classes)), n)
		JMP(LabelRef("classes"))
		Label(fewer)
	}
	VZEROUPPER()
	RET()
}

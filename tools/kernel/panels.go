package main

import (
	"github.com/mmcloughlin/avo/attr"
	. "github.com/mmcloughlin/avo/build"   //nolint:revive,staticcheck // avo's programs read as assembly
	. "github.com/mmcloughlin/avo/operand" //nolint:revive,staticcheck // the same
	"github.com/mmcloughlin/avo/reg"
)

// deviations is scalarDeviations.
func (m machine) deviations(from element) {
	TEXT(m.name("deviations", from), attr.NOSPLIT,
		"func(dst *float64, data *"+from.name+", passes, width, stride int, mean *float64)")
	Pragma("noescape")
	Doc(m.name("deviations", from) + " is scalarDeviations of passes, width > 0.")
	dst, data, mean := param("dst"), param("data"), param("mean")
	passes, width, stride := param("passes"), param("width"), param("stride")
	SHLQ(Imm(uint64(from.shift())), stride)
	rest, full := GP64(), GP64()
	MOVQ(width, rest)
	ANDQ(I32(m.lanes()-1), rest)
	MOVQ(width, full)
	SUBQ(rest, full) // columns in full registers
	padding := GP64()
	LEAQ(Mem{Base: width, Disp: 7}, padding)
	ANDQ(I32(-8), padding)
	SUBQ(full, padding)
	SHLQ(Imm(3), padding) // bytes of a row of dst that are after those
	only := m.first(rest, m.memory(2))

	column, end := GP64(), label("end")
	Label("row")
	XORQ(column, column)
	CMPQ(column, full)
	JGE(LabelRef("rest"))
	Label("full")
	p := m.load(from, Mem{Base: data, Index: column, Scale: uint8(from.bytes)}, nil)
	VSUBPD(Mem{Base: mean, Index: column, Scale: 8}, p, p)
	VMOVUPD(p, Mem{Base: dst})
	ADDQ(I32(8*m.lanes()), dst)
	ADDQ(Imm(uint64(m.lanes())), column)
	CMPQ(column, full)
	JLT(LabelRef("full"))
	Label("rest")
	TESTQ(rest, rest)
	JZ(LabelRef(end))
	p = m.load(from, Mem{Base: data, Index: column, Scale: uint8(from.bytes)}, &only)
	VSUBPD(m.load(float64s, Mem{Base: mean, Index: column, Scale: 8}, &only), p, p)
	VMOVUPD(p, Mem{Base: dst})
	Label(end)
	ADDQ(padding, dst)
	ADDQ(stride, data)
	DECQ(passes)
	JNZ(LabelRef("row"))
	VZEROUPPER()
	RET()
}

// products is scalarProducts.
func (m machine) products() {
	m.sums("products", "scalarProducts", func(a reg.Register, at Mem, only *mask) reg.VecVirtual {
		at.Base = a
		return m.load(float64s, at, only)
	})
}

// scaled is scalarScaled.
func (m machine) scaled() {
	m.sums("scaled", "scalarScaled", nil)
}

// sums adds up over the passes, of several registers of columns at a time, and
// of the last columns one by one. The other factor of a register is each's own,
// or else, with a nil other, the same for all.
func (m machine) sums(what, scalar string, other func(a reg.Register, at Mem, only *mask) reg.VecVirtual) {
	TEXT(m.name(what), attr.NOSPLIT, "func(sums, a, b *float64, passes, width, stride int)")
	Pragma("noescape")
	Doc(m.name(what) + " is " + scalar + " of passes, width > 0.")
	sums, a, b := param("sums"), param("a"), param("b")
	passes, width, stride := param("passes"), param("width"), param("stride")
	SHLQ(Imm(3), stride)
	room := m.memory(2)

	block := func(registers int, only *mask) {
		sum := make([]reg.VecVirtual, registers)
		for i := range sum {
			sum[i] = m.load(float64s, Mem{Base: sums, Disp: 8 * m.lanes() * i}, only)
		}
		row, offset := GP64(), GP64()
		MOVQ(b, row)
		MOVQ(a, offset)
		times(passes, func() {
			var x reg.VecVirtual
			if other == nil {
				x = m.broadcast(Mem{Base: offset})
			}
			for i := range sum {
				at := Mem{Base: row, Disp: 8 * m.lanes() * i}
				if other != nil {
					x = other(offset, at, only)
				}
				if only == nil {
					VFMADD231PD(at, x, sum[i])
				} else {
					VFMADD231PD(m.load(float64s, at, only), x, sum[i])
				}
			}
			ADDQ(stride, row)
			ADDQ(stride, offset)
		})
		for i := range sum {
			m.store(sum[i], Mem{Base: sums, Disp: 8 * m.lanes() * i}, only)
		}
		columns := registers * m.lanes()
		ADDQ(I32(8*columns), sums)
		ADDQ(I32(8*columns), b)
		if other != nil {
			ADDQ(I32(8*columns), a)
		}
		SUBQ(I32(columns), width)
	}

	const registers = 8
	Label("several")
	CMPQ(width, I32(registers*m.lanes()))
	JLT(LabelRef("last"))
	block(registers, nil)
	JMP(LabelRef("several"))
	Label("last")
	CMPQ(width, Imm(0))
	JLE(LabelRef("done"))
	only := m.first(width, room)
	block(1, &only)
	JMP(LabelRef("last"))
	Label("done")
	VZEROUPPER()
	RET()
}

package main

import (
	"fmt"

	"github.com/mmcloughlin/avo/attr"
	. "github.com/mmcloughlin/avo/build"   //nolint:revive,staticcheck // avo's programs read as assembly
	. "github.com/mmcloughlin/avo/operand" //nolint:revive,staticcheck // the same
	"github.com/mmcloughlin/avo/reg"
)

// plain holds what the functions for Plain have in common. All keep the largest bits of a value, as
// an unsigned number, which are the bits of 1 if all values are in [0,1]; and the largest distance
// of a row's sum from 1. Reading a row twice does no harm.
type plain struct {
	m                machine
	bits, worst, one reg.VecVirtual
}

// floats returns how many float32 a register holds.
func (m machine) floats() int { return 2 * m.lanes() }

func (m machine) plain() {
	m.plainHalves(2, "plainTwo")
	m.plainHalves(4, "plainFour")
	m.plainNarrow()
	m.plainEight()
	m.plainWide()
}

func (m machine) startPlain() plain {
	p := plain{m: m, one: m.copied(constant("floatOne")), worst: m.zero()}
	p.bits = m.copied(p.one)
	return p
}

// see raises the largest bit pattern seen by these values, to find negative and non-finite ones.
func (p plain) see(values Op) { VPMAXUD(values, p.bits, p.bits) }

// judge raises the largest distance of a sum from one by these sums. lanes masks off the sign, and
// whole lanes that hold no sum.
func (p plain) judge(sums reg.VecVirtual, lanes Op) {
	VSUBPS(p.one, sums, sums)
	VANDPS(lanes, sums, sums)
	VMAXPS(p.worst, sums, p.worst)
}

// end generates the end of the function, which returns whether all rows are good.
func (p plain) end() {
	worst, bits := p.worst, p.bits
	if p.m.wide {
		half := YMM()
		VEXTRACTF64X4(Imm(1), worst, half)
		VMAXPS(half, worst.AsY(), worst.AsY())
		VEXTRACTF64X4(Imm(1), bits, half)
		VPMAXUD(half, bits.AsY(), bits.AsY())
	}
	limit := YMM()
	VBROADCASTSS(argument("limit"), limit)
	y := worst.AsY()
	VCMPPS(Imm(notGreater), limit, y, limit)
	VPCMPEQD(constant("floatOne"), bits.AsY(), bits.AsY())
	VANDPS(bits.AsY(), limit, limit)
	lanes := GP32()
	VMOVMSKPS(limit, lanes)
	CMPL(lanes, Imm(0xff))
	good := GP8()
	SETEQ(good)
	Store(good, ReturnIndex(0))
	VZEROUPPER()
	RET()
}

// plainHalves writes the function for two or four classes. It loads as many registers as there are
// classes, adds the values of even lanes to those of odd lanes, and repeats this until one register
// holds the sums of rows. At the end it takes the last registers again, which may overlap.
func (m machine) plainHalves(classes int, name string) {
	TEXT(m.name(name), attr.NOSPLIT, "func(rows *float32, values int, limit float32) bool")
	Pragma("noescape")
	Doc(fmt.Sprintf("%s implements Plain for %d classes and at least %d values.", m.name(name), classes, classes*m.floats()))
	rows, values := param("rows"), param("values")
	p := m.startPlain()
	absolute := m.copied(constant("floatAbsolute"))
	block := 4 * classes * m.floats()
	last := GP64()
	LEAQ(Mem{Base: rows, Index: values, Scale: 4, Disp: -block}, last)
	Label("blocks")
	CMPQ(rows, last)
	CMOVQGT(last, rows)
	sums := make([]reg.VecVirtual, classes)
	for i := range sums {
		sums[i] = m.copied(Mem{Base: rows, Disp: 4 * i * m.floats()})
		p.see(sums[i])
	}
	for ; len(sums) > 1; sums = sums[:len(sums)/2] {
		for i := range len(sums) / 2 {
			a, b := sums[2*i], sums[2*i+1]
			even, odd := m.vector(), m.vector()
			VSHUFPS(Imm(0x88), b, a, even)
			VSHUFPS(Imm(0xdd), b, a, odd)
			VADDPS(odd, even, even)
			sums[i] = even
		}
	}
	p.judge(sums[0], absolute)
	ADDQ(I32(block), rows)
	SUBQ(I32(block/4), values)
	JG(LabelRef("blocks"))
	p.end()
}

// plainNarrow slides a window of one row over the values. It adds as many loads as there are
// classes, each one value further on: every lane then has the sum of the classes from there on. The
// window moves by as many rows as fit into a register, so that rows always begin in the same lanes,
// given by first. At the end it moves so that the last row begins in the last lane.
func (m machine) plainNarrow() {
	TEXT(m.name("plainNarrow"), attr.NOSPLIT,
		"func(rows *float32, values, classes, step int, first, last *[16]uint32, limit float32) bool")
	Pragma("noescape")
	Doc(m.name("plainNarrow") + " implements Plain for values >= classes + a register - 1.")
	rows, values, classes, step := param("rows"), param("values"), param("classes"), param("step")
	first, last := param("first"), param("last")
	p := m.startPlain()
	lanes := m.copied(Mem{Base: first})
	end := GP64() // where the last window begins
	LEAQ(Mem{Base: rows, Index: values, Scale: 4, Disp: -4 * (m.floats() - 1)}, end)
	SHLQ(Imm(2), classes)
	SHLQ(Imm(2), step)
	SUBQ(classes, end)
	SUBQ(Imm(4), classes) // now the offset of the last load

	window := func() {
		sums := m.vector()
		VMOVUPS(Mem{Base: rows}, sums)
		p.see(sums)
		offset := GP64()
		MOVQ(classes, offset)
		further := label("further")
		Label(further)
		VADDPS(Mem{Base: rows, Index: offset, Scale: 1}, sums, sums)
		SUBQ(Imm(4), offset)
		JNZ(LabelRef(further))
		p.judge(sums, lanes)
	}
	Label("windows")
	CMPQ(rows, end)
	JG(LabelRef("last"))
	window()
	ADDQ(step, rows)
	JMP(LabelRef("windows"))
	Label("last")
	MOVQ(end, rows)
	VMOVUPS(Mem{Base: last}, lanes)
	window()
	tail := m.vector() // values that the last window adds but does not begin with
	VMOVUPS(Mem{Base: rows, Index: classes, Scale: 1}, tail)
	p.see(tail)
	p.end()
}

// plainEight adds up eight rows at a time, first along themselves, then all across, in registers of
// AVX2: rows that do not fill one leave less of it empty. At the end it takes the last eight rows
// again, which may overlap.
func (m machine) plainEight() {
	TEXT(m.name("plainEight"), attr.NOSPLIT, "func(rows *float32, count, classes int, limit float32) bool")
	Pragma("noescape")
	Doc(m.name("plainEight") + " implements Plain for at least 8 rows and classes.")
	at, count, classes := param("rows"), param("count"), param("classes")
	narrow := machine{wide: false}
	p := narrow.startPlain()
	full, left := GP64(), GP64() // values in full registers after the first, and the rest
	LEAQ(Mem{Base: classes, Disp: -8}, full)
	MOVQ(full, left)
	ANDQ(I8(-8), full)
	SUBQ(full, left)
	SHLQ(Imm(2), classes)
	last := GP64()
	LEAQ(Mem{Base: count, Disp: -8}, last)
	IMULQ(classes, last)
	ADDQ(at, last)
	rest := narrow.firstFloats(left)
	if m.wide { // its masks cost nothing
		rest = mask{k: K()}
		ones := GP64()
		MOVQ(I32(-1), ones)
		BZHIQ(left, ones, ones)
		KMOVW(ones.As32(), rest.k)
	}

	Label("eight")
	CMPQ(at, last)
	CMOVQGT(last, at)
	base := [3]reg.GPVirtual{GP64(), GP64(), GP64()} // addresses of rows 0, 3 and 6
	MOVQ(at, base[0])
	triple := GP64()
	LEAQ(Mem{Base: classes, Index: classes, Scale: 2}, triple)
	LEAQ(Mem{Base: at, Index: triple, Scale: 1}, base[1])
	LEAQ(Mem{Base: at, Index: triple, Scale: 2}, base[2])
	rows := [8]Mem{
		{Base: base[0]}, {Base: base[0], Index: classes, Scale: 1}, {Base: base[0], Index: classes, Scale: 2},
		{Base: base[1]}, {Base: base[0], Index: classes, Scale: 4}, {Base: base[1], Index: classes, Scale: 2},
		{Base: base[2]}, {Base: base[1], Index: classes, Scale: 4},
	}
	further := func() {
		for _, b := range base {
			ADDQ(Imm(32), b)
		}
	}
	var sums [8]reg.VecVirtual
	for i, row := range rows {
		sums[i] = narrow.copied(row)
		p.see(sums[i])
	}
	further()
	offset := GP64()
	MOVQ(full, offset)
	TESTQ(offset, offset)
	JZ(LabelRef("rest"))
	Label("along")
	for i, row := range rows {
		v := narrow.copied(row)
		p.see(v)
		VADDPS(v, sums[i], sums[i])
	}
	further()
	SUBQ(Imm(8), offset)
	JNZ(LabelRef("along"))
	Label("rest")
	TESTQ(left, left)
	JZ(LabelRef("across"))
	for i, row := range rows {
		v := YMM()
		if m.wide {
			VMOVUPS_Z(row, rest.k, v)
		} else {
			VMASKMOVPS(row, rest.v, v)
		}
		p.see(v)
		VADDPS(v, sums[i], sums[i])
	}
	Label("across")
	quarters := [2]reg.VecVirtual{across(narrow, sums[:4]), across(narrow, sums[4:])}
	low, high := YMM(), YMM()
	VBLENDPS(Imm(0xf0), quarters[1], quarters[0], low)
	VPERM2F128(Imm(0x21), quarters[1], quarters[0], high)
	VADDPS(high, low, low)
	p.judge(low, constant("floatAbsolute"))
	LEAQ(Mem{Base: at, Index: classes, Scale: 8}, at)
	SUBQ(Imm(8), count)
	JG(LabelRef("eight"))
	p.end()
}

// across returns the sums of four rows within each quarter of a register.
func across(m machine, rows []reg.VecVirtual) reg.VecVirtual {
	pair := func(a, b reg.VecVirtual, low, high func(...Op)) reg.VecVirtual {
		l, h := m.vector(), m.vector()
		low(b, a, l)
		high(b, a, h)
		VADDPS(h, l, l)
		return l
	}
	return pair(
		pair(rows[0], rows[1], VUNPCKLPS, VUNPCKHPS),
		pair(rows[2], rows[3], VUNPCKLPS, VUNPCKHPS), VUNPCKLPD, VUNPCKHPD)
}

// plainWide adds up four rows at a time, first along themselves, then all four across. If fewer are
// left, it takes the last row several times.
func (m machine) plainWide() {
	TEXT(m.name("plainWide"), attr.NOSPLIT, "func(rows *float32, count, classes int, limit float32) bool")
	Pragma("noescape")
	Doc(m.name("plainWide") + " implements Plain for any number of rows > 0 and classes.")
	at, count, classes := param("rows"), param("count"), param("classes")
	p := m.startPlain()
	full, left := GP64(), GP64()
	MOVQ(classes, full)
	ANDQ(I32(-m.floats()), full)
	MOVQ(classes, left)
	SUBQ(full, left)
	rest := m.firstFloats(left)
	SHLQ(Imm(2), full)
	SHLQ(Imm(2), classes)

	var row [4]reg.GPVirtual
	for i := range row {
		row[i] = GP64()
	}
	Label("four")
	MOVQ(at, row[0])
	for i := 1; i < len(row); i++ {
		LEAQ(Mem{Base: row[i-1], Index: classes, Scale: 1}, row[i])
		CMPQ(count, Imm(uint64(i)))
		CMOVQLE(row[i-1], row[i])
	}
	var sums [4]reg.VecVirtual
	for i := range sums {
		sums[i] = m.zero()
	}
	offset := GP64()
	XORQ(offset, offset)
	CMPQ(offset, full)
	JGE(LabelRef("rest"))
	Label("along")
	for i := range row {
		v := m.vector()
		VMOVUPS(Mem{Base: row[i], Index: offset, Scale: 1}, v)
		p.see(v)
		VADDPS(v, sums[i], sums[i])
	}
	ADDQ(I32(4*m.floats()), offset)
	CMPQ(offset, full)
	JLT(LabelRef("along"))
	Label("rest")
	CMPQ(offset, classes)
	JGE(LabelRef("across"))
	for i := range row {
		v := m.loadFloats(Mem{Base: row[i], Index: offset, Scale: 1}, rest)
		p.see(v)
		VADDPS(v, sums[i], sums[i])
	}
	Label("across")
	quarter := across(m, sums[:])
	if m.wide {
		half := YMM()
		VEXTRACTF64X4(Imm(1), quarter, half)
		VADDPS(half, quarter.AsY(), quarter.AsY())
	}
	x := XMM() // the four sums
	VEXTRACTF128(Imm(1), quarter.AsY(), x)
	VADDPS(x, quarter.AsX(), x)
	VSUBPS(p.one.AsX(), x, x)
	VANDPS(constant("floatAbsolute"), x, x)
	VMAXPS(p.worst.AsX(), x, p.worst.AsX())
	LEAQ(Mem{Base: at, Index: classes, Scale: 4}, at)
	SUBQ(Imm(4), count)
	JG(LabelRef("four"))
	p.end()
}

package main

import (
	"github.com/mmcloughlin/avo/attr"
	. "github.com/mmcloughlin/avo/build"   //nolint:revive,staticcheck // avo's programs read as assembly
	. "github.com/mmcloughlin/avo/operand" //nolint:revive,staticcheck // the same
	"github.com/mmcloughlin/avo/reg"
)

// rotated writes the assembly of scalarRotated for inputs that fit into a register: it rotates the
// classes of each input in the register. AVX2 takes up to 4 classes.
func (m machine) rotated(from element) {
	TEXT(m.name("rotated", from), attr.NOSPLIT, "func(sums *float64, apart int, data *"+from.name+
		", passes, width, stride int, mean *float64, each int, turns *[3][8]uint64, rotations int)")
	Pragma("noescape")
	Doc(m.name("rotated", from)+" implements scalarRotated for passes, width > 0. It takes each columns at a time, which are",
		"whole inputs and fit into a register, and permutes them by turns. For AVX2 turns indexes halves of lanes.")
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
		CMOVQLT(each, left) // the last block may have fewer
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

// deviations writes the assembly of scalarDeviations.
func (m machine) deviations(from element) {
	TEXT(m.name("deviations", from), attr.NOSPLIT, "func(dst *float64, apart int, data *"+from.name+
		", mean *float64, passes, stride, inputs, classes, width int)")
	Pragma("noescape")
	Doc(m.name("deviations", from) + " implements scalarDeviations for passes, inputs, width > 0.")
	dst, apart, data, mean := param("dst"), param("apart"), param("data"), param("mean")
	passes, stride, inputs, classes := param("passes"), param("stride"), param("inputs"), param("classes")
	SHLQ(Imm(3), apart)
	SHLQ(Imm(uint64(from.shift())), stride)
	room := m.memory(2)

	input, block := label("input"), label("block")
	Label(input)
	left, column, to := param("width"), GP64(), GP64()
	XORQ(column, column)
	Label(block)
	only := m.first(left, room)
	mu := m.load(float64s, Mem{Base: mean, Index: column, Scale: 8}, &only)
	row := GP64()
	LEAQ(Mem{Base: data, Index: column, Scale: uint8(from.bytes)}, row)
	LEAQ(Mem{Base: dst, Index: column, Scale: 8}, to)
	times(passes, func() {
		d := m.load(from, Mem{Base: row}, &only)
		VSUBPD(mu, d, d)
		m.store(d, Mem{Base: to}, &only)
		ADDQ(stride, row)
		ADDQ(apart, to)
	})
	ADDQ(Imm(uint64(m.lanes())), column)
	SUBQ(Imm(uint64(m.lanes())), left)
	JG(LabelRef(block))
	SHLQ(Imm(3), column)
	SUBQ(column, to)
	LEAQ(Mem{Base: to, Disp: 8 * m.lanes()}, dst) // where the rows of the next input begin
	LEAQ(Mem{Base: data, Index: classes, Scale: uint8(from.bytes)}, data)
	LEAQ(Mem{Base: mean, Index: classes, Scale: 8}, mean)
	DECQ(inputs)
	JNZ(LabelRef(input))
	VZEROUPPER()
	RET()
}

// crossed writes the assembly of scalarCrossed for up to ten fixed classes at a time, with one
// register of columns. With few fixed classes a sum would wait for the product before, so it takes
// two registers of columns, which may be of two inputs. If their number is odd, it does the last
// one twice.
func (m machine) crossed(from element) {
	TEXT(m.name("crossed", from), attr.NOSPLIT, "func(sums *float64, apart int, data *"+from.name+
		", mean *float64, passes, stride, inputs, classes, width int, fixed *float64, fixedStride, n int, first bool)")
	Pragma("noescape")
	Doc(m.name("crossed", from) + " implements scalarCrossed for passes, inputs, width, n > 0.")
	// Values that are seldom needed are in memory.
	local := func(value reg.GPVirtual) Mem {
		at := AllocLocal(8)
		MOVQ(value, at)
		return at
	}
	bytes := func(name string, shift int) reg.GPVirtual {
		value := param(name)
		SHLQ(Imm(uint64(shift)), value)
		return value
	}
	sums, fixed, n := local(param("sums")), local(param("fixed")), local(param("n"))
	valuesOfInput, meansOfInput := local(bytes("classes", from.shift())), local(bytes("classes", 3))
	rowOfSums := bytes("apart", 3)
	sumsOfInput := param("n")
	IMULQ(rowOfSums, sumsOfInput)
	stride, fixedStride := bytes("stride", from.shift()), bytes("fixedStride", 3)
	fixedOfInput := param("passes")
	IMULQ(fixedStride, fixedOfInput)
	apart, between, ahead := local(rowOfSums), local(sumsOfInput), local(fixedOfInput)

	// A block is one register of the columns of one input.
	type block struct {
		only       mask
		room       memory
		mu         reg.VecVirtual
		row, fixed reg.GPVirtual
		to         Mem
		sum        []reg.VecVirtual
	}
	blocks := [2]block{}
	for i := range blocks {
		blocks[i].room, blocks[i].to = m.memory(2), AllocLocal(8)
	}

	Label("classes")
	for _, classes := range []int{10, 5, 4, 3, 2, 1} {
		blocks := blocks[:1]
		if classes <= 5 {
			blocks = blocks[:2]
		}
		fewer, loop, fresh, done := label("fewer"), label("block"), label("fresh"), label("done")
		CMPQ(n, Imm(uint64(classes)))
		JLT(LabelRef(fewer))
		// These belong to the next block.
		values, means, factors, to := param("data"), param("mean"), GP64(), GP64()
		inputs, column := param("inputs"), GP64()
		MOVQ(fixed, factors)
		MOVQ(sums, to)
		XORQ(column, column)
		// advance goes on to the next block. After the last one it stays there and sets inputs to
		// 0.
		advance := func() {
			same := label("same")
			ADDQ(Imm(uint64(m.lanes())), column)
			CMPQ(column, argument("width"))
			JLT(LabelRef(same))
			SUBQ(Imm(uint64(m.lanes())), column)
			DECQ(inputs)
			JZ(LabelRef(same))
			XORQ(column, column)
			ADDQ(valuesOfInput, values)
			ADDQ(meansOfInput, means)
			ADDQ(ahead, factors)
			ADDQ(between, to)
			Label(same)
		}
		Label(loop)
		for i := range blocks {
			b := &blocks[i]
			if i > 0 {
				advance()
			}
			left := param("width")
			SUBQ(column, left)
			b.only = m.first(left, b.room)
			b.mu = m.load(float64s, Mem{Base: means, Index: column, Scale: 8}, &b.only)
			b.row, b.fixed = GP64(), GP64()
			LEAQ(Mem{Base: values, Index: column, Scale: uint8(from.bytes)}, b.row)
			MOVQ(factors, b.fixed)
			at := GP64()
			LEAQ(Mem{Base: to, Index: column, Scale: 8}, at)
			MOVQ(at, b.to)
			b.sum = make([]reg.VecVirtual, classes)
			for i := range b.sum {
				b.sum[i] = m.zero()
			}
		}
		CMPB(argument("first"), Imm(0))
		JNE(LabelRef(fresh))
		for _, b := range blocks {
			at := GP64()
			MOVQ(b.to, at)
			for i := range b.sum {
				VMOVAPD(m.load(float64s, Mem{Base: at}, &b.only), b.sum[i])
				ADDQ(apart, at)
			}
		}
		Label(fresh)
		times(param("passes"), func() {
			for _, b := range blocks {
				d := m.load(from, Mem{Base: b.row}, &b.only)
				VSUBPD(b.mu, d, d)
				for i := range b.sum {
					at := Mem{Base: b.fixed, Disp: 8 * i}
					if m.wide {
						VFMADD231PD_BCST(at, d, b.sum[i])
					} else {
						VFMADD231PD(m.broadcast(at), d, b.sum[i])
					}
				}
				ADDQ(stride, b.row)
				ADDQ(fixedStride, b.fixed)
			}
		})
		for _, b := range blocks {
			at := GP64()
			MOVQ(b.to, at)
			for i := range b.sum {
				m.store(b.sum[i], Mem{Base: at}, &b.only)
				ADDQ(apart, at)
			}
		}
		if len(blocks) > 1 {
			TESTQ(inputs, inputs)
			JZ(LabelRef(done))
		}
		advance()
		TESTQ(inputs, inputs)
		JNZ(LabelRef(loop))
		Label(done)
		rows := GP64()
		IMUL3Q(Imm(uint64(classes)), apart, rows)
		ADDQ(rows, sums)
		ADDQ(Imm(uint64(8*classes)), fixed)
		SUBQ(Imm(uint64(classes)), n)
		JMP(LabelRef("classes"))
		Label(fewer)
	}
	VZEROUPPER()
	RET()
}
